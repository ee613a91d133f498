/* adamw_lpmm_vonly.c - AdamW with a 4-bit second moment and a float32 first moment.
 *
 * adamw4_lpmm as lpmm's 2nd_moment_only_default.yml configures it.  Tensors of at most 4096
 * elements keep both moments in float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw_lpmm_vonly = {
    .name = "adamw_lpmm_vonly",
    .summary = "AdamW: float32 exp_avg, rank-1 linear 4-bit exp_avg_sq (lpmm)",
    .source = "arXiv:2309.01507; low-bit-optimizers, lpmm/configs/2nd_moment_only_default.yml",
    .rule = "adamw_lpmm",
    .slot =
        {
            {.name = "exp_avg", .quantizer = "f32"},
            {"exp_avg_sq", "lin:4u/rank1/bisect/mid/lo/nantop", .min_numel = 4097},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 36.0625,
    .step_sqnr_db = 10.0,
};
