/* radam.c - RAdam in double, Adam with a rectified learning rate; its error bound.
 *
 *   g     <- g + lambda theta            (radam)     theta <- (1 - lr lambda) theta      (radamw)
 *   m     <- beta1 m + (1 - beta1) g,    mhat = m / (1 - beta1^t)
 *   v     <- beta2 v + (1 - beta2) g^2
 *   L     = 2 / (1 - beta2) - 1,         R = L - 2 t beta2^t / (1 - beta2^t)
 *   theta <- theta - lr mhat r sqrt(1 - beta2^t) / (sqrt(v) + eps)    where R > 5
 *   theta <- theta - lr mhat                                          elsewhere
 *   r     = sqrt((R - 4) (R - 2) L / ((L - 4) (L - 2) R))
 *
 * The paper's limit is R > 4; PyTorch's is 5.  maximize negates g. */
#include "oracle/bound/bound.h"

#include <math.h>

/* R and L. */
struct length {
    double now, limit;
};

static struct length length_of(double beta2, int64_t t)
{
    double limit = 2.0 / (1.0 - beta2) - 1.0, power = exp((double)t * log1p(beta2 - 1.0));
    return (struct length){limit - 2.0 * (double)t * power / qm_oracle_correction(beta2, t), limit};
}

static double rectification(struct length r)
{
    return sqrt((r.now - 4.0) * (r.now - 2.0) * r.limit /
                ((r.limit - 4.0) * (r.limit - 2.0) * r.now));
}

static void step(double *theta, double *const *slot, const double *grad, int64_t n,
                 const struct qm_oracle_hyper *h, int64_t t, int coupled)
{
    double *m = slot[0], *v = slot[1], lambda = h->weight_decay;
    struct length r = length_of(h->beta2, t);
    for (int64_t i = 0; i < n; i++) {
        double g = h->maximize ? -grad[i] : grad[i], rate = 1.0;
        if (coupled && lambda != 0.0)
            g = g + lambda * theta[i];
        if (!coupled)
            theta[i] = (1.0 - h->lr * lambda) * theta[i];
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * g;
        v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * g * g;
        if (r.now > 5.0)
            rate = rectification(r) *
                   (sqrt(qm_oracle_correction(h->beta2, t)) / (sqrt(v[i]) + h->eps));
        theta[i] = theta[i] - h->lr * (m[i] / qm_oracle_correction(h->beta1, t)) * rate;
    }
}

/* ---- its bound ------------------------------------------------------------------------------- */

struct scalars {
    const struct qm_bound_step *b;
    int coupled, rectified, is_open; /* is_open: R may lie on either side of 5 */
    struct qm_beta m, v;
    struct qm_ball bc1, root_bc2, eps, wd, decay, lr, rect;
    struct qm_ball rate, plain; /* of QM_ORDER_foreach: 0 in steps of the other kind */
};

/* A scalar of relative error e in double, rounded to float32. */
static struct qm_ball host(double x, double e)
{
    if (x == 0.0)
        return qm_ball_exact(x);
    return qm_ball_rounded(x, fabs(x) * (e + 0x1p-48), QM_ETA);
}

/* R is a difference of numbers of the size of L, whose second divides by 1 - beta2^t: an error of
 * 2^-53 there is 2^-53 / (1 - beta2^t) of itself. */
static double length_error(struct length r, double beta2, int64_t t)
{
    double second = r.limit - r.now, bc2 = qm_oracle_correction(beta2, t);
    return 0x1p-49 * (r.limit + fabs(second) * (1.0 + 1.0 / bc2));
}

/* What four products of m and the factors may lose where they are denormal: each rounds by QM_ETA,
 * which the factors that are left multiply, at most those above 1. */
static double denormal_products(const struct scalars *s, struct qm_ball den)
{
    const double factor[] = {1.0 / s->bc1.x, s->lr.x, s->rect.x, s->root_bc2.x,
                             1.0 / fmax(den.x - den.e, 0.0)};
    double most = 1.0;
    for (size_t i = 0; i < sizeof factor / sizeof *factor; i++)
        most *= fmax(factor[i], 1.0);
    return 4.0 * QM_ETA * most * (1.0 + 0x1p-20);
}

/* The step in the source's order for one tensor; with reorder.fold in all others, too.  In every
 * order of the factors one product or quotient rounds after another, so the order of the source
 * stands for all; a root or quotient that another order needs is in the same number. */
static struct qm_ball single(const struct scalars *s, struct qm_ball m, struct qm_ball v)
{
    const struct qm_reorder *o = &s->b->reorder;
    struct qm_ball step = qm_ball_mul(qm_ball_div(o, m, s->bc1), s->lr);
    if (o->fold)
        step = qm_ball_either(step, qm_ball_div(o, qm_ball_mul(m, s->lr), s->bc1));
    if (!s->rectified)
        return step;
    struct qm_ball den = qm_ball_add(qm_ball_sqrt(o, v), s->eps);
    struct qm_ball rate = qm_ball_div(o, qm_ball_exact(1.0), den);
    struct qm_ball rooted = qm_ball_mul(step, s->root_bc2), any_order;
    any_order = qm_ball_mul(qm_ball_mul(step, qm_ball_mul(rate, s->root_bc2)), s->rect);
    if (o->fold) { /* one factor or both before the division: the product may be denormal */
        struct qm_ball of_rect = qm_ball_div(o, qm_ball_mul(step, s->rect), den);
        struct qm_ball of_root = qm_ball_div(o, rooted, den);
        struct qm_ball of_both = qm_ball_div(o, qm_ball_mul(rooted, s->rect), den);
        any_order = qm_ball_either(any_order, qm_ball_mul(of_rect, s->root_bc2));
        any_order = qm_ball_either(any_order, qm_ball_mul(of_root, s->rect));
        any_order = qm_ball_either(any_order, of_both);
        any_order.e += denormal_products(s, den);
    }
    return any_order;
}

/* 1 / (den / rate) of a den that is certainly above 0.  Where the quotient may overflow, or the
 * rate be rounded to 0, which makes it infinite, the result lies between 0 and what it is without
 * that: rate / den with an error of two roundings. */
static struct qm_ball inverse_quotient(const struct qm_reorder *o, struct qm_ball den,
                                       struct qm_ball rate)
{
    if (qm_ball_is_zero(rate))
        return qm_ball_exact(0.0);
    struct qm_ball quotient = qm_ball_div(o, den, rate);
    if (quotient.e < HUGE_VAL)
        return qm_ball_div(o, qm_ball_exact(1.0), quotient);
    double x = rate.x / den.x, most = (rate.x + rate.e) / (den.x - den.e);
    double roundings = (4.0 + 4.0 * o->div_ulp) * QM_U * most;
    return qm_ball_rounded(x, fmax(x, most - x) + roundings, QM_ETA);
}

/* The step of QM_ORDER_foreach, and whether its factor is a NaN: 0 / 0 or v a NaN.  A NaN that is
 * not certain gives a step without a bound. */
static struct qm_ball foreach(const struct scalars *s, struct qm_ball m, struct qm_ball v,
                              int *is_nan)
{
    const struct qm_reorder *o = &s->b->reorder;
    struct qm_ball den = qm_ball_add(qm_ball_sqrt(o, v), s->eps), factor;
    *is_nan = isnan(v.x) || (qm_ball_is_zero(den) && qm_ball_is_zero(s->rate));
    if (isinf(v.x)) /* 1 / Inf */
        factor = qm_ball_exact(0.0);
    else if (den.x - den.e > 0.0)
        factor = inverse_quotient(o, den, s->rate);
    else if (qm_ball_is_zero(den)) /* 1 / 0, which m of 0 makes a NaN */
        factor = qm_ball_div(o, qm_ball_exact(1.0), den);
    else if (s->eps.x - s->eps.e > 0.0 && qm_ball_is_zero(s->rate) && !s->v.either)
        factor = qm_ball_exact(0.0); /* v may overflow: 1 / (v / 0) is 0 all the same */
    else
        factor = (struct qm_ball){0.0, HUGE_VAL};
    return qm_ball_mul(m, qm_ball_add(factor, s->plain));
}

static void element(const void *scalars, struct qm_bound_element *at)
{
    const struct scalars *s = scalars;
    const struct qm_oracle_hyper *h = s->b->h;
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
    struct qm_ball step;
    int is_nan = 0;
    if (!(s->b->order & QM_ORDER_foreach)) {
        step = single(s, m, v);
    } else {
        step = foreach(s, m, v, &is_nan);
        if (s->b->reorder.fold) {
            step =
                is_nan ? (struct qm_ball){step.x, HUGE_VAL} : qm_ball_either(step, single(s, m, v));
            is_nan = 0;
        }
    }
    if (is_nan)
        at->p_want = (double)NAN;
    double decay = s->coupled ? 0.0 : h->weight_decay;
    if (s->is_open)
        at->e_p = HUGE_VAL;
    else
        qm_bound_param(at, qm_bound_stepped(s->b, qm_ball_exact(at->p), p, h->lr, decay, step));
}

static qm_status bound(const struct qm_bound_step *b, int coupled)
{
    const struct qm_oracle_hyper *h = b->h;
    struct length r = length_of(h->beta2, b->t);
    double e = length_error(r, h->beta2, b->t);
    struct qm_ball bc1 = qm_bound_correction(b, h->beta1), bc2 = qm_bound_correction(b, h->beta2);
    struct scalars s = {.b = b,
                        .coupled = coupled,
                        .rectified = r.now > 5.0,
                        .is_open = fabs(r.now - 5.0) <= e,
                        .m = qm_bound_beta(b, h->beta1, 1),
                        .v = qm_bound_beta(b, h->beta2, 0),
                        .bc1 = host(bc1.x, bc1.e / bc1.x),
                        .root_bc2 = host(sqrt(bc2.x), bc2.e / bc2.x),
                        .eps = qm_ball_scalar(h->eps),
                        .wd = qm_ball_scalar(h->weight_decay),
                        .decay = qm_bound_one_minus(b, h->lr, h->weight_decay),
                        .lr = qm_ball_scalar(h->lr)};
    double off = bc1.e / bc1.x;
    if (s.rectified && !s.is_open) {
        double rect = rectification(r), rect_off = 3.0 * e / (r.now - 4.0 - e);
        s.rect = host(rect, rect_off);
        s.rate = host(sqrt(bc2.x) * (h->lr * rect / bc1.x), off + bc2.e / bc2.x + rect_off);
    } else {
        s.plain = host(h->lr / bc1.x, off);
    }
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
FAMILY(radam, 1)
FAMILY(radamw, 0)
#undef FAMILY

extern const struct qm_oracle qm_oracle_radam, qm_oracle_radamw;

const struct qm_oracle qm_oracle_radam = {
    .family = "radam",
    .source = "arXiv:1908.03265, algorithm 2, with the limit 5 and the L2 term of PyTorch radam.py",
    .n_slots = 2,
    .slot = {"exp_avg", "exp_avg_sq"},
    .step = radam_step,
    .bound = radam_bound,
};
const struct qm_oracle qm_oracle_radamw = {
    .family = "radamw",
    .source = "the same with decoupled decay before the step (PyTorch decoupled_weight_decay)",
    .n_slots = 2,
    .slot = {"exp_avg", "exp_avg_sq"},
    .step = radamw_step,
    .bound = radamw_bound,
};
