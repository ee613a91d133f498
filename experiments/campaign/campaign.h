/* campaign.h - a suite run by many processes, in a folder that survives them.
 *
 *     NAME.run/campaign.json     what is run: suite, digest of suite and data, number of cells
 *              suite.yaml        the suite in canonical form, which workers and merge read
 *              <i>of<n>.jsonl    ledger of shard i (ledger.h): the truth about what is done
 *              <i>of<n>.<k>.h5   its segments (segment.h)
 *              <i>of<n>.journal  finished cells that wait for a segment (writer.h)
 *              <i>of<n>.log      what its workers printed
 *              array.sh, merge.sh, slurm-*.out   of qualm submit
 *
 * The same command goes on where an earlier one ended, however it ended: cells whose segment is
 * whole, in any ledger of the folder, are not run again, so the number of shards may change. */
#ifndef QM_EXPERIMENTS_CAMPAIGN_CAMPAIGN_H
#define QM_EXPERIMENTS_CAMPAIGN_CAMPAIGN_H

#include <signal.h>

#include "experiments/campaign/ledger.h"
#include "experiments/run/run_cells.h"
#include "experiments/run/suite_load.h"

struct qm_campaign_options {
    const char *dir;
    int workers;       /* processes, at least 1 */
    int shard, shards; /* from 0, of */
    int dealt; /* cells come from rank 0 (mpi_dispatch.h): shard, shards name the ledger only */
    int retry_failed;          /* cells that failed are not done */
    int fresh;                 /* throw away what is there */
    double seconds, mebibytes; /* limits per cell: wall clock, resident memory of its worker */
};

/* How far a shard, and the whole, has come. */
struct qm_campaign_count {
    int64_t cells, todo, ran, failed;        /* of this shard: todo before it began */
    int64_t all_done, all_cells, all_failed; /* of the folder, by all ledgers */
};

/* "results/x.h5" to "results/x.run", others get ".run" behind. */
void qm_campaign_dir(const char *out, char *dir, size_t size);

/* The way back, where out is NULL: "results/x.run" or "results/x.run/" to "results/x.h5". */
void qm_campaign_out(const char *out, const char *dir, char *path, size_t size);

/* Whether a campaign was begun in that folder. */
int qm_campaign_exists(const char *dir);

/* SHA-256 of the suite's plan, the cells' ids and the bytes of its data; id gets the cells' ids. */
qm_status qm_campaign_digest(const struct qm_loaded_suite *job, char (*id)[QM_CELL_ID],
                             char out[65]);

/* Makes the folder with campaign.json and suite.yaml, or checks that those there are of this job.
 * fresh: throws away what is there.  QM_BAD_ARG: another suite's; QM_BAD_FILE. */
qm_status qm_campaign_begin(const struct qm_loaded_suite *job, const char *dir, int fresh);

/* Runs what this shard has to do.  QM_INTERRUPTED when *stop became 1 (cells under way are
 * finished) or 2 (they are given up); all that is finished is on the disk then.  QM_BAD_ARG: another
 * suite was begun there.  QM_BAD_FILE: the disk, or another runner on this shard. */
qm_status qm_campaign_run(const struct qm_loaded_suite *job, const struct qm_campaign_options *o,
                          const volatile sig_atomic_t *stop, struct qm_campaign_count *out);

/* Rank 0 of a dealt campaign (mpi_dispatch.h): deals until all others have left, then counts. */
qm_status qm_campaign_deal(const struct qm_loaded_suite *job, const struct qm_campaign_options *o,
                           const volatile sig_atomic_t *stop, struct qm_campaign_count *out);

/* Removes what campaigns write there, and the folder where nothing else is left; nothing while a
 * runner holds a ledger. */
void qm_campaign_remove(const char *dir);

/* What campaign.json says. */
struct qm_campaign_head {
    char name[256], digest[65]; /* name: of a file without its ending, thus whole */
    int64_t cells;
};
qm_status qm_campaign_head(const char *dir, struct qm_campaign_head *out);

/* Opens the job of a folder, named as it was begun, and checks the digest. */
qm_status qm_campaign_job(const char *dir, struct qm_loaded_suite *out);

/* All cells' outcomes, from the ledgers of these sources (folders, or ledger files): every digest
 * is verified.  QM_NO_MATCH: cells are missing, the message counts them.  QM_BAD_FILE: damage that
 * leaves cells without results; two results for a cell that differ.  out->cell, suite are the
 * job's. */
qm_status qm_campaign_collect(const struct qm_loaded_suite *job, char *const *source, int n_sources,
                              struct qm_results *out);

#endif
