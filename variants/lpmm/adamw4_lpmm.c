/* adamw4_lpmm.c - 4-bit AdamW as its authors' default.yml configures it.
 *
 *   exp_avg     dynamic exponent map, one absmax per 128 elements
 *   exp_avg_sq  linear map without a zero code, rank-1 normalization;
 *               1-D tensors fall back to one absmax per 128 elements
 *
 * The even element is in the low nibble; ties go to the lower code.  Tensors of at most 4096
 * elements keep both moments in float32.
 *
 * No scale of the second moment is known before all elements are: a step passes over its codes and
 * the gradient twice, where adamw4_lpmm_group passes once. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw4_lpmm = {
    .name = "adamw4_lpmm",
    .summary = "4-bit AdamW: dynamic exp_avg, rank-1 linear exp_avg_sq (lpmm default.yml)",
    .source = "arXiv:2309.01507; low-bit-optimizers, lpmm/configs/default.yml",
    .rule = "adamw_lpmm",
    .slot =
        {
            {"exp_avg", "de:4s/block:128/bisect/mid/lo/nantop", .min_numel = 4097},
            {"exp_avg_sq", "lin:4u/rank1/bisect/mid/lo/nantop", .min_numel = 4097},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 8.3125,
    .step_sqnr_db = 10.0,
};
