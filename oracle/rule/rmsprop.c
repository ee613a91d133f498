/* rmsprop.c - RMSprop and Adagrad in double, and their error bounds.
 *
 *   d <- gamma g + lambda theta
 *   v <- beta2 v + (1 - beta2) d^2     RMSprop;     v <- v + d^2     Adagrad
 *   theta <- theta - lr d / (sqrt(v) + eps)
 *
 * The families named "raw" divide g instead of d, so decay and gamma act on v alone, as in the CUDA
 * kernels of bitsandbytes. */
#include "oracle/bound/bound.h"

#include <math.h>

static void step(double *theta, double *v, const double *grad, int64_t n,
                 const struct qm_oracle_hyper *h, int accumulates, int is_raw)
{
    for (int64_t i = 0; i < n; i++) {
        double d = qm_oracle_gnorm_scale(h) * grad[i];
        if (h->weight_decay != 0.0)
            d = d + h->weight_decay * theta[i];
        if (accumulates)
            v[i] = v[i] + d * d;
        else
            v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * d * d;
        theta[i] = theta[i] - h->lr * ((is_raw ? grad[i] : d) / (sqrt(v[i]) + h->eps));
    }
}

static void rmsprop(double *theta, double *const *slot, const double *grad, int64_t rows,
                    int64_t cols, const struct qm_oracle_hyper *h, int64_t t)
{
    (void)t;
    step(theta, slot[0], grad, rows * cols, h, 0, 0);
}

static void rmsprop_raw(double *theta, double *const *slot, const double *grad, int64_t rows,
                        int64_t cols, const struct qm_oracle_hyper *h, int64_t t)
{
    (void)t;
    step(theta, slot[0], grad, rows * cols, h, 0, 1);
}

static void adagrad(double *theta, double *const *slot, const double *grad, int64_t rows,
                    int64_t cols, const struct qm_oracle_hyper *h, int64_t t)
{
    (void)t;
    step(theta, slot[0], grad, rows * cols, h, 1, 0);
}

static void adagrad_raw(double *theta, double *const *slot, const double *grad, int64_t rows,
                        int64_t cols, const struct qm_oracle_hyper *h, int64_t t)
{
    (void)t;
    step(theta, slot[0], grad, rows * cols, h, 1, 1);
}

/* The scalars of one step. */
struct scalars {
    const struct qm_bound_step *b;
    int accumulates, is_raw;
    struct qm_beta w;
    struct qm_ball lr, eps;
};

/* The sources differ: (lr d) / den and lr (d / den); the larger of both bounds counts. */
static void element(const void *scalars, struct qm_bound_element *at)
{
    const struct scalars *s = scalars;
    const struct qm_reorder *o = &s->b->reorder;
    struct qm_ball d = qm_bound_l2_gradient(s->b, at->g, at->p), old = at->old[0], v;
    if (qm_bound_is_zero_l2(s->b, at, 1))
        return;
    if (s->accumulates)
        v = qm_ball_add(old, qm_ball_mul(d, d));
    else if (s->b->order & QM_ORDER_cuda)
        v = qm_bound_average(&s->w, old, qm_ball_mul(d, d));
    else
        v = qm_bound_square(s->b, &s->w, old, d);
    v.x = at->want[0];
    at->e[0] = v.e;
    struct qm_ball den = qm_ball_add(qm_ball_sqrt(o, v), s->eps);
    struct qm_ball by = s->is_raw ? qm_ball_exact(at->g) : d;
    struct qm_ball a = qm_ball_div(o, qm_ball_mul(s->lr, by), den);
    a.e = fmax(a.e, qm_ball_mul(s->lr, qm_ball_div(o, by, den)).e);
    qm_bound_param(at, qm_ball_add(qm_ball_exact(at->p), qm_ball_negated(a)));
    if (v.x < 0.0 && v.x + v.e >= 0.0) { /* a sum that was loaded below 0: a root, or NaN */
        at->p_want = 0.0;
        at->e_p = HUGE_VAL;
    }
}

static qm_status bound(const struct qm_bound_step *b, int accumulates, int is_raw)
{
    struct scalars s = {b,
                        accumulates,
                        is_raw,
                        qm_bound_beta(b, b->h->beta2, 0),
                        qm_ball_scalar(b->h->lr),
                        qm_ball_scalar(b->h->eps)};
    qm_bound_elements(b, 1, &s, element);
    return QM_OK;
}

#define BOUND(name, accumulates, is_raw)                         \
    static qm_status name##_bound(const struct qm_bound_step *b) \
    {                                                            \
        return bound(b, accumulates, is_raw);                    \
    }
BOUND(rmsprop, 0, 0)
BOUND(rmsprop_raw, 0, 1)
BOUND(adagrad, 1, 0)
BOUND(adagrad_raw, 1, 1)
#undef BOUND

extern const struct qm_oracle qm_oracle_rmsprop, qm_oracle_rmsprop_raw;
extern const struct qm_oracle qm_oracle_adagrad, qm_oracle_adagrad_raw;

const struct qm_oracle qm_oracle_rmsprop = {
    .family = "rmsprop",
    .source = "Tieleman and Hinton 2012, lecture 6.5; decay as L2 term",
    .n_slots = 1,
    .slot = {"square_avg"},
    .step = rmsprop,
    .bound = rmsprop_bound,
};
const struct qm_oracle qm_oracle_rmsprop_raw = {
    .family = "rmsprop_raw",
    .source = "the same, raw gradient divided: bitsandbytes csrc/kernels.cu",
    .n_slots = 1,
    .slot = {"square_avg"},
    .step = rmsprop_raw,
    .bound = rmsprop_raw_bound,
};
const struct qm_oracle qm_oracle_adagrad = {
    .family = "adagrad",
    .source = "Duchi, Hazan, Singer, JMLR 12 (2011), diagonal form; decay as L2 term",
    .n_slots = 1,
    .slot = {"sum"},
    .step = adagrad,
    .bound = adagrad_bound,
};
const struct qm_oracle qm_oracle_adagrad_raw = {
    .family = "adagrad_raw",
    .source = "the same, raw gradient divided: bitsandbytes csrc/kernels.cu",
    .n_slots = 1,
    .slot = {"sum"},
    .step = adagrad_raw,
    .bound = adagrad_raw_bound,
};
