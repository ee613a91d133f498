/* rmsprop.c - RMSprop and Adagrad in double.
 *
 *   d <- gamma g + lambda theta
 *   v <- beta2 v + (1 - beta2) d^2     RMSprop;     v <- v + d^2     Adagrad
 *   theta <- theta - lr d / (sqrt(v) + eps)
 *
 * The families with "raw" divide g instead of d, so decay and gamma act on v only: what the CUDA
 * kernels of bitsandbytes compute. */
#include "oracle/oracle.h"

#include <math.h>

/* gnorm_scale; 0 stands for 1. */
static double gamma_of(const struct qm_oracle_hyper *h)
{
    return h->gnorm_scale != 0.0 ? h->gnorm_scale : 1.0;
}

static void step(double *theta, double *v, const double *grad, int64_t n,
                 const struct qm_oracle_hyper *h, int accumulates, int is_raw)
{
    for (int64_t i = 0; i < n; i++) {
        double d = gamma_of(h) * grad[i];
        if (h->weight_decay != 0.0)
            d = d + h->weight_decay * theta[i];
        if (accumulates)
            v[i] = v[i] + d * d;
        else
            v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * (d * d);
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

extern const struct qm_oracle qm_oracle_rmsprop, qm_oracle_rmsprop_raw;
extern const struct qm_oracle qm_oracle_adagrad, qm_oracle_adagrad_raw;

const struct qm_oracle qm_oracle_rmsprop = {
    .family = "rmsprop",
    .source = "Tieleman and Hinton 2012, lecture 6.5; decay as L2 term",
    .n_slots = 1,
    .slot = {"square_avg"},
    .step = rmsprop,
};
const struct qm_oracle qm_oracle_rmsprop_raw = {
    .family = "rmsprop_raw",
    .source = "the same, raw gradient divided: bitsandbytes csrc/kernels.cu",
    .n_slots = 1,
    .slot = {"square_avg"},
    .step = rmsprop_raw,
};
const struct qm_oracle qm_oracle_adagrad = {
    .family = "adagrad",
    .source = "Duchi, Hazan, Singer, JMLR 12 (2011), diagonal form; decay as L2 term",
    .n_slots = 1,
    .slot = {"sum"},
    .step = adagrad,
};
const struct qm_oracle qm_oracle_adagrad_raw = {
    .family = "adagrad_raw",
    .source = "the same, raw gradient divided: bitsandbytes csrc/kernels.cu",
    .n_slots = 1,
    .slot = {"sum"},
    .step = adagrad_raw,
};
