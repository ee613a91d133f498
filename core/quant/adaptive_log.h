/* adaptive_log.h - the adaptive log code of adafactor8bit 0.4.3, "AL" (dual).
 *
 * A block has two numbers, its span and its least logarithm, in this order among the scales:
 *
 *     low  = max(log2 of the least x > 0, -126), high = log2 of the largest; low >= high: high - 1
 *     span = max(high - low, 1e-12)
 *     code = 0 for x = 0, else 1 + even((log2(x) - low) / span * (n - 2)), at least 1, at most n - 1
 *     x    = 2^((code - 1) span / (n - 2) + low), exactly 0 for code 0
 *
 * Logarithms are of max(x, 1e-38).  A NaN in the block makes both numbers NaN and every code 0. */
#ifndef QM_QUANT_ADAPTIVE_LOG_H
#define QM_QUANT_ADAPTIVE_LOG_H

#include "core/base/logexp.h"

#define QM_ADAPTIVE_LOG_NUMBERS 2 /* per block */

/* Statistics that fold by the maximum of their bits: the largest x, and the complement of the least
 * positive one (0: there is none). */
QM_FN uint32_t qm_adaptive_log_complement(float x)
{
    return x > 0.0f ? 0x7f800001u - qm_bits(x) : 0u;
}

QM_FN float qm_adaptive_log_log2(float x) { return qm_log2(x < 1e-38f ? 1e-38f : x); }

/* From the two statistics to span and low. */
QM_FN void qm_adaptive_log_numbers(const float *stat, float *span, float *low)
{
    float high = qm_adaptive_log_log2(stat[0]);
    uint32_t least = qm_bits(stat[1]);
    *low = least ? qm_adaptive_log_log2(qm_float(0x7f800001u - least)) : high;
    if (*low < -126.0f)
        *low = -126.0f;
    if (*low >= high)
        *low = high - 1.0f;
    if (qm_isnan(high))
        *low = high;
    *span = high - *low < 1e-12f ? 1e-12f : high - *low;
}

QM_FN uint32_t qm_adaptive_log_code(float x, float span, float low, int n)
{
    if (x <= 0.0f)
        return 0;
    float k = rintf((qm_adaptive_log_log2(x) - low) / span * (float)(n - 2));
    if (qm_isnan(k))
        return 0;
    k = k < 0.0f ? 0.0f : k > (float)(n - 2) ? (float)(n - 2) : k;
    return (uint32_t)k + 1u;
}

QM_FN float qm_adaptive_log_value(uint32_t code, float span, float low, int n)
{
    return code ? qm_exp2((float)(code - 1u) * span / (float)(n - 2) + low) : 0.0f;
}

#endif
