/* analysis_rows.h - Results of `qualm analyze` as JSON, text and HDF5 tables. */
#ifndef QM_ANALYZE_ANALYSIS_ROWS_H
#define QM_ANALYZE_ANALYSIS_ROWS_H

#include <jansson.h>

#include "experiments/analyze/analysis.h"
#include "experiments/store/store.h"

/* A tensor under a quantizer, analyzed or skipped with a reason. */
struct qm_row {
    /* Owned by struct qm_rows; "" where there is none. */
    const char *file, *tensor, *variant, *quantizer, *skipped;
    char shape[96];
    const char *dtype, *slot;
    struct qm_float_classes classes; /* n = 0: the tensor was not read */
    const double *value;             /* owned; one per metric; NULL when skipped */
    const struct qm_decade *decade;  /* owned; QM_DECADES, or NULL */
};

struct qm_rows {
    struct qm_row *row;
    int n;
    int64_t room;
    const struct qm_metric *const *metric; /* the columns of values */
    int n_metrics;
};

/* Adds a copy of the row and of its owned members. */
qm_status qm_rows_add(struct qm_rows *rows, const struct qm_row *row);
void qm_rows_free(struct qm_rows *rows);

int qm_rows_analyzed(const struct qm_rows *rows); /* number of rows that were not skipped */

/* Prints on stdout: with --json {"rows": [...], "skipped": [...]} with all members, and "remarks"
 * where there are any (text by path); else a table, or with `full` a block per row with all
 * members. */
void qm_rows_report(const struct qm_rows *rows, int full, json_t *remarks);

/* Stores tables /analyze/rows and /analyze/skipped and, with decades,
 * arrays /analyze/decades/... */
qm_status qm_rows_store(const struct qm_rows *rows, struct qm_store *s);

#endif
