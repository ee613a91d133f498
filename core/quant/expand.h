/* expand.h - Dynamic range expansion of COAT (arXiv:2410.19313): powers that fit a block's range to
 * that of e4m3 (dual).
 *
 * A block stores three numbers, its scale, the exponent k and the centre c.  With M the largest
 * magnitude and L the least of qm_expand_fold, both raised by the quantizer's plus:V in double and
 * rounded to float32, s the steps of expand:s and each operation in float32:
 *
 *     R     = M / L
 *     k     = floor((log2(100352) / log2(R)) s) / s           100352 = 448 * 448 / 2
 *     c     = sqrt(M) sqrt(L)
 *     scale = (M / c)^k / 448
 *     code  = e4m3((+-(|x| / c)^k) / scale)                   the sign bit of x
 *     x     = +-|value scale|^(1 / k) c                       the sign bit of the product
 *
 * So k > 1 stretches and k < 1 squeezes the range of a block to that of the format.  Powers and
 * logarithms are those of core/base/power.h; 1 for the exponent 0, whatever the base.
 *
 * Consequences, all of the source:
 *   - All magnitudes are equal, or there is one: R = 1, k = Inf.  M / c is 1 or an ulp off, for c
 *     is a product of two rounded roots.  1: scale 1/448, codes +-448, exact.  Above 1: scale Inf,
 *     below: scale 0; every unit value is NaN, the code 127, and it decodes to +c: no sign is left.
 *   - Under scale Inf an element below c has the code 0, whose product 0 Inf is NaN, too, and +c.
 *     (A CPU of type x86 gives this NaN a sign, and its signed states become -c.)
 *   - All elements are 0: M = L = c = V, scale 1/448, codes +-0, decoded to +-V.
 *   - M is Inf, or R is above 2^(16.6147 s): k = 0.  Every code is +-126 and decodes to +-c, zeros
 *     too.
 *   - A NaN is skipped by M and L; its code is 127, which decodes to NaN while k is positive and
 *     finite.
 *   - A minimum of 0 (below): k drops to 0.125 .. 0.25, and large elements share few codes. */
#ifndef QM_QUANT_EXPAND_H
#define QM_QUANT_EXPAND_H

#include "core/base/power.h"

#define QM_EXPAND_NUMBERS 3 /* per block: scale, k, c; as statistics: M, L, and 0 */

enum { QM_EXPAND_LANES = 32, QM_EXPAND_BLOCK = 1024 }; /* of a warp; the largest block */
enum { QM_EXPAND_MOST = 1 << 16 };                     /* N of expand:N */

/* One warp's maxima and minima, in place: with the distances 16, 8, 4, 2, 1 each lane takes those
 * of the lane that far above it, as they were before.  A zero that comes in is no minimum, but one
 * that a lane holds stays, so that a lane which holds 0 and is taken itself loses what it had
 * gathered.  A NaN never wins. */
QM_FN void qm_expand_reduce(float *most, float *least)
{
    for (int d = QM_EXPAND_LANES / 2; d > 0; d /= 2)
        for (int l = 0; l + d < QM_EXPAND_LANES; l++) {
            float a = most[l + d], b = least[l + d];
            if (!(most[l] >= a) && !qm_isnan(a))
                most[l] = a;
            if (b > 0.0f && !(least[l] <= b))
                least[l] = b;
        }
}

/* The statistics of a block of n elements, 1 <= n <= QM_EXPAND_BLOCK: lane i mod 32 of warp i / 32
 * holds |x[i]|, lanes past the end 0 and the largest float32; then the warps' results are reduced
 * by one warp, whose other lanes hold 0 and 1e9.  So L is at most 1e9.  A zero counts only where it
 * is the warp's first element; elsewhere in the first warp it may hide the least magnitude. */
QM_FN void qm_expand_fold(const float *x, int64_t n, float *stat)
{
    float top[QM_EXPAND_LANES], bottom[QM_EXPAND_LANES];
    for (int w = 0; w < QM_EXPAND_LANES; w++) {
        float most[QM_EXPAND_LANES], least[QM_EXPAND_LANES];
        int64_t at = (int64_t)w * QM_EXPAND_LANES;
        top[w] = 0.0f, bottom[w] = 1e9f;
        if (at >= n)
            continue;
        for (int l = 0; l < QM_EXPAND_LANES; l++) {
            most[l] = at + l < n ? fabsf(x[at + l]) : 0.0f;
            least[l] = at + l < n ? most[l] : 3.4028234663852886e38f;
        }
        qm_expand_reduce(most, least);
        top[w] = most[0], bottom[w] = least[0];
    }
    qm_expand_reduce(top, bottom);
    stat[0] = top[0], stat[1] = bottom[0], stat[2] = 0.0f;
}

QM_FN float qm_expand_plus(float x, double plus) { return (float)((double)x + plus); }

/* scale, k and c from the statistics; may be the same array. */
QM_FN void qm_expand_numbers(const float *stat, double plus, int steps, float *number)
{
    float most = qm_expand_plus(stat[0], plus), least = qm_expand_plus(stat[1], plus);
    float c = sqrtf(most) * sqrtf(least), s = (float)steps;
    float k = floorf((qm_log2_rounded(100352.0f) / qm_log2_rounded(most / least)) * s) / s;
    number[0] = qm_power(most / c, k) / 448.0f;
    number[1] = k;
    number[2] = c;
}

QM_FN float qm_expand_signed(float x, int negative) { return negative && !qm_isnan(x) ? -x : x; }

/* The unit value of x. */
QM_FN float qm_expand_unit(float x, const float *number)
{
    float y = qm_power(fabsf(x) / number[2], number[1]);
    return qm_expand_signed(y, qm_sign_bit(x)) / number[0];
}

/* The element of a unit value. */
QM_FN float qm_expand_value(float unit, const float *number)
{
    float y = unit * number[0], x = qm_power(fabsf(y), 1.0f / number[1]) * number[2];
    return qm_expand_signed(x, !qm_isnan(y) && qm_sign_bit(y));
}

#endif
