/* factored_sums.h - Sums over rows and columns and the root mean square, for Adafactor and CAME. */
#ifndef QM_ORACLE_BOUND_FACTORED_SUMS_H
#define QM_ORACLE_BOUND_FACTORED_SUMS_H

#include <math.h>

#include "core/base/tensor.h"
#include "oracle/metric/compensated_sum.h"

/* A tensor as a batch of matrices of its last two dimensions.  batch 0: it has fewer than two, or
 * no element; numel: all its elements. */
struct qm_matrix_batch {
    int64_t batch, rows, cols, numel;
};

static inline struct qm_matrix_batch qm_batch_of(const struct qm_shape *s)
{
    struct qm_matrix_batch b = {.numel = qm_shape_numel(s)};
    if (s->rank < 2)
        return b;
    b.rows = s->dim[s->rank - 2];
    b.cols = s->dim[s->rank - 1];
    b.batch = b.rows > 0 && b.cols > 0 ? b.numel / (b.rows * b.cols) : 0;
    return b;
}

/* The value of a sum of which a term may be infinite, where the compensation is NaN. */
static inline double qm_sum_total(const struct qm_sum *s)
{
    return isfinite(s->hi) ? qm_sum_value(s) : s->hi;
}

/* Mean, Euclidean norm and root mean square of n elements from x on, `step` apart. */
static inline double qm_mean_of(const double *x, int64_t n, int64_t step)
{
    struct qm_sum sum = {0.0, 0.0};
    for (int64_t i = 0; i < n; i++)
        qm_sum_add(&sum, x[i * step]);
    return qm_sum_total(&sum) / (double)n;
}

static inline double qm_norm_of(const double *x, int64_t n, int64_t step)
{
    struct qm_sum sum = {0.0, 0.0};
    for (int64_t i = 0; i < n; i++)
        qm_sum_add(&sum, x[i * step] * x[i * step]);
    return n == 1 ? fabs(x[0]) : sqrt(qm_sum_total(&sum));
}

static inline double qm_rms_of(const double *x, int64_t n)
{
    return qm_norm_of(x, n, 1) / sqrt((double)n);
}

/* theta after a decay that the source adds as -lambda lr theta (transformers' Adafactor, CAME),
 * which of an infinite theta makes NaN. */
static inline double qm_decayed_by_sum(double theta, double lambda, double lr)
{
    return lambda != 0.0 ? theta - lambda * lr * theta : theta;
}

/* r <- beta r + weight mean over columns of s, c likewise over rows, in every matrix.  weight is
 * 1 - beta, or what the source forms it from, which loses no digits. */
static inline void qm_factors_average(const struct qm_matrix_batch *m, const double *s, double beta,
                                      double weight, double *r, double *c)
{
    for (int64_t b = 0; b < m->batch; b++) {
        const double *x = s + b * m->rows * m->cols;
        for (int64_t i = 0; i < m->rows; i++) {
            double mean = qm_mean_of(x + i * m->cols, m->cols, 1);
            r[b * m->rows + i] = beta * r[b * m->rows + i] + weight * mean;
        }
        for (int64_t j = 0; j < m->cols; j++) {
            double mean = qm_mean_of(x + j, m->rows, m->cols);
            c[b * m->cols + j] = beta * c[b * m->cols + j] + weight * mean;
        }
    }
}

/* x <- x / sqrt(V), V = r c / mean(r) in each matrix. */
static inline void qm_factors_divide(const struct qm_matrix_batch *m, const double *r,
                                     const double *c, double *x)
{
    for (int64_t b = 0; b < m->batch; b++) {
        double mean = qm_mean_of(r + b * m->rows, m->rows, 1);
        for (int64_t i = 0; i < m->rows; i++)
            for (int64_t j = 0; j < m->cols; j++) {
                int64_t k = (b * m->rows + i) * m->cols + j;
                x[k] = x[k] / (sqrt(r[b * m->rows + i] / mean) * sqrt(c[b * m->cols + j]));
            }
    }
}

#endif
