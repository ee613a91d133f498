/* adamw.c - AdamW in double: Adam with decoupled weight decay, the decay before the step.
 *
 *   theta <- (1 - lr lambda) theta
 *   m     <- beta1 m + (1 - beta1) g
 *   v     <- beta2 v + (1 - beta2) g^2
 *   theta <- theta - lr mhat / (sqrt(vhat) + eps)
 *
 * with mhat = m / (1 - beta1^t) and vhat = v / (1 - beta2^t).
 *
 * decouple_lr: the first line uses lr / lr_0 instead of lr, lr_0 = initial_lr the learning rate at
 * the start (lr_0 = 0 stands for lr itself).
 * maximize negates g; amsgrad takes vhat from the running maximum of the raw v. */
#include "oracle/bound/bound.h"

#include <math.h>
#include <stddef.h>

static void step(double *theta, double *const *slot, const double *grad, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    int64_t n = rows * cols;
    double beta1 = h->beta1, beta2 = h->beta2, sign = h->maximize ? -1.0 : 1.0;
    double *m = slot[0], *v = slot[1], *top = h->amsgrad ? slot[2] : NULL;

    double times = !h->decouple_lr ? h->lr : h->initial_lr != 0.0 ? h->lr / h->initial_lr : 1.0;
    for (int64_t i = 0; i < n; i++)
        theta[i] = (1.0 - times * h->weight_decay) * theta[i];
    for (int64_t i = 0; i < n; i++) {
        double g = sign * grad[i];
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

extern const struct qm_oracle qm_oracle_adamw;
const struct qm_oracle qm_oracle_adamw = {
    .family = "adamw",
    .source = "arXiv:1711.05101, algorithm 2 (decay before the step, times lr, as PyTorch "
              "adamw.py; or times "
              "lr / lr_0: FlashOptim's documentation); "
              "amsgrad: arXiv:1904.09237, algorithm 2",
    .n_slots = 2,
    .has_adam_states = 1,
    .slot = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .step = step,
    .bound = qm_bound_adamw,
};
