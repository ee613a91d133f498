/* half.h - Exact conversions between float and the 16-bit formats bfloat16 and float16 (dual).
 *
 * Conversions to 16 bits round to nearest, ties to even.  NaN becomes the canonical quiet NaN
 * 0x7fff as in CUDA's headers; PyTorch's CPU code differs in the NaN's bits only.  Tests check
 * every pattern of dtypes.h5. */
#ifndef QM_BASE_HALF_H
#define QM_BASE_HALF_H

#include "core/base/dual.h"

QM_FN float qm_bf16_to_float(uint16_t h) { return qm_float((uint32_t)h << 16); }

QM_FN uint16_t qm_float_to_bf16(float x)
{
    uint32_t u = qm_bits(x);
    if (qm_isnan(x))
        return 0x7fff;
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

QM_FN float qm_f16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t e = (h >> 10) & 31u;
    uint32_t m = h & 1023u;
    if (e == 31)
        return qm_float(sign | 0x7f800000u | (m << 13));
    if (e == 0) /* subnormal: m * 2^-24, exact */
        return qm_float(sign | qm_bits((float)(int32_t)m * 5.9604644775390625e-8f));
    return qm_float(sign | ((e + 112u) << 23) | (m << 13));
}

QM_FN uint16_t qm_float_to_f16(float x)
{
    uint32_t u = qm_bits(x);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return 0x7fff;
    if (a >= 0x477ff000u) /* 65520 and above round to Inf */
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) { /* below 2^-14: adding 0.5 aligns the last bit at 2^-24 */
        float t = qm_float(a) + 0.5f;
        return (uint16_t)(sign | (qm_bits(t) - 0x3f000000u));
    }
    a += 0xfffu + ((a >> 13) & 1u);
    return (uint16_t)(sign | ((a - 0x38000000u) >> 13));
}

/* Equals qm_f16_to_float(qm_float_to_f16(x)), without branches. */
QM_FN float qm_round_f16(float x)
{
    uint32_t u = qm_bits(x), a = u & 0x7fffffffu;
    uint32_t small = qm_bits((qm_float(a) + 0.5f) - 0.5f); /* the last bit of the sum is 2^-24 */
    uint32_t large = (a + 0xfffu + ((a >> 13) & 1u)) & ~0x1fffu;
    large = a >= 0x477ff000u ? 0x7f800000u : large;
    large = a < 0x38800000u ? small : large;
    return qm_float(a > 0x7f800000u ? 0x7fffe000u : (u & 0x80000000u) | large);
}

#endif
