/* quantile_log.h - The logarithmic code between a block's maximum and its quantile, "QEMA" in SOLO
 * (arXiv:2505.00347) (dual).
 *
 * A block of B elements x >= 0 stores two numbers, its scale and the base alpha of its powers:
 *
 *     scale = max(largest x, floor)
 *     alpha = (x_q / scale)^(1 / top), x_q the q-quantile of the block, top = 2^b - 1
 *     k     = log2(x / scale) / log2(alpha)
 *     code  = even(k + (u - 1/2)) within 0 .. top            round dither, u the draw
 *             even(k)                                        round even
 *             d = floor(k) or d + 1, both within 0 .. top    round bernoulli: d where
 *                 x / scale - alpha^(d + 1) >= (alpha^d - alpha^(d + 1)) u
 *     x     = alpha^code scale
 *
 * So code 0 is the maximum and the last code the quantile: codes fall as values rise.  The quantile
 * is torch.quantile's: with rank = (float32)q (B - 1), w its fraction and a, c the elements at the
 * whole ranks around it, a + w (c - a), or c - (c - a) (1 - w) from w = 1/2 on.
 *
 * Consequences, all of the source: a zero in a block whose quantile is positive gets the last code
 * and becomes the quantile.  Where the quantile is 0, alpha is 0, k is 0 or NaN, and every code is
 * 0: the whole block decodes to its maximum.  In a block of one value alpha is 1, k is NaN and the
 * codes are 0, which is exact.  A NaN in the block makes both numbers NaN and every code 0. */
#ifndef QM_QUANT_QUANTILE_LOG_H
#define QM_QUANT_QUANTILE_LOG_H

#include "core/base/power.h"
#include "core/quant/round.h"

#define QM_QUANTILE_LOG_NUMBERS 2 /* per block: scale, alpha; as statistics: maximum, quantile */

/* The whole ranks around the quantile's, in 0 .. n - 1, and the fraction between them. */
struct qm_quantile_rank {
    int64_t below, above;
    float fraction;
};

QM_FN struct qm_quantile_rank qm_quantile_rank(float q, int64_t n)
{
    float rank = q * (float)(n - 1), below = floorf(rank), above = ceilf(rank);
    struct qm_quantile_rank r = {(int64_t)below, (int64_t)above, rank - below};
    return r;
}

QM_FN float qm_quantile_between(float a, float c, float w)
{
    return w < 0.5f ? fmaf(w, c - a, a) : fmaf(w - 1.0f, c - a, c);
}

/* Element number k, from 0, of the magnitudes of x[n] in ascending order, and in *next the one
 * after it; NaN is above Inf. */
QM_FN uint32_t qm_quantile_select(const float *x, int64_t n, int64_t k, uint32_t *next)
{
    uint32_t low = 0, high = 0x7fffffffu; /* at most k elements are below low */
    int64_t up_to = 0;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        int64_t count = 0;
        for (int64_t i = 0; i < n; i++)
            count += (qm_bits(x[i]) & 0x7fffffffu) <= mid;
        if (count > k)
            high = mid;
        else
            low = mid + 1;
    }
    *next = 0x7fffffffu;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = qm_bits(x[i]) & 0x7fffffffu;
        up_to += u <= low;
        *next = u > low && u < *next ? u : *next;
    }
    *next = up_to > k + 1 ? low : *next;
    return low;
}

/* The two statistics of a whole block. */
QM_FN void qm_quantile_log_fold(float q, const float *x, int64_t n, float *stat)
{
    struct qm_quantile_rank r = qm_quantile_rank(q, n);
    uint32_t most = 0, next, a;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = qm_bits(x[i]) & 0x7fffffffu;
        most = u > most ? u : most;
    }
    stat[0] = stat[1] = qm_float(most);
    if (most > 0x7f800000u)
        return;
    a = qm_quantile_select(x, n, r.below, &next);
    stat[1] = qm_quantile_between(qm_float(a), qm_float(r.above > r.below ? next : a), r.fraction);
}

/* scale and alpha from the two statistics; n: number of codes. */
QM_FN void qm_quantile_log_numbers(const float *stat, float floor, int n, float *scale,
                                   float *alpha)
{
    *scale = stat[0] < floor ? floor : stat[0];
    *alpha = qm_power(stat[1] / *scale, 1.0f / (float)(n - 1));
}

QM_FN float qm_quantile_log_clip(float k, float top) { return k < 0.0f ? 0.0f : k > top ? top : k; }

/* The code of x by the draw u, which round even does not read. */
QM_FN uint32_t qm_quantile_log_code(enum qm_round round, float x, float scale, float alpha, int n,
                                    float u)
{
    float top = (float)(n - 1), y = x / scale;
    float k = qm_log2_rounded(y) / qm_log2_rounded(alpha);
    if (qm_isnan(k))
        return 0;
    if (round != QM_ROUND_bernoulli)
        return (uint32_t)qm_quantile_log_clip(rintf(round == QM_ROUND_dither ? k + (u - 0.5f) : k),
                                              top);
    float d = qm_quantile_log_clip(floorf(k), top), e = qm_quantile_log_clip(d + 1.0f, top);
    float big = qm_power(alpha, d), small = qm_power(alpha, e);
    return (uint32_t)(y - small >= (big - small) * u ? d : e);
}

QM_FN float qm_quantile_log_value(uint32_t code, float scale, float alpha)
{
    return qm_power(alpha, (float)code) * scale;
}

#endif
