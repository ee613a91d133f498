/* came.c - CAME in double, and its error bound.
 *
 *   s  = g^2 + eps1
 *   r <- beta2 r + (1 - beta2) mean over columns of s,  c likewise over rows
 *   u  = g / sqrt(r c / mean(r));           vectors: v <- beta2 v + (1 - beta2) s, u = g / sqrt(v)
 *   u <- u / max(1, RMS(u) / d)
 *   m <- beta1 m + (1 - beta1) u
 *   q  = (u - m)^2 + eps2
 *   R <- beta3 R + (1 - beta3) mean over columns of q,  C likewise over rows
 *   theta <- (1 - lambda lr) theta - lr m / sqrt(R C / mean(R));     vectors: - lr m
 *
 * No average is corrected for its start at 0.  Slots: m, r, c, v (of vectors), R, C. */
#include "oracle/bound/bound_tensor.h"

#include <stdlib.h>

/* A parameter of 16 bits is decayed by torch's add with a factor: lambda lr has its format, and the
 * product is rounded to it where the element is of no whole vector of 32. */
enum { VECTOR = 32 };

static qm_status whole(double *theta, double *const *slot, const double *g,
                       const struct qm_shape *shape, uint32_t tensor,
                       const struct qm_oracle_hyper *h, int64_t t)
{
    struct qm_matrix_batch b = qm_batch_of(shape);
    int64_t n = b.numel;
    double *m = slot[0], *r = slot[1], *c = slot[2], *v = slot[3], *big_r = slot[4],
           *big_c = slot[5];
    double *u = calloc((size_t)(n + 1), sizeof *u);
    (void)tensor;
    (void)t;
    if (!u)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)n);

    for (int64_t i = 0; i < n; i++)
        u[i] = g[i] * g[i] + h->eps1;
    if (shape->rank >= 2) {
        qm_factors_average(&b, u, h->beta2, 1.0 - h->beta2, r, c);
        for (int64_t i = 0; i < n; i++)
            u[i] = g[i];
        qm_factors_divide(&b, r, c, u);
    } else {
        for (int64_t i = 0; i < n; i++) {
            v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * u[i];
            u[i] = g[i] / sqrt(v[i]);
        }
    }
    double clip = qm_rms_of(u, n) / h->clip;
    for (int64_t i = 0; i < n; i++)
        u[i] = u[i] / (clip < 1.0 ? 1.0 : clip);
    for (int64_t i = 0; i < n; i++)
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * u[i];
    for (int64_t i = 0; i < n; i++)
        u[i] = (u[i] - m[i]) * (u[i] - m[i]) + h->eps2;
    if (shape->rank >= 2)
        qm_factors_average(&b, u, h->beta3, 1.0 - h->beta3, big_r, big_c);
    for (int64_t i = 0; i < n; i++)
        u[i] = m[i];
    if (shape->rank >= 2)
        qm_factors_divide(&b, big_r, big_c, u);
    for (int64_t i = 0; i < n; i++)
        theta[i] = qm_decayed_by_sum(theta[i], h->weight_decay, h->lr) - h->lr * u[i];
    free(u);
    return QM_OK;
}

/* ---- its bound ------------------------------------------------------------------------------- */

/* Averages the row and column means of x into slots `slot` and slot + 1.  row and col get the new
 * averages before they are stored, which the following states use. */
static void factors_bound(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                          double beta, const struct qm_ball *x, int slot, struct qm_ball *row,
                          struct qm_ball *col)
{
    struct qm_beta w = qm_bound_beta(b, beta, 0);
    qm_ball_row_means(b, m, x, row);
    qm_ball_col_means(b, m, x, col);
    qm_ball_sums_overflow(row, m->batch * m->rows, m->cols);
    qm_ball_sums_overflow(col, m->batch * m->cols, m->rows);
    qm_ball_average_slot(b, slot, &w, m->batch * m->rows, row);
    qm_ball_average_slot(b, slot + 1, &w, m->batch * m->cols, col);
}

/* u <- the clipped direction; row and col are work space. */
static void direction_bound(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                            struct qm_ball *u, struct qm_ball *row, struct qm_ball *col)
{
    const struct qm_ball one = {1.0, 0.0};
    struct qm_beta w = qm_bound_beta(b, b->h->beta2, 0);
    for (int64_t i = 0; i < b->n; i++)
        u[i] = qm_ball_add(qm_ball_mul(qm_ball_exact(b->g[i]), qm_ball_exact(b->g[i])),
                           qm_ball_scalar(b->h->eps1));
    if (b->shape->rank >= 2) {
        factors_bound(b, m, b->h->beta2, u, 1, row, col);
        qm_ball_factors_rsqrt(b, m, row, col, u);
    } else {
        qm_ball_average_slot(b, 3, &w, b->n, u);
        for (int64_t i = 0; i < b->n; i++)
            u[i] = qm_ball_div(&b->reorder, one, qm_ball_sqrt(&b->reorder, u[i]));
    }
    for (int64_t i = 0; i < b->n; i++)
        u[i] = qm_ball_mul(u[i], qm_ball_exact(b->g[i]));
    qm_ball_clip(b, u, b->n, b->h->clip);
}

static qm_status bound(const struct qm_bound_step *b)
{
    const struct qm_oracle_hyper *h = b->h;
    struct qm_matrix_batch m = qm_batch_of(b->shape);
    int64_t n = b->n, rows = m.batch * m.rows, cols = m.batch * m.cols;
    struct qm_ball *u = qm_balls(4 * n + 2), *row = u + n, *col = row + n + 1, *avg = col + n + 1;
    struct qm_beta w = qm_bound_beta(b, h->beta1, 0);
    if (!u)
        return QM_NO_MEMORY;
    direction_bound(b, &m, u, row, col);
    for (int64_t i = 0; i < n; i++) {
        avg[i] = qm_bound_set(b, 0, i, qm_bound_average(&w, qm_bound_old(b, 0, i), u[i]));
        u[i] = qm_ball_add(u[i], qm_ball_negated(avg[i]));
        u[i] = qm_ball_add(qm_ball_mul(u[i], u[i]), qm_ball_scalar(h->eps2));
    }
    if (b->shape->rank >= 2) {
        factors_bound(b, &m, h->beta3, u, 4, row, col);
        for (int64_t i = 0; i < rows; i++)
            row[i] = qm_bound_stored(b, 4, i, row[i]);
        for (int64_t i = 0; i < cols; i++)
            col[i] = qm_bound_stored(b, 5, i, col[i]);
        qm_ball_factors_rsqrt(b, &m, row, col, u);
    }
    struct qm_ball lr = qm_ball_scalar(h->lr), decay = qm_ball_scalar(h->weight_decay * h->lr),
                   keep = qm_ball_scalar(1.0 - decay.x),
                   narrow = qm_ball_round_to(b->between, decay);
    for (int64_t i = 0; i < n; i++) {
        struct qm_ball p = qm_ball_exact(b->p[i]), step = qm_bound_stored(b, 0, i, avg[i]);
        if (b->shape->rank >= 2)
            step = qm_ball_mul(u[i], step);
        struct qm_ball lost = qm_ball_mul(p, narrow);
        if (i >= n / VECTOR * VECTOR)
            lost = qm_ball_round_to(b->between, lost);
        struct qm_ball kept = qm_ball_add(p, qm_ball_negated(lost));
        if (b->reorder.fold)
            kept = qm_ball_either(kept, qm_bound_decayed(b, p, keep, h->lr, h->weight_decay));
        step = qm_ball_mul(step, lr);
        if (b->between)
            p = qm_ball_add(qm_ball_round_to(b->between, kept), qm_ball_negated(step));
        else
            p = qm_bound_stepped(b, p, kept, b->h->lr, b->h->weight_decay, step);
        qm_bound_new_param(b, i, p);
        if (b->between)
            b->p_want[i] = p.x;
    }
    free(u);
    return QM_OK;
}

extern const struct qm_oracle qm_oracle_came;
const struct qm_oracle qm_oracle_came = {
    .family = "came",
    .source = "arXiv:2307.02047, algorithm 2; without bias correction as CAME.py",
    .n_slots = 6,
    .slot = {"exp_avg", "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq", "exp_avg_res_row",
             "exp_avg_res_col"},
    .whole = whole,
    .bound = bound,
};
