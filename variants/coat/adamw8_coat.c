/* adamw8_coat.c - CoatAdamW of COAT: FP8 moments with dynamic range expansion.
 *
 * Both moments are e4m3 codes of powers that fit each block's range to the format's; a block of 128
 * stores its scale, exponent and centre as float32 (core/quant/expand.h).  Tensors of every size
 * and rank are quantized; an element alone, and a block of one magnitude, may lose its sign. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw8_coat = {
    .name = "adamw8_coat",
    .summary = "AdamW of COAT: e4m3 moments with dynamic range expansion, blocks of 128",
    .source = "arXiv:2410.19313; COAT, coat/optimizer/fp8_adamw.py, "
              "kernels/fp8_adamw_expand_cuda_kernel.cu",
    .rule = "adamw_coat",
    .slot =
        {
            {"exp_avg", "e4m3:8s/block:128/bisect/even/expand:16/plus:1e-30", .min_numel = 0},
            {"exp_avg_sq", "e4m3:8s/block:128/bisect/even/expand:16/plus:1e-30", .min_numel = 0},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 17.5,
    .step_sqnr_db = 28.0,
};
