/* encode.c - Encodes ranges: elements to unit values, unit values to codes. */
#include "core/base/narrow.h"
#include "core/quant/block_numbers.h"
#include "core/quant/norm_two_scales.h"
#include "core/quant/quantizer_internal.h"
#include "core/quant/simd.h"

/* Replaces sorted positions by stored codes.  y: their unit values, read for float formats only. */
static void store_codes(const struct qm_codec *c, const float *y, int64_t n, uint8_t *codes)
{
    for (int64_t j = 0; j < n && c->cb.is_float; j++)
        codes[j] = (uint8_t)(codes[j] == c->cb.zero && qm_sign_bit(y[j]) ? c->cb.n : codes[j]);
    for (int64_t j = 0; j < n && c->cb.is_permuted; j++)
        codes[j] = c->cb.perm[codes[j]];
}

/* Stored codes of finite unit values: by the edges, or by the float format's own conversion, which
 * gives the same bits. */
static void codes_of(const struct qm_codec *c, const float *y, int64_t n, uint8_t *codes)
{
    if (c->cb.is_float && c->q.round == QM_ROUND_even) {
        qm_narrow()->float_to_e4m3(y, n, codes);
        return;
    }
    qm_simd()->positions(c, y, n, codes);
    store_codes(c, y, n, codes);
}

/* The stored code of one element by its divisor, in the defining form. */
static uint8_t encode_one(const struct qm_codec *c, float x, struct qm_divisor d, int divides,
                          uint32_t draw)
{
    return (uint8_t)qm_encode_one(&c->q, &c->cb, x, d.by, divides, draw);
}

/* The stored code of one element without a scale, in the defining form. */
static uint8_t code_unscaled(const struct qm_codec *c, float x, uint32_t draw)
{
    float y = qm_unit_of(&c->q, x, 1.0f, 1);
    return (uint8_t)qm_stored_code(&c->cb, y, qm_position(&c->q, &c->cb, y, draw));
}

static int unit_divides(const struct qm_codec *c, int is_short)
{
    return qm_unit_divides(&c->q, is_short);
}

/* Encodes a run of elements that share one scale, whose raw maximum is max.  first: flat index
 * of x[0]. */
static void encode_run(const struct qm_codec *c, const float *x, int64_t n, float max, int is_short,
                       int64_t first, const struct qm_draws *draws, uint8_t *codes)
{
    struct qm_divisor d = qm_codec_divisor(c, max, is_short);
    int divides = unit_divides(c, is_short);
    const struct qm_simd *v = qm_simd();
    int by_arith = c->q.search == QM_SEARCH_arith && !divides;
    float factor = by_arith ? c->cb.steps / d.by : 1.0f / d.by;

    if (max == 0.0f && c->q.scale.zero >= 0) {
        memset(codes, c->q.scale.zero, (size_t)n);
        return;
    }
    int ordinary = c->has_edges && d.by > 0.0f && qm_bits(max) < 0x7f800000u &&
                   (divides || (factor < INFINITY && factor > 0.0f)) &&
                   !(by_arith && !qm_simd_has_arith(c->q.round)) &&
                   !(c->q.scale.max_skips_nan && v->max_bits(x, n) > 0x7f800000u);
    if (!ordinary) {
        for (int64_t i = 0; i < n; i++)
            codes[i] = encode_one(c, x[i], d, divides, draws ? qm_draw(draws, first + i) : 0);
        return;
    }
    float y[QM_PIECE];
    for (int64_t i = 0; i < n; i += QM_PIECE) {
        int64_t m = n - i < QM_PIECE ? n - i : QM_PIECE;
        const float *u = x + i;
        if (c->q.curve == QM_CURVE_log2 || c->q.curve == QM_CURVE_sqrt) {
            for (int64_t j = 0; j < m; j++)
                y[j] = qm_curve_to(c->q.curve, x[i + j]);
            u = y;
        }
        if (by_arith) {
            v->arith(c, u, factor, m, codes + i);
            store_codes(c, u, m, codes + i);
        } else {
            if (divides)
                v->divide(u, d.by, m, y);
            else
                v->multiply(u, factor, m, y);
            if (c->q.curve == QM_CURVE_softsign)
                for (int64_t j = 0; j < m; j++)
                    y[j] = qm_curve_unit_to(c->q.curve, y[j]);
            codes_of(c, y, m, codes + i);
        }
    }
}

/* Encodes a run in which the raw maximum of element j is the smaller of s[j] and m. */
static void encode_each(const struct qm_codec *c, const float *x, int64_t n, const float *s,
                        float m, int64_t first, const struct qm_draws *draws, uint8_t *codes)
{
    const struct qm_simd *v = qm_simd();
    float y[QM_PIECE];
    if (c->has_edges && c->q.curve == QM_CURVE_none && c->q.unit == QM_UNIT_div &&
        c->q.scale.zero < 0 && c->q.scale.plus == 0.0 && c->q.scale.f16 != QM_F16_both &&
        c->cb.over == 0.0f && v->unit_each(c, x, s, m, n, y)) {
        codes_of(c, y, n, codes);
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        float max = qm_isnan(m) || s[j] >= m ? m : s[j];
        codes[j] = max == 0.0f && c->q.scale.zero >= 0
                       ? (uint8_t)c->q.scale.zero
                       : encode_one(c, x[j], qm_codec_divisor(c, max, 0), unit_divides(c, 0),
                                    draws ? qm_draw(draws, first + j) : 0);
    }
}

/* Encodes elements of one block of several numbers.  first: flat index of x[0]. */
static void encode_numbers(const struct qm_codec *c, const float *x, int64_t n, const float *stat,
                           int64_t first, const struct qm_draws *draws, uint8_t *codes)
{
    float number[QM_BLOCK_NUMBERS_MOST] = {0};
    qm_block_numbers_of(&c->q, &c->cb, stat, number);
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)qm_block_code(&c->q, &c->cb, x[i], number,
                                          draws ? qm_draw(draws, first + i) : 0);
}

/* Encodes a range of a norm with two scales per element: divides by the first scale, then encodes
 * the quotients by the second. */
static void encode_two_scales(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                              int64_t n, const float *x, const float *stat,
                              const struct qm_draws *draws, uint8_t *codes)
{
    struct qm_runs w;
    float first[QM_PIECE], second[QM_PIECE];
    for (qm_runs_start(&w, shape, from, n); w.left > 0; qm_runs_next(&w))
        for (int64_t j = 0; j < w.run;) {
            int64_t m = w.run - j < QM_PIECE ? w.run - j : QM_PIECE;
            const float *u = x;
            if (qm_two_scales_get(c, shape, w.at, m, stat, first, second)) {
                for (int64_t i = 0; i < m; i++)
                    first[i] = x[i] / first[i];
                u = first;
            }
            encode_each(c, u, m, second, INFINITY, from, draws, codes);
            x += m, codes += m, from += m, j += m;
            w.at[shape->rank - 1] += m;
        }
}

/* qm_encode_range without the scale word keepsign. */
static void encode_any(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                       int64_t n, const float *x, const float *stat, const struct qm_draws *draws,
                       uint8_t *codes)
{
    int64_t block, numel = qm_shape_numel(shape);
    struct qm_runs w;
    enum qm_norm norm = qm_norm_for(c, shape, &block);
    if (n == 0)
        return;
    switch (norm) {
    case QM_NORM_tensor: encode_run(c, x, n, stat[0], 0, from, draws, codes); break;
    case QM_NORM_block:
        for (int64_t i = 0; i < n;) {
            int64_t b = (from + i) / block, end = (b + 1) * block - from;
            int64_t m = (end < n ? end : n) - i;
            if (qm_block_numbers(c) > 1)
                encode_numbers(c, x + i, m, stat + qm_block_numbers(c) * b, from + i, draws,
                               codes + i);
            else
                encode_run(c, x + i, m, stat[b], (b + 1) * block > numel, from + i, draws,
                           codes + i);
            i += m;
        }
        break;
    case QM_NORM_id:
        for (int64_t i = 0; i < n; i++)
            codes[i] = code_unscaled(c, x[i], draws ? qm_draw(draws, from + i) : 0);
        break;
    case QM_NORM_rank1block:
    case QM_NORM_rowcol:
    case QM_NORM_colrow: encode_two_scales(c, shape, from, n, x, stat, draws, codes); break;
    default:
        for (qm_runs_start(&w, shape, from, n); w.left > 0; qm_runs_next(&w)) {
            if (qm_scale_is_per_element(norm, shape)) {
                const float *s = stat;
                float others = norm == QM_NORM_rank1 ? qm_rank1_others(&w, &s) : INFINITY;
                s += w.at[shape->rank - 1];
                for (int64_t j = 0; j < w.run; j += QM_PIECE) {
                    int64_t m = w.run - j < QM_PIECE ? w.run - j : QM_PIECE;
                    encode_each(c, x + j, m, s + j, others, from + j, draws, codes + j);
                }
            } else if (norm == QM_NORM_rowblock) {
                for (int64_t j = 0, m; j < w.run; j += m) {
                    m = qm_rowblock_share(&w, block, j);
                    encode_run(c, x + j, m, stat[qm_rowblock_scale(&w, block, j)], 0, from + j,
                               draws, codes + j);
                }
            } else {
                encode_run(c, x, w.run, stat[norm == QM_NORM_row ? w.at[0] : w.at[1]], 0, from,
                           draws, codes);
            }
            x += w.run;
            codes += w.run;
            from += w.run;
        }
    }
}

void qm_encode_range(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                     int64_t n, const float *x, const float *stat, const struct qm_draws *draws,
                     uint8_t *codes)
{
    encode_any(c, shape, from, n, x, stat, draws, codes);
    if (c->q.scale.keep_sign)
        qm_simd()->keep_sign(c, x, n, codes);
}

/* The vector loops call it for blocks that are not ordinary (simd.h) and for the short last block
 * of unit recip_tail. */
void qm_encode_block(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                     float *scale)
{
    uint8_t codes[QM_PIECE];
    float max = qm_run_max(c, x, n);
    int is_short = n < c->q.block;
    for (int64_t i = 0; i < n; i += QM_PIECE) {
        int64_t m = n - i < QM_PIECE ? n - i : QM_PIECE;
        encode_run(c, x + i, m, max, is_short, i, NULL, codes);
        if (c->q.scale.keep_sign)
            qm_simd()->keep_sign(c, x + i, m, codes);
        qm_pack_range(c, codes, m, packed + i * c->q.bits / 8);
    }
    *scale = qm_codec_divisor(c, max, is_short).stored;
}

void qm_encode_blocks(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                      float *scales)
{
    qm_simd()->encode_blocks(c, x, n, packed, scales, qm_encode_block);
}
