/* quantizer.c - Encodes and decodes whole tensors, packs and unpacks codes. */
#include "core/quant/quantizer.h"

#include "core/quant/quantizer_internal.h"
#include "core/quant/simd.h"

const struct qm_simd *qm_simd(void) { return qm_simd_by_isa(); }

qm_status qm_encode(const struct qm_codec *c, const struct qm_shape *shape, const float *x,
                    const struct qm_draws *draws, uint8_t *codes, float *scales)
{
    int64_t n = qm_shape_numel(shape), count = qm_scale_count(c, shape);
    QM_TRY(qm_codec_fits(c, shape));
    memset(scales, 0, sizeof *scales * (size_t)count);
    qm_fold(c, shape, 0, n, x, scales);
    qm_fold_again(c, shape, 0, n, x, scales);
    qm_encode_range(c, shape, 0, n, x, scales, draws, codes);
    qm_scales(c, shape, scales, scales);
    return QM_OK;
}

void qm_decode(const struct qm_codec *c, const struct qm_shape *shape, const uint8_t *codes,
               const float *scales, float *out)
{
    qm_decode_range(c, shape, 0, qm_shape_numel(shape), codes, scales, out);
}

/* ---- bytes --------------------------------------------------------------------------------- */

void qm_pack_range(const struct qm_codec *c, const uint8_t *codes, int64_t n, uint8_t *bytes)
{
    if (c->q.bits == 4 && c->q.pack != QM_PACK_byte)
        qm_simd()->pack4(codes, n, c->q.pack == QM_PACK_hi, bytes);
    else
        qm_pack_codes(c->q.pack, c->q.bits, codes, n, bytes);
}

void qm_unpack_range(const struct qm_codec *c, const uint8_t *bytes, int64_t n, uint8_t *codes)
{
    if (c->q.bits == 4 && c->q.pack != QM_PACK_byte)
        qm_simd()->unpack4(bytes, n, c->q.pack == QM_PACK_hi, codes);
    else
        qm_unpack_codes(c->q.pack, c->q.bits, bytes, n, codes);
}

/* ---- packed blocks ------------------------------------------------------------------------- */

/* Whether the vector loops know the curve. */
static int is_simd_curve(enum qm_curve curve)
{
#define X(name) || curve == QM_CURVE_##name
    return 0 QM_SIMD_CURVES(X);
#undef X
}

int qm_codec_is_fused(const struct qm_codec *c)
{
    const struct qm_scale_rule *r = &c->q.scale;
    return (c->q.bits == 4 || c->q.bits == 8) && c->q.norm == QM_NORM_block &&
           c->q.block % 2 == 0 && is_simd_curve(c->q.curve) && c->q.pack != QM_PACK_byte &&
           c->has_edges && c->cb.post == 1.0f && !r->nest && r->plus == 0.0 &&
           (c->cb.is_float ? c->q.round == QM_ROUND_even : !c->cb.is_permuted) &&
           !(c->q.search == QM_SEARCH_arith && c->q.unit != QM_UNIT_div);
}

int qm_codec_has_slopes(const struct qm_codec *c, const struct qm_shape *shape)
{
    const struct qm_scale_rule *r = &c->q.scale;
    return c->q.bits == 4 && c->q.norm == QM_NORM_rank1 && shape->rank == 2 &&
           shape->dim[1] % 64 == 0 && c->q.curve == QM_CURVE_none && c->q.pack != QM_PACK_byte &&
           c->q.unit == QM_UNIT_div && c->q.search != QM_SEARCH_arith && c->has_edges &&
           c->edge_lut.usable && c->cb.post == 1.0f && c->cb.over == 0.0f && c->cb.gain >= 1.0f &&
           !c->cb.is_float && !c->cb.is_permuted && !c->has_steps && r->cap == 0.0f &&
           r->plus == 0.0 && r->zero < 0 && !r->f16 && !r->nest && !r->keep_sign &&
           !r->max_skips_nan;
}

void qm_unit_slopes(const struct qm_codec *c, int64_t n_scales, const float *stat, float *slope)
{
    for (int64_t i = 0; i < n_scales; i++) {
        float by = qm_codec_divisor(c, stat[i], 0).by;
        slope[i] = by > 0.0f ? QM_EDGE_LUT_SLOPE / by : INFINITY;
    }
}
