/* affine.h - The affine ("asymmetric") code between the least and the largest element of a block
 * (dual).
 *
 * A block stores two numbers, lo and hi, in this order among the scales:
 *
 *     lo   = min x, hi = max x; with the scale word bf16 both rounded to bfloat16, to nearest even
 *     u    = (hi - lo) / top, top = 2^b - 1
 *     code = round((x - lo) / u) within 0 .. top; 0 where that is NaN or u is 0
 *     x    = code u + lo, the product and the sum rounded
 *
 * So both ends of a block decode to themselves where code u + lo rounds to hi, and a zero between
 * them has no code of its own: it decodes to a number of up to u / 2.  In a block of one value u is
 * 0 and the code 0, which decodes to lo exactly.  A NaN in the block makes
 * lo, hi and every value NaN.  With an Inf, or where hi - lo overflows, u is Inf, every code 0 and
 * every value NaN.  The rounds near (halves up: floor(q + 1/2)), mid, even, away, floor and ceil
 * are those of round.h.
 *
 * Source: ISTA-DASLab-Optimizers 1.1.3, micro_adam kernels (arXiv:2405.15593); 4 bits, bf16, near.
 * There x is bfloat16, so that lo and hi are exact and no code is clamped. */
#ifndef QM_QUANT_AFFINE_H
#define QM_QUANT_AFFINE_H

#include "core/base/half.h"
#include "core/quant/round.h"

#define QM_AFFINE_NUMBERS \
    2 /* per block: lo, hi; as statistics: keys of the least and the largest */

/* Statistics fold by the maximum of their bits from 0 on, so they are keys: ascending in x for the
 * largest (is_least 0), descending for the least; never 0, the highest for NaN.  -0 is below +0. */
QM_FN uint32_t qm_affine_key(float x, int is_least)
{
    uint32_t b = qm_bits(x), up = b >> 31 ? ~b : b | 0x80000000u;
    return qm_isnan(x) ? 0xffffffffu : is_least ? ~up : up;
}

/* The number of a key; key 0, of no element, gives NaN. */
QM_FN float qm_affine_of_key(uint32_t key, int is_least)
{
    uint32_t up = is_least ? ~key : key;
    if (key == 0xffffffffu || key == 0u)
        return qm_float(0x7fc00000u);
    return qm_float(up >> 31 ? up & 0x7fffffffu : ~up);
}

/* lo and hi from the two keys. */
QM_FN void qm_affine_numbers(const float *stat, int is_bf16, float *lo, float *hi)
{
    float low = qm_affine_of_key(qm_bits(stat[0]), 1), high = qm_affine_of_key(qm_bits(stat[1]), 0);
    *lo = is_bf16 ? qm_bf16_to_float(qm_float_to_bf16(low)) : low;
    *hi = is_bf16 ? qm_bf16_to_float(qm_float_to_bf16(high)) : high;
}

/* n: number of codes. */
QM_FN uint32_t qm_affine_code(enum qm_round round, float x, float lo, float hi, int n)
{
    float top = (float)(n - 1), unit = (hi - lo) / top;
    float k = qm_round_step(round, 0, (x - lo) / unit, 1.0f, 0);
    return unit == 0.0f || qm_isnan(k) || k < 0.0f ? 0u : k > top ? (uint32_t)(n - 1) : (uint32_t)k;
}

QM_FN float qm_affine_value(uint32_t code, float lo, float hi, int n)
{
    return (float)code * ((hi - lo) / (float)(n - 1)) + lo;
}

#endif
