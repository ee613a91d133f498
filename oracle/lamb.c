/* lamb.c - LAMB and LARS in double, in bitsandbytes' form: a bound on the length of the step, where
 * the papers set it.
 *
 *   LAMB   m, v, mhat, vhat as Adam's;  u = mhat / (sqrt(vhat) + eps)
 *          theta <- (1 - lr lambda) theta - lr r u
 *   LARS   d <- g + lambda theta;  b <- d at t = 1, mu b + d afterwards
 *          theta <- theta - lr r b
 *
 *   r = min(1, (max_unorm |theta| + e) / |w|), 1 where max_unorm = 0; theta before the step
 *
 *   lamb       w = u                                   e = 0
 *   lamb_raw   w = m / (sqrt(v) + eps sqrt(1 - beta2^t))   e = 0
 *   lars       w = b                                   e = 0
 *   lars_bare  w = g at t = 1, mu b + g afterwards     e = eps
 *
 * g carries the factor gnorm_scale; |.| is the Euclidean norm of the tensor. */
#include "oracle/oracle.h"

#include <math.h>

/* gnorm_scale; 0 stands for 1. */
static double gamma_of(const struct qm_oracle_hyper *h)
{
    return h->gnorm_scale != 0.0 ? h->gnorm_scale : 1.0;
}

static double correction(double beta, int64_t t) { return -expm1((double)t * log1p(beta - 1.0)); }

static double norm(const double *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* r, from |theta| and |w|. */
static double ratio(const struct qm_oracle_hyper *h, double theta, double w, double e)
{
    double most = h->max_unorm * theta + e;
    return h->max_unorm > 0.0 && w > most ? most / w : 1.0;
}

static double corrected(const struct qm_oracle_hyper *h, double m, double v, int64_t t)
{
    return m / correction(h->beta1, t) / (sqrt(v / correction(h->beta2, t)) + h->eps);
}

static void lamb_step(double *theta, double *const *slot, const double *grad, int64_t n,
                      const struct qm_oracle_hyper *h, int64_t t, int is_raw)
{
    double *m = slot[0], *v = slot[1], sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double g = gamma_of(h) * grad[i];
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * g;
        v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * (g * g);
        double w = is_raw ? m[i] / (sqrt(v[i]) + h->eps * sqrt(correction(h->beta2, t)))
                          : corrected(h, m[i], v[i], t);
        sum += w * w;
    }
    double r = ratio(h, norm(theta, n), sqrt(sum), 0.0);
    for (int64_t i = 0; i < n; i++)
        theta[i] =
            (1.0 - h->lr * h->weight_decay) * theta[i] - h->lr * (r * corrected(h, m[i], v[i], t));
}

static void lars_step(double *theta, double *const *slot, const double *grad, int64_t n,
                      const struct qm_oracle_hyper *h, int64_t t, int is_bare)
{
    double *b = slot[0], sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double g = gamma_of(h) * grad[i], old = t == 1 ? 0.0 : h->momentum * b[i];
        b[i] = old + (g + h->weight_decay * theta[i]);
        double w = is_bare ? old + g : b[i];
        sum += w * w;
    }
    double r = ratio(h, norm(theta, n), sqrt(sum), is_bare ? h->eps : 0.0);
    for (int64_t i = 0; i < n; i++)
        theta[i] = theta[i] - h->lr * (r * b[i]);
}

#define STEP(name, body, flag)                                                             \
    static void name(double *theta, double *const *slot, const double *grad, int64_t rows, \
                     int64_t cols, const struct qm_oracle_hyper *h, int64_t t)             \
    {                                                                                      \
        body(theta, slot, grad, rows *cols, h, t, flag);                                   \
    }                                                                                      \
    extern const struct qm_oracle qm_oracle_##name;
STEP(lamb, lamb_step, 0)
STEP(lamb_raw, lamb_step, 1)
STEP(lars, lars_step, 0)
STEP(lars_bare, lars_step, 1)
#undef STEP

const struct qm_oracle qm_oracle_lamb = {
    .family = "lamb",
    .source =
        "arXiv:1904.00962, algorithm 2, with the bound of bitsandbytes backends/default/ops.py",
    .n_slots = 2,
    .slot = {"exp_avg", "exp_avg_sq"},
    .step = lamb,
};
const struct qm_oracle qm_oracle_lamb_raw = {
    .family = "lamb_raw",
    .source = "the same, bound without bias correction: bitsandbytes backends/cpu/ops.py",
    .n_slots = 2,
    .slot = {"exp_avg", "exp_avg_sq"},
    .step = lamb_raw,
};
const struct qm_oracle qm_oracle_lars = {
    .family = "lars",
    .source = "arXiv:1708.03888, equation 6, with the bound of bitsandbytes backends/cpu/ops.py",
    .n_slots = 1,
    .slot = {"momentum_buffer"},
    .step = lars,
};
const struct qm_oracle qm_oracle_lars_bare = {
    .family = "lars_bare",
    .source = "the same, bound without this step's decay: bitsandbytes backends/default/ops.py",
    .n_slots = 1,
    .slot = {"momentum_buffer"},
    .step = lars_bare,
};
