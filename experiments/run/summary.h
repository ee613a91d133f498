/* summary.h - Group-by tables over the cells of a suite.
 *
 *     {name: by_class, by: [class, exp_avg.norm], across: exp_avg, value: sqnr, stat: median}
 *
 *   by        keys that identify a row: any axis of the suite, or class, tensor, from (the recorded
 *             run and step), quantizer, recipe, coupling, status
 *   across    one more key, printed as columns where they fit into 120 characters
 *   value     columns of /metrics
 *   stat      median, mean, min, max, std, p05, p95, sum, wins; default median
 *             A median has a 95 % interval beside it from six values on: the order statistics whose
 *             ranks hold it under the binomial distribution of 1/2, values taken as independent
 *             (VALUE_median_lo95, _hi95 in JSON and in the file).
 *   versus    {KEY: VALUE}: differences from the cell that has VALUE on the axis KEY and is equal
 *             on all other axes; cells with VALUE itself are left out; wins counts positive
 *             differences
 *   where     {KEY: VALUE, ...}: only these cells
 *   headline  a sentence; `qualm run --headline` prints only the tables that have one
 *
 * Tables of sqnr or nmse over distributions that oracle/theory/expected_error.h covers have a last
 * column: the largest number of standard errors between a measured cell of the row and its theory
 * (theory_se and theory_n in JSON and in the file).
 *
 * Skipped cells and NaNs do not count.  Nor does a cell whose states kept plain floats, because its
 * tensors are too small or no multiple of the block, where the suite asks about their codes
 * (coded_share.h); tables say how many these are ("2, 4 not quantized"; not_quantized in JSON and
 * in the file).  A run that diverged counts with the gap 1000 in values of gaps and in no other;
 * tables say how many these are ("6, 2 of 6 diverged"; diverged in JSON and in the file).  n is the
 * number of values, of which a unit has one: on recorded states and gradients a unit is a tensor,
 * its run and its step, whatever the seeds, which draw nothing but the rounding, and its value is
 * the median over them; a distribution or a problem draws its data by the seed, so that each seed
 * is a unit, but for seeds of equal results to the bit, which are one.  rounding_seed draws no data
 * either, but for runs that train, each of which is a unit.  Cells of one unit that differ on an
 * axis that is no key of the table (a rounding, a block size) are one, too: its value is the median
 * over them, of those with codes where any has them.  A row of a single tensor has the draws
 * themselves instead, without equal ones.  Rows follow the order of the
 * suite's values, classes that of qm_tensor_class_at, and other keys that of first appearance.  The
 * median of an even number of values is the mean of the middle two. */
#ifndef QM_RUN_SUMMARY_H
#define QM_RUN_SUMMARY_H

#include <jansson.h>

#include "experiments/run/run_cells.h"

struct qm_summary; /* opaque: one computed table; refers to the results */

/* Computes a table.  QM_BAD_ARG or QM_NO_MATCH with file and line for a key, value or stat that
 * does not exist. */
qm_status qm_summary_make(const struct qm_results *r, const struct qm_summary_plan *plan,
                          struct qm_summary **out);
void qm_summary_free(struct qm_summary *s); /* accepts NULL */

/* Checks before a run that the plan's words exist; errors as qm_summary_make. */
qm_status qm_summary_check(const struct qm_suite *suite, const struct qm_summary_plan *plan);

void qm_summary_print(const struct qm_summary *s);   /* on stdout */
json_t *qm_summary_json(const struct qm_summary *s); /* an array of rows */
qm_status qm_summary_store(const struct qm_summary *s, struct qm_store *store); /* /summary/NAME */

/* The number of rows; of one row the text of a key (by, then across), a statistic, and n. */
int qm_summary_rows(const struct qm_summary *s);
const char *qm_summary_key(const struct qm_summary *s, int row, int key);
double qm_summary_value(const struct qm_summary *s, int row, int value, int stat);
int64_t qm_summary_n(const struct qm_summary *s, int row);
int64_t qm_summary_left_out(const struct qm_summary *s, int row); /* cells not quantized */
int64_t qm_summary_best(const struct qm_summary *s, int row);     /* cells at their best rates */

#endif
