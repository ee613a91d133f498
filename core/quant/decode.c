/* decode.c - Decodes ranges of codes to values. */
#include "core/base/narrow.h"
#include "core/quant/block_numbers.h"
#include "core/quant/norm_two_scales.h"
#include "core/quant/quantizer_internal.h"
#include "core/quant/simd.h"

/* The steps of decoding that follow the multiplication by the scale. */
static void finish(const struct qm_codec *c, int64_t n, float *out)
{
    if (c->cb.post != 1.0f)
        qm_simd()->multiply(out, c->cb.post, n, out);
    if (c->q.curve == QM_CURVE_log2 || c->q.curve == QM_CURVE_sqrt)
        for (int64_t j = 0; j < n; j++)
            out[j] = qm_curve_from(c->q.curve, out[j]);
}

/* The unit values of up to QM_PIECE codes. */
static void unit_values(const struct qm_codec *c, const uint8_t *codes, int64_t n, float *out)
{
    uint8_t position[QM_PIECE];
    if (c->cb.is_float) {
        qm_narrow()->e4m3_to_float(codes, n, out);
        if (c->q.curve == QM_CURVE_softsign)
            for (int64_t j = 0; j < n; j++)
                out[j] = qm_curve_unit_from(c->q.curve, out[j]);
        return;
    }
    if (c->cb.is_permuted) {
        for (int64_t j = 0; j < n; j++)
            position[j] = c->cb.position_of[codes[j]];
        codes = position;
    }
    qm_simd()->values(c, codes, n, out);
    if (c->q.curve == QM_CURVE_softsign)
        for (int64_t j = 0; j < n; j++)
            out[j] = qm_curve_unit_from(c->q.curve, out[j]);
}

/* Decodes a run of elements that share one scale. */
static void decode_run(const struct qm_codec *c, const uint8_t *codes, int64_t n, float scale,
                       float *out)
{
    for (int64_t i = 0; i < n; i += QM_PIECE) {
        int64_t m = n - i < QM_PIECE ? n - i : QM_PIECE;
        unit_values(c, codes + i, m, out + i);
        if (c->q.norm != QM_NORM_id)
            qm_simd()->multiply(out + i, scale, m, out + i);
        finish(c, m, out + i);
    }
}

/* Decodes elements of one block of several numbers.  Few codes are looked up in a table. */
static void decode_numbers(const struct qm_codec *c, const uint8_t *codes, int64_t n,
                           const float *number, float *out)
{
    float value[256];
    int n_codes = c->cb.is_float ? 1 << c->q.bits : c->cb.n, is_table = n > n_codes;
    for (int k = 0; is_table && k < n_codes; k++)
        value[k] = qm_block_value(&c->q, &c->cb, (uint32_t)k, number);
    for (int64_t i = 0; i < n; i++)
        out[i] = is_table ? value[codes[i]] : qm_block_value(&c->q, &c->cb, codes[i], number);
}

/* Decodes a range of a norm with two scales per element. */
static void decode_two_scales(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                              int64_t n, const uint8_t *codes, const float *scales, float *out)
{
    struct qm_runs w;
    float first[QM_PIECE], second[QM_PIECE];
    for (qm_runs_start(&w, shape, from, n); w.left > 0; qm_runs_next(&w))
        for (int64_t j = 0; j < w.run;) {
            int64_t m = w.run - j < QM_PIECE ? w.run - j : QM_PIECE;
            int both = qm_two_scales_get(c, shape, w.at, m, scales, first, second);
            unit_values(c, codes, m, out);
            qm_simd()->scale_each(second, INFINITY, m, out);
            if (both)
                qm_simd()->scale_each(first, INFINITY, m, out);
            finish(c, m, out);
            codes += m, out += m, j += m;
            w.at[shape->rank - 1] += m;
        }
}

void qm_decode_range(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                     int64_t n, const uint8_t *codes, const float *scales, float *out)
{
    int64_t block;
    struct qm_runs w;
    enum qm_norm norm = qm_norm_for(c, shape, &block);
    if (n == 0)
        return;
    switch (norm) {
    case QM_NORM_id: decode_run(c, codes, n, 1.0f, out); break;
    case QM_NORM_tensor: decode_run(c, codes, n, scales[0], out); break;
    case QM_NORM_block:
        for (int64_t i = 0; i < n;) {
            int64_t b = (from + i) / block, end = (b + 1) * block - from;
            int64_t m = (end < n ? end : n) - i;
            if (qm_block_numbers(c) > 1)
                decode_numbers(c, codes + i, m, scales + qm_block_numbers(c) * b, out + i);
            else
                decode_run(c, codes + i, m, scales[b], out + i);
            i += m;
        }
        break;
    case QM_NORM_rank1block:
    case QM_NORM_rowcol:
    case QM_NORM_colrow: decode_two_scales(c, shape, from, n, codes, scales, out); break;
    default:
        for (qm_runs_start(&w, shape, from, n); w.left > 0; qm_runs_next(&w)) {
            if (qm_scale_is_per_element(norm, shape)) {
                const float *s = scales;
                float others = norm == QM_NORM_rank1 ? qm_rank1_others(&w, &s) : INFINITY;
                s += w.at[shape->rank - 1];
                for (int64_t j = 0; j < w.run; j += QM_PIECE) {
                    int64_t m = w.run - j < QM_PIECE ? w.run - j : QM_PIECE;
                    unit_values(c, codes + j, m, out + j);
                    qm_simd()->scale_each(s + j, others, m, out + j);
                    finish(c, m, out + j);
                }
            } else if (norm == QM_NORM_rowblock) {
                for (int64_t j = 0, m; j < w.run; j += m) {
                    m = qm_rowblock_share(&w, block, j);
                    decode_run(c, codes + j, m, scales[qm_rowblock_scale(&w, block, j)], out + j);
                }
            } else {
                decode_run(c, codes, w.run, scales[norm == QM_NORM_row ? w.at[0] : w.at[1]], out);
            }
            codes += w.run;
            out += w.run;
        }
    }
}

void qm_decode_blocks(const struct qm_codec *c, const uint8_t *packed, const float *scales,
                      int64_t n, float *out)
{
    qm_simd()->decode_blocks(c, packed, scales, n, out);
}
