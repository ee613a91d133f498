/* ademamix8_bnb.c - 8-bit AdEMAMix of bitsandbytes, as its wheel computes it on a CPU.
 *
 *   exp_avg, exp_avg_slow  signed dynamic map, one absmax per 256 elements
 *   exp_avg_sq             unsigned dynamic map, one absmax per 256 elements
 *
 * t_alpha and t_beta3 switch the schedules of alpha and beta3 on. A table of 65,536 entries over
 * [-1, 1] yields the code of x (1/absmax): codes next to 0 are never used, and 0 does not decode to
 * 0. Tensors of fewer than 4096 elements keep float32 states. Before 0.50 a CPU had
 * ademamix8_bnb_default. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_ademamix8_bnb = {
    .name = "ademamix8_bnb",
    .summary =
        "8-bit AdEMAMix of bitsandbytes: dynamic maps, blocks of 256, codes by a grid of 65,536",
    .source = "arXiv:2409.03137; bitsandbytes csrc/cpu_ops.cpp, backends/cpu/ops.py",
    .rule = "ademamix_bnb",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:256/grid/mid/recip/maxskip/zero:0", .min_numel = 4096},
            {"exp_avg_slow", "dyn:8s/block:256/grid/mid/recip/maxskip/zero:0", .min_numel = 4096},
            {"exp_avg_sq", "dyn:8u/block:256/grid/mid/recip/maxskip/zero:0", .min_numel = 4096},
        },
    .hyper = {.lr = 1e-3,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .eps = 1e-8,
              .beta3 = 0.9999,
              .alpha = 5.0,
              .weight_decay = 1e-2,
              .gnorm_scale = 1.0},
    .state_bits = 24.375,
    .step_sqnr_db = 35.0,
};
