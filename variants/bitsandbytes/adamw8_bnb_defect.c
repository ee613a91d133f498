/* adamw8_bnb_defect.c - 8-bit AdamW of bitsandbytes 0.36.0 to 0.41.0: a negative control.
 *
 *   exp_avg     signed dynamic map, one absmax per 2048 elements
 *   exp_avg_sq  the defective unsigned map: its last code means 0.0933 instead of 1
 *
 * Large second moments are stored as at most 9.33 % of their block's maximum, so steps become up
 * to 3.27 times too long; runs diverged (issues 121, 152, 227). Commit 3c9aca91 of 2023-08-03
 * corrected the map. The rest is adamw8_bnb_2048. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw8_bnb_defect = {
    .name = "adamw8_bnb_defect",
    .summary =
        "8-bit AdamW of bitsandbytes with its defective second-moment map (negative control)",
    .source = "bitsandbytes functional.py create_dynamic_map (tags 0.36.0 to 0.41.0)",
    .rule = "adamw_bnb_cuda",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:2048/bisect/even/maxskip/keepsign", .min_numel = 4096},
            {"exp_avg_sq", "dyndef:8u/block:2048/bisect/even/maxskip", .min_numel = 4096},
        },
    .hyper = {.lr = 1e-3,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .eps = 1e-8,
              .weight_decay = 1e-2,
              .gnorm_scale = 1.0},
    .state_bits = 16.03125,
    .step_sqnr_db = 2.0, /* 44 with the right map */
};
