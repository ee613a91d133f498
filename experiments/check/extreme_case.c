/* extreme_case.c - Draws cases in which one hyper-parameter is as small or as large as leaves
 * another an effect.
 *
 * A decay shows beside a tiny rate only where it is large itself, an epsilon beside tiny gradients.
 * What a kernel leaves out below or above some value of a hyper-parameter shows in such a case, at
 * any threshold. */
#include <math.h>

#include "experiments/check/domain_source.h"
#include "experiments/check/effect.h"

/* ROUNDS: changes tried.  PROJECTED_ROUNDS: where the oracle draws projections. */
enum { ROUNDS = 200, PROJECTED_ROUNDS = 100, PROJECTIONS = 6 };

/* Which hyper-parameter becomes extreme, in which direction, and which keeps its effect. */
struct pair {
    int extreme, other, is_up;
};

/* Hyper-parameter number `at` of those in `of`. */
static int nth(uint64_t of, int64_t at)
{
    for (; at > 0; at--)
        of &= of - 1;
    return of ? __builtin_ctzll(of) : 0;
}

/* Pairs in turn: any two that the rule reads, of which the first is no flag, and in two of five
 * cases one twice. */
static struct pair pair_at(const struct qm_domain *d, int64_t number)
{
    uint64_t scales = d->reads;
    for (int k = 0; k < QM_HYPERS; k++)
        if (qm_hyper_is_flag(k))
            scales &= ~((uint64_t)1 << k);
    int64_t n = __builtin_popcountll(scales), all = __builtin_popcountll(d->reads);
    int64_t step = number / 5, part = number % 5, is_one = part < 2;
    int64_t turn = is_one ? 2 * step + part : 3 * step + part - 2;
    int64_t at = n ? turn / 2 % n : 0, round = is_one || !n ? 0 : 1 + turn / 2 / n;
    return (struct pair){nth(scales, at), nth(d->reads, all ? (at + round) % all : 0),
                         (int)(turn % 2)};
}

/* 0: the other hyper-parameter has no effect; else 1, or with is_wide, how many have one. */
static int score(const struct qm_domain *d, const struct qm_case *c, const struct pair *which,
                 int is_wide)
{
    uint64_t bit = (uint64_t)1 << which->other;
    uint64_t found = qm_case_drops(d, c, is_wide ? d->reads : bit);
    return found & bit ? __builtin_popcountll(found) : 0;
}

static int64_t between(struct qm_domain_source *s, int64_t from, int64_t to)
{
    return from + qm_domain_below(s, to - from + 1);
}

static void give_power(struct qm_domain_source *s, enum qm_power k, int from, int to,
                       struct qm_case *c)
{
    c->powered |= 1u << k;
    c->power[k] = (int)between(s, from, to);
}

/* Changes something else than the extreme hyper-parameter, once there is an effect: another, often
 * the other one, the size of parameters or gradients, the step. */
static void change(const struct qm_domain *d, struct qm_domain_source *s, const struct pair *which,
                   int has_effect, struct qm_case *c)
{
    enum { LAST_STEP = 1 << 20 };
    int64_t what = qm_domain_below(s, 8), n = __builtin_popcountll(d->reads);
    int k = what < 2 ? which->other : nth(d->reads, qm_domain_below(s, n ? n : 1));
    enum qm_hyper_bin bin =
        (enum qm_hyper_bin)(QM_HYPER_BIN_zero + qm_domain_below(s, QM_HYPER_BINS - 1));
    if (what == 5)
        give_power(s, QM_POWER_p, -40, 20, c);
    else if (what == 6)
        give_power(s, QM_POWER_g, -60, 20, c);
    else if (what == 7)
        c->t = qm_domain_log_uniform(s, LAST_STEP);
    else if (k != which->extreme || !has_effect)
        qm_domain_give(d, k, bin, qm_domain_word(s), c);
    qm_domain_bound_step(d, PROJECTIONS, c);
}

struct qm_case qm_extreme_case(const struct qm_domain *d, struct qm_domain_source *s,
                               int64_t number)
{
    struct pair which = pair_at(d, number + (int64_t)(s->seed % 1024));
    int rounds = d->candidates == 0          ? 0
                 : qm_domain_is_projected(d) ? PROJECTED_ROUNDS
                                             : ROUNDS;
    struct qm_case c = {.forced = 1, .kind = QM_CLASS_normal, .t = between(s, 1, 30)};
    int best = 0, further = 3 * rounds / 4; /* then as many others as possible get an effect */
    c.shape = qm_domain_cut(s, between(s, 24, 600), (int)between(s, 1, 3));
    for (int i = 0; i < rounds; i++) {
        struct qm_recipe r = d->recipe;
        struct qm_case to = c;
        int is_wide = i >= further, is_put = 0;
        qm_case_apply(&c, &r);
        double now = qm_hyper_get(&r.hyper, which.extreme);
        double beyond = qm_hyper_beyond(which.extreme, which.is_up, now, qm_domain_word(s));
        if (best > 0 && i % 2 && !is_wide)
            is_put = qm_domain_put(d, which.extreme, beyond, &to);
        if (!is_put || qm_domain_one_in(s, 3))
            change(d, s, &which, best > 0, &to);
        int found = score(d, &to, &which, is_wide);
        if (found >= best) {
            c = to;
            best = found;
        }
    }
    c.effects = d->candidates > 0 ? qm_case_effects(d, &c) : 0;
    return c;
}
