/* recipe_list.c - Parses the lists of variants and recipes that commands take. */
#include "experiments/recipes/recipe_list.h"

#include <stdlib.h>
#include <string.h>

static qm_status append(struct qm_recipes *list, const struct qm_recipe *r)
{
    struct qm_recipe *grown = realloc(list->recipe, (size_t)(list->n + 1) * sizeof *grown);
    if (!grown)
        return qm_fail(QM_NO_MEMORY, "list of %d recipes", list->n + 1);
    list->recipe = grown;
    list->recipe[list->n++] = *r;
    return QM_OK;
}

/* The length of the first recipe in text: it ends at the comma before a word without '='. */
static size_t first_recipe(const char *text)
{
    size_t end = strcspn(text, ",");
    while (text[end] == ',') {
        size_t next = strcspn(text + end + 1, ",");
        if (!memchr(text + end + 1, '=', next))
            break;
        end += 1 + next;
    }
    return end;
}

qm_status qm_recipes_add(struct qm_recipes *list, const char *text)
{
    for (;;) {
        struct qm_recipe r;
        size_t n = first_recipe(text);
        char *one = strndup(text, n);
        if (!one)
            return qm_fail(QM_NO_MEMORY, "recipe of %zu characters", n);
        qm_status st = n ? qm_recipe_parse(one, &r)
                         : qm_fail(QM_BAD_ARG, "a variant's name is missing before or after ','");
        free(one);
        QM_TRY(st);
        QM_TRY(qm_recipe_applicable(&r));
        QM_TRY(append(list, &r));
        if (!text[n])
            return QM_OK;
        text += n + 1;
    }
}

qm_status qm_recipes_add_all(struct qm_recipes *list)
{
    for (int i = 0; i < qm_variant_count(); i++) {
        struct qm_recipe r;
        QM_TRY(qm_recipe_from(qm_variant_at(i), &r));
        QM_TRY(append(list, &r));
    }
    return QM_OK;
}

void qm_recipes_free(struct qm_recipes *list)
{
    free(list->recipe);
    *list = (struct qm_recipes){NULL, 0};
}
