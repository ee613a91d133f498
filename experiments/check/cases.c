/* cases.c - Enumerates the core of the cases, and applies a case to a recipe. */
#include "experiments/check/cases.h"

#include <math.h>

static const struct {
    double lr, beta1, beta2, eps, weight_decay;
} settings[] = {
#define X(name, lr, b1, b2, eps, wd, text) {lr, b1, b2, eps, wd},
    QM_SETTING_LIST(X)
#undef X
};

/* Every shape of `shapes` meets every class, with four settings in turn.  The two of `deep_shapes`
 * meet every setting before `exact`: the first at steps 1 and 1000000, the second, smaller one at
 * steps 12 and 1000.  The first eight of `shapes` meet the variant's own fallbacks.  A tensor of 97
 * x 101 = 9797 elements has more than eight pieces of work, so that two threads share it. */
static const struct qm_shape shapes[] = {
    {1, {4097}},   {2, {61, 67}}, {3, {7, 11, 53}}, {1, {4096}},   {2, {97, 101}},
    {1, {1}},      {1, {127}},    {1, {128}},       {1, {129}},    {2, {1, 257}},
    {2, {257, 1}}, {0, {0}},      {1, {0}},         {2, {0, 128}},
};
static const struct qm_shape deep_shapes[] = {{2, {53, 47}}, {3, {3, 11, 29}}};
static const int64_t deep_steps[2][2] = {{1, 1000000}, {12, 1000}};
static const enum qm_setting wide_settings[] = {QM_SETTING_default, QM_SETTING_wd0, QM_SETTING_wd,
                                                QM_SETTING_maximize};
static const enum qm_class thorough[] = {QM_CLASS_normal, QM_CLASS_loguniform, QM_CLASS_outlier,
                                         QM_CLASS_planted};
static const enum qm_class fallback[] = {QM_CLASS_normal, QM_CLASS_nonfinite, QM_CLASS_planted};

enum {
    LISTED = QM_CLASS_nan, /* the classes before nan meet every shape */
    SHAPES = sizeof shapes / sizeof *shapes,
    THOROUGH = sizeof thorough / sizeof *thorough,
    FALLBACK = sizeof fallback / sizeof *fallback,
    SETTINGS = QM_SETTING_exact, /* the settings before exact */
    WIDE_SETTINGS = sizeof wide_settings / sizeof *wide_settings,
    WIDE = SHAPES * LISTED,
    DEEP = 2 * THOROUGH * SETTINGS * 2,
    OWN = 8 * FALLBACK,
    RANK = 4, /* rank of projections in forced cases, unless one up to the smaller side is given */
    /* The largest order of Shampoo's preconditioners, whose cost is the tensor's size times their
     * order: unless one is given, and from 2^14 elements on; if one is given, and from 2^15
     * elements on.  Longer sides are cut into pieces. */
    ORDER = 72,
    ORDER_OF_LARGE = 16
};

int qm_case_count(void) { return WIDE + DEEP + OWN; }

struct qm_case qm_case_at(int i)
{
    struct qm_case c = {.t = 1, .forced = 1};
    if (i < WIDE) {
        c.shape = shapes[i / LISTED];
        c.kind = (enum qm_class)(i % LISTED);
        c.setting = c.kind == QM_CLASS_exact ? QM_SETTING_exact
                                             : wide_settings[(i / LISTED + i) % WIDE_SETTINGS];
    } else if (i < WIDE + DEEP) {
        i -= WIDE;
        c.t = deep_steps[i / 2 / SETTINGS / THOROUGH][i % 2];
        c.setting = (enum qm_setting)(i / 2 % SETTINGS);
        c.kind = thorough[i / 2 / SETTINGS % THOROUGH];
        c.shape = deep_shapes[i / 2 / SETTINGS / THOROUGH];
    } else {
        i -= WIDE + DEEP;
        c.forced = 0;
        c.kind = fallback[i % FALLBACK];
        c.shape = shapes[i / FALLBACK];
    }
    return c;
}

static void put(double *to, double value)
{
    if (value >= 0.0)
        *to = value;
}

/* The smaller side of the matrices that the last two axes form; 1 for a vector. */
static double smaller_side(const struct qm_shape *s)
{
    return s->rank < 2 ? 1.0 : fmin((double)s->dim[s->rank - 1], (double)s->dim[s->rank - 2]);
}

/* Whether neither statistics nor roots of Shampoo are due in the steps of a case. */
static int is_idle(const struct qm_case *c)
{
    uint64_t both = (uint64_t)1 << QM_HYPER_stat_gap | (uint64_t)1 << QM_HYPER_root_gap;
    double last = (double)(c->t + QM_CHECK_STEPS);
    return (c->given & both) == both && c->hyper[QM_HYPER_stat_gap] > last &&
           c->hyper[QM_HYPER_root_gap] > last && c->tensor_after_one == 0 && c->part == 0;
}

void qm_case_apply(const struct qm_case *c, struct qm_recipe *r)
{
    /* Where a decay is divided by the first rate, lr 0 comes after one that was the variant's. */
    if (settings[c->setting].lr == 0.0 && r->hyper.initial_lr == 0.0 &&
        qm_rule_reads(r->rule, "initial_lr"))
        r->hyper.initial_lr = r->hyper.lr;
    put(&r->hyper.lr, settings[c->setting].lr);
    put(&r->hyper.beta1, settings[c->setting].beta1);
    put(&r->hyper.beta2, settings[c->setting].beta2);
    put(&r->hyper.eps, settings[c->setting].eps);
    put(&r->hyper.weight_decay, settings[c->setting].weight_decay);
    if (c->setting == QM_SETTING_maximize)
        r->hyper.maximize = 1;
    for (int k = 0; k < QM_HYPERS; k++)
        if (c->given >> k & 1)
            qm_hyper_put(&r->hyper, k, c->hyper[k]);
    double most = c->given >> QM_HYPER_rank & 1 ? fmax(RANK, smaller_side(&c->shape)) : RANK;
    if (c->forced && r->hyper.rank > most)
        r->hyper.rank = most;
    int is_given = (int)(c->given >> QM_HYPER_max_order & 1);
    int64_t n = qm_shape_numel(&c->shape);
    int order = n >= (is_given ? 1 << 15 : 1 << 14)   ? ORDER_OF_LARGE
                : !is_given                           ? ORDER
                : n < QM_ORDER_IDLE_FEW && is_idle(c) ? QM_ORDER_IDLE
                : n < QM_ORDER_FEW                    ? QM_ORDER_LONG
                                                      : QM_ORDER_MOST;
    if (r->hyper.max_order > order)
        r->hyper.max_order = order;
    if (c->forced && !(c->given >> QM_HYPER_min_lowbit & 1) && r->hyper.min_lowbit > 1.0)
        r->hyper.min_lowbit = 1.0;
    for (int i = 0; i < r->rule->n_slots && c->forced; i++)
        r->min_numel[i] = r->whole_blocks[i] = 0;
}

/* The longer side of the matrix [d0, rest] of Shampoo: sides of 1 are dropped. */
static double longest_factor(const struct qm_shape *shape)
{
    int first = 0;
    while (first < shape->rank - 1 && shape->dim[first] == 1)
        first++;
    double rows = shape->rank ? (double)shape->dim[first] : 1.0;
    double cols = rows > 0.0 ? (double)qm_shape_numel(shape) / rows : 0.0;
    return fmax(rows, cols);
}

void qm_case_limits(const struct qm_case *c, const struct qm_recipe *r, char *out, size_t size)
{
    struct qm_recipe to = *r;
    qm_case_apply(c, &to);
    double order =
        c->given >> QM_HYPER_max_order & 1 ? c->hyper[QM_HYPER_max_order] : r->hyper.max_order;
    double rank = c->given >> QM_HYPER_rank & 1 ? c->hyper[QM_HYPER_rank] : r->hyper.rank;
    *out = '\0';
    if (qm_rule_reads(r->rule, "max_order") && to.hyper.max_order < order &&
        longest_factor(&c->shape) > to.hyper.max_order)
        snprintf(out, size,
                 "the case is judged with max_order=%g, not %g, for a judge's time: longer sides "
                 "are cut into tiles of it",
                 to.hyper.max_order, order);
    else if (qm_rule_reads(r->rule, "rank") && to.hyper.rank < rank &&
             to.hyper.rank < smaller_side(&c->shape))
        snprintf(out, size, "the case is judged with rank=%g, not %g, for a judge's time",
                 to.hyper.rank, rank);
}

int qm_case_steps(const struct qm_case *c)
{
    int64_t n = qm_shape_numel(&c->shape);
    int needs_two = qm_case_takes(c, QM_PART_schedule) || qm_case_takes(c, QM_PART_fresh);
    return n <= 1 << 14 ? QM_CHECK_STEPS : n > QM_COSTLY && qm_case_loads(c) && !needs_two ? 1 : 2;
}
