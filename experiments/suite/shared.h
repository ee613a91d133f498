/* shared.h - Recipes, texts and distributions that many cells share, kept until the end. */
#ifndef QM_SUITE_SHARED_H
#define QM_SUITE_SHARED_H

#include "core/recipe/recipe.h"
#include "experiments/source/distribution.h"

/* The copy of r that every equal recipe gets; NULL without memory.  r->base is set. */
const struct qm_recipe *qm_shared_recipe(const struct qm_recipe *r);

/* The text of such a copy, as of qm_recipe_print. */
const char *qm_shared_recipe_text(const struct qm_recipe *shared);

/* The hash of that text, FNV-1a of 64 bits. */
uint64_t qm_shared_recipe_hash(const struct qm_recipe *shared);

/* *out: the shared copy of the recipe that `derive` makes of a shared one, or NULL where it returns
 * 0; made once for each `which`, below QM_SHARED_DERIVED.  QM_NO_MEMORY. */
enum { QM_SHARED_DERIVED = 5 };
qm_status qm_shared_derived(const struct qm_recipe *shared, int which,
                            int (*derive)(const struct qm_recipe *r, int which,
                                          struct qm_recipe *out),
                            const struct qm_recipe **out);

/* The copy of a text that every equal text gets; NULL without memory. */
const char *qm_shared_text(const char *text);

/* The distribution of a text, as qm_dist_parse reads it and with its errors. */
qm_status qm_shared_dist(const char *text, const struct qm_dist_bound **out);

#endif
