/* adamw5_3_qm.c - AdamW with 5 bits for the momentum and 3 for the second moment.
 *
 *   exp_avg     k/15, k = -15..15, of softsign of x over its scale: one scale per row and one per
 *               column, the smaller is used
 *   exp_avg_sq  the same scales of the square root, k/8 of them, k = 1..8: no zero code
 *
 * An update m / sqrt(v) feels half of the relative error of v and all of m's, so that a bit is
 * worth more in m.  Vectors have one scale per 128 elements.  Codes are a stream of bits, the first
 * one highest; ties go to the lower code.  Tensors of at most 4096 elements keep both moments in
 * float32.  What each word buys: variants/README.md, section qualm. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw5_3_qm = {
    .name = "adamw5_3_qm",
    .summary = "AdamW in 5 + 3 bits: softsign exp_avg, square root of exp_avg_sq, rank-1 scales",
    .source = "this project, by qualm search; parts of arXiv:2309.01507, flashoptim",
    .rule = "adamw",
    .slot =
        {
            {"exp_avg", "lint:5s/rank1/bisect/mid/hi/softsign", .min_numel = 4097},
            {"exp_avg_sq", "lin:3u/rank1/bisect/mid/hi/sqrt", .min_numel = 4097},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 8.125,
    .step_sqnr_db = 10.0,
};
