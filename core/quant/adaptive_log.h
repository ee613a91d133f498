/* adaptive_log.h - The adaptive logarithmic code of adafactor8bit 0.4.3, "AL" there (dual).
 *
 * A block of x >= 0 stores two numbers, its span and its least logarithm, in this order among the
 * scales:
 *
 *     high = log2(largest x)
 *     low  = max(log2(least x > 0), least), or high - 1 if that is not below high
 *     span = max(high - low, 1e-12)
 *     code = 0 for x = 0, else 1 + even((log2(x) - low) / span * (n - 2)), clamped to [1, n - 1]
 *     x    = 2^((code - 1) span / (n - 2) + low), exactly 0 for code 0
 *
 * Here even() rounds to the nearest integer, ties to even, n is the number of codes, log2(x) means
 * log2(max(x, 1e-38)), and least is -126, or the log2 of the quantizer's word floor:V. A NaN in the
 * block makes both numbers NaN and every code 0. */
#ifndef QM_QUANT_ADAPTIVE_LOG_H
#define QM_QUANT_ADAPTIVE_LOG_H

#include "core/base/logexp.h"

#define QM_ADAPTIVE_LOG_NUMBERS 2 /* per block */

/* The two statistics of a block fold by the maximum of their bits: the largest x, and the largest
 * complement, which belongs to the least positive x (0: no x is positive). */
QM_FN uint32_t qm_adaptive_log_complement(float x)
{
    return x > 0.0f ? 0x7f800001u - qm_bits(x) : 0u;
}

QM_FN float qm_adaptive_log_log2(float x) { return qm_log2(x < 1e-38f ? 1e-38f : x); }

/* Computes span and low from the two statistics stat[2]; floor: of the quantizer's word, or 0. */
QM_FN void qm_adaptive_log_numbers(const float *stat, float floor, float *span, float *low)
{
    float end = floor > 0.0f ? qm_adaptive_log_log2(floor) : -126.0f;
    float high = qm_adaptive_log_log2(stat[0]);
    uint32_t least = qm_bits(stat[1]);
    *low = least ? qm_adaptive_log_log2(qm_float(0x7f800001u - least)) : high;
    end = end < -126.0f ? -126.0f : end;
    if (*low < end)
        *low = end;
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
