/* sgdm.c - SGD with momentum in double, in PyTorch's form, and its error bound.
 *
 *   d <- g + lambda theta
 *   b <- d at t = 1,  mu b + (1 - tau) d afterwards     (untouched when mu = 0)
 *   d <- d + mu b (nesterov)  or  b
 *   theta <- theta - lr d
 *
 * The first buffer is d itself, so dampening tau does not act at t = 1; the buffer is not an
 * average: it settles at g / (1 - mu). */
#include "oracle/bound/bound.h"

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

/* The bound follows the formula line by line. */
static void element(const void *scalars, struct qm_bound_element *at)
{
    const struct qm_bound_step *b = scalars;
    const struct qm_oracle_hyper *h = b->h;
    struct qm_ball p = qm_ball_exact(at->p), d = qm_ball_exact(h->maximize ? -at->g : at->g);
    struct qm_ball mu = qm_ball_scalar(h->momentum);
    at->e[0] = 0.0;
    if (h->weight_decay != 0.0)
        d = qm_ball_add(d, qm_ball_mul(qm_ball_scalar(h->weight_decay), p));
    if (h->momentum != 0.0) {
        struct qm_ball buffer = d;
        if (b->t > 1)
            buffer = qm_ball_add(qm_ball_mul(qm_ball_scalar(1.0 - h->dampening), d),
                                 qm_ball_mul(mu, at->old[0]));
        buffer.x = at->want[0];
        at->e[0] = buffer.e;
        d = h->nesterov ? qm_ball_add(d, qm_ball_mul(mu, buffer)) : buffer;
    }
    at->e_p = qm_ball_add(p, qm_ball_negated(qm_ball_mul(qm_ball_scalar(h->lr), d))).e;
}

static qm_status bound(const struct qm_bound_step *b)
{
    qm_bound_elements(b, 1, b, element);
    return QM_OK;
}

extern const struct qm_oracle qm_oracle_sgdm;
const struct qm_oracle qm_oracle_sgdm = {
    .family = "sgdm",
    .source = "PyTorch torch/optim/sgd.py; Sutskever et al., ICML 2013, equations 1 to 4",
    .n_slots = 1,
    .slot = {"momentum_buffer"},
    .step = step,
    .bound = bound,
};
