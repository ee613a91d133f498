/* lion8_bnb_cuda.c - 8-bit Lion of bitsandbytes as its CUDA kernel computes it.
 *
 *   exp_avg  signed dynamic map, one absmax per 256 elements
 *
 * x is divided by absmax; ties go to the even code. exp_avg keeps its sign: where a code's value
 * has another sign than x, the code moves by one. Tensors of fewer than 4096 elements keep
 * float32 states. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_lion8_bnb_cuda = {
    .name = "lion8_bnb_cuda",
    .summary = "8-bit Lion of bitsandbytes' CUDA kernel",
    .source = "arXiv:2302.06675; bitsandbytes csrc/kernels.cu kOptimizerStatic8bit1StateBlockwise",
    .rule = "lion_bnb_cuda",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:256/bisect/even/maxskip/keepsign", .min_numel = 4096},
        },
    .hyper = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99, .gnorm_scale = 1.0},
    .state_bits = 8.125,
    .step_sqnr_db = 35.0,
};
