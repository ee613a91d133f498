/* nadam.c - NAdam in double, Adam with Nesterov's momentum; its error bound.
 *
 *   mu_t  = beta1 (1 - 0.96^(t psi) / 2),   M_t = mu_1 mu_2 ... mu_t
 *   g     <- g + lambda theta            (nadam)     theta <- (1 - lr lambda) theta      (nadamw)
 *   m     <- beta1 m + (1 - beta1) g
 *   v     <- beta2 v + (1 - beta2) g^2
 *   theta <- theta - lr [(1 - mu_t) / (1 - M_t) g + mu_{t+1} / (1 - M_{t+1}) m]
 *                    / (sqrt(v / (1 - beta2^t)) + eps)
 *
 * psi is momentum_decay; maximize negates g. */
#include "oracle/bound/bound.h"

#include <math.h>

static double mu_at(const struct qm_oracle_hyper *h, int64_t t)
{
    return h->beta1 * (1.0 - 0.5 * pow(0.96, (double)t * h->momentum_decay));
}

/* log M_t.  Where M_t is still above e^-60 after 2^20 steps, 0.96^(t psi) is below 2^-60 and mu is
 * beta1 from there on. */
static double log_product(const struct qm_oracle_hyper *h, int64_t t)
{
    enum { MOST = 1 << 20 };
    double sum = 0.0;
    int64_t i = 1;
    for (; i <= t && i <= MOST && sum > -60.0; i++)
        sum += log(mu_at(h, i));
    return sum > -60.0 ? sum + (double)(t - i + 1) * log1p(h->beta1 - 1.0) : sum;
}

static void step(double *theta, double *const *slot, const double *grad, int64_t n,
                 const struct qm_oracle_hyper *h, int64_t t, int coupled)
{
    double *m = slot[0], *v = slot[1], lambda = h->weight_decay, next = mu_at(h, t + 1);
    double along_g = (1.0 - mu_at(h, t)) / -expm1(log_product(h, t));
    double along_m = next / (1.0 - next * exp(log_product(h, t)));
    for (int64_t i = 0; i < n; i++) {
        double g = h->maximize ? -grad[i] : grad[i];
        if (coupled && lambda != 0.0)
            g = g + lambda * theta[i];
        if (!coupled)
            theta[i] = (1.0 - h->lr * lambda) * theta[i];
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * g;
        v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * g * g;
        double den = sqrt(v[i] / qm_oracle_correction(h->beta2, t)) + h->eps;
        theta[i] = theta[i] - h->lr * (along_g * g) / den - h->lr * (along_m * m[i]) / den;
    }
}

/* ---- its bound ------------------------------------------------------------------------------- */

struct scalars {
    const struct qm_bound_step *b;
    int coupled;
    struct qm_beta m, v;
    struct qm_ball bc2, eps, wd, decay, along_g, along_m; /* the last two with their factor lr */
};

/* A scalar of relative error e in double, rounded to float32. */
static struct qm_ball host(double x, double e)
{
    return qm_ball_rounded(x, fabs(x) * (e + 0x1p-48), QM_ETA);
}

/* The source keeps M_t as a float32 number: each step rounds mu_t and the product, so log M_t is
 * off by 2 t u at most, and M_t never exceeds 1. */
static double product_error(double log_m, int64_t t)
{
    double off = 2.0 * (double)t * QM_U * (1.0 + 0x1p-20), m = exp(log_m);
    return fmax(exp(fmin(0.0, log_m + off)) - m, m - exp(log_m - off)) + 0x1p-58;
}

static void element(const void *scalars, struct qm_bound_element *at)
{
    const struct scalars *s = scalars;
    const struct qm_oracle_hyper *h = s->b->h;
    const struct qm_reorder *o = &s->b->reorder;
    struct qm_ball p = qm_ball_exact(at->p), g = qm_ball_exact(h->maximize ? -at->g : at->g);
    if (s->coupled && h->weight_decay != 0.0)
        g = qm_ball_add(g, qm_ball_mul(s->wd, p));
    if (!s->coupled)
        p = qm_bound_decayed(s->b, p, s->decay, h->lr, h->weight_decay);
    struct qm_ball m = qm_bound_average(&s->m, at->old[0], g);
    struct qm_ball v = qm_bound_square(s->b, &s->v, at->old[1], g);
    m.x = at->want[0];
    v.x = at->want[1];
    at->e[0] = m.e;
    at->e[1] = v.e;
    struct qm_ball den = qm_ball_add(qm_ball_sqrt(o, qm_ball_div(o, v, s->bc2)), s->eps);
    struct qm_ball first = qm_ball_div(o, qm_ball_mul(s->along_g, g), den);
    struct qm_ball other = qm_ball_div(o, qm_ball_mul(s->along_m, m), den);
    if (o->fold) {
        first = qm_ball_either(first, qm_ball_mul(s->along_g, qm_ball_div(o, g, den)));
        other = qm_ball_either(other, qm_ball_mul(s->along_m, qm_ball_div(o, m, den)));
    }
    p = qm_ball_either(qm_ball_add(qm_ball_add(p, qm_ball_negated(first)), qm_ball_negated(other)),
                       qm_bound_stepped(s->b, qm_ball_exact(at->p), p, h->lr,
                                        s->coupled ? 0.0 : h->weight_decay,
                                        qm_ball_add(first, other)));
    qm_bound_param(at, p);
}

static qm_status bound(const struct qm_bound_step *b, int coupled)
{
    const struct qm_oracle_hyper *h = b->h;
    double log_m = log_product(h, b->t), e = product_error(log_m, b->t), next = mu_at(h, b->t + 1);
    double one = -expm1(log_m), two = 1.0 - next * exp(log_m);
    double off_g = one > e ? e / (one - e) : HUGE_VAL, off_m = two > e ? e / (two - e) : HUGE_VAL;
    struct qm_ball bc2 = qm_bound_correction(b, h->beta2);
    struct scalars s = {.b = b,
                        .coupled = coupled,
                        .m = qm_bound_beta(b, h->beta1, 1),
                        .v = qm_bound_beta(b, h->beta2, 0),
                        .bc2 = host(bc2.x, bc2.e / bc2.x),
                        .eps = qm_ball_scalar(h->eps),
                        .wd = qm_ball_scalar(h->weight_decay),
                        .decay = qm_bound_one_minus(b, h->lr, h->weight_decay),
                        .along_g = host(h->lr * (1.0 - mu_at(h, b->t)) / one, off_g),
                        .along_m = host(h->lr * next / two, off_m)};
    qm_bound_elements(b, 2, &s, element);
    return QM_OK;
}

#define FAMILY(name, coupled)                                                                     \
    static void name##_step(double *theta, double *const *slot, const double *grad, int64_t rows, \
                            int64_t cols, const struct qm_oracle_hyper *h, int64_t t)             \
    {                                                                                             \
        step(theta, slot, grad, rows *cols, h, t, coupled);                                       \
    }                                                                                             \
    static qm_status name##_bound(const struct qm_bound_step *b) { return bound(b, coupled); }
FAMILY(nadam, 1)
FAMILY(nadamw, 0)
#undef FAMILY

extern const struct qm_oracle qm_oracle_nadam, qm_oracle_nadamw;

const struct qm_oracle qm_oracle_nadam = {
    .family = "nadam",
    .source = "Dozat, ICLR 2016 workshop, algorithm 8, with its schedule of mu; L2 term: PyTorch",
    .n_slots = 2,
    .slot = {"exp_avg", "exp_avg_sq"},
    .step = nadam_step,
    .bound = nadam_bound,
};
const struct qm_oracle qm_oracle_nadamw = {
    .family = "nadamw",
    .source = "the same with decoupled decay before the step (PyTorch decoupled_weight_decay)",
    .n_slots = 2,
    .slot = {"exp_avg", "exp_avg_sq"},
    .step = nadamw_step,
    .bound = nadamw_bound,
};
