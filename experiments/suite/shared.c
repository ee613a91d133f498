/* shared.c - Keeps one copy of each recipe and text, so that a cell is small. */
#include "experiments/suite/shared.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct kept_recipe {
    struct qm_recipe recipe; /* first: its address is that of the whole */
    char text[];             /* of qm_recipe_print */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct kept_dist {
    struct qm_dist_bound dist; /* first, too */
    char text[];
};

static void *recipes, *texts, *dists; /* trees of tsearch */

/* The text leaves out hyper-parameters that the rule does not read, so these are compared too. */
static int by_recipe(const void *a, const void *b)
{
    const struct kept_recipe *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : memcmp(&x->recipe.hyper, &y->recipe.hyper, sizeof x->recipe.hyper);
}

static int by_dist_text(const void *a, const void *b)
{
    return strcmp(((const struct kept_dist *)a)->text, ((const struct kept_dist *)b)->text);
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

/* Puts `made` into the tree, or frees it and returns the one that is there; NULL: no memory. */
static void *keep(void **tree, void *made, int (*order)(const void *a, const void *b))
{
    if (!made)
        return NULL;
    pthread_mutex_lock(&lock);
    void **found = tsearch(made, tree, order), *kept = found ? *found : NULL;
    pthread_mutex_unlock(&lock);
    if (kept != made)
        free(made);
    return kept;
}

const struct qm_recipe *qm_shared_recipe(const struct qm_recipe *r)
{
    char text[QM_RECIPE_TEXT];
    size_t n = strlen(qm_recipe_print(r, text)) + 1;
    struct kept_recipe *k = malloc(sizeof *k + n);
    if (k) {
        memcpy(&k->recipe, r, sizeof *r);
        memcpy(k->text, text, n);
    }
    k = keep(&recipes, k, by_recipe);
    return k ? &k->recipe : NULL;
}

const char *qm_shared_recipe_text(const struct qm_recipe *shared)
{
    return ((const struct kept_recipe *)(const void *)shared)->text;
}

const char *qm_shared_text(const char *text) { return keep(&texts, strdup(text), by_text); }

qm_status qm_shared_dist(const char *text, const struct qm_dist_bound **out)
{
    struct qm_dist_bound dist;
    size_t n = strlen(text) + 1;
    QM_TRY(qm_dist_parse(text, &dist));
    struct kept_dist *k = malloc(sizeof *k + n);
    if (k) {
        k->dist = dist;
        memcpy(k->text, text, n);
    }
    k = keep(&dists, k, by_dist_text);
    *out = k ? &k->dist : NULL;
    return k ? QM_OK : qm_fail(QM_NO_MEMORY, "%s", text);
}
