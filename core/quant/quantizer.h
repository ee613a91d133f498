/* quantizer.h - a quantizer: one choice per axis, written as one string.
 *
 *     MAP:BITSs|u / NORM[:BLOCK] / SEARCH / ROUND [/ option]...        dyn:4s/block:128/bisect/mid/lo
 *
 * "f32" alone is the identity; "bf16" and "f16" alone keep plain floats of 16 bits, each rounded to
 * nearest even where it is stored (the states torch gives small tensors of bfloat16 parameters).  Words may come in any order after the map; qm_quantizer_print
 * gives the canonical one, which parses back to the same value.  Axes and their files:
 *
 *     map     core/quant/map.h       which real value each code means
 *     norm    core/quant/norm.h      which elements share a scale
 *     search  core/quant/search.h    how the nearest code is found
 *     round   core/quant/round.h     which end of the cell is taken
 *     unit    core/quant/unit.h      how x becomes x / scale
 *     scale   core/quant/scale.h     how the scale is stored: dtype, floor, NaN, zero block, nesting
 *     curve   core/quant/curve.h     what is applied before the scale is taken
 *     pack    core/quant/pack.h      how codes become bytes
 */
#ifndef QM_QUANT_QUANTIZER_H
#define QM_QUANT_QUANTIZER_H

#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/base/tensor.h"
#include "core/quant/edge_lines.h"
#include "core/quant/edge_lut.h"
#include "core/quant/quantize_element.h"

#define QM_QUANTIZER_TEXT 192 /* enough for any printed quantizer, NUL included */

/* Reads a quantizer string.  QM_NO_MATCH for an unknown word (with the nearest one), QM_BAD_ARG
 * for a malformed or doubled word or a composition that qm_quantizer_applicable refuses. */
qm_status qm_quantizer_parse(const char *text, struct qm_quantizer *out);

/* The canonical string; text holds QM_QUANTIZER_TEXT bytes.  Returns text. */
char *qm_quantizer_print(const struct qm_quantizer *q, char *text);

int qm_quantizer_equal(const struct qm_quantizer *a, const struct qm_quantizer *b);

/* Replaces one axis: axis "map" ("nf4", which keeps width and sign, or "dyn:8u"), "norm"
 * ("block:64"), "curve", "search", "round", "unit", "pack", or "scale" (its words, separated by '/',
 * instead of all present ones; "none" for none).  Does not ask whether the result is applicable. */
qm_status qm_quantizer_set(struct qm_quantizer *q, const char *axis, const char *value);

/* QM_OK, or QM_BAD_ARG with the reason why this composition makes no sense ("arith needs an
 * evenly spaced map, nf4 is not").  Every axis can be replaced alone and asked again. */
qm_status qm_quantizer_applicable(const struct qm_quantizer *q);

/* A quantizer with its tables built: what encoding and decoding need.  Owns nothing; plain data of
 * about 6 KiB; build once, share between threads. */
struct qm_codec {
    struct qm_quantizer q;
    struct qm_codebook cb;
    /* edge[k] = the smallest float32 y whose code (as sorted position) is above k, found with the
     * search and round themselves over ordered bits.  So code = number of edges <= y, exactly, for
     * every deterministic search and round but arith: one comparison kernel serves them all. */
    float edge[255];
    int has_edges;
    /* The same edges as vectors want them, +Inf where there is none. */
    float level[4][16]; /* n <= 16: the levels of a bisection, each highest first and repeated */
    float fan[8][32];   /* n > 16: fan[j][k] = edge[8 k + j] */
    struct qm_edge_lines edge_lines; /* n = 256; for n <= 128 not usable */
    struct qm_edge_lut edge_lut;     /* n <= 16 */
    int n_negative;                  /* entries with a sign bit, where the scale word is keepsign */
    /* n > 16: position = floor(y steps + 1/2) - base, each operation rounded, cut to the map. */
    int has_steps;
};

qm_status qm_codec_init(struct qm_codec *c, const struct qm_quantizer *q);

/* After cb was replaced (a table of the caller's own): computes the edges anew. */
void qm_codec_rebuild(struct qm_codec *c);

/* Edges decide unit values up to this magnitude. */
float qm_codec_limit(const struct qm_codec *c);

/* A codec from a string; for tests and tools. */
qm_status qm_codec_parse(struct qm_codec *c, const char *text);

/* What a slot without codes keeps of x[n], in place; f32: x itself. */
void qm_plain_round(enum qm_plain plain, int64_t n, float *x);

/* QM_BAD_ARG names the first of n unpacked codes that the map does not have. */
qm_status qm_codec_codes_exist(const struct qm_codec *c, const uint8_t *codes, int64_t n);

/* Number of scales that a tensor of this shape has (0 elements: 0 scales).
 * tensor 1; row dim[0]; col dim[1] (1-D: QM_BAD_ARG is for qm_codec_fits); block ceil(n / block);
 * rank1 sum of dims for 2-D and more, ceil(n / 128) for 1-D; norm_two_scales.h: rank1block, rowcol,
 * colrow. */
int64_t qm_scale_count(const struct qm_codec *c, const struct qm_shape *shape);

/* Numbers that a block keeps among the scales: 1; with curve allog 2, its span and its low end. */
int qm_block_numbers(const struct qm_codec *c);

/* Bytes of packed codes for n elements: ceil(n * bits / 8) (pack "byte": n). */
int64_t qm_code_bytes(const struct qm_codec *c, int64_t n);

/* Bytes that the state of this shape really costs: packed codes, scales, and for nested scales
 * their codes, second-level scales and the offset.  "f32": 4 per element; "bf16", "f16": 2. */
int64_t qm_state_bytes(const struct qm_codec *c, const struct qm_shape *shape);

/* QM_OK, or why this shape cannot be encoded (col on a 1-D tensor, rank1 on a scalar). */
qm_status qm_codec_fits(const struct qm_codec *c, const struct qm_shape *shape);

/* Encoding in ranges, so that a tensor larger than memory can be streamed.
 *
 * qm_fold: the statistic of elements [from, from + n) of the flattened tensor is folded by maximum
 *   into stat[qm_scale_count], which starts at 0.  Ranges may come in any order and be folded by
 *   several threads into copies that are merged by qm_fold_merge.  Maxima on bits: NaN above Inf.
 * qm_scales: stat becomes the stored scales, as they decode (floor, cap, gain, dtype rounding,
 *   nesting).  n: elements of the tensor.  stat and scales may be the same array.
 * qm_encode_range: unpacked codes (one byte each) of a range, from the raw maxima in stat; draws is
 *   used by round = stoch only (else NULL): the draw of element i is qm_draw(draws, i).
 * qm_decode_range: from codes and stored scales.
 *
 * For norms with blocks a range must start on a block boundary.  x, codes, out: n elements. */
void qm_fold(const struct qm_codec *c, const struct qm_shape *shape, int64_t from, int64_t n,
             const float *x, float *stat);
/* Norms that divide by a scale before the next one is taken (rowcol, colrow) want a second fold of
 * all elements once the first is complete and merged: qm_folds says 2, and qm_fold_again folds
 * into the same stat; for other norms 1, and nothing is folded. */
int qm_folds(const struct qm_codec *c);
void qm_fold_again(const struct qm_codec *c, const struct qm_shape *shape, int64_t from, int64_t n,
                   const float *x, float *stat);
void qm_fold_merge(float *into, const float *stat, int64_t n_scales);
void qm_scales(const struct qm_codec *c, const struct qm_shape *shape, const float *stat,
               float *scales);
void qm_encode_range(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                     int64_t n, const float *x, const float *stat, const struct qm_draws *draws,
                     uint8_t *codes);
void qm_decode_range(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                     int64_t n, const uint8_t *codes, const float *scales, float *out);

/* The whole tensor at once: fold, scales, encode.  codes: unpacked, numel bytes; scales:
 * qm_scale_count floats.  The caller owns every buffer.
 * NaN and Inf go by the scale words (scale.h); inside the map's range round = mid errs by half a
 * code gap times the scale, plus float rounding.  Source: arXiv:2110.02861, section 2.1. */
qm_status qm_encode(const struct qm_codec *c, const struct qm_shape *shape, const float *x,
                    const struct qm_draws *draws, uint8_t *codes, float *scales);
void qm_decode(const struct qm_codec *c, const struct qm_shape *shape, const uint8_t *codes,
               const float *scales, float *out);

/* n codes to their packed bytes and back, from a byte boundary on; unused bits are 0. */
void qm_pack_range(const struct qm_codec *c, const uint8_t *codes, int64_t n, uint8_t *bytes);
void qm_unpack_range(const struct qm_codec *c, const uint8_t *bytes, int64_t n, uint8_t *codes);

/* Packed state, for engines: whole blocks of codecs that qm_codec_is_fused (norm block of even size,
 * 4 bits or 8, deterministic; not every map, curve and scale word), n elements from a block boundary on; the
 * last block of the tensor may be short.  scales: the blocks' own. */
int qm_codec_is_fused(const struct qm_codec *c);
void qm_encode_blocks(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                      float *scales);
void qm_decode_blocks(const struct qm_codec *c, const uint8_t *packed, const float *scales,
                      int64_t n, float *out);

/* One block of at most c->q.block elements, whatever is in it. */
void qm_encode_block(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                     float *scale);

/* Norm rank1 of matrices in registers: 4 bits, divided and searched by core/quant/edge_lut.h.  slope[i] =
 * QM_EDGE_LUT_SLOPE over what the raw maximum stat[i] makes divisors, Inf for 0 and NaN: the larger one of a
 * row's and a column's belongs to the smaller maximum, and 0 or Inf to elements that are not ordinary. */
int qm_codec_has_slopes(const struct qm_codec *c, const struct qm_shape *shape);
void qm_unit_slopes(const struct qm_codec *c, int64_t n_scales, const float *stat, float *slope);

/* One element, the slow and defining form: the sorted position (not yet permuted) of unit value
 * y.  draw: 32 random bits, for round = stoch. */
int qm_code_of(const struct qm_codec *c, float y, uint32_t draw);

#endif
