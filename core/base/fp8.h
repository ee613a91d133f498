/* fp8.h - Exact conversions between float and the 8-bit float formats e4m3fn and e5m2 (dual).
 *
 * Conversions to 8 bits round once, to nearest, ties to even.  NaN loses its sign and becomes 0x7f,
 * as in CUDA's headers.  With `saturate`, Inf and numbers that round beyond the largest finite
 * value become that value; without it they become NaN (e4m3, which has no infinity) or Inf (e5m2).
 * Tests check every pattern of dtypes.h5. */
#ifndef QM_BASE_FP8_H
#define QM_BASE_FP8_H

#include "core/base/dual.h"

/* e4m3fn has 1 sign, 4 exponent and 3 mantissa bits and bias 7.  Its largest number is 448, its
 * least positive one 2^-9; 0x7f and 0xff are NaN. */
QM_FN float qm_e4m3_to_float(uint8_t h)
{
    uint32_t sign = (uint32_t)(h & 0x80u) << 24, e = (h >> 3) & 15u, m = h & 7u;
    if (e == 15 && m == 7)
        return qm_float(0x7fc00000u | sign);
    if (e == 0)
        return qm_float(sign | qm_bits((float)(int32_t)m * 0.001953125f)); /* 2^-9 */
    return qm_float(sign | ((e + 120u) << 23) | (m << 20));
}

QM_FN uint8_t qm_float_to_e4m3(float x, int saturate)
{
    uint32_t u = qm_bits(x), a = u & 0x7fffffffu, sign = (u >> 24) & 0x80u;
    if (a > 0x7f800000u)
        return 0x7f;
    if (a > 0x43e80000u) /* 464 */
        return (uint8_t)(sign | (saturate ? 0x7eu : 0x7fu));
    if (a < 0x3c800000u) { /* below 2^-6: adding 2^14 aligns the last bit at 2^-9 */
        float t = qm_float(a) + 16384.0f;
        return (uint8_t)(sign | (qm_bits(t) - 0x46800000u));
    }
    a += 0x7ffffu + ((a >> 20) & 1u);
    return (uint8_t)(sign | ((a - 0x3c000000u) >> 20));
}

/* e5m2 has 1 sign, 5 exponent and 2 mantissa bits and bias 15: it is the upper byte of an IEEE
 * half.  Its largest number is 57344, its least positive one 2^-16; 0x7c is Inf, and larger
 * patterns are NaN. */
QM_FN float qm_e5m2_to_float(uint8_t h)
{
    uint32_t sign = (uint32_t)(h & 0x80u) << 24, e = (h >> 2) & 31u, m = h & 3u;
    if (e == 31)
        return qm_float(sign | (m ? 0x7fc00000u : 0x7f800000u));
    if (e == 0)
        return qm_float(sign | qm_bits((float)(int32_t)m * 1.52587890625e-5f)); /* 2^-16 */
    return qm_float(sign | ((e + 112u) << 23) | (m << 21));
}

QM_FN uint8_t qm_float_to_e5m2(float x, int saturate)
{
    uint32_t u = qm_bits(x), a = u & 0x7fffffffu, sign = (u >> 24) & 0x80u;
    if (a > 0x7f800000u)
        return 0x7f;
    if (a >= 0x47700000u) /* 61440, half way from 57344 to 65536 */
        return (uint8_t)(sign | (saturate ? 0x7bu : 0x7cu));
    if (a < 0x38800000u) { /* below 2^-14: adding 2^7 aligns the last bit at 2^-16 */
        float t = qm_float(a) + 128.0f;
        return (uint8_t)(sign | (qm_bits(t) - 0x43000000u));
    }
    a += 0xfffffu + ((a >> 21) & 1u);
    return (uint8_t)(sign | ((a - 0x38000000u) >> 21));
}

/* Converts a double to float by rounding to odd: an inexact result gets an odd last bit.  A second
 * rounding, to a format of at most 22 bits, then gives the correctly rounded value of x. */
QM_FN float qm_double_to_odd(double x)
{
    float f = (float)x;
    uint32_t u = qm_bits(f);
    if ((double)f == x || qm_isnan(f))
        return f;
    if ((x < 0.0 ? -x : x) < (f < 0.0f ? -(double)f : (double)f))
        u--; /* f is truncated toward zero; Inf becomes the largest float */
    return qm_float(u | 1u);
}

#endif
