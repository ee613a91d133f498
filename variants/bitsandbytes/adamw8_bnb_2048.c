/* adamw8_bnb_2048.c - 8-bit AdamW of bitsandbytes up to 0.43.3: blocks of 2048.
 *
 *   exp_avg     signed dynamic map, one absmax per 2048 elements
 *   exp_avg_sq  unsigned dynamic map, one absmax per 2048 elements
 *
 * 2048 is the block size of the paper; the rest is adamw8_bnb_cuda. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw8_bnb_2048 = {
    .name = "adamw8_bnb_2048",
    .summary = "8-bit AdamW of bitsandbytes' CUDA kernel, blocks of 2048 as published",
    .source = "arXiv:2110.02861; bitsandbytes csrc/kernels.cu kOptimizerStatic8bit2StateBlockwise "
              "(tag 0.43.3)",
    .rule = "adamw_bnb_cuda",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:2048/bisect/even/maxskip/keepsign", .min_numel = 4096},
            {"exp_avg_sq", "dyn:8u/block:2048/bisect/even/maxskip", .min_numel = 4096},
        },
    .hyper = {.lr = 1e-3,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .eps = 1e-8,
              .weight_decay = 1e-2,
              .gnorm_scale = 1.0},
    .state_bits = 16.03125,
    .step_sqnr_db = 35.0,
};
