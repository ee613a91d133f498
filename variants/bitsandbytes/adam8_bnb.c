/* adam8_bnb.c - 8-bit Adam of bitsandbytes: adamw8_bnb without weight decay by default.
 *
 *   exp_avg     signed dynamic map, one absmax per 256 elements
 *   exp_avg_sq  unsigned dynamic map, one absmax per 256 elements
 *
 * A weight decay other than 0 is decoupled, as AdamW's. A table of 65,536 entries over [-1, 1]
 * yields the code of x (1/absmax): codes next to 0 are never used, and 0 does not decode to 0.
 * Tensors of fewer than 4096 elements keep float32 states. Before 0.50 a CPU had
 * adam8_bnb_default. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adam8_bnb = {
    .name = "adam8_bnb",
    .summary = "8-bit Adam of bitsandbytes: dynamic maps, blocks of 256, codes by a grid of 65,536",
    .source = "arXiv:2110.02861; bitsandbytes csrc/cpu_ops.cpp, backends/cpu/ops.py",
    .rule = "adamw_bnb",
    .small_rule = "adamw_bnb32",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:256/grid/mid/recip/maxskip/zero:0", .min_numel = 4096},
            {"exp_avg_sq", "dyn:8u/block:256/grid/mid/recip/maxskip/zero:0", .min_numel = 4096},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .state_bits = 16.25,
    .step_sqnr_db = 35.0,
};
