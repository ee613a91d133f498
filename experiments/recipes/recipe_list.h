/* recipe_list.h - Lists of recipes: variants, with or without overrides, from the command line. */
#ifndef QM_RECIPES_RECIPE_LIST_H
#define QM_RECIPES_RECIPE_LIST_H

#include "core/recipe/recipe.h"

/* Recipes in the given order.  Starts as {0}. */
struct qm_recipes {
    struct qm_recipe *recipe;
    int n;
};

/* Adds the recipes of a text such as "adamw4_ao,adamw8_bnb" or, with overrides,
 * "adamw4_ao,exp_avg.map=nf4,adamw8_bnb": a word with '=' belongs to the variant before
 * it.  QM_NO_MATCH names the nearest variant; an inapplicable recipe is refused with its reason. */
qm_status qm_recipes_add(struct qm_recipes *list, const char *text);

/* Adds every variant of the registry. */
qm_status qm_recipes_add_all(struct qm_recipes *list);

void qm_recipes_free(struct qm_recipes *list);

#endif
