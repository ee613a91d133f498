/* scale_layout.c - Counts the scales of a tensor, and computes them as stored. */
#include <stdlib.h>

#include "core/quant/block_numbers.h"
#include "core/quant/norm_two_scales.h"
#include "core/quant/quantizer_internal.h"

int64_t qm_divisor_block(int64_t asked, int64_t n)
{
    int64_t best = 1;
    if (n < 1 || asked <= 0 || n <= asked)
        return n < 1 ? 1 : n;
    for (int64_t d = asked; asked <= 1 << 16; d--)
        if (n % d == 0)
            return d;
    for (int64_t d = 1; d * d <= n; d++)
        if (n % d == 0) {
            best = d <= asked && d > best ? d : best;
            best = n / d <= asked && n / d > best ? n / d : best;
        }
    return best;
}

struct qm_quantizer qm_quantizer_at(const struct qm_quantizer *q, const struct qm_shape *shape)
{
    struct qm_quantizer at = *q;
    if (q->bits && q->norm == QM_NORM_divblock) {
        at.norm = QM_NORM_block;
        at.block = qm_divisor_block(q->block, qm_shape_numel(shape));
    }
    return at;
}

enum qm_norm qm_norm_for(const struct qm_codec *c, const struct qm_shape *shape, int64_t *block)
{
    *block = c->q.block;
    if (c->q.norm == QM_NORM_divblock) {
        *block = qm_divisor_block(c->q.block, qm_shape_numel(shape));
        return QM_NORM_block;
    }
    return qm_norm_of_rank(c->q.norm, shape->rank, block);
}

qm_status qm_codec_fits(const struct qm_codec *c, const struct qm_shape *shape)
{
    if (c->q.bits == 0)
        return QM_OK;
    if (c->q.norm == QM_NORM_col && shape->rank < 2)
        return qm_fail(QM_BAD_ARG, "norm col wants a tensor of at least two dimensions");
    if (c->q.norm == QM_NORM_row && shape->rank < 1)
        return qm_fail(QM_BAD_ARG, "norm row wants a tensor of at least one dimension");
    if (c->q.norm == QM_NORM_rowblock && shape->rank != 2)
        return qm_fail(QM_BAD_ARG, "norm rowblock wants a matrix, not %d dimensions", shape->rank);
    if ((c->q.norm == QM_NORM_rank1 || c->q.norm == QM_NORM_rank1block) && shape->rank < 1)
        return qm_fail(QM_BAD_ARG, "norm rank1 wants a tensor of at least one dimension");
    if ((c->q.norm == QM_NORM_rowcol || c->q.norm == QM_NORM_colrow) && shape->rank < 2)
        return qm_fail(QM_BAD_ARG, "norms rowcol and colrow want at least two dimensions");
    return QM_OK;
}

int qm_block_numbers(const struct qm_codec *c) { return qm_curve_numbers(c->q.curve); }

int64_t qm_scale_count(const struct qm_codec *c, const struct qm_shape *shape)
{
    int64_t n = qm_shape_numel(shape), block, sum = 0;
    if (n == 0 || c->q.bits == 0)
        return 0;
    switch (qm_norm_for(c, shape, &block)) {
    case QM_NORM_tensor: return 1;
    case QM_NORM_row: return shape->dim[0];
    case QM_NORM_col: return shape->dim[1];
    case QM_NORM_rowblock: return shape->dim[0] * ((shape->dim[1] + block - 1) / block);
    case QM_NORM_block: return (n + block - 1) / block * qm_block_numbers(c);
    case QM_NORM_rank1:
        for (int i = 0; i < shape->rank; i++)
            sum += shape->dim[i];
        return sum;
    case QM_NORM_rank1block:
    case QM_NORM_rowcol:
    case QM_NORM_colrow: return qm_two_scales_count(c, shape);
    default: return 0;
    }
}

int64_t qm_code_bytes(const struct qm_codec *c, int64_t n)
{
    return c->q.bits == 0 ? 0 : qm_pack_bytes(c->q.pack, c->q.bits, n);
}

int64_t qm_state_bytes(const struct qm_codec *c, const struct qm_shape *shape)
{
    int64_t n = qm_shape_numel(shape);
    if (c->q.bits == 0)
        return (c->q.plain == QM_PLAIN_f32 ? 4 : 2) * n;
    int64_t s = qm_scale_count(c, shape), bytes = qm_code_bytes(c, n);
    if (c->q.scale.nest && s > 0)
        return bytes + s + 4 * ((s + c->q.scale.nest - 1) / c->q.scale.nest) + 4;
    return bytes + s * (c->q.scale.f16 ? 2 : 4);
}

/* Encodes and decodes the scales minus their mean: signed dynamic map of 8 bits, blocks of N, by
 * reciprocals, NaN left out of the maximum (bitsandbytes compress_statistics). */
static void nest_scales(const struct qm_codec *c, float *scales, int64_t n)
{
    struct qm_codec inner;
    struct qm_quantizer q = {.map = QM_MAP_dyn,
                             .bits = 8,
                             .sign = 1,
                             .norm = QM_NORM_block,
                             .block = c->q.scale.nest,
                             .search = QM_SEARCH_grid,
                             .round = QM_ROUND_mid,
                             .unit = QM_UNIT_recip,
                             .scale = {.zero = 0, .max_skips_nan = 1}};
    struct qm_shape flat = {1, {n}};
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)scales[i];
    float mean = (float)(sum / (double)n);
    uint8_t *codes = malloc((size_t)n);
    float *outer = malloc(sizeof(float) * (size_t)(n / q.block + 1));
    if (codes && outer && qm_codec_init(&inner, &q) == QM_OK) {
        for (int64_t i = 0; i < n; i++)
            scales[i] -= mean;
        if (qm_encode(&inner, &flat, scales, NULL, codes, outer) == QM_OK)
            qm_decode(&inner, &flat, codes, outer, scales);
        for (int64_t i = 0; i < n; i++)
            scales[i] += mean;
    }
    free(codes);
    free(outer);
}

void qm_scales(const struct qm_codec *c, const struct qm_shape *shape, const float *stat,
               float *scales)
{
    int64_t block, n = qm_shape_numel(shape), count = qm_scale_count(c, shape);
    int per = qm_block_numbers(c);
    for (int64_t i = 0; per > 1 && i < count; i += per)
        qm_block_numbers_of(&c->q, &c->cb, stat + i, scales + i);
    if (per > 1)
        return;
    int has_tail = qm_norm_for(c, shape, &block) == QM_NORM_block && n % block != 0;
    for (int64_t i = 0; i < count; i++)
        scales[i] = qm_codec_divisor(c, stat[i], has_tail && i == count - 1).stored;
    if (c->q.scale.nest && count > 0)
        nest_scales(c, scales, count);
}
