/* adafactor_torch.c - Adafactor in double as PyTorch's documentation defines it; its error bound.
 *
 *   w = t^tau,  rho = min(lr, 1 / sqrt(t)),  alpha = max(eps2, RMS(theta)) rho
 *   theta <- (1 - lr lambda) theta
 *   R <- R + w (mean over columns of g^2 - R),  C <- C + w (mean over rows of g^2 - C)
 *   V = R C / max(mean(R), eps1);        vectors: V <- V + w (g^2 - V)
 *   U = g / sqrt(max(V, eps1^2))
 *   theta <- theta - alpha / max(1, RMS(U) / d) U
 *
 * Slots: R [batch x rows], C [batch x cols], V of a vector.  maximize negates g. */
#include "oracle/bound/bound_tensor.h"

#include <stdlib.h>

/* V of every element, before it is clamped. */
static void estimate(const struct qm_matrix_batch *m, const double *r, const double *c, double eps1,
                     double *v)
{
    for (int64_t b = 0; b < m->batch; b++) {
        double mean = qm_mean_of(r + b * m->rows, m->rows, 1);
        mean = mean < eps1 ? eps1 : mean; /* torch.clamp: NaN stays */
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->cols; j++)
                v[(b * m->rows + i) * m->cols + j] = r[b * m->rows + i] * c[b * m->cols + j] / mean;
    }
}

static qm_status whole(double *theta, double *const *slot, const double *grad,
                       const struct qm_shape *shape, uint32_t tensor,
                       const struct qm_oracle_hyper *h, int64_t t)
{
    struct qm_matrix_batch m = qm_batch_of(shape);
    int64_t n = m.numel;
    double w = pow((double)t, h->beta2_decay), sign = h->maximize ? -1.0 : 1.0;
    double *u = calloc((size_t)(n + 1), sizeof *u);
    (void)tensor;
    if (!u)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)n);

    double alpha = fmax(h->eps2, qm_rms_of(theta, n)) * fmin(h->lr, 1.0 / sqrt((double)t));
    for (int64_t i = 0; i < n; i++)
        theta[i] = (1.0 - h->lr * h->weight_decay) * theta[i];
    for (int64_t i = 0; i < n; i++)
        u[i] = grad[i] * grad[i];
    if (shape->rank >= 2 && h->factored) {
        qm_factors_average(&m, u, 1.0 - w, w, slot[0], slot[1]);
        estimate(&m, slot[0], slot[1], h->eps1, u);
    } else {
        for (int64_t i = 0; i < n; i++)
            u[i] = slot[2][i] = (1.0 - w) * slot[2][i] + w * u[i]; /* keeps u where w is 1 */
    }
    for (int64_t i = 0; i < n; i++) {
        double v = u[i] < h->eps1 * h->eps1 ? h->eps1 * h->eps1 : u[i];
        u[i] = sign * grad[i] / sqrt(v);
    }
    double clip = qm_rms_of(u, n) / h->clip;
    for (int64_t i = 0; i < n; i++)
        theta[i] = theta[i] - alpha / (clip > 1.0 ? clip : 1.0) * u[i];
    free(u);
    return QM_OK;
}

/* ---- its bound ------------------------------------------------------------------------------- */

/* Means of squares from the norm, as the source forms them: norm^2 / count, the norm in float32. */
static void mean_squares(const struct qm_bound_step *b, struct qm_ball *mean, int64_t n,
                         int64_t count)
{
    for (int64_t i = 0; i < n; i++) {
        struct qm_ball all = {mean[i].x * (double)count, mean[i].e * (double)count};
        struct qm_ball norm = qm_ball_float32(qm_ball_sqrt_double(b, all));
        mean[i] = qm_ball_div(&b->reorder, qm_ball_mul(norm, norm), qm_ball_exact((double)count));
    }
}

static void factors_bound(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                          const struct qm_beta *w, struct qm_ball *u, struct qm_ball *row,
                          struct qm_ball *col)
{
    int64_t rows = m->batch * m->rows, cols = m->batch * m->cols;
    qm_ball_row_means(b, m, u, row);
    qm_ball_col_means(b, m, u, col);
    qm_ball_sums_overflow(row, m->batch * m->rows, m->cols);
    qm_ball_sums_overflow(col, m->batch * m->cols, m->rows);
    mean_squares(b, row, rows, m->cols);
    mean_squares(b, col, cols, m->rows);
    qm_ball_average_slot(b, 0, w, rows, row);
    qm_ball_average_slot(b, 1, w, cols, col);
    for (int64_t i = 0; i < rows; i++)
        row[i] = qm_bound_stored(b, 0, i, row[i]);
    for (int64_t i = 0; i < cols; i++)
        col[i] = qm_bound_stored(b, 1, i, col[i]);
    for (int64_t k = 0; k < m->batch; k++) {
        const struct qm_ball *r = row + k * m->rows, *c = col + k * m->cols;
        struct qm_ball mean = qm_ball_float32(qm_ball_mean(b, r, m->rows, 1));
        if (!isnan(mean.x))
            mean = qm_ball_max(mean, qm_ball_scalar(b->h->eps1));
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->cols; j++)
                u[(k * m->rows + i) * m->cols + j] =
                    qm_ball_div(&b->reorder, qm_ball_mul(r[i], c[j]), mean);
    }
}

/* The factor on U: alpha / max(1, RMS(U) / d), in double, rounded once. */
static struct qm_ball factor_bound(const struct qm_bound_step *b, const struct qm_ball *theta,
                                   const struct qm_ball *u)
{
    const struct qm_oracle_hyper *h = b->h;
    struct qm_ball root = qm_ball_exact(sqrt((double)b->n)), scale, den;
    scale = qm_ball_div_double(b, qm_ball_float32(qm_ball_norm(b, theta, b->n, 1)), root);
    scale = qm_ball_max(scale, qm_ball_exact(h->eps2));
    scale = qm_ball_mul_double(b, scale, qm_ball_exact(fmin(h->lr, 1.0 / sqrt((double)b->t))));
    root.x *= h->clip;
    den = qm_ball_div_double(b, qm_ball_float32(qm_ball_norm(b, u, b->n, 1)), root);
    return qm_ball_float32(qm_ball_div_double(b, scale, qm_ball_max(den, qm_ball_exact(1.0))));
}

static qm_status bound(const struct qm_bound_step *b)
{
    const struct qm_oracle_hyper *h = b->h;
    struct qm_matrix_batch m = qm_batch_of(b->shape);
    int64_t n = b->n;
    struct qm_ball *u = qm_balls(4 * n + 2), *row = u + n, *col = row + n + 1, *theta = col + n + 1;
    struct qm_beta w = qm_bound_weight(b, pow((double)b->t, h->beta2_decay), 1);
    const struct qm_ball one = {1.0, 0.0};
    if (!u)
        return QM_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        theta[i] = qm_ball_exact(b->p[i]);
        u[i] = qm_ball_mul(qm_ball_exact(b->g[i]), qm_ball_exact(b->g[i]));
    }
    if (b->shape->rank >= 2 && h->factored)
        factors_bound(b, &m, &w, u, row, col);
    else
        qm_ball_average_slot(b, 2, &w, n, u);
    for (int64_t i = 0; i < n; i++) {
        struct qm_ball v =
            b->shape->rank >= 2 && h->factored ? u[i] : qm_bound_stored(b, 2, i, u[i]);
        if (!isnan(v.x)) /* torch.clamp: NaN stays */
            v = qm_ball_max(v, qm_ball_scalar(h->eps1 * h->eps1));
        u[i] = qm_ball_mul(qm_ball_div(&b->reorder, one, qm_ball_sqrt(&b->reorder, v)),
                           qm_ball_exact(h->maximize ? -b->g[i] : b->g[i]));
    }
    struct qm_ball alpha = factor_bound(b, theta, u),
                   keep = qm_bound_one_minus(b, h->lr, h->weight_decay);
    for (int64_t i = 0; i < n; i++)
        qm_bound_new_param(
            b, i,
            qm_bound_stepped(b, theta[i],
                             qm_bound_decayed(b, theta[i], keep, h->lr, h->weight_decay), h->lr,
                             h->weight_decay, qm_ball_mul(u[i], alpha)));
    free(u);
    return QM_OK;
}

extern const struct qm_oracle qm_oracle_adafactor_torch;
const struct qm_oracle qm_oracle_adafactor_torch = {
    .family = "adafactor_torch",
    .source = "torch/optim/_adafactor.py, the algorithm of its documentation",
    .n_slots = 3,
    .slot = {"row_var", "col_var", "variance"},
    .whole = whole,
    .bound = bound,
};
