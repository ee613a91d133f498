/* effect.c - Steps the oracle with and without one hyper-parameter of a case, and compares. */
#include "experiments/check/effect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/recipes/oracle_hyper.h"
#include "oracle/oracle.h"

/* LEADING, LAST: longest sides of the small tensor; ALONE: its elements where it has one axis.
 * RANK: largest rank of its projections, but where the effect of the rank itself is asked for.
 * TAILED: elements of a tensor whose tail is left out, about.  MOST: elements of any such
 * tensor. */
enum {
    LEADING = 2,
    LAST = 6,
    ALONE = 24,
    RANK = 12,
    TAILED = 256,
    MOST = LAST * LAST * LEADING * LEADING * LEADING
};
#define SHARE 0.02

/* The inputs of a case's steps, and where they lead. */
struct inputs {
    const struct qm_oracle *oracle;
    struct qm_case c; /* of the small shape */
    int64_t n;
    int loads; /* slots are loaded, where the case does so */
    float p[MOST], g[QM_CHECK_STEPS][MOST];
};
/* largest: the largest magnitude of each parameter on the way. */
struct outcome {
    double p[MOST], largest[MOST], *slot[QM_MAX_SLOTS], *room;
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

/* The same of TAILED elements or somewhat fewer: leading axes of 1. */
static struct qm_shape small_with_tail(const struct qm_shape *of)
{
    struct qm_shape s = *of;
    for (int64_t a = s.rank - 1, left = TAILED; a >= 0; a--) {
        int64_t most = a > 0 && s.rank > 1 ? 32 : left;
        s.dim[a] = s.dim[a] > most ? most : s.dim[a];
        s.dim[a] = s.dim[a] > left ? left : s.dim[a];
        left /= s.dim[a] > 0 ? s.dim[a] : 1;
    }
    return s;
}

/* shape: the small one. */
static int make_inputs(const struct qm_domain *d, const struct qm_case *c,
                       const struct qm_shape *shape, struct inputs *in)
{
    struct qm_aim aim = {.recipe = &d->recipe, .shape = &in->c.shape, .seed = 1};
    in->oracle = qm_oracle_find(d->recipe.rule->family);
    in->c = *c;
    in->loads = 0;
    in->c.shape = *shape;
    in->n = aim.n = qm_shape_numel(&in->c.shape);
    if (!in->oracle || in->n == 0 || in->n > MOST)
        return 0;
    qm_case_start(&in->c, &aim, in->p);
    for (int k = 0; k < QM_CHECK_STEPS; k++)
        qm_case_gradient(&in->c, &aim, c->t + k, k, in->g[k]);
    return 1;
}

/* Loads the slots of one number for each element. */
static void load(const struct qm_recipe *r, const struct inputs *in, struct outcome *out)
{
    struct qm_aim aim = {.recipe = r, .shape = &in->c.shape, .n = in->n, .seed = 1};
    float x[MOST];
    for (int i = 0; i < out->n_slots && qm_case_loads(&in->c); i++) {
        if (out->n_of[i] != in->n)
            continue;
        qm_case_state(&in->c, &aim, i, in->n, x);
        for (int64_t k = 0; k < in->n; k++)
            out->slot[i][k] = (double)x[k];
    }
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
    for (int64_t i = 0; i < in->n; i++) {
        out->p[i] = (double)in->p[i];
        out->largest[i] = fabs(out->p[i]);
    }
    if (in->loads)
        load(r, in, out);
    for (int k = 0; k < QM_CHECK_STEPS; k++) {
        for (int64_t i = 0; i < in->n; i++)
            g[i] = (double)in->g[k][i];
        if (qm_oracle_step(in->oracle, out->p, out->slot, g, &in->c.shape,
                           in->c.tensor_after_one + 1u, &h, in->c.t + k) != QM_OK)
            return 0;
        for (int64_t i = 0; i < in->n; i++)
            out->largest[i] = fmax(out->largest[i], fabs(out->p[i]));
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
        is = differ(a->p[i], b->p[i], from, grain * a->largest[i] + 0x1p-120);
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

/* Gives hyper-parameter k of r the value that it is compared with: 0, or with is_dropped 0 the
 * recipe's own or another.  0: the rule does not take it, or it takes too long at step t. */
static int change(const struct qm_domain *d, int k, int64_t t, int is_dropped, struct qm_recipe *r)
{
    enum { WORD = 0x4b1d9e37 };
    double own = qm_hyper_get(&d->recipe.hyper, k), now = qm_hyper_get(&r->hyper, k), to = own;
    if (is_dropped)
        to = 0.0;
    else if (now == own)
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

/* The hyper-parameters among `of` whose change has an effect. */
static uint64_t effects_of(const struct qm_domain *d, const struct qm_case *c, uint64_t of,
                           int is_dropped)
{
    struct inputs in;
    struct outcome is, other;
    struct qm_recipe r = d->recipe;
    uint64_t effects = 0;
    qm_case_apply(c, &r);
    if (d->reads >> QM_HYPER_rank & 1 && r.hyper.rank > RANK)
        r.hyper.rank = RANK;
    struct qm_shape shape = small(&c->shape);
    if (!make_inputs(d, c, &shape, &in))
        return 0;
    int runs = run(&r, &in, &is);
    for (int k = 0; k < QM_HYPERS && runs; k++) {
        struct qm_recipe without = r;
        if (!(of >> k & 1) || !change(d, k, c->t, is_dropped, &without))
            continue;
        if (run(&without, &in, &other) && outcomes_differ(&in, grain_of(&r), &is, &other))
            effects |= (uint64_t)1 << k;
        free(other.room);
    }
    free(is.room);
    return effects;
}

uint64_t qm_case_effects(const struct qm_domain *d, const struct qm_case *c)
{
    return effects_of(d, c, d->reads, 0);
}

uint64_t qm_case_drops(const struct qm_domain *d, const struct qm_case *c, uint64_t of)
{
    return effects_of(d, c, of & d->reads, 1);
}

/* 1: an update of the first `n` parameters differs. */
static int updates_differ(const struct inputs *in, double grain, int64_t n, const struct outcome *a,
                          const struct outcome *b)
{
    int is = 0;
    for (int64_t i = 0; i < n && !is; i++) {
        double from = (double)in->p[i];
        is = differ(a->p[i], b->p[i], from, grain * a->largest[i] + 0x1p-120);
    }
    return is;
}

/* Sets what bit 0 and bit 1 of `which` name to 0 from element `from` on: parameters, gradients. */
static void leave_out(struct inputs *in, int which, int64_t from)
{
    for (int64_t i = from; i < in->n; i++) {
        in->p[i] = which & 1 ? 0.0f : in->p[i];
        for (int k = 0; k < QM_CHECK_STEPS; k++)
            in->g[k][i] = which & 2 ? 0.0f : in->g[k][i];
    }
}

int qm_case_tail_effects(const struct qm_domain *d, const struct qm_case *c)
{
    struct inputs in, without;
    struct outcome is, other;
    struct qm_recipe r = d->recipe;
    struct qm_shape shape = small_with_tail(&c->shape);
    int found = 0;
    qm_case_apply(c, &r);
    if (!make_inputs(d, c, &shape, &in))
        return 0;
    int64_t from = qm_case_tail(in.n);
    for (int64_t i = from; i < in.n; i++)
        in.p[i] *= QM_TAIL_FACTOR;
    in.loads = 1;
    int runs = run(&r, &in, &is);
    for (int which = 1; which <= 3 && runs; which++) {
        without = in;
        leave_out(&without, which, from);
        if (run(&r, &without, &other) && updates_differ(&in, grain_of(&r), from, &is, &other))
            found |= 1 << (which - 1);
        free(other.room);
    }
    free(is.room);
    return found;
}
