/* sgdm8_bnb_cuda.c - 8-bit SGD with momentum of bitsandbytes as its CUDA kernel computes it.
 *
 *   momentum_buffer  signed dynamic map, one absmax per 256 elements
 *
 * The source's class has no defaults of lr and momentum: the values here are those of its tests. x
 * is divided by absmax; ties go to the even code. The momentum keeps its sign: where a code's
 * value has another sign than x, the code moves by one. Tensors of fewer than 4096 elements keep
 * float32 states. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_sgdm8_bnb_cuda = {
    .name = "sgdm8_bnb_cuda",
    .summary = "8-bit SGD with momentum of bitsandbytes' CUDA kernel",
    .source = "arXiv:2110.02861; bitsandbytes csrc/kernels.cu kOptimizerStatic8bit1StateBlockwise",
    .rule = "momentum_bnb_plain",
    .slot =
        {
            {"momentum_buffer", "dyn:8s/block:256/bisect/even/maxskip/keepsign", .min_numel = 4096},
        },
    .hyper = {.lr = 1e-2, .momentum = 0.9, .gnorm_scale = 1.0},
    .state_bits = 8.125,
    .step_sqnr_db = 35.0,
};
