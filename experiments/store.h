/* store.h - the only writer of result files.  Schema: results/README.md.
 *
 * A file is built under a temporary name in the same folder and appears under its own by
 * qm_store_commit: flush, close, fsync, rename, fsync of the folder.  Nothing written is ever half
 * there.  Object times are off and rows are zeroed before filling, so that all datasets outside
 * /provenance and /timing are byte-identical between two runs of one plan. */
#ifndef QM_EXPERIMENTS_STORE_H
#define QM_EXPERIMENTS_STORE_H

#include "core/base/tensor.h"

struct qm_store;

/* kind: "run", "bench", "analyze", ...; argv is kept in /provenance. */
qm_status qm_store_open(const char *path, const char *kind, int argc, char **argv,
                        struct qm_store **out);
qm_status qm_store_commit(struct qm_store *s); /* frees s whatever comes out */
void qm_store_abort(struct qm_store *s);       /* removes the temporary file; accepts NULL */

/* A column of a table. */
enum qm_column_type { QM_COLUMN_i64, QM_COLUMN_f64, QM_COLUMN_text };
struct qm_column {
    const char *name;
    enum qm_column_type type;
    const char *unit, *text; /* unit "1" for a pure number, "" for text */
    const void *data;        /* int64_t[rows], double[rows] or const char *[rows] */
};

/* One compound dataset, a row per record; text columns are fixed width, NUL padded. */
qm_status qm_store_table(struct qm_store *s, const char *path, const char *text, int64_t rows,
                         int n_columns, const struct qm_column *columns);

/* An array with unit and description; dims' scales by path ("" or NULL: none). */
qm_status qm_store_array(struct qm_store *s, const char *path, enum qm_dtype dtype,
                         const struct qm_shape *shape, const void *data, const char *unit,
                         const char *text, const char *const *scales);

/* Ragged curves: values of all curves one after the other at path/value, with path/offset and
 * path/length per curve. */
qm_status qm_store_ragged(struct qm_store *s, const char *path, int64_t n_curves,
                          const int64_t *length, const double *value, const char *unit,
                          const char *text);

qm_status qm_store_text(struct qm_store *s, const char *path, const char *name, const char *value);
qm_status qm_store_number(struct qm_store *s, const char *path, const char *name, double value);

/* Everything that may differ between two runs: goes under /timing. */
qm_status qm_store_timing(struct qm_store *s, const char *name, int64_t n, const double *value,
                          const char *unit, const char *text);

/* Hash of all datasets and attributes outside /provenance and /timing: 64 hex digits, NUL. */
qm_status qm_store_digest(const char *path, char out[65]);

#endif
