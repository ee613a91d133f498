/* qm_emu_half.hpp - The types half, bfloat16 and fp8 of cuda_fp16.h, cuda_bf16.h and cuda_fp8.h.
 *
 * An operation is done in float32 and rounded, which gives the correctly rounded result for one
 * operation on numbers that short. */
#ifndef QM_EMU_HALF_HPP
#define QM_EMU_HALF_HPP

#pragma GCC system_header /* the rewriter leaves it alone */

#include "core/base/fp8.h"
#include "core/base/half.h"

#define QM_HALF(name, raw, decode, encode)                                                 \
    struct raw {                                                                           \
        unsigned short x;                                                                  \
    };                                                                                     \
    struct name {                                                                          \
        unsigned short __x;                                                                \
        name() = default;                                                                  \
        name(raw r) : __x(r.x) {}                                                          \
        name(float v) : __x(encode(v)) {}                                                  \
        name(double v) : __x(encode(qm_double_to_odd(v))) {}                               \
        name(int v) : __x(encode(qm_double_to_odd((double)v))) {}                          \
        name(unsigned int v) : __x(encode(qm_double_to_odd((double)v))) {}                 \
        operator float() const { return decode(__x); }                                     \
        operator raw() const { return raw{__x}; }                                          \
        name &operator=(float v) { return *this = name(v); }                               \
        name &operator=(double v) { return *this = name(v); }                              \
        name &operator+=(name b) { return *this = name((float)*this + (float)b); }         \
        name &operator-=(name b) { return *this = name((float)*this - (float)b); }         \
        name &operator*=(name b) { return *this = name((float)*this * (float)b); }         \
        name &operator/=(name b) { return *this = name((float)*this / (float)b); }         \
    };                                                                                     \
    inline name operator+(name a, name b) { return name((float)a + (float)b); }            \
    inline name operator-(name a, name b) { return name((float)a - (float)b); }            \
    inline name operator*(name a, name b) { return name((float)a * (float)b); }            \
    inline name operator/(name a, name b) { return name((float)a / (float)b); }            \
    inline name operator-(name a) { return name(raw{(unsigned short)(a.__x ^ 0x8000)}); }  \
    inline bool operator==(name a, name b) { return (float)a == (float)b; }                \
    inline bool operator!=(name a, name b) { return (float)a != (float)b; }                \
    inline bool operator<(name a, name b) { return (float)a < (float)b; }                  \
    inline bool operator>(name a, name b) { return (float)a > (float)b; }                  \
    inline bool operator<=(name a, name b) { return (float)a <= (float)b; }                \
    inline bool operator>=(name a, name b) { return (float)a >= (float)b; }                \
    inline name __hadd(name a, name b) { return a + b; }                                   \
    inline name __hsub(name a, name b) { return a - b; }                                   \
    inline name __hmul(name a, name b) { return a * b; }                                   \
    inline name __hdiv(name a, name b) { return a / b; }                                   \
    inline name __hneg(name a) { return -a; }                                              \
    inline name __habs(name a) { return name(raw{(unsigned short)(a.__x & 0x7fff)}); }     \
    inline name __hmax(name a, name b) { return name(fmaxf((float)a, (float)b)); }         \
    inline name __hmin(name a, name b) { return name(fminf((float)a, (float)b)); }         \
    inline name __hfma(name a, name b, name c)                                             \
    {                                                                                      \
        return name(fma((double)(float)a, (double)(float)b, (double)(float)c));            \
    }                                                                                      \
    inline bool __hisnan(name a) { return (float)a != (float)a; }                          \
    inline int __hisinf(name a) { return isinf((float)a) ? (float)a > 0.0f ? 1 : -1 : 0; } \
    inline bool __heq(name a, name b) { return a == b; }                                   \
    inline bool __hlt(name a, name b) { return a < b; }                                    \
    inline bool __hgt(name a, name b) { return a > b; }                                    \
    inline name hsqrt(name a) { return name(sqrtf((float)a)); }                            \
    struct alignas(4) name##2 { name x, y; };                                              \
    inline float __low2float(name##2 a) { return (float)a.x; }                             \
    inline float __high2float(name##2 a) { return (float)a.y; }                            \
    inline name##2 __hadd2(name##2 a, name##2 b) { return {a.x + b.x, a.y + b.y}; }        \
    inline name##2 __hmul2(name##2 a, name##2 b) { return {a.x * b.x, a.y * b.y}; }

QM_HALF(__half, __half_raw, qm_f16_to_float, qm_float_to_f16)
QM_HALF(__nv_bfloat16, __nv_bfloat16_raw, qm_bf16_to_float, qm_float_to_bf16)
#undef QM_HALF
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half __double2half(double x) { return __half(x); }
inline __half __int2half_rn(int x) { return __half(x); }
inline float __half2float(__half x) { return (float)x; }
inline unsigned short __half_as_ushort(__half x) { return x.__x; }
inline short __half_as_short(__half x) { return (short)x.__x; }
inline __half __ushort_as_half(unsigned short x) { return __half(__half_raw{x}); }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline float2 __half22float2(__half2 v) { return {(float)v.x, (float)v.y}; }

inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return (float)x; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.__x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x)
{
    return __nv_bfloat16(__nv_bfloat16_raw{x});
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 v)
{
    return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)};
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {(float)v.x, (float)v.y}; }

/* ---- fp8: storage, converted to and from floats ---------------------------------------------- */

typedef unsigned char __nv_fp8_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t s,
                                                __nv_fp8_interpretation_t kind)
{
    return kind == __NV_E4M3 ? qm_float_to_e4m3(x, s == __NV_SATFINITE)
                             : qm_float_to_e5m2(x, s == __NV_SATFINITE);
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind)
{
    return __half_raw{
        qm_float_to_f16(kind == __NV_E4M3 ? qm_e4m3_to_float(x) : qm_e5m2_to_float(x))};
}

#define QM_FP8(name, decode, encode)                                     \
    struct name {                                                        \
        __nv_fp8_storage_t __x;                                          \
        name() = default;                                                \
        explicit name(float v) : __x(encode(v, 1)) {}                    \
        explicit name(double v) : __x(encode(qm_double_to_odd(v), 1)) {} \
        explicit name(__half v) : __x(encode((float)v, 1)) {}            \
        explicit name(__nv_bfloat16 v) : __x(encode((float)v, 1)) {}     \
        explicit operator float() const { return decode(__x); }          \
        explicit operator __half() const { return __half(decode(__x)); } \
    };
QM_FP8(__nv_fp8_e4m3, qm_e4m3_to_float, qm_float_to_e4m3)
QM_FP8(__nv_fp8_e5m2, qm_e5m2_to_float, qm_float_to_e5m2)
#undef QM_FP8

#endif
