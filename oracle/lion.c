/* lion.c - Lion in double.
 *
 *   c     <- beta1 m + (1 - beta1) g
 *   theta <- theta - lr (sign(c) + lambda theta)
 *   m     <- beta2 m + (1 - beta2) g
 *
 * g carries the factor gnorm_scale; sign(0) = 0, and NaN has no direction. */
#include "oracle/oracle.h"

static void step(double *theta, double *const *slot, const double *grad, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    int64_t n = rows * cols;
    double *m = slot[0];
    (void)t;

    for (int64_t i = 0; i < n; i++) {
        double g = h->gnorm_scale * grad[i];
        double c = h->beta1 * m[i] + (1.0 - h->beta1) * g;
        double sign = c > 0.0 ? 1.0 : c < 0.0 ? -1.0 : 0.0;
        theta[i] = theta[i] - h->lr * (sign + h->weight_decay * theta[i]);
        m[i] = h->beta2 * m[i] + (1.0 - h->beta2) * g;
    }
}

extern const struct qm_oracle qm_oracle_lion;
const struct qm_oracle qm_oracle_lion = {
    .family = "lion",
    .source = "arXiv:2302.06675, program 1",
    .n_slots = 1,
    .slot = {"exp_avg"},
    .step = step,
};
