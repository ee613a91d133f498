/* bound_search_table.h - Runs searches for the inputs nearest a bound, prints what they found. */
#ifndef QM_CHECK_BOUND_SEARCH_TABLE_H
#define QM_CHECK_BOUND_SEARCH_TABLE_H

#include "experiments/recipes/recipe_list.h"

/* What is judged: the recipes by backend cpu, or a kernel file with every freedom of
 * QM_REORDER_LIST, as `as` or as it says itself (NULL). */
struct qm_bound_search_job {
    const struct qm_recipes *recipes;
    const char *kernel, *as;
    double seconds; /* altogether */
    uint64_t seed;
};

/* Searches each recipe with every format of its states.  Returns the exit code: 1 where a
 * ratio exceeds 1 or a code is wrong. */
int qm_bound_search_print(const struct qm_bound_search_job *job);

#endif
