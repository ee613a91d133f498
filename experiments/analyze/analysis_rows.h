/* analysis_rows.h - what qualm analyze found, as JSON, as text and as HDF5 tables. */
#ifndef QM_ANALYZE_ANALYSIS_ROWS_H
#define QM_ANALYZE_ANALYSIS_ROWS_H

#include <jansson.h>

#include "experiments/analyze/analysis.h"
#include "experiments/store/store.h"

/* A tensor under a quantizer, or with a reason why it was not analyzed. */
struct qm_row {
    /* Owned, once added; "" for what there is not. */
    const char *file, *tensor, *variant, *quantizer, *skipped;
    char shape[96];
    const char *dtype, *slot;
    struct qm_float_classes census; /* n = 0: not read */
    const double *value;            /* owned; one per metric; NULL when skipped */
    const struct qm_decade *decade; /* owned; QM_DECADES, or NULL */
};

struct qm_rows {
    struct qm_row *row;
    int n, room;
    const struct qm_metric *const *metric; /* the columns */
    int n_metrics;
};

/* Adds a copy of the row and of all it points at. */
qm_status qm_rows_add(struct qm_rows *rows, const struct qm_row *row);
void qm_rows_free(struct qm_rows *rows);

int qm_rows_analyzed(const struct qm_rows *rows); /* how many were not skipped */

/* On stdout: with --json {"rows": [...], "skipped": [...]} with all particulars; else a table, or,
 * full, all that is known of each row below one another. */
void qm_rows_report(const struct qm_rows *rows, int full);

/* Tables /analyze/rows and /analyze/skipped and, with decades, arrays /analyze/decades/... */
qm_status qm_rows_store(const struct qm_rows *rows, struct qm_store *s);

#endif
