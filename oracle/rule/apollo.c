/* apollo.c - APOLLO and APOLLO-Mini in double, and their error bound.
 *
 *   R   = G P^T or P^T G
 *   m  <- beta1 m + (1 - beta1) R,  v <- beta2 v + (1 - beta2) R^2
 *   R~  = m / (sqrt(v) + eps)
 *   s   = |R~| / (|R| + 1e-8), norms per channel, or of the tensor (tensor_scale)
 *   U   = G s;  growth of |U| limited;  times sqrt(scale), before the limiter where scale_front
 *   theta <- theta - lr sqrt(1 - beta2^t) / (1 - beta1^t) U      (factor 1 without correct_bias)
 *   theta <- theta - lr lambda theta                             (where lambda > 0)
 *
 * Where the tensor has not two dimensions, or the rank is 0: R = G and U = R~.
 * Slots: m, v (of R's shape), P, the limiter's norm (one number). */
#include <stdlib.h>

#include "oracle/rule/projection.h"

/* U of a projected tensor; r holds R, followed by R~; norm: the limiter's. */
static qm_status scaled(const struct qm_projection *q, const double *g, const double *r, double *u,
                        double *norm, const struct qm_oracle_hyper *h, int64_t t)
{
    int64_t n = q->m * q->n, k = q->rows * q->cols;
    const double *r_tilde = r + k;
    double front = h->scale_front ? sqrt(h->scale) : 1.0;
    double back = h->scale_front ? 1.0 : sqrt(h->scale);
    double s = qm_norm_of(r_tilde, k, 1) / (qm_norm_of(r, k, 1) + 1e-8);

    for (int64_t i = 0; i < n; i++)
        u[i] = h->tensor_scale ? g[i] * s : g[i];
    if (!h->tensor_scale)
        QM_TRY(qm_project_scale(q, q->m < q->n ? 0 : 1, r_tilde, r, u));
    for (int64_t i = 0; i < n; i++)
        u[i] = u[i] * front;
    if (h->limiter)
        qm_project_limit(u, n, h->margin, t, norm);
    for (int64_t i = 0; i < n; i++)
        u[i] = u[i] * back;
    return QM_OK;
}

static qm_status whole(double *theta, double *const *slot, const double *g,
                       const struct qm_shape *shape, uint32_t tensor,
                       const struct qm_oracle_hyper *h, int64_t t)
{
    struct qm_projection q;
    int projected = qm_projection_of(h, h->svd, shape, &q);
    int64_t n = qm_shape_numel(shape), k = projected ? q.rows * q.cols : n;
    double *m = slot[0], *v = slot[1], *p = slot[2];
    double *u = calloc((size_t)(n + 2 * k + 1), sizeof *u), *r = u + n, *r_tilde = r + k;
    qm_status st = QM_OK;
    if (!u)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)n);

    if (projected)
        st = qm_project_renew(h, h->svd, &q, g, tensor, t, p);
    if (projected && st == QM_OK)
        qm_project(&q, g, p, r);
    for (int64_t i = 0; i < k && !projected; i++)
        r[i] = g[i];
    for (int64_t i = 0; i < k && st == QM_OK; i++) {
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * r[i];
        v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * (r[i] * r[i]);
        r_tilde[i] = m[i] / (sqrt(v[i]) + h->eps);
    }
    if (projected && st == QM_OK)
        st = scaled(&q, g, r, u, slot[3], h, t);
    for (int64_t i = 0; i < n && st == QM_OK; i++)
        theta[i] = theta[i] - h->lr * qm_project_correction(h, t) * (projected ? u[i] : r_tilde[i]);
    for (int64_t i = 0; i < n && st == QM_OK && h->weight_decay > 0.0; i++)
        theta[i] = theta[i] - h->lr * h->weight_decay * theta[i];
    free(u);
    return st;
}

/* ---- its bound ------------------------------------------------------------------------------- */

/* u <- U of a projected tensor; r holds R, followed by R~. */
static void scaled_bound(const struct qm_bound_step *b, const struct qm_projection *q,
                         const struct qm_ball *r, struct qm_ball *u)
{
    const struct qm_oracle_hyper *h = b->h;
    int64_t k = q->rows * q->cols;
    struct qm_ball root = qm_ball_scalar(sqrt(h->scale)), s, low;
    for (int64_t i = 0; i < b->n; i++)
        u[i] = qm_ball_exact(b->g[i]);
    if (h->tensor_scale) {
        low = qm_ball_add(qm_ball_float32(qm_ball_norm(b, r, k, 1)), qm_ball_scalar(1e-8));
        s = qm_ball_div(&b->reorder, qm_ball_float32(qm_ball_norm(b, r + k, k, 1)), low);
        for (int64_t i = 0; i < b->n; i++)
            u[i] = qm_ball_mul(u[i], s);
    } else {
        qm_ball_project_scale(b, q, q->m < q->n ? 0 : 1, r + k, r, u);
    }
    for (int64_t i = 0; i < b->n && h->scale_front; i++)
        u[i] = qm_ball_mul(u[i], root);
    if (h->limiter)
        qm_ball_project_limit(b, 3, u);
    for (int64_t i = 0; i < b->n && !h->scale_front; i++)
        u[i] = qm_ball_mul(u[i], root);
}

static qm_status bound(const struct qm_bound_step *b)
{
    struct qm_projection q;
    int projected = qm_projection_of(b->h, b->h->svd, b->shape, &q);
    int64_t n = b->n, k = projected ? q.rows * q.cols : n;
    struct qm_ball *u = qm_balls(n + 2 * k), *r = u + n;
    if (!u)
        return QM_NO_MEMORY;
    qm_status st = projected ? qm_ball_project_matrix(b, &q, b->h->svd, 2) : QM_OK;
    if (st != QM_OK) {
        free(u);
        return st;
    }
    if (projected)
        qm_ball_project(b, &q, b->stored[2], r);
    for (int64_t i = 0; i < k && !projected; i++)
        r[i] = qm_ball_exact(b->g[i]);
    qm_ball_adam_states(b, projected, r, k, r + k);
    if (projected)
        scaled_bound(b, &q, r, u);
    qm_ball_update_param(b, projected, b->h->lr * qm_project_correction(b->h, b->t),
                         projected ? u : r + k, 1);
    free(u);
    return QM_OK;
}

extern const struct qm_oracle qm_oracle_apollo;
const struct qm_oracle qm_oracle_apollo = {
    .family = "apollo",
    .source = "arXiv:2412.05270, algorithm 1; constants and order as apollo_torch/apollo.py",
    .n_slots = 4,
    .slot = {"exp_avg", "exp_avg_sq", "proj", "scaled_grad"},
    .whole = whole,
    .bound = bound,
};
