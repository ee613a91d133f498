/* map.h - AXIS map: which real value each code means (dual).
 *
 * Tables are float32 and part of the published formats.  They are built in the source's own order
 * of operations, and tests compare them bit for bit with the source's tables. */
#ifndef QM_QUANT_MAP_H
#define QM_QUANT_MAP_H

#include "core/base/dual.h"

/* clang-format off */
#define QM_MAP_LIST(X)  /* name, bits from, to, signs allowed (1 u, 2 s, 3 both), what */              \
    X(int,   2, 8, 2, "-2^(b-1) .. 2^(b-1)-1 times scale = absmax / (2^(b-1)-1); the lowest code is "  \
                      "never reached (adafactor8bit 0.2.2 at 4 bits)")                 \
    X(intm,  2, 8, 2, "k / 2^(b-1), k = -2^(b-1) .. 2^(b-1)-1: +absmax saturates (adafactor8bit 0.2.6)") \
    X(intd,  2, 8, 2, "-(2^(b-1)-1) .. 2^(b-1)-1 times scale = absmax / (2^(b-1)-1), divided "          \
                      "(8-bit Muon of axolotl)")                                                       \
    X(lint,  2, 8, 3, "k / (2^(b-1)-1) signed, k / (2^b-1) unsigned, zero included (lpmm linear)")     \
    X(nf4,   4, 4, 2, "canonical NormalFloat-4 (QLoRA, arXiv:2305.14314; bitsandbytes)")               \
    X(nf4a8, 4, 4, 2, "shipped as NF4 by adafactor8bit 0.2.4: symmetric but for entry 14") \
    X(nf4s,  4, 4, 2, "nf4 without its extra positive value: symmetric, 15 entries (bitsandbytes)")    \
    X(af4,   4, 4, 2, "AbnormalFloat-4 of blocks of 64 (arXiv:2306.06965), codes descending "          \
                      "(bitsandbytes)")                                                                \
    X(fp4,   4, 4, 2, "sign, 2 exponent, 1 mantissa bits, in bitsandbytes' code order")                \
    X(fp4s,  4, 4, 2, "fp4 as its default backend sorts it: +0 before -0")                             \
    X(nvfp4, 4, 4, 2, "sign and 0 .5 1 1.5 2 3 4 6 over 6; -0 for any negative, thresholds go outward " \
                      "(4-bit Muon of a fork of bitsandbytes)")                                        \
    X(dyn,   2, 8, 3, "dynamic map of bitsandbytes and torchao (8 bits: 7 decades; 4 bits: 3)")        \
    X(dyndef, 8, 8, 1, "dyn as bitsandbytes 0.36.0 to 0.41.0 built it: the lowest 256 of 524 "         \
                       "entries, at most 0.0933; a negative control")                                  \
    X(de,    2, 8, 3, "dynamic exponent map of lpmm: as dyn, last ulp of its own")                     \
    X(de0,   2, 8, 3, "de with the zero code replaced by its neighbour (unsigned; lpmm nonlinear-nozero)") \
    X(lin,   2, 8, 3, "(k+1) / 2^b unsigned, no zero (torchao 4-bit, lpmm power-1); linspace(-1,1) signed") \
    X(lin0,  2, 8, 3, "linspace with a zero: k / (2^b-1) unsigned (bitsandbytes linear)")              \
    X(linb,  2, 8, 2, "linspace(-1, 1) of PyTorch 2, no zero (bitsandbytes linear without add_zero, SOLO linear)") \
    X(pow2,  2, 8, 3, "signed squares of lin (lpmm power-2)")                                          \
    X(lin2,  2, 8, 2, "signed squares of linspace(-1, 1) of PyTorch 2 with entry 2^(b-1)-1 replaced by 0 " \
                      "(4-bit Shampoo linear-2)")                                                      \
    X(pow3,  2, 8, 3, "signed cubes of lin (lpmm power-3)")                                            \
    X(fpx,   2, 8, 3, "lpmm float-point: exponent downward, 1 to 4 exponent bits")                     \
    X(e4m3,  8, 8, 2, "8-bit float e4m3fn in its own units, scale = absmax / 448 (torchao fp8)")        \
    X(fp52,  8, 8, 2, "fpx with 5 exponent and 2 fraction bits (bitsandbytes create_fp8_map)")         \
    X(log,   8, 8, 1, "log2 space: q/255 of the range above 2^-126, decoded (q s)(1/255) "             \
                      "(adafactor8bit 0.2.x PyTorch); wants curve log2")                               \
    X(logf,  8, 8, 1, "the same decoded (q (1/255)) s (its CUDA kernels)")                             \
    X(al,    8, 8, 1, "0, then even steps in log2 between the ends of the block (adafactor8bit 0.4.3); " \
                      "wants curve allog")                                                             \
    X(qlog,  2, 8, 1, "alpha^c, from 1 at code 0 down to the block's quantile at the last code (SOLO qema); " \
                      "wants curve qlog")                                                              \
    X(affine, 2, 8, 2, "even steps from the least to the largest element of a block, asymmetric; zero is no " \
                      "code (MicroAdam error feedback); wants curve affine")
/* clang-format on */

enum qm_map {
#define X(name, from, to, signs, text) QM_MAP_##name,
    QM_MAP_LIST(X)
#undef X
        QM_MAP_COUNT
};

/* With QM_TABLES_APART, as in device code, a codebook points to tables that lie elsewhere, so that
 * all its other members can be constants. */
#ifdef QM_TABLES_APART
#define QM_TABLE(type, name, size) const type *name
#else
#define QM_TABLE(type, name, size) type name[size]
#endif

/* The table of a map.  value[] ascends; neighbours may be equal.  The stored code of sorted
 * position k is perm[k]; position_of is the inverse of perm.
 *
 * A float format has three further codes, at positions n, n + 1 and n + 2, which decode but which
 * no search finds: -0, for negative unit values whose position is `zero`; NaN and -NaN, for NaN
 * unit values by their sign, unless a nan word says otherwise.  Position and code have the same
 * parity, so that round = even is the format's own rounding. */
struct qm_codebook {
    int n;                        /* entries: 2^bits, or fewer */
    QM_TABLE(float, value, 256);  /* decoded unit value of position k */
    QM_TABLE(float, cut, 255);    /* published thresholds: position above k iff x > cut[k] */
    QM_TABLE(uint8_t, perm, 256); /* stored code of position k; the identity unless is_permuted */
    QM_TABLE(uint8_t, position_of, 256);
    int has_cuts; /* whether cut[] is filled */
    int is_permuted, is_float;
    int zero;    /* position of value 0 (of +0 if the map has both zeros), -1: none */
    float gain;  /* stored scale = maximum * gain */
    float over;  /* not 0: stored scale = maximum / over, and gain is the rounded 1 / over */
    float post;  /* decoded value = (value * scale) * post */
    float steps; /* evenly spaced maps: position = y * steps - base, before rounding; else 0 */
    int base;
};

/* Builds a table; asserts qm_map_allows. */
void qm_codebook_build(enum qm_map map, int bits, int sign, struct qm_codebook *out);

/* Whether the map exists at this width and sign, as QM_MAP_LIST says. */
int qm_map_allows(enum qm_map map, int bits, int sign);

#endif
