/* adam.c - Adam in double with coupled weight decay (an L2 term of the gradient).
 *
 *   g     <- g + lambda theta
 *   m     <- beta1 m + (1 - beta1) g
 *   v     <- beta2 v + (1 - beta2) g^2
 *   theta <- theta - lr mhat / (sqrt(vhat) + eps)
 *
 * with mhat = m / (1 - beta1^t) and vhat = v / (1 - beta2^t).
 *
 * maximize negates g before decay is added; amsgrad takes vhat from the running maximum of v. */
#include "oracle/bound/bound.h"

#include <math.h>
#include <stddef.h>

static void step(double *theta, double *const *slot, const double *grad, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    int64_t n = rows * cols;
    double beta1 = h->beta1, beta2 = h->beta2, sign = h->maximize ? -1.0 : 1.0;
    double *m = slot[0], *v = slot[1], *top = h->amsgrad ? slot[2] : NULL;

    for (int64_t i = 0; i < n; i++) {
        double g = sign * grad[i];
        if (h->weight_decay !=
            0.0) /* without decay a theta that is not finite stays out of the moments */
            g = g + h->weight_decay * theta[i];
        m[i] = beta1 * m[i] + (1.0 - beta1) * g;
        v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
    }
    for (int64_t i = 0; top && i < n; i++)
        top[i] = v[i] > top[i] || isnan(v[i]) ? v[i] : top[i];
    for (int64_t i = 0; i < n; i++) {
        double m_hat = m[i] / qm_oracle_correction(beta1, t);
        double root = sqrt(top ? top[i] : v[i]) / sqrt(qm_oracle_correction(beta2, t));
        theta[i] = theta[i] - h->lr * (m_hat / (root + h->eps));
    }
}

extern const struct qm_oracle qm_oracle_adam;
const struct qm_oracle qm_oracle_adam = {
    .family = "adam",
    .source = "arXiv:1412.6980, algorithm 1 (L2 term as PyTorch adam.py); "
              "amsgrad: arXiv:1904.09237, algorithm 2",
    .n_slots = 2,
    .has_adam_states = 1,
    .slot = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .step = step,
    .bound = qm_bound_adam,
};
