/* lamb.c - LAMB and LARS in double in bitsandbytes' form, and their error bounds.
 *
 * bitsandbytes limits the length of the step from above, where the papers set it.
 *
 *   LAMB   m, v, mhat, vhat as Adam's;  u = mhat / (sqrt(vhat) + eps)
 *          theta <- (1 - lr lambda) theta - lr r u
 *   LARS   d <- g + lambda theta;  b <- d at t = 1, mu b + d afterwards
 *          theta <- theta - lr r b
 *
 *   r = min(1, (max_unorm |theta| + e) / |w|), 1 where max_unorm = 0; theta before the step
 *
 *   lamb       w = u                                   e = 0
 *   lamb_raw   w = m / (sqrt(v) + eps sqrt(1 - beta2^t))   e = 0
 *   lars       w = b                                   e = 0
 *   lars_bare  w = g at t = 1, mu b + g afterwards     e = eps
 *
 * g is multiplied by gnorm_scale; |.| is the Euclidean norm of the tensor. */
#include "oracle/bound/bound_tensor.h"

#include <stdlib.h>

static double norm(const double *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* r, from |theta| and |w|. */
static double ratio(const struct qm_oracle_hyper *h, double theta, double w, double e)
{
    double most = h->max_unorm * theta + e;
    return h->max_unorm > 0.0 && w > most ? most / w : 1.0;
}

static double corrected(const struct qm_oracle_hyper *h, double m, double v, int64_t t)
{
    return m / qm_oracle_correction(h->beta1, t) /
           (sqrt(v / qm_oracle_correction(h->beta2, t)) + h->eps);
}

static void lamb_step(double *theta, double *const *slot, const double *grad, int64_t n,
                      const struct qm_oracle_hyper *h, int64_t t, int is_raw)
{
    double *m = slot[0], *v = slot[1], sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double g = qm_oracle_gnorm_scale(h) * grad[i];
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * g;
        v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * (g * g);
        double w = is_raw ? m[i] / (sqrt(v[i]) + h->eps * sqrt(qm_oracle_correction(h->beta2, t)))
                          : corrected(h, m[i], v[i], t);
        sum += w * w;
    }
    double r = ratio(h, norm(theta, n), sqrt(sum), 0.0);
    for (int64_t i = 0; i < n; i++)
        theta[i] =
            (1.0 - h->lr * h->weight_decay) * theta[i] - h->lr * (r * corrected(h, m[i], v[i], t));
}

static void lars_step(double *theta, double *const *slot, const double *grad, int64_t n,
                      const struct qm_oracle_hyper *h, int64_t t, int is_bare)
{
    double *b = slot[0], sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double g = qm_oracle_gnorm_scale(h) * grad[i], old = t == 1 ? 0.0 : h->momentum * b[i];
        double l2 = h->weight_decay != 0.0 ? h->weight_decay * theta[i] : 0.0;
        b[i] = old + (g + l2);
        double w = is_bare ? old + g : b[i];
        sum += w * w;
    }
    double r = ratio(h, norm(theta, n), sqrt(sum), is_bare ? h->eps : 0.0);
    for (int64_t i = 0; i < n; i++)
        theta[i] = theta[i] - h->lr * (r * b[i]);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* The ball of r, a quotient capped at 1.  The cap is 1-Lipschitz, so it does not increase
 * an error.  A norm of the oracle's is NaN or infinite through an element that is, never by
 * overflow: no comparison with NaN holds, and nothing exceeds an infinity, so r is 1; below an
 * infinite |w| it is 0.  is_nan_open: an infinite element of w may be NaN in another form. */
static struct qm_ball ratio_bound(const struct qm_bound_step *b, const struct qm_ball *theta,
                                  struct qm_ball w, double extra, int is_nan_open)
{
    struct qm_ball norm = qm_ball_norm_in_lanes(b, theta, b->n);
    struct qm_ball most = qm_ball_mul(qm_ball_scalar(b->h->max_unorm), norm);
    if (!(b->h->max_unorm > 0.0))
        return qm_ball_exact(1.0);
    if (isnan(w.x) || !(norm.x < HUGE_VAL))
        return qm_ball_exact(1.0);
    if (extra != 0.0)
        most = qm_ball_add(most, qm_ball_scalar(extra));
    if (isinf(w.x) && most.e < HUGE_VAL && !is_nan_open)
        return qm_ball_exact(0.0);
    if (!(most.e < HUGE_VAL && w.e < HUGE_VAL))
        return (struct qm_ball){1.0, HUGE_VAL};
    if (w.x + w.e <= most.x - most.e)
        return qm_ball_exact(1.0);
    struct qm_ball r = qm_ball_div(&b->reorder, most, w);
    return (struct qm_ball){w.x > most.x ? r.x : 1.0, fmin(r.e, 1.0)};
}

/* The scalars of one LAMB step; step = lr sqrt(bc2) / bc1 and eps_hat = eps sqrt(bc2), formed in
 * double; by1 = 1 / bc1, by2 = 1 / bc2; root = sqrt(bc2). */
struct lamb {
    struct qm_beta first, second;
    struct qm_ball by1, by2, bc1, root, eps, eps_hat, step, decay, gamma;
};

static struct lamb lamb_scalars(const struct qm_bound_step *b)
{
    const struct qm_oracle_hyper *h = b->h;
    double c1 = qm_oracle_correction(h->beta1, b->t), c2 = qm_oracle_correction(h->beta2, b->t);
    struct lamb s = {.first = qm_bound_beta(b, h->beta1, 0),
                     .second = qm_bound_beta(b, h->beta2, 0),
                     .by1 = qm_ball_rounded(1.0 / c1, 0x1p-51 / (c1 * c1), QM_ETA),
                     .by2 = qm_ball_rounded(1.0 / c2, 0x1p-51 / (c2 * c2), QM_ETA),
                     .bc1 = qm_ball_rounded(c1, 0x1p-52, 0.0),
                     .root = qm_ball_rounded(sqrt(c2), 0x1p-51 / sqrt(c2), 0.0),
                     .eps = qm_ball_scalar(h->eps),
                     .decay = qm_bound_one_minus(b, h->lr, h->weight_decay),
                     .gamma = qm_ball_scalar(qm_oracle_gnorm_scale(h))};
    double root = sqrt(c2), step = h->lr * root / c1, off = 0x1p-51 / c2 + 0x1p-51 / c1;
    s.eps_hat = qm_ball_rounded(h->eps * root, h->eps * root * off, QM_ETA);
    s.step = qm_ball_rounded(step, step * off, QM_ETA);
    return s;
}

static struct qm_ball decayed(const struct qm_bound_step *b, struct qm_ball p, struct qm_ball decay)
{
    return qm_bound_decayed(b, p, decay, b->h->lr, b->h->weight_decay);
}

/* Widens u = m / (sqrt(v) + eps sqrt(bc2)) and its corrected form w (of lamb) by the error of the
 * other form, m / bc1 / (sqrt(v) / sqrt(bc2) + eps), scaled to the same value. */
static void fold_update(const struct qm_reorder *o, const struct lamb *s, struct qm_ball m,
                        struct qm_ball root, struct qm_ball *u, struct qm_ball *w, int is_raw)
{
    struct qm_ball den = qm_ball_add(qm_ball_div(o, root, s->root), s->eps);
    struct qm_ball other = qm_ball_div(o, qm_ball_div(o, m, s->bc1), den);
    double ratio = s->bc1.x / s->root.x; /* u over the corrected update */
    double e = other.e + 4.0 * QM_U * fabs(other.x);
    if (!is_raw) {
        *w = qm_ball_either(*w, other);
        e = fmax(e, u->e / ratio + 4.0 * QM_U * fabs(w->x));
        w->e = fmax(w->e, e);
    }
    u->e = fmax(u->e, e * ratio);
}

static qm_status lamb_bound_any(const struct qm_bound_step *b, int is_raw)
{
    const struct qm_reorder *o = &b->reorder;
    struct lamb s = lamb_scalars(b);
    struct qm_ball *theta = qm_balls_of(b->p, b->n), *u = qm_balls(2 * b->n), norm;
    struct qm_ball *w = qm_balls(b->n), *den = u + b->n;
    for (int64_t i = 0; theta && u && w && i < b->n; i++) {
        struct qm_ball g = qm_ball_mul(s.gamma, qm_ball_exact(b->g[i]));
        struct qm_ball m =
            qm_bound_new(b, 0, i, qm_bound_average(&s.first, qm_bound_old(b, 0, i), g));
        struct qm_ball v =
            qm_bound_new(b, 1, i, qm_bound_square(b, &s.second, qm_bound_old(b, 1, i), g));
        struct qm_ball root = qm_ball_sqrt(o, v);
        struct qm_ball corrected = qm_ball_div(
            o, qm_ball_mul(m, s.by1), qm_ball_add(qm_ball_sqrt(o, qm_ball_mul(v, s.by2)), s.eps));
        den[i] = qm_ball_add(root, s.eps_hat);
        u[i] = qm_ball_div(o, m, den[i]);
        w[i] = is_raw ? u[i] : corrected;
        if (o->fold) /* u scaled by sqrt(bc2) / bc1 is the corrected update, and the other way */
            fold_update(o, &s, m, root, &u[i], &w[i], is_raw);
    }
    if (theta && u && w) {
        norm = is_raw ? qm_ball_norm_in_lanes(b, w, b->n)
                      : qm_ball_float32(qm_ball_norm(b, w, b->n, 1));
        struct qm_ball step = qm_ball_mul(ratio_bound(b, theta, norm, 0.0, o->average), s.step);
        for (int64_t i = 0; i < b->n; i++) {
            struct qm_ball change = qm_ball_mul(step, u[i]);
            if (o->fold) /* (step m) / den: step m may be denormal */
                change.e += QM_ETA / fmax(den[i].x - den[i].e, 0.0);
            qm_bound_new_param(b, i,
                               qm_ball_add(decayed(b, theta[i], s.decay), qm_ball_negated(change)));
        }
    }
    qm_status st = theta && u && w ? QM_OK : QM_NO_MEMORY;
    free(theta);
    free(u);
    free(w);
    return st;
}

/* The sources differ: (r lr) b and r (lr b); the larger of both bounds counts. */
static struct qm_ball scaled(struct qm_ball r, struct qm_ball lr, struct qm_ball buffer)
{
    struct qm_ball step = qm_ball_mul(qm_ball_mul(r, lr), buffer);
    step.e = fmax(step.e, qm_ball_mul(r, qm_ball_mul(lr, buffer)).e);
    return step;
}

static qm_status lars_bound_any(const struct qm_bound_step *b, int is_bare)
{
    const struct qm_oracle_hyper *h = b->h;
    struct qm_ball *theta = qm_balls_of(b->p, b->n), *d = qm_balls(b->n), *w = qm_balls(b->n), norm;
    for (int64_t i = 0; theta && d && w && i < b->n; i++) {
        d[i] = qm_bound_l2_gradient(b, b->g[i], b->p[i]);
        if (b->t > 1)
            d[i] =
                qm_ball_add(qm_ball_mul(qm_ball_scalar(h->momentum), qm_bound_old(b, 0, i)), d[i]);
        d[i] = qm_bound_new(b, 0, i, d[i]);
        w[i] = d[i];
        if (is_bare) /* without the L2 term of this step */
            w[i] = qm_ball_add(
                d[i], qm_ball_negated(qm_ball_mul(theta[i], qm_ball_scalar(h->weight_decay))));
    }
    if (theta && d && w) {
        norm = is_bare ? qm_ball_float32(qm_ball_norm(b, w, b->n, 1))
                       : qm_ball_norm_in_lanes(b, w, b->n);
        struct qm_ball r = ratio_bound(b, theta, norm, is_bare ? h->eps : 0.0, 0);
        for (int64_t i = 0; i < b->n; i++)
            qm_bound_new_param(
                b, i,
                qm_ball_add(theta[i], qm_ball_negated(scaled(r, qm_ball_scalar(h->lr), d[i]))));
    }
    qm_status st = theta && d && w ? QM_OK : QM_NO_MEMORY;
    free(theta);
    free(d);
    free(w);
    return st;
}

/* ---- the families ---------------------------------------------------------------------------- */

#define STEP(name, body, bounds, flag)                                                       \
    static void name(double *theta, double *const *slot, const double *grad, int64_t rows,   \
                     int64_t cols, const struct qm_oracle_hyper *h, int64_t t)               \
    {                                                                                        \
        body(theta, slot, grad, rows *cols, h, t, flag);                                     \
    }                                                                                        \
    static qm_status name##_bound(const struct qm_bound_step *b) { return bounds(b, flag); } \
    extern const struct qm_oracle qm_oracle_##name;
STEP(lamb, lamb_step, lamb_bound_any, 0)
STEP(lamb_raw, lamb_step, lamb_bound_any, 1)
STEP(lars, lars_step, lars_bound_any, 0)
STEP(lars_bare, lars_step, lars_bound_any, 1)
#undef STEP

const struct qm_oracle qm_oracle_lamb = {
    .family = "lamb",
    .source =
        "arXiv:1904.00962, algorithm 2, with the bound of bitsandbytes backends/default/ops.py",
    .n_slots = 2,
    .slot = {"exp_avg", "exp_avg_sq"},
    .step = lamb,
    .bound = lamb_bound,
};
const struct qm_oracle qm_oracle_lamb_raw = {
    .family = "lamb_raw",
    .source = "the same, bound without bias correction: bitsandbytes backends/cpu/ops.py",
    .n_slots = 2,
    .slot = {"exp_avg", "exp_avg_sq"},
    .step = lamb_raw,
    .bound = lamb_raw_bound,
};
const struct qm_oracle qm_oracle_lars = {
    .family = "lars",
    .source = "arXiv:1708.03888, equation 6, with the bound of bitsandbytes backends/cpu/ops.py",
    .n_slots = 1,
    .slot = {"momentum_buffer"},
    .step = lars,
    .bound = lars_bound,
};
const struct qm_oracle qm_oracle_lars_bare = {
    .family = "lars_bare",
    .source = "the same, bound without this step's decay: bitsandbytes backends/default/ops.py",
    .n_slots = 1,
    .slot = {"momentum_buffer"},
    .step = lars_bare,
    .bound = lars_bare_bound,
};
