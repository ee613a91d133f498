/* segment.h - finished cells of one shard in one HDF5 file: tables, not a group per cell.
 *
 *     /cells         cell, id, status, reason, has_reason, digest, seconds: a row per cell
 *     /outcome/word  the cells' outcomes (pack.h) one after the other; offset and length per row
 *
 * A segment is written once, under its name only when it is whole (atomic_file.h), and never reopened. */
#ifndef QM_EXPERIMENTS_CAMPAIGN_SEGMENT_H
#define QM_EXPERIMENTS_CAMPAIGN_SEGMENT_H

#include "experiments/campaign/outcome_codec.h"
#include "experiments/suite/cell_id.h"

struct qm_segment_row {
    int64_t cell, offset, length; /* of its words */
    double seconds;
    const char *status; /* qm_outcome_status; static */
    char *reason;       /* or NULL */
    char id[QM_CELL_ID], digest[65];
};

/* Cells that wait for their segment, or that came out of one.  Zeroed: empty. */
struct qm_segment {
    int64_t rows, row_room, words, word_room;
    struct qm_segment_row *row;
    int64_t *word;
};

/* Copies an outcome's words and takes its text (p->text becomes NULL).  QM_BAD_ARG: the words are no
 * outcome. */
qm_status qm_segment_add(struct qm_segment *s, int64_t cell, const char *id, double seconds,
                         struct qm_packed *p);
void qm_segment_clear(struct qm_segment *s); /* keeps its memory */
void qm_segment_free(struct qm_segment *s);

/* Writes path; hash gets the SHA-256 of the file's bytes. */
qm_status qm_segment_write(const struct qm_segment *s, const char *path, char hash[65]);

/* QM_BAD_FILE: damaged, or no segment.  *out was zeroed. */
qm_status qm_segment_read(const char *path, struct qm_segment *out);

/* SHA-256 of a file's bytes.  QM_BAD_FILE: it cannot be read. */
qm_status qm_file_hash(const char *path, char out[65]);

#endif
