/* adamw8_coat_plain.c - CoatAdamW of COAT without range expansion.
 *
 * Both moments are e4m3 codes times a scale of (absmax + 1e-20) / 448 per 128 elements, of tensors
 * of every size and rank.  A NaN does not enter the maximum, and has the code NaN.  In the source
 * all threads of a block add the 1e-20 to the same number in turns, how often is undefined; here it
 * is added once.  That shows below an absmax of 1e-12. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw8_coat_plain = {
    .name = "adamw8_coat_plain",
    .summary = "AdamW of COAT with plain e4m3 moments, blocks of 128",
    .source = "arXiv:2410.19313; COAT, coat/optimizer/fp8_adamw.py, "
              "kernels/fp8_adamw_cuda_kernel.cu",
    .rule = "adamw_coat",
    .slot =
        {
            {"exp_avg", "e4m3:8s/block:128/bisect/even/plus:1e-20/maxskip", .min_numel = 0},
            {"exp_avg_sq", "e4m3:8s/block:128/bisect/even/plus:1e-20/maxskip", .min_numel = 0},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 16.5,
    .step_sqnr_db = 28.0,
};
