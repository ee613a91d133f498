/* adagrad8_bnb_cuda.c - 8-bit Adagrad of bitsandbytes as its CUDA kernel computes it.
 *
 *   sum  signed dynamic map, one absmax per 256 elements
 *
 * The step divides the raw gradient: weight decay enters the state only. x is divided by absmax;
 * ties go to the even code. The first state keeps its sign: where a code's value has another sign
 * than x, the code moves by one. Tensors of fewer than 4096 elements keep float32 states. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adagrad8_bnb_cuda = {
    .name = "adagrad8_bnb_cuda",
    .summary = "8-bit Adagrad of bitsandbytes' CUDA kernel: divides the raw gradient",
    .source = "arXiv:2110.02861; bitsandbytes csrc/kernels.cu kOptimizerStatic8bit1StateBlockwise",
    .rule = "adagrad_bnb_cuda",
    .small_rule = "adagrad_bnb_plain",
    .slot =
        {
            {"sum", "dyn:8s/block:256/bisect/even/maxskip/keepsign", .min_numel = 4096},
        },
    .hyper = {.lr = 1e-2, .eps = 1e-10, .gnorm_scale = 1.0},
    .state_bits = 8.125,
    .step_sqnr_db = 35.0,
};
