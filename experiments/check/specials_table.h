/* specials_table.h - Prints the table of special values (qualm check --specials). */
#ifndef QM_CHECK_SPECIALS_TABLE_H
#define QM_CHECK_SPECIALS_TABLE_H

#include <jansson.h>

#include "experiments/check/judge.h"
#include "experiments/recipes/recipe_list.h"

/* Measures and judges every recipe on the CPU backend.  Returns the exit code: 1 when a verdict
 * failed. */
int qm_specials_print(const struct qm_recipes *recipes, uint64_t seed);

/* Adds the rows of one subject, after qm_judge_begin, to an array.  *failed: set to 1 when a
 * verdict failed. */
qm_status qm_specials_rows(const struct qm_subject *s, const char *name, uint64_t seed,
                           json_t *rows, int *failed);

/* Prints and releases the rows; returns the exit code. */
int qm_specials_end(json_t *rows, uint64_t seed, int failed);

#endif
