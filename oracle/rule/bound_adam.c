/* bound_adam.c - The error bound of Adam, AdamW and AdamW with late decay, in every order. */
#include "oracle/bound/bound.h"

/* To first order the errors of the new moments m' and v' are
 *   |dm| <= u (2 |beta1 m| + 2 |(1 - beta1) g| + |m'|),
 *   |dv| <= u (2 beta2 v + 3 (1 - beta2) g^2 + v'),
 * with 2 u w |g - m| in place of the products where a moment is a lerp of weight w.  With
 * mhat = m' / bc1 and den = sqrt(v' / bc2) + eps,
 *   |d update| / |update| <= |dm| / |m'| + |dv| / (2 v') sqrt(vhat) / den + 5 u
 *                            + (relative errors of lr, bc1, bc2)
 * and |dp'| <= |d update| + 2 u |p| + u |p'|.  The code below evaluates these sums without the
 * first-order approximation, around the oracle's moments.
 *
 * update returns the term that is subtracted from the parameter (QM_ORDER_fused: before its factor
 * lr); top: v', or its running maximum with amsgrad. */
static struct qm_ball update(const struct qm_adam_scalars *s, struct qm_ball m, struct qm_ball top)
{
    const struct qm_reorder *o = &s->b->reorder;
    if (s->bnb)
        return qm_ball_mul(s->lr_over_bc1,
                           qm_ball_div(o, m, qm_ball_add(qm_ball_sqrt(o, top), s->eps)));
    struct qm_ball root = s->flash ? qm_ball_sqrt(o, qm_ball_div(o, top, s->bc2))
                                   : qm_ball_div(o, qm_ball_sqrt(o, top), s->root_bc2);
    struct qm_ball den = qm_ball_add(root, s->eps);
    if (s->fused)
        return qm_ball_div(o, m, qm_ball_mul(den, s->bc1));
    return s->torchao ? qm_ball_div(o, qm_ball_mul(s->lr, qm_ball_div(o, m, s->bc1)), den)
                      : qm_ball_div(o, qm_ball_mul(s->lr_over_bc1, m), den);
}

struct qm_ball qm_bound_adam_param(const struct qm_adam_scalars *s, struct qm_ball p,
                                   struct qm_ball m, struct qm_ball v)
{
    struct qm_ball step = update(s, m, v);
    if (s->after)
        return qm_ball_mul(qm_ball_add(p, qm_ball_negated(step)), s->decay);
    if (s->fused)
        step = qm_ball_mul(s->lr, qm_ball_add(step, qm_ball_mul(s->wd, p)));
    else if (!s->coupled && s->torchao && !s->flash)
        p = qm_ball_add(p, qm_ball_negated(qm_ball_mul(s->lr_wd, p)));
    else if (!s->coupled)
        p = qm_ball_mul(p, s->decay);
    return qm_ball_add(p, qm_ball_negated(step));
}

static void element(const void *scalars, struct qm_bound_element *at)
{
    const struct qm_adam_scalars *s = scalars;
    const struct qm_oracle_hyper *h = s->b->h;
    struct qm_ball p = qm_ball_exact(at->p), g = qm_ball_exact(at->g);
    if (h->maximize && !s->after)
        g = qm_ball_negated(g);
    if (s->after)
        g = qm_ball_mul(qm_ball_scalar(h->gnorm_scale != 0.0 ? h->gnorm_scale : 1.0), g);
    if (s->after && !isfinite(at->g)) { /* the parameter and the zero moments are exact */
        at->e_p = at->e[0] = at->e[1] = 0.0;
        return;
    }
    if (s->coupled && s->torchao && !isfinite(at->p)) { /* the source adds 0 p: NaN */
        at->e_p = at->e[0] = at->e[1] = at->e[2] = HUGE_VAL;
        return;
    }
    if (s->coupled && h->weight_decay != 0.0)
        g = qm_ball_add(g, qm_ball_mul(s->wd, p));
    struct qm_ball m = qm_bound_average(&s->m, qm_ball_exact(at->slot[0]), g);
    struct qm_ball v = qm_bound_square(s->b, &s->v, qm_ball_exact(at->slot[1]), g);
    m.x = at->want[0];
    v.x = at->want[1];
    at->e[0] = m.e;
    at->e[1] = v.e;
    if (h->amsgrad) { /* the maximum has the error of its selected operand; the old one is exact */
        v = (struct qm_ball){at->want[2], v.x + v.e <= at->slot[2] ? 0.0 : v.e};
        at->e[2] = v.e;
    }
    at->e_p = qm_bound_adam_param(s, p, m, v).e;
}

/* A scalar x formed in double with error e there, then rounded to float32. */
static struct qm_ball host(double x, double e)
{
    return qm_is_float(x) ? qm_ball_exact(x) : qm_ball_rounded(x, e, QM_ETA);
}

/* QM_ORDER_cuda: the scalars of bitsandbytes' kernels, formed in float32. */
static void in_float(struct qm_adam_scalars *s)
{
    const struct qm_reorder *o = &s->b->reorder;
    s->root_bc2 = qm_ball_sqrt(o, s->bc2);
    s->eps = qm_ball_mul(s->root_bc2, s->eps);
    s->lr_over_bc1 = qm_ball_div(o, qm_ball_mul(s->lr, s->root_bc2), s->bc1);
}

struct qm_adam_scalars qm_adam_scalars_of(const struct qm_bound_step *b, int coupled, int after)
{
    const struct qm_oracle_hyper *h = b->h;
    struct qm_adam_scalars s = {.b = b,
                                .coupled = coupled,
                                .after = after,
                                .torchao = !!(b->order & QM_ORDER_torchao),
                                .fused = !!(b->order & QM_ORDER_fused),
                                .flash = !!(b->order & QM_ORDER_flash),
                                .bnb = !!(b->order & QM_ORDER_bnb)};
    s.m = qm_bound_beta(b, h->beta1, !!(b->order & QM_ORDER_lerp_m));
    s.v = qm_bound_beta(b, h->beta2, !!(b->order & QM_ORDER_lerp_v));
    s.bc1 = qm_bound_correction(b, h->beta1);
    s.bc2 = qm_bound_correction(b, h->beta2);
    double r = sqrt(s.bc2.x), e_r = 0.5 * s.bc2.e / r, step = h->lr / s.bc1.x;
    s.root_bc2 = s.torchao || s.fused || qm_is_float(r) ? qm_ball_sqrt(&b->reorder, s.bc2)
                                                        : qm_ball_rounded(r, e_r, 0.0);
    s.eps = s.bnb ? host(h->eps * r, h->eps * e_r) : qm_ball_scalar(h->eps);
    s.lr_over_bc1 =
        host(s.bnb ? step * r : step, step * s.bc1.e / s.bc1.x + (s.bnb ? step * e_r : 0.0));
    s.lr = qm_ball_scalar(h->lr);
    s.wd = qm_ball_scalar(h->weight_decay);
    s.decay = qm_bound_one_minus(b, qm_bound_decay_rate(h), h->weight_decay);
    s.lr_wd = qm_ball_mul(s.lr, s.wd);
    if (b->order & QM_ORDER_cuda) {
        s.eps = qm_ball_scalar(h->eps);
        in_float(&s);
    }
    return s;
}

static qm_status bound(const struct qm_bound_step *b, int coupled, int after)
{
    struct qm_adam_scalars s = qm_adam_scalars_of(b, coupled, after);
    qm_bound_elements(b, b->h->amsgrad ? 3 : 2, &s, element);
    return QM_OK;
}

qm_status qm_bound_adamw(const struct qm_bound_step *b) { return bound(b, 0, 0); }

qm_status qm_bound_adam(const struct qm_bound_step *b) { return bound(b, 1, 0); }

qm_status qm_bound_adamw_after(const struct qm_bound_step *b) { return bound(b, 0, 1); }
