/* effect.c - Steps the oracle with and without one hyper-parameter of a case, and compares. */
#include "experiments/check/effect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/recipes/oracle_hyper.h"
#include "oracle/oracle.h"

/* LEADING, LAST: longest sides of the small tensor; ALONE: its elements where it has one axis.
 * MOST: elements of any such tensor. */
enum { LEADING = 2, LAST = 6, ALONE = 24, MOST = LAST * LAST * LEADING * LEADING * LEADING };
#define SHARE 0.02

/* The inputs of a case's steps, and where they lead. */
struct inputs {
    const struct qm_oracle *oracle;
    struct qm_case c; /* of the small shape */
    int64_t n;
    float p[MOST], g[QM_CHECK_STEPS][MOST];
};
struct outcome {
    double p[MOST], *slot[QM_MAX_SLOTS], *room;
    int64_t n_of[QM_MAX_SLOTS];
    int n_slots;
};

static struct qm_shape small(const struct qm_shape *of)
{
    struct qm_shape s = *of;
    for (int a = 0; a < s.rank; a++) {
        int64_t most = s.rank == 1 ? ALONE : a >= s.rank - 2 ? LAST : LEADING;
        s.dim[a] = s.dim[a] > most ? most : s.dim[a];
    }
    return s;
}

static int make_inputs(const struct qm_domain *d, const struct qm_case *c, struct inputs *in)
{
    struct qm_aim aim = {.recipe = &d->recipe, .shape = &in->c.shape, .seed = 1};
    in->oracle = qm_oracle_find(d->recipe.rule->family);
    in->c = *c;
    in->c.shape = small(&c->shape);
    in->n = aim.n = qm_shape_numel(&in->c.shape);
    if (!in->oracle || in->n == 0 || in->n > MOST)
        return 0;
    qm_case_start(&in->c, &aim, in->p);
    for (int k = 0; k < QM_CHECK_STEPS; k++)
        qm_case_gradient(&in->c, &aim, c->t + k, k, in->g[k]);
    return 1;
}

/* The oracle's steps with the hyper-parameters of r; 0: it does not take them. */
static int run(const struct qm_recipe *r, const struct inputs *in, struct outcome *out)
{
    struct qm_oracle_hyper h = qm_oracle_hyper_of(&r->hyper);
    int64_t all = 1;
    *out = (struct outcome){.n_slots = r->rule->n_slots};
    for (int i = 0; i < out->n_slots; i++) {
        struct qm_shape of;
        qm_rule_slot_shape(r->rule, &r->hyper, i, &in->c.shape, &of);
        out->n_of[i] = qm_shape_numel(&of);
        all += out->n_of[i];
    }
    out->room = calloc((size_t)all, sizeof(double));
    if (!out->room)
        return 0;
    double *at = out->room, g[MOST];
    for (int i = 0; i < out->n_slots; at += out->n_of[i++])
        out->slot[i] = at;
    for (int64_t i = 0; i < in->n; i++)
        out->p[i] = (double)in->p[i];
    for (int k = 0; k < QM_CHECK_STEPS; k++) {
        for (int64_t i = 0; i < in->n; i++)
            g[i] = (double)in->g[k][i];
        if (qm_oracle_step(in->oracle, out->p, out->slot, g, &in->c.shape,
                           in->c.tensor_after_one + 1u, &h, in->c.t + k) != QM_OK)
            return 0;
    }
    return 1;
}

/* 1: x and y differ by SHARE of the larger change from `from`, and by more than `least`. */
static int differ(double x, double y, double from, double least)
{
    double off = fabs(x - y), most = fmax(fabs(x - from), fabs(y - from));
    if (!isfinite(x) || !isfinite(y))
        return isfinite(x) != isfinite(y);
    return off > least && off >= SHARE * most;
}

static int outcomes_differ(const struct inputs *in, double grain, const struct outcome *a,
                           const struct outcome *b)
{
    int is = 0;
    for (int64_t i = 0; i < in->n && !is; i++) {
        double from = (double)in->p[i];
        is = differ(a->p[i], b->p[i], from, grain * fabs(from) + 0x1p-120);
    }
    for (int k = 0; k < a->n_slots && !is; k++)
        for (int64_t i = 0; i < a->n_of[k] && a->n_of[k] == b->n_of[k] && !is; i++)
            is = differ(a->slot[k][i], b->slot[k][i], 0.0, 0x1p-120);
    return is;
}

/* 1: the oracle draws the seeds of too many projections before step t. */
static int projects_often(const struct qm_domain *d, const struct qm_hyper *h, int64_t t)
{
    enum { PROJECTIONS = 40 };
    double gap = h->gap >= 1.0 ? h->gap : 1.0;
    return d->reads >> QM_HYPER_rank & 1 && h->rank > 0.0 && (double)(t - 1) / gap > PROJECTIONS;
}

/* Gives hyper-parameter k of r the value that it is compared with; 0: the rule does not take it, or
 * it takes too long at step t. */
static int change(const struct qm_domain *d, int k, int64_t t, struct qm_recipe *r)
{
    enum { WORD = 0x4b1d9e37 };
    double own = qm_hyper_get(&d->recipe.hyper, k), now = qm_hyper_get(&r->hyper, k), to = own;
    if (now == own)
        to = qm_hyper_is_flag(k) ? (double)(own == 0.0)
                                 : qm_hyper_draw(k, QM_HYPER_BIN_ordinary, WORD);
    qm_hyper_put(&r->hyper, k, to);
    return !isnan(to) && to != now && !projects_often(d, &r->hyper, t) &&
           qm_recipe_applicable(r) == QM_OK;
}

/* Four spacings of the parameter's format, relative to its size. */
static double grain_of(const struct qm_recipe *r)
{
    return r->param.format == QM_PARAM_f32   ? 0x1p-21
           : r->param.format == QM_PARAM_f16 ? 0x1p-8
                                             : 0x1p-5;
}

uint64_t qm_case_effects(const struct qm_domain *d, const struct qm_case *c)
{
    struct inputs in;
    struct outcome is, other;
    struct qm_recipe r = d->recipe;
    uint64_t effects = 0;
    qm_case_apply(c, &r);
    if (!make_inputs(d, c, &in))
        return 0;
    int runs = run(&r, &in, &is);
    for (int k = 0; k < QM_HYPERS && runs; k++) {
        struct qm_recipe without = r;
        if (!(d->reads >> k & 1) || !change(d, k, c->t, &without))
            continue;
        if (run(&without, &in, &other) && outcomes_differ(&in, grain_of(&r), &is, &other))
            effects |= (uint64_t)1 << k;
        free(other.room);
    }
    free(is.room);
    return effects;
}
