/* adamw8_lpmm.c - 8-bit AdamW as lpmm's default_8b.yml configures it: adamw4_lpmm with 8 bits.
 *
 * Tensors of at most 4096 elements keep both moments in float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw8_lpmm = {
    .name = "adamw8_lpmm",
    .summary = "8-bit AdamW: dynamic exp_avg, rank-1 linear exp_avg_sq (lpmm default_8b.yml)",
    .source = "arXiv:2309.01507; low-bit-optimizers, lpmm/configs/default_8b.yml",
    .rule = "adamw_lpmm",
    .slot =
        {
            {"exp_avg", "de:8s/block:128/bisect/mid/nantop", .min_numel = 4097},
            {"exp_avg_sq", "lin:8u/rank1/bisect/mid/nantop", .min_numel = 4097},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 16.3125,
    .step_sqnr_db = 30.0,
};
