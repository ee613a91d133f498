/* qm_emu_math.hpp - CUDA's device functions on numbers.
 *
 * rsqrtf, __fdividef, fdividef and the intrinsics __expf, __logf, __powf, __sinf, ... are as
 * inexact as the CUDA C++ Programming Guide allows (mathematical and intrinsic functions), on a
 * side that is a function of the operands: a kernel may not rely on more.  Functions of the C
 * library (expf, powf, ...) give its results: a GPU may differ by the units in the last place that
 * its manual states. */
#ifndef QM_EMU_MATH_HPP
#define QM_EMU_MATH_HPP

#pragma GCC system_header /* the rewriter leaves it alone */

#include "qm_emu_ulp.hpp"

/* ---- min and max; float ones are fmin and fmax, of mixed types as in CUDA ------------------- */

#define QM_MINMAX(T, A, B)                                          \
    constexpr T min(A a, B b) { return (T)a < (T)b ? (T)a : (T)b; } \
    constexpr T max(A a, B b) { return (T)a < (T)b ? (T)b : (T)a; }
QM_MINMAX(int, int, int)
QM_MINMAX(unsigned int, unsigned int, unsigned int)
QM_MINMAX(unsigned int, int, unsigned int)
QM_MINMAX(unsigned int, unsigned int, int)
QM_MINMAX(long, long, long)
QM_MINMAX(unsigned long, unsigned long, unsigned long)
QM_MINMAX(unsigned long, long, unsigned long)
QM_MINMAX(unsigned long, unsigned long, long)
QM_MINMAX(long long, long long, long long)
QM_MINMAX(unsigned long long, unsigned long long, unsigned long long)
QM_MINMAX(unsigned long long, long long, unsigned long long)
QM_MINMAX(unsigned long long, unsigned long long, long long)
#undef QM_MINMAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }

/* ---- bits ----------------------------------------------------------------------------------- */

inline unsigned int __float_as_uint(float x) { return qm_emu::bits<unsigned int>(x); }
inline int __float_as_int(float x) { return qm_emu::bits<int>(x); }
inline float __uint_as_float(unsigned int x) { return qm_emu::bits<float>(x); }
inline float __int_as_float(int x) { return qm_emu::bits<float>(x); }
inline long long __double_as_longlong(double x) { return qm_emu::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return qm_emu::bits<double>(x); }
inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned int)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned int __brev(unsigned int x)
{
    unsigned int y = 0;
    for (int i = 0; i < 32; i++)
        y |= (x >> i & 1u) << (31 - i);
    return y;
}
inline unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int s)
{
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned int out = 0;
    for (int i = 0; i < 4; i++) {
        unsigned int pick = s >> (4 * i), byte = (unsigned int)(both >> (8 * (pick & 7))) & 255;
        if (pick & 8)
            byte = byte & 128 ? 255 : 0;
        out |= byte << (8 * i);
    }
    return out;
}
inline unsigned int __funnelshift_l(unsigned int lo, unsigned int hi, unsigned int by)
{
    return (unsigned int)((((unsigned long long)hi << 32 | lo) << (by & 31)) >> 32);
}
inline unsigned int __funnelshift_r(unsigned int lo, unsigned int hi, unsigned int by)
{
    return (unsigned int)(((unsigned long long)hi << 32 | lo) >> (by & 31));
}
inline unsigned int __umulhi(unsigned int a, unsigned int b)
{
    return (unsigned int)((unsigned long long)a * b >> 32);
}
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __mul24(int a, int b)
{
    return (int)((unsigned int)(a << 8 >> 8) * (unsigned int)(b << 8 >> 8));
}
inline unsigned int __umul24(unsigned int a, unsigned int b)
{
    return (a & 0xffffffu) * (b & 0xffffffu);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* Functions with a rounding mode in their name are never contracted, and the plain `a * b` beside
 * __fmul_rn(a, b) is: qm_emu::opaque, qm_emu::product. */
inline float __fadd_rn(float a, float b) { return qm_emu::opaque(a) + qm_emu::opaque(b); }
inline float __fsub_rn(float a, float b) { return qm_emu::opaque(a) - qm_emu::opaque(b); }
inline float __fmul_rn(float a, float b) { return qm_emu::product(a, b); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return (float)(1.0 / sqrt((double)a)); }
inline double __dadd_rn(double a, double b) { return qm_emu::opaque(a) + qm_emu::opaque(b); }
inline double __dsub_rn(double a, double b) { return qm_emu::opaque(a) - qm_emu::opaque(b); }
inline double __dmul_rn(double a, double b) { return qm_emu::product(a, b); }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

/* 1 / sqrt(a) within 2 ulp. */
inline float rsqrtf(float a)
{
    double x = 1.0 / sqrt((double)a);
    return qm_emu::is_ordinary(x)
               ? qm_emu::displaced(x, 2.0, qm_emu::way_of(qm_emu::bits<unsigned>(a), 11u))
               : (float)x;
}
inline float rcbrtf(float a) { return (float)(1.0 / cbrt((double)a)); }
inline double rsqrt(double a) { return 1.0 / sqrt(a); }

/* a / b within 2 ulp.  Beyond 2^126 the quotient by b is 0, and NaN where a is infinite. */
inline float __fdividef(float a, float b)
{
    double x = (double)a / (double)b;
    if (fabsf(b) > 0x1p126f && fabsf(b) < INFINITY)
        return qm_emu::opaque(a) * 0.0f;
    return qm_emu::is_ordinary(x)
               ? qm_emu::displaced(
                     x, 2.0, qm_emu::way_of(qm_emu::bits<unsigned>(a), qm_emu::bits<unsigned>(b)))
               : a / b;
}
inline float __expf(float a)
{
    return qm_emu::off_by(exp((double)a), a == 0.0f ? 0.0 : 2.0 + floor(fabs(1.173 * (double)a)),
                          a);
}
inline float __exp10f(float a)
{
    double ulp = a == 0.0f ? 0.0 : 2.0 + floor(fabs(2.97 * (double)a));
    return qm_emu::off_by(pow(10.0, (double)a), ulp, a);
}
inline float __logf(float a) { return qm_emu::log_of(log((double)a), 0x1.8157p-22, 3.0, a); }
inline float __log2f(float a) { return qm_emu::log_of(log2((double)a), 0x1p-22, 2.0, a); }
inline float __log10f(float a) { return qm_emu::log_of(log10((double)a), 0x1p-24, 3.0, a); }
inline float __powf(float a, float b)
{
    float x = qm_emu::opaque(b) * __log2f(a); /* as the guide defines it: exp2f, within 2 ulp */
    return qm_emu::off_by(exp2((double)x), x == 0.0f ? 0.0 : 2.0, x);
}
inline float __sinf(float a) { return qm_emu::wave_of(sin((double)a), 0x1.8157p-22, a); }
inline float __cosf(float a) { return qm_emu::wave_of(cos((double)a), 0x1.c0d2p-22, a); }
inline void __sincosf(float a, float *s, float *c)
{
    *s = __sinf(a);
    *c = __cosf(a);
}
inline float __tanf(float a) { return __fdividef(__sinf(a), __cosf(a)); }
inline float __tanhf(float a) /* tanh.approx.f32: within 2^-11 of the result */
{
    double x = tanh((double)a);
    return (float)(x + qm_emu::side_of(a) * 0x1p-11 * fabs(x));
}
inline float __saturatef(float a) { return a >= 0.0f ? a < 1.0f ? a : 1.0f : 0.0f; }
inline float fdividef(float a, float b) { return __fdividef(a, b); }

/* ---- conversions: out of range they saturate, NaN becomes 0 ---------------------------------- */

namespace qm_emu
{
template <class T> inline T whole(double x, T least, T most)
{
    return x != x ? 0 : x <= (double)least ? least : x >= (double)most ? most : (T)x;
}
} // namespace qm_emu
#define QM_CONVERT(mode, f)                                                  \
    inline int __float2int_##mode(float x)                                   \
    {                                                                        \
        return qm_emu::whole<int>(f((double)x), INT_MIN, INT_MAX);           \
    }                                                                        \
    inline unsigned int __float2uint_##mode(float x)                         \
    {                                                                        \
        return qm_emu::whole<unsigned int>(f((double)x), 0, UINT_MAX);       \
    }                                                                        \
    inline int __double2int_##mode(double x)                                 \
    {                                                                        \
        return qm_emu::whole<int>(f(x), INT_MIN, INT_MAX);                   \
    }                                                                        \
    inline long long __float2ll_##mode(float x)                              \
    {                                                                        \
        return qm_emu::whole<long long>(f((double)x), LLONG_MIN, LLONG_MAX); \
    }
QM_CONVERT(rn, rint)
QM_CONVERT(rz, trunc)
QM_CONVERT(rd, floor)
QM_CONVERT(ru, ceil)
#undef QM_CONVERT
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned int x) { return (float)x; }
inline float __ll2float_rn(long long x) { return (float)x; }
inline double __int2double_rn(int x) { return x; }
inline float __double2float_rn(double x) { return (float)x; }

/* ---- loads and stores with hints: the hint is ignored ---------------------------------------- */

#define QM_LOAD(name) \
    template <class T> inline T name(const T *p) { return *p; }
QM_LOAD(__ldg)
QM_LOAD(__ldca)
QM_LOAD(__ldcg)
QM_LOAD(__ldcs)
QM_LOAD(__ldlu)
QM_LOAD(__ldcv)
#undef QM_LOAD
#define QM_STORE(name) \
    template <class T> inline void name(T *p, typename qm_emu::same<T>::type x) { *p = x; }
QM_STORE(__stwb)
QM_STORE(__stcg)
QM_STORE(__stcs)
QM_STORE(__stwt)
#undef QM_STORE

inline void __trap(QM_AT) { qm_emu_fail(at, "__trap()"); }
inline void __nanosleep(unsigned int) {}

#endif
