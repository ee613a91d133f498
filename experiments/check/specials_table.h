/* specials_table.h - Prints the table of special values (qualm check --specials). */
#ifndef QM_CHECK_SPECIALS_TABLE_H
#define QM_CHECK_SPECIALS_TABLE_H

#include "experiments/recipes/recipe_list.h"

/* Measures and judges every recipe on the CPU backend.  Returns the exit code: 1 when a verdict
 * failed. */
int qm_specials_print(const struct qm_recipes *recipes, uint64_t seed);

#endif
