/* tensor_rule.c - Matrices of a shape, norms, products and factored moments of tensor rules. */
#include "core/rule/tensor_rule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

QM_ISA_TABLE(const struct qm_tensor_rule_loops, qm_tensor_rule_loops)

const struct qm_tensor_rule_loops *qm_tensor_rule_loops(void)
{
    return qm_tensor_rule_device() ? qm_tensor_rule_device()->loops : qm_tensor_rule_loops_by_isa();
}

int qm_matrices_of(const struct qm_shape *s, struct qm_matrices *out)
{
    if (s->rank < 2)
        return 0;
    *out = (struct qm_matrices){1, s->dim[s->rank - 2], s->dim[s->rank - 1]};
    for (int i = 0; i + 2 < s->rank; i++)
        out->batch *= s->dim[i];
    return 1;
}

/* The shape without one of its dims. */
static void drop_dim(const struct qm_shape *s, int which, struct qm_shape *out)
{
    struct qm_shape r = {.rank = s->rank - 1};
    if (s->rank < 2 || qm_shape_numel(s) == 0) {
        *out = qm_shape_none();
        return;
    }
    for (int i = 0, k = 0; i < s->rank; i++)
        if (i != which)
            r.dim[k++] = s->dim[i];
    *out = r;
}

void qm_shape_of_rows(const struct qm_shape *s, struct qm_shape *out)
{
    drop_dim(s, s->rank - 1, out);
}

void qm_shape_of_cols(const struct qm_shape *s, struct qm_shape *out)
{
    drop_dim(s, s->rank - 2, out);
}

/* ---- sums ------------------------------------------------------------------------------------ */

float qm_lane_norm(const float *x, int64_t n)
{
    double norm = 0.0;
    void *at = NULL;
    if (qm_tensor_rule_alloc(sizeof norm, &at) != QM_OK)
        return 0.0f; /* the device reports the failure after the step */
    qm_sweep_run(QM_SWEEP_lane_norm,
                 &(struct qm_sweep){.n = 1, .inner = n, .x = {NULL, QM_AT(x)}, .y = {at}});
    qm_tensor_rule_read(&norm, at, sizeof norm);
    qm_tensor_rule_free(at);
    return (float)norm;
}

float qm_root_of_squares(const float *x, int64_t n)
{
    return (float)sqrt(qm_float_squares_of(&(struct qm_lazy_floats){.made = x}, n));
}

float qm_norm2(const float *x, int64_t n)
{
    float one;
    if (n != 1)
        return qm_root_of_squares(x, n);
    qm_tensor_rule_read(&one, x, sizeof one);
    return fabsf(one);
}

float qm_rms(const float *x, int64_t n) { return qm_norm2(x, n) / (float)sqrt((double)n); }

/* Tile by tile, all tiles of a strip of y's columns in turn, so that the strip stays in
 * the cache. */
void qm_product(const float *x, int64_t step_a, int64_t step_k, const float *y, int64_t rows,
                int64_t inner, int64_t cols, float *out)
{
    const struct qm_tensor_rule_loops *b = qm_tensor_rule_loops();
    if (qm_tensor_rule_device()) {
        qm_sweep_run(QM_SWEEP_product, &(struct qm_sweep){.n = rows * cols,
                                                          .cols = cols,
                                                          .inner = inner,
                                                          .step_a = step_a,
                                                          .step_k = step_k,
                                                          .x = {out, QM_AT(x), QM_AT(y)}});
        return;
    }
    int64_t high = (rows + QM_TENSOR_DEEP - 1) / QM_TENSOR_DEEP;
    int64_t wide = (cols + QM_TENSOR_TILE - 1) / QM_TENSOR_TILE;
    QM_PARALLEL(rows * cols * inner >= 16 * QM_THREADS_FROM)
    for (int64_t k = 0; k < high * wide; k++) {
        int64_t a = k % high * QM_TENSOR_DEEP, c = k / high * QM_TENSOR_TILE;
        b->product(&(struct qm_product_tile){
            .x = x + a * step_a,
            .y = y + c,
            .out = out + a * cols + c,
            .step_a = step_a,
            .step_k = step_k,
            .width = cols,
            .rows = rows - a < QM_TENSOR_DEEP ? rows - a : QM_TENSOR_DEEP,
            .inner = inner,
            .cols = cols - c < QM_TENSOR_TILE ? cols - c : QM_TENSOR_TILE});
    }
}

/* ---- elements -------------------------------------------------------------------------------- */

void qm_average(float *old, const float *x, int64_t n, double decay, double weight)
{
    QM_CHUNKS(n, i)
    qm_tensor_rule_loops()->average(qm_chunk_n(n, i), (float)decay, (float)weight, x + i, old + i);
}

qm_status qm_batch_means(const struct qm_matrices *m, const float *row, float **out)
{
    const struct qm_matrices rows = {1, m->batch, m->rows};
    void *mean = NULL;
    QM_TRY(qm_tensor_rule_alloc(sizeof(float) * (size_t)m->batch, &mean));
    qm_row_means(&rows, (struct qm_term){.is_single = 1}, row, mean);
    *out = mean;
    return QM_OK;
}

/* All elements of all matrices in one launch. */
static qm_status rsqrt_there(const struct qm_matrices *m, const float *row, const float *col,
                             const float *x, float *out)
{
    float *mean = NULL;
    QM_TRY(qm_batch_means(m, row, &mean));
    qm_sweep_run(QM_SWEEP_factor_rsqrt,
                 &(struct qm_sweep){.n = m->batch * m->rows * m->cols,
                                    .rows = m->rows,
                                    .cols = m->cols,
                                    .x = {out, QM_AT(x), QM_AT(row), QM_AT(col), mean}});
    qm_tensor_rule_free(mean);
    return QM_OK;
}

qm_status qm_factor_rsqrt(const struct qm_matrices *m, const float *row, const float *col,
                          const float *x, float *out)
{
    const struct qm_tensor_rule_loops *blocks = qm_tensor_rule_loops();
    const struct qm_matrices rows = {1, 1, m->rows};
    if (m->rows == 0 || m->cols == 0) /* the factors may be empty too */
        return QM_OK;
    if (qm_tensor_rule_device())
        return rsqrt_there(m, row, col, x, out);
    float *root = malloc(sizeof *root * (size_t)m->cols);
    if (!root)
        return qm_fail(QM_NO_MEMORY, "%lld roots", (long long)m->cols);
    for (int64_t b = 0; b < m->batch; b++) {
        const float *r = row + b * m->rows, *c = col + b * m->cols;
        float mean = 0.0f;
        qm_row_means(&rows, (struct qm_term){.is_single = 1}, r, &mean);
        for (int64_t j = 0; j < m->cols; j++)
            root[j] = qm_col_root(c[j]);
        QM_PARALLEL(m->rows * m->cols >= QM_THREADS_FROM)
        for (int64_t i = 0; i < m->rows; i++) {
            int64_t at = (b * m->rows + i) * m->cols;
            blocks->outer_f32(m->cols, qm_row_root(r[i], mean), root, x + at, out + at);
        }
    }
    free(root);
    return QM_OK;
}

void qm_clip_rms(float *x, int64_t n, double clip)
{
    float den = qm_rms(x, n) / (float)clip;
    den = den < 1.0f ? 1.0f : den;
    QM_CHUNKS(n, i)
    qm_tensor_rule_loops()->divide(qm_chunk_n(n, i), den, x + i);
}
