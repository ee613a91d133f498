/* result_direct.h - What a reader process does with a result file; internal to experiments/store.
 *
 * Everything is put into the blob that goes to the program; result_reader.c takes it from there.
 * Statuses are those of result_reader.h. */
#ifndef QM_STORE_RESULT_DIRECT_H
#define QM_STORE_RESULT_DIRECT_H

#include <hdf5.h>

#include "experiments/foreign/blob.h"
#include "experiments/store/store.h"

struct qm_direct; /* an open result file */

qm_status qm_direct_open(const char *path, struct qm_direct **out);
void qm_direct_close(struct qm_direct *r); /* accepts NULL */
const char *qm_direct_kind(const struct qm_direct *r);
hid_t qm_direct_file(const struct qm_direct *r);
int qm_direct_has(struct qm_direct *r, const char *path);

/* Puts columns, rows; of each column its enum qm_column_type, name, unit, text. */
qm_status qm_direct_columns(struct qm_direct *r, const char *table, struct qm_blob *out);

/* Puts rows, bytes of a value, the values: int64_t, double, or texts padded with NULs. */
enum qm_direct_column { QM_DIRECT_integers, QM_DIRECT_numbers, QM_DIRECT_texts };
qm_status qm_direct_column(struct qm_direct *r, const char *table, const char *column,
                           enum qm_direct_column want, struct qm_blob *out);

/* Puts dtype, rank, the dimensions, the elements. */
qm_status qm_direct_array(struct qm_direct *r, const char *path, struct qm_blob *out);

/* The caller frees *out. */
qm_status qm_direct_text(struct qm_direct *r, const char *path, const char *name, char **out);
qm_status qm_direct_number(struct qm_direct *r, const char *path, const char *name, double *out);

#endif
