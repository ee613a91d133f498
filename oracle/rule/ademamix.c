/* ademamix.c - AdEMAMix in double, and its error bound.
 *
 *   m1 <- beta1 m1 + (1 - beta1) g
 *   m2 <- beta3(t) m2 + (1 - beta3(t)) g
 *   nu <- beta2 nu + (1 - beta2) g^2
 *   theta <- theta - lr ((m1hat + alpha(t) m2) / (sqrt(nuhat) + eps) + lambda theta)
 *
 * with m1hat = m1 / (1 - beta1^t), nuhat = nu / (1 - beta2^t), g multiplied by gnorm_scale, and
 *
 *   alpha(t) = min(alpha t / T_alpha, alpha)
 *   beta3(t) = min(exp(ln beta1 ln beta3 / ((1 - t/T) ln beta3 + (t/T) ln beta1)), beta3)
 *
 * (T is T_beta3), or alpha and beta3 themselves where T_alpha and T_beta3 are 0.  The family
 * ademamix_after decays after the step, theta <- (1 - lr lambda) theta; where g is not finite it
 * leaves theta as it is and sets the three moments to 0. */
#include "oracle/bound/bound.h"

#include <math.h>

static double alpha_at(const struct qm_oracle_hyper *h, int64_t t)
{
    return h->t_alpha > 0.0 ? fmin(h->alpha * (double)t / h->t_alpha, h->alpha) : h->alpha;
}

static double beta3_at(const struct qm_oracle_hyper *h, int64_t t)
{
    if (!(h->t_beta3 > 0.0))
        return h->beta3;
    double share = (double)t / h->t_beta3, start = log(h->beta1), end = log(h->beta3);
    return fmin(exp(start * end / ((1.0 - share) * end + share * start)), h->beta3);
}

static void moments(double *const *slot, int64_t i, double g, const struct qm_oracle_hyper *h,
                    double beta3)
{
    slot[0][i] = h->beta1 * slot[0][i] + (1.0 - h->beta1) * g;
    slot[1][i] = beta3 * slot[1][i] + (1.0 - beta3) * g;
    slot[2][i] = h->beta2 * slot[2][i] + (1.0 - h->beta2) * (g * g);
}

static double direction(double *const *slot, int64_t i, const struct qm_oracle_hyper *h, int64_t t)
{
    double m1_hat = slot[0][i] / qm_oracle_correction(h->beta1, t);
    double nu_hat = slot[2][i] / qm_oracle_correction(h->beta2, t);
    return (m1_hat + alpha_at(h, t) * slot[1][i]) / (sqrt(nu_hat) + h->eps);
}

static void step(double *theta, double *const *slot, const double *grad, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    double beta3 = beta3_at(h, t);
    for (int64_t i = 0; i < rows * cols; i++) {
        moments(slot, i, qm_oracle_gnorm_scale(h) * grad[i], h, beta3);
        /* The decay stands apart, so that lr lambda = 1 leaves the step of a large theta. */
        theta[i] = (1.0 - h->lr * h->weight_decay) * theta[i] - h->lr * direction(slot, i, h, t);
    }
}

static void step_after(double *theta, double *const *slot, const double *grad, int64_t rows,
                       int64_t cols, const struct qm_oracle_hyper *h, int64_t t)
{
    double beta3 = beta3_at(h, t);
    for (int64_t i = 0; i < rows * cols; i++) {
        if (!isfinite(grad[i])) {
            slot[0][i] = slot[1][i] = slot[2][i] = 0.0;
            continue;
        }
        moments(slot, i, qm_oracle_gnorm_scale(h) * grad[i], h, beta3);
        theta[i] = theta[i] - h->lr * direction(slot, i, h, t);
        theta[i] = (1.0 - h->lr * h->weight_decay) * theta[i];
    }
}

/* The scalars of one step. */
struct scalars {
    const struct qm_bound_step *b;
    int after;
    struct qm_beta first, slow, second;
    struct qm_ball bc1, bc2, root_bc2, alpha, eps, lr, decay, gamma;
};

static void element(const void *scalars, struct qm_bound_element *at)
{
    const struct scalars *s = scalars;
    const struct qm_reorder *o = &s->b->reorder;
    struct qm_ball g = qm_ball_mul(s->gamma, qm_ball_exact(at->g)), p = qm_ball_exact(at->p);
    if (s->after && !isfinite(at->g)) {
        at->e_p = at->e[0] = at->e[1] = at->e[2] = 0.0;
        return;
    }
    struct qm_ball m1 = qm_bound_average(&s->first, at->old[0], g);
    struct qm_ball m2 = qm_bound_average(&s->slow, at->old[1], g);
    struct qm_ball nu = qm_bound_square(s->b, &s->second, at->old[2], g);
    m1.x = at->want[0];
    m2.x = at->want[1];
    nu.x = at->want[2];
    at->e[0] = m1.e;
    at->e[1] = m2.e;
    at->e[2] = nu.e;
    struct qm_ball top = qm_ball_add(qm_ball_div(o, m1, s->bc1), qm_ball_mul(s->alpha, m2));
    struct qm_ball root = qm_ball_sqrt(o, nu);
    struct qm_ball den = qm_ball_add(qm_ball_div(o, root, s->root_bc2), s->eps);
    struct qm_ball u = qm_ball_div(o, top, den), step = qm_ball_mul(s->lr, u);
    const struct qm_oracle_hyper *h = s->b->h;
    if (o->fold) {
        struct qm_ball hat = qm_ball_add(root, qm_ball_mul(s->eps, s->root_bc2));
        struct qm_ball lr_hat = qm_ball_mul(s->lr, s->root_bc2), quotient;
        quotient = qm_ball_add(qm_ball_sqrt(o, qm_ball_div(o, nu, s->bc2)), s->eps);
        u = qm_ball_either(u, qm_ball_div(o, top, quotient));
        step = qm_ball_either(step, qm_ball_mul(s->lr, u));
        step = qm_ball_either(step, qm_ball_div(o, qm_ball_mul(s->lr, top), den));
        step = qm_ball_either(step, qm_ball_mul(lr_hat, qm_ball_div(o, top, hat)));
        step = qm_ball_either(step, qm_ball_div(o, qm_ball_mul(lr_hat, top), hat));
    }
    step = qm_ball_negated(step);
    if (s->after) {
        p = qm_bound_decayed(s->b, qm_ball_add(p, step), s->decay, h->lr, h->weight_decay);
        qm_bound_param(at, p);
        return;
    }
    struct qm_ball kept = qm_bound_decayed(s->b, p, s->decay, h->lr, h->weight_decay);
    kept = qm_ball_add(kept, step);
    if (o->fold && h->weight_decay != 0.0) {
        u = qm_ball_add(u, qm_ball_mul(qm_ball_scalar(h->weight_decay), p));
        kept = qm_ball_either(kept, qm_ball_add(p, qm_ball_negated(qm_ball_mul(s->lr, u))));
    }
    qm_bound_param(at, kept);
}

/* sqrt(1 - beta2^t): formed in double and rounded once, or the float32 root of a float32. */
static struct qm_ball root_of(const struct qm_bound_step *b, struct qm_ball bc2)
{
    double r = sqrt(bc2.x);
    if (b->order & QM_ORDER_cuda || qm_is_float(r))
        return qm_ball_sqrt(&b->reorder, bc2);
    return qm_ball_rounded(r, 0.5 * bc2.e / r, 0.0);
}

static qm_status bound(const struct qm_bound_step *b, int after)
{
    const struct qm_oracle_hyper *h = b->h;
    struct scalars s = {.b = b, .after = after};
    double beta3 = beta3_at(h, b->t);
    struct qm_ball bc1 = qm_bound_correction(b, h->beta1);
    s.first = qm_bound_beta(b, h->beta1, 0);
    s.second = qm_bound_beta(b, h->beta2, 0);
    s.slow = qm_bound_beta(b, beta3, 0);
    if (h->t_beta3 > 0.0) { /* the error of logarithms and an exponential in double */
        s.slow.beta.e += 0x1p-49;
        s.slow.weight.e += 0x1p-49;
    }
    s.bc1 = bc1.e == 0.0 || b->order & QM_ORDER_cuda ? bc1 : qm_ball_rounded(bc1.x, bc1.e, 0.0);
    s.bc2 = qm_bound_correction(b, h->beta2);
    s.root_bc2 = root_of(b, s.bc2);
    if (b->reorder.fold && !qm_is_float(s.bc2.x))
        s.bc2 = qm_ball_rounded(s.bc2.x, s.bc2.e, 0.0);
    s.alpha = qm_ball_scalar(alpha_at(h, b->t));
    s.eps = qm_ball_scalar(h->eps);
    s.lr = qm_ball_scalar(h->lr);
    s.decay = qm_bound_one_minus(b, h->lr, h->weight_decay);
    s.gamma = qm_ball_scalar(qm_oracle_gnorm_scale(h));
    qm_bound_elements(b, 3, &s, element);
    return QM_OK;
}

static qm_status plain_bound(const struct qm_bound_step *b) { return bound(b, 0); }
static qm_status after_bound(const struct qm_bound_step *b) { return bound(b, 1); }

extern const struct qm_oracle qm_oracle_ademamix, qm_oracle_ademamix_after;

const struct qm_oracle qm_oracle_ademamix = {
    .family = "ademamix",
    .source = "arXiv:2409.03137, algorithm 1 and the schedulers of section 3",
    .n_slots = 3,
    .slot = {"exp_avg", "exp_avg_slow", "exp_avg_sq"},
    .step = step,
    .bound = plain_bound,
};
const struct qm_oracle qm_oracle_ademamix_after = {
    .family = "ademamix_after",
    .source = "the same, the decay last: bitsandbytes csrc/kernels.cu",
    .n_slots = 3,
    .slot = {"exp_avg", "exp_avg_slow", "exp_avg_sq"},
    .step = step_after,
    .bound = after_bound,
};
