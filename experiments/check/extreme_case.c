/* extreme_case.c - Draws cases in which one hyper-parameter is as small or as large as it can be
 * while another one still has an effect.
 *
 * A decay shows beside a tiny rate only where it is large itself, an epsilon beside tiny gradients.
 * What a kernel leaves out below or above some value of a hyper-parameter shows in such a case, at
 * any threshold. */
#include <math.h>

#include "experiments/check/domain_source.h"
#include "experiments/check/effect.h"

/* ROUNDS: changes tried.  SLOW_ROUNDS: where the oracle's step is no loop over elements;
 * PROJECTED_ROUNDS: where it draws projections. */
enum { ROUNDS = 200, SLOW_ROUNDS = 100, PROJECTED_ROUNDS = 24, PROJECTIONS = 6 };

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

/* Pairs in turn.  Of five cases two have one hyper-parameter twice, one the rate, which scales what
 * all others do, and two any two that the rule reads, of which the first is no flag. */
static struct pair pair_at(const struct qm_domain *d, int64_t number)
{
    static const int kind[] = {0, 1, 2, 0, 2}, before[] = {0, 0, 0, 1, 1}, of[] = {2, 1, 2};
    uint64_t scales = d->reads;
    for (int k = 0; k < QM_HYPERS; k++)
        if (qm_hyper_is_flag(k))
            scales &= ~((uint64_t)1 << k);
    int64_t n = __builtin_popcountll(scales), all = __builtin_popcountll(d->reads);
    int which = kind[number % 5], is_up;
    int64_t turn = number / 5 * of[which] + before[number % 5];
    is_up = (int)(turn % 2);
    turn /= 2;
    if (n == 0)
        return (struct pair){0, 0, 0};
    if (which == 1 && d->reads >> QM_HYPER_lr & 1)
        return (struct pair){QM_HYPER_lr, nth(d->reads, turn % all), is_up};
    int64_t at = turn % n, round = which == 0 ? 0 : 1 + turn / n;
    return (struct pair){nth(scales, at), nth(d->reads, (at + round) % all), is_up};
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

/* 1: setting hyper-parameter k switches something, which kernels may refuse. */
static int switches(const struct qm_domain *d, int k)
{
    return qm_hyper_is_flag(k) || qm_hyper_get(&d->recipe.hyper, k) == 0.0;
}

/* Changes something else than the extreme hyper-parameter, once there is an effect: another, often
 * the other one, the size of parameters or gradients, the step. */
static void change(const struct qm_domain *d, struct qm_domain_source *s, const struct pair *which,
                   int has_effect, int is_narrow, struct qm_case *c)
{
    enum { LAST_STEP = 1 << 11 }; /* an oracle may count through the steps before */
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
    else if ((k != which->extreme || !has_effect) &&
             (!is_narrow || k == which->other || !switches(d, k)))
        qm_domain_give(d, k, bin, qm_domain_word(s), c);
    qm_domain_bound_step(d, PROJECTIONS, c);
}

struct qm_case qm_extreme_case(const struct qm_domain *d, struct qm_domain_source *s,
                               int64_t number)
{
    struct pair which = pair_at(d, number + (int64_t)(s->seed % 1024));
    int is_slow = !d->recipe.rule->elementwise;
    int rounds = d->candidates == 0         ? 0
                 : qm_domain_may_project(d) ? PROJECTED_ROUNDS
                 : is_slow                  ? SLOW_ROUNDS
                                            : ROUNDS;
    struct qm_case c = {.forced = 1, .kind = QM_CLASS_normal, .t = between(s, 1, 30)};
    int best = 0, further = 3 * rounds / 4; /* then as many others as possible get an effect */
    int is_narrow = number / 2 % 2; /* but in every second case nothing is switched on or off */
    c.shape = qm_domain_cut(s, between(s, 24, 600), (int)between(s, 1, 3));
    for (int i = 0; i < rounds; i++) {
        struct qm_recipe r = d->recipe;
        struct qm_case to = c;
        int is_wide = i >= further && !is_narrow, is_put = 0;
        qm_case_apply(&c, &r);
        double now = qm_hyper_get(&r.hyper, which.extreme);
        double beyond = qm_hyper_beyond(which.extreme, which.is_up, now, qm_domain_word(s));
        if (best > 0 && i % 2 && !is_wide)
            is_put = qm_domain_put(d, which.extreme, beyond, &to);
        if (!is_put || qm_domain_one_in(s, 3))
            change(d, s, &which, best > 0, is_narrow, &to);
        int found = score(d, &to, &which, is_wide);
        if (found >= best) {
            c = to;
            best = found;
        }
    }
    c.effects = d->candidates > 0 ? qm_case_effects(d, &c) : 0;
    return c;
}
