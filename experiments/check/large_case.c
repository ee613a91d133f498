/* large_case.c - Draws cases of large tensors, in which many coordinates are off their defaults.
 *
 * What a kernel does wrongly from some element on may concern one setting alone, so a large tensor
 * meets as many at once as a small one: hyper-parameters, schedules, other tensors, NaN and Inf. */
#include <math.h>

#include "experiments/check/domain_source.h"
#include "experiments/check/effect.h"

/* The numbers i, modulo PERIOD, at which large sizes stand; no other cases are aimed at these. */
enum { PERIOD = 160, POWER_16 = 39, SEVERAL = 67, POWER_17 = 79, POWER_20 = 119, BETWEEN = 139 };

/* A power of two, or up to 3 beside it. */
static int64_t around(struct qm_domain_source *s, int power)
{
    return ((int64_t)1 << power) + (qm_domain_one_in(s, 3) ? 0 : qm_domain_below(s, 7) - 3);
}

/* An eighth to a quarter more: a sum that only the first 2^20 numbers enter shows there alone. */
static int64_t beyond(struct qm_domain_source *s)
{
    return (1 << 20) + (1 << 17) + qm_domain_below(s, 1 << 17);
}

/* The number of elements of case i; 0: it is not large.  A vector is not projected, so that it may
 * be long where matrices are small.  Where processes are restarted, a kernel has its own loops and
 * grids. */
static int64_t elements(const struct qm_domain *d, struct qm_domain_source *s, int64_t i)
{
    int is_long = qm_domain_is_projected(d) && d->can_restart;
    int64_t at = i % PERIOD, most = d->largest;
    if (i == POWER_16 && (most > 1 << 16 || is_long))
        return (1 << 16) + 1; /* a large tensor's result is compared with that of this one */
    if (at == POWER_16 && (most > 1 << 16 || is_long)) /* in three of four cases beyond it */
        return qm_domain_one_in(s, 4) ? around(s, 16) : (1 << 16) + qm_domain_log_uniform(s, 999);
    if (at == POWER_17 && (most > 1 << 17 || is_long))
        return around(s, 17);
    if (most > 1 << 20 && ((at == POWER_20 && d->can_restart) || i % 1024 == 600))
        return d->recipe.rule->elementwise ? around(s, 20) : beyond(s);
    if (at == SEVERAL && d->can_restart && most > 1 << 20) /* grids cut off below 2^20 */
        return (1 << 16) * (2 + qm_domain_below(s, 4)) +
               (qm_domain_one_in(s, 2) ? 0 : qm_domain_below(s, 999) - 499);
    if (at == BETWEEN && most > 1 << 17) /* between powers, and seldom up to 2^20 */
        return (1 << 15) * (i / PERIOD % 7 == 1 ? 2 + qm_domain_log_uniform(s, 30)
                                                : 3 + qm_domain_below(s, 2)) -
               qm_domain_below(s, 999);
    return 0;
}

/* Gives hyper-parameters other values, in turns that differ from one to the next: of eight turns a
 * number is at an ordinary value, which hides no other, in five, at an end of its range in two, and
 * at the recipe's own in one; a flag has its other value in half of all.  The
 * largest tensors are few: all their numbers are ordinary. */
static void give_hyper(const struct qm_domain *d, struct qm_domain_source *s, int64_t turn,
                       struct qm_case *c)
{
    static const enum qm_hyper_bin ends[] = {QM_HYPER_BIN_zero, QM_HYPER_BIN_one, QM_HYPER_BIN_tiny,
                                             QM_HYPER_BIN_large};
    enum { PHASES = 90000 };
    int from = (int)qm_domain_below(s, QM_HYPERS);
    int is_costly = qm_shape_numel(&c->shape) > QM_COSTLY;
    for (int i = 0; i < QM_HYPERS; i++) {
        int k = (from + i) % QM_HYPERS;
        int phase = (int)((qm_philox_stream(s->seed, PHASES, (uint64_t)k) + (uint64_t)turn) % 8);
        int is_end =
            phase % 3 == 0 && !is_costly && k != QM_HYPER_lr; /* which all others show in */
        enum qm_hyper_bin bin = is_end ? ends[qm_domain_below(s, 4)] : QM_HYPER_BIN_ordinary;
        int is_given = qm_hyper_is_flag(k) ? qm_domain_one_in(s, 2) : phase != 0 || is_costly;
        if (is_given)
            qm_domain_give(d, k, bin, qm_domain_word(s), c);
    }
}

static int has_long_side(const struct qm_shape *shape)
{
    int is = 0;
    for (int a = 0; a < shape->rank && shape->rank > 1; a++)
        is |= shape->dim[a] >= (1 << 16) - 8;
    return is;
}

/* Of two turns one has a schedule and the other odd gradients, at least.  A tensor that makes one
 * step starts from loaded states, and where a NaN reaches all numbers of the tensor it gets none:
 * it would hide everything else. */
static void give_parts(const struct qm_domain *d, struct qm_domain_source *s, int64_t turn,
                       struct qm_case *c)
{
    static const struct {
        enum qm_part part;
        int one_in;
    } parts[] = {{QM_PART_schedule, 4}, {QM_PART_second, 4}, {QM_PART_group, 4},
                 {QM_PART_warm, 4},     {QM_PART_fresh, 6},  {QM_PART_godd, 4},
                 {QM_PART_pzero, 12},   {QM_PART_podd, 12},  {QM_PART_sodd, 8},
                 {QM_PART_gfirst, 12}};
    int is_odd = (int)(((uint64_t)turn + s->seed) % 2);
    unsigned left_out = d->can_schedule ? 0 : 1u << QM_PART_schedule;
    if (qm_shape_numel(&c->shape) > QM_COSTLY) {
        left_out |= 1u << QM_PART_schedule | 1u << QM_PART_fresh;
        left_out |= d->recipe.rule->elementwise ? 0 : 1u << QM_PART_godd | 1u << QM_PART_gfirst;
    }
    if (qm_shape_numel(&c->shape) > QM_COSTLY || qm_domain_one_in(s, 2)) {
        c->powered |= 1u << QM_POWER_s;
        c->power[QM_POWER_s] = (int)qm_domain_below(s, 8) - 6;
    }
    if (qm_domain_one_in(s, 3)) { /* what compares with the size of parameters */
        c->powered |= 1u << QM_POWER_p;
        c->power[QM_POWER_p] = -6 - 6 * (int)qm_domain_below(s, 4);
    }
    if (qm_domain_one_in(s, 6)) {
        c->powered |= 1u << QM_POWER_g;
        c->power[QM_POWER_g] = (int)qm_domain_below(s, 21) - 10;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        c->part |= qm_domain_one_in(s, parts[i].one_in) ? 1u << parts[i].part : 0;
    c->part |= 1u << (is_odd ? QM_PART_godd : QM_PART_schedule);
    c->part |= d->recipe.rule->elementwise && qm_domain_one_in(s, 2) ? 1u << QM_PART_godd : 0;
    if (has_long_side(&c->shape)) /* both rows or columns of which would be NaN */
        left_out |=
            1u << QM_PART_godd | 1u << QM_PART_gfirst | 1u << QM_PART_sodd | 1u << QM_PART_podd;
    c->part &= ~(left_out | (qm_case_loads(c) ? 0 : 1u << QM_PART_sodd));
    if (qm_domain_one_in(s, 3))
        c->tensor_after_one = (uint32_t)qm_domain_below(s, 300);
}

/* The hyper-parameter that is the subject of large case number `turn`: all that are read, each in
 * its turn. */
static int subject_of(const struct qm_domain *d, const struct qm_domain_source *s, int64_t turn)
{
    int n = __builtin_popcountll(d->reads), k = 0;
    int64_t at = n ? (int64_t)((s->seed + (uint64_t)turn) % (uint64_t)n) : 0;
    for (; k < QM_HYPERS - 1 && !(d->reads >> k & 1 && at-- == 0); k++)
        continue;
    return k;
}

/* Whether sums over so many numbers must have an effect (qm_case_tail_effects). */
static int sums_tail(const struct qm_domain *d, const struct qm_shape *shape)
{
    return !d->recipe.rule->elementwise && !qm_domain_is_projected(d) &&
           qm_shape_numel(shape) > QM_COSTLY;
}

/* Effects of a case: of hyper-parameters, before them that of its subject, and in the largest
 * tensors, where the rule has sums, of tails. */
static int score_of(const struct qm_domain *d, int subject, struct qm_case *c)
{
    if (d->candidates == 0)
        return 0;
    c->effects = qm_case_effects(d, c);
    int score = __builtin_popcountll(c->effects);
    score += c->effects >> subject & 1 ? QM_HYPERS : 0;
    if (sums_tail(d, &c->shape))
        score += QM_HYPERS * __builtin_popcount((unsigned)qm_case_tail_effects(d, c));
    return score;
}

void qm_domain_bound_rank(const struct qm_domain *d, struct qm_case *c)
{
    enum { LARGE = 1 << 14, LONG = 1300 };
    int is_large = qm_shape_numel(&c->shape) > LARGE;
    for (int a = 0; a < c->shape.rank; a++)
        is_large |= c->shape.dim[a] > LONG;
    if (qm_domain_may_project(d) && !qm_domain_is_projected(d) && is_large && c->shape.rank > 1)
        c->given &= ~((uint64_t)1 << QM_HYPER_rank);
}

/* Shampoo's statistics and roots are due at every step, from vectors that are far from orthonormal;
 * of small tiles, for a factor costs its order times the tensor's size. */
static void make_due(const struct qm_domain *d, struct qm_domain_source *s, struct qm_case *c)
{
    enum { ORDERS = 6, LOADED = -2 };
    qm_domain_put(d, QM_HYPER_stat_gap, 1.0, c);
    qm_domain_put(d, QM_HYPER_root_gap, 1.0, c);
    qm_domain_put(d, QM_HYPER_rect_stat, (double)(1 + qm_domain_below(s, 3)), c);
    qm_domain_put(d, QM_HYPER_rect_root, (double)(1 + qm_domain_below(s, 4)), c);
    qm_domain_put(d, QM_HYPER_max_order, (double)(3 + qm_domain_below(s, ORDERS)), c);
    c->powered |= 1u << QM_POWER_s;
    c->power[QM_POWER_s] = LOADED;
}

/* Of some candidates the one with most effects. */
struct qm_case qm_large_settings(const struct qm_domain *d, struct qm_domain_source *s,
                                 int64_t turn, const struct qm_shape *shape)
{
    static const enum qm_class ordinary[] = {QM_CLASS_normal, QM_CLASS_unit, QM_CLASS_planted};
    static const enum qm_class other[] = {QM_CLASS_nan,        QM_CLASS_inf,    QM_CLASS_nonfinite,
                                          QM_CLASS_sparse,     QM_CLASS_edges,  QM_CLASS_zeroblock,
                                          QM_CLASS_outlier,    QM_CLASS_floors, QM_CLASS_constant,
                                          QM_CLASS_loguniform, QM_CLASS_graded};
    enum { ORDINARY = sizeof ordinary / sizeof *ordinary, OTHER = sizeof other / sizeof *other };
    enum { CANDIDATES = 12, FURTHER = 60, ALL_TAILS = 3 * QM_HYPERS };
    enum { PROJECTIONS = 6, PERIOD_OF_OTHERS = 5 };
    int best = -1, most = d->candidates == 0 ? 1 : qm_domain_is_projected(d) ? 2 : CANDIDATES;
    int has_tail = sums_tail(d, shape); /* of few cases: each should show it */
    int subject = subject_of(d, s, turn);
    int is_other = (turn + (int64_t)(s->seed % PERIOD_OF_OTHERS)) % PERIOD_OF_OTHERS == 0;
    enum qm_class kind =
        is_other ? other[qm_domain_below(s, OTHER)] : ordinary[qm_domain_below(s, ORDINARY)];
    if (!d->recipe.rule->elementwise && qm_shape_numel(shape) > QM_COSTLY)
        kind = qm_domain_one_in(s, 2) ? QM_CLASS_normal : QM_CLASS_unit;
    if (has_long_side(shape)) /* each of whose rows or columns has other numbers */
        kind = QM_CLASS_normal;
    struct qm_case out = {.forced = 1};
    for (int i = 0; i < most || (has_tail && most > 1 && i < FURTHER && best < ALL_TAILS); i++) {
        struct qm_case c = {.forced = !qm_domain_one_in(s, 4), .kind = kind, .shape = *shape};
        c.t = qm_domain_one_in(s, 2)   ? 1 /* which has rules of its own */
              : qm_domain_one_in(s, 2) ? 2 + qm_domain_below(s, 14)
                                       : qm_domain_first_step(d, s);
        give_hyper(d, s, turn, &c);
        qm_domain_bound_step(d, PROJECTIONS, &c);
        give_parts(d, s, turn, &c);
        qm_domain_bound_rank(d, &c);
        if (!qm_domain_is_projected(d) && !qm_domain_one_in(s, 4))
            c.given &= ~((uint64_t)1 << QM_HYPER_rank); /* which kernels may refuse */
        if (d->reads >> QM_HYPER_start & 1 && !qm_domain_one_in(s, 4))
            qm_domain_put(d, QM_HYPER_start, 0.0, &c); /* the gradient is preconditioned */
        if (d->reads >> QM_HYPER_stat_gap & 1 && shape->rank > 1 && turn % 2)
            make_due(d, s, &c);
        int score = score_of(d, subject, &c);
        if (score > best) {
            best = score;
            out = c;
        }
    }
    return out;
}

int qm_large_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                  struct qm_case *c)
{
    static const int at[] = {POWER_16, POWER_17, POWER_20, BETWEEN, SEVERAL};
    enum { AT = sizeof at / sizeof *at };
    int64_t n = elements(d, s, i), turn = i / PERIOD;
    if (n == 0)
        return 0;
    for (int k = 0; k < AT; k++)
        turn += at[k] == i % PERIOD ? k : 0;
    int rank = n > d->largest || qm_domain_one_in(s, 3) ? 1 : 2 + (int)qm_domain_log_uniform(s, 6);
    struct qm_shape shape = qm_domain_cut(s, n, rank);
    *c = qm_large_settings(d, s, turn, &shape);
    return 1;
}

struct qm_case qm_large_further(const struct qm_domain *d, struct qm_domain_source *s, int64_t turn)
{
    int64_t n = turn % 8 == 6 && d->can_restart && d->largest > 1 << 20 ? around(s, 20)
                : turn % 4 == 0                                         ? around(s, 16)
                : turn % 4 == 1                                         ? around(s, 17)
                                : QM_LARGE + 1 + qm_domain_below(s, QM_COSTLY - QM_LARGE);
    struct qm_shape shape = qm_domain_cut(s, n, 1 + (int)qm_domain_below(s, 2));
    return qm_large_settings(d, s, turn, &shape);
}
