/* qm_emu_pair.hpp - half2 and bfloat162, and what cuda_fp16.h and cuda_bf16.h say of one number
 * beyond arithmetic: rounding modes, comparisons, functions.
 *
 * Each operation is rounded once.  Functions (hexp, ...) are rounded from the C library's double
 * functions; a GPU's may differ by a unit in the last place. */
#ifndef QM_EMU_PAIR_HPP
#define QM_EMU_PAIR_HPP

#pragma GCC system_header /* the rewriter leaves it alone */

namespace qm_emu_half
{
/* Moves `nearest`, the number nearest to v, to the one that the mode asks for.  mode: 'z', 'd' or
 * 'u'. */
template <class T> inline T qm_rounded(double v, T nearest, char mode)
{
    unsigned short u = nearest.__x;
    double x = (double)(float)nearest;
    int is_up = mode == 'u' || (mode == 'z' && v < 0.0); /* toward +infinity */
    if (!(is_up ? x < v : x > v))
        return nearest;
    if ((u & 0x7fff) == 0)
        u = is_up ? 1 : 0x8001;
    else
        u = (unsigned short)(((u & 0x8000) != 0) == is_up ? u - 1 : u + 1);
    nearest.__x = u;
    return nearest;
}

/* A whole number as a double that rounds to few bits as the number itself does. */
inline double qm_whole(unsigned long long x)
{
    int power = 0;
    for (; x >> 50; power++)
        x = x >> 1 | (x & 1);
    return ldexp((double)x, power);
}
inline double qm_whole(long long x)
{
    return x < 0 ? -qm_whole(0ull - (unsigned long long)x) : qm_whole((unsigned long long)x);
}

/* The sum of x and y, of which the last bit is set where it is not exact. */
inline double qm_odd_sum(double x, double y)
{
    double s = x + y, t = s - x, rest = (x - (s - t)) + (y - t);
    uint64_t u;
    __builtin_memcpy(&u, &s, sizeof u);
    if (isfinite(s) && rest != 0.0 && !(u & 1))
        u += (rest > 0.0) == (s > 0.0) ? 1 : -1;
    __builtin_memcpy(&s, &u, sizeof u);
    return s;
}

template <class T> inline T qm_saturated(T a)
{
    return (float)a > 0.0f ? (float)a < 1.0f ? a : T(1.0f) : T(0.0f);
}
template <class T> inline T qm_rectified(T a)
{
    return (float)a != (float)a ? T(__builtin_nanf("")) : (float)a > 0.0f ? a : T(0.0f);
}
template <class T> inline int qm_is_nan(T a) { return (float)a != (float)a; }

/* The larger or smaller of two, of which one is no NaN where that can be; -0 is below 0. */
template <class T> inline T qm_extreme(T a, T b, int is_larger)
{
    if (qm_is_nan(a) || qm_is_nan(b))
        return qm_is_nan(a) ? b : a;
    int is_less = (float)a < (float)b || ((float)a == (float)b && a.__x >> 15 && !(b.__x >> 15));
    return is_less == is_larger ? b : a;
}

/* ---- one number ------------------------------------------------------------------------------ */

#define QM_COMPARED(T, T2, name, op)                                                               \
    inline bool __h##name(T a, T b)                                                                \
    {                                                                                              \
        return !qm_is_nan(a) && !qm_is_nan(b) && (float)a op(float) b;                             \
    }                                                                                              \
    inline bool __h##name##u(T a, T b) { return qm_is_nan(a) || qm_is_nan(b) || __h##name(a, b); } \
    inline T2 __h##name##2(T2 a, T2 b)                                                             \
    {                                                                                              \
        return {T((float)__h##name(a.x, b.x)), T((float)__h##name(a.y, b.y))};                     \
    }                                                                                              \
    inline T2 __h##name##u2(T2 a, T2 b)                                                            \
    {                                                                                              \
        return {T((float)__h##name##u(a.x, b.x)), T((float)__h##name##u(a.y, b.y))};               \
    }                                                                                              \
    inline bool __hb##name##2(T2 a, T2 b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); }   \
    inline bool __hb##name##u2(T2 a, T2 b)                                                         \
    {                                                                                              \
        return __h##name##u(a.x, b.x) && __h##name##u(a.y, b.y);                                   \
    }                                                                                              \
    inline unsigned int __h##name##2_mask(T2 a, T2 b)                                              \
    {                                                                                              \
        return (__h##name(a.x, b.x) ? 0xffffu : 0u) | (__h##name(a.y, b.y) ? 0xffff0000u : 0u);    \
    }

/* A function of one number, and of each of two. */
#define QM_FUNCTION(T, T2, name, value) \
    inline T h##name(T a)               \
    {                                   \
        double v = (double)(float)a;    \
        return T((double)(value));      \
    }                                   \
    inline T2 h2##name(T2 a) { return {h##name(a.x), h##name(a.y)}; }

/* An operation on two numbers, its saturated form, and the same on each of two. */
#define QM_OPERATION(T, T2, name, op)                                          \
    inline T __h##name(T a, T b) { return a op b; }                            \
    inline T __h##name##_rn(T a, T b) { return a op b; }                       \
    inline T __h##name##_sat(T a, T b) { return qm_saturated(a op b); }        \
    inline T2 __h##name##2(T2 a, T2 b) { return {a.x op b.x, a.y op b.y}; }    \
    inline T2 __h##name##2_rn(T2 a, T2 b) { return {a.x op b.x, a.y op b.y}; } \
    inline T2 __h##name##2_sat(T2 a, T2 b)                                     \
    {                                                                          \
        return {qm_saturated(a.x op b.x), qm_saturated(a.y op b.y)};           \
    }

#define QM_PAIR(T, T2)                                                                             \
    struct alignas(4) T2 {                                                                         \
        T x, y;                                                                                    \
        T2() = default;                                                                            \
        T2(T a, T b) : x(a), y(b) {}                                                               \
    };                                                                                             \
    QM_OPERATION(T, T2, add, +)                                                                    \
    QM_OPERATION(T, T2, sub, -)                                                                    \
    QM_OPERATION(T, T2, mul, *)                                                                    \
    inline T __hdiv(T a, T b) { return a / b; }                                                    \
    inline T __hneg(T a) { return -a; }                                                            \
    inline T __habs(T a)                                                                           \
    {                                                                                              \
        a.__x &= 0x7fff;                                                                           \
        return a;                                                                                  \
    }                                                                                              \
    inline T __hmax(T a, T b) { return qm_extreme(a, b, 1); }                                      \
    inline T __hmin(T a, T b) { return qm_extreme(a, b, 0); }                                      \
    inline T __hmax_nan(T a, T b)                                                                  \
    {                                                                                              \
        return qm_is_nan(a) || qm_is_nan(b) ? T(__builtin_nanf("")) : __hmax(a, b);                \
    }                                                                                              \
    inline T __hmin_nan(T a, T b)                                                                  \
    {                                                                                              \
        return qm_is_nan(a) || qm_is_nan(b) ? T(__builtin_nanf("")) : __hmin(a, b);                \
    }                                                                                              \
    inline T __hfma(T a, T b, T c)                                                                 \
    {                                                                                              \
        return T(qm_odd_sum((double)(float)a * (double)(float)b, (double)(float)c));               \
    }                                                                                              \
    inline T __hfma_sat(T a, T b, T c) { return qm_saturated(__hfma(a, b, c)); }                   \
    inline T __hfma_relu(T a, T b, T c) { return qm_rectified(__hfma(a, b, c)); }                  \
    inline bool __hisnan(T a) { return qm_is_nan(a); }                                             \
    inline int __hisinf(T a) { return isinf((float)a) ? (float)a > 0.0f ? 1 : -1 : 0; }            \
    inline T2 __h2div(T2 a, T2 b) { return {a.x / b.x, a.y / b.y}; }                               \
    inline T2 __hneg2(T2 a) { return {-a.x, -a.y}; }                                               \
    inline T2 __habs2(T2 a) { return {__habs(a.x), __habs(a.y)}; }                                 \
    inline T2 __hmax2(T2 a, T2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }                 \
    inline T2 __hmin2(T2 a, T2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }                 \
    inline T2 __hmax2_nan(T2 a, T2 b) { return {__hmax_nan(a.x, b.x), __hmax_nan(a.y, b.y)}; }     \
    inline T2 __hmin2_nan(T2 a, T2 b) { return {__hmin_nan(a.x, b.x), __hmin_nan(a.y, b.y)}; }     \
    inline T2 __hfma2(T2 a, T2 b, T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
    inline T2 __hfma2_sat(T2 a, T2 b, T2 c)                                                        \
    {                                                                                              \
        return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)};                             \
    }                                                                                              \
    inline T2 __hfma2_relu(T2 a, T2 b, T2 c)                                                       \
    {                                                                                              \
        return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};                           \
    }                                                                                              \
    inline T2 __hisnan2(T2 a) { return {T((float)qm_is_nan(a.x)), T((float)qm_is_nan(a.y))}; }     \
    QM_COMPARED(T, T2, eq, ==)                                                                     \
    QM_COMPARED(T, T2, ne, !=)                                                                     \
    QM_COMPARED(T, T2, lt, <)                                                                      \
    QM_COMPARED(T, T2, le, <=)                                                                     \
    QM_COMPARED(T, T2, gt, >)                                                                      \
    QM_COMPARED(T, T2, ge, >=)                                                                     \
    QM_FUNCTION(T, T2, sqrt, sqrt(v))                                                              \
    QM_FUNCTION(T, T2, rsqrt, 1.0 / sqrt(v))                                                       \
    QM_FUNCTION(T, T2, rcp, 1.0 / v)                                                               \
    QM_FUNCTION(T, T2, exp, exp(v))                                                                \
    QM_FUNCTION(T, T2, exp2, exp2(v))                                                              \
    QM_FUNCTION(T, T2, exp10, pow(10.0, v))                                                        \
    QM_FUNCTION(T, T2, log, log(v))                                                                \
    QM_FUNCTION(T, T2, log2, log2(v))                                                              \
    QM_FUNCTION(T, T2, log10, log10(v))                                                            \
    QM_FUNCTION(T, T2, sin, sin(v))                                                                \
    QM_FUNCTION(T, T2, cos, cos(v))                                                                \
    QM_FUNCTION(T, T2, tanh, tanh(v))                                                              \
    QM_FUNCTION(T, T2, floor, floor(v))                                                            \
    QM_FUNCTION(T, T2, ceil, ceil(v))                                                              \
    QM_FUNCTION(T, T2, trunc, trunc(v))                                                            \
    QM_FUNCTION(T, T2, rint, rint(v))                                                              \
    inline T2 operator+(T2 a, T2 b) { return __hadd2(a, b); }                                      \
    inline T2 operator-(T2 a, T2 b) { return __hsub2(a, b); }                                      \
    inline T2 operator*(T2 a, T2 b) { return __hmul2(a, b); }                                      \
    inline T2 operator/(T2 a, T2 b) { return __h2div(a, b); }                                      \
    inline T2 operator-(T2 a) { return __hneg2(a); }                                               \
    inline T2 operator+(T2 a) { return a; }                                                        \
    inline T2 &operator+=(T2 &a, T2 b) { return a = a + b; }                                       \
    inline T2 &operator-=(T2 &a, T2 b) { return a = a - b; }                                       \
    inline T2 &operator*=(T2 &a, T2 b) { return a = a * b; }                                       \
    inline T2 &operator/=(T2 &a, T2 b) { return a = a / b; }                                       \
    inline bool operator==(T2 a, T2 b) { return __hbeq2(a, b); }                                   \
    inline bool operator!=(T2 a, T2 b) { return __hbneu2(a, b); }                                  \
    inline bool operator<(T2 a, T2 b) { return __hblt2(a, b); }                                    \
    inline bool operator>(T2 a, T2 b) { return __hbgt2(a, b); }                                    \
    inline bool operator<=(T2 a, T2 b) { return __hble2(a, b); }                                   \
    inline bool operator>=(T2 a, T2 b) { return __hbge2(a, b); }                                   \
    inline float __low2float(T2 a) { return (float)a.x; }                                          \
    inline float __high2float(T2 a) { return (float)a.y; }                                         \
    inline T2 __lowhigh2highlow(T2 a) { return {a.y, a.x}; }

/* Functions whose names have the type's short name `s`: __int2half_rn, __int2bfloat16_rn. */
#define QM_WHOLE(T, s, word, W, wide)                                    \
    inline T __##word##2##s##_rn(W v) { return T(qm_whole((wide)v)); }   \
    inline T __##word##2##s##_rz(W v)                                    \
    {                                                                    \
        return qm_rounded(qm_whole((wide)v), T(qm_whole((wide)v)), 'z'); \
    }                                                                    \
    inline T __##word##2##s##_rd(W v)                                    \
    {                                                                    \
        return qm_rounded(qm_whole((wide)v), T(qm_whole((wide)v)), 'd'); \
    }                                                                    \
    inline T __##word##2##s##_ru(W v)                                    \
    {                                                                    \
        return qm_rounded(qm_whole((wide)v), T(qm_whole((wide)v)), 'u'); \
    }                                                                    \
    QM_WHOLE_OF(T, s, word, W, rn, rintf)                                \
    QM_WHOLE_OF(T, s, word, W, rz, truncf)                               \
    QM_WHOLE_OF(T, s, word, W, rd, floorf)                               \
    QM_WHOLE_OF(T, s, word, W, ru, ceilf)
#define QM_WHOLE_OF(T, s, word, W, mode, round) \
    inline W __##s##2##word##_##mode(T a) { return qm_whole_of<W>(round((float)a)); }

/* Whole numbers of a type, as GPUs convert to them: saturated; of a NaN 0, or 2^63 in 64 bits. */
template <class W> inline W qm_whole_of(float v)
{
    const int bits = 8 * (int)sizeof(W) - ((W)-1 < 0 ? 1 : 0);
    const W most = (W)-1 < 0 ? (W)(((1ull << bits) - 1)) : (W)-1;
    return v != v                                  ? (W)(sizeof(W) == 8 ? 1ull << 63 : 0)
           : v >= ldexpf(1.0f, bits)               ? most
           : (W)-1 < 0 && v <= -ldexpf(1.0f, bits) ? (W)(-most - 1)
           : v <= 0.0f && !((W)-1 < 0)             ? (W)0
                                                   : (W)v;
}

#define QM_NAMED(T, T2, s, s2)                                                      \
    inline T __float2##s(float v) { return T(v); }                                  \
    inline T __float2##s##_rn(float v) { return T(v); }                             \
    inline T __float2##s##_rz(float v) { return qm_rounded((double)v, T(v), 'z'); } \
    inline T __float2##s##_rd(float v) { return qm_rounded((double)v, T(v), 'd'); } \
    inline T __float2##s##_ru(float v) { return qm_rounded((double)v, T(v), 'u'); } \
    inline T __double2##s(double v) { return T(v); }                                \
    inline float __##s##2float(T a) { return (float)a; }                            \
    inline unsigned short __##s##_as_ushort(T a) { return a.__x; }                  \
    inline short __##s##_as_short(T a) { return (short)a.__x; }                     \
    inline T __ushort_as_##s(unsigned short v)                                      \
    {                                                                               \
        T a;                                                                        \
        a.__x = v;                                                                  \
        return a;                                                                   \
    }                                                                               \
    inline T __short_as_##s(short v) { return __ushort_as_##s((unsigned short)v); } \
    inline T2 __float2##s2##_rn(float v) { return {T(v), T(v)}; }                   \
    inline T2 __floats2##s2##_rn(float v, float w) { return {T(v), T(w)}; }         \
    inline T2 __float22##s2##_rn(float2 v) { return {T(v.x), T(v.y)}; }             \
    inline float2 __##s2##2float2(T2 a) { return {(float)a.x, (float)a.y}; }        \
    inline T2 __##s##2##s2(T a) { return {a, a}; }                                  \
    inline T2 __halves2##s2(T a, T b) { return {a, b}; }                            \
    inline T2 make_##s2(T a, T b) { return {a, b}; }                                \
    inline T __low2##s(T2 a) { return a.x; }                                        \
    inline T __high2##s(T2 a) { return a.y; }                                       \
    inline T2 __low2##s2(T2 a) { return {a.x, a.x}; }                               \
    inline T2 __high2##s2(T2 a) { return {a.y, a.y}; }                              \
    inline T2 __lows2##s2(T2 a, T2 b) { return {a.x, b.x}; }                        \
    inline T2 __highs2##s2(T2 a, T2 b) { return {a.y, b.y}; }                       \
    QM_WHOLE(T, s, int, int, long long)                                             \
    QM_WHOLE(T, s, uint, unsigned int, unsigned long long)                          \
    QM_WHOLE(T, s, short, short, long long)                                         \
    QM_WHOLE(T, s, ushort, unsigned short, unsigned long long)                      \
    QM_WHOLE(T, s, ll, long long, long long)                                        \
    QM_WHOLE(T, s, ull, unsigned long long, unsigned long long)

QM_PAIR(__half, __half2)
QM_NAMED(__half, __half2, half, half2)
QM_PAIR(__nv_bfloat16, __nv_bfloat162)
QM_NAMED(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)
#undef QM_PAIR
#undef QM_NAMED
#undef QM_WHOLE
#undef QM_WHOLE_OF
#undef QM_COMPARED
#undef QM_FUNCTION
#undef QM_OPERATION
} // namespace qm_emu_half

#endif
