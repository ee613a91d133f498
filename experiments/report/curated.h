/* curated.h - Makes the tables that a page starts with from the stored tables. */
#ifndef QM_REPORT_CURATED_H
#define QM_REPORT_CURATED_H

#include "experiments/report/grid.h"

/* /protocol/verdicts for reading: a row per problem, label and learning rate. */
qm_status qm_verdicts_long(struct qm_result *r, struct qm_text_grid *out);

/* The rows of learning rate 1 (or the nearest) as a table label x problem: trimmed mean of d,
 * and verdict. */
qm_status qm_verdicts_wide(struct qm_result *r, struct qm_text_grid *out);

/* /protocol/contrasts for reading. */
qm_status qm_contrasts_table(struct qm_result *r, struct qm_text_grid *out);

/* The cells that are not "ok", grouped by status and reason; no rows where all cells are "ok". */
qm_status qm_troubles(struct qm_result *r, struct qm_text_grid *out);

/* Writes the number of cells of each status as "960 ok, 12 skipped". */
qm_status qm_status_counts(struct qm_result *r, char *out, size_t size);

/* The distinct texts of a column, in order of appearance; one free() releases all. */
qm_status qm_distinct(struct qm_result *r, const char *table, const char *column, int64_t *n,
                      char ***out);

#endif
