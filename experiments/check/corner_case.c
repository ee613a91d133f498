/* corner_case.c - Draws small cases at corners of the domain: two hyper-parameters or more at
 * special values at once, all others at their own.
 *
 * One candidate in four draws every flag and its rates as well (give_modes).
 *
 * What a kernel does where a weight is 0 or 1 and a floor is 0 shows in no case that has one of
 * them alone, and in none where an unusual third number hides both. */
#include <math.h>

#include "experiments/check/domain_source.h"
#include "experiments/check/effect.h"

enum { CANDIDATES = 4, STRIDE = 7919 /* a prime above the number of pairs */ };

/* A hyper-parameter and the special value that it gets. */
struct special {
    int k;
    enum qm_hyper_bin bin;
};

/* Special value number `at` of the rule, in turn: a flag's other value, a number's 0, 1 and a tiny
 * one.  Returns how many there are; at < 0: only that. */
static int special_at(const struct qm_domain *d, int at, struct special *out)
{
    static const enum qm_hyper_bin bins[] = {QM_HYPER_BIN_zero, QM_HYPER_BIN_one,
                                             QM_HYPER_BIN_tiny};
    int n = 0;
    for (int k = 0; k < QM_HYPERS; k++) {
        int own = !(d->reads >> k & 1) ? 0 : qm_hyper_is_flag(k) ? 1 : 3;
        if (at >= n && at < n + own)
            *out = (struct special){k, bins[at - n]};
        n += own;
    }
    return n;
}

/* Pair number `turn` of special values, each pair once before any comes again. */
static void pair_at(const struct qm_domain *d, uint64_t turn, struct special pair[2])
{
    int n = special_at(d, -1, NULL), first = 0;
    pair[0] = pair[1] = (struct special){0, QM_HYPER_BIN_own};
    if (n < 2)
        return;
    int64_t at = (int64_t)(turn * STRIDE % ((uint64_t)n * (uint64_t)(n - 1) / 2));
    for (; at >= n - 1 - first; first++)
        at -= n - 1 - first;
    special_at(d, first, &pair[0]);
    special_at(d, first + 1 + (int)at, &pair[1]);
}

/* Gives beta2, and some other weights of averages, values 1 - 2^-k, where the
 * corrections of the first steps are differences of nearly equal numbers. */
static void domain_near_one(const struct qm_domain *d, struct qm_domain_source *s,
                            struct qm_case *c)
{
    static const int betas[] = {QM_HYPER_beta1, QM_HYPER_beta2, QM_HYPER_beta3, QM_HYPER_momentum};
    enum { LEAST = 5, MOST = 30 };
    for (int i = 0; i < 4; i++) {
        int power = LEAST + (int)qm_domain_below(s, MOST - LEAST + 1),
            is_left = betas[i] == QM_HYPER_beta2 ? 0 : qm_domain_one_in(s, 2);
        if (d->reads >> betas[i] & 1 && !is_left)
            qm_domain_put(d, betas[i], 1.0 - ldexp(1.0, -power), c);
    }
}

/* Draws every flag, and rates that are large enough to show.  Which number a rule takes for its
 * rate or its decay may hang on several flags at once, and shows only where both numbers are away
 * from their own and from 0. */
static void give_modes(const struct qm_domain *d, struct qm_domain_source *s, struct qm_case *c)
{
    static const int rates[] = {QM_HYPER_lr, QM_HYPER_weight_decay};
    for (int k = 0; k < QM_HYPERS; k++)
        if (qm_hyper_is_flag(k) && d->reads >> k & 1 && qm_domain_one_in(s, 2))
            qm_domain_put(d, k, (double)qm_domain_below(s, 2), c);
    for (int i = 0; i < 2; i++) {
        enum qm_hyper_bin bin = qm_domain_one_in(s, 2) ? QM_HYPER_BIN_one : QM_HYPER_BIN_ordinary;
        qm_domain_give(d, rates[i], bin, qm_domain_word(s), c);
    }
}

/* Gradients of ordinary sizes, at floors, or so small that squares are denormal. */
static void give_gradients(struct qm_domain_source *s, struct qm_case *c)
{
    static const enum qm_class kinds[] = {QM_CLASS_normal, QM_CLASS_normal, QM_CLASS_unit,
                                          QM_CLASS_sparse, QM_CLASS_floors, QM_CLASS_edges};
    enum { KINDS = sizeof kinds / sizeof *kinds, SQUARE = -63, WIDE = 12 };
    c->kind = kinds[qm_domain_below(s, KINDS)];
    if (c->kind == QM_CLASS_normal && qm_domain_one_in(s, 2)) {
        c->powered |= 1u << QM_POWER_g;
        c->power[QM_POWER_g] = SQUARE - WIDE + (int)qm_domain_below(s, 2 * WIDE + 1);
    }
}

static struct qm_case candidate(const struct qm_domain *d, struct qm_domain_source *s,
                                const struct special pair[2])
{
    enum { PROJECTIONS = 6, FEW_STEPS = 10, LAST_STEP = 1 << 12, SMALLEST = -40 };
    int n = special_at(d, -1, NULL), is_deep = qm_domain_one_in(s, 8);
    int rank = is_deep ? QM_MAX_RANK - (int)qm_domain_below(s, 3) : 1 + (int)qm_domain_below(s, 3);
    struct qm_case c = {.forced = !qm_domain_one_in(s, 4), .shape = {rank, {0}}};
    struct special third = {0, QM_HYPER_BIN_own};
    for (int a = 0; a < rank; a++)
        c.shape.dim[a] = is_deep        ? 1 + !qm_domain_one_in(s, 4)
                         : a < rank - 2 ? 1 + qm_domain_below(s, 3)
                                        : 1 + qm_domain_log_uniform(s, rank == 1 ? 600 : 24);
    if (!is_deep && rank > 1 && qm_domain_one_in(s, 6))
        qm_domain_equal_sides(s, 2 + qm_domain_log_uniform(s, rank == 2 ? 24 : 8), &c.shape);
    give_gradients(s, &c);
    c.t = qm_domain_one_in(s, 2)   ? 1
          : qm_domain_one_in(s, 2) ? 1 + qm_domain_below(s, FEW_STEPS)
                                   : qm_domain_log_uniform(s, LAST_STEP);
    for (int i = 0; i < 2; i++)
        qm_domain_give(d, pair[i].k, pair[i].bin, qm_domain_word(s), &c);
    if (n > 0 && qm_domain_one_in(s, 2)) {
        special_at(d, (int)qm_domain_below(s, n), &third);
        if (third.k != pair[0].k && third.k != pair[1].k)
            qm_domain_give(d, third.k, third.bin, qm_domain_word(s), &c);
    }
    if (qm_domain_one_in(s, 4)) {
        c.t = 1 + qm_domain_below(s, FEW_STEPS);
        domain_near_one(d, s, &c);
    }
    if (qm_domain_one_in(s, 4))
        give_modes(d, s, &c);
    qm_domain_bound_step(d, PROJECTIONS, &c);
    if (qm_domain_one_in(s, 4)) {
        c.powered |= 1u << QM_POWER_s;
        c.power[QM_POWER_s] = SMALLEST + (int)qm_domain_below(s, 1 - SMALLEST);
    }
    c.part |= qm_domain_one_in(s, 6) ? 1u << QM_PART_pzero : 0;
    return c;
}

/* Gives every second case numbers that are not finite, in turn among the parameters, the loaded
 * states and the first gradients, or in several of them: 0 times Inf is NaN, unless a kernel leaves
 * out what is 0. */
static void give_odd(struct qm_domain_source *s, int64_t number, struct qm_case *c)
{
    static const enum qm_part parts[] = {QM_PART_podd, QM_PART_sodd, QM_PART_gfirst};
    enum { PARTS = sizeof parts / sizeof *parts };
    for (int k = 0; k < PARTS && number % 2; k++)
        if (number / 2 % PARTS == k || qm_domain_one_in(s, 2 * PARTS))
            c->part |= 1u << parts[k];
    if (qm_case_takes(c, QM_PART_sodd) && !qm_case_loads(c)) {
        c->powered |= 1u << QM_POWER_s;
        c->power[QM_POWER_s] = -(int)qm_domain_below(s, 8);
    }
    if (number % 2)
        c->effects = 0; /* which were those of other numbers */
}

struct qm_case qm_corner_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t number)
{
    struct special pair[2];
    struct qm_case out = {.forced = 1};
    int best = -1, most = d->candidates == 0 ? 1 : qm_domain_may_project(d) ? 2 : CANDIDATES;
    pair_at(d, (uint64_t)number + s->seed % 65536, pair);
    for (int i = 0; i < most; i++) {
        struct qm_case c = candidate(d, s, pair);
        c.effects = d->candidates > 0 ? qm_case_effects(d, &c) : 0;
        int score = __builtin_popcountll(c.effects);
        for (int k = 0; k < 2; k++)
            score += c.effects >> pair[k].k & 1 ? QM_HYPERS : 0;
        if (score > best) {
            best = score;
            out = c;
        }
    }
    give_odd(s, number, &out);
    return out;
}
