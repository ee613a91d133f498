/* adamw8_bnb.c - 8-bit AdamW of bitsandbytes, as its wheel computes it on a CPU.
 *
 *   exp_avg     signed dynamic map, one absmax per 256 elements
 *   exp_avg_sq  unsigned dynamic map, one absmax per 256 elements
 *
 * A table of 65,536 entries over [-1, 1] yields the code of x (1/absmax): 7 codes of exp_avg next
 * to 0 and 11 of exp_avg_sq are never used, and 0 becomes 2.1e-5 or 1.6e-5 of the absmax. Tensors
 * of fewer than 4096 elements keep float32 states. Before 0.50 a CPU had adamw8_bnb_default. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw8_bnb = {
    .name = "adamw8_bnb",
    .summary =
        "8-bit AdamW of bitsandbytes: dynamic maps, blocks of 256, codes by a grid of 65,536",
    .source = "arXiv:2110.02861; bitsandbytes csrc/cpu_ops.cpp, backends/cpu/ops.py",
    .rule = "adamw_bnb",
    .small_rule = "adamw_bnb32",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:256/grid/mid/recip/maxskip/zero:0", .min_numel = 4096},
            {"exp_avg_sq", "dyn:8u/block:256/grid/mid/recip/maxskip/zero:0", .min_numel = 4096},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 16.25,
    .step_sqnr_db = 35.0,
};
