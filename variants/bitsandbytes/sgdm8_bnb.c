/* sgdm8_bnb.c - 8-bit SGD with momentum of bitsandbytes, as its wheel computes it on a CPU.
 *
 *   momentum_buffer  signed dynamic map, one absmax per 256 elements
 *
 * The source's class has no defaults of lr and momentum: the values here are those of its tests. A
 * table of 65,536 entries over [-1, 1] yields the code of x (1/absmax): codes next to 0 are never
 * used, and 0 does not decode to 0. Tensors of fewer than 4096 elements keep float32 states. Before
 * 0.50 a CPU had sgdm8_bnb_default. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_sgdm8_bnb = {
    .name = "sgdm8_bnb",
    .summary = "8-bit SGD with momentum of bitsandbytes: dynamic map, blocks of 256, codes by a "
               "grid of 65,536",
    .source = "arXiv:2110.02861; bitsandbytes csrc/cpu_ops.cpp, backends/cpu/ops.py",
    .rule = "momentum_bnb",
    .small_rule = "momentum_bnb32",
    .slot =
        {
            {"momentum_buffer", "dyn:8s/block:256/grid/mid/recip/maxskip/zero:0",
             .min_numel = 4096},
        },
    .hyper = {.lr = 1e-2, .momentum = 0.9, .gnorm_scale = 1.0},
    .state_bits = 8.125,
    .step_sqnr_db = 35.0,
};
