/* campaign.h - Campaigns: a suite run by many processes, whose results a folder keeps.
 *
 *     NAME.run/campaign.json     the suite's name, digest of suite and data, number of cells,
 *                                and the sum of these (ledger.h)
 *              suite.yaml        the suite in canonical form, which workers and merge read
 *              <i>of<n>.jsonl    ledger of shard i (ledger.h): which cells are done
 *              <i>of<n>.<k>.h5   its segments (segment.h)
 *              <i>of<n>.journal  finished cells that wait for a segment (writer.h)
 *              <i>of<n>.log      what its workers printed
 *              array.sh, merge.sh, slurm-*.out   of qualm submit
 *
 * The same command continues an earlier one, however that ended: a cell that any ledger of the
 * folder lists in a whole segment is not run again, so the number of shards may change. */
#ifndef QM_CAMPAIGN_CAMPAIGN_H
#define QM_CAMPAIGN_CAMPAIGN_H

#include <signal.h>

#include "experiments/campaign/ledger.h"
#include "experiments/run/run_cells.h"
#include "experiments/run/suite_load.h"

enum { QM_CAMPAIGN_SECONDS = 3600 }; /* of a cell, where nothing else is asked for */

struct qm_campaign_options {
    const char *dir;
    int workers;       /* processes, at least 1 */
    int shard, shards; /* shard counts from 0 */
    int dispatched;    /* 1: rank 0 sends the cells, and shard and shards only name the ledger */
    int retry_failed;  /* 1: cells that failed run again */
    int fresh;         /* 1: an earlier campaign in the folder is thrown away */
    double seconds, mebibytes; /* limits per cell: wall clock, resident memory of its worker */
};

/* Progress of a shard and of its whole folder, in cells. */
struct qm_campaign_count {
    int64_t todo, ran, failed;               /* of this shard; todo: before it began */
    int64_t all_done, all_cells, all_failed; /* of the folder, from all ledgers */
};

/* The folder for a result file: "results/x.h5" gives "results/x.run"; other names get ".run". */
void qm_campaign_dir(const char *out, char *dir, size_t size);

/* The result file of a folder: out, or where that is NULL "results/x.h5" for "results/x.run"
 * and "results/x.run/". */
void qm_campaign_out(const char *out, const char *dir, char *path, size_t size);

/* The default of `mebibytes`: four fifths of the machine's memory, shared by the workers. */
double qm_campaign_memory(int workers);

/* Whether a campaign was begun in that folder. */
int qm_campaign_exists(const char *dir);

/* SHA-256 of the suite's plan, the cells' ids and the bytes of its data files, as 64 hex digits and
 * NUL; id[n_cells] gets the ids, unless it is NULL. */
qm_status qm_campaign_digest(const struct qm_loaded_suite *job, char (*id)[QM_CELL_ID],
                             char out[65]);

/* Makes the folder with campaign.json and suite.yaml, or checks that it was begun with this suite
 * and data.  fresh: removes an earlier campaign first.  QM_BAD_ARG: it was begun with
 * others.  QM_BAD_FILE: it cannot be written, or with fresh another run is at work in it. */
qm_status qm_campaign_begin(const struct qm_loaded_suite *job, const char *dir, int fresh);

/* Runs the cells that this shard has still to run.  QM_INTERRUPTED when *stop became 1 (running
 * cells are finished) or 2 (they are abandoned); every finished cell is on the disk
 * then.  QM_BAD_ARG: another suite was begun there.  QM_BAD_FILE: a failure of the disk, or another
 * runner on this shard. */
qm_status qm_campaign_run(const struct qm_loaded_suite *job, const struct qm_campaign_options *o,
                          const volatile sig_atomic_t *stop, struct qm_campaign_count *out);

/* Rank 0 under MPI (mpi_dispatch.h): sends cells until all other ranks have left, then counts. */
qm_status qm_campaign_dispatch(const struct qm_loaded_suite *job,
                               const struct qm_campaign_options *o,
                               const volatile sig_atomic_t *stop, struct qm_campaign_count *out);

/* Removes the files that campaigns write, and the folder if nothing else is in it.  Does nothing
 * while a runner holds a ledger. */
void qm_campaign_remove(const char *dir);

/* The contents of campaign.json.  QM_NO_MATCH: the folder has none; QM_BAD_FILE: it is
 * damaged, or there is no such folder. */
struct qm_campaign_head {
    char name[256], digest[65]; /* name: the suite file's stem, which is never cut off */
    char suite[65];             /* SHA-256 of suite.yaml */
    char folder[4096];          /* the one that the campaign was begun in */
    int64_t cells;
};
qm_status qm_campaign_head(const char *dir, struct qm_campaign_head *out);

/* Loads the suite of a folder under the name it was begun with.  Relative paths of its data are
 * taken from the folder that the campaign was begun in, and from the current one where nothing
 * matches there.  QM_BAD_FILE: suite.yaml is damaged or gone; QM_BAD_ARG: the digest differs. */
qm_status qm_campaign_job(const char *dir, struct qm_loaded_suite *out);

/* The outcomes of all cells, from the ledgers of the sources (folders or ledger files); every
 * digest is verified.  QM_NO_MATCH: cells are missing, and the message counts them.  QM_BAD_FILE:
 * damage that leaves cells without results, or two results of a cell that differ.  out->cell and
 * out->suite belong to job. */
qm_status qm_campaign_collect(const struct qm_loaded_suite *job, char *const *source, int n_sources,
                              struct qm_results *out);

#endif
