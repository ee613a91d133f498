/* adafactor.c - Adafactor of the paper in double with the options of transformers; its error bound.
 *
 *   s   = g^2 + eps1,  b = 1 - t^decay
 *   R  <- b R + (1 - b) mean over columns of s,  C <- b C + (1 - b) mean over rows of s
 *   V   = R C / mean(R);                 vectors: V <- b V + (1 - b) s
 *   U   = g / sqrt(V),  U <- U / max(1, RMS(U) / d)
 *   lr_t = rho_t max(eps2, RMS(theta));  rho_t = min(lr, 1 / sqrt(t)) where relative_step, else lr
 *   m  <- beta1 m + (1 - beta1) lr_t U   where beta1 is given, else m = lr_t U
 *   theta <- (1 - lambda lr_t) theta - m
 *
 * A tensor of more than two dimensions is a batch of matrices of its last two.  Slots: R [batch x
 * rows], C [batch x cols], V of a vector, m. */
#include "oracle/bound/bound_tensor.h"

#include <stdlib.h>

static double step_size(const double *theta, int64_t n, const struct qm_oracle_hyper *h, int64_t t)
{
    double rho = h->lr;
    if (h->relative_step)
        rho = fmin(h->warmup ? 1e-6 * (double)t : h->lr, 1.0 / sqrt((double)t));
    return h->scale_parameter ? rho * fmax(h->eps2, qm_rms_of(theta, n)) : rho;
}

static qm_status whole(double *theta, double *const *slot, const double *g,
                       const struct qm_shape *shape, uint32_t tensor,
                       const struct qm_oracle_hyper *h, int64_t t)
{
    struct qm_matrix_batch m = qm_batch_of(shape);
    int64_t n = m.numel;
    double beta = 1.0 - pow((double)t, h->beta2_decay);
    double *u = calloc((size_t)(n + 1), sizeof *u);
    (void)tensor;
    if (!u)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)n);

    double lr = step_size(theta, n, h, t);
    for (int64_t i = 0; i < n; i++)
        u[i] = g[i] * g[i] + h->eps1;
    if (shape->rank >= 2 && h->factored) {
        qm_factors_average(&m, u, beta, 1.0 - beta, slot[0], slot[1]);
        for (int64_t i = 0; i < n; i++)
            u[i] = g[i];
        qm_factors_divide(&m, slot[0], slot[1], u);
    } else {
        for (int64_t i = 0; i < n; i++)
            slot[2][i] = beta * slot[2][i] + (1.0 - beta) * u[i];
        for (int64_t i = 0; i < n; i++)
            u[i] = g[i] / sqrt(slot[2][i]);
    }
    double clip = qm_rms_of(u, n) / h->clip;
    for (int64_t i = 0; i < n; i++)
        u[i] = u[i] / (clip < 1.0 ? 1.0 : clip) * lr;
    for (int64_t i = 0; i < n && h->beta1 != 0.0; i++)
        u[i] = slot[3][i] = h->beta1 * slot[3][i] + (1.0 - h->beta1) * u[i];
    for (int64_t i = 0; i < n; i++)
        theta[i] = qm_decayed_by_sum(theta[i], h->weight_decay, lr) - u[i];
    free(u);
    return QM_OK;
}

/* ---- its bound ------------------------------------------------------------------------------- */

static struct qm_ball step_size_bound(const struct qm_bound_step *b, const struct qm_ball *theta)
{
    const struct qm_oracle_hyper *h = b->h;
    double rho = h->lr;
    if (h->relative_step)
        rho = fmin(h->warmup ? 1e-6 * (double)b->t : h->lr, 1.0 / sqrt((double)b->t));
    struct qm_ball rate = qm_ball_scalar(rho);
    if (!h->scale_parameter)
        return rate;
    return qm_ball_mul(qm_ball_max(qm_ball_rms(b, theta, b->n), qm_ball_exact(h->eps2)), rate);
}

/* u <- 1 / sqrt(V) of every element.  u, row and col are the caller's work space: n, rows
 * and columns. */
static void second_moments(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                           int factored, struct qm_ball *u, struct qm_ball *row,
                           struct qm_ball *col)
{
    const struct qm_ball one = {1.0, 0.0};
    struct qm_beta w = qm_bound_beta(b, 1.0 - pow((double)b->t, b->h->beta2_decay), 0);
    int reads_back = b->h->beta1 == 0.0;
    for (int64_t i = 0; i < b->n; i++)
        u[i] = qm_ball_add(qm_ball_mul(qm_ball_exact(b->g[i]), qm_ball_exact(b->g[i])),
                           qm_ball_scalar(b->h->eps1));
    if (factored) {
        qm_ball_row_means(b, m, u, row);
        qm_ball_col_means(b, m, u, col);
        qm_ball_sums_overflow(row, m->batch * m->rows, m->cols);
        qm_ball_sums_overflow(col, m->batch * m->cols, m->rows);
        qm_ball_average_slot(b, 0, &w, m->batch * m->rows, row);
        qm_ball_average_slot(b, 1, &w, m->batch * m->cols, col);
        for (int64_t i = 0; reads_back && i < m->batch * m->rows; i++)
            row[i] = qm_bound_stored(b, 0, i, row[i]);
        for (int64_t i = 0; reads_back && i < m->batch * m->cols; i++)
            col[i] = qm_bound_stored(b, 1, i, col[i]);
        qm_ball_factors_rsqrt(b, m, row, col, u);
        return;
    }
    qm_ball_average_slot(b, 2, &w, b->n, u);
    for (int64_t i = 0; i < b->n; i++) {
        struct qm_ball v = reads_back ? qm_bound_stored(b, 2, i, u[i]) : u[i];
        u[i] = qm_ball_div(&b->reorder, one, qm_ball_sqrt(&b->reorder, v));
    }
}

static qm_status bound(const struct qm_bound_step *b)
{
    struct qm_matrix_batch m = qm_batch_of(b->shape);
    int64_t n = b->n;
    struct qm_ball *u = qm_balls(4 * n + 2), *row = u + n, *col = row + n + 1, *theta = col + n + 1;
    struct qm_beta w = qm_bound_beta(b, b->h->beta1, 0);
    if (!u)
        return QM_NO_MEMORY;
    for (int64_t i = 0; i < n; i++)
        theta[i] = qm_ball_exact(b->p[i]);
    struct qm_ball lr = step_size_bound(b, theta);
    second_moments(b, &m, b->shape->rank >= 2 && b->h->factored, u, row, col);
    for (int64_t i = 0; i < n; i++)
        u[i] = qm_ball_mul(u[i], qm_ball_exact(b->g[i]));
    qm_ball_clip(b, u, n, b->h->clip);
    struct qm_ball decay = qm_ball_mul(qm_ball_scalar(b->h->weight_decay), lr);
    struct qm_ball keep = qm_ball_add(qm_ball_exact(1.0), qm_ball_negated(decay));
    for (int64_t i = 0; i < n; i++) {
        u[i] = qm_ball_mul(u[i], lr);
        if (b->h->beta1 != 0.0)
            u[i] = qm_bound_new(b, 3, i, qm_bound_average(&w, qm_bound_old(b, 3, i), u[i]));
        struct qm_ball p = qm_ball_add(theta[i], qm_ball_negated(qm_ball_mul(theta[i], decay)));
        if (b->reorder.fold)
            p = qm_ball_either(p, qm_ball_mul(theta[i], keep));
        theta[i] = p;
        qm_bound_new_param(b, i, qm_ball_add(theta[i], qm_ball_negated(u[i])));
    }
    free(u);
    return QM_OK;
}

extern const struct qm_oracle qm_oracle_adafactor;
const struct qm_oracle qm_oracle_adafactor = {
    .family = "adafactor",
    .source = "arXiv:1804.04235, algorithms 4 and 5; options as transformers optimization.py",
    .n_slots = 4,
    .slot = {"exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq", "exp_avg"},
    .whole = whole,
    .bound = bound,
};
