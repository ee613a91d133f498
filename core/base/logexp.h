/* logexp.h - log2 and exp2 with the same bits on every CPU and GPU (dual).
 *
 * Both consist of correctly rounded float32 operations (fmaf, products, sums, quotients) only, in a
 * fixed order. */
#ifndef QM_BASE_LOGEXP_H
#define QM_BASE_LOGEXP_H

#include "core/base/dual.h"

/* log2(x): within 1 ULP of the exact value for every positive float, exact for powers of two.
 * x < 0 and NaN give NaN, 0 gives -Inf, +Inf gives +Inf. */
QM_FN float qm_log2(float x)
{
    if (qm_isnan(x) || x < 0.0f)
        return qm_float(0x7fffffffu);
    if (x == 0.0f)
        return qm_float(0xff800000u);
    uint32_t u = qm_bits(x);
    if (u == 0x7f800000u)
        return x;
    int e = 0;
    if (u < 0x00800000u) { /* subnormal */
        u = qm_bits(x * 8388608.0f);
        e = -23;
    }
    /* x = 2^e * m with m in [sqrt(1/2), sqrt(2)) */
    int shift = (int)((u - 0x3f3504f3u) >> 23);
    shift = shift >= 256 ? shift - 512 : shift;
    e += shift;
    float m = qm_float(u - ((uint32_t)shift << 23));
    /* ln(m) = 2 atanh(f), f = (m-1)/(m+1), in double-single arithmetic: hi + lo */
    float a = m - 1.0f, b = m + 1.0f;
    float b_low = m - (b - 1.0f); /* b + b_low = m + 1 exactly */
    float f = a / b;
    float r = fmaf(-f, b, a); /* a - f b, exact */
    float f_low = fmaf(-f, b_low, r) / b;
    float f2 = f * f;
    float p = 0.15384615f;        /* 2/13 */
    p = fmaf(p, f2, 0.18181819f); /* 2/11 */
    p = fmaf(p, f2, 0.22222222f);
    p = fmaf(p, f2, 0.28571430f);
    p = fmaf(p, f2, 0.4f);
    p = fmaf(p, f2, 0.6666667f);
    float tail = fmaf(p * f2, f, 2.0f * f_low); /* ln m = 2 f + tail */
    float head = 2.0f * f;
    /* head + tail is multiplied by log2(e) = 1.44269502 + 1.92596303e-8 */
    float hi = head * 1.44269502f;
    float lo = fmaf(head, 1.44269502f, -hi);
    lo = fmaf(head, 1.92596299e-8f, lo);
    lo = fmaf(tail, 1.44269502f, lo);
    float s = (float)e + hi; /* |e| >= |hi| unless e = 0 */
    float err = e ? ((float)e - s) + hi : 0.0f;
    return s + (err + lo);
}

/* 2^x: within 1 ULP of the exact value for normal results, exact for integers.  A subnormal result
 * is a normal one scaled down and rounded once more.  NaN gives NaN, x >= 128 gives +Inf, x < -150
 * gives 0. */
QM_FN float qm_exp2(float x)
{
    if (qm_isnan(x))
        return x;
    if (x >= 128.0f)
        return qm_float(0x7f800000u);
    if (x < -150.0f)
        return 0.0f;
    float k = rintf(x), f = x - k; /* exact, |f| <= 1/2 */
    float p = 1.5252733e-5f;       /* ln2^7 / 5040 */
    p = fmaf(p, f, 1.5403530e-4f);
    p = fmaf(p, f, 1.3333558e-3f);
    p = fmaf(p, f, 9.6181291e-3f);
    p = fmaf(p, f, 5.5504109e-2f);
    p = fmaf(p, f, 2.4022651e-1f);
    p = fmaf(p, f, 6.9314718e-1f);
    p = fmaf(p, f, 1.0f);
    int e = (int)k;
    if (e >= -126 && e < 128)
        return p * qm_float((uint32_t)(e + 127) << 23);
    if (e >= 128) /* x just below 128 rounds to k = 128 */
        return p * 1.7014118e38f * qm_float((uint32_t)(e) << 23);
    return p * qm_float((uint32_t)(e + 127 + 100) << 23) * 7.888609052210118e-31f; /* 2^-100 */
}

#endif
