/* dual.h - Lets a header be compiled as C11, as C++17 and as CUDA device code.
 *
 * A dual header includes only other dual headers and uses only what the three languages share: no
 * compound literals, VLAs, restrict, _Generic or implicit conversions from void *. */
#ifndef QM_BASE_DUAL_H
#define QM_BASE_DUAL_H

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define QM_FN static __host__ __device__ __forceinline__
#else
#define QM_FN static inline __attribute__((unused))
#endif

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef short int16_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int int32_t;
typedef long long int64_t;
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

/* Host and device must agree on a struct that one hands to the other: its bytes, and where a member
 * begins, which NVRTC has no word for. */
#if defined(__cplusplus)
#define QM_ASSERT_LAYOUT(x) static_assert(x, "host and device must agree")
#else
#define QM_ASSERT_LAYOUT(x) _Static_assert(x, "host and device must agree")
#endif
#define QM_ASSERT_BYTES(type, bytes) QM_ASSERT_LAYOUT(sizeof(type) == (bytes))
#if defined(__CUDACC_RTC__)
#define QM_ASSERT_PLACE(type, member, at) QM_ASSERT_LAYOUT((at) < sizeof(type))
#else
#define QM_ASSERT_PLACE(type, member, at) QM_ASSERT_LAYOUT(__builtin_offsetof(type, member) == (at))
#endif

/* The bits of a float, and the float with these bits; NaN payloads survive. */
QM_FN uint32_t qm_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

QM_FN float qm_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

QM_FN int qm_isnan(float x) { return (qm_bits(x) & 0x7fffffffu) > 0x7f800000u; }

/* An order-preserving map of the floats to the integers: for numbers a < b implies
 * qm_ordered(a) < qm_ordered(b); -0 is mapped just below +0, and NaNs lie beyond the infinities.
 * qm_unordered is its inverse. */
QM_FN int32_t qm_ordered(float x)
{
    int32_t i = (int32_t)qm_bits(x);
    return i < 0 ? (int32_t)(0x80000000u - (uint32_t)i) - 1 : i;
}

QM_FN float qm_unordered(int32_t k)
{
    return qm_float(k < 0 ? 0x80000000u - (uint32_t)(k + 1) : (uint32_t)k);
}

#endif
