/* whole.h - what rules over whole tensors share: matrices of a shape, sums, factored moments.
 *
 * Every sum is taken in double in the order of the indices and rounded to float32 once, so it
 * depends on no thread and no instruction set; the sources' own orders are not portable. */
#ifndef QM_RULE_WHOLE_H
#define QM_RULE_WHOLE_H

#include "core/rule/rule.h"

/* The last two dims; the dims before them are a batch of independent matrices. */
struct qm_matrices {
    int64_t batch, rows, cols;
};

/* 0 for tensors of less than two dims, which have no matrices. */
int qm_matrices_of(const struct qm_shape *s, struct qm_matrices *out);

/* The shape without its last, or without its second-to-last dim; dim {0} for an empty tensor or
 * one of less than two dims. */
void qm_shape_of_rows(const struct qm_shape *s, struct qm_shape *out);
void qm_shape_of_cols(const struct qm_shape *s, struct qm_shape *out);

static inline struct qm_shape qm_shape_none(void)
{
    return (struct qm_shape){.rank = 1, .dim = {0}};
}

/* row[batch * rows], col[batch * cols]: means of x[batch][rows][cols] over the other dim. */
void qm_row_means(const struct qm_matrices *m, const float *x, float *row);
void qm_col_means(const struct qm_matrices *m, const float *x, float *col);

float qm_norm2(const float *x, int64_t n);

/* The norm over the root of the count, both float32: tensor.norm(2) / numel ** 0.5. */
float qm_rms(const float *x, int64_t n);

/* old <- old * decay + x * weight, the addition fused: mul_(decay).add_(x, alpha=weight). */
void qm_average(float *old, const float *x, int64_t n, double decay, double weight);

/* x[n] <- (r / mean(r))^(-1/2) c^(-1/2), r's mean over the rows of each matrix: the inverse root
 * of the factored second moment in the order of transformers' and CAME's _approx_sq_grad. */
void qm_factor_rsqrt(const struct qm_matrices *m, const float *row, const float *col, float *x);

/* x / max(1, rms(x) / clip). */
void qm_clip_rms(float *x, int64_t n, double clip);

#endif
