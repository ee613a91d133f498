/* recipe_list.h - lists of variants and quantizers on the command line. */
#ifndef QM_RECIPES_RECIPE_LIST_H
#define QM_RECIPES_RECIPE_LIST_H

#include "core/recipe/recipe.h"

/* Recipes in the order given; owns nothing but its own array. */
struct qm_recipes {
    struct qm_recipe *recipe;
    int n;
};

/* Adds "adamw4_ao,adamw8_bnb" or recipes with overrides, "adamw4_ao,exp_avg.map=nf4,adamw8_bnb": a
 * word with '=' belongs to the variant before it.  QM_NO_MATCH names the nearest variant; a
 * recipe that makes no sense is refused with its reason. */
qm_status qm_recipes_add(struct qm_recipes *list, const char *text);

/* Adds every variant of the registry. */
qm_status qm_recipes_add_all(struct qm_recipes *list);

void qm_recipes_free(struct qm_recipes *list);

#endif
