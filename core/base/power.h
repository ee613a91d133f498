/* power.h - log2 and x^y of float32 numbers, rounded once from double, with the same bits on every
 * CPU and GPU (dual).
 *
 * Both consist of correctly rounded double operations (sums, products, quotients) in a fixed order
 * and one rounding to float32.  Before it the relative error is below 2^-44, so that a result that
 * is not the nearest float32 lies within 2^-20 ulp of a tie. */
#ifndef QM_BASE_POWER_H
#define QM_BASE_POWER_H

#include "core/base/dual.h"

/* log2 of a positive finite float in double; relative error below 2^-50. */
QM_FN double qm_log2_double(float x)
{
    uint32_t u = qm_bits(x);
    int e = 0;
    if (u < 0x00800000u) { /* subnormal */
        u = qm_bits(x * 8388608.0f);
        e = -23;
    }
    /* x = 2^e m with m in [sqrt(1/2), sqrt(2)); log2 m = 2 log2(e) atanh f */
    int shift = (int)((u - 0x3f3504f3u) >> 23);
    shift = shift >= 256 ? shift - 512 : shift;
    e += shift;
    double m = (double)qm_float(u - ((uint32_t)shift << 23)), f = (m - 1.0) / (m + 1.0), s = f * f;
    double p = 1.0 / 23.0;
    p = p * s + 1.0 / 21.0;
    p = p * s + 1.0 / 19.0;
    p = p * s + 1.0 / 17.0;
    p = p * s + 1.0 / 15.0;
    p = p * s + 1.0 / 13.0;
    p = p * s + 1.0 / 11.0;
    p = p * s + 1.0 / 9.0;
    p = p * s + 1.0 / 7.0;
    p = p * s + 1.0 / 5.0;
    p = p * s + 1.0 / 3.0;
    return (double)e + 2.8853900817779268 * (f + f * s * p);
}

/* 2^t rounded to float32; |t| <= 300. */
QM_FN float qm_exp2_of_double(double t)
{
    double k = (double)(int)(t < 0.0 ? t - 0.5 : t + 0.5), z = (t - k) * 0.69314718055994531;
    double p = 1.0 / 6227020800.0;
    p = p * z + 1.0 / 479001600.0;
    p = p * z + 1.0 / 39916800.0;
    p = p * z + 1.0 / 3628800.0;
    p = p * z + 1.0 / 362880.0;
    p = p * z + 1.0 / 40320.0;
    p = p * z + 1.0 / 5040.0;
    p = p * z + 1.0 / 720.0;
    p = p * z + 1.0 / 120.0;
    p = p * z + 1.0 / 24.0;
    p = p * z + 1.0 / 6.0;
    p = p * z + 0.5;
    p = p * z + 1.0;
    p = p * z + 1.0;
    /* 2^k as a product of three exact powers: one float32 cannot hold all of them */
    int a = (int)k / 3, b = ((int)k - a) / 2, c = (int)k - a - b;
    p *= (double)qm_float((uint32_t)(a + 127) << 23);
    p *= (double)qm_float((uint32_t)(b + 127) << 23);
    p *= (double)qm_float((uint32_t)(c + 127) << 23);
    return (float)p;
}

/* log2(x): x < 0 and NaN give NaN, 0 gives -Inf, +Inf gives +Inf; exact for powers of two. */
QM_FN float qm_log2_rounded(float x)
{
    if (qm_isnan(x) || x < 0.0f)
        return qm_float(0x7fffffffu);
    if (x == 0.0f)
        return qm_float(0xff800000u);
    return qm_bits(x) == 0x7f800000u ? x : (float)qm_log2_double(x);
}

/* x^y as C's powf: 1 for y = 0 and for x = 1, NaN included; NaN for x < 0, also of whole y. */
QM_FN float qm_power(float x, float y)
{
    if (y == 0.0f || x == 1.0f)
        return 1.0f;
    if (qm_isnan(x) || qm_isnan(y) || x < 0.0f)
        return qm_float(0x7fffffffu);
    int is_large = x > 1.0f, is_inf = qm_bits(x) == 0x7f800000u || fabsf(y) > 3.4028235e38f;
    if (x == 0.0f || is_inf)
        return is_large == (y > 0.0f) ? qm_float(0x7f800000u) : 0.0f;
    double t = (double)y * qm_log2_double(x);
    return t >= 129.0 ? qm_float(0x7f800000u) : t <= -151.0 ? 0.0f : qm_exp2_of_double(t);
}

#endif
