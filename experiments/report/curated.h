/* curated.h - the tables that a page starts with, out of the stored ones. */
#ifndef QM_REPORT_CURATED_H
#define QM_REPORT_CURATED_H

#include "experiments/report/grid.h"

/* All of /protocol/verdicts for reading: a row per problem, label and learning rate. */
qm_status qm_verdicts_long(struct qm_result *r, struct qm_text_grid *out);

/* Its rows of learning rate 1 as a table label x problem: mean of the gap, and its verdict. */
qm_status qm_verdicts_wide(struct qm_result *r, struct qm_text_grid *out);

/* The cells that are not "ok", grouped by status and reason; no rows where all are. */
qm_status qm_troubles(struct qm_result *r, struct qm_text_grid *out);

/* How many cells there are of each status, as "960 ok, 12 skipped". */
qm_status qm_status_counts(struct qm_result *r, char *out, size_t size);

/* The distinct texts of a column, in order of appearance; one free() releases all. */
qm_status qm_distinct(struct qm_result *r, const char *table, const char *column, int64_t *n,
                      char ***out);

#endif
