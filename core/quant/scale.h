/* scale.h - AXIS scale: from the maximum of a group to the stored scale (dual).
 *
 *     stored = round_dtype(min(max(maximum, floor), cap) * gain)      gain: the map's (1 but for int)
 *
 * Words, none printed at its default:
 *     floor:V   the scale is at least V (torchao, adafactor8bit 1e-12)
 *     guard:V   the divisor is at least V, the stored scale is not raised (bitsandbytes 1e-38)
 *     cap:V     the maximum is at most V (adafactor8bit CUDA log2 code)
 *     least:C   sorted positions below C become C (lpmm sr1, sr2: a crude way to leave zero out)
 *     zero:C    code of every element of an all-zero group, instead of what 0/scale gives
 *     maxskip   NaN is ignored by the maximum (fmax); otherwise one NaN makes the scale NaN
 *     nantop    a NaN unit value gets the top code (lpmm, bitsandbytes default); otherwise the lowest
 *     nanzero   it gets the code of zero (adafactor8bit CUDA uniform, bitsandbytes FP4 tree)
 *     keepsign  a code whose value has not the sign bit of x moves by one: up where x > 0, down
 *               otherwise, 0 to the top code.  Acts on -0, NaN and the NaN of an all-zero group too:
 *               there +0 gets the top code, harmless as the scale is 0.  Signed maps only
 *               (bitsandbytes kOptimizerStatic8bit*Blockwise, first moments)
 *     f16       scales are stored as float16 (Lion 8-bit); x is divided by the unrounded one
 *     nest:N    the scales minus their mean are stored in 8 bits as
 *               dyn:8s/block:N/grid; x is divided by the unrounded one
 *               (bitsandbytes compress_statistics)
 *
 * A group whose divisor is 0 gives 0/0 = NaN and so the code of the NaN word, unless zero:C. */
#ifndef QM_QUANT_SCALE_H
#define QM_QUANT_SCALE_H

#include "core/base/dual.h"

enum qm_nan { QM_NAN_low, QM_NAN_top, QM_NAN_zero };

struct qm_scale_rule {
    float floor, guard, cap; /* 0: none */
    int zero;                /* -1: none */
    int least;               /* 0: none */
    int max_skips_nan, keep_sign, f16;
    enum qm_nan nan;
    int64_t nest; /* 0: none; else the block of the second level */
};

#endif
