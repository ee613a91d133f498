/* result_reader.h - Reads result files: tables by column, arrays, curves, attributes.
 *
 * All reads copy, and the caller frees each result with free() unless a comment names another
 * function. QM_NO_MATCH: there is no such path or column; QM_BAD_FILE: it has another kind than
 * asked for, or damage (a checksum that fails). */
#ifndef QM_STORE_RESULT_READER_H
#define QM_STORE_RESULT_READER_H

#include "experiments/store/store.h"

struct qm_result;

/* QM_BAD_FILE: the file is missing, no HDF5 file, no result file, or of an unknown
 * schema version. */
qm_status qm_result_open(const char *path, struct qm_result **out);
/* The same for a file that must say what its writer wrote: QM_BAD_FILE also where it carries no
 * digest, or another than that of its contents.  One that carries its own and has no checksum line
 * is told (qm_store_tell). */
qm_status qm_result_open_unchanged(const char *path, struct qm_result **out);
void qm_result_close(struct qm_result *r); /* accepts NULL */

const char *qm_result_kind(const struct qm_result *r); /* lives as long as r */

/* Whether a dataset or group exists. */
int qm_result_has(struct qm_result *r, const char *path);

/* The columns of a table. */
struct qm_result_columns {
    int n;
    int64_t rows;
    enum qm_column_type *type;
    char **name, **unit, **text;
};
/* Lists the columns of a table.  On success *out is the caller's, who frees it by
 * qm_result_columns_free.  QM_BAD_FILE: the file has no such table, or no readable one. */
qm_status qm_result_columns(struct qm_result *r, const char *table, struct qm_result_columns *out);
void qm_result_columns_free(struct qm_result_columns *c);

/* One column of *rows values; integers convert to double (exactly up to 2^53). */
qm_status qm_result_f64(struct qm_result *r, const char *table, const char *column, int64_t *rows,
                        double **out);
qm_status qm_result_i64(struct qm_result *r, const char *table, const char *column, int64_t *rows,
                        int64_t **out); /* integer columns only */
/* A column of texts; one free() releases the pointers and the texts. */
qm_status qm_result_texts(struct qm_result *r, const char *table, const char *column, int64_t *rows,
                          char ***out);

/* A whole array in its stored type; free(out->data) releases it. */
qm_status qm_result_array(struct qm_result *r, const char *path, struct qm_tensor *out);

/* Curve i is value[offset[i]] to value[offset[i] + length[i] - 1], which is checked to
 * lie inside. */
struct qm_result_curves {
    int64_t n;
    int64_t *offset, *length;
    double *value;
};
qm_status qm_result_ragged(struct qm_result *r, const char *path, struct qm_result_curves *out);
void qm_result_curves_free(struct qm_result_curves *c);

/* A text of qm_store_text (long texts included), and a number of qm_store_number. */
qm_status qm_result_text(struct qm_result *r, const char *path, const char *name, char **out);
qm_status qm_result_number(struct qm_result *r, const char *path, const char *name, double *out);

#endif
