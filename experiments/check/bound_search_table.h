/* bound_search_table.h - Runs searches for the inputs nearest a bound, prints what they found. */
#ifndef QM_CHECK_BOUND_SEARCH_TABLE_H
#define QM_CHECK_BOUND_SEARCH_TABLE_H

#include "experiments/check/check_table.h"
#include "experiments/recipes/recipe_list.h"

/* What is judged: the recipes by `backend`, or a kernel file, as `as` or as it says itself (NULL);
 * with these freedoms.  skipped: recipes that are left out ({"variant", "reason"}), owned by the
 * caller; or NULL. */
struct qm_bound_search_job {
    const struct qm_recipes *recipes;
    const struct qm_backend *backend;
    const char *kernel, *as;
    struct qm_reorder reorder;
    double seconds; /* altogether */
    struct qm_check_run run;
    json_t *skipped;
};

/* Searches each recipe with every format of its states.  Returns the exit code: 1 where a
 * ratio exceeds 1 or a code is wrong. */
int qm_bound_search_print(const struct qm_bound_search_job *job);

#endif
