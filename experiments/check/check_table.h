/* check_table.h - The result of a checked recipe as JSON, and the table of all of them. */
#ifndef QM_EXPERIMENTS_CHECK_CHECK_TABLE_H
#define QM_EXPERIMENTS_CHECK_CHECK_TABLE_H

#include <jansson.h>

#include "experiments/check/judge.h"

/* The result of one recipe: its counts, the worst number, failures, coverage and draws.  Takes over
 * coverage, which may be NULL.  The caller owns the object. */
json_t *qm_check_row(const struct qm_rule *rule, const char *recipe, const struct qm_tally *t,
                     uint64_t seed, json_t *coverage);

/* {SLOT: {"draws", "detectable_bias", "failed"}} of the slots that are rounded stochastically, and
 * of the parameter.  NULL: nothing was drawn. */
json_t *qm_draws_json(const struct qm_rule *rule, const struct qm_tally *t);

/* Prints the rows to stdout: the table, the failures, the coverage, the draws, and the recipes that
 * were skipped ({"variant", "reason"}). */
void qm_check_print(json_t *rows, json_t *skipped);

#endif
