/* store.h - the only writer of result files.  Schema: results/README.md.
 *
 * A file is built in memory and appears under its name by qm_store_commit alone: the image goes to
 * "<path>.<pid>.part" in the same folder, is flushed to the disk and renamed, then the folder is
 * flushed.  Nothing written is ever half there, and a file of that name keeps its old contents
 * until then.  (The temporary file is made at once, so that an unwritable folder shows before a
 * long run does.  A killed process may leave it behind; readers never look at it.)
 *
 * Object times are off, rows are packed, text is padded with NULs, a NaN in a table or curve has
 * one bit pattern: outside /provenance and /timing all objects of two runs of one plan are
 * byte-identical, and so are whole files of one machine under SOURCE_DATE_EPOCH.
 *
 * Paths begin with '/' and name new objects; the groups above them are made.  Units and
 * descriptions are required words: unit "1" for a pure number, "" for text; NULL means "".
 * After a failure the store takes nothing more and commit reports the first failure.  One thread
 * at a time uses a store. */
#ifndef QM_STORE_STORE_H
#define QM_STORE_STORE_H

#include "core/base/tensor.h"

struct qm_store;

/* kind: "run", "bench", "analyze", ...; argv is kept in /provenance with all that
 * experiments/machine/provenance.h knows.  An existing file of that name will be replaced by commit.
 * QM_BAD_FILE: path is a folder, its folder is missing or not writable, or this path is being
 * written already by this process. */
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
    const void *data;        /* int64_t[rows], double[rows] or const char *[rows] (NULL: "") */
};

/* One compound dataset, a row per record; text columns are fixed width, NUL padded UTF-8.  Units
 * and descriptions of the columns are its attributes column_units and column_text, in order.
 * rows may be 0.  QM_BAD_ARG: no columns, two of one name, or more description than fits (64 KB). */
qm_status qm_store_table(struct qm_store *s, const char *path, const char *text, int64_t rows,
                         int n_columns, const struct qm_column *columns);

/* An array with unit and description; dims' scales by path ("" or NULL: none).  A scale is a 1-D
 * array of that dim's length which was stored before; it becomes an HDF5 dimension scale. */
qm_status qm_store_array(struct qm_store *s, const char *path, enum qm_dtype dtype,
                         const struct qm_shape *shape, const void *data, const char *unit,
                         const char *text, const char *const *scales);

/* Ragged curves: values of all curves one after the other at path/value, with path/offset and
 * path/length per curve. */
qm_status qm_store_ragged(struct qm_store *s, const char *path, int64_t n_curves,
                          const int64_t *length, const double *value, const char *unit,
                          const char *text);

/* An attribute of the object at path ("/" is the file); a group is made where nothing is there.  A
 * second value replaces the first.  Text over 32 KB becomes a dataset path/name of its own. */
qm_status qm_store_text(struct qm_store *s, const char *path, const char *name, const char *value);
qm_status qm_store_number(struct qm_store *s, const char *path, const char *name, double value);

/* Everything that may differ between two runs: goes under /timing as name, a 1-D array. */
qm_status qm_store_timing(struct qm_store *s, const char *name, int64_t n, const double *value,
                          const char *unit, const char *text);

/* SHA-256 of all that is outside /provenance and /timing, for any HDF5 file: names, types, shapes,
 * values, attributes and links, walked in sorted order, values little-endian and unpadded.
 * Chunking, compression, byte order in the file and HDF5's version do not matter.  Memory is
 * bounded by one chunk and some MB.  64 hex digits, NUL.  results/README.md has the exact stream. */
qm_status qm_store_digest(const char *path, char out[65]);

#endif
