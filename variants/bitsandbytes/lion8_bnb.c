/* lion8_bnb.c - 8-bit Lion of bitsandbytes, as its wheel computes it on a CPU.
 *
 *   exp_avg  signed dynamic map, one absmax per 256 elements
 *
 * A table of 65,536 entries over [-1, 1] yields the code of x (1/absmax): codes next to 0 are never
 * used, and 0 does not decode to 0. Tensors of fewer than 4096 elements keep float32 states. Before
 * 0.50 a CPU had lion8_bnb_default. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_lion8_bnb = {
    .name = "lion8_bnb",
    .summary = "8-bit Lion of bitsandbytes: dynamic map, blocks of 256, codes by a grid of 65,536",
    .source = "arXiv:2302.06675; bitsandbytes csrc/cpu_ops.cpp, backends/cpu/ops.py",
    .rule = "lion_bnb",
    .small_rule = "lion_bnb32",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:256/grid/mid/recip/maxskip/zero:0", .min_numel = 4096},
        },
    .hyper = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99, .gnorm_scale = 1.0},
    .state_bits = 8.125,
    .step_sqnr_db = 35.0,
};
