/* run.c - Compares the CPU backend with a recorded optimizer run. */
#include "experiments/conform/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/conform/code_edges.h"

/* Row of the kept step t, or -1. */
static int64_t kept_row(const struct qm_run *run, int64_t t)
{
    for (int64_t k = 0; k < run->n_kept; k++)
        if (run->kept[k] == t)
            return k;
    return -1;
}

/* Elements of a slot that was recorded after every step, from its own shape. */
static int64_t own_numel(const struct qm_run *run, int i)
{
    struct qm_shape own;
    qm_rule_slot_shape(run->recipe.rule, &run->recipe.hyper, i, &run->shape, &own);
    return qm_shape_numel(&own);
}

/* Buffers of one step.  beside: plans that step at other rates, and their parameters. */
struct scratch {
    int64_t numel, most_scales;
    float *p, *values;
    void *stored; /* the parameter as the recipe stores it */
    uint8_t *codes;
    double *allowed; /* of each element */
    void *beside[2];
    float *low, *high, *before;
    double *moved; /* how far each parameter went since it was last recorded */
    struct qm_run_numbers numbers;
    int64_t zero; /* 1 + a parameter that the source made 0 of a NaN; 0: none */
};

/* Loads the recorded state after step t into the plan. */
static qm_status state_load(const struct qm_run *run, struct scratch *s, void *plan, int64_t t)
{
    int64_t n = s->numel, row = kept_row(run, t);
    for (int i = 0; i < run->recipe.rule->n_slots; i++) {
        const struct qm_run_slot *slot = &run->slot[i];
        if (slot->codes) {
            for (int64_t k = 0; k < n; k++)
                s->codes[k] = (uint8_t)slot->codes[(t - 1) * n + k];
            QM_TRY(qm_backend_cpu.load(plan, i, s->codes, slot->scales + (t - 1) * slot->n_scales));
        } else if (slot->values && slot->every_step) {
            QM_TRY(qm_backend_cpu.load(plan, i, NULL, slot->values + (t - 1) * own_numel(run, i)));
        } else if (slot->values && row >= 0) {
            QM_TRY(qm_backend_cpu.load(plan, i, NULL, slot->values + row * n));
        }
    }
    if (row >= 0)
        memcpy(s->p, run->params + row * n, (size_t)n * sizeof *s->p);
    return QM_OK;
}

/* The size of a finite number; 0 of others, of which an allowance would be no number. */
static double size_of(float x) { return isfinite(x) ? fabs((double)x) : 0.0; }

/* Half of bfloat16's least number, which a rounding of a subnormal number is off by. */
static const double half_of_least = 0x1p-134;

/* The error of the L2 term of gradient k in the step of a row; *sum: the size of both together. */
static double l2_off(const struct qm_run *run, int64_t row, int64_t n, int64_t k, double *sum)
{
    const struct qm_hyper *h = &run->recipe.hyper;
    double p = (double)(row > 0 ? run->params[(row - 1) * n + k] : run->p0[k]);
    double g = (double)run->grads[(run->kept[row] - 1) * n + k];
    double term = run->within.l2_relative > 0.0 ? h->weight_decay * p : 0.0;
    *sum = fabs((h->maximize ? -g : g) + term);
    return term == 0.0 ? 0.0 : run->within.l2_relative * fabs(term) + 2.0 * half_of_least;
}

/* What the error of the L2 term in gradient k allows float32 state i to be off by in the step of
 * a row.  A quotient has the error of its root besides, where that is one of counts of the least
 * number or of an L2 term; without eps it may be any where nothing of the root is certain. */
static double of_l2(const struct qm_run *run, int i, int64_t row, int64_t n, int64_t k)
{
    const struct qm_run_tolerance *w = &run->within;
    double sum, off = l2_off(run, row, n, k, &sum);
    if (w->l2_relative == 0.0 || i > 2 || w->takes[i] == QM_TAKES_NOTHING)
        return 0.0;
    if (w->takes[i] == QM_TAKES_SQUARE)
        off *= 2.0 * sum + off;
    if (w->takes[i] == QM_TAKES_QUOTIENT) {
        double v = size_of(run->slot[0].values[row * n + k]), eps = run->recipe.hyper.eps;
        double of_v = w->value_absolute + of_l2(run, 0, row, n, k), most = sqrt(v + of_v) + eps,
               least = sqrt(fmax(v - of_v, 0.0)) + fmax(eps - half_of_least, 0.0);
        if (!(least > 0.0)) /* 0 / 0 too */
            return HUGE_VAL;
        off = off / least + sum * (1.0 / least - 1.0 / most);
    }
    return isfinite(off) ? w->weight[i] * off : 0.0;
}

/* What state i of element k may be off by in the step of a row, whose number is in slot i: a share
 * of the larger of its old and its new value, or of a state that takes in a quotient of 5/4 of
 * their sum, for that is up to as large as both and may cancel the old value.  5/4: in bfloat16,
 * u = 2^-8, a quotient is 3 u off (its average of squares 2 u, of which the root has half, the
 * root, the sum with eps), its sum with the old value u, and the one here u; others have 4 u. */
static double state_off(const struct qm_run *run, int i, int64_t row, int64_t n, int64_t k)
{
    const struct qm_run_tolerance *w = &run->within;
    const float *x = run->slot[i].values;
    double now = size_of(x[row * n + k]), before = row > 0 ? size_of(x[(row - 1) * n + k]) : 0.0;
    int is_quotient = i < 3 && w->takes[i] == QM_TAKES_QUOTIENT;
    double of = is_quotient ? 1.25 * (before + now) : fmax(before, now);
    return w->value_absolute + (i < w->value_from ? 0.0 : w->value_relative) * of +
           of_l2(run, i, row, n, k);
}

/* A float32 state: allowed is a share of the tensor's largest value besides. */
static void judge_values(struct qm_conform *c, const struct qm_run *run, struct scratch *s, int i,
                         int64_t row, const char *what)
{
    const struct qm_run_slot *slot = &run->slot[i];
    const float *want = slot->values + row * s->numel;
    double of_largest = run->within.value_largest * qm_match_largest(want, s->numel);
    for (int64_t k = 0; k < s->numel; k++) {
        s->allowed[k] = of_largest + state_off(run, i, row, s->numel, k);
        if (s->values[k] == 0.0f && qm_run_is_still(run, row, s->numel, k))
            s->allowed[k] = 0.0;
    }
    qm_match_close_each(c, what, s->values, want, s->allowed, s->numel);
}

/* What the errors of a state allow parameter k to be off by in the step of a row.  Only a step
 * along the sign of a sum has 2 lr, and not where both terms are 0: that sum has no error. */
static double of_values(const struct qm_run *run, const struct scratch *s, int64_t row, int64_t k)
{
    const struct qm_run_tolerance *w = &run->within;
    const struct qm_hyper *h = &run->recipe.hyper;
    const float *x = run->slot[w->slot].values;
    int64_t t = run->kept[row], at = row * s->numel + k;
    double lr = run->lr ? run->lr[t - 1] : h->lr, raw;
    if (!x && w->param_of_values > 0.0) /* SGD without momentum */
        return fabs(lr) * l2_off(run, row, s->numel, k, &raw);
    if (!x || (w->param_of_values == 0.0 && w->sign_relative == 0.0))
        return 0.0;
    double old = row > 0 ? size_of(x[at - s->numel]) : 0.0;
    double sum, off = w->param_of_values * fabs(lr) * (old + size_of(x[at]));
    if (w->param_of_values > 0.0) /* Nesterov's step has the gradient itself besides */
        off += fabs(lr) * (of_l2(run, w->slot, row, s->numel, k) +
                           (h->nesterov ? l2_off(run, row, s->numel, k, &sum) : 0.0));
    double before = row > 0 ? (double)x[at - s->numel] : 0.0,
           g = (double)run->grads[(t - 1) * s->numel + k];
    double kept = h->beta1 * before, taken = (1.0 - h->beta1) * (h->maximize ? -g : g);
    int is_open =
        fabs(kept + taken) <= w->sign_relative * (fabs(kept) + fabs(taken)) + w->value_absolute;
    int has_sign = w->sign_relative > 0.0 && (kept != 0.0 || taken != 0.0);
    return off + (has_sign && is_open ? 2.0 * fabs(lr) : 0.0);
}

/* The size of the step here, where the record of a narrow run, whose states have the parameter's
 * shape, has an infinite one that is finite in float32. */
static double of_infinite(const struct qm_run *run, const struct scratch *s, int64_t row, int64_t k)
{
    int64_t t = run->kept[row], at = row * s->numel + k;
    float old = row > 0 ? run->params[at - s->numel] : run->p0[k];
    int is_infinite = 0;
    for (int i = 0; i < run->recipe.rule->n_slots && run->within.is_narrow; i++)
        is_infinite |= run->slot[i].values && isinf(run->slot[i].values[at]);
    return is_infinite && isfinite(run->grads[(t - 1) * s->numel + k]) ? size_of(s->p[k] - old)
                                                                       : 0.0;
}

/* The size of the step that parameter k takes here in a row, whatever the decay took off it. */
static double step_of(const struct qm_run *run, const struct scratch *s, int64_t row, int64_t k)
{
    const struct qm_hyper *h = &run->recipe.hyper;
    float old = row > 0 ? run->params[(row - 1) * s->numel + k] : run->p0[k];
    double lr = run->lr ? run->lr[run->kept[row] - 1] : h->lr;
    return qm_match_step((double)(s->p[k] - old),
                         run->within.is_decoupled ? lr * h->weight_decay : 0.0, (double)old);
}

/* NAdam steps by its moment and by its gradient: the sizes of both parts, which may cancel. */
static double parts_of(const struct qm_run *run, const struct scratch *s, int64_t row, int64_t k)
{
    const struct qm_hyper *h = &run->recipe.hyper;
    int64_t t = run->kept[row], n = s->numel;
    double lr = fabs(run->lr ? run->lr[t - 1] : h->lr), product = 1.0, mu = 0.0, next;
    for (int64_t i = 1; i <= t; i++)
        product *= mu = h->beta1 * (1.0 - 0.5 * pow(0.96, (double)i * h->momentum_decay));
    next = h->beta1 * (1.0 - 0.5 * pow(0.96, (double)(t + 1) * h->momentum_decay));
    double v = size_of(run->slot[1].values[row * n + k]) / (1.0 - pow(h->beta2, (double)t));
    double p = size_of(row > 0 ? run->params[(row - 1) * n + k] : run->p0[k]);
    double g = size_of(run->grads[(t - 1) * n + k]) +
               (run->within.is_decoupled ? 0.0 : h->weight_decay * p);
    double m = size_of(run->slot[0].values[row * n + k]);
    return lr / (sqrt(v) + h->eps) *
           (g * (1.0 - mu) / (1.0 - product) + m * next / (1.0 - product * next));
}

/* What a step multiplies the root of the second moment by: 1 / sqrt(1 - beta2^t), but in RAdam, and
 * where the step goes along the gradient itself, 1. */
static double correction_of(const struct qm_run *run, int64_t row)
{
    double left = 1.0 - pow(run->recipe.hyper.beta2, (double)run->kept[row]);
    int has_none =
        run->within.takes[0] != QM_TAKES_MEAN || strncmp(run->recipe.rule->name, "radam", 5) == 0;
    return has_none || !(left > 0.0) ? 1.0 : 1.0 / sqrt(left);
}

/* Whether the step is divided by the second moment's root: RAdam's only once it is rectified. */
static int is_divided(const struct qm_run *run, int64_t t)
{
    double b2 = run->recipe.hyper.beta2, power = pow(b2, (double)t), most = 2.0 / (1.0 - b2) - 1.0;
    return strncmp(run->recipe.rule->name, "radam", 5) != 0 ||
           most - 2.0 * (double)t * power / (1.0 - power) > 5.0;
}

/* What the step of parameter k is per unit of its moment and, in of_g, of its gradient: of a rule
 * that averages none, lr / (sqrt(v) + eps) of that; of Adam lr / (1 - b1^t) over the corrected root
 * and eps, of RAdam at most that, of NAdam the factors of its two parts over it. */
static double rates_of(const struct qm_run *run, int64_t row, int64_t n, int64_t k, double *of_g)
{
    const struct qm_hyper *h = &run->recipe.hyper;
    int64_t t = run->kept[row];
    int has_average = run->within.takes[0] == QM_TAKES_MEAN;
    const float *v = run->slot[has_average ? 1 : 0].values;
    double rate = fabs(run->lr ? run->lr[t - 1] : h->lr), product = 1.0, mu = 0.0, next;
    if (v && is_divided(run, t))
        rate /= correction_of(run, row) * sqrt(size_of(v[row * n + k])) + h->eps;
    *of_g = has_average ? 0.0 : rate;
    if (!run->within.has_parts)
        return has_average ? rate / (1.0 - pow(h->beta1, (double)t)) : 0.0;
    for (int64_t i = 1; i <= t; i++)
        product *= mu = h->beta1 * (1.0 - 0.5 * pow(0.96, (double)i * h->momentum_decay));
    next = h->beta1 * (1.0 - 0.5 * pow(0.96, (double)(t + 1) * h->momentum_decay));
    *of_g = rate * (1.0 - mu) / (1.0 - product);
    return rate * next / (1.0 - product * next);
}

/* What the errors of the moment M, of the gradient G with its L2 term and of the second moment
 * allow parameter k to be off by.  The step is a M / R + b G / R, where R is root and eps (NAdam
 * has both terms, others one), and the source's M', G' and R' are each within their error of these:
 *
 *     |M'/R' - M/R| <= |M' - M| / R' + |M| / R |R/R' - 1| <= off / R' + share |M| / R
 *
 * where share is qm_match_root_share of the recorded v: R/R' is at least 1 / (1 + share), and at
 * most 1 + share, as 1 + x <= 1 / (1 - x).  a / R' and b / R' are rates_of, with a margin for the
 * roundings that form them; |M| / R, summed, is the step made here.  Where nothing of R is certain
 * and eps is 0 the share is infinite, and so is the bound.  Where the terms of a moment cancel to
 * less than its error the first term stays, however small the step that is made here. */
static double of_moment(const struct qm_run *run, const struct scratch *s, int64_t row, int64_t k)
{
    const struct qm_run_tolerance *w = &run->within;
    int64_t n = s->numel, t = run->kept[row];
    if (!w->has_moment || !run->slot[0].values)
        return 0.0;
    float old = row > 0 ? run->params[(row - 1) * n + k] : run->p0[k];
    int has_average = w->takes[0] == QM_TAKES_MEAN, second = has_average ? 1 : 0;
    double sum, rate_g,
        rate = rates_of(run, row, n, k, &rate_g), share = 0.0,
        of_g = l2_off(run, row, n, k, &sum) + w->value_absolute,
        m = has_average ? size_of(run->slot[0].values[row * n + k]) : sum,
        step = step_of(run, s, row, k) + (w->has_parts ? parts_of(run, s, row, k) : 0.0);
    if (w->takes[second] == QM_TAKES_SQUARE && run->slot[second].values && is_divided(run, t)) {
        double v = size_of(run->slot[second].values[row * n + k]);
        int is_still = m == 0.0 && run->grads[(t - 1) * n + k] == 0.0f;
        share = is_still ? 0.0
                         : qm_match_root_share(v, state_off(run, second, row, n, k),
                                               correction_of(run, row), run->recipe.hyper.eps);
    }
    if (share == HUGE_VAL)
        return share;
    double off = rate_g * of_g + (has_average ? rate * state_off(run, 0, row, n, k) : 0.0);
    return off * (1.0 + w->param_of_step) + share * (step + size_of(s->p[k] - old)) +
           (w->has_parts ? w->param_of_step * step : 0.0);
}

/* x in bfloat16: the nearest number, or the one of a draw of 16 bits, from 0; -1: there is none. */
static float narrow(double x, int64_t draw)
{
    float y = (float)x;
    return draw < 0 ? qm_bf16_to_float(qm_float_to_bf16(y))
                    : qm_param_widen(QM_PARAM_bf16,
                                     qm_param_stochastic(QM_PARAM_bf16, y, (uint32_t)draw << 16));
}

/* Rounds a parameter to bfloat16: to the wanted number where the numbers within `allowed` of the
 * parameter are rounded to it, to its neighbour, or both, which makes the case near.  Rounding is
 * monotone, for one draw too, so these lie between what the two ends are rounded to. */
static void round_param(struct qm_conform *c, float *p, float want, double allowed, int64_t draw,
                        const char *what, int64_t k)
{
    double x = (double)*p;
    *p = narrow(x, draw);
    if (*p == want || isnan(want) ||
        !(narrow(x - allowed, draw) <= want && want <= narrow(x + allowed, draw)))
        return;
    *p = want;
    if (c->now.outcome == QM_CONFORM_equal)
        snprintf(c->now.text, sizeof c->now.text, "%s[%lld]: next to %s", what, (long long)k,
                 draw < 0 ? "a tie" : "where its draw decides");
    if (qm_golden_case_open(c))
        c->now.outcome = QM_CONFORM_near;
}

/* What a parameter is off by where steps before this one were not recorded: their errors, and the
 * ulp in which each of them may have been rounded. */
static double of_gap(const struct qm_run *run, const struct scratch *s, int64_t row, int64_t k)
{
    int64_t gap = run->kept[row] - (row > 0 ? run->kept[row - 1] : 0);
    if (!s->moved || gap < 2)
        return 0.0;
    return run->within.beside * s->moved[k] +
           (double)gap * 0x1p-23 * size_of(run->params[row * s->numel + k]);
}

/* Takes a wanted parameter that lies between those of the rates beside: the case is near. */
static void take_between(struct qm_conform *c, struct scratch *s, int64_t k, float want,
                         const char *what)
{
    float a = s->low[k], b = s->high[k];
    if (s->p[k] == want || !((a <= want && want <= b) || (b <= want && want <= a)))
        return;
    if (c->now.outcome == QM_CONFORM_equal)
        snprintf(c->now.text, sizeof c->now.text, "%s[%lld]: within the error of the step", what,
                 (long long)k);
    s->p[k] = want;
    if (qm_golden_case_open(c))
        c->now.outcome = QM_CONFORM_near;
}

/* Where parameters are rounded here, steps that were not recorded may each be an ulp off, 2^-7. */
static void judge_param(struct qm_conform *c, const struct qm_run *run, struct scratch *s,
                        int64_t row, const char *what)
{
    const struct qm_run_tolerance *w = &run->within;
    const float *want = run->params + row * s->numel, *old = row > 0 ? want - s->numel : run->p0;
    if (s->zero && c->now.outcome == QM_CONFORM_equal)
        snprintf(c->now.text, sizeof c->now.text, "%s[%lld]: the source rounds a NaN to 0", what,
                 (long long)s->zero - 1);
    if (s->zero && qm_golden_case_open(c))
        c->now.outcome = QM_CONFORM_near;
    s->zero = 0;
    struct qm_match_seen seen = {0, 0, 0};
    for (int64_t k = 0; run->is_rounded && k < s->numel; k++) {
        const struct qm_hyper *h = &run->recipe.hyper;
        double lr = run->lr ? run->lr[run->kept[row] - 1] : h->lr;
        double step = qm_match_step((double)(s->p[k] - old[k]),
                                    w->is_decoupled ? lr * h->weight_decay : 0.0, (double)old[k]);
        int64_t unseen = run->kept[row] - (row > 0 ? run->kept[row - 1] : 0) - 1;
        double near = (w->param_relative + (double)unseen * 0x1p-7) * size_of(s->p[k]) +
                      w->param_absolute + w->param_of_step * step;
        near = s->p[k] == old[k] && qm_run_is_still(run, row, s->numel, k) ? 0.0 : near;
        int64_t draw = run->draws ? run->draws[(run->kept[row] - 1) * s->numel + k] : -1;
        qm_match_add_step(&seen, (double)narrow((double)s->p[k], draw), (double)want[k],
                          (double)old[k], near);
        round_param(c, &s->p[k], want[k], near, draw, what, k);
    }
    if (run->is_rounded) {
        qm_match_close(c, what, s->p, want, s->numel, 0.0, 0.0);
        qm_match_note_step(c, run->kept[row], &seen);
        return;
    }
    for (int64_t k = 0; k < s->numel && s->low; k++)
        take_between(c, s, k, want[k], what);
    for (int64_t k = 0; k < s->numel; k++)
        s->allowed[k] = s->p[k] == old[k] && qm_run_is_still(run, row, s->numel, k)
                            ? 0.0
                            : w->param_relative * size_of(s->p[k]) + w->param_absolute +
                                  of_gap(run, s, row, k) +
                                  w->param_of_step * step_of(run, s, row, k) +
                                  of_values(run, s, row, k) + of_moment(run, s, row, k) +
                                  of_infinite(run, s, row, k);
    qm_match_close_each(c, what, s->p, want, s->allowed, s->numel);
    qm_match_steps(c, run->kept[row], s->p, want, old, s->allowed, s->numel);
}

static qm_status state_judge(struct qm_conform *c, const struct qm_run *run, struct scratch *s,
                             void *plan, int64_t t)
{
    const struct qm_run_tolerance *w = &run->within;
    int64_t n = s->numel, row = kept_row(run, t);
    char what[96];
    for (int i = 0; i < run->recipe.rule->n_slots; i++) {
        const struct qm_run_slot *slot = &run->slot[i];
        const char *name = run->recipe.rule->slot[i];
        if (slot->codes) {
            QM_TRY(qm_backend_cpu.save(plan, i, s->codes, s->values));
            snprintf(what, sizeof what, "step %lld %s scale", (long long)t, name);
            qm_match_close(c, what, s->values, slot->scales + (t - 1) * slot->n_scales,
                           slot->n_scales, w->scale_relative, 0.0);
            s->numbers.of_l2 = s->allowed;
            for (int64_t k = 0; k < n; k++)
                s->allowed[k] = row < 0 ? 0.0 : of_l2(run, i, row, n, k);
            qm_run_judge_codes(c, run, &s->numbers, qm_plan_cpu_codec(plan, i), i, t, s->codes);
        } else if (slot->values && slot->every_step) {
            int64_t own = own_numel(run, i);
            QM_TRY(qm_backend_cpu.save(plan, i, NULL, s->values));
            snprintf(what, sizeof what, "step %lld %s", (long long)t, name);
            qm_match_close(c, what, s->values, slot->values + (t - 1) * own, own,
                           w->factor_relative, 0.0);
        } else if (slot->values && row >= 0) {
            QM_TRY(qm_backend_cpu.save(plan, i, NULL, s->values));
            snprintf(what, sizeof what, "step %lld %s", (long long)t, name);
            judge_values(c, run, s, i, row, what);
        }
    }
    snprintf(what, sizeof what, "step %lld parameter", (long long)t);
    if (row >= 0 && run->judge)
        run->judge(c, run->context, t, what);
    else if (row >= 0)
        judge_param(c, run, s, row, what);
    return QM_OK;
}

/* Float32 states that do not start at 0. */
static qm_status state_start(const struct qm_run *run, struct scratch *s, void *plan)
{
    for (int i = 0; i < run->recipe.rule->n_slots; i++) {
        if (run->slot[i].first == 0.0f)
            continue;
        for (int64_t k = 0; k < s->numel; k++)
            s->values[k] = run->slot[i].first;
        QM_TRY(qm_backend_cpu.load(plan, i, NULL, s->values));
    }
    return QM_OK;
}

/* torch.maximum makes NaN of nothing but ones, which the source's rounding carries over to 0 unless
 * the draw is as large as the bits it is compared with. */
static int is_zero_of_nan(const struct qm_run *run, float x, int64_t draw, float want)
{
    return run->recipe.hyper.amsgrad && qm_isnan(x) && draw < 0xffff && qm_bits(want) == 0;
}

/* One step of p; with recorded random bits, the float32 result is rounded here, but where it is
 * judged with a tolerance (is_rounded): in judge_param, within that. */
static qm_status step(const struct qm_run *run, struct scratch *s, void *plan,
                      const struct qm_tensor *g, int64_t t)
{
    const struct qm_param *q = &run->recipe.param;
    const int64_t *draw = run->draws ? run->draws + (t - 1) * s->numel : NULL;
    struct qm_tensor p = {s->stored, qm_param_dtype(q), run->shape};
    qm_param_from_float(q, s->numel, s->p, s->stored);
    QM_TRY(qm_backend_cpu.step(plan, &p, g, t, 0));
    qm_param_to_float(q, s->numel, s->stored, s->p);
    int64_t row = kept_row(run, t);
    for (int64_t i = 0; draw && i < s->numel; i++) {
        if (row >= 0 && is_zero_of_nan(run, s->p[i], draw[i], run->params[row * s->numel + i])) {
            s->p[i] = 0.0f;
            s->zero = i + 1;
            continue;
        }
        if (!run->is_rounded || row < 0)
            s->p[i] = narrow((double)s->p[i], draw[i]);
    }
    return QM_OK;
}

/* Step t, from 2 on, by the first candidate of its scalars that gives the recorded parameter; where
 * none does, by the value as it is. */
static qm_status step_by_candidates(const struct qm_run *run, struct scratch *s, void *plan,
                                    const struct qm_tensor *g, int64_t t)
{
    int64_t row = kept_row(run, t);
    size_t bytes = (size_t)s->numel * sizeof *s->p;
    int count = 0;
    while (t > 1 && row >= 0 && run->candidate(count))
        count++;
    for (int k = 0; k <= count; k++) {
        run->candidate(k < count ? k : 0);
        if (k > 0) { /* again from the state before */
            QM_TRY(state_load(run, s, plan, t - 1));
            memcpy(g->data, run->grads + (t - 1) * s->numel, bytes);
        }
        QM_TRY(step(run, s, plan, g, t));
        if (row >= 0 && memcmp(s->p, run->params + row * s->numel, bytes) == 0)
            break;
    }
    return QM_OK;
}

/* Steps the plans beside from the parameters before the step, into low and high. */
static qm_status step_beside(const struct qm_run *run, struct scratch *s, const struct qm_tensor *g,
                             int64_t t)
{
    size_t bytes = (size_t)s->numel * sizeof *s->p;
    if (!s->low)
        return QM_OK;
    float *p = s->p, *to[2] = {s->low, s->high};
    memcpy(s->before, p, bytes);
    for (int i = 0; i < 2; i++) {
        double by = 1.0 + (i ? run->within.beside : -run->within.beside);
        struct qm_hyper h = run->recipe.hyper;
        h.lr = (run->lr ? run->lr[t - 1] : h.lr) * by;
        h.weight_decay /= by;
        memcpy(to[i], p, bytes);
        s->p = to[i];
        qm_status st = t > 1 ? state_load(run, s, s->beside[i], t - 1) : QM_OK;
        if (st == QM_OK)
            st = qm_backend_cpu.hyper(s->beside[i], &h);
        memcpy(g->data, run->grads + (t - 1) * s->numel, bytes);
        if (st == QM_OK)
            st = step(run, s, s->beside[i], g, t);
        s->p = p;
        QM_TRY(st);
    }
    return QM_OK;
}

/* Adds the step that was just taken to what the parameters moved since they were recorded. */
static void count_move(const struct qm_run *run, struct scratch *s, int64_t t)
{
    int is_fresh = kept_row(run, t - 1) >= 0;
    for (int64_t k = 0; s->moved && k < s->numel; k++)
        s->moved[k] = (is_fresh ? 0.0 : s->moved[k]) + size_of(s->p[k] - s->before[k]);
}

static qm_status replay(struct qm_conform *c, const struct qm_run *run, struct scratch *s,
                        void *plan)
{
    struct qm_hyper h = run->recipe.hyper;
    QM_TRY(state_start(run, s, plan));
    for (int64_t t = 1; t <= run->steps && qm_golden_case_open(c); t++) {
        struct qm_tensor g = {NULL, QM_DTYPE_f32, run->shape};
        float *grad = s->values;
        if (t > 1 && !run->is_free)
            QM_TRY(state_load(run, s, plan, t - 1));
        if (run->lr) {
            h.lr = run->lr[t - 1];
            QM_TRY(qm_backend_cpu.hyper(plan, &h));
        }
        g.data = grad;
        QM_TRY(step_beside(run, s, &g, t));
        QM_TRY(qm_run_numbers_of(run, plan, &h, t, s->p, run->grads + (t - 1) * s->numel,
                                 &s->numbers));
        memcpy(grad, run->grads + (t - 1) * s->numel, (size_t)s->numel * sizeof *grad);
        QM_TRY(run->candidate ? step_by_candidates(run, s, plan, &g, t)
                              : step(run, s, plan, &g, t));
        count_move(run, s, t);
        QM_TRY(state_judge(c, run, s, plan, t));
    }
    return QM_OK;
}

/* A plan of the run's recipe, with the recorded tables. */
static qm_status plan_open(const struct qm_run *run, void **plan)
{
    QM_TRY(qm_recipe_applicable(&run->recipe));
    QM_TRY(qm_backend_cpu.open(&run->recipe, &run->shape, 0, plan));
    for (int i = 0; i < run->recipe.rule->n_slots; i++)
        if (run->slot[i].table)
            qm_codec_table(qm_plan_cpu_codec(*plan, i), run->slot[i].table, run->slot[i].entries);
    return QM_OK;
}

/* Opens the plan and, where the tolerance asks for them, the two beside it. */
static qm_status plans_open(struct qm_conform *c, const struct qm_run *run, struct scratch *s,
                            void **plan)
{
    QM_TRY(plan_open(run, plan));
    if (run->within.beside <= 0.0)
        return QM_OK;
    s->low = qm_golden_case_memory(c, s->numel, sizeof *s->low);
    s->high = qm_golden_case_memory(c, s->numel, sizeof *s->high);
    s->before = qm_golden_case_memory(c, s->numel, sizeof *s->before);
    s->moved = qm_golden_case_memory(c, s->numel, sizeof *s->moved);
    if (!s->low || !s->high || !s->before || !s->moved)
        return QM_NO_MEMORY;
    for (int i = 0; i < 2; i++)
        QM_TRY(plan_open(run, &s->beside[i]));
    return QM_OK;
}

void qm_run_replay(struct qm_conform *c, const struct qm_run *run)
{
    struct scratch s = {.numel = qm_shape_numel(&run->shape)};
    void *plan = NULL;
    if (!qm_golden_case_open(c) || !run->p0 || !run->grads || !run->params || !run->kept)
        return;
    for (int i = 0; i < run->recipe.rule->n_slots; i++)
        if (run->slot[i].n_scales > s.most_scales)
            s.most_scales = run->slot[i].n_scales;
    s.p = qm_golden_case_memory(c, s.numel, sizeof *s.p);
    s.values = qm_golden_case_memory(c, s.numel + s.most_scales, sizeof *s.values);
    s.codes = qm_golden_case_memory(c, s.numel, 1);
    s.stored = qm_golden_case_memory(c, s.numel, sizeof(float));
    s.allowed = qm_golden_case_memory(c, s.numel, sizeof *s.allowed);
    if (!s.p || !s.values || !s.codes || !s.stored || !s.allowed ||
        !qm_run_numbers_open(c, run, &s.numbers))
        return;
    memcpy(s.p, run->p0, (size_t)s.numel * sizeof *s.p);
    if (plans_open(c, run, &s, &plan) != QM_OK)
        qm_golden_case_skip(c, "%s", qm_message());
    else
        qm_golden_case_stopped(c, replay(c, run, &s, plan));
    qm_backend_cpu.close(plan);
    for (int i = 0; i < 2; i++)
        qm_backend_cpu.close(s.beside[i]);
}
