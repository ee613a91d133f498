/* momentum.c - SGD with momentum in double, without dampening or Nesterov's form; its error bound.
 *
 *   d <- gamma g + lambda theta
 *   b <- d at t = 1,  mu b + d afterwards
 *   theta <- theta - lr b
 *
 * gamma (gnorm_scale) is the factor on the gradient that clipping by percentiles of the gradient
 * norm would apply; 1 without clipping. */
#include "oracle/bound/bound.h"

static void step(double *theta, double *const *slot, const double *grad, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    int64_t n = rows * cols;
    double mu = h->momentum, lambda = h->weight_decay;
    double *b = slot[0];

    for (int64_t i = 0; i < n; i++) {
        double d = qm_oracle_gnorm_scale(h) * grad[i];
        if (lambda != 0.0)
            d = d + lambda * theta[i];
        b[i] = t == 1 ? d : mu * b[i] + d;
        theta[i] = theta[i] - h->lr * b[i];
    }
}

static void element(const void *scalars, struct qm_bound_element *at)
{
    const struct qm_bound_step *b = scalars;
    struct qm_ball buffer = qm_bound_l2_gradient(b, at->g, at->p), step;
    if (qm_bound_is_zero_l2(b, at, 1))
        return;
    if (b->t > 1)
        buffer = qm_ball_add(qm_ball_mul(qm_ball_scalar(b->h->momentum), at->old[0]), buffer);
    buffer.x = at->want[0];
    at->e[0] = buffer.e;
    step = qm_ball_mul(qm_ball_scalar(b->h->lr), buffer);
    at->e_p = qm_ball_add(qm_ball_exact(at->p), qm_ball_negated(step)).e;
}

static qm_status bound(const struct qm_bound_step *b)
{
    qm_bound_elements(b, 1, b, element);
    return QM_OK;
}

extern const struct qm_oracle qm_oracle_momentum;
const struct qm_oracle qm_oracle_momentum = {
    .family = "momentum",
    .source = "Polyak 1964, equation 9, with the learning rate outside the sum; bitsandbytes "
              "optim/sgd.py",
    .n_slots = 1,
    .slot = {"momentum_buffer"},
    .step = step,
    .bound = bound,
};
