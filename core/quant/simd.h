/* simd.h - The vector primitives of encoding and decoding, one table per instruction set.
 *
 * All are pure functions with the same bits at every instruction set.  A block is ordinary if every
 * x in it is finite and its divisor d is positive and finite; encode.c encodes all other blocks in
 * the defining form. */
#ifndef QM_QUANT_SIMD_H
#define QM_QUANT_SIMD_H

#include "core/base/isa.h"
#include "core/quant/quantizer.h"

/* Whether `arith` below covers search arith with this round; the others have their defining
 * form alone. */
QM_FN int qm_simd_has_arith(enum qm_round round)
{
    return round == QM_ROUND_even || round == QM_ROUND_near;
}

/* The curves that encode_blocks and decode_blocks support. */
#define QM_SIMD_CURVES(X) X(none) X(sqrt) X(softsign)

struct qm_simd {
    /* The maximum of the bits of |x[i]|, with NaN above Inf; 0 for n = 0. */
    uint32_t (*max_bits)(const float *x, int64_t n);

    /* y[i] = x[i] / d and y[i] = x[i] * r, each rounded once.  y may be x. */
    void (*divide)(const float *x, float d, int64_t n, float *y);
    void (*multiply)(const float *x, float r, int64_t n, float *y);
    /* stat[i] = the larger of stat[i] and |x[i]| by their bits. */
    void (*fold_each)(const float *x, int64_t n, float *stat);

    /* y[i] = x[i] / d[i], where d[i] follows by floor, cap, gain and guard from the raw maximum of
     * x[i], the smaller of s[i] and m.  Returns 1 if every x[i] is finite and every d[i] positive
     * and finite; otherwise y is undefined. */
    int (*unit_each)(const struct qm_codec *c, const float *x, const float *s, float m, int64_t n,
                     float *y);

    /* y[i] *= the smaller of s[i] and m, or NaN if either is NaN, as with torch.min. */
    void (*scale_each)(const float *s, float m, int64_t n, float *y);

    /* Pack and unpack n four-bit codes from a byte boundary on. */
    void (*pack4)(const uint8_t *codes, int64_t n, int high_first, uint8_t *bytes);
    void (*unpack4)(const uint8_t *bytes, int64_t n, int high_first, uint8_t *codes);

    /* position[i] = the number of edges c->edge[k] <= y[i]. */
    void (*positions)(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position);

    /* Search arith with a round that qm_simd_has_arith: y * factor rounded (near: by one fma)
     * and clamped. */
    void (*arith)(const struct qm_codec *c, const float *y, float factor, int64_t n,
                  uint8_t *position);

    /* out[i] = value[position[i]]. */
    void (*values)(const struct qm_codec *c, const uint8_t *position, int64_t n, float *out);

    /* Scale word keepsign: moves codes whose value's sign differs from x's. */
    void (*keep_sign)(const struct qm_codec *c, const float *x, int64_t n, uint8_t *codes);

    /* Decode and encode whole blocks of a codec that qm_codec_is_fused: n elements, of which the
     * last block may be short, from and to packed codes and stored scales.  encode_blocks calls
     * `other` for blocks that are not ordinary. */
    void (*decode_blocks)(const struct qm_codec *c, const uint8_t *packed, const float *scales,
                          int64_t n, float *out);
    void (*encode_blocks)(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                          float *scales,
                          void (*other)(const struct qm_codec *c, const float *x, int64_t n,
                                        uint8_t *packed, float *scale));
};

QM_ISA_TABLE(const struct qm_simd, qm_simd)

/* The table of the instruction set that qm_isa() chose. */
const struct qm_simd *qm_simd(void);

#endif
