/* ademamix8_bnb_cuda.c - 8-bit AdEMAMix of bitsandbytes as its CUDA kernel computes it.
 *
 *   exp_avg, exp_avg_slow  signed dynamic map, one absmax per 256 elements
 *   exp_avg_sq             unsigned dynamic map, one absmax per 256 elements
 *
 * Weight decay follows the step. Where the number of elements is no multiple of 256, the kernel
 * lets the last block of exp_avg and the first of exp_avg_slow share a scale; here they do not. x
 * is divided by absmax; ties go to the even code. Both first moments keep their sign: where a
 * code's value has another sign than x, the code moves by one. Tensors of fewer than 4096 elements
 * keep float32 states. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_ademamix8_bnb_cuda = {
    .name = "ademamix8_bnb_cuda",
    .summary = "8-bit AdEMAMix of bitsandbytes' CUDA kernel",
    .source = "arXiv:2409.03137; bitsandbytes csrc/kernels.cu kOptimizerStatic8bit2StateBlockwise",
    .rule = "ademamix_bnb_cuda",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:256/bisect/even/maxskip/keepsign", .min_numel = 4096},
            {"exp_avg_slow", "dyn:8s/block:256/bisect/even/maxskip/keepsign", .min_numel = 4096},
            {"exp_avg_sq", "dyn:8u/block:256/bisect/even/maxskip", .min_numel = 4096},
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
