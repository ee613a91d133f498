/* scale.h - AXIS scale: from the maximum of a group to the stored scale (dual).
 *
 *     stored = round_dtype(min(max(maximum, floor), cap) * gain)      gain: the map's (map.h)
 *
 * Words, none of which is printed at its default:
 *     floor:V   the maximum is raised to at least V before the gain is applied (torchao,
 *               adafactor8bit 1e-12)
 *     guard:V   the divisor is at least V; the stored scale is not raised, except in a short
 *               last block under unit recip_tail (bitsandbytes 1e-38)
 *     cap:V     the maximum is at most V (adafactor8bit CUDA log2 code)
 *     least:C   sorted positions below C become C (lpmm sr1, sr2: a crude way to leave zero out)
 *     zero:C    code of every element of an all-zero group, instead of the code of 0 / scale
 *     maxskip   the maximum ignores NaN (fmax); otherwise one NaN makes the scale NaN
 *     nantop    a NaN unit value gets the top code (lpmm, bitsandbytes default); otherwise the
 *               lowest code, or the NaN code of a float format
 *     nanzero   a NaN unit value gets the code of zero (adafactor8bit CUDA uniform, bitsandbytes
 *               FP4 tree)
 *     keepsign  a code whose value's sign differs from x's moves by one: up if x > 0, down
 *               otherwise, with 0 moving down to the top code.  This also applies to -0, to NaN and
 *               to the NaN unit values of an all-zero group: +0 gets the top code there, which is
 *               harmless as the scale is 0.  Signed maps only (bitsandbytes
 *               kOptimizerStatic8bit*Blockwise, first moments)
 *     f16       scales are stored as float16 (Lion 8-bit); x is divided by the unrounded scale
 *     f16both   scales are stored as float16, and x is divided by the rounded scale too, so that
 *               both directions use one scale; wants a floor of at least 6e-8, below which float16
 *               is 0
 *     nest:N    the scales minus their mean are stored in 8 bits as dyn:8s/block:N/grid; x is
 *               divided by the unrounded scale (bitsandbytes compress_statistics)
 *
 * In a group whose divisor is 0, the unit value 0/0 is NaN, and the nan word decides its code,
 * unless zero:C is given. */
#ifndef QM_QUANT_SCALE_H
#define QM_QUANT_SCALE_H

#include "core/base/dual.h"

enum qm_nan { QM_NAN_low, QM_NAN_top, QM_NAN_zero };
enum qm_f16 { QM_F16_none, QM_F16_stored, QM_F16_both };

/* The scale words of a quantizer. */
struct qm_scale_rule {
    float floor, guard, cap; /* 0: none */
    int zero;                /* -1: none */
    int least;               /* 0: none */
    int max_skips_nan, keep_sign;
    enum qm_f16 f16;
    enum qm_nan nan;
    int64_t nest; /* 0: none; else the block of the second level */
};

#endif
