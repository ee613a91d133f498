/* param.h - AXIS param: how the parameter is stored and written back (dual).
 *
 * A word "FORMAT" or "FORMAT/WRITE": f32, bf16/near, bf16/stoch, f16/kahan, e4m3/near, ...
 * The rule always sees and makes float32; this axis is how the parameter is read before the
 * rule and written after it.
 *
 *     near   to nearest, ties to even
 *     stoch  away from zero with the probability that makes x the expected value
 *            (arXiv:2010.06192); one 32-bit draw per element from the parameter's role
 *            (QM_ROLE_param)
 *     kahan  a 16-bit residual of the same format is kept: the rule sees w + c, and
 *            w' = RN(x), c' = RN(x - w')
 *     ecc8   an 8-bit residual in units of half an ulp of w' (FlashOptim's error correction)
 *     ecc16  the same in 16 bits */
#ifndef QM_RULE_PARAM_H
#define QM_RULE_PARAM_H

#include "core/base/fp8.h"
#include "core/base/half.h"

/* clang-format off */
#define QM_PARAM_FORMAT_LIST(X) /* name, bytes, mantissa bits, least normal exponent, text */ \
    X(f32,  4, 23, -126, "float32")                                                           \
    X(bf16, 2,  7, -126, "bfloat16")                                                          \
    X(f16,  2, 10,  -14, "IEEE half")                                                         \
    X(e4m3, 1,  3,   -6, "8-bit float e4m3fn, saturating")
#define QM_PARAM_WRITE_LIST(X) /* name, bytes of residual, text */              \
    X(near,  0, "to nearest, ties to even")                                     \
    X(stoch, 0, "stochastic rounding, one 32-bit Philox draw per element")      \
    X(kahan, 2, "16-bit residual of the same format (Kahan summation)")         \
    X(ecc8,  1, "8-bit residual in half ulps (FlashOptim error correction)")    \
    X(ecc16, 2, "16-bit residual in half ulps")
/* clang-format on */

enum qm_param_format {
#define X(name, bytes, mantissa, least, text) QM_PARAM_##name,
    QM_PARAM_FORMAT_LIST(X)
#undef X
        QM_PARAM_FORMAT_COUNT
};

enum qm_param_write {
#define X(name, bytes, text) QM_WRITE_##name,
    QM_PARAM_WRITE_LIST(X)
#undef X
        QM_WRITE_COUNT
};

struct qm_param {
    enum qm_param_format format;
    enum qm_param_write write;
};

/* ---- any format ----------------------------------------------------------------------------- */

QM_FN float qm_param_widen(enum qm_param_format format, uint32_t bits)
{
    switch (format) {
    case QM_PARAM_bf16: return qm_bf16_to_float((uint16_t)bits);
    case QM_PARAM_f16: return qm_f16_to_float((uint16_t)bits);
    case QM_PARAM_e4m3: return qm_e4m3_to_float((uint8_t)bits);
    default: return qm_float(bits);
    }
}

QM_FN uint32_t qm_param_nearest(enum qm_param_format format, float x)
{
    switch (format) {
    case QM_PARAM_bf16: return qm_float_to_bf16(x);
    case QM_PARAM_f16: return qm_float_to_f16(x);
    case QM_PARAM_e4m3: return qm_float_to_e4m3(x, 1);
    default: return qm_bits(x);
    }
}

/* The magnitude goes up with probability (|x| - lo) / (hi - lo), exactly to 2^-32: the dropped
 * bits as a 32-bit fraction are compared with the draw, r < fraction.  Values on the grid never
 * change; NaN and Inf go to nearest; beyond the largest finite value bf16 and f16 may become Inf,
 * e4m3 saturates. */
QM_FN uint32_t qm_param_stochastic(enum qm_param_format format, float x, uint32_t draw)
{
    int mantissa = format == QM_PARAM_f16 ? 10 : 3, least = format == QM_PARAM_f16 ? -14 : -6;
    uint32_t u = qm_bits(x), a = u & 0x7fffffffu;
    if (format == QM_PARAM_f32)
        return u;
    if (a >= 0x7f800000u)
        return qm_param_nearest(format, x);
    if (format ==
        QM_PARAM_bf16) /* the same exponents as float32: the bits themselves are the grid */
        return (u >> 16) + ((draw >> 16) < (u & 0xffffu));
    int exponent = a < 0x00800000u ? -126 : (int)(a >> 23) - 127;
    uint32_t significand = a < 0x00800000u ? a : (a & 0x7fffffu) | 0x800000u;
    int drop = 23 - mantissa + (exponent < least ? least - exponent : 0);
    uint64_t fraction = drop >= 56  ? 0
                        : drop > 32 ? (uint64_t)significand >> (drop - 32)
                                    : ((uint64_t)significand << (32 - drop)) & 0xffffffffu;
    uint32_t kept = drop < 24 ? significand >> drop : 0;
    kept += (uint64_t)draw < fraction;
    /* kept counts units of the target's grid: below the least normal they are its subnormals */
    int top = exponent < least ? least : exponent;
    float y = ldexpf((float)kept, top - mantissa);
    return qm_param_nearest(format, (u >> 31) ? -y : y);
}

/* The residual of x over w' (bits h) in the same format; 0 where w' is not finite (its difference
 * to x would be stuck at -Inf or NaN). */
QM_FN uint32_t qm_kahan_residual(enum qm_param_format format, float x, uint32_t h)
{
    float r = x - qm_param_widen(format, h);
    return r >= -3.4e38f && r <= 3.4e38f ? qm_param_nearest(format, r) : 0;
}

/* ---- error correction ----------------------------------------------------------------------- */

/* Exponent of the ulp of w' (bits h): FlashOptim, flashoptim/optimizers.py. */
QM_FN int qm_ecc_ulp(enum qm_param_format format, uint32_t h)
{
    int mantissa = format == QM_PARAM_bf16 ? 7 : 10, bias = format == QM_PARAM_bf16 ? 127 : 15;
    int e = (int)((h & 0x7fffu) >> mantissa);
    return (e > 1 ? e : 1) - bias - mantissa;
}

/* x 2^k in two factors, so that neither leaves the range of float32; |k| <= 252. */
QM_FN float qm_ecc_scale(float x, int k)
{
    uint32_t both = (uint32_t)(k + 2 * 127), half = both >> 1;
    return x * qm_float(half << 23) * qm_float((both - half) << 23);
}

/* The residual of x over w' (bits h) in steps of half an ulp / most; most: 127 or 32767.  Half a
 * step away from zero; 0 means none, and is what NaN and Inf get. */
QM_FN int qm_ecc_encode(enum qm_param_format format, float x, uint32_t h, int most)
{
    float r = qm_ecc_scale(x - qm_param_widen(format, h), 1 - qm_ecc_ulp(format, h)), a = fabsf(r);
    a = a <= 3.4e38f ? a : 0.0f;
    a = a < 1.0f ? a : 1.0f;
    int e = (int)(a * (float)most + 0.5f);
    return r < 0.0f ? -e : e;
}

/* Where the product is subnormal (bf16 below 2^-118) it is rounded before the sum; the source's
 * kernel, contracted on a GPU, rounds once there. */
QM_FN float qm_ecc_decode(enum qm_param_format format, uint32_t h, int e, int most)
{
    float step = (float)e / (float)most;
    return qm_param_widen(format, h) + qm_ecc_scale(step, qm_ecc_ulp(format, h) - 1);
}

/* ---- any write ------------------------------------------------------------------------------ */

/* The parameter as the rule sees it.  rest: its residual, 16 or 8 bits; any where there is none. */
QM_FN float qm_param_read(enum qm_param_format format, enum qm_param_write write, uint32_t bits,
                          uint32_t rest)
{
    switch (write) {
    case QM_WRITE_kahan: return qm_param_widen(format, bits) + qm_param_widen(format, rest);
    case QM_WRITE_ecc8: return qm_ecc_decode(format, bits, (int8_t)rest, 127);
    case QM_WRITE_ecc16: return qm_ecc_decode(format, bits, (int16_t)rest, 32767);
    default: return qm_param_widen(format, bits);
    }
}

/* Its stored bits.  draw: 32 random bits, for stoch. */
QM_FN uint32_t qm_param_round(enum qm_param_format format, enum qm_param_write write, float x,
                              uint32_t draw)
{
    return write == QM_WRITE_stoch ? qm_param_stochastic(format, x, draw)
                                   : qm_param_nearest(format, x);
}

/* What is kept beside those bits h; 0 where nothing is. */
QM_FN uint32_t qm_param_rest(enum qm_param_format format, enum qm_param_write write, float x,
                             uint32_t h)
{
    switch (write) {
    case QM_WRITE_kahan: return qm_kahan_residual(format, x, h);
    case QM_WRITE_ecc8: return (uint32_t)qm_ecc_encode(format, x, h, 127) & 0xffu;
    case QM_WRITE_ecc16: return (uint32_t)qm_ecc_encode(format, x, h, 32767) & 0xffffu;
    default: return 0;
    }
}

#endif
