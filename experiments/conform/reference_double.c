/* reference_double.c - Judges the oracles by float64 runs of torch.optim.
 *
 * Each step starts at the recorded state.  u is 2^-53.  Allowed are 1e-14 of the largest magnitude
 * of a tensor, of parameters before or after the step, and of each number besides:
 *
 * SUM   an average b m + (1 - b) g or a lerp rounds numbers of the size of its terms, which may
 *       cancel: 8 u of the old number (that of the gradient is at most old and new one).
 * L2    g + weight_decay p has one rounding of its product and one of the sum on either side: 4 u
 *       of weight_decay |p|, which is what remains where it cancels g.  A state takes it in with
 *       its weight, a square 2 |g| times it, a quotient over its root.
 * LEAST three roundings to counts of 2^-1074, half of one each, here (L2 term and both products of
 *       an average) and there, where something is rounded: 3 counts of a state.
 * LION  has no root, and each of its parameters one product and one sum on either side: 4 u of the
 *       larger of old, decayed and new number, and of the momentum SUM of old and new one; nothing
 *       is of the largest number of the tensor. Where the sum that decides the sign is less than
 *       8 u of its terms and LEAST, that may be any, or none: 2 lr.
 * STEP  a step is off by these errors of its moment over the least divisor, and by what the root of
 *       its second moment and eps make of those of that. */
#include "experiments/conform/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/recipes/oracle_hyper.h"

#define DOUBLE_TOLERANCE 1e-14
#define SUM_ERROR        0x1p-50
#define L2_ERROR         0x1p-51
#define LION_ERROR       0x1p-51
#define LEAST_ERROR      (3.0 * 0x1p-1074)

static double size_of(double x) { return isfinite(x) ? fabs(x) : 0.0; }

struct double_run {
    const struct qm_reference *from;
    const struct qm_oracle *oracle;
    struct qm_oracle_hyper h;
    int64_t steps, n;
    int n_states;           /* recorded states; amsgrad has one more than its family */
    const double *state[4]; /* [steps][n]; NULL: not kept (SGD without momentum) */
    const char *state_name[4];
    const double *p0, *grads, *params, *lr; /* lr: [steps], or NULL */
    int is_radam, is_nadam, is_lion, has_corrections, is_coupled;
    double *allowed;
};

/* One number of a step: its parameter and gradient before it, |g + weight_decay p|, and L2. */
struct at {
    int64_t t, k;
    double p, g, sum, l2, lr;
};

static struct at number_of(const struct double_run *r, int64_t t, int64_t k)
{
    struct at a = {.t = t, .k = k, .g = r->grads[(t - 1) * r->n + k]};
    a.p = t > 1 ? r->params[(t - 2) * r->n + k] : r->p0[k];
    a.lr = fabs(r->lr ? r->lr[t - 1] : r->h.lr);
    int has_term = r->is_coupled && r->h.weight_decay != 0.0; /* 0 times infinity is NaN */
    double term = has_term ? r->h.weight_decay * a.p : 0.0;
    a.sum = size_of((r->h.maximize ? -a.g : a.g) + term);
    a.l2 = L2_ERROR * size_of(term);
    return a;
}

static double new_of(const struct double_run *r, int i, const struct at *a)
{
    return r->state[i] ? size_of(r->state[i][(a->t - 1) * r->n + a->k]) : 0.0;
}

static double old_of(const struct double_run *r, int i, const struct at *a)
{
    return r->state[i] && a->t > 1 ? size_of(r->state[i][(a->t - 2) * r->n + a->k]) : 0.0;
}

/* LEAST of a state that takes in `taken` times the gradient, or its square; 0 where that is 0, and
 * so is the old number: nothing is rounded then. */
static double least_off(double taken, const struct at *a, int is_square, double old)
{
    double term = taken * a->sum * (is_square ? a->sum : 1.0);
    if (is_square && taken > 0.0) /* of which a count may be rounded to one, or to none */
        term = fmax(term, a->sum * a->sum);
    return old > 0.0 || term > 0.0 ? LEAST_ERROR : 0.0;
}

/* SUM, L2 and LEAST of state i. */
static double state_off(const struct double_run *r, int i, const struct at *a)
{
    const char *takes = r->from->f->takes;
    if (r->is_lion)
        return SUM_ERROR * (old_of(r, i, a) + new_of(r, i, a)) +
               least_off(1.0 - r->h.beta2, a, 0, old_of(r, i, a));
    int family = (int)strlen(takes), is_top = i >= family; /* amsgrad's maximum takes in v */
    char what = takes[is_top ? family - 1 : i];
    int is_rms = takes[0] == 's' && family > 1, is_sgd = takes[0] == 'm' && family == 1;
    double keep = what == 's' || is_rms ? r->h.beta2 : is_sgd ? 0.0 : r->h.beta1;
    double taken = strcmp(r->from->f->rule, "adagrad") == 0 || what == 'q' ? 1.0 : 1.0 - keep;
    double grows = fmax(1.0, r->h.momentum);
    if (is_sgd)
        taken = fmax(1.0, fabs(1.0 - r->h.dampening));
    double least = fmax(taken, grows) * least_off(taken, a, what == 's', old_of(r, i, a));
    if (what == 'm')
        return SUM_ERROR * grows * old_of(r, i, a) + taken * a->l2 + least;
    if (what == 's')
        return taken * a->l2 * (2.0 * a->sum + a->l2) + least;
    double root = sqrt(new_of(r, 0, a)) + r->h.eps;
    return SUM_ERROR * grows * old_of(r, i, a) + (a->l2 > 0.0 ? a->l2 / root : 0.0);
}

/* The relative error of a step by the numbers 1 - beta^t, each off by 2^-52 on either side, for the
 * power is and the difference rounds, and by RAdam's count of steps rho_t, a difference of
 * 2 / (1 - beta2) and a quotient of such a number, which is at least 1 above its limit of 4. */
static double correction_error(const struct double_run *r, int64_t t)
{
    double least1 = 1.0 - pow(r->h.beta1, (double)t), least2 = 1.0 - pow(r->h.beta2, (double)t);
    if (!r->has_corrections)
        return 0.0;
    double rho = r->is_radam ? 2.0 / (1.0 - r->h.beta2) / least2 : 0.0;
    return 0x1p-51 * (1.0 / least1 + 1.0 / least2 + rho);
}

/* The relative error of a quotient of RMSprop by the root of v - m^2, which may cancel: v and m^2
 * are each off by 2^-53 of v on either side, and 1 / sqrt(1 - x) is at most 1 + x up to 0.6. */
static double centered_error(double v, double m)
{
    double left = v - m * m, off = 0x1p-51 * v;
    return v > 0.0 && isfinite(v) ? (left > 2.0 * off ? off / left : HUGE_VAL) : 0.0;
}

/* The largest of these times the size of the quotients, which the momentum takes in; HUGE_VAL where
 * nothing of one is certain. */
static double centered_off(const struct double_run *r, int64_t t)
{
    double most = 0.0;
    for (int64_t k = 0; r->h.centered && r->state[0] && r->state[1] && k < r->n; k++) {
        struct at a = number_of(r, t, k);
        double v = r->state[0][(t - 1) * r->n + k], m = r->state[1][(t - 1) * r->n + k],
               off = centered_error(v, m);
        double root = sqrt(fmax(v - m * m, 0.0)) + r->h.eps;
        most = fmax(most, off == HUGE_VAL               ? off
                          : root > 0.0 && isfinite(a.g) ? off * a.sum / root
                                                        : 0.0);
    }
    return most;
}

/* NAdam's product of t momenta is a float32 number, off by 2^-24 of each momentum and of each
 * product, which 1 - product makes larger where the product is near 1, in both parts of the
 * step. */
static double product_error(const struct double_run *r, const struct at *a)
{
    const struct qm_oracle_hyper *h = &r->h;
    double product = 1.0, mu = 0.0, error = (double)a->t * 0x1p-23;
    for (int64_t i = 1; i <= a->t; i++)
        product *= mu = h->beta1 * (1.0 - 0.5 * pow(0.96, (double)i * h->momentum_decay));
    double next = h->beta1 * (1.0 - 0.5 * pow(0.96, (double)(a->t + 1) * h->momentum_decay));
    double left = 1.0 - product, left_next = 1.0 - product * next;
    double den = sqrt(new_of(r, 1, a)) / sqrt(1.0 - pow(h->beta2, (double)a->t)) + h->eps;
    if (!(left > 2.0 * product * error && den > 0.0))
        return HUGE_VAL;
    double along_g = (1.0 - mu) / left, along_m = next / left_next;
    return a->lr / den *
           (along_g * (a->l2 + a->sum * 2.0 * product * error / left) +
            along_m * new_of(r, 0, a) * 2.0 * product * next * error / left_next);
}

/* What multiplies the root of the second moment in the divisor of a step. */
static double correction_of(const struct double_run *r, int64_t t)
{
    double left = 1.0 - pow(r->h.beta2, (double)t);
    int has_none = r->from->f->takes[0] == 's' || r->is_radam || !(left > 0.0);
    return has_none ? 1.0 : 1.0 / sqrt(left);
}

/* What the error of the moment makes of a step: that over the least divisor, RAdam's may be 1. */
static double moment_off(const struct double_run *r, const struct at *a, double step, double v,
                         double of_v)
{
    double m = new_of(r, 0, a), of_m = state_off(r, 0, a),
           left = 1.0 - pow(r->h.beta1, (double)a->t);
    double least = correction_of(r, a->t) * sqrt(fmax(v - of_v, 0.0)) + r->h.eps;
    if (of_m <= 0.0)
        return 0.0;
    if (r->is_nadam)
        return m > of_m ? of_m / m * step : step;
    least = r->is_radam ? fmin(least, 1.0) : least;
    return least > 0.0 && left > 0.0 ? a->lr * of_m / (left * least) : HUGE_VAL;
}

/* LION of a parameter; got: what the oracle makes of it. */
static double lion_off(const struct double_run *r, const struct at *a, double got)
{
    double kept = r->h.beta1 * old_of(r, 0, a), taken = (1.0 - r->h.beta1) * a->sum;
    double old = r->state[0] && a->t > 1 ? r->state[0][(a->t - 2) * r->n + a->k] : 0.0;
    double sum = r->h.beta1 * old + (1.0 - r->h.beta1) * (r->h.maximize ? -a->g : a->g);
    int is_open = fabs(sum) < SUM_ERROR * (kept + taken) + LEAST_ERROR && kept + taken > 0.0;
    double most = fmax(size_of(got), size_of(a->p) * (1.0 + a->lr * fabs(r->h.weight_decay)));
    return LION_ERROR * most + (is_open ? 2.0 * a->lr : 0.0);
}

/* STEP of a parameter; got: what the oracle makes of it. */
static double step_off(const struct double_run *r, const struct at *a, double got)
{
    const char *takes = r->from->f->takes;
    double decay = r->is_coupled ? 0.0 : a->lr * r->h.weight_decay;
    double step = qm_match_step(got - a->p, decay, a->p);
    double off = 0.0, v = 0.0, of_v = 0.0;
    if (r->is_lion)
        return lion_off(r, a, got);
    int second = takes[0] == 's' ? 0 : takes[1] == 's' ? 1 : -1;
    if (second >= 0 && r->state[second]) {
        v = new_of(r, second, a);
        of_v = state_off(r, second, a);
        double share = qm_match_root_share(v, of_v, correction_of(r, a->t), r->h.eps);
        if (share == HUGE_VAL)
            return share;
        off += share * step;
        if (takes[0] == 's' && a->l2 > 0.0)
            off += a->lr * a->l2 / (sqrt(fmax(v - of_v, 0.0)) + r->h.eps);
    }
    if (second < 0) /* SGD */
        return off + a->lr * (state_off(r, 0, a) + a->l2);
    if (takes[0] == 's')
        return off + (takes[1] ? a->lr * state_off(r, 2, a) : 0.0);
    off += moment_off(r, a, step, v, of_v);
    return off + (r->is_nadam ? product_error(r, a) : 0.0);
}

/* NaN where this side has an infinity: torch's lerp from its other end, or of an infinite average,
 * is a difference of infinities.  Without eps a v of 0 makes 0 / 0, also of RAdam by foreach, which
 * divides by the root of v also where it does not rectify. */
static int is_nan_of(const struct double_run *r, const struct at *a, double want, double got,
                     int is_param)
{
    int special = !isfinite(a->g) || !isfinite(a->p);
    for (int i = 0; i < r->n_states && r->state[i]; i++)
        special |= (a->t > 1 && !isfinite(r->state[i][(a->t - 2) * r->n + a->k])) ||
                   (is_param && !isfinite(r->state[i][(a->t - 1) * r->n + a->k]));
    int second = r->is_lion                    ? -1
                 : r->from->f->takes[0] == 's' ? 0
                 : r->from->f->takes[1] == 's' ? 1
                                               : -1;
    int is_0_of_0 = is_param && second >= 0 && r->h.eps == 0.0 && r->state[second] &&
                    r->state[second][(a->t - 1) * r->n + a->k] == 0.0;
    return isnan(want) && (is_0_of_0 || (special && !isfinite(got)));
}

/* Whether RMSprop's quotient is 0 / 0, which is NaN in the momentum and makes the parameter NaN. */
static int is_0_over_0(const struct double_run *r, const struct at *a)
{
    return r->h.eps == 0.0 && a->sum == 0.0 && isfinite(a->g) && r->state[0] &&
           r->state[0][(a->t - 1) * r->n + a->k] == 0.0;
}

/* RMSprop's quotient where the recorded second moment is 0 and so is eps, but not what it divides,
 * whose square underflows: that over 0.  The square of the average that a centered step takes off
 * underflows as well, or the root is NaN.  0: it is no such number. */
static double over_0(const struct double_run *r, const struct at *a)
{
    double g = r->h.maximize ? -a->g : a->g, root = 0.0;
    if (strncmp(r->from->f->rule, "rmsprop", 7) != 0 || r->h.eps != 0.0 || !r->state[0] ||
        r->state[0][(a->t - 1) * r->n + a->k] != 0.0 || !isfinite(a->g))
        return 0.0;
    if (r->h.centered && r->state[1])
        root = r->state[1][(a->t - 1) * r->n + a->k];
    g += r->is_coupled && r->h.weight_decay != 0.0 ? r->h.weight_decay * a->p : 0.0;
    return g == 0.0 ? 0.0 : root * root > 0.0 ? (double)NAN : copysign(HUGE_VAL, g);
}

/* Whether gradient, decay and every old state of a number are 0: nothing of its step is rounded
 * then (qm_run_is_still says why). */
static int is_still(const struct double_run *r, const struct at *a)
{
    int has_term = a->g != 0.0 || (r->h.weight_decay != 0.0 && a->p != 0.0);
    for (int i = 0; i < r->n_states && !has_term; i++)
        has_term = r->state[i] && old_of(r, i, a) != 0.0;
    return !has_term;
}

static void judge_state(struct qm_conform *c, const struct double_run *r, int i, int64_t t,
                        double *got, double absolute)
{
    const double *want = r->state[i] + (t - 1) * r->n;
    char what[96];
    absolute += r->is_lion ? 0.0 : DOUBLE_TOLERANCE * qm_match_largest_double(want, r->n);
    for (int64_t k = 0; k < r->n; k++) {
        struct at a = number_of(r, t, k);
        r->allowed[k] = got[k] == 0.0 && is_still(r, &a) ? 0.0 : absolute + state_off(r, i, &a);
        if (is_nan_of(r, &a, want[k], got[k], 0))
            got[k] = want[k];
        if (r->from->f->takes[i < 3 ? i : 0] == 'q' && is_0_over_0(r, &a))
            got[k] = (double)NAN;
        double quotient = r->from->f->takes[i < 3 ? i : 0] == 'q' ? over_0(r, &a) : 0.0;
        if (quotient != 0.0)
            got[k] = r->h.momentum * (t > 1 ? want[k - r->n] : 0.0) + quotient;
    }
    snprintf(what, sizeof what, "step %lld %s", (long long)t, r->state_name[i]);
    qm_match_close_double_each(c, what, got, want, r->allowed, r->n);
}

static void judge_parameters(struct qm_conform *c, const struct double_run *r, int64_t t, double *p,
                             double centered)
{
    const double *want = r->params + (t - 1) * r->n, *before = t > 1 ? want - r->n : r->p0;
    double lr_of = r->lr ? r->lr[t - 1] : r->h.lr, lr = fabs(lr_of);
    double step = 0.0, off = correction_error(r, t);
    double decay = r->is_coupled ? 0.0 : lr * r->h.weight_decay;
    char what[96];
    for (int64_t k = 0; k < r->n && off > 0.0; k++)
        if (isfinite(p[k] - want[k]))
            step = fmax(step, qm_match_step(p[k] - before[k], decay, before[k]));
    double most = r->is_lion ? 0.0 : DOUBLE_TOLERANCE;
    double absolute =
        most * fmax(qm_match_largest_double(p, r->n), qm_match_largest_double(before, r->n)) +
        off * step + lr * centered;
    for (int64_t k = 0; k < r->n; k++) {
        struct at a = number_of(r, t, k);
        r->allowed[k] = p[k] == a.p && is_still(r, &a) ? 0.0 : absolute + step_off(r, &a, p[k]);
        if (is_nan_of(r, &a, want[k], p[k], 1))
            p[k] = want[k];
        double quotient = over_0(r, &a);
        if (quotient != 0.0) /* with a momentum, by the recorded one, which is judged */
            p[k] = a.p - lr_of * (r->state[2] ? r->state[2][(t - 1) * r->n + k] : quotient);
    }
    snprintf(what, sizeof what, "step %lld parameter", (long long)t);
    qm_match_close_double_each(c, what, p, want, r->allowed, r->n);
}

/* The fused kernel's scalar code after its whole vectors of four doubles takes the larger of the
 * old maximum and the second moment by `old < v`, so that NaN leaves the old one. */
static void tail_maxima(const struct double_run *r, double *const *slot, int64_t t)
{
    int top = r->n_states - 1;
    if (!r->h.amsgrad || !r->from->is_fused || !r->state[top])
        return;
    for (int64_t k = r->n / 4 * 4; k < r->n; k++) {
        double old = t > 1 ? r->state[top][(t - 2) * r->n + k] : 0.0, v = slot[top - 1][k];
        slot[top][k] = old < v ? v : old;
    }
}

/* NAdam by foreach divides roots, so that a v / (1 - beta2^t) beyond double is none there: such a
 * parameter by the step of numbers that are 2^-300 times as large. */
static void large_steps(const struct double_run *r, double *const *slot, double *p, int64_t t,
                        const struct qm_oracle_hyper *h)
{
    struct qm_oracle_hyper small = *h;
    double left = 1.0 - pow(h->beta2, (double)t), by = 0x1p-300;
    small.eps *= by;
    small.weight_decay *= r->is_coupled ? by : 1.0;
    for (int64_t k = 0; r->is_nadam && r->from->is_foreach && k < r->n; k++) {
        struct at a = number_of(r, t, k);
        double g = by * a.g, m, v, *one[2] = {&m, &v};
        if (!isfinite(slot[1][k]) || isfinite(slot[1][k] / left) || !r->state[0] || !r->state[1])
            continue;
        m = t > 1 ? by * r->state[0][(t - 2) * r->n + k] : 0.0;
        v = t > 1 ? by * by * r->state[1][(t - 2) * r->n + k] : 0.0;
        r->oracle->step(&a.p, one, &g, 1, 1, &small, t);
        p[k] = a.p;
    }
}

static void run_double(struct qm_conform *c, const struct double_run *r)
{
    size_t bytes = (size_t)r->n * sizeof(double);
    double *p = qm_golden_case_memory(c, r->n, sizeof *p), *slot[4];
    for (int i = 0; i < 4; i++)
        if (!(slot[i] = qm_golden_case_memory(c, r->n, sizeof **slot)))
            return;
    if (!p)
        return;
    memcpy(p, r->p0, bytes);
    for (int64_t k = 0; k < r->n; k++)
        slot[0][k] = r->from->first;
    struct qm_oracle_hyper h = r->h;
    for (int64_t t = 1; t <= r->steps && qm_golden_case_open(c); t++) {
        for (int i = 0; i < r->n_states && t > 1; i++)
            if (r->state[i])
                memcpy(slot[i], r->state[i] + (t - 2) * r->n, bytes);
        if (t > 1)
            memcpy(p, r->params + (t - 2) * r->n, bytes);
        h.lr = r->lr ? r->lr[t - 1] : r->h.lr;
        r->oracle->step(p, slot, r->grads + (t - 1) * r->n, 1, r->n, &h, t);
        large_steps(r, slot, p, t, &h);
        tail_maxima(r, slot, t);
        double centered = centered_off(r, t);
        if (centered == HUGE_VAL)
            qm_golden_case_skip(c, "step %lld: v - m^2 cancels to rounding errors", (long long)t);
        for (int i = 0; i < r->n_states; i++)
            if (r->state[i])
                judge_state(c, r, i, t, slot[i], i == 2 ? centered : 0.0);
        judge_parameters(c, r, t, p, centered);
    }
}

void qm_reference_double(struct qm_conform *c, const struct qm_reference *from)
{
    const struct qm_rule *rule = qm_rule_find(from->f->rule);
    const char *called = from->f->rule;
    struct double_run r = {.from = from,
                           .oracle = rule ? qm_oracle_find(rule->family) : NULL,
                           .steps = from->steps,
                           .n = from->n,
                           .n_states = from->f->n_slots,
                           .lr = from->lr,
                           .h = qm_oracle_hyper_of(&from->h)};
    if (!r.oracle) {
        qm_golden_case_skip(c, "float64 runs are judged by an oracle, and %s has none", called);
        return;
    }
    snprintf(c->now.how, sizeof c->now.how, "oracle %s", r.oracle->family);
    r.is_radam = strncmp(called, "radam", 5) == 0;
    r.is_nadam = strncmp(called, "nadam", 5) == 0;
    r.has_corrections = strstr(called, "adam") != NULL;
    r.is_lion = strcmp(called, "lion") == 0;
    r.is_coupled = !r.is_lion && called[strlen(called) - 1] != 'w';
    for (int i = 0; i < r.n_states; i++)
        r.state_name[i] = from->f->state[i];
    if (r.h.amsgrad) /* the oracle takes the running maximum in one more slot */
        r.state_name[r.n_states++] = "state_max_exp_avg_sq";
    for (int i = 0; i < r.n_states; i++)
        if (qm_golden_case_has(c, r.state_name[i]) &&
            !(r.state[i] = qm_golden_case_doubles(c, r.state_name[i], r.steps * r.n)))
            return;
    r.p0 = qm_golden_case_doubles(c, "param0", r.n);
    r.grads = qm_golden_case_doubles(c, "grads", r.steps * r.n);
    r.params = qm_golden_case_doubles(c, "params", r.steps * r.n);
    r.allowed = qm_golden_case_memory(c, r.n, sizeof *r.allowed);
    if (r.p0 && r.grads && r.params && r.allowed)
        run_double(c, &r);
}
