/* adamw_late_decay.c - AdamW in double with the decay after the step: the step decays, too.
 *
 *   m     <- beta1 m + (1 - beta1) g
 *   v     <- beta2 v + (1 - beta2) g^2
 *   theta <- (1 - lr lambda) (theta - lr mhat / (sqrt(vhat) + eps))
 *
 * with g multiplied by gnorm_scale, mhat = m / (1 - beta1^t), vhat = v / (1 - beta2^t).  Where g is
 * NaN or Inf: m <- 0, v <- 0, and theta stays. */
#include "oracle/bound/bound.h"

#include <math.h>

static void step(double *theta, double *const *slot, const double *grad, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    int64_t n = rows * cols;
    double beta1 = h->beta1, beta2 = h->beta2;
    double *m = slot[0], *v = slot[1];

    for (int64_t i = 0; i < n; i++) {
        double g = qm_oracle_gnorm_scale(h) * grad[i];
        if (!isfinite(grad[i])) {
            m[i] = v[i] = 0.0;
            continue;
        }
        m[i] = beta1 * m[i] + (1.0 - beta1) * g;
        v[i] = beta2 * v[i] + (1.0 - beta2) * (g * g);
        double m_hat = m[i] / qm_oracle_correction(beta1, t);
        double v_hat = v[i] / qm_oracle_correction(beta2, t);
        theta[i] = theta[i] - h->lr * (m_hat / (sqrt(v_hat) + h->eps));
        theta[i] = (1.0 - h->lr * h->weight_decay) * theta[i];
    }
}

extern const struct qm_oracle qm_oracle_adamw_after;
const struct qm_oracle qm_oracle_adamw_after = {
    .family = "adamw_after",
    .source = "arXiv:1711.05101, algorithm 2, the decay last: bitsandbytes csrc/kernels.cu",
    .n_slots = 2,
    .has_adam_states = 1,
    .slot = {"exp_avg", "exp_avg_sq"},
    .step = step,
    .bound = qm_bound_adamw_after,
};
