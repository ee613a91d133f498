/* quantize_element.h - Encodes and decodes one element: the axes of a quantizer composed (dual).
 *
 * This is the defining form.  The loops of encode.c, decode.c and simd.c give the same bits faster.
 * Kernels call it with constant quantizers, so that the compiler resolves every switch. */
#ifndef QM_QUANT_QUANTIZE_ELEMENT_H
#define QM_QUANT_QUANTIZE_ELEMENT_H

#include "core/base/fp8.h"
#include "core/base/half.h"
#include "core/quant/curve.h"
#include "core/quant/map.h"
#include "core/quant/norm.h"
#include "core/quant/pack.h"
#include "core/quant/round.h"
#include "core/quant/scale.h"
#include "core/quant/search.h"
#include "core/quant/unit.h"

/* The format of a slot without codes: floats, or whole numbers of 16 bits (slots of indices). */
enum qm_plain { QM_PLAIN_f32, QM_PLAIN_bf16, QM_PLAIN_f16, QM_PLAIN_i16, QM_PLAIN_COUNT };

/* One choice per axis.  Plain data; compare with qm_quantizer_equal.  bits == 0 means no codes: the
 * slot keeps floats of format `plain`. */
struct qm_quantizer {
    enum qm_plain plain;
    enum qm_map map;
    int bits, sign; /* bits per code; sign 1: values in [-1, 1], 0: in [0, 1] */
    enum qm_norm norm;
    int expand;    /* N of curve expand:N; 0 with the other curves */
    int64_t block; /* N of block:N and of the norms of qm_norm_has_block; 0 for norms without one */
    enum qm_curve curve;
    enum qm_search search;
    enum qm_round round;
    enum qm_unit unit;
    struct qm_scale_rule scale;
    enum qm_pack pack;
};

/* The nearest whole number of 16 bits, ties to even; NaN gives 0. */
QM_FN float qm_whole16(float x)
{
    float k = rintf(x);
    return k > 32767.0f ? 32767.0f : k < -32768.0f ? -32768.0f : qm_isnan(k) ? 0.0f : k;
}

/* x rounded to a plain format, to nearest even. */
QM_FN float qm_plain_of(enum qm_plain plain, float x)
{
    return plain == QM_PLAIN_bf16  ? qm_bf16_to_float(qm_float_to_bf16(x))
           : plain == QM_PLAIN_f16 ? qm_f16_to_float(qm_float_to_f16(x))
           : plain == QM_PLAIN_i16 ? qm_whole16(x)
                                   : x;
}

/* ---- scales --------------------------------------------------------------------------------- */

/* |curve(x)|, of which the maximum of a group is taken; 0 for a NaN that the maximum skips. */
QM_FN float qm_magnitude(const struct qm_quantizer *q, float x)
{
    float u = fabsf(qm_curve_to(q->curve, x));
    return qm_isnan(u) && q->scale.max_skips_nan ? 0.0f : u;
}

/* by: the divisor of a group's elements; stored: its scale. */
struct qm_divisor {
    float by, stored;
};

/* The divisor of a group from its raw maximum, as scale.h says.  is_short: the group is a last
 * block with fewer elements than the others. */
QM_FN struct qm_divisor qm_divisor_of(const struct qm_quantizer *q, const struct qm_codebook *cb,
                                      float max, int is_short)
{
    const struct qm_scale_rule *r = &q->scale;
    struct qm_divisor d;
    float m = r->plus != 0.0 ? (float)((double)max + r->plus) : max;
    if (m < r->floor)
        m = r->floor;
    if (r->cap != 0.0f && m > r->cap)
        m = r->cap;
    d.stored = d.by = cb->over != 0.0f ? m / cb->over : m * cb->gain;
    if (d.by < r->guard)
        d.by = r->guard;
    if (q->unit == QM_UNIT_recip_tail && is_short)
        d.stored = d.by;
    if (r->f16)
        d.stored = qm_f16_to_float(qm_float_to_f16(d.stored));
    if (r->f16 == QM_F16_both)
        d.by = d.stored;
    return d;
}

/* Whether unit values are x / by; otherwise they are x * (1 / by). */
QM_FN int qm_unit_divides(const struct qm_quantizer *q, int is_short)
{
    return q->unit == QM_UNIT_div || (q->unit == QM_UNIT_recip_tail && is_short);
}

/* ---- encoding ------------------------------------------------------------------------------- */

/* The sorted position of a NaN unit value. */
QM_FN int qm_position_of_nan(const struct qm_quantizer *q, const struct qm_codebook *cb)
{
    if (cb->is_float && q->scale.nan == QM_NAN_low)
        return cb->n + 1;
    return q->scale.nan == QM_NAN_top    ? cb->n - 1
           : q->scale.nan == QM_NAN_zero ? (cb->zero > 0 ? cb->zero : 0)
                                         : 0;
}

/* The sorted position (not yet permuted) of unit value y.  draw: 32 random bits, read if the
 * round draws. */
QM_FN int qm_position(const struct qm_quantizer *q, const struct qm_codebook *cb, float y,
                      uint32_t draw)
{
    if (qm_isnan(y))
        return qm_position_of_nan(q, cb);
    int k = qm_search_code(q->search, q->round, y, cb, draw);
    return k > q->scale.least ? k : q->scale.least;
}

/* The stored code of a position; y: its unit value. */
QM_FN uint32_t qm_stored_code(const struct qm_codebook *cb, float y, int position)
{
    if (cb->is_float && position == cb->zero && qm_sign_bit(y))
        position = cb->n;
    return cb->is_permuted ? cb->perm[position] : (uint32_t)position;
}

/* Whether the position comes from u * (steps / divisor), without a unit value. */
QM_FN int qm_steps_directly(const struct qm_quantizer *q, int divides)
{
    return q->search == QM_SEARCH_arith && !divides;
}

/* The sorted position of u = curve(x) for such quantizers; factor = steps / divisor. */
QM_FN int qm_step_position(const struct qm_quantizer *q, const struct qm_codebook *cb, float u,
                           float factor, uint32_t draw)
{
    return qm_isnan(u * factor) ? qm_position(q, cb, qm_float(0x7fc00000u), draw)
                                : qm_search_arith(q->round, 1, u, factor, cb, draw);
}

/* The unit value of x by its group's divisor (1 for norm id). */
QM_FN float qm_unit_of(const struct qm_quantizer *q, float x, float by, int divides)
{
    float u = qm_curve_to(q->curve, x);
    return qm_curve_unit_to(q->curve, divides ? u / by : u * (1.0f / by));
}

/* The stored code of x by its group's divisor. */
QM_FN uint32_t qm_encode_one(const struct qm_quantizer *q, const struct qm_codebook *cb, float x,
                             float by, int divides, uint32_t draw)
{
    if (qm_steps_directly(q, divides)) {
        int k = qm_step_position(q, cb, qm_curve_to(q->curve, x), cb->steps / by, draw);
        return cb->is_permuted ? cb->perm[k] : (uint32_t)k;
    }
    float y = qm_unit_of(q, x, by, divides);
    return qm_stored_code(cb, y, qm_position(q, cb, y, draw));
}

/* Scale word keepsign: moves a code whose value's sign differs from x's; NaN counts as positive.
 * n_negative: number of codes whose value has a sign bit; n: number of codes, a power of two. */
QM_FN uint32_t qm_keep_sign(uint32_t n_negative, uint32_t n, float x, uint32_t code)
{
    uint32_t moved = x > 0.0f ? code + 1 : code - 1;
    return (code < n_negative) != qm_sign_bit(x) ? moved & (n - 1) : code;
}

/* ---- decoding ------------------------------------------------------------------------------- */

/* The unit value of a stored code. */
QM_FN float qm_unit_value(const struct qm_quantizer *q, const struct qm_codebook *cb, uint32_t code)
{
    float y = cb->is_float      ? qm_e4m3_to_float((uint8_t)code)
              : cb->is_permuted ? cb->value[cb->position_of[code]]
                                : cb->value[code];
    return qm_curve_unit_from(q->curve, y);
}

/* The decoded value of y = unit value times scale. */
QM_FN float qm_finish_value(const struct qm_quantizer *q, const struct qm_codebook *cb, float y)
{
    return qm_curve_from(q->curve, cb->post != 1.0f ? y * cb->post : y);
}

#endif
