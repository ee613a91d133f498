/* names.c - Finds the routines that a word of the command line stands for. */
#include "experiments/prove/prove.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "experiments/prove/routine.h"
#include "experiments/recipes/recipe_list.h"

static const char *const searches[] = {
#define X(name, text) #name,
    QM_SEARCH_LIST(X)
#undef X
};

/* Routines that their sources publish and that no registered variant uses for its states. */
static const struct {
    const char *quantizer, *source;
} published[] = {
    {"nf4:4s/block:64/bisect/near", "torchao quantize_4bit_with_qmap"},
    {"nf4:4s/block:64/ladder/mid", "bitsandbytes dQuantizeNF4"},
    {"nf4:4s/block:64/mids/mid", "bitsandbytes backends/default"},
    {"nf4:4s/block:128/bisect/mid/nantop", "lpmm q_mapping"},
    {"nf4:4s/block:128/argmin/mid", "lpmm nearest"},
    {"fp4:4s/block:64/ladder/mid/nanzero", "bitsandbytes dQuantizeFP4"},
    {"fp4s:4s/block:64/mids/mid", "bitsandbytes backends/default"},
    {"af4:4s/block:64/argmin/mid", "bitsandbytes get_4bit_type"},
    {"dyn:8s/block:256/lower/mid", "adafactor8bit 0.4.3"},
};

/* Adds a name to the users of a routine once; "..." ends the list where there is no room. */
static void add_user(struct qm_routine_name *r, const char *user)
{
    size_t used = strlen(r->used_by), more = strlen(user);
    if (strstr(r->used_by, user) || strstr(r->used_by, ", ..."))
        return;
    snprintf(r->used_by + used, sizeof r->used_by - used, "%s%s", used ? ", " : "",
             used + more + 8 < sizeof r->used_by ? user : "...");
}

static qm_status add(struct qm_routine_names *list, const struct qm_quantizer *q, const char *user)
{
    struct qm_routine r = {.q = *q};
    char name[QM_QUANTIZER_TEXT];
    qm_routine_print(&r, name);
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->at[i].name, name) == 0) {
            add_user(&list->at[i], user);
            return QM_OK;
        }
    struct qm_routine_name *more = realloc(list->at, sizeof *more * (size_t)(list->n + 1));
    if (!more)
        return qm_fail(QM_NO_MEMORY, "list of routines");
    list->at = more;
    struct qm_routine_name *new = &list->at[list->n++];
    new->q = *q;
    *new->used_by = 0;
    snprintf(new->name, sizeof new->name, "%s", name);
    add_user(new, user);
    return QM_OK;
}

/* 1: the quantizer has a deterministic nearest-code routine. */
static int is_routine(const struct qm_quantizer *q)
{
    return q->bits > 0 && q->curve != QM_CURVE_allog && q->curve != QM_CURVE_qlog &&
           q->curve != QM_CURVE_affine && !qm_round_draws(q->round) &&
           !qm_round_is_directed(q->round);
}

static qm_status add_registered(struct qm_routine_names *list, int search)
{
    struct qm_recipes all = {NULL, 0};
    qm_status st = qm_recipes_add_all(&all);
    for (int i = 0; i < all.n && st == QM_OK; i++)
        for (int s = 0; s < all.recipe[i].rule->n_slots && st == QM_OK; s++) {
            const struct qm_quantizer *q = &all.recipe[i].slot[s];
            if (is_routine(q) && (search < 0 || (int)q->search == search))
                st = add(list, q, all.recipe[i].base->name);
        }
    qm_recipes_free(&all);
    for (size_t i = 0; i < sizeof published / sizeof *published && st == QM_OK; i++) {
        struct qm_quantizer q;
        st = qm_quantizer_parse(published[i].quantizer, &q);
        if (st == QM_OK && (search < 0 || (int)q.search == search))
            st = add(list, &q, published[i].source);
    }
    return st;
}

/* Adds a search on the map of --map, with the round of --round and the NaN word of --nan. */
static qm_status add_search(struct qm_routine_names *list, int search,
                            const struct qm_prove_options *o)
{
    char text[QM_QUANTIZER_TEXT];
    struct qm_quantizer map, q;
    QM_TRY(qm_map_parse(o->map, &map));
    const char *nan = o->nan && strcmp(o->nan, "low") != 0 ? o->nan : NULL;
    size_t name = strcspn(o->map, ":");
    snprintf(text, sizeof text, "%.*s:%d%c/block:128/%s/%.20s%s%.20s", (int)(name < 40 ? name : 40),
             o->map, map.bits, map.sign ? 's' : 'u', searches[search], o->round ? o->round : "mid",
             nan ? "/nan" : "", nan ? nan : "");
    QM_TRY(qm_quantizer_parse(text, &q));
    return add(list, &q, "");
}

/* Adds "nf4:4s/bisect/near"; block:128 is inserted where the word has no norm. */
static qm_status add_quantizer(struct qm_routine_names *list, const char *word)
{
    struct qm_quantizer q;
    char text[QM_QUANTIZER_TEXT];
    size_t map = strcspn(word, "/");
    qm_status st = qm_quantizer_parse(word, &q);
    if (st != QM_OK) {
        snprintf(text, sizeof text, "%.*s/block:128%s", (int)(map < 64 ? map : 64), word,
                 word + map);
        if (qm_quantizer_parse(text, &q) != QM_OK)
            return qm_quantizer_parse(word, &q);
    }
    return add(list, &q, "");
}

qm_status qm_routine_names_add(struct qm_routine_names *list, const char *word,
                               const struct qm_prove_options *o)
{
    int search = qm_name_find(word, searches, QM_SEARCH_COUNT), before = list->n;
    struct qm_recipes recipes = {NULL, 0};
    if (strcmp(word, "all") == 0)
        return add_registered(list, -1);
    if (search >= 0 && o->map)
        return add_search(list, search, o);
    if (search >= 0)
        QM_TRY(add_registered(list, search));
    if (search >= 0)
        return list->n > before ? QM_OK
                                : qm_fail(QM_NO_MATCH,
                                          "no registered routine uses search %s; say "
                                          "--map for one",
                                          word);
    if (strchr(word, '/') && !strchr(word, '=')) {
        return add_quantizer(list, word);
    }
    qm_status st = qm_recipes_add(&recipes, word);
    for (int i = 0; i < recipes.n && st == QM_OK; i++)
        for (int s = 0; s < recipes.recipe[i].rule->n_slots && st == QM_OK; s++)
            if (is_routine(&recipes.recipe[i].slot[s]))
                st = add(list, &recipes.recipe[i].slot[s], recipes.recipe[i].base->name);
    qm_recipes_free(&recipes);
    if (st == QM_OK && list->n == before)
        st = qm_fail(QM_NO_MATCH, "%s has no deterministic nearest-code routine", word);
    return st;
}

void qm_routine_names_free(struct qm_routine_names *list)
{
    free(list->at);
    *list = (struct qm_routine_names){NULL, 0};
}
