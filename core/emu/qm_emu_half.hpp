/* qm_emu_half.hpp - The types half, bfloat16 and fp8 of cuda_fp16.h, cuda_bf16.h and cuda_fp8.h.
 *
 * It is read before the file, whose macros it must not meet; those headers only name the namespace.
  * An operation is done in float32 and rounded, which gives the correctly rounded result for one
 * operation on numbers that short. */
#ifndef QM_EMU_HALF_HPP
#define QM_EMU_HALF_HPP

#pragma GCC system_header /* the rewriter leaves it alone */

#include "core/base/fp8.h"
#include "core/base/half.h"

/* The names of CUDA's headers, which make them those of the file. */
namespace qm_emu_half
{
#define QM_HALF(name, raw, decode, encode)                                                \
    struct raw {                                                                          \
        unsigned short x;                                                                 \
    };                                                                                    \
    struct name {                                                                         \
        unsigned short __x;                                                               \
        name() = default;                                                                 \
        name(raw r) : __x(r.x) {}                                                         \
        name(float v) : __x(encode(v)) {}                                                 \
        name(double v) : __x(encode(qm_double_to_odd(v))) {}                              \
        name(int v) : __x(encode(qm_double_to_odd((double)v))) {}                         \
        name(unsigned int v) : __x(encode(qm_double_to_odd((double)v))) {}                \
        operator float() const { return decode(__x); }                                    \
        operator raw() const { return raw{__x}; }                                         \
        name &operator=(float v) { return *this = name(v); }                              \
        name &operator=(double v) { return *this = name(v); }                             \
        name &operator+=(name b) { return *this = name((float)*this + (float)b); }        \
        name &operator-=(name b) { return *this = name((float)*this - (float)b); }        \
        name &operator*=(name b) { return *this = name((float)*this * (float)b); }        \
        name &operator/=(name b) { return *this = name((float)*this / (float)b); }        \
    };                                                                                    \
    inline name operator+(name a, name b) { return name((float)a + (float)b); }           \
    inline name operator-(name a, name b) { return name((float)a - (float)b); }           \
    inline name operator*(name a, name b) { return name((float)a * (float)b); }           \
    inline name operator/(name a, name b) { return name((float)a / (float)b); }           \
    inline name operator-(name a) { return name(raw{(unsigned short)(a.__x ^ 0x8000)}); } \
    inline bool operator==(name a, name b) { return (float)a == (float)b; }               \
    inline bool operator!=(name a, name b) { return (float)a != (float)b; }               \
    inline bool operator<(name a, name b) { return (float)a < (float)b; }                 \
    inline bool operator>(name a, name b) { return (float)a > (float)b; }                 \
    inline bool operator<=(name a, name b) { return (float)a <= (float)b; }               \
    inline bool operator>=(name a, name b) { return (float)a >= (float)b; }

/* A GPU converts a NaN of half to its own NaN; one of bfloat16 keeps its bits. */
inline float qm_half_to_float(unsigned short u)
{
    return (u & 0x7fff) > 0x7c00 ? qm_float(0x7fffffffu) : qm_f16_to_float(u);
}

QM_HALF(__half, __half_raw, qm_half_to_float, qm_float_to_f16)
QM_HALF(__nv_bfloat16, __nv_bfloat16_raw, qm_bf16_to_float, qm_float_to_bf16)
#undef QM_HALF
} // namespace qm_emu_half

#include "qm_emu_pair.hpp"

namespace qm_emu_half
{
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

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
} // namespace qm_emu_half

#endif
