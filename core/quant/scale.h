/* scale.h - AXIS scale: from the maximum of a group to the stored scale (dual).
 *
 *     stored = round_dtype(min(max(maximum + plus, floor), cap) * gain)   gain: the map's (map.h)
 *
 * None of the words below is printed at its default.  A word with a number after ':' may be a word
 * of another axis too, as floor is a round and floor:V a scale word.
 *
 * keepsign moves up if x > 0 and down otherwise, with 0 moving down to the top code.  It also
 * applies to -0, to NaN, which counts as positive whatever its sign bit, and to the NaN unit values
 * of an all-zero group: +0 gets the top code there, which is harmless as the scale is 0.  Signed
 * maps only.
 *
 * f16both, under which both directions use one scale, wants a floor of at least 6e-8, below which
 * float16 is 0.
 *
 * In a group whose divisor is 0, the unit value 0/0 is NaN, and the nan word decides its code,
 * unless zero:C is given. */
#ifndef QM_QUANT_SCALE_H
#define QM_QUANT_SCALE_H

#include "core/base/dual.h"

/* clang-format off */
#define QM_SCALE_WORD_LIST(X) /* word, sets, what follows ':', value or least number, text */                        \
    X(floor,    floor,   REAL,  0, "floor:V - the maximum is raised to at least V before the gain (torchao, "         \
                                   "adafactor8bit 1e-12); curve allog: the low end of a block is at least log2(V)")   \
    X(plus,     plus,    REAL,  0, "plus:V - V is added to the maximum, in double, before floor and gain (COAT 1e-20); "   \
                                   "curve expand: to maximum and minimum (COAT 1e-30)")                               \
    X(guard,    guard,   REAL,  0, "guard:V - the divisor is at least V; the stored scale is not raised, except in "  \
                                   "a short last block under unit recip_tail (bitsandbytes 1e-38)")                   \
    X(cap,      cap,     REAL,  0, "cap:V - the maximum is at most V (adafactor8bit CUDA log2 code)")                 \
    X(quantile, quantile, REAL, 0, "quantile:V - curve qlog: the share of a block's elements below its last code "  \
                                   "(SOLO 0.1)")                                                                      \
    X(zero,     zero,    WHOLE, 0, "zero:C - code of every element of an all-zero group")                             \
    X(least,    least,   WHOLE, 1, "least:C - sorted positions below C become C (lpmm sr1, sr2)")                     \
    X(maxskip,  maxskip, FLAG,  1, "NaN is ignored by the maximum; otherwise it makes the scale NaN")                 \
    X(nantop,   nan,     FLAG,  QM_NAN_top, "a NaN unit value gets the top code (lpmm, bitsandbytes default); "       \
                                   "otherwise the lowest, or the NaN code of a float format")                         \
    X(nanzero,  nan,     FLAG,  QM_NAN_zero, "a NaN unit value gets the code of zero (adafactor8bit CUDA uniform, "   \
                                   "bitsandbytes FP4 tree)")                                                          \
    X(keepsign, sign,    FLAG,  1, "a code whose value has not the sign bit of x moves by one "                       \
                                   "(bitsandbytes CUDA first moments)")                                               \
    X(f16,      f16,     FLAG,  QM_F16_stored, "scales are stored as float16; x is divided by the unrounded one "     \
                                   "(Lion 8-bit)")                                                                    \
    X(f16both,  f16,     FLAG,  QM_F16_both, "scales are stored as float16, and x is divided by the rounded one too") \
    X(bf16,     f16,     FLAG,  QM_F16_bf16, "curve affine: the ends of a block are stored as bfloat16, and x is " \
                                   "coded between the rounded ones (MicroAdam)")                                      \
    X(nest,     nest,    WHOLE, 1, "nest:N - scales minus their mean in 8 bits, dyn:8s/block:N/grid "                 \
                                   "(bitsandbytes compress_statistics)")
/* clang-format on */

enum qm_nan { QM_NAN_low, QM_NAN_top, QM_NAN_zero };
/* How scales are stored where not as float32: two bytes each. */
enum qm_f16 { QM_F16_none, QM_F16_stored, QM_F16_both, QM_F16_bf16 };

/* The scale words of a quantizer. */
struct qm_scale_rule {
    double plus;                       /* 0: none */
    float floor, guard, cap, quantile; /* 0: none */
    int zero;                          /* -1: none */
    int least;                         /* 0: none */
    int max_skips_nan, keep_sign;
    enum qm_f16 f16;
    enum qm_nan nan;
    int64_t nest; /* 0: none; else the block of the second level */
};

#endif
