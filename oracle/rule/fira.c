/* fira.c - Fira with Adam and with RMSProp in double, and its error bound.
 *
 *   R = G P^T or P^T G, P the leading singular vectors of G;  back(X) = alpha X P or alpha P X
 *   Adam:     m, v of R;  R~ = m / (sqrt(v) + eps);  step lr sqrt(1 - beta2^t) / (1 - beta1^t)
 *   RMSProp:  v <- beta2 v + (1 - beta2) R^2;  a <- beta2 a + (1 - beta2) R where centered
 *             b <- momentum b + R / (sqrt(v - a^2) + eps);  R~ = b;  step lr
 *   S = (G - back(R)) |R~| / (|R| + 1e-8), norms per channel;  growth of |S| limited (limiter)
 *   theta <- theta - step (back(R~) + S)
 *   Adam: theta <- theta - lr lambda theta where lambda > 0
 *
 * alpha is hyper.scale.  Where the tensor has not two dimensions, or the rank is 0, R = G and
 * theta <- theta - step R~.  Slots of Adam: m, v, P, the limiter's norm; of RMSProp: v, b (used
 * where momentum > 0), a (where centered), P, the norm. */
#include <stdlib.h>

#include "oracle/rule/projection.h"

static void adam(double *const *slot, const double *r, double *r_tilde, int64_t k,
                 const struct qm_oracle_hyper *h)
{
    double *m = slot[0], *v = slot[1];
    for (int64_t i = 0; i < k; i++) {
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * r[i];
        v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * (r[i] * r[i]);
        r_tilde[i] = m[i] / (sqrt(v[i]) + h->eps);
    }
}

static void rms_prop(double *const *slot, const double *r, double *r_tilde, int64_t k,
                     const struct qm_oracle_hyper *h)
{
    double *v = slot[0], *b = slot[1], *a = slot[2];
    for (int64_t i = 0; i < k; i++) {
        double about = 0.0;
        v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * (r[i] * r[i]);
        if (h->centered)
            about = a[i] = h->beta2 * a[i] + (1.0 - h->beta2) * r[i];
        r_tilde[i] = r[i] / (sqrt(v[i] - about * about) + h->eps);
        if (h->momentum > 0.0)
            r_tilde[i] = b[i] = h->momentum * b[i] + r_tilde[i];
    }
}

/* Which optimizer runs on R, and what differs with it. */
struct form {
    int first;   /* P is slot `first`, the limiter's norm slot first + 1 */
    double step; /* length of the step */
    /* R~ from R, k elements each; updates the slots before `first` */
    void (*moments)(double *const *slot, const double *r, double *r_tilde, int64_t k,
                    const struct qm_oracle_hyper *h);
};

static qm_status fira(const struct form *f, double *theta, double *const *slot, const double *g,
                      const struct qm_shape *shape, uint32_t tensor,
                      const struct qm_oracle_hyper *h, int64_t t)
{
    struct qm_projection q;
    int projected = qm_projection_of(h, 1, shape, &q);
    int64_t n = qm_shape_numel(shape), k = projected ? q.rows * q.cols : n;
    double *p = slot[f->first], *norm = slot[f->first + 1];
    double *u = calloc((size_t)(2 * n + 2 * k + 1), sizeof *u);
    double *s = u + n, *r = s + n, *r_tilde = r + k;
    qm_status st = QM_OK;
    if (!u)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)n);

    if (projected)
        st = qm_project_renew(h, 1, &q, g, tensor, t, p);
    if (projected && st == QM_OK)
        qm_project(&q, g, p, r);
    for (int64_t i = 0; i < k && !projected; i++)
        r[i] = g[i];
    if (st == QM_OK)
        f->moments(slot, r, r_tilde, k, h);
    if (projected && st == QM_OK) {
        qm_project_back(&q, r, p, h->scale, s);
        for (int64_t i = 0; i < n; i++)
            s[i] = g[i] - s[i];
        st = qm_project_scale(&q, q.rows < q.cols ? 0 : 1, r_tilde, r, s);
        qm_project_back(&q, r_tilde, p, h->scale, u);
    }
    if (projected && h->limiter && st == QM_OK)
        qm_project_limit(s, n, h->margin, t, norm);
    for (int64_t i = 0; i < n && st == QM_OK; i++)
        theta[i] = theta[i] - f->step * (projected ? u[i] + s[i] : r_tilde[i]);
    free(u);
    return st;
}

static qm_status with_adam(double *theta, double *const *slot, const double *g,
                           const struct qm_shape *shape, uint32_t tensor,
                           const struct qm_oracle_hyper *h, int64_t t)
{
    const struct form f = {2, h->lr * qm_project_correction(h, t), adam};
    QM_TRY(fira(&f, theta, slot, g, shape, tensor, h, t));
    for (int64_t i = 0; i < qm_shape_numel(shape) && h->weight_decay > 0.0; i++)
        theta[i] = theta[i] - h->lr * h->weight_decay * theta[i];
    return QM_OK;
}

static qm_status with_rms_prop(double *theta, double *const *slot, const double *g,
                               const struct qm_shape *shape, uint32_t tensor,
                               const struct qm_oracle_hyper *h, int64_t t)
{
    const struct form f = {3, h->lr, rms_prop};
    return fira(&f, theta, slot, g, shape, tensor, h, t);
}

/* ---- their bounds ---------------------------------------------------------------------------- */

static void rms_prop_bound(const struct qm_bound_step *b, int own, const struct qm_ball *r,
                           int64_t k, struct qm_ball *r_tilde)
{
    const struct qm_oracle_hyper *h = b->h;
    const struct qm_reorder *o = &b->reorder;
    struct qm_beta w = qm_bound_beta(b, h->beta2, 0);
    for (int64_t i = 0; i < k; i++) {
        struct qm_ball v = qm_bound_square(b, &w, qm_bound_old(b, 0, i), r[i]), a;
        if (own)
            b->want[0][i] = v.x;
        v = qm_bound_new(b, 0, i, v);
        if (h->centered) {
            a = qm_bound_average(&w, qm_bound_old(b, 2, i), r[i]);
            if (own)
                b->want[2][i] = a.x;
            a = qm_bound_new(b, 2, i, a);
            v = qm_ball_add(v, qm_ball_negated(qm_ball_mul(a, a)));
        }
        r_tilde[i] = qm_ball_div(o, r[i], qm_ball_add(qm_ball_sqrt(o, v), qm_ball_scalar(h->eps)));
        if (v.x - v.e < 0.0) /* the argument of the root may be negative */
            r_tilde[i].e = HUGE_VAL;
        if (!(h->momentum > 0.0))
            continue;
        a = qm_ball_mul(qm_ball_scalar(h->momentum), qm_bound_old(b, 1, i));
        a = qm_ball_add(a, r_tilde[i]);
        if (own)
            b->want[1][i] = a.x;
        r_tilde[i] = qm_bound_new(b, 1, i, a);
    }
}

/* P is slot `first`, the limiter's norm slot first + 1; form: R~ from R in balls. */
static qm_status any_bound(const struct qm_bound_step *b, int first, double step,
                           void (*form)(const struct qm_bound_step *b, int own,
                                        const struct qm_ball *r, int64_t k,
                                        struct qm_ball *r_tilde))
{
    struct qm_projection q;
    int projected = qm_projection_of(b->h, 1, b->shape, &q);
    int64_t n = b->n, k = projected ? q.rows * q.cols : n;
    struct qm_ball *u = qm_balls(2 * n + 2 * k), *s = u + n, *r = s + n, *r_tilde = r + k;
    if (!u)
        return QM_NO_MEMORY;
    qm_status st = projected ? qm_ball_project_matrix(b, &q, 1, first) : QM_OK;
    if (st != QM_OK) {
        free(u);
        return st;
    }
    if (projected)
        qm_ball_project(b, &q, b->stored[first], r);
    for (int64_t i = 0; i < k && !projected; i++)
        r[i] = qm_ball_exact(b->g[i]);
    form(b, projected, r, k, r_tilde);
    if (projected) {
        qm_ball_project_back(b, &q, r, b->stored[first], b->h->scale, s);
        for (int64_t i = 0; i < n; i++)
            s[i] = qm_ball_add(qm_ball_exact(b->g[i]), qm_ball_negated(s[i]));
        qm_ball_project_scale(b, &q, q.rows < q.cols ? 0 : 1, r_tilde, r, s);
        if (b->h->limiter)
            qm_ball_project_limit(b, first + 1, s);
        qm_ball_project_back(b, &q, r_tilde, b->stored[first], b->h->scale, u);
        for (int64_t i = 0; i < n; i++)
            u[i] = qm_ball_add(u[i], s[i]);
    }
    qm_ball_update_param(b, projected, step, projected ? u : r_tilde, first == 2);
    free(u);
    return QM_OK;
}

static qm_status adam_bound(const struct qm_bound_step *b)
{
    return any_bound(b, 2, b->h->lr * qm_project_correction(b->h, b->t), qm_ball_adam_states);
}

static qm_status rms_bound(const struct qm_bound_step *b)
{
    return any_bound(b, 3, b->h->lr, rms_prop_bound);
}

extern const struct qm_oracle qm_oracle_fira, qm_oracle_fira_rms;
const struct qm_oracle qm_oracle_fira = {
    .family = "fira",
    .source = "arXiv:2410.01623, algorithm 1; constants and order as fira_adamw.py",
    .n_slots = 4,
    .slot = {"exp_avg", "exp_avg_sq", "proj", "scaling_grad"},
    .whole = with_adam,
    .bound = adam_bound,
};
const struct qm_oracle qm_oracle_fira_rms = {
    .family = "fira_rms",
    .source = "arXiv:2410.01623; fira_rmsprop.py",
    .n_slots = 5,
    .slot = {"square_avg", "momentum_buffer", "grad_avg", "proj", "scaling_grad"},
    .whole = with_rms_prop,
    .bound = rms_bound,
};
