/* bound_lion.c - The error bound of Lion in every order. */
#include "oracle/bound/bound.h"

/* The scalars of one step. */
struct lion {
    const struct qm_bound_step *b;
    double rate, lambda;  /* the decay factor is 1 - rate lambda */
    int within;           /* the decay is relative to lr, so it may be part of the step */
    int maximize;         /* the gradient's sign is changed */
    struct qm_ball gamma; /* gnorm_scale; 1 in Lion 8-bit */
    struct qm_beta c, m;
    struct qm_ball decay, lr;
    const struct qm_float_format *between;
};

/* 1: the weight is not 0, but may have been rounded to 0, of which infinity makes NaN. */
static int may_be_zero(struct qm_ball w) { return w.e > 0.0 && fabs(w.x) <= w.e; }

/* theta' = theta d - lr sign(c), c = beta1 m + (1 - beta1) g, d the decay factor.  Where the ball
 * of c contains 0, or c may overflow, the sign may be -1, 0 or 1.  Where c is NaN it is NaN in
 * every order, and sign(NaN) = 0: the parameter decays.  Where c is infinite, a difference of an
 * average of the form a + w (b - a) may be NaN. */
static void element(const void *scalars, struct qm_bound_element *at)
{
    const struct lion *s = scalars;
    struct qm_ball g = qm_ball_mul(s->gamma, qm_ball_exact(s->maximize ? -at->g : at->g));
    struct qm_ball old = at->old[0], p;
    p = qm_ball_exact(at->p);
    p = qm_ball_round_to(s->between, qm_bound_decayed(s->b, p, s->decay, s->rate, s->lambda));
    struct qm_ball c = qm_bound_average(&s->c, old, g), m = qm_bound_average(&s->m, old, g);
    double x = s->c.beta.x * old.x + s->c.weight.x * g.x;
    double sign = x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0;
    int overflows = isfinite(g.x) && !(g.e < HUGE_VAL); /* gamma g; -Inf + Inf is NaN */
    int is_sure = isfinite(x) ? c.e == 0.0 || fabs(x) > c.e
                              : isnan(x) || !(s->c.lerp || s->c.either || overflows ||
                                              may_be_zero(s->c.weight) || may_be_zero(s->c.beta));
    struct qm_ball step = is_sure ? qm_ball_mul(qm_ball_exact(sign), s->lr)
                                  : (struct qm_ball){0.0, s->lr.x + s->lr.e};
    at->e[0] = m.e;
    p = qm_ball_add(p, qm_ball_negated(step));
    if (s->within && s->b->reorder.fold &&
        s->lambda != 0.0) { /* lr 0 times lambda p = Inf is NaN */
        struct qm_ball of_p = qm_ball_mul(qm_ball_scalar(s->lambda), qm_ball_exact(at->p));
        struct qm_ball any = is_sure ? qm_ball_exact(sign) : (struct qm_ball){0.0, 1.0};
        of_p = qm_ball_mul(s->lr, qm_ball_add(any, of_p));
        p = qm_ball_either(p, qm_ball_add(qm_ball_exact(at->p), qm_ball_negated(of_p)));
    }
    if (!s->within && s->b->reorder.fold && s->lambda != 0.0) { /* theta - (lr sign + d theta) */
        struct qm_ball lost =
            qm_ball_mul(qm_ball_scalar(s->rate * s->lambda), qm_ball_exact(at->p));
        lost = qm_ball_negated(qm_ball_add(lost, step));
        p = qm_ball_either(p, qm_ball_add(qm_ball_exact(at->p), lost));
    }
    at->e_p = p.e + (is_sure ? 0.0 : fabs(sign) * s->lr.x);
    if (s->between)
        at->p_want = p.x;
}

static qm_status bound(const struct qm_bound_step *b, int maximize, double gamma, double rate,
                       int within)
{
    struct qm_ball decay = qm_bound_one_minus(b, b->h->weight_decay, rate);
    int lerp = !!(b->order & QM_ORDER_lerp_m);
    if (b->order & QM_ORDER_factor)
        decay = qm_ball_round_to(b->between, decay);
    struct lion s = {.b = b,
                     .rate = rate,
                     .lambda = b->h->weight_decay,
                     .within = within,
                     .maximize = maximize,
                     .gamma = qm_ball_scalar(gamma),
                     .c = qm_bound_beta(b, b->h->beta1, lerp),
                     .m = qm_bound_beta(b, b->h->beta2, lerp),
                     .decay = decay,
                     .lr = qm_ball_scalar(b->h->lr),
                     .between = b->between};
    qm_bound_elements(b, 1, &s, element);
    return QM_OK;
}

qm_status qm_bound_lion8(const struct qm_bound_step *b)
{
    const struct qm_oracle_hyper *h = b->h;
    double ratio = h->initial_lr != 0.0 ? h->lr / h->initial_lr : 1.0;
    return bound(b, h->maximize, 1.0, ratio, 0);
}

qm_status qm_bound_lion(const struct qm_bound_step *b)
{
    double gamma = qm_oracle_gnorm_scale(b->h);
    return bound(b, 0, gamma, b->h->lr, 1);
}
