/* rmsprop8_bnb.c - 8-bit RMSprop of bitsandbytes, as its wheel computes it on a CPU.
 *
 *   square_avg  signed dynamic map, one absmax per 256 elements
 *
 * The map is signed although squares are not: half of its codes are never used. A table of 65,536
 * entries over [-1, 1] yields the code of x (1/absmax): codes next to 0 are never used, and 0 does
 * not decode to 0. Tensors of fewer than 4096 elements keep float32 states. Before 0.50 a CPU had
 * rmsprop8_bnb_default. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_rmsprop8_bnb = {
    .name = "rmsprop8_bnb",
    .summary = "8-bit RMSprop of bitsandbytes: signed dynamic map, blocks of 256, codes by a grid "
               "of 65,536",
    .source = "arXiv:2110.02861; bitsandbytes csrc/cpu_ops.cpp, backends/cpu/ops.py",
    .rule = "rmsprop_bnb",
    .small_rule = "rmsprop_bnb32",
    .slot =
        {
            {"square_avg", "dyn:8s/block:256/grid/mid/recip/maxskip/zero:0", .min_numel = 4096},
        },
    .hyper = {.lr = 1e-2, .beta2 = 0.99, .eps = 1e-8, .gnorm_scale = 1.0},
    .state_bits = 8.125,
    .step_sqnr_db = 35.0,
};
