/* simd_group.h - Encodes and decodes groups of elements in vector registers.
 *
 * A group is GROUP elements.  simd.c and core/rule/packed_blocks.h, which are compiled once per
 * instruction set, include this header and build loops of its functions. */
#ifndef QM_QUANT_SIMD_GROUP_H
#define QM_QUANT_SIMD_GROUP_H

#include <string.h>

#include "core/base/half.h"
#include "core/quant/quantizer.h"

#define INLINE static inline __attribute__((always_inline))
#define APART  static __attribute__((noinline, unused))

/* max_bits of simd.h. */
static inline uint32_t max_bits(const float *x, int64_t n)
{
    int32_t m = 0; /* bits of |x| are below 2^31: signed compares suffice, and all sets have them */
    for (int64_t i = 0; i < n; i++) {
        int32_t b = (int32_t)(qm_bits(x[i]) & 0x7fffffffu);
        m = b > m ? b : m;
    }
    return (uint32_t)m;
}

enum { BATCH = 16 }; /* blocks whose units are computed together */

/* Encodes a block that is not ordinary; see encode_blocks in simd.h. */
typedef void other_fn(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                      float *scale);

/* Computes the units and stored scales of BATCH blocks from the bits of their maxima.  by[b]: the
 * divisor of an ordinary block, or its reciprocal if the codec's unit multiplies; 0 for a block
 * that is not ordinary, whose stored[b] is then undefined.  Not inlined: within another loop the
 * compiler would unroll these loops instead of vectorizing them. */
APART void units(const struct qm_codec *c, const uint32_t *restrict bits, float *restrict by,
                 float *restrict stored)
{
    const struct qm_scale_rule *r = &c->q.scale;
    float floor = r->floor, cap = r->cap != 0.0f ? r->cap : INFINITY, least = r->guard;
    float gain = c->cb.over != 0.0f ? 1.0f : c->cb.gain,
          over = c->cb.over != 0.0f ? c->cb.over : 1.0f;
    uint32_t least_bits = r->zero >= 0; /* zero blocks have a code of their own */
    for (int b = 0; b < BATCH; b++) {
        float s = qm_float(bits[b]);
        s = s < floor ? floor : s;
        s = s > cap ? cap : s;
        s = s * gain / over; /* one of them is 1 */
        int ordinary = (bits[b] >= least_bits) & (bits[b] < 0x7f800000u) & (s >= least);
        stored[b] = s;
        by[b] = ordinary ? s : 0.0f;
    }
    if (r->f16)
        for (int b = 0; b < BATCH; b++)
            stored[b] = qm_round_f16(stored[b]);
    if (r->f16 == QM_F16_both)
        for (int b = 0; b < BATCH; b++)
            by[b] = by[b] > 0.0f ? stored[b] : 0.0f;
    if (c->q.unit != QM_UNIT_div)
        for (int b = 0; b < BATCH; b++)
            by[b] = 1.0f / by[b];
    for (int b = 0; b < BATCH; b++)
        by[b] = by[b] < INFINITY ? by[b] : 0.0f;
}

/* The maximum of the bits of x[i], signs included: a negative number is above NaN. */
static inline uint32_t max_with_sign(const float *x, int64_t n)
{
    uint32_t m = 0;
    for (int64_t i = 0; i < n; i++)
        m = qm_bits(x[i]) > m ? qm_bits(x[i]) : m;
    return m;
}

/* bits[b] = max_bits or, if with_sign (curve sqrt), max_with_sign of each of `count` blocks. */
static inline void maxima_each(int with_sign, const float *x, int64_t block, int64_t count,
                               uint32_t *bits)
{
    for (int64_t b = 0; b < count; b++, x += block)
        bits[b] = with_sign ? max_with_sign(x, block) : max_bits(x, block);
}

#if defined(__AVX2__)
#include <immintrin.h>

/* How the codes of a group are found:
 *
 *     BY_TREE16   bisection of at most 16 entries in registers
 *     BY_CELLS    core/quant/edge_lut.h, for |y| within its limit; in doubt as BY_TREE16
 *     BY_TREE256  bisection of up to 256 entries
 *     BY_LINES    core/quant/edge_lines.h; in doubt as BY_TREE256 */
enum finder { BY_TREE16, BY_CELLS, BY_TREE256, BY_LINES };

#if defined(__AVX512VBMI__) && defined(__AVX512VBMI2__)
#include "core/quant/simd_avx512.h"
#else
#include "core/quant/simd_avx2.h"
#endif

/* slope[b] = QM_EDGE_LUT_SLOPE times the unit of block b, for cells_look; if it overflows, by[b]
 * becomes 0. */
APART void cells_slopes(int divides, float *restrict by, float *restrict slope)
{
    for (int b = 0; b < BATCH; b++) {
        float s = divides ? QM_EDGE_LUT_SLOPE / by[b] : QM_EDGE_LUT_SLOPE * by[b];
        slope[b] = s;
        by[b] = s < INFINITY ? by[b] : 0.0f;
    }
}

/* The finder for unit values of any size. */
INLINE enum finder finder_of(const struct qm_codec *c)
{
    return c->cb.n <= 16                            ? BY_TREE16
           : c->cb.n == 256 && c->edge_lines.usable ? BY_LINES
                                                    : BY_TREE256;
}

/* Whether codes have four bits, so that two share a byte. */
INLINE int is_four(enum finder how) { return how <= BY_CELLS; }

/* Whether |y| <= QM_EDGE_LUT_LIMIT in every ordinary block: the divisor is at least the
 * block's maximum. */
static inline int within_cells(const struct qm_codec *c)
{
    return c->edge_lut.usable && c->q.scale.cap == 0.0f && c->cb.gain >= 1.0f &&
           c->q.scale.f16 != QM_F16_both;
}

/* Whether blocks are whole groups of unit values without a curve, whose codes are positions. */
static inline int by_groups(const struct qm_codec *c)
{
    return c->q.curve == QM_CURVE_none && c->q.block % GROUP == 0 && !c->cb.is_float;
}

/* The finder for groups of an ordinary block. */
static inline enum finder group_finder(const struct qm_codec *c)
{
    return HAS_CELLS && within_cells(c) ? BY_CELLS : finder_of(c);
}
#endif

#endif
