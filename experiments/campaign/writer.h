/* writer.h - puts the finished cells of a shard on the disk: journal, segments, ledger.
 *
 * An answer goes to DIR/SHARD.journal at once, so that it outlives the runner; a segment makes a
 * file of many, and its lines in the ledger make them finished for good (a machine that loses its
 * power loses the journal, not that).  After a kill the journal's whole records become the first
 * segment. */
#ifndef QM_EXPERIMENTS_CAMPAIGN_WRITER_H
#define QM_EXPERIMENTS_CAMPAIGN_WRITER_H

#include "experiments/campaign/ledger.h"

struct qm_writer {
    const char *dir, *shard; /* "1of2" */
    char (*id)[QM_CELL_ID];  /* of every cell */
    int next_segment;        /* number of the next one */
    int journal;             /* file descriptor */
    struct qm_ledger ledger; /* locked: of all that is here only one writer is open */
    struct qm_segment waiting;
};

/* Locks the shard.  dir, shard and id are borrowed.  QM_BAD_FILE: held by another, or no writing. */
qm_status qm_writer_open(const char *dir, const char *shard, char (*id)[QM_CELL_ID],
                         struct qm_writer *out);
void qm_writer_close(struct qm_writer *w); /* what waits stays in the journal */

/* Takes the journal's records of the cells that are wanted (n bytes; failed: those that failed as
 * well) into a segment, and clears their wanted[].  next_segment must be right. */
qm_status qm_writer_recover(struct qm_writer *w, int64_t n, char *wanted, int failed,
                            int64_t *taken);

/* A finished cell; *failed: whether its outcome says so.  Takes p->text.  QM_BAD_ARG: the words are
 * no outcome, nothing happened. */
qm_status qm_writer_add(struct qm_writer *w, int64_t cell, double seconds, struct qm_packed *p,
                        int *failed);

/* Makes a segment of what waits, if anything does. */
qm_status qm_writer_segment(struct qm_writer *w);

#endif
