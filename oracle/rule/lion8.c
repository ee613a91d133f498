/* lion8.c - Lion in double with the decay relative to the initial learning rate.
 *
 *   c     <- beta1 m + (1 - beta1) g
 *   theta <- (1 - lambda eta / eta_0) theta - eta sign(c)        sign(0) = 0, sign(NaN) = 0
 *   m     <- beta2 m + (1 - beta2) g
 *
 * eta is lr, eta_0 initial_lr.  The paper decays by lambda eta, which is eta_0 = 1; eta_0 = 0
 * stands for eta itself.  maximize negates g. */
#include "oracle/bound/bound.h"

static void step(double *theta, double *const *slot, const double *grad, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    int64_t n = rows * cols;
    double *m = slot[0], eta = h->lr, ratio = h->initial_lr != 0.0 ? eta / h->initial_lr : 1.0;
    (void)t;

    for (int64_t i = 0; i < n; i++) {
        double g = h->maximize ? -grad[i] : grad[i];
        double c = h->beta1 * m[i] + (1.0 - h->beta1) * g;
        double sign = c > 0.0 ? 1.0 : c < 0.0 ? -1.0 : 0.0;
        theta[i] = (1.0 - h->weight_decay * ratio) * theta[i] - eta * sign;
        m[i] = h->beta2 * m[i] + (1.0 - h->beta2) * g;
    }
}

extern const struct qm_oracle qm_oracle_lion8;
const struct qm_oracle qm_oracle_lion8 = {
    .family = "lion8",
    .source = "arXiv:2302.06675, algorithm 2; decay as llm-foundry's DecoupledLionW_8bit scales it",
    .n_slots = 1,
    .slot = {"exp_avg"},
    .step = step,
    .bound = qm_bound_lion8,
};
