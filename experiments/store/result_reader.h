/* result_reader.h - reading result files back: tables by column, arrays, curves, attributes.
 *
 * All reads copy; what comes out is the caller's to free() unless said otherwise.  A path or
 * column that is not there is QM_NO_MATCH, one of another kind than asked for QM_BAD_ARG, damage
 * (a checksum that fails) QM_BAD_FILE. */
#ifndef QM_STORE_RESULT_READER_H
#define QM_STORE_RESULT_READER_H

#include "experiments/store/store.h"

struct qm_result;

/* QM_BAD_FILE: missing, no HDF5, no result file, or of a schema version this program does not
 * know. */
qm_status qm_result_open(const char *path, struct qm_result **out);
void qm_result_close(struct qm_result *r); /* accepts NULL */

const char *qm_result_kind(const struct qm_result *r); /* lives as long as r */

/* Whether a dataset or group is there. */
int qm_result_has(struct qm_result *r, const char *path);

/* What a table is made of. */
struct qm_result_columns {
    int n;
    int64_t rows;
    enum qm_column_type *type;
    char **name, **unit, **text;
};
qm_status qm_result_columns(struct qm_result *r, const char *table, struct qm_result_columns *out);
void qm_result_columns_free(struct qm_result_columns *c);

/* One column: rows values; integer columns convert to double (exact up to 2^53). */
qm_status qm_result_f64(struct qm_result *r, const char *table, const char *column, int64_t *rows,
                        double **out);
qm_status qm_result_i64(struct qm_result *r, const char *table, const char *column, int64_t *rows,
                        int64_t **out); /* integer columns only */
/* One free() releases the pointers and the texts. */
qm_status qm_result_texts(struct qm_result *r, const char *table, const char *column, int64_t *rows,
                          char ***out);

/* A whole array in its own type; free(out->data). */
qm_status qm_result_array(struct qm_result *r, const char *path, struct qm_tensor *out);

/* Curve i is value[offset[i]] to value[offset[i] + length[i] - 1]; checked to lie inside. */
struct qm_result_curves {
    int64_t n;
    int64_t *offset, *length;
    double *value;
};
qm_status qm_result_ragged(struct qm_result *r, const char *path, struct qm_result_curves *out);
void qm_result_curves_free(struct qm_result_curves *c);

/* What qm_store_text and qm_store_number stored, long texts included. */
qm_status qm_result_text(struct qm_result *r, const char *path, const char *name, char **out);
qm_status qm_result_number(struct qm_result *r, const char *path, const char *name, double *out);

#endif
