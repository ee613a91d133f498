/* adamw_factor.c - AdamW in double with a factored second moment, and its error bound.
 *
 * The second moment is factored as in Adafactor (without its epsilon and clipping), with Adam's
 * bias correction: "4-bit Factor" before anything is quantized.
 *
 *   theta <- (1 - lr lambda) theta
 *   M     <- beta1 M + (1 - beta1) G
 *   R_i   <- beta2 R_i + (1 - beta2) mean_j G_ij^2
 *   C_j   <- beta2 C_j + (1 - beta2) mean_i G_ij^2
 *   V_ij   = R_i C_j / mean_i R_i
 *   theta <- theta - lr Mhat / (sqrt(Vhat) + eps)
 *
 * A tensor of more than two dimensions is a batch of matrices of its last two.  A tensor of fewer
 * than two dimensions, and every tensor where hyper.factored is 0, keeps V unfactored: AdamW.
 *
 * Slots: M; V, untouched where factored; R and C, the first batch * rows and batch * cols elements
 * of their slots, untouched where not factored. */
#include "oracle/bound/bound_tensor.h"

#include <stdlib.h>

struct matrices {
    int64_t batch, rows, cols;
};

/* For shape->rank >= 2. */
static struct matrices matrices_of(const struct qm_shape *shape)
{
    struct matrices s = {1, shape->dim[shape->rank - 2], shape->dim[shape->rank - 1]};
    for (int i = 0; i < shape->rank - 2; i++)
        s.batch *= shape->dim[i];
    return s;
}

static void average_squares(const double *g, struct matrices s, double beta2, double sign,
                            double *r, double *c)
{
    for (int64_t i = 0; i < s.rows; i++) {
        double mean = 0.0;
        for (int64_t j = 0; j < s.cols; j++)
            mean += sign * g[i * s.cols + j] * (sign * g[i * s.cols + j]);
        mean = mean / (double)s.cols;
        r[i] = beta2 * r[i] + (1.0 - beta2) * mean;
    }
    for (int64_t j = 0; j < s.cols; j++) {
        double mean = 0.0;
        for (int64_t i = 0; i < s.rows; i++)
            mean += sign * g[i * s.cols + j] * (sign * g[i * s.cols + j]);
        mean = mean / (double)s.rows;
        c[j] = beta2 * c[j] + (1.0 - beta2) * mean;
    }
}

static double mean_of(const double *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

static double step_of(double m, double v, const struct qm_oracle_hyper *h, int64_t t)
{
    double m_hat = m / qm_oracle_correction(h->beta1, t),
           root = sqrt(v) / sqrt(qm_oracle_correction(h->beta2, t));
    return h->lr * (m_hat / (root + h->eps));
}

static qm_status whole(double *theta, double *const *slot, const double *grad,
                       const struct qm_shape *shape, uint32_t tensor,
                       const struct qm_oracle_hyper *h, int64_t t)
{
    int64_t n = qm_shape_numel(shape);
    double sign = h->maximize ? -1.0 : 1.0;
    double *m = slot[0], *v = slot[1], *r = slot[2], *c = slot[3];
    (void)tensor;

    for (int64_t i = 0; i < n; i++)
        theta[i] = (1.0 - h->lr * h->weight_decay) * theta[i];
    for (int64_t i = 0; i < n; i++)
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * (sign * grad[i]);
    if (shape->rank < 2 || !h->factored) {
        for (int64_t i = 0; i < n; i++) {
            v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * grad[i] * grad[i];
            theta[i] = theta[i] - step_of(m[i], v[i], h, t);
        }
        return QM_OK;
    }
    struct matrices s = matrices_of(shape);
    for (int64_t b = 0; b < s.batch && n > 0; b++) {
        int64_t first = b * s.rows * s.cols;
        double *rb = r + b * s.rows, *cb = c + b * s.cols;
        average_squares(grad + first, s, h->beta2, sign, rb, cb);
        double mean = mean_of(rb, s.rows);
        for (int64_t i = 0; i < s.rows; i++)
            for (int64_t j = 0; j < s.cols; j++) {
                int64_t at = first + i * s.cols + j;
                theta[at] = theta[at] - step_of(m[at], rb[i] * cb[j] / mean, h, t);
            }
    }
    return QM_OK;
}

/* ---- its bound ------------------------------------------------------------------------------- */

/* v <- R C / mean(R) of every element, R and C as the update of the parameter reads them.  On entry
 * v holds the squares; row and col are work space. */
static void factors_bound(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                          const struct qm_beta *w, struct qm_ball *v, struct qm_ball *row,
                          struct qm_ball *col)
{
    qm_ball_row_means(b, m, v, row);
    qm_ball_col_means(b, m, v, col);
    qm_ball_average_slot(b, 2, w, m->batch * m->rows, row);
    qm_ball_average_slot(b, 3, w, m->batch * m->cols, col);
    for (int64_t i = 0; i < m->batch * m->rows; i++)
        row[i] = qm_bound_stored(b, 2, i, row[i]);
    for (int64_t i = 0; i < m->batch * m->cols; i++)
        col[i] = qm_bound_stored(b, 3, i, col[i]);
    for (int64_t k = 0; k < m->batch; k++) {
        const struct qm_ball *r = row + k * m->rows, *c = col + k * m->cols;
        struct qm_ball mean = qm_ball_float32(qm_ball_mean(b, r, m->rows, 1));
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->cols; j++)
                v[(k * m->rows + i) * m->cols + j] =
                    qm_ball_mul(qm_ball_div(&b->reorder, r[i], mean), c[j]);
    }
}

static qm_status bound(const struct qm_bound_step *b)
{
    const struct qm_oracle_hyper *h = b->h;
    struct qm_adam_scalars s = qm_adam_scalars_of(b, 0, 0);
    struct qm_matrix_batch batch = qm_batch_of(b->shape);
    int64_t n = b->n;
    struct qm_ball *v = qm_balls(3 * n + 2), *row = v + n, *col = row + n + 1;
    int factored = b->shape->rank >= 2 && h->factored;
    if (!v)
        return QM_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        struct qm_ball g = qm_ball_exact(b->g[i]);
        v[i] = factored ? qm_ball_mul(g, g)
                        : qm_bound_new(b, 1, i, qm_bound_square(b, &s.v, qm_bound_old(b, 1, i), g));
    }
    if (factored)
        factors_bound(b, &batch, &s.v, v, row, col);
    for (int64_t i = 0; i < n; i++) {
        struct qm_ball g = qm_ball_exact(h->maximize ? -b->g[i] : b->g[i]);
        struct qm_ball m = qm_bound_new(b, 0, i, qm_bound_average(&s.m, qm_bound_old(b, 0, i), g));
        qm_bound_new_param(b, i, qm_bound_adam_param(&s, qm_ball_exact(b->p[i]), m, v[i]));
    }
    free(v);
    return QM_OK;
}

extern const struct qm_oracle qm_oracle_adamw_factor;
const struct qm_oracle qm_oracle_adamw_factor = {
    .family = "adamw_factor",
    .source = "arXiv:2309.01507 (4-bit Factor) with arXiv:1804.04235, section 3, algorithm 2, and "
              "AdamW's step, arXiv:1711.05101, algorithm 2",
    .n_slots = 4,
    .slot = {"exp_avg", "exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col"},
    .whole = whole,
    .bound = bound,
};
