/* reference_narrow.c - Judges parameters of bfloat16 runs of torch.optim by their roundings.
 *
 * Outside of its fused kernels PyTorch rounds to bfloat16 after each operation, and its states are
 * stored in bfloat16, so that the recorded states of a step, its gradient and the parameter before
 * it determine the parameter after it.  Here every operation maps a range of numbers to a range:
 *
 *   float32   an operation is one of float32 numbers; a result that float32 does not have is moved
 *             by one ulp of float32 to either side, for kernels contract and order differently,
 *   bfloat16  and both ends are rounded to bfloat16, which is monotone.
 *
 * A range has more than one number only next to a tie of bfloat16, and where a scalar takes part:
 * torch's add, mul and div round it to bfloat16 in scalar code, and add its product with `alpha`,
 * but not in whole vectors of 32 elements: either is taken, and what lies between.
 * A number that must be recorded lies within the range, or is NaN where some end is. */
#include "experiments/conform/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/half.h"

/* The numbers from lo to hi, and NaN where `nan`; lo > hi: nothing but NaN. */
struct range {
    double lo, hi;
    int nan;
};

/* The least range of n numbers. */
static struct range range_of(const double *x, int n)
{
    struct range r = {HUGE_VAL, -HUGE_VAL, 0};
    for (int i = 0; i < n; i++) {
        r.nan |= isnan(x[i]);
        r.lo = x[i] < r.lo ? x[i] : r.lo;
        r.hi = x[i] > r.hi ? x[i] : r.hi;
    }
    return r;
}

static struct range one(double x) { return range_of(&x, 1); }

/* The ends of a range as float32 results, an ulp further out where they are not exact. */
static struct range single(struct range r)
{
    if (r.lo > r.hi)
        return r;
    float lo = (float)r.lo, hi = (float)r.hi;
    r.lo = (double)lo == r.lo ? r.lo : (double)nextafterf(lo, -HUGE_VALF);
    r.hi = (double)hi == r.hi ? r.hi : (double)nextafterf(hi, HUGE_VALF);
    return r;
}

static double bf16(double x) { return (double)qm_bf16_to_float(qm_float_to_bf16((float)x)); }

/* A float32 result that is rounded to bfloat16. */
static struct range narrow(struct range r)
{
    r = single(r);
    return r.lo > r.hi ? r : (struct range){bf16(r.lo), bf16(r.hi), r.nan};
}

/* The products, sums and quotients of two ranges; no range of divisors has 0 inside. */
static struct range product(struct range a, struct range b)
{
    const double x[4] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
    struct range r = range_of(x, 4);
    r.nan |= a.nan || b.nan;
    return r;
}

static struct range sum(struct range a, struct range b)
{
    const double x[2] = {a.lo + b.lo, a.hi + b.hi};
    struct range r = range_of(x, 2);
    r.nan |= a.nan || b.nan;
    return r;
}

static struct range quotient(struct range a, struct range b)
{
    const double x[4] = {a.lo / b.lo, a.lo / b.hi, a.hi / b.lo, a.hi / b.hi};
    struct range r = range_of(x, 4);
    r.nan |= a.nan || b.nan;
    return r;
}

/* A scalar that torch.add, mul or div takes: float32 in vectors, bfloat16 in scalar code. */
static struct range scalar(double x)
{
    const double either[2] = {(double)(float)x, bf16(x)};
    return range_of(either, 2);
}

/* a + alpha b, of torch.add. */
static struct range add(struct range a, struct range b, double alpha)
{
    struct range x = single(product(b, scalar(alpha))), y = narrow(x);
    struct range either = {fmin(x.lo, y.lo), fmax(x.hi, y.hi), x.nan};
    return narrow(sum(a, either));
}

/* a + value b / c, of torch.addcdiv. */
static struct range add_quotient(struct range a, struct range b, struct range c, double value)
{
    struct range above = single(product(one((double)(float)value), b));
    return narrow(sum(a, single(quotient(above, c))));
}

/* sqrt(v), of a recorded number. */
static struct range root(double v) { return narrow(one(sqrt(v))); }

/* A recorded run, and the numbers that are the same in all elements of step t. */
struct narrow_run {
    const struct qm_reference *r;
    const struct qm_narrow_data *data;
    int64_t t;
    double lr, left1, left2, mu, next, product; /* left: 1 - beta^t */
};

static double state(const struct narrow_run *n, int i, int64_t k)
{
    return (double)n->data->state[i][(n->t - 1) * n->r->n + k];
}

/* ---- the classes ----------------------------------------------------------------------------- */

/* p: the parameter after a decoupled decay; g: the gradient with its L2 term. */
static struct range adam(const struct narrow_run *n, int64_t k, struct range p)
{
    struct range den =
        narrow(quotient(root(state(n, n->r->h.amsgrad ? 2 : 1, k)), scalar(sqrt(n->left2))));
    den = narrow(sum(den, scalar(n->r->h.eps)));
    return add_quotient(p, one(state(n, 0, k)), den, -n->lr / n->left1);
}

static struct range nadam(const struct narrow_run *n, int64_t k, struct range p, struct range g)
{
    double v = state(n, 1, k);
    struct range den = narrow(quotient(n->r->is_foreach ? root(v) : one(v),
                                       scalar(n->r->is_foreach ? sqrt(n->left2) : n->left2)));
    if (!n->r->is_foreach) {
        const double ends[2] = {sqrt(den.lo), sqrt(den.hi)};
        den = narrow(range_of(ends, 2));
    }
    den = narrow(sum(den, scalar(n->r->h.eps)));
    p = add_quotient(p, g, den, -n->lr * (1.0 - n->mu) / (1.0 - n->product));
    return add_quotient(p, one(state(n, 0, k)), den,
                        -n->lr * n->next / (1.0 - n->product * n->next));
}

/* RAdam's factor of rectification; 0: the step is not rectified. */
static double rectification(const struct narrow_run *n)
{
    double b = n->r->h.beta2, most = 2.0 / (1.0 - b) - 1.0;
    double rho = most - 2.0 * (double)n->t * pow(b, (double)n->t) / n->left2;
    return rho > 5.0 ? sqrt((rho - 4.0) * (rho - 2.0) * most / ((most - 4.0) * (most - 2.0) * rho))
                     : 0.0;
}

static struct range radam(const struct narrow_run *n, int64_t k, struct range p)
{
    double rect = rectification(n);
    struct range m = one(state(n, 0, k)),
                 den = narrow(sum(root(state(n, 1, k)), scalar(n->r->h.eps)));
    if (n->r->is_foreach) {
        struct range by = scalar(-sqrt(n->left2) * (n->lr * rect / n->left1));
        by = narrow(quotient(one(1.0), narrow(quotient(den, by))));
        by = narrow(sum(by, scalar(rect > 0.0 ? -0.0 : -n->lr / n->left1)));
        return narrow(sum(p, single(product(m, by))));
    }
    struct range step = narrow(quotient(m, scalar(n->left1)));
    step = narrow(product(step, scalar(n->lr)));
    if (rect > 0.0) {
        struct range by = narrow(quotient(one(1.0), den)); /* a number over a tensor */
        step = narrow(product(step, narrow(product(by, scalar(sqrt(n->left2))))));
        step = narrow(product(step, scalar(rect)));
    }
    return narrow(sum(p, (struct range){-step.hi, -step.lo, step.nan}));
}

/* RMSprop and Adagrad: the state is the sum of squares, with momentum of RMSprop a buffer. */
static struct range of_squares(const struct narrow_run *n, int64_t k, struct range p,
                               struct range g)
{
    int is_adagrad = n->r->f->rule[0] == 'a';
    if (!is_adagrad && n->r->h.momentum > 0.0)
        return add(p, one(state(n, 2, k)), -n->lr);
    struct range den = narrow(sum(root(state(n, 0, k)), scalar(n->r->h.eps)));
    if (is_adagrad && n->r->is_foreach)
        return add_quotient(p, narrow(product(g, scalar(-n->lr))), den, 1.0);
    return add_quotient(p, g, den, -n->lr);
}

static struct range sgd(const struct narrow_run *n, int64_t k, struct range p, struct range g)
{
    const struct qm_hyper *h = &n->r->h;
    if (h->momentum != 0.0) {
        struct range buffer = one(state(n, 0, k));
        g = h->nesterov ? add(g, buffer, h->momentum) : buffer;
    }
    return add(p, g, -n->lr);
}

/* What parameter k may be after the step. */
static struct range step(const struct narrow_run *n, int64_t k)
{
    const struct qm_narrow_data *d = n->data;
    const struct qm_hyper *h = &n->r->h;
    const char *rule = n->r->f->rule, *class = n->r->f->optimizer;
    int64_t at = (n->t - 1) * n->r->n + k;
    struct range p = one((double)(n->t > 1 ? d->params[at - n->r->n] : d->p0[k])),
                 g = one((double)(h->maximize ? -d->grads[at] : d->grads[at]));
    int is_decoupled = rule[strlen(rule) - 1] == 'w';
    if (h->weight_decay != 0.0 && is_decoupled)
        p = narrow(product(p, scalar(1.0 - n->lr * h->weight_decay)));
    else if (h->weight_decay != 0.0)
        g = add(g, p, h->weight_decay);
    if (strcmp(class, "SGD") == 0)
        return sgd(n, k, p, g);
    if (strcmp(class, "NAdam") == 0)
        return nadam(n, k, p, g);
    if (strcmp(class, "RAdam") == 0)
        return radam(n, k, p);
    if (strcmp(class, "RMSprop") == 0 || strcmp(class, "Adagrad") == 0)
        return of_squares(n, k, p, g);
    return adam(n, k, p);
}

int qm_reference_is_narrow(const struct qm_reference *r)
{
    return !r->is_fused && !r->is_gpu && !r->is_old && strcmp(r->f->rule, "lion") != 0;
}

/* Judges one parameter; an end of its range is what is said to have been computed. */
static void judge_one(struct qm_conform *c, const char *what, int64_t k, struct range x,
                      double want)
{
    int is_within = isnan(want) ? x.nan : x.lo <= want && want <= x.hi;
    double end = want < x.lo ? x.lo : x.hi;
    if (!is_within) {
        qm_golden_case_differs(c,
                               "%s[%lld]: got %.9g, want %.9g: bfloat16 roundings make it %.9g "
                               "to %.9g",
                               what, (long long)k, end, want, x.lo, x.hi);
        return;
    }
    if (x.lo >= x.hi && x.nan == isnan(want))
        return;
    if (c->now.outcome == QM_CONFORM_equal)
        snprintf(c->now.text, sizeof c->now.text,
                 "%s[%lld]: a rounding to bfloat16 may go either way", what, (long long)k);
    c->now.outcome = QM_CONFORM_near;
}

void qm_reference_narrow(struct qm_conform *c, const struct qm_reference *r,
                         const struct qm_narrow_data *data, int64_t t, const char *what)
{
    const struct qm_hyper *h = &r->h;
    struct narrow_run n = {.r = r, .data = data, .t = t, .lr = r->lr ? r->lr[t - 1] : h->lr};
    n.left1 = 1.0 - pow(h->beta1, (double)t);
    n.left2 = 1.0 - pow(h->beta2, (double)t);
    n.mu = h->beta1 * (1.0 - 0.5 * pow(0.96, (double)t * h->momentum_decay));
    n.next = h->beta1 * (1.0 - 0.5 * pow(0.96, (double)(t + 1) * h->momentum_decay));
    n.product = data->mu_product ? data->mu_product[t - 1] : 1.0;
    for (int64_t k = 0; k < r->n && qm_golden_case_open(c); k++)
        judge_one(c, what, k, step(&n, k), (double)data->params[(t - 1) * r->n + k]);
    c->now.compared += r->n;
}
