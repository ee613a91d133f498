/* store.h - Writes result files.  Their schema: results/README.md.
 *
 * A file is built in memory and appears under its name only by qm_store_commit, whole or not at all
 * (atomic_file.h); an existing file keeps its contents until then.
 *
 * Object times are off, rows are packed, texts are padded with NULs, and NaNs in tables and curves
 * have one bit pattern.  Therefore all objects outside /provenance and /timing are byte-identical
 * in two runs of one plan, and so are whole files of one machine under SOURCE_DATE_EPOCH.
 *
 * Paths begin with '/' and name new objects; missing groups above them are made.  Units and
 * descriptions are required: unit "1" for a pure number, "" for text; NULL means "".  After a
 * failure the store accepts nothing more, and commit reports the first failure.  A store serves one
 * thread at a time. */
#ifndef QM_STORE_STORE_H
#define QM_STORE_STORE_H

#include "core/base/tensor.h"

struct qm_store;

/* Begins a file.  kind: "run", "bench", "analyze", ...; argv[argc] is stored in /provenance with
 * the facts of machine/provenance.h.  The temporary file is made at once, so that an unwritable
 * folder is found before a long run.  QM_BAD_FILE: path is a folder, its folder is missing or not
 * writable, or this process is writing path already.  QM_BAD_ARG: its ending says another format,
 * such as .npz. */
qm_status qm_store_open(const char *path, const char *kind, int argc, char **argv,
                        struct qm_store **out);
qm_status qm_store_commit(struct qm_store *s); /* replaces path; frees s in any case */
void qm_store_abort(struct qm_store *s);       /* removes the temporary file; accepts NULL */

enum qm_column_type { QM_COLUMN_i64, QM_COLUMN_f64, QM_COLUMN_text };

/* A column of a table. */
struct qm_column {
    const char *name;
    enum qm_column_type type;
    const char *unit, *text; /* unit "1" for a pure number, "" for text */
    const void *data;        /* int64_t[rows], double[rows] or const char *[rows] (NULL: "") */
};

/* Stores a table of rows >= 0 as a compound dataset; text columns are NUL-padded UTF-8 of fixed
 * width. Units and descriptions of the columns are its attributes column_units and column_text, in
 * order. QM_BAD_ARG: no columns, two of one name, or more than 60 KB of descriptions. */
qm_status qm_store_table(struct qm_store *s, const char *path, const char *text, int64_t rows,
                         int n_columns, const struct qm_column *columns);

/* Stores an array.  scales[rank] (or NULL) has a path per dimension ("" or NULL: none) of a stored
 * 1-D array of that dimension's length, which becomes an HDF5 dimension scale. */
qm_status qm_store_array(struct qm_store *s, const char *path, enum qm_dtype dtype,
                         const struct qm_shape *shape, const void *data, const char *unit,
                         const char *text, const char *const *scales);

/* Stores curves of different lengths: the values of all curves in a row at path/value, with
 * path/offset and path/length per curve. */
qm_status qm_store_ragged(struct qm_store *s, const char *path, int64_t n_curves,
                          const int64_t *length, const double *value, const char *unit,
                          const char *text);

/* Sets an attribute of the object at path ("/" is the file); if nothing is there a group is
 * made.  A second value replaces the first.  A text above 32 KB becomes a dataset path/name. */
qm_status qm_store_text(struct qm_store *s, const char *path, const char *name, const char *value);
qm_status qm_store_number(struct qm_store *s, const char *path, const char *name, double value);

/* Stores the 1-D array /timing/name, for values that may differ between two runs. */
qm_status qm_store_timing(struct qm_store *s, const char *name, int64_t n, const double *value,
                          const char *unit, const char *text);

/* What a file without a checksum line (foreign/file_sum.h) carries: its own digest; none, as files
 * of older versions; or another one, because a program that removed the line, as every HDF5 library
 * does that writes into the file, changed its contents too.  bare: its own, without the line. */
enum qm_carried { QM_CARRIED_same, QM_CARRIED_none, QM_CARRIED_other, QM_CARRIED_bare };

/* Sets what is called, once per file, for one that does not carry its digest or has no checksum
 * line; a command prints a note. */
void qm_store_tell(void (*tell)(const char *path, enum qm_carried carried));

/* The digest of any HDF5 file, as 64 hex digits and NUL: SHA-256 over everything outside
 * /provenance and /timing: names, types, shapes, values, attributes and links, in sorted order,
 * values little-endian and unpadded.  It does not depend on chunking, compression, byte order in
 * the file or HDF5's version. Memory is bounded by one chunk and some MB.  results/README.md
 * specifies the stream.  QM_BAD_FILE: its checksum line is wrong. */
qm_status qm_store_digest(const char *path, char out[65]);

#endif
