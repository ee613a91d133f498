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
        return qm_ball_mul(s->lr_hat,
                           qm_ball_div(o, m, qm_ball_add(qm_ball_sqrt(o, top), s->eps_hat)));
    struct qm_ball root = s->flash ? qm_ball_sqrt(o, qm_ball_div(o, top, s->bc2))
                                   : qm_ball_div(o, qm_ball_sqrt(o, top), s->root_bc2);
    struct qm_ball den = qm_ball_add(root, s->eps);
    if (s->fused)
        return qm_ball_div(o, m, qm_ball_mul(den, s->bc1));
    return s->torchao ? qm_ball_div(o, qm_ball_mul(s->lr, qm_ball_div(o, m, s->bc1)), den)
                      : qm_ball_div(o, qm_ball_mul(s->lr_over_bc1, m), den);
}

/* rate (m / den) and (rate m) / den. */
static struct qm_ball scaled(const struct qm_reorder *o, struct qm_ball rate, struct qm_ball m,
                             struct qm_ball den)
{
    return qm_ball_either(qm_ball_mul(rate, qm_ball_div(o, m, den)),
                          qm_ball_div(o, qm_ball_mul(rate, m), den));
}

/* reorder.fold: the step with its factor lr, or without (is_bare), in every form of
 * QM_REORDER_LIST; x: one of them. */
static struct qm_ball folded(const struct qm_adam_scalars *s, struct qm_ball x, struct qm_ball m,
                             struct qm_ball top, int is_bare)
{
    const struct qm_reorder *o = &s->b->reorder;
    struct qm_ball root = qm_ball_sqrt(o, top), lr = is_bare ? qm_ball_exact(1.0) : s->lr;
    struct qm_ball by_root = qm_ball_div(o, root, s->root_bc2), m_hat = qm_ball_div(o, m, s->bc1);
    struct qm_ball of_quotient = qm_ball_sqrt(o, qm_ball_div(o, top, s->bc2));
    struct qm_ball den = qm_ball_add(qm_ball_either(by_root, of_quotient), s->eps);
    struct qm_ball hat = qm_ball_add(root, s->eps_hat);
    x = qm_ball_either(x, scaled(o, lr, m_hat, den));
    if (is_bare)
        return qm_ball_either(x, scaled(o, qm_ball_div(o, s->root_bc2, s->bc1), m, hat));
    x = qm_ball_either(x, scaled(o, s->lr_over_bc1, m, den));
    x = qm_ball_either(x, scaled(o, lr, m, qm_ball_mul(den, s->bc1)));
    x = qm_ball_either(x, qm_ball_div(o, qm_ball_div(o, qm_ball_mul(lr, m), s->bc1), den));
    return qm_ball_either(x, scaled(o, s->lr_hat, m, hat));
}

static struct qm_ball minus(struct qm_ball a, struct qm_ball b)
{
    return qm_ball_add(a, qm_ball_negated(b));
}

/* p - lr (u + lambda p), u the step before its factor lr. */
static struct qm_ball decayed_within(const struct qm_adam_scalars *s, struct qm_ball p,
                                     struct qm_ball u)
{
    return minus(p, qm_ball_mul(s->lr, qm_ball_add(u, qm_ball_mul(s->wd, p))));
}

/* The new parameter from the step before its factor lr (QM_ORDER_fused), or with it. */
static struct qm_ball stepped(const struct qm_adam_scalars *s, struct qm_ball p,
                              struct qm_ball step)
{
    if (s->fused)
        return decayed_within(s, p, step);
    if (s->coupled)
        return minus(p, step);
    if (s->torchao && !s->flash)
        return minus(minus(p, qm_ball_mul(s->lr_wd, p)), step);
    return minus(qm_ball_mul(p, s->decay), step);
}

struct qm_ball qm_bound_adam_own(const struct qm_adam_scalars *s, struct qm_ball p,
                                 struct qm_ball m, struct qm_ball v)
{
    struct qm_ball step = update(s, m, v);
    return s->after ? qm_ball_mul(minus(p, step), s->decay) : stepped(s, p, step);
}

struct qm_ball qm_bound_adam_param(const struct qm_adam_scalars *s, struct qm_ball p,
                                   struct qm_ball m, struct qm_ball v)
{
    const struct qm_bound_step *b = s->b;
    const struct qm_oracle_hyper *h = b->h;
    double rate = qm_bound_decay_rate(h), lambda = h->weight_decay;
    struct qm_ball step = update(s, m, v), x;
    if (s->after) {
        step = b->reorder.fold ? folded(s, step, m, v, 0) : step;
        return qm_bound_decayed(b, minus(p, step), s->decay, h->lr, lambda);
    }
    x = stepped(s, p, step);
    if (!b->reorder.fold)
        return x;
    if (s->fused)
        step = qm_ball_mul(s->lr, step);
    step = folded(s, step, m, v, 0);
    if (s->coupled)
        return qm_ball_either(x, minus(p, step));
    x = qm_ball_either(x, minus(qm_bound_decayed(b, p, s->decay, rate, lambda), step));
    if (h->decouple_lr || lambda == 0.0)
        return x;
    struct qm_ball bare = scaled(
        &b->reorder, qm_ball_exact(1.0), qm_ball_div(&b->reorder, m, s->bc1),
        qm_ball_add(qm_ball_div(&b->reorder, qm_ball_sqrt(&b->reorder, v), s->root_bc2), s->eps));
    return qm_ball_either(x, decayed_within(s, p, folded(s, bare, m, v, 1)));
}

static void element(const void *scalars, struct qm_bound_element *at)
{
    const struct qm_adam_scalars *s = scalars;
    const struct qm_oracle_hyper *h = s->b->h;
    struct qm_ball p = qm_ball_exact(at->p), g = qm_ball_exact(at->g);
    if (h->maximize && !s->after)
        g = qm_ball_negated(g);
    if (s->after)
        g = qm_ball_mul(qm_ball_scalar(qm_oracle_gnorm_scale(h)), g);
    if (s->after && !isfinite(at->g)) { /* the parameter and the zero moments are exact */
        at->e_p = at->e[0] = at->e[1] = 0.0;
        return;
    }
    if (s->coupled && qm_bound_is_zero_l2(s->b, at, 2)) {
        at->e[2] = HUGE_VAL; /* the larger of two numbers, one of them NaN */
        return;
    }
    if (s->coupled && h->weight_decay != 0.0)
        g = qm_ball_add(g, qm_ball_mul(s->wd, p));
    struct qm_ball m = qm_bound_average(&s->m, at->old[0], g);
    struct qm_ball v = qm_bound_square(s->b, &s->v, at->old[1], g);
    m.x = at->want[0];
    v.x = at->want[1];
    at->e[0] = m.e;
    at->e[1] = v.e;
    if (h->amsgrad) { /* the maximum has the error of its selected operand; the old one is exact */
        v = (struct qm_ball){at->want[2], v.x + v.e <= at->slot[2] ? 0.0 : v.e};
        at->e[2] = v.e;
    }
    qm_bound_param(at, qm_bound_adam_own(s, p, m, v));
    if (!(fabs(at->p_got - at->p_want) <= at->e_p))
        qm_bound_param(at, qm_bound_adam_param(s, p, m, v));
}

/* A scalar x formed with error e, then rounded to float32.  Where x is a float32 and e far below
 * half an ulp, which is what double leaves, the result is x. */
static struct qm_ball host(double x, double e)
{
    int is_exact = qm_is_float(x) && e <= 0x1p-30 * fabs(x);
    return is_exact ? qm_ball_exact(x) : qm_ball_rounded(x, e, QM_ETA);
}

/* eps sqrt(bc2) and lr sqrt(bc2) / bc1 formed in float32: in the order of QM_ORDER_cuda, and of a
 * judged side that takes float32 corrections into the step. */
static void fold_in_float(struct qm_adam_scalars *s, struct qm_ball *eps_hat,
                          struct qm_ball *lr_hat)
{
    const struct qm_reorder *o = &s->b->reorder;
    *eps_hat = qm_ball_mul(s->root_bc2, s->eps);
    *lr_hat = qm_ball_div(o, qm_ball_mul(s->lr, s->root_bc2), s->bc1);
    if (o->fold)
        *lr_hat = qm_ball_either(*lr_hat, qm_ball_mul(qm_ball_div(o, s->lr, s->bc1), s->root_bc2));
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
    s.eps = qm_ball_scalar(h->eps);
    s.eps_hat = host(h->eps * r, h->eps * e_r);
    s.lr_over_bc1 = host(step, step * s.bc1.e / s.bc1.x);
    s.lr_hat = host(step * r, step * s.bc1.e / s.bc1.x + step * e_r);
    s.lr = qm_ball_scalar(h->lr);
    s.wd = qm_ball_scalar(h->weight_decay);
    s.decay = qm_bound_one_minus(b, qm_bound_decay_rate(h), h->weight_decay);
    s.lr_wd = qm_ball_mul(s.lr, s.wd);
    if (b->order & QM_ORDER_cuda) {
        s.root_bc2 = qm_ball_sqrt(&b->reorder, s.bc2);
        fold_in_float(&s, &s.eps_hat, &s.lr_hat);
    } else if (b->reorder.fold) { /* the corrections meet a tensor: rounded */
        struct qm_ball eps_hat, lr_hat;
        s.bc1 = host(s.bc1.x, s.bc1.e);
        s.bc2 = host(s.bc2.x, s.bc2.e);
        fold_in_float(&s, &eps_hat, &lr_hat);
        s.eps_hat = qm_ball_either(s.eps_hat, eps_hat);
        s.lr_hat = qm_ball_either(s.lr_hat, lr_hat);
        s.lr_over_bc1 = qm_ball_either(s.lr_over_bc1, qm_ball_div(&b->reorder, s.lr, s.bc1));
        s.root_bc2 = qm_ball_either(s.root_bc2, qm_ball_sqrt(&b->reorder, s.bc2));
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
