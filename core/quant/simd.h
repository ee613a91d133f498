/* simd.h - the vector primitives of encoding and decoding, one table per instruction set.
 *
 * All are pure and give the same bits at every level.  "Ordinary" data: no NaN in x, 0 < d < Inf;
 * everything else is the business of encode.c's defining path. */
#ifndef QM_QUANT_SIMD_H
#define QM_QUANT_SIMD_H

#include "core/base/isa.h"
#include "core/quant/quantizer.h"

/* The curves that encode_blocks and decode_blocks know. */
#define QM_SIMD_CURVES(X) X(none) X(sqrt) X(softsign)

struct qm_simd {
    /* Maximum of the bits of |x[i]|: a float's bits, NaN above Inf; 0 for n = 0. */
    uint32_t (*max_bits)(const float *x, int64_t n);

    /* y = x / d (one rounding) and y = x * r.  y may be x. */
    void (*divide)(const float *x, float d, int64_t n, float *y);
    void (*multiply)(const float *x, float r, int64_t n, float *y);
    /* stat[i] = the larger of stat[i] and |x[i]| by their bits. */
    void (*fold_each)(const float *x, int64_t n, float *stat);

    /* y[i] = x[i] / d[i], where d[i] comes by floor, cap, gain and guard from the raw maximum of
     * x[i]: the smaller of s[i] and m.  Returns 1 when all is ordinary: x finite, d positive and
     * finite; else y is undefined. */
    int (*unit_each)(const struct qm_codec *c, const float *x, const float *s, float m, int64_t n,
                     float *y);

    /* y[i] *= the smaller of s[i] and m; NaN where either is (torch.min). */
    void (*scale_each)(const float *s, float m, int64_t n, float *y);

    /* Four-bit codes to bytes and back, n codes from an even one on. */
    void (*pack4)(const uint8_t *codes, int64_t n, int high_first, uint8_t *bytes);
    void (*unpack4)(const uint8_t *bytes, int64_t n, int high_first, uint8_t *codes);

    /* position[i] = number of edges <= y[i], by c->edge. */
    void (*positions)(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position);

    /* arith search with round = even or near (fused): y * factor rounded and clamped. */
    void (*arith)(const struct qm_codec *c, const float *y, float factor, int64_t n,
                  uint8_t *position);

    /* out[i] = value[position[i]]. */
    void (*values)(const struct qm_codec *c, const uint8_t *position, int64_t n, float *out);

    /* Scale word keepsign: moves codes whose values have not the sign bit of x. */
    void (*keep_sign)(const struct qm_codec *c, const float *x, int64_t n, uint8_t *codes);

    /* Whole blocks of codecs that qm_codec_is_fused: n elements (the last block may be short) from
     * and to packed codes and stored scales.  encode_blocks handles ordinary blocks itself and
     * leaves the others to `other`. */
    void (*decode_blocks)(const struct qm_codec *c, const uint8_t *packed, const float *scales,
                          int64_t n, float *out);
    void (*encode_blocks)(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                          float *scales,
                          void (*other)(const struct qm_codec *c, const float *x, int64_t n,
                                        uint8_t *packed, float *scale));
};

#define X(name) extern const struct qm_simd qm_simd_##name;
QM_ISA_LIST(X)
#undef X

/* The table of the level that qm_isa() chose. */
const struct qm_simd *qm_simd(void);

#endif
