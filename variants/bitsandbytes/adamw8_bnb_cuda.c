/* adamw8_bnb_cuda.c - 8-bit AdamW of bitsandbytes as its CUDA kernel computes it.
 *
 *   exp_avg     signed dynamic map, one absmax per 256 elements
 *   exp_avg_sq  unsigned dynamic map, one absmax per 256 elements
 *
 * Weight decay follows the step. A gradient that is not finite leaves the parameter alone and sets
 * both moments to 0. x is divided by absmax; ties go to the even code. exp_avg keeps its sign:
 * where a code's value has another sign than x, the code moves by one. The kernel's fast division,
 * root and power are IEEE's here. Tensors of fewer than 4096 elements keep float32 states. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw8_bnb_cuda = {
    .name = "adamw8_bnb_cuda",
    .summary = "8-bit AdamW of bitsandbytes' CUDA kernel, blocks of 256",
    .source = "arXiv:2110.02861; bitsandbytes csrc/kernels.cu kOptimizerStatic8bit2StateBlockwise",
    .rule = "adamw_bnb_cuda",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:256/bisect/even/maxskip/keepsign", .min_numel = 4096},
            {"exp_avg_sq", "dyn:8u/block:256/bisect/even/maxskip", .min_numel = 4096},
        },
    .hyper = {.lr = 1e-3,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .eps = 1e-8,
              .weight_decay = 1e-2,
              .gnorm_scale = 1.0},
    .state_bits = 16.25,
    .step_sqnr_db = 35.0,
};
