/* reference_narrow.c - Judges parameters of bfloat16 runs of torch.optim by their roundings.
 *
 * Outside of its fused kernels PyTorch rounds to bfloat16 after each operation, and its states are
 * stored in bfloat16, so that the recorded states of a step, its gradient and the parameter before
 * it determine the parameter after it.  Here every operation maps a range of numbers to a range
 * (narrow_span.h), and the recorded parameter must lie in the last. */
#include "experiments/conform/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/conform/narrow_span.h"

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
static struct qm_narrow_span adam(const struct narrow_run *n, int64_t k, struct qm_narrow_span p)
{
    struct qm_narrow_span den = qm_narrow_span_narrow(
        qm_narrow_span_quotient(qm_narrow_span_root(state(n, n->r->h.amsgrad ? 2 : 1, k)),
                                qm_narrow_span_scalar(sqrt(n->left2))));
    den = qm_narrow_span_narrow(qm_narrow_span_sum(den, qm_narrow_span_scalar(n->r->h.eps)));
    return qm_narrow_span_add_quotient(p, qm_narrow_span_one(state(n, 0, k)), den,
                                       -n->lr / n->left1);
}

static struct qm_narrow_span nadam(const struct narrow_run *n, int64_t k, struct qm_narrow_span p,
                                   struct qm_narrow_span g)
{
    double v = state(n, 1, k);
    struct qm_narrow_span den = qm_narrow_span_narrow(qm_narrow_span_quotient(
        n->r->is_foreach ? qm_narrow_span_root(v) : qm_narrow_span_one(v),
        qm_narrow_span_scalar(n->r->is_foreach ? sqrt(n->left2) : n->left2)));
    if (!n->r->is_foreach) {
        const double ends[2] = {sqrt(den.lo), sqrt(den.hi)};
        den = qm_narrow_span_narrow(qm_narrow_span_of(ends, 2));
    }
    den = qm_narrow_span_narrow(qm_narrow_span_sum(den, qm_narrow_span_scalar(n->r->h.eps)));
    p = qm_narrow_span_add_quotient(p, g, den, -n->lr * (1.0 - n->mu) / (1.0 - n->product));
    return qm_narrow_span_add_quotient(p, qm_narrow_span_one(state(n, 0, k)), den,
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

static struct qm_narrow_span radam(const struct narrow_run *n, int64_t k, struct qm_narrow_span p)
{
    double rect = rectification(n);
    struct qm_narrow_span m = qm_narrow_span_one(state(n, 0, k)),
                          den = qm_narrow_span_narrow(
                              qm_narrow_span_sum(qm_narrow_span_root(state(n, 1, k)),
                                                 qm_narrow_span_scalar(n->r->h.eps)));
    if (n->r->is_foreach) {
        struct qm_narrow_span by =
            qm_narrow_span_scalar(-sqrt(n->left2) * (n->lr * rect / n->left1));
        by = qm_narrow_span_narrow(qm_narrow_span_quotient(
            qm_narrow_span_one(1.0), qm_narrow_span_narrow(qm_narrow_span_quotient(den, by))));
        by = qm_narrow_span_narrow(
            qm_narrow_span_sum(by, qm_narrow_span_scalar(rect > 0.0 ? -0.0 : -n->lr / n->left1)));
        return qm_narrow_span_narrow(
            qm_narrow_span_sum(p, qm_narrow_span_single(qm_narrow_span_product(m, by))));
    }
    struct qm_narrow_span step =
        qm_narrow_span_narrow(qm_narrow_span_quotient(m, qm_narrow_span_scalar(n->left1)));
    step = qm_narrow_span_narrow(qm_narrow_span_product(step, qm_narrow_span_scalar(n->lr)));
    if (rect > 0.0) {
        struct qm_narrow_span by = qm_narrow_span_narrow(
            qm_narrow_span_quotient(qm_narrow_span_one(1.0), den)); /* a number over a tensor */
        step = qm_narrow_span_narrow(
            qm_narrow_span_product(step, qm_narrow_span_narrow(qm_narrow_span_product(
                                             by, qm_narrow_span_scalar(sqrt(n->left2))))));
        step = qm_narrow_span_narrow(qm_narrow_span_product(step, qm_narrow_span_scalar(rect)));
    }
    return qm_narrow_span_narrow(
        qm_narrow_span_sum(p, (struct qm_narrow_span){-step.hi, -step.lo, step.nan}));
}

/* RMSprop and Adagrad: the state is the sum of squares, with momentum of RMSprop a buffer. */
static struct qm_narrow_span of_squares(const struct narrow_run *n, int64_t k,
                                        struct qm_narrow_span p, struct qm_narrow_span g)
{
    int is_adagrad = n->r->f->rule[0] == 'a';
    if (!is_adagrad && n->r->h.momentum > 0.0)
        return qm_narrow_span_add(p, qm_narrow_span_one(state(n, 2, k)), -n->lr);
    struct qm_narrow_span den = qm_narrow_span_narrow(qm_narrow_span_sum(
        qm_narrow_span_root(state(n, 0, k)), qm_narrow_span_scalar(n->r->h.eps)));
    if (is_adagrad && n->r->is_foreach)
        return qm_narrow_span_add_quotient(
            p, qm_narrow_span_narrow(qm_narrow_span_product(g, qm_narrow_span_scalar(-n->lr))), den,
            1.0);
    return qm_narrow_span_add_quotient(p, g, den, -n->lr);
}

static struct qm_narrow_span sgd(const struct narrow_run *n, int64_t k, struct qm_narrow_span p,
                                 struct qm_narrow_span g)
{
    const struct qm_hyper *h = &n->r->h;
    if (h->momentum != 0.0) {
        struct qm_narrow_span buffer = qm_narrow_span_one(state(n, 0, k));
        g = h->nesterov ? qm_narrow_span_add(g, buffer, h->momentum) : buffer;
    }
    return qm_narrow_span_add(p, g, -n->lr);
}

/* Lion: along the sign of an average of the moment before the step and the gradient; that of NaN is
 * 0. */
static struct qm_narrow_span lion(const struct narrow_run *n, int64_t k, struct qm_narrow_span p,
                                  struct qm_narrow_span g)
{
    double before = n->t > 1 ? (double)n->data->state[0][(n->t - 2) * n->r->n + k] : 0.0;
    struct qm_narrow_span u = qm_narrow_span_narrow(
        qm_narrow_span_product(qm_narrow_span_one(before), qm_narrow_span_scalar(n->r->h.beta1)));
    u = qm_narrow_span_add(u, g, 1.0 - n->r->h.beta1);
    struct qm_narrow_span none = {0.0, 0.0, 0},
                          sign = {(u.lo > 0.0) - (u.lo < 0.0), (u.hi > 0.0) - (u.hi < 0.0), 0};
    sign = u.lo > u.hi ? none : u.nan ? qm_narrow_span_either(sign, none) : sign;
    return qm_narrow_span_add(p, sign, -n->lr);
}

/* What parameter k may be after the step. */
static struct qm_narrow_span step(const struct narrow_run *n, int64_t k)
{
    const struct qm_narrow_data *d = n->data;
    const struct qm_hyper *h = &n->r->h;
    const char *rule = n->r->f->rule, *class = n->r->f->optimizer;
    int64_t at = (n->t - 1) * n->r->n + k;
    struct qm_narrow_span p = qm_narrow_span_one(
                              (double)(n->t > 1 ? d->params[at - n->r->n] : d->p0[k])),
                          g = qm_narrow_span_one(
                              (double)(h->maximize ? -d->grads[at] : d->grads[at]));
    int is_lion = strcmp(rule, "lion") == 0,
        is_decoupled = is_lion || rule[strlen(rule) - 1] == 'w';
    if (h->weight_decay != 0.0 && is_decoupled)
        p = qm_narrow_span_narrow(
            qm_narrow_span_product(p, qm_narrow_span_scalar(1.0 - n->lr * h->weight_decay)));
    else if (h->weight_decay != 0.0)
        g = qm_narrow_span_add(g, p, h->weight_decay);
    if (is_lion)
        return lion(n, k, p, g);
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
    return !r->is_fused && !r->is_gpu && !r->is_old;
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
        qm_narrow_span_judge(c, what, k, step(&n, k), (double)data->params[(t - 1) * r->n + k]);
    c->now.compared += r->n;
}
