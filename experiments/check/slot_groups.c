/* slot_groups.c - Maps elements to their scales, for every norm. */
#include "experiments/check/slot_parts.h"

#include <string.h>

int qm_slot_has_numbers(const struct qm_quantizer *q)
{
    return q->curve == QM_CURVE_allog || q->curve == QM_CURVE_qlog || q->curve == QM_CURVE_expand ||
           q->curve == QM_CURVE_affine;
}

/* Numbers stored per group: span and low, scale and alpha, or lo and hi; scale, exponent and
 * centre; else one scale. */
static int numbers(const struct qm_quantizer *q)
{
    return q->curve == QM_CURVE_expand ? 3 : qm_slot_has_numbers(q) ? 2 : 1;
}

/* Norm divblock: the largest divisor of n up to `asked`, or n itself.  The last answer is kept: it
 * is asked for at every element. */
static int64_t divisor_of(int64_t n, int64_t asked)
{
    static _Thread_local struct {
        int64_t n, asked, best;
    } last;
    int64_t best = 1;
    if (asked == 0 || asked >= n)
        return n > 0 ? n : 1;
    if (last.n == n && last.asked == asked)
        return last.best;
    for (int64_t d = 1; d <= n / d; d++) {
        int64_t pair = n / d;
        if (n % d != 0)
            continue;
        best = pair <= asked && pair > best ? pair : d <= asked && d > best ? d : best;
    }
    last.n = n;
    last.asked = asked;
    return last.best = best;
}

int64_t qm_slot_run(const struct qm_quantizer *q, const struct qm_shape *shape)
{
    if (q->norm == QM_NORM_block)
        return q->block;
    if (q->norm == QM_NORM_divblock)
        return divisor_of(qm_shape_numel(shape), q->block);
    int is_rank1 = q->norm == QM_NORM_rank1 || q->norm == QM_NORM_rank1block;
    return is_rank1 && shape->rank < 2 ? 128 : 0;
}

/* 1: norm rank1block of a matrix, whose scales are those of pieces of rows, then of pieces of
 * columns. */
static int is_pieces(const struct qm_quantizer *q, const struct qm_shape *shape)
{
    return q->norm == QM_NORM_rank1block && shape->rank == 2;
}

int qm_slot_has_two_scales(const struct qm_quantizer *q)
{
    return q->norm == QM_NORM_rowcol || q->norm == QM_NORM_colrow;
}

static int64_t pieces(int64_t n, int64_t block) { return (n + block - 1) / block; }

int64_t qm_groups_count(const struct qm_quantizer *q, const struct qm_shape *shape, int64_t n)
{
    int64_t run = qm_slot_run(q, shape), sum = 0;
    if (n == 0 || q->norm == QM_NORM_id)
        return 0;
    if (run > 0)
        return (n + run - 1) / run * numbers(q);
    if (q->norm == QM_NORM_tensor)
        return 1;
    if (qm_slot_has_two_scales(q))
        return shape->dim[0] + shape->dim[1];
    if (q->norm == QM_NORM_rowblock)
        return shape->rank == 2 ? shape->dim[0] * pieces(shape->dim[1], q->block) : 0;
    if (is_pieces(q, shape))
        return shape->dim[0] * pieces(shape->dim[1], q->block) +
               shape->dim[1] * pieces(shape->dim[0], q->block);
    if (q->norm != QM_NORM_rank1 && q->norm != QM_NORM_rank1block)
        return shape->dim[q->norm == QM_NORM_row ? 0 : 1];
    for (int i = 0; i < shape->rank; i++)
        sum += shape->dim[i];
    return sum;
}

int64_t qm_groups_stay(const struct qm_quantizer *q, const struct qm_shape *shape, int64_t i)
{
    int64_t run = qm_slot_run(q, shape), at;
    if (run > 0)
        return run - i % run;
    switch (q->norm) {
    case QM_NORM_id:
    case QM_NORM_tensor: return INT64_MAX;
    case QM_NORM_row: run = qm_shape_numel(shape) / shape->dim[0]; return run - i % run;
    case QM_NORM_rowblock:
        at = i % shape->dim[1];
        run = shape->dim[1] - at;
        return run < q->block - at % q->block ? run : q->block - at % q->block;
    default: return 1;
    }
}

int qm_groups_of(const struct qm_quantizer *q, const struct qm_shape *shape, int64_t i,
                 int64_t *group)
{
    int64_t run = qm_slot_run(q, shape), at[QM_MAX_RANK], base = 0;
    if (q->norm == QM_NORM_id)
        return 0;
    group[0] = run > 0 ? i / run * numbers(q) : 0;
    group[1] = group[0] + 1;
    group[2] = group[0] + 2;
    if (numbers(q) > 1)
        return numbers(q);
    if (run > 0 || q->norm == QM_NORM_tensor)
        return 1;
    for (int a = shape->rank - 1; a >= 0; a--) {
        at[a] = a == 0 || i == 0 ? i : shape->dim[a] == 1 ? 0 : i % shape->dim[a];
        i = shape->dim[a] == 1 ? i : i / shape->dim[a];
    }
    if (q->norm == QM_NORM_rowblock) {
        group[0] = at[0] * pieces(shape->dim[1], q->block) + at[1] / q->block;
        return 1;
    }
    if (is_pieces(q, shape)) {
        int64_t per_row = pieces(shape->dim[1], q->block),
                per_col = pieces(shape->dim[0], q->block);
        group[0] = at[0] * per_row + at[1] / q->block;
        group[1] = shape->dim[0] * per_row + at[1] * per_col + at[0] / q->block;
        return 2;
    }
    if (qm_slot_has_two_scales(q)) {
        group[0] = at[0];
        group[1] = shape->dim[0] + at[1];
        return 2;
    }
    if (q->norm != QM_NORM_rank1 && q->norm != QM_NORM_rank1block) {
        group[0] = at[q->norm == QM_NORM_row ? 0 : 1];
        return 1;
    }
    for (int a = 0; a < shape->rank; a++) {
        group[a] = base + at[a];
        base += shape->dim[a];
    }
    return shape->rank;
}
