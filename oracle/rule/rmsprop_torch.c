/* rmsprop_torch.c - RMSprop and Adagrad in double in PyTorch's form, and their error bounds.
 *
 *   d <- g + lambda theta
 *   v <- beta2 v + (1 - beta2) d^2     RMSprop;     v <- v + d^2     Adagrad
 *   a <- beta2 a + (1 - beta2) d,  s = v - a^2          (centered; otherwise s = v, a stays)
 *   b <- mu b + d / (sqrt(s) + eps)                     (mu > 0; otherwise b stays)
 *   theta <- theta - lr b     or, without mu,     theta - lr d / (sqrt(s) + eps)
 *
 * No history gives v < a^2.  For a state that has it, or may have it by rounding, the step is not
 * judged, for the root of a negative number is NaN; d over that root counts as 0 here, and so it
 * does, of a centered step, where root and eps are 0.
 *
 * maximize negates g.  Only family rmsprop_full has a, b, centered and mu. */
#include "oracle/bound/bound.h"

#include <math.h>
#include <stddef.h>

/* Whether d / (sqrt(s) + eps) may be NaN or infinite because of how s was rounded. */
static int is_void(double s, int centered, double eps)
{
    return centered && (s < 0.0 || (s == 0.0 && eps == 0.0));
}

static void step(double *theta, double *const *slot, const double *grad, int64_t n,
                 const struct qm_oracle_hyper *h, int accumulates, int is_full)
{
    double *v = slot[0], *a = is_full && h->centered ? slot[1] : NULL;
    double *b = is_full && h->momentum > 0.0 ? slot[2] : NULL;
    for (int64_t i = 0; i < n; i++) {
        double d = h->maximize ? -grad[i] : grad[i];
        if (h->weight_decay != 0.0)
            d = d + h->weight_decay * theta[i];
        if (accumulates)
            v[i] = v[i] + d * d;
        else
            v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * d * d;
        double s = v[i];
        if (a) {
            a[i] = h->beta2 * a[i] + (1.0 - h->beta2) * d;
            s = v[i] - a[i] * a[i];
        }
        double u = is_void(s, a != NULL, h->eps) ? 0.0 : d / (sqrt(s) + h->eps);
        if (b)
            u = b[i] = h->momentum * b[i] + u;
        theta[i] = theta[i] - h->lr * u;
    }
}

/* The scalars of one step. */
struct scalars {
    const struct qm_bound_step *b;
    int accumulates, is_full;
    struct qm_beta square, mean;
    struct qm_ball lr, eps;
};

/* What the root is taken of; the errors of the new v and mean go to at->e. */
static struct qm_ball second(const struct scalars *s, struct qm_ball d, struct qm_bound_element *at)
{
    struct qm_ball v = s->accumulates ? qm_ball_add(at->old[0], qm_ball_mul(d, d))
                                      : qm_bound_square(s->b, &s->square, at->old[0], d);
    v.x = at->want[0];
    at->e[0] = v.e;
    if (!s->is_full || !s->b->h->centered)
        return v;
    struct qm_ball a = qm_bound_average(&s->mean, at->old[1], d);
    a.x = at->want[1];
    at->e[1] = a.e;
    return qm_ball_add(v, qm_ball_negated(qm_ball_mul(a, a)));
}

static void element(const void *scalars, struct qm_bound_element *at)
{
    const struct scalars *s = scalars;
    const struct qm_oracle_hyper *h = s->b->h;
    const struct qm_reorder *o = &s->b->reorder;
    struct qm_ball p = qm_ball_exact(at->p), d = qm_ball_exact(h->maximize ? -at->g : at->g), step;
    if (h->weight_decay != 0.0)
        d = qm_ball_add(d, qm_ball_mul(qm_ball_scalar(h->weight_decay), p));
    if (s->is_full)
        at->e[1] = at->e[2] = 0.0;
    struct qm_ball under = second(s, d, at);
    if (is_void(under.x - under.e, s->is_full && h->centered, h->eps)) {
        at->e_p = HUGE_VAL;
        if (s->is_full && h->momentum > 0.0)
            at->e[2] = HUGE_VAL;
        return;
    }
    struct qm_ball den = qm_ball_add(qm_ball_sqrt(o, under), s->eps);
    if (s->is_full && h->momentum > 0.0) {
        struct qm_ball old = qm_ball_mul(qm_ball_scalar(h->momentum), at->old[2]);
        struct qm_ball b = qm_ball_add(old, qm_ball_div(o, d, den));
        b.x = at->want[2];
        at->e[2] = b.e;
        step = qm_ball_mul(s->lr, b);
    } else {
        step = qm_ball_div(o, qm_ball_mul(s->lr, d), den);
        if (o->fold)
            step = qm_ball_either(step, qm_ball_mul(s->lr, qm_ball_div(o, d, den)));
    }
    qm_bound_param(at, qm_ball_add(p, qm_ball_negated(step)));
}

static qm_status bound(const struct qm_bound_step *b, int accumulates, int is_full)
{
    struct scalars s = {b,
                        accumulates,
                        is_full,
                        qm_bound_beta(b, b->h->beta2, 0),
                        qm_bound_beta(b, b->h->beta2, 1),
                        qm_ball_scalar(b->h->lr),
                        qm_ball_scalar(b->h->eps)};
    qm_bound_elements(b, is_full ? 3 : 1, &s, element);
    return QM_OK;
}

#define FAMILY(name, accumulates, is_full)                                                        \
    static void name##_step(double *theta, double *const *slot, const double *grad, int64_t rows, \
                            int64_t cols, const struct qm_oracle_hyper *h, int64_t t)             \
    {                                                                                             \
        (void)t;                                                                                  \
        step(theta, slot, grad, rows *cols, h, accumulates, is_full);                             \
    }                                                                                             \
    static qm_status name##_bound(const struct qm_bound_step *b)                                  \
    {                                                                                             \
        return bound(b, accumulates, is_full);                                                    \
    }
FAMILY(rmsprop_torch, 0, 0)
FAMILY(rmsprop_full, 0, 1)
FAMILY(adagrad_torch, 1, 0)
#undef FAMILY

extern const struct qm_oracle qm_oracle_rmsprop_torch, qm_oracle_rmsprop_full,
    qm_oracle_adagrad_torch;

const struct qm_oracle qm_oracle_rmsprop_torch = {
    .family = "rmsprop_torch",
    .source = "Tieleman and Hinton 2012, lecture 6.5; decay as L2 term: PyTorch rmsprop.py",
    .n_slots = 1,
    .slot = {"square_avg"},
    .step = rmsprop_torch_step,
    .bound = rmsprop_torch_bound,
};
const struct qm_oracle qm_oracle_rmsprop_full = {
    .family = "rmsprop_full",
    .source = "the same; centered: Graves, arXiv:1308.0850, equations 38 to 45",
    .n_slots = 3,
    .slot = {"square_avg", "grad_avg", "momentum_buffer"},
    .step = rmsprop_full_step,
    .bound = rmsprop_full_bound,
};
const struct qm_oracle qm_oracle_adagrad_torch = {
    .family = "adagrad_torch",
    .source = "Duchi, Hazan, Singer, JMLR 12 (2011), diagonal form; PyTorch adagrad.py",
    .n_slots = 1,
    .slot = {"sum"},
    .step = adagrad_torch_step,
    .bound = adagrad_torch_bound,
};
