/* norm_two_scales.c - Statistics and scales of the norms rowcol, colrow and rank1block. */
#include "core/quant/norm_two_scales.h"

#include "core/quant/simd.h"

enum { PIECE = 1024 }; /* elements divided at a time */

/* The number of blocks that cover n elements. */
static int64_t pieces(int64_t n, int64_t block) { return (n + block - 1) / block; }

int64_t qm_two_scales_count(const struct qm_codec *c, const struct qm_shape *shape)
{
    int64_t rows = shape->dim[0], cols = shape->dim[1];
    if (c->q.norm == QM_NORM_rank1block)
        return rows * pieces(cols, c->q.block) + cols * pieces(rows, c->q.block);
    return rows + cols;
}

static float larger(float a, float b) { return qm_bits(a) > qm_bits(b) ? a : b; }

/* Folds n elements into one statistic. */
static void fold_one(const float *x, int64_t n, float *stat)
{
    *stat = larger(*stat, qm_float(qm_simd()->max_bits(x, n)));
}

/* Folds n elements of row at[0] from column at[1] on: into the blocks of this row, and each element
 * into the block of its column. */
static void fold_rank1block(const struct qm_codec *c, const struct qm_shape *shape,
                            const int64_t *at, int64_t n, const float *x, float *stat)
{
    int64_t block = c->q.block, per_row = pieces(shape->dim[1], block);
    int64_t per_col = pieces(shape->dim[0], block);
    float *row = stat + at[0] * per_row, *col = stat + shape->dim[0] * per_row;
    for (int64_t i = 0; i < n;) {
        int64_t b = (at[1] + i) / block, end = (b + 1) * block - at[1], m = (end < n ? end : n) - i;
        fold_one(x + i, m, row + b);
        i += m;
    }
    col += at[1] * per_col + at[0] / block;
    if (per_col == 1)
        qm_simd()->fold_each(x, n, col);
    else
        for (int64_t i = 0; i < n; i++)
            col[i * per_col] = larger(col[i * per_col], fabsf(x[i]));
}

/* Folds n elements from index `at` on into the statistics of the first axis (axis = 0) or of the
 * second (axis = 1). */
static void fold_axis(const struct qm_shape *shape, int axis, const int64_t *at, int64_t n,
                      const float *x, float *stat)
{
    if (axis == 0)
        fold_one(x, n, stat + at[0]);
    else if (shape->rank == 2)
        qm_simd()->fold_each(x, n, stat + shape->dim[0] + at[1]);
    else
        fold_one(x, n, stat + shape->dim[0] + at[1]);
}

/* The scales of one axis for the n elements from index `at` on. */
static void axis_scales(const struct qm_shape *shape, int axis, const int64_t *at, int64_t n,
                        const float *scales, float *out)
{
    const float *from = axis == 0 ? scales + at[0] : scales + shape->dim[0] + at[1];
    int moves = axis == 1 && shape->rank == 2;
    for (int64_t i = 0; i < n; i++)
        out[i] = from[moves ? i : 0];
}

/* Folds n <= PIECE elements of one row of the last axis; `again` as for qm_two_scales_fold. */
static void fold_run(const struct qm_codec *c, const struct qm_shape *shape, int again,
                     const int64_t *at, int64_t n, const float *x, float *stat)
{
    int axis = c->q.norm == QM_NORM_colrow;
    float by[PIECE], y[PIECE];
    if (c->q.norm == QM_NORM_rank1block) {
        fold_rank1block(c, shape, at, n, x, stat);
    } else if (!again) {
        fold_axis(shape, axis, at, n, x, stat);
    } else {
        axis_scales(shape, axis, at, n, stat, by);
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] / by[i];
        fold_axis(shape, !axis, at, n, y, stat);
    }
}

void qm_two_scales_fold(const struct qm_codec *c, const struct qm_shape *shape, int again,
                        int64_t from, int64_t n, const float *x, float *stat)
{
    int last = shape->rank - 1;
    int64_t at[QM_MAX_RANK];
    while (n > 0) {
        int64_t rest = from;
        for (int i = last; i >= 0; i--) {
            at[i] = rest % shape->dim[i];
            rest /= shape->dim[i];
        }
        int64_t m = shape->dim[last] - at[last];
        m = m < n ? m : n;
        m = m < PIECE ? m : PIECE;
        fold_run(c, shape, again, at, m, x, stat);
        from += m;
        x += m;
        n -= m;
    }
}

int qm_two_scales_get(const struct qm_codec *c, const struct qm_shape *shape, const int64_t *at,
                      int64_t n, const float *scales, float *first, float *second)
{
    if (c->q.norm != QM_NORM_rank1block) {
        int axis = c->q.norm == QM_NORM_colrow;
        axis_scales(shape, axis, at, n, scales, first);
        axis_scales(shape, !axis, at, n, scales, second);
        return 1;
    }
    int64_t block = c->q.block, per_row = pieces(shape->dim[1], block);
    int64_t per_col = pieces(shape->dim[0], block);
    const float *row = scales + at[0] * per_row;
    const float *col = scales + shape->dim[0] * per_row + at[1] * per_col + at[0] / block;
    for (int64_t i = 0; i < n; i++) {
        float a = row[(at[1] + i) / block], b = col[i * per_col];
        second[i] = qm_isnan(a) || qm_isnan(b) ? NAN : a < b ? a : b;
    }
    return 0;
}
