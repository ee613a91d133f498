/* adamw4_lpmm_fused.c - 4-bit AdamW as lpmm's fused kernel computes it: fused=True.
 *
 * Both moments have blocks of 128 whatever the configuration says.  Scalars are float32, so that
 * 1 - beta2 is 1.3e-5 too low.  A NaN does not enter its block's scale (in the source it does if
 * its neighbour in the byte is NaN too).  The source refuses quantized tensors of odd size; this
 * variant takes them.  Tensors of at most 4096 elements keep both moments in float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw4_lpmm_fused = {
    .name = "adamw4_lpmm_fused",
    .summary = "4-bit AdamW by lpmm's fused kernel, contracted as for sm_80",
    .source = "arXiv:2309.01507; low-bit-optimizers, lpmm/cpp_extension/fused_adamw_kernel.cu",
    .rule = "adamw_lpmm_fused",
    .slot =
        {
            {"exp_avg", "de:4s/block:128/bisect/mid/lo/maxskip/nantop", .min_numel = 4097},
            {"exp_avg_sq", "lin:4u/block:128/bisect/mid/lo/maxskip/nantop", .min_numel = 4097},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 8.5,
    .step_sqnr_db = 10.0,
};
