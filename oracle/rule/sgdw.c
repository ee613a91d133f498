/* sgdw.c - SGD in double with a momentum that starts at 0, decoupled or coupled decay.
 *
 *   theta <- (1 - eta lambda) theta      (family sgdw;  with decouple_lr: eta / eta_0 for eta)
 *   g     <- g + lambda theta            (family sgd_zero, instead)
 *   m     <- mu m + (1 - tau) g
 *   theta <- theta - eta (g + mu m)      (nesterov)   or   theta - eta m
 *
 * Unlike in PyTorch, the first buffer is (1 - tau) g: dampening acts at t = 1, too.  Without
 * momentum tau is ignored: theta <- theta - eta g. */
#include "oracle/bound/bound.h"

static void any_step(int decoupled, double *theta, double *m, const double *grad, int64_t n,
                     const struct qm_oracle_hyper *h)
{
    double mu = h->momentum, tau = mu != 0.0 ? h->dampening : 0.0, eta = h->lr,
           lambda = h->weight_decay,
           times = !h->decouple_lr        ? eta
                   : h->initial_lr != 0.0 ? eta / h->initial_lr
                                          : 1.0;
    for (int64_t i = 0; i < n; i++) {
        double g = h->maximize ? -grad[i] : grad[i];
        if (decoupled)
            theta[i] = (1.0 - times * lambda) * theta[i];
        else
            g = g + lambda * theta[i];
        m[i] = mu * m[i] + (1.0 - tau) * g;
        theta[i] = theta[i] - eta * (h->nesterov ? g + mu * m[i] : m[i]);
    }
}

static void step(double *theta, double *const *slot, const double *grad, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    (void)t;
    any_step(1, theta, slot[0], grad, rows * cols, h);
}

static void coupled_step(double *theta, double *const *slot, const double *grad, int64_t rows,
                         int64_t cols, const struct qm_oracle_hyper *h, int64_t t)
{
    (void)t;
    any_step(0, theta, slot[0], grad, rows * cols, h);
}

static void element(const struct qm_bound_step *b, int decoupled, struct qm_bound_element *at)
{
    const struct qm_oracle_hyper *h = b->h;
    struct qm_ball p = qm_ball_exact(at->p), g = qm_ball_exact(h->maximize ? -at->g : at->g);
    struct qm_ball mu = qm_ball_scalar(h->momentum);
    struct qm_ball rest = qm_ball_scalar(h->momentum != 0.0 ? 1.0 - h->dampening : 1.0);
    if (decoupled)
        p = qm_bound_decayed(b, p, qm_bound_one_minus(b, qm_bound_decay_rate(h), h->weight_decay),
                             qm_bound_decay_rate(h), h->weight_decay);
    else
        g = qm_ball_add(g, qm_ball_mul(qm_ball_scalar(h->weight_decay), p));
    struct qm_ball m = qm_ball_add(qm_ball_mul(mu, at->old[0]), qm_ball_mul(rest, g));
    m.x = at->want[0];
    at->e[0] = m.e;
    if (h->nesterov)
        m = qm_ball_add(g, qm_ball_mul(mu, m));
    double decay = decoupled ? h->weight_decay : 0.0;
    at->e_p = qm_bound_stepped(b, qm_ball_exact(at->p), p, qm_bound_decay_rate(h), decay,
                               qm_ball_mul(m, qm_ball_scalar(h->lr)))
                  .e;
}

static void sgdw_element(const void *b, struct qm_bound_element *at) { element(b, 1, at); }
static void sgd_zero_element(const void *b, struct qm_bound_element *at) { element(b, 0, at); }

static qm_status sgdw_bound(const struct qm_bound_step *b)
{
    qm_bound_elements(b, 1, b, sgdw_element);
    return QM_OK;
}

static qm_status sgd_zero_bound(const struct qm_bound_step *b)
{
    qm_bound_elements(b, 1, b, sgd_zero_element);
    return QM_OK;
}

extern const struct qm_oracle qm_oracle_sgdw, qm_oracle_sgd_zero;
const struct qm_oracle qm_oracle_sgdw = {
    .family = "sgdw",
    .source = "arXiv:1711.05101, algorithm 1, decay times lr as in PyTorch's AdamW",
    .n_slots = 1,
    .slot = {"momentum_buffer"},
    .step = step,
    .bound = sgdw_bound,
};
const struct qm_oracle qm_oracle_sgd_zero = {
    .family = "sgd_zero",
    .source = "Sutskever et al., ICML 2013, equations 1 to 4, in PyTorch's form from a zero buffer",
    .n_slots = 1,
    .slot = {"momentum_buffer"},
    .step = coupled_step,
    .bound = sgd_zero_bound,
};
