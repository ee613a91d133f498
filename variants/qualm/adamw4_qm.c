/* adamw4_qm.c - AdamW with 4 bits for each moment, composed of the best words of each axis.
 *
 *   exp_avg     NF4, one scale per row and one per column, the smaller is used
 *   exp_avg_sq  the same scales of the square root, k/16 of them, k = 1..16: no zero code
 *
 * Vectors have one scale per 128 elements.  The even element is in the high nibble; ties go to the
 * lower code.  Tensors of at most 4096 elements keep both moments in float32.  What each word buys:
 * variants/README.md, "What the search composed". */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw4_qm = {
    .name = "adamw4_qm",
    .summary = "4-bit AdamW: NF4 exp_avg, square root of exp_avg_sq, both with rank-1 scales",
    .source = "this project, by qualm search; parts of arXiv:2305.14314, arXiv:2309.01507, "
              "flashoptim",
    .rule = "adamw",
    .slot =
        {
            {"exp_avg", "nf4:4s/rank1/bisect/mid/hi", .min_numel = 4097},
            {"exp_avg_sq", "lin:4u/rank1/bisect/mid/hi/sqrt", .min_numel = 4097},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 8.125,
    .step_sqnr_db = 10.0,
};
