/* halves.c - Finds recorded states and divides them by model. */
#include "experiments/search/halves.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/name.h"
#include "core/base/philox.h"
#include "experiments/suite/shared.h"
#include "experiments/suite/suite.h"

void qm_halves_free(struct qm_halves *h)
{
    for (int i = 0; i < h->n; i++) {
        free(h->tensor[i].file);
        free(h->tensor[i].name);
    }
    free(h->tensor);
    *h = (struct qm_halves){0};
}

/* Whether the next update of AdamW from this record has a meaning. */
static qm_status is_input(struct qm_recorded *rec, int *out)
{
    static struct qm_recipe recipe;
    struct qm_cell c = {.recipe = &recipe,
                        .coupling = QM_COUPLING_update,
                        .kind = QM_SOURCE_states,
                        .recorded = rec,
                        .lr_scale = 1.0,
                        .rate = 1.0,
                        .instance = 1};
    if (!recipe.base)
        QM_TRY(qm_recipe_parse("adamw_f32", &recipe));
    QM_TRY(qm_cell_check_source(&c));
    *out = !c.reason && rec->has_slot[0] && rec->has_slot[1];
    return QM_OK;
}

static qm_status add(struct qm_halves *h, const struct qm_recorded *rec, int half)
{
    QM_TRY(qm_grow((void **)&h->tensor, &h->room, h->n + 1, sizeof *h->tensor));
    struct qm_halving_tensor *t = &h->tensor[h->n];
    *t = (struct qm_halving_tensor){
        .file = strdup(rec->file), .name = strdup(rec->name), .numel = rec->numel, .half = half};
    h->n++;
    return t->file && t->name ? QM_OK : qm_fail(QM_NO_MEMORY, "tensors");
}

static qm_status read_files(const struct qm_halves_options *o, int half, struct qm_halves *h)
{
    struct qm_replay *replay;
    QM_TRY(qm_replay_open(o->files[half], o->n_files[half], &replay));
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < qm_replay_count(replay); i++) {
        struct qm_recorded *rec = qm_replay_at(replay, i);
        int fits = 0;
        if (rec->is_trace)
            continue;
        if (rec->numel >= o->min_numel && qm_name_matches(rec->name, o->filter))
            st = is_input(rec, &fits);
        if (st == QM_OK && fits)
            st = add(h, rec, half);
        h->left_out += !fits;
    }
    qm_replay_close(replay);
    return st;
}

/* ---- models and halves ---------------------------------------------------------------------- */

/* Whether two states belong to one run, or to one tensor of a run. */
static int same_unit(const struct qm_halving_tensor *a, const struct qm_halving_tensor *b,
                     int by_tensor)
{
    size_t n = strcspn(a->name, "/"), m = strcspn(b->name, "/");
    if (strcmp(a->file, b->file) != 0 || n != m || strncmp(a->name, b->name, n) != 0)
        return 0;
    if (!by_tensor)
        return 1;
    const char *x = strchr(a->name + n + (a->name[n] != '\0'), '/');
    const char *y = strchr(b->name + m + (b->name[m] != '\0'), '/');
    return x && y ? strcmp(x, y) == 0 : strcmp(a->name, b->name) == 0;
}

/* Numbers the units in the order of their first tensors; returns their count. */
static int number(struct qm_halves *h, int by_tensor, int *unit)
{
    int n = 0;
    for (int i = 0; i < h->n; i++) {
        unit[i] = n;
        for (int k = 0; k < i && unit[i] == n; k++)
            if (same_unit(&h->tensor[i], &h->tensor[k], by_tensor))
                unit[i] = unit[k];
        n += unit[i] == n;
    }
    return n;
}

static uint64_t draw(uint64_t seed, uint64_t stream, int i)
{
    return (uint64_t)qm_philox_stream(seed, stream, 2 * (uint64_t)i) << 32 |
           qm_philox_stream(seed, stream, 2 * (uint64_t)i + 1);
}

/* Gives the units with the lowest words of the seed, half of them rounded up, to the search. */
static void draw_halves(struct qm_halves *h, const int *unit, int units, uint64_t seed)
{
    for (int i = 0; i < h->n; i++) {
        int rank = 0;
        for (int k = 0; k < units; k++)
            rank += draw(seed, 1, k) < draw(seed, 1, unit[i]);
        h->tensor[i].half = rank < (units + 1) / 2 ? QM_HALF_search : QM_HALF_report;
    }
}

static int by_order(const void *a, const void *b)
{
    const struct qm_halving_tensor *x = a, *y = b;
    if (x->half != y->half)
        return x->half - y->half;
    if (x->place != y->place)
        return x->place - y->place;
    return x->model - y->model;
}

static void set_order(struct qm_halves *h, uint64_t seed)
{
    for (int i = 0; i < h->n; i++)
        h->tensor[i].key = draw(seed, 2, i);
    for (int i = 0; i < h->n; i++)
        for (int k = 0; k < h->n; k++)
            h->tensor[i].place += h->tensor[k].half == h->tensor[i].half &&
                                  h->tensor[k].model == h->tensor[i].model &&
                                  h->tensor[k].key < h->tensor[i].key;
    qsort(h->tensor, (size_t)h->n, sizeof *h->tensor, by_order);
}

static qm_status check_names(const struct qm_halves *h)
{
    for (int i = 0; i < h->n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(h->tensor[i].name, h->tensor[k].name) == 0)
                return qm_fail(QM_BAD_ARG,
                               "%s and %s both have a state '%s': a search tells states by their "
                               "names, and no file may be in both halves",
                               h->tensor[k].file, h->tensor[i].file, h->tensor[i].name);
    return QM_OK;
}

qm_status qm_halves_open(const struct qm_halves_options *o, struct qm_halves *out)
{
    *out = (struct qm_halves){0};
    int drawn = o->n_files[QM_HALF_report] == 0;
    for (int half = 0; half < QM_HALF_COUNT - drawn; half++)
        QM_TRY(read_files(o, half, out));
    QM_TRY(check_names(out));
    int *unit = calloc((size_t)out->n + 1, sizeof *unit);
    if (!unit)
        return qm_fail(QM_NO_MEMORY, "models");
    out->n_models = number(out, 0, unit);
    for (int i = 0; i < out->n; i++)
        out->tensor[i].model = unit[i];
    if (drawn) {
        out->by_tensor = out->n_models < 2;
        draw_halves(out, unit, number(out, out->by_tensor, unit), o->seed);
    }
    free(unit);
    set_order(out, o->seed);
    for (int i = 0; i < out->n; i++) {
        const struct qm_halving_tensor *t = &out->tensor[i];
        out->count[t->half]++;
        out->models[t->half] += t->place == 0;
    }
    for (int half = 0; half < QM_HALF_COUNT; half++)
        if (out->count[half] == 0)
            return qm_fail(QM_NO_MATCH,
                           "%s: no recorded state of Adam with both moments and at least %lld "
                           "elements for the half that %s",
                           o->files[drawn ? 0 : half][0], (long long)o->min_numel,
                           half == QM_HALF_search ? "is searched" : "reports");
    return QM_OK;
}
