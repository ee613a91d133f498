/* adamw4_lpmm_group.c - 4-bit AdamW with blocks of 128 for both moments.
 *
 * lpmm does this when it is given no configuration, and with its 2nd_moment_group_128.yml.  Tensors
 * of at most 4096 elements keep both moments in float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw4_lpmm_group = {
    .name = "adamw4_lpmm_group",
    .summary = "4-bit AdamW: dynamic exp_avg, linear exp_avg_sq, blocks of 128 (lpmm)",
    .source = "arXiv:2309.01507; low-bit-optimizers, lpmm/config.py",
    .rule = "adamw_lpmm",
    .slot =
        {
            {"exp_avg", "de:4s/block:128/bisect/mid/lo/nantop", .min_numel = 4097},
            {"exp_avg_sq", "lin:4u/block:128/bisect/mid/lo/nantop", .min_numel = 4097},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 8.5,
    .step_sqnr_db = 10.0,
};
