/* writer.h - Writes the finished cells of a shard to the disk: journal, segments, ledger.
 *
 * An outcome is written to DIR/SHARD.journal at once, so that it survives the runner's death.  A
 * segment stores many outcomes in one file; its lines in the ledger, which are flushed to the disk,
 * make their cells finished.  A loss of power may lose the journal, but no segment.  After a kill
 * the journal's whole records become the first segment. */
#ifndef QM_CAMPAIGN_WRITER_H
#define QM_CAMPAIGN_WRITER_H

#include "experiments/campaign/ledger.h"

struct qm_writer {
    const char *dir, *shard;   /* "1of2" */
    char (*id)[QM_CELL_ID];    /* of every cell */
    int next_segment;          /* number of the next segment, from 1 */
    int journal;               /* file descriptor; -1: closed */
    struct qm_ledger ledger;   /* locked: a shard has one writer at a time */
    struct qm_segment waiting; /* cells in the journal and in no segment yet */
};

/* Opens and locks the shard.  dir, shard and id are borrowed.  QM_BAD_FILE: another runner holds
 * it, or it cannot be written. */
qm_status qm_writer_open(const char *dir, const char *shard, char (*id)[QM_CELL_ID],
                         struct qm_writer *out);
void qm_writer_close(struct qm_writer *w); /* cells in no segment stay in the journal */

/* Moves the journal's records of cells with wanted[cell] (n bytes) into a segment and clears
 * their wanted[]; records of failed cells only when `failed`.  *taken counts them.  next_segment
 * must be set. */
qm_status qm_writer_recover(struct qm_writer *w, int64_t n, char *wanted, int failed,
                            int64_t *taken);

/* Adds a finished cell and takes p->text; *failed: whether its outcome is a failure.  QM_BAD_ARG:
 * the words are no outcome, and nothing was added. */
qm_status qm_writer_add(struct qm_writer *w, int64_t cell, double seconds,
                        struct qm_outcome_words *p, int *failed);

/* Writes the waiting cells, if there are any, as a segment, then their ledger lines. */
qm_status qm_writer_segment(struct qm_writer *w);

#endif
