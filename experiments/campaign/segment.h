/* segment.h - Segments: finished cells of one shard in one HDF5 file, a table row per cell.
 *
 *     /cells         cell, id, status, reason, has_reason, digest, seconds: a row per cell
 *     /outcome/word  the cells' outcomes (outcome_codec.h); /outcome/offset and length per cell
 *
 * A segment is written once, appears under its name only when it is whole (atomic_file.h), and is
 * never written to again. */
#ifndef QM_CAMPAIGN_SEGMENT_H
#define QM_CAMPAIGN_SEGMENT_H

#include "experiments/campaign/outcome_codec.h"
#include "experiments/suite/cell_id.h"

struct qm_segment_row {
    int64_t cell, offset, length; /* offset, length: of its words */
    double seconds;
    const char *status; /* qm_outcome_status; static */
    char *reason;       /* or NULL */
    char id[QM_CELL_ID], digest[65];
};

/* Cells in memory, before a segment is written or after one was read.  Starts as {0}. */
struct qm_segment {
    int64_t rows, row_room, words, word_room;
    struct qm_segment_row *row;
    int64_t *word;
};

/* Adds a cell: copies the outcome's words and takes its text (p->text becomes NULL).  QM_BAD_ARG:
 * the words are no outcome. */
qm_status qm_segment_add(struct qm_segment *s, int64_t cell, const char *id, double seconds,
                         struct qm_outcome_words *p);
void qm_segment_clear(struct qm_segment *s); /* leaves no cells, keeps the memory */
void qm_segment_free(struct qm_segment *s);

/* Writes path, whole or not at all; hash gets the SHA-256 of the file's bytes. */
qm_status qm_segment_write(const struct qm_segment *s, const char *path, char hash[65]);

/* Reads a segment into *out, which starts as {0}.  QM_BAD_FILE: it is damaged, or no segment. */
qm_status qm_segment_read(const char *path, struct qm_segment *out);

/* SHA-256 of a file's bytes as 64 hex digits and NUL.  QM_BAD_FILE: it cannot be read. */
qm_status qm_file_hash(const char *path, char out[65]);

#endif
