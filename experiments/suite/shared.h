/* shared.h - Recipes, texts and distributions that many cells share, kept until the end. */
#ifndef QM_SUITE_SHARED_H
#define QM_SUITE_SHARED_H

#include "core/recipe/recipe.h"
#include "experiments/source/distribution.h"

/* The copy of r that every equal recipe gets; NULL without memory.  r->base is set. */
const struct qm_recipe *qm_shared_recipe(const struct qm_recipe *r);

/* The text of such a copy, as of qm_recipe_print. */
const char *qm_shared_recipe_text(const struct qm_recipe *shared);

/* The copy of a text that every equal text gets; NULL without memory. */
const char *qm_shared_text(const char *text);

/* The distribution of a text, as qm_dist_parse reads it and with its errors. */
qm_status qm_shared_dist(const char *text, const struct qm_dist_bound **out);

#endif
