/* summary.h - group-by tables over the cells of a suite.
 *
 *     {name: by_class, by: [class, exp_avg.norm], across: exp_avg, value: sqnr, stat: median}
 *
 *   by      keys that make a row: any axis of the suite, or class, tensor, from (the recorded run
 *           and step), quantizer, recipe, coupling, status
 *   across  one more key, printed as columns
 *   value   columns of /metrics
 *   stat    median, mean, min, max, std, p05, p95, sum, wins; default median
 *   versus  {KEY: VALUE}: differences to the cell that has VALUE for the axis KEY and is equal in
 *           all else; cells with VALUE itself are left out; wins counts positive differences
 *   where   {KEY: VALUE, ...}: only these cells
 *   headline  a sentence; `qualm run --headline` prints only the tables that have one
 *
 * Tables of sqnr or nmse over distributions that oracle/theory/expected_error.h covers have a last column: how many
 * standard errors lie between any measured cell of the row and its theory, at most (JSON and file:
 * theory_se, theory_n).
 *
 * Skipped cells and NaNs do not count; n is the number of values.  Rows go in the order of the
 * suite's values, classes in the order of qm_tensor_class_at, all else by first appearance.  The
 * median of an even number is the mean of the middle two. */
#ifndef QM_RUN_SUMMARY_H
#define QM_RUN_SUMMARY_H

#include <jansson.h>

#include "experiments/run/run_cells.h"

struct qm_summary; /* opaque: one computed table; refers to the results */

/* QM_BAD_ARG or QM_NO_MATCH with file and line for a key, value or stat that does not exist. */
qm_status qm_summary_make(const struct qm_results *r, const struct qm_summary_plan *plan,
                          struct qm_summary **out);
void qm_summary_free(struct qm_summary *s); /* accepts NULL */

/* Only whether the plan's words exist; before a run. */
qm_status qm_summary_check(const struct qm_suite *suite, const struct qm_summary_plan *plan);

void qm_summary_print(const struct qm_summary *s);   /* on stdout */
json_t *qm_summary_json(const struct qm_summary *s); /* an array of rows */
qm_status qm_summary_store(const struct qm_summary *s, struct qm_store *store); /* /summary/NAME */

/* Rows of the table; the by and across texts and the statistics of one row (value-major). */
int qm_summary_rows(const struct qm_summary *s);
const char *qm_summary_key(const struct qm_summary *s, int row, int key);
double qm_summary_value(const struct qm_summary *s, int row, int value, int stat);
int64_t qm_summary_n(const struct qm_summary *s, int row);

#endif
