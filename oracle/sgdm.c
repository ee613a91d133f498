/* sgdm.c - SGD with momentum in double, in PyTorch's form.
 *
 *   d <- g + lambda theta
 *   b <- d at t = 1,  mu b + (1 - tau) d afterwards     (untouched when mu = 0)
 *   d <- d + mu b (nesterov)  or  b
 *   theta <- theta - lr d
 *
 * The first buffer is d itself, so dampening tau does not act at t = 1; the buffer is not an
 * average: it settles at g / (1 - mu). */
#include "oracle/oracle.h"

static void step(double *theta, double *const *slot, const double *grad, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    int64_t n = rows * cols;
    double mu = h->momentum, tau = h->dampening, sign = h->maximize ? -1.0 : 1.0;
    double *b = slot[0];

    for (int64_t i = 0; i < n; i++) {
        double d = sign * grad[i];
        if (h->weight_decay != 0.0)
            d = d + h->weight_decay * theta[i];
        if (mu != 0.0) {
            b[i] = t == 1 ? d : mu * b[i] + (1.0 - tau) * d;
            d = h->nesterov ? d + mu * b[i] : b[i];
        }
        theta[i] = theta[i] - h->lr * d;
    }
}

extern const struct qm_oracle qm_oracle_sgdm;
const struct qm_oracle qm_oracle_sgdm = {
    .family = "sgdm",
    .source = "PyTorch torch/optim/sgd.py; Sutskever et al., ICML 2013, equations 1 to 4",
    .n_slots = 1,
    .slot = {"momentum_buffer"},
    .step = step,
};
