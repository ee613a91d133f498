/* shared.c - Keeps one copy of each recipe and text, so that a cell is small. */
#include "experiments/suite/shared.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/fnv1a.h"

struct kept_recipe {
    struct qm_recipe recipe; /* first: its address is that of the whole */
    uint64_t hash;           /* of the text */
    const struct qm_recipe *derived[QM_SHARED_DERIVED];
    int is_derived[QM_SHARED_DERIVED];
    char text[]; /* of qm_recipe_print */
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
        memset(k, 0, sizeof *k);
        memcpy(&k->recipe, r, sizeof *r);
        memcpy(k->text, text, n);
        k->hash = qm_fnv1a(QM_FNV1A, text, n - 1);
    }
    k = keep(&recipes, k, by_recipe);
    return k ? &k->recipe : NULL;
}

const char *qm_shared_recipe_text(const struct qm_recipe *shared)
{
    return ((const struct kept_recipe *)(const void *)shared)->text;
}

uint64_t qm_shared_recipe_hash(const struct qm_recipe *shared)
{
    return ((const struct kept_recipe *)(const void *)shared)->hash;
}

qm_status qm_shared_derived(const struct qm_recipe *shared, int which,
                            int (*derive)(const struct qm_recipe *r, int which,
                                          struct qm_recipe *out),
                            const struct qm_recipe **out)
{
    struct kept_recipe *k = (struct kept_recipe *)(uintptr_t)shared;
    pthread_mutex_lock(&lock);
    int known = k->is_derived[which];
    *out = k->derived[which];
    pthread_mutex_unlock(&lock);
    if (known)
        return QM_OK;
    struct qm_recipe made;
    int has = derive(shared, which, &made);
    *out = has ? qm_shared_recipe(&made) : NULL;
    if (has && !*out)
        return qm_fail(QM_NO_MEMORY, "recipes");
    pthread_mutex_lock(&lock);
    k->derived[which] = *out;
    k->is_derived[which] = 1;
    pthread_mutex_unlock(&lock);
    return QM_OK;
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
