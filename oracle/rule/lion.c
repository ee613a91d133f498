/* lion.c - Lion in double, sign(NaN) = 0.
 *
 *   g     <- gamma g                                    gamma is gnorm_scale; 0 stands for 1
 *   theta <- (1 - lr lambda) theta
 *   u     <- sign(beta1 m + (1 - beta1) g),  sign(0) = sign(NaN) = 0
 *   theta <- theta - lr u
 *   m     <- beta2 m + (1 - beta2) g */
#include "oracle/bound/bound.h"

static double sign(double x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0; }

static void step(double *theta, double *const *slot, const double *grad, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    int64_t n = rows * cols;
    double *m = slot[0], gamma = qm_oracle_gnorm_scale(h);
    (void)t;
    for (int64_t i = 0; i < n; i++)
        theta[i] = (1.0 - h->lr * h->weight_decay) * theta[i];
    for (int64_t i = 0; i < n; i++)
        theta[i] = theta[i] - h->lr * sign(h->beta1 * m[i] + (1.0 - h->beta1) * (gamma * grad[i]));
    for (int64_t i = 0; i < n; i++)
        m[i] = h->beta2 * m[i] + (1.0 - h->beta2) * (gamma * grad[i]);
}

extern const struct qm_oracle qm_oracle_lion;
const struct qm_oracle qm_oracle_lion = {
    .family = "lion",
    .source = "arXiv:2302.06675, algorithm 2; sign(NaN) = 0 as google/automl lion_pytorch.py",
    .n_slots = 1,
    .slot = {"exp_avg"},
    .step = step,
    .bound = qm_bound_lion,
};
