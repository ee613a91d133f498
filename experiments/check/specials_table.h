/* specials_table.h - Prints the table of special values (qualm check --specials). */
#ifndef QM_CHECK_SPECIALS_TABLE_H
#define QM_CHECK_SPECIALS_TABLE_H

#include <jansson.h>

#include "experiments/check/check_table.h"
#include "experiments/recipes/recipe_list.h"

/* Measures and judges every recipe with the backend and freedoms of `by`, and prints the table, and
 * what was skipped before (may be NULL).  Returns the exit code. */
int qm_specials_print(const struct qm_recipes *recipes, const struct qm_subject *by,
                      const struct qm_check_run *run, json_t *skipped);

/* Adds the rows of one subject, after qm_judge_begin, to an array.  *failed: set to 1 when a
 * verdict failed. */
qm_status qm_specials_rows(const struct qm_subject *s, const char *name, uint64_t seed,
                           json_t *rows, int *failed);

/* Prints and releases the rows, and the recipes that were skipped (NULL: none); returns the exit
 * code: 1 when a verdict failed. */
int qm_specials_end(json_t *rows, json_t *skipped, const struct qm_check_run *run, int failed);

#endif
