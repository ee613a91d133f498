/* control_cells.c - Adds the controls of the protocol to a suite: null pairs and the
 * error budget. */
#include "experiments/suite/control_cells.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/suite/cell_table.h"

struct list {
    const struct qm_suite *s;
    struct qm_cell *cell;
    int64_t n, room;
    struct qm_cell_table known;
};

/* Appends c unless the list has a cell of the same run; *at is the index of the one that has. */
static qm_status add(struct list *l, struct qm_cell *c, int64_t *at)
{
    if (!c->recipe)
        return qm_fail(QM_NO_MEMORY, "cells");
    if (l->n == l->room) {
        int64_t room = l->room + l->room / 2 + 64;
        struct qm_cell *more = realloc(l->cell, (size_t)room * sizeof *more);
        if (!more)
            return qm_fail(QM_NO_MEMORY, "%lld cells", (long long)room);
        l->cell = more;
        l->room = room;
    }
    c->index = l->n;
    l->cell[l->n] = *c;
    QM_TRY(qm_cell_table_add(&l->known, l->cell, l->n, at));
    if (*at < l->n)
        return QM_OK;
    return ++l->n <= QM_SUITE_CELLS
               ? QM_OK
               : qm_fail(QM_BAD_ARG,
                         "%s: more than 10 million cells with the controls of protocol paired; "
                         "split the suite",
                         l->s->path);
}

/* A copy of c with another recipe and role.  For null pairs it has no choice on the axes that say
 * how states are stored, no slot but the first and no rounding seed. */
static struct qm_cell control_of(const struct qm_suite *s, const struct qm_cell *c,
                                 const struct qm_recipe *shared, enum qm_cell_role role)
{
    struct qm_cell e = *c;
    e.recipe = shared;
    e.role = role;
    e.float32 = e.ulp = e.own = -1;
    for (int i = 0; i < QM_BUDGET_COUNT; i++)
        e.without[i] = -1;
    if (role == QM_CELL_without || role == QM_CELL_own)
        return e;
    e.slot = 0;
    e.rounding_seed = 0;
    for (int a = 0; a < s->n_axes; a++) {
        const struct qm_axis *axis = &s->axis[a];
        if ((axis->is_recipe && !qm_hyper_has(axis->key)) || strcmp(axis->key, "variant") == 0 ||
            strcmp(axis->key, "slot") == 0 || strcmp(axis->key, "rounding_seed") == 0)
            qm_cell_take(s, &e, a, -1);
    }
    return e;
}

int qm_recipe_full(const struct qm_recipe *r, struct qm_recipe *out)
{
    char name[64];
    const struct qm_variant *v;
    snprintf(name, sizeof name, "%s_f32", r->rule->family);
    if (qm_variant_find(name, &v) == QM_OK && qm_recipe_from(v, out) == QM_OK &&
        strcmp(out->rule->family, r->rule->family) == 0 && qm_recipe_is_full(out)) {
#define X(name, initial, text)           \
    if (qm_rule_reads(out->rule, #name)) \
        out->hyper.name = r->hyper.name;
        QM_HYPER_LIST(X)
        QM_HYPER_FLAG_LIST(X)
#undef X
        return qm_recipe_applicable(out) == QM_OK;
    }
    *out = *r;
    for (int i = 0; i < r->rule->n_slots; i++)
        if (qm_recipe_set(out, r->rule->slot[i], "f32") != QM_OK)
            return 0;
    return qm_recipe_set(out, "param", "f32") == QM_OK &&
           qm_recipe_set(out, "grad", "f32") == QM_OK && qm_recipe_is_full(out) &&
           qm_recipe_applicable(out) == QM_OK;
}

/* Sets the rate that was tuned for the twin of cell i, where one was. */
static void set_rate(struct list *l, int64_t i)
{
    struct qm_cell *c = &l->cell[i];
    struct qm_recipe full;
    double rate = qm_recipe_full(c->recipe, &full) ? qm_suite_rate(l->s, c, &full) : nan("");
    if (isnan(rate))
        return;
    c->rate = rate;
    c->is_tuned = 1;
}

/* Adds the cell at the rate that was tuned for its own recipe; none where that is the twin's. */
static qm_status add_own(struct list *l, int64_t i)
{
    double rate = qm_suite_rate(l->s, &l->cell[i], l->cell[i].recipe);
    int64_t at = i;
    if (!l->cell[i].is_tuned || isnan(rate) || l->cell[i].start_ulp)
        return QM_OK;
    if (rate != l->cell[i].rate) {
        struct qm_cell e = control_of(l->s, &l->cell[i], l->cell[i].recipe, QM_CELL_own);
        e.rate = rate;
        QM_TRY(add(l, &e, &at));
    }
    l->cell[i].own = at;
    return QM_OK;
}

/* The recipe with one part at full precision.  Returns 0 where it has no such part, or where the
 * rule refuses the result. */
static int without(const struct qm_recipe *r, enum qm_budget part, struct qm_recipe *out)
{
    int changed = 0;
    *out = *r;
    if (part == QM_BUDGET_parameter) {
        changed = r->param.format != QM_PARAM_f32;
        return changed && qm_recipe_set(out, "param", "f32") == QM_OK &&
               qm_recipe_applicable(out) == QM_OK;
    }
    for (int i = 0; i < r->rule->n_slots; i++) {
        const struct qm_quantizer *q = &r->slot[i];
        struct qm_scale_rule *scale = &out->slot[i].scale;
        if (part == QM_BUDGET_scales) {
            changed |= q->bits > 0 && (q->scale.f16 != QM_F16_none || q->scale.nest != 0);
            scale->f16 = QM_F16_none;
            scale->nest = 0;
        } else if ((i == 0) == (part == QM_BUDGET_first) &&
                   (q->bits > 0 || q->plain != QM_PLAIN_f32)) {
            changed = 1;
            if (qm_recipe_set(out, r->rule->slot[i], "f32") != QM_OK)
                return 0;
        }
    }
    return changed && qm_recipe_applicable(out) == QM_OK;
}

/* The recipes of controls that follow from the recipe of a cell: without a part, or in float32. */
enum { FULL = QM_BUDGET_COUNT };
_Static_assert((int)FULL < (int)QM_SHARED_DERIVED, "each has its place beside the recipe");

static int derive(const struct qm_recipe *r, int which, struct qm_recipe *out)
{
    return which == FULL ? qm_recipe_full(r, out) : without(r, (enum qm_budget)which, out);
}

static qm_status add_nulls(struct list *l, int64_t i)
{
    const struct qm_recipe *full;
    int64_t at;
    QM_TRY(qm_shared_derived(l->cell[i].recipe, FULL, derive, &full));
    if (l->cell[i].start_ulp || !full)
        return QM_OK;
    struct qm_cell e = control_of(l->s, &l->cell[i], full, QM_CELL_float32);
    QM_TRY(add(l, &e, &at));
    l->cell[i].float32 = at;
    e = control_of(l->s, &l->cell[i], full, QM_CELL_ulp);
    e.start_ulp = 1;
    QM_TRY(add(l, &e, &at));
    l->cell[i].ulp = at;
    return QM_OK;
}

static qm_status add_parts(struct list *l, int64_t i)
{
    for (int part = 0; part < QM_BUDGET_COUNT; part++) {
        const struct qm_recipe *r;
        int64_t at;
        QM_TRY(qm_shared_derived(l->cell[i].recipe, part, derive, &r));
        if (!r)
            continue;
        struct qm_cell e = control_of(l->s, &l->cell[i], r, QM_CELL_without);
        e.part = (enum qm_budget)part;
        QM_TRY(add(l, &e, &at));
        l->cell[i].without[part] = at;
    }
    return QM_OK;
}

qm_status qm_protocol_cells(const struct qm_suite *s, struct qm_cell **cells, int64_t *n_cells)
{
    struct list l = {.s = s, .cell = *cells, .n = *n_cells, .room = *n_cells};
    int64_t own = *n_cells, same; /* of two equal cells of the suite controls name the first */
    qm_status st = QM_OK;
    for (int64_t i = 0; s->n_rates > 0 && i < own; i++)
        if (!l.cell[i].reason && l.cell[i].coupling == QM_COUPLING_closed)
            set_rate(&l, i);
    for (int64_t i = 0; st == QM_OK && i < own; i++)
        st = qm_cell_table_add(&l.known, l.cell, i, &same);
    for (int64_t i = 0; st == QM_OK && i < own; i++) {
        const struct qm_cell *c = &l.cell[i];
        if (c->reason || c->coupling != QM_COUPLING_closed)
            continue;
        st = add_nulls(&l, i);
        if (st == QM_OK)
            st = add_own(&l, i);
        if (st == QM_OK && s->budget && l.cell[i].lr_scale == 1.0 && !l.cell[i].start_ulp)
            st = add_parts(&l, i);
    }
    free(l.known.at);
    *cells = l.cell;
    *n_cells = l.n;
    return st;
}

int64_t qm_plain_cell_count(const struct qm_cell *cells, int64_t n_cells)
{
    int64_t lo = 0, hi = n_cells; /* cells below lo are plain, cells from hi on are controls */
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (cells[mid].role == QM_CELL_plain)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* ---- labels ---------------------------------------------------------------------------------- */

const char *qm_cell_choice(const struct qm_suite *s, const struct qm_cell *c, int axis)
{
    int i = qm_cell_value(s, c, axis);
    return i < 0 ? "" : s->axis[axis].value[i].label;
}

static void join(char *text, const char *separator, const char *word)
{
    size_t n = strlen(text);
    if (*word)
        snprintf(text + n, QM_LABEL_TEXT - n, "%s%s", n ? separator : "", word);
}

/* The label of a control: its variant, and the hyper-parameters that are neither the variant's own
 * nor on an axis, "adamw_f32,eps=1e-06". */
static void join_base(const struct qm_suite *s, const struct qm_cell *c, char *text)
{
    struct qm_recipe own;
    char recipe[QM_RECIPE_TEXT];
    if (!c->recipe->base || qm_recipe_from(c->recipe->base, &own) != QM_OK)
        return;
#define X(name, value, words)        \
    if (qm_suite_axis(s, #name) < 0) \
        own.hyper.name = c->recipe->hyper.name;
    QM_HYPER_LIST(X)
    QM_HYPER_FLAG_LIST(X)
#undef X
    join(text, "", qm_recipe_print(&own, recipe));
}

char *qm_cell_label(const struct qm_suite *s, const struct qm_cell *c, char *text)
{
    static const char *const parts[] = {
#define X(name, label, words) label,
        QM_BUDGET_LIST(X)
#undef X
    };
    int variant = qm_suite_axis(s, "variant"), own = qm_cell_value(s, c, variant) >= 0;
    text[0] = 0;
    if (!own)
        join_base(s, c, text);
    else if (s->axis[variant].n > 1)
        join(text, "", qm_cell_choice(s, c, variant));
    for (int a = 0; a < s->n_axes; a++)
        if (s->axis[a].n > 1 &&
            (s->axis[a].is_recipe || strcmp(s->axis[a].key, "rounding_seed") == 0))
            join(text, "; ", qm_cell_choice(s, c, a));
    if (!*text)
        join(text, "", qm_cell_choice(s, c, variant));
    if (c->start_ulp)
        join(text, "; ", "start ulp");
    else if (c->role == QM_CELL_float32) /* differs from every label of the suite */
        join(text, "; ", "float32");
    if (c->role == QM_CELL_own)
        join(text, " ", "at its own rate");
    if (c->role == QM_CELL_without)
        join(text, " without ", parts[c->part]);
    return text;
}
