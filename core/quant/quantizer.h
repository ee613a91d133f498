/* quantizer.h - Quantizers and codecs: parsing, encoding, decoding.
 *
 * A quantizer is one choice per axis, written as one string:
 *
 *     MAP:BITSs|u / NORM[:BLOCK] / SEARCH / ROUND [/ option]...    dyn:4s/block:128/bisect/mid/lo
 *
 * "f32" alone is the identity.  "bf16" and "f16" alone keep plain floats of 16 bits, rounded to
 * nearest even when they are stored, as torch keeps the states of small tensors of bfloat16
 * parameters.  "i16" alone keeps whole numbers of 16 bits, for slots of indices.  Words may come in
 * any order after the map; qm_quantizer_print gives the canonical
 * order, which parses back to an equal quantizer.  Axes and their files:
 *
 *     map     core/quant/map.h       which real value each code means
 *     norm    core/quant/norm.h      which elements share a scale
 *     search  core/quant/search.h    how the nearest code is found
 *     round   core/quant/round.h     which end of the cell is taken
 *     unit    core/quant/unit.h      how x becomes x / scale
 *     scale   core/quant/scale.h     how the scale is stored: dtype, floor, NaN, zero block, nest
 *     curve   core/quant/curve.h     which function is applied before the scale is taken
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

/* The word of each member of these axes in a quantizer string. */
extern const char *const qm_map_names[QM_MAP_COUNT],
    *const qm_norm_names[QM_NORM_COUNT], *const qm_curve_names[QM_CURVE_COUNT],
                                             *const qm_search_names[QM_SEARCH_COUNT];

int qm_quantizer_equal(const struct qm_quantizer *a, const struct qm_quantizer *b);

/* Replaces the choice of one axis.  axis: "map" (value "nf4", which keeps width and sign, or
 * "dyn:8u"), "norm" ("block:64"), "curve", "search", "round", "unit", "pack", or "scale" (all its
 * words, separated by '/', or "none").  Does not check whether the result is applicable. */
qm_status qm_quantizer_set(struct qm_quantizer *q, const char *axis, const char *value);

/* The largest divisor of n that is at most `asked`; n itself where asked is 0 or n is no larger; 1
 * for n < 1. */
int64_t qm_divisor_block(int64_t asked, int64_t n);

/* The quantizer with norm divblock replaced by the blocks that a tensor of this shape gets. */
struct qm_quantizer qm_quantizer_at(const struct qm_quantizer *q, const struct qm_shape *shape);

/* Writes what a word that others use for a map is called here, as "'int:4s'" for int4; 0: it is
 * none. */
enum { QM_MAP_MEANT = 64 };
int qm_map_meant(const char *word, char out[QM_MAP_MEANT]);

/* QM_OK, or QM_BAD_ARG with the reason why this composition makes no sense ("search arith needs an
 * evenly spaced map with a step; nf4 is not"). */
qm_status qm_quantizer_applicable(const struct qm_quantizer *q);

/* A quantizer with its tables, as encoding and decoding need it.  Plain data of about 6 KiB that
 * owns nothing; build it once and share it between threads. */
struct qm_codec {
    struct qm_quantizer q;
    struct qm_codebook cb;
    /* edge[k] = the smallest float32 y whose code (as sorted position) is above k, found by
     * bisection over ordered bits with the search and round themselves.  So code = number of edges
     * <= y, exactly, for every deterministic search and round, and one comparison loop serves them
     * all; quantizers of qm_steps_directly have no unit value y. */
    float edge[255];
    int has_edges;
    /* The edges as the vector loops read them; +Inf stands for an edge that does not exist. */
    float level[4][16]; /* n <= 16: the levels of a bisection, each highest first and repeated */
    float fan[8][32];   /* n > 16: fan[j][k] = edge[8 k + j] */
    struct qm_edge_lines edge_lines; /* usable for n = 256 only */
    struct qm_edge_lut edge_lut;     /* usable for n <= 16 only */
    int n_negative;                  /* number of values with a sign bit */
    /* n > 16: whether position = floor(y steps + 1/2) - base, each operation rounded, clamped to
     * the map. */
    int has_steps;
};

/* Builds the tables of q; fails as qm_quantizer_applicable does. */
qm_status qm_codec_init(struct qm_codec *c, const struct qm_quantizer *q);

/* Computes the edges anew, after the caller has replaced the table cb. */
void qm_codec_rebuild(struct qm_codec *c);

/* The largest magnitude of unit values that the edges cover. */
float qm_codec_limit(const struct qm_codec *c);

/* Builds a codec from a quantizer string. */
qm_status qm_codec_parse(struct qm_codec *c, const char *text);

/* Rounds x[n] to a plain format, in place. */
void qm_plain_round(enum qm_plain plain, int64_t n, float *x);

/* QM_OK, or QM_BAD_ARG with the first of n unpacked codes that the map does not have. */
qm_status qm_codec_codes_exist(const struct qm_codec *c, const uint8_t *codes, int64_t n);

/* Number of scales of a tensor of this shape, which qm_codec_fits has accepted; 0 for 0 elements.
 *
 *     tensor  1
 *     row     dim[0]
 *     col     dim[1]
 *     block   ceil(n / block), times qm_block_numbers
 *     divblock  the same, with the block of qm_quantizer_at
 *     rowblock dim[0] ceil(dim[1] / block), row by row
 *     rank1   sum of dims; ceil(n / 128) for 1-D
 *     rank1block, rowcol, colrow: see norm_two_scales.h */
int64_t qm_scale_count(const struct qm_codec *c, const struct qm_shape *shape);

/* Numbers that a block stores among the scales: 1, or more with the curves of block_numbers.h. */
int qm_block_numbers(const struct qm_codec *c);

/* Bytes of packed codes for n elements: ceil(n * bits / 8), or n with pack "byte". */
int64_t qm_code_bytes(const struct qm_codec *c, int64_t n);

/* Bytes of a stored state of this shape: packed codes and scales; for nested scales their codes,
 * the second-level scales and the mean.  "f32" takes 4 bytes per element, "bf16", "f16" and "i16"
 * 2; a scale stored in 16 bits takes 2. */
int64_t qm_state_bytes(const struct qm_codec *c, const struct qm_shape *shape);

/* QM_OK, or QM_BAD_ARG with the reason why this shape cannot be encoded (col on a 1-D tensor, rank1
 * on a scalar). */
qm_status qm_codec_fits(const struct qm_codec *c, const struct qm_shape *shape);

/* Encoding and decoding in ranges, so that a tensor larger than memory can be streamed.
 *
 * qm_fold folds the elements [from, from + n) of the flattened tensor by maximum into the statistic
 *   stat[qm_scale_count], which starts at 0.  Ranges may come in any order, and several threads may
 *   fold into copies that qm_fold_merge merges.  Maxima are taken of bits: NaN is above Inf.
 * qm_scales turns stat into the stored scales as they decode (floor, cap, gain, dtype rounding,
 *   nesting).  stat and scales may be the same array.
 * qm_encode_range writes the unpacked codes (one byte each) of a range from the raw maxima in stat.
 *   draws is read by rounds that draw (qm_round_draws; else NULL): the draw of element i is
 *   qm_draw(draws, i).
 * qm_decode_range decodes a range from unpacked codes and stored scales.
 *
 * For norms with blocks a range must start on a block boundary, and for the statistics of curve
 * qlog end on one too, or at the tensor's end; then qm_fold sets the statistics.  x, codes, out: n
 * elements. */
void qm_fold(const struct qm_codec *c, const struct qm_shape *shape, int64_t from, int64_t n,
             const float *x, float *stat);
/* Norms that divide by one scale before they take the next (rowcol, colrow) need a second fold of
 * all elements after the first is complete and merged.  qm_folds returns 2 for them, else 1;
 * qm_fold_again folds into the same stat, and does nothing for other norms. */
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

/* Encode or decode a whole tensor at once.  codes: unpacked, numel bytes; scales: qm_scale_count
 * floats; the caller owns every buffer.  The scale words (scale.h) say what NaN and Inf become.
 * Inside the map's range the error of round = mid is at most half the gap between two codes times
 * the scale, plus float rounding.  Source: arXiv:2110.02861, section 2.1. */
qm_status qm_encode(const struct qm_codec *c, const struct qm_shape *shape, const float *x,
                    const struct qm_draws *draws, uint8_t *codes, float *scales);
void qm_decode(const struct qm_codec *c, const struct qm_shape *shape, const uint8_t *codes,
               const float *scales, float *out);

/* Pack and unpack n codes from a byte boundary on; unused bits are 0. */
void qm_pack_range(const struct qm_codec *c, const uint8_t *codes, int64_t n, uint8_t *bytes);
void qm_unpack_range(const struct qm_codec *c, const uint8_t *bytes, int64_t n, uint8_t *codes);

/* Encode and decode packed states: n elements from a block boundary on, of which the last block may
 * be short; scales: one per block.  qm_codec_is_fused says whether the codec has these loops: norm
 * block of even size, 4 or 8 bits, a deterministic round; not every map, curve and scale word. */
int qm_codec_is_fused(const struct qm_codec *c);
void qm_encode_blocks(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                      float *scales);
void qm_decode_blocks(const struct qm_codec *c, const uint8_t *packed, const float *scales,
                      int64_t n, float *out);

/* Encodes one block of at most c->q.block elements; any floats, NaN and Inf included. */
void qm_encode_block(const struct qm_codec *c, const float *x, int64_t n, uint8_t *packed,
                     float *scale);

/* Norm rank1 of matrices at 4 bits, divided and searched at once by core/quant/edge_lut.h.
 * qm_codec_has_slopes says whether the codec and the shape allow it.  qm_unit_slopes sets slope[i]
 * = QM_EDGE_LUT_SLOPE / d, where d is the divisor of the raw maximum stat[i], and Inf where d is 0
 * or NaN.  The larger of a row's and a column's slope belongs to the smaller maximum; elements
 * whose slope is 0 or Inf are not ordinary (simd.h). */
int qm_codec_has_slopes(const struct qm_codec *c, const struct qm_shape *shape);
void qm_unit_slopes(const struct qm_codec *c, int64_t n_scales, const float *stat, float *slope);

/* The sorted position (not yet permuted) of unit value y, in the slow and defining form.  draw: 32
 * random bits, for rounds that draw. */
int qm_code_of(const struct qm_codec *c, float y, uint32_t draw);

#endif
