/* small_case.c - Draws cases of small tensors: settings crossed, and numbers at the ends of
 * formats.
 *
 * They cost a few milliseconds each, so that a check has hundreds of them. */
#include <math.h>

#include "experiments/check/domain_source.h"
#include "experiments/check/effect.h"

/* CANDIDATES: for a crossed case.  LAST_STEP: 2^20.  LONG_RUN: steps that averages may remember. */
enum { CANDIDATES = 6, LAST_STEP = 1 << 20, LONG_RUN = 64, PROJECTIONS = 6 };

static int64_t between(struct qm_domain_source *s, int64_t from, int64_t to)
{
    return from + qm_domain_below(s, to - from + 1);
}

/* Step number `turn` of 2^k - 1, 2^k and 2^k + 1 up to 2^20, in turn: what goes wrong at one of
 * them alone. */
static int64_t step_in_turn(int64_t turn)
{
    enum { POWERS = 20 };
    return ((int64_t)1 << (1 + turn / 3 % POWERS)) - 1 + turn % 3;
}

static int64_t first_step(struct qm_domain_source *s)
{
    return qm_domain_one_in(s, 3)   ? 1
           : qm_domain_one_in(s, 3) ? between(s, 2, 15)
                                    : qm_domain_log_uniform(s, LAST_STEP);
}

/* Gives averages a memory as long as the run, 1 - c/t with c from 1/4 to 4: what was added up over
 * t steps still counts, so that a step count or a product that was cut short shows. */
static void remember(const struct qm_domain *d, struct qm_domain_source *s, struct qm_case *c)
{
    static const int betas[] = {QM_HYPER_beta1, QM_HYPER_beta2, QM_HYPER_momentum};
    for (int i = 0; i < 3; i++) {
        int k = betas[i], power = (int)between(s, -2, 2);
        struct qm_case to = *c;
        to.given |= (uint64_t)1 << k;
        to.hyper[k] = 1.0 - ldexp(1.0, power) / (double)c->t;
        int at = (int)qm_hyper_bin_of(k, qm_hyper_get(&d->recipe.hyper, k), to.hyper[k]);
        if (d->reads >> k & 1 && !qm_domain_one_in(s, 3) && !(d->refused[k] >> at & 1) &&
            qm_domain_takes(d, &to))
            *c = to;
    }
}

/* ---- crossed settings ------------------------------------------------------------------------ */

/* The longer side of a long matrix: slots of a rule that projects, or of one with a factor of each
 * axis, cost that times a side. */
static int64_t longest(const struct qm_domain *d)
{
    enum { FACTORED = 600, PROJECTED = 1200, ANY = 4099 };
    return d->reads >> QM_HYPER_max_order & 1 ? FACTORED
           : qm_domain_may_project(d)         ? PROJECTED
                                              : ANY;
}

/* The length of a vector: up to 1100 elements of whole blocks, or to eight blocks of any length,
 * give or take an element. */
static int64_t around_blocks(const struct qm_domain *d, struct qm_domain_source *s)
{
    enum { SHORT = 1100, EIGHT = 8 };
    int64_t block = d->block[qm_domain_below(s, d->n_blocks)], n;
    if (!qm_domain_one_in(s, 3))
        return qm_domain_around_blocks(d, s, SHORT);
    n = block * (1 + qm_domain_below(s, EIGHT)) + between(s, -1, 1);
    return n < 1 ? 1 : n < d->largest ? n : d->largest;
}

/* Small sizes of one to four axes.  Of vectors every second is as long as whole blocks, give or
 * take an element, of matrices every sixth is long, the other side as wide as their elements allow,
 * every sixth has equal sides, and every sixth (of rules over whole tensors every second of those
 * left, of those that cut them into pieces none) two unequal ones above 23; of tensors that keep
 * their fallbacks every second has a size around where these end, or around whole blocks below
 * it. */
static struct qm_shape crossed_shape(const struct qm_domain *d, struct qm_domain_source *s,
                                     int forced)
{
    enum { LONG = 6, EQUAL = 6, BOTH = 6, SIDE = 24, ELEMENTS = 1 << 12 };
    int rank = qm_domain_one_in(s, 4) ? 1 : (int)between(s, 2, 4);
    int64_t n = forced || qm_domain_one_in(s, 2) ? 0 : qm_domain_around_fallback(d, s);
    struct qm_shape shape = {rank, {0}};
    if (n)
        return (struct qm_shape){1, {n}};
    for (int a = 0; a < rank; a++)
        shape.dim[a] =
            a < rank - 2 ? between(s, 1, 3) : 1 + qm_domain_log_uniform(s, rank == 1 ? 600 : SIDE);
    if (rank == 1 && qm_domain_one_in(s, 2))
        shape.dim[0] = around_blocks(d, s);
    if (rank > 1 && qm_domain_one_in(s, EQUAL)) {
        qm_domain_equal_sides(s, 2 + qm_domain_log_uniform(s, rank == 2 ? 2 * SIDE : SIDE / rank),
                              &shape);
    } else if (rank > 1 && qm_domain_one_in(s, LONG)) {
        int64_t length = 32 * qm_domain_log_uniform(s, longest(d) / 32) + between(s, -3, 3);
        int64_t most = ELEMENTS / length, *last = shape.dim + rank - 2;
        int is_tall = qm_domain_one_in(s, 2);
        last[is_tall] = most > 4 ? qm_domain_log_uniform(s, most) : between(s, 1, 4);
        last[!is_tall] = length;
        for (int a = 0; a < rank - 2; a++)
            shape.dim[a] = 1;
    } else if (rank > 1 && !(d->reads >> QM_HYPER_max_order & 1) &&
               qm_domain_one_in(s, d->recipe.rule->tensor ? 2 : BOTH)) {
        int64_t *last = shape.dim + rank - 2, side = between(s, SIDE, 54);
        int is_tall = qm_domain_one_in(s, 2);
        last[is_tall] = side;
        last[!is_tall] = side * 5 / 4 + qm_domain_log_uniform(s, ELEMENTS / side - side * 5 / 4);
        for (int a = 0; a < rank - 2; a++)
            shape.dim[a] = 1;
    }
    return shape;
}

/* t: its first step, or 0: any. */
static struct qm_case crossed_candidate(const struct qm_domain *d, struct qm_domain_source *s,
                                        enum qm_class kind, int64_t t)
{
    static const enum qm_hyper_bin bins[] = {QM_HYPER_BIN_zero,     QM_HYPER_BIN_one,
                                             QM_HYPER_BIN_ordinary, QM_HYPER_BIN_ordinary,
                                             QM_HYPER_BIN_tiny,     QM_HYPER_BIN_large};
    static const enum qm_part parts[] = {QM_PART_second, QM_PART_group, QM_PART_warm,
                                         QM_PART_schedule};
    enum { BINS = sizeof bins / sizeof *bins };
    int from = (int)qm_domain_below(s, QM_HYPERS);
    int projects = (int)(d->reads >> QM_HYPER_rank & 1); /* to the own rank: slow */
    int forced = projects ? !qm_domain_one_in(s, 8) : qm_domain_one_in(s, 2);
    struct qm_case c = {.forced = forced, .kind = kind, .shape = crossed_shape(d, s, forced)};
    for (int i = 0; i < QM_HYPERS; i++) {
        int k = (from + i) % QM_HYPERS;
        enum qm_hyper_bin bin = bins[qm_domain_below(s, BINS)];
        if (k == QM_HYPER_lr && !qm_domain_one_in(s, 4)) /* others show in an update of its size */
            bin = QM_HYPER_BIN_ordinary;
        if (qm_domain_one_in(s, 2))
            qm_domain_give(d, k, bin, qm_domain_word(s), &c);
    }
    c.t = t ? t : first_step(s);
    qm_domain_bound_step(d, PROJECTIONS, &c);
    if (c.t >= LONG_RUN && qm_domain_one_in(s, 2))
        remember(d, s, &c);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        c.part |= qm_domain_one_in(s, 8) && (parts[i] != QM_PART_schedule || d->can_schedule)
                      ? 1u << parts[i]
                      : 0;
    c.part |= qm_domain_one_in(s, 12) ? 1u << QM_PART_podd : 0;
    c.part |= qm_domain_one_in(s, 2) ? 1u << QM_PART_godd : 0; /* after two ordinary steps */
    if (qm_domain_one_in(s, 4)) {
        c.powered |= 1u << QM_POWER_s;
        c.power[QM_POWER_s] = (int)between(s, -20, 4);
        c.part |= qm_domain_one_in(s, 3) ? 1u << QM_PART_sodd : 0;
    }
    return c;
}

/* Each hyper-parameter that the rule reads is off its own value with probability 1/2, at any kind
 * of value; of some such candidates the one is taken in which most have an effect.  Every fourth
 * gets its gradients, after that choice, from a class that is no ordinary one. */
struct qm_case qm_crossed_case(const struct qm_domain *d, struct qm_domain_source *s,
                               int64_t number)
{
    static const enum qm_class ordinary[] = {QM_CLASS_normal, QM_CLASS_unit, QM_CLASS_planted,
                                             QM_CLASS_edges};
    static const enum qm_class other[] = {
        QM_CLASS_inf,         QM_CLASS_nan,      QM_CLASS_zeros, QM_CLASS_floors,
        QM_CLASS_signedzeros, QM_CLASS_denormal, QM_CLASS_huge,  QM_CLASS_inf,
        QM_CLASS_loguniform,  QM_CLASS_sparse,   QM_CLASS_small, QM_CLASS_constant,
        QM_CLASS_graded};
    enum { ORDINARY = sizeof ordinary / sizeof *ordinary, OTHER = sizeof other / sizeof *other };
    enum qm_class kind = ordinary[qm_domain_below(s, ORDINARY)];
    struct qm_case out = {.forced = 1};
    int projects = (int)(d->reads >> QM_HYPER_rank & 1);
    int best = -1, most = d->candidates == 0 ? 1 : projects ? 2 : CANDIDATES;
    int64_t t = number % 3 == 0 ? step_in_turn(number / 3 + (int64_t)(s->seed % 64)) : 0;
    for (int i = 0; i < most; i++) {
        struct qm_case c = crossed_candidate(d, s, kind, t);
        c.effects = d->candidates > 0 ? qm_case_effects(d, &c) : 0;
        int score = __builtin_popcountll(c.effects);
        if (score > best) {
            best = score;
            out = c;
        }
    }
    if (number % 4 == 3) {
        out.kind = other[number / 4 % OTHER];
        out.effects = 0; /* which were those of other gradients */
    }
    return out;
}

/* ---- the ends of formats --------------------------------------------------------------------- */

/* One block of the recipe's, or a little more or less, and some rows or columns of it: those are
 * blocks of factors. */
static struct qm_shape block_shape(const struct qm_domain *d, struct qm_domain_source *s)
{
    int64_t block = d->block[qm_domain_below(s, d->n_blocks)], few = between(s, 1, 4);
    int64_t n = qm_domain_one_in(s, 2) ? block : block + between(s, -4, 4);
    n = n < 1 ? 1 : n;
    if (qm_domain_one_in(s, 2))
        return (struct qm_shape){1, {n + block * qm_domain_below(s, 3)}};
    return qm_domain_one_in(s, 2) ? (struct qm_shape){2, {n, few}} : (struct qm_shape){2, {few, n}};
}

/* Gives the weights of averages; exact: 0 or 1/2, so that new states are the gradients, their
 * squares, or halves of sums. */
static void weigh(const struct qm_domain *d, struct qm_domain_source *s, int exact,
                  struct qm_case *c)
{
    static const int betas[] = {QM_HYPER_beta1, QM_HYPER_beta2, QM_HYPER_momentum};
    int is_half = exact && qm_domain_one_in(s, 3);
    for (int i = 0; i < 3; i++) {
        if (!exact && !qm_domain_one_in(s, 3))
            continue;
        int is_zero = exact || qm_domain_one_in(s, 2);
        qm_domain_give(d, betas[i], is_zero ? QM_HYPER_BIN_zero : QM_HYPER_BIN_ordinary,
                       qm_domain_word(s), c);
        if (is_half && c->given >> betas[i] & 1)
            c->hyper[betas[i]] = 0.5;
    }
    if (!exact && d->reads >> QM_HYPER_beta2 & 1 && qm_domain_one_in(s, 4))
        qm_domain_put(d, QM_HYPER_beta2, -1.0, c); /* which stands for rules of their own */
}

/* Whole blocks of states whose maxima lie around the smallest normal number and around the floors
 * of scales, with settings in which nothing larger hides them; or, with class edges, at the upper
 * ends of formats and on numbers whose averages and quotients are exact. */
static struct qm_case end_states(const struct qm_domain *d, struct qm_domain_source *s,
                                 enum qm_class kind)
{
    static const int floors[] = {QM_HYPER_eps, QM_HYPER_eps1, QM_HYPER_eps2};
    struct qm_case c = {.forced = 1, .kind = kind, .t = first_step(s), .shape = block_shape(d, s)};
    if (!qm_domain_one_in(s, 4))
        qm_domain_give(d, QM_HYPER_weight_decay, QM_HYPER_BIN_zero, 0, &c);
    for (int i = 0; i < 3 && kind == QM_CLASS_floors; i++) {
        int64_t which = qm_domain_below(s, 4);
        qm_domain_give(d, floors[i],
                       which < 2    ? QM_HYPER_BIN_zero
                       : which == 2 ? QM_HYPER_BIN_tiny
                                    : QM_HYPER_BIN_own,
                       qm_domain_word(s), &c);
    }
    weigh(d, s, kind == QM_CLASS_edges, &c);
    if (kind == QM_CLASS_floors && qm_domain_one_in(s, 2)) {
        c.powered |= 1u << QM_POWER_s;
        c.power[QM_POWER_s] =
            (int)(qm_domain_one_in(s, 3) ? between(s, -76, -58) : between(s, -150, -110));
    }
    if (qm_domain_one_in(s, 3))
        c.part |= 1u << QM_PART_pzero;
    return c;
}

/* Parameters at the lower end of their format, which only a decay moves. */
static int low_parameters(const struct qm_domain *d, struct qm_domain_source *s, struct qm_case *c)
{
    static const struct {
        int from, to; /* powers of two */
    } ends[] = {[QM_PARAM_f32] = {-149, -124},
                [QM_PARAM_bf16] = {-136, -120},
                [QM_PARAM_f16] = {-26, -10},
                [QM_PARAM_e4m3] = {-11, -3}};
    const uint64_t both = (uint64_t)1 << QM_HYPER_lr | (uint64_t)1 << QM_HYPER_weight_decay;
    enum qm_param_format format = d->recipe.param.format;
    if ((d->reads & both) != both)
        return 0;
    struct qm_case to = {.forced = 1,
                         .kind = qm_domain_one_in(s, 2) ? QM_CLASS_zeros : QM_CLASS_signedzeros,
                         .t = first_step(s),
                         .shape = {1, {between(s, 1, 700)}},
                         .given = both,
                         .powered = 1u << QM_POWER_p};
    to.power[QM_POWER_p] = (int)between(s, ends[format].from, ends[format].to);
    to.hyper[QM_HYPER_lr] = ldexp(1.0, -(int)qm_domain_below(s, 4));
    to.hyper[QM_HYPER_weight_decay] = qm_domain_one_in(s, 2)
                                          ? ldexp(1.0, -2 - (int)qm_domain_below(s, 4))
                                          : 0.01 * (double)between(s, 1, 60);
    if (d->recipe.param.write == QM_WRITE_stoch && qm_domain_one_in(s, 2)) {
        /* Steps of less than half a spacing, which rounding to nearest never takes; so many that
         * their draws have a variance to judge (draws.h). */
        to.shape.dim[0] = between(s, 5000, 6000);
        to.power[QM_POWER_p] = (int)between(s, ends[format].from, ends[format].from + 8);
        to.hyper[QM_HYPER_lr] = 1.0;
        to.hyper[QM_HYPER_weight_decay] = ldexp(1.0, -9 - (int)qm_domain_below(s, 3));
    }
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

struct qm_case qm_small_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t number)
{
    struct qm_case c;
    if (number % 4 == 1)
        return end_states(d, s, number % 8 == 1 ? QM_CLASS_floors : QM_CLASS_edges);
    if (number % 16 == 3 && low_parameters(d, s, &c))
        return c;
    if (number % 24 == 11 && qm_late_flags(d, s, &c))
        return c;
    if (number % 4 == 2)
        return qm_extreme_case(d, s, number / 4);
    if (number % 8 == 0)
        return qm_corner_case(d, s, number / 8);
    return qm_crossed_case(d, s,
                           number - (number + 2) / 4 - (number + 1) / 4); /* those before it */
}
