/* adamw4_lpmm_de0.c - 4-bit AdamW with blocks of 2048 and no zero code in exp_avg_sq (table 1).
 *
 *   exp_avg     dynamic exponent map, one absmax per 2048 elements
 *   exp_avg_sq  the same map without its zero code, one maximum per 2048 elements
 *
 * This row of the paper's table shows that the zero code, and not the block size, is what breaks
 * a second moment.  The hyper-parameters are those of its task (E2E).  The even element is in
 * the low nibble; ties go to the lower code.  Tensors of at most 4096 elements keep both moments
 * in float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw4_lpmm_de0 = {
    .name = "adamw4_lpmm_de0",
    .summary = "4-bit AdamW: dynamic exp_avg, dynamic exp_avg_sq without zero, blocks of 2048",
    .source = "arXiv:2309.01507, table 1 (B2048, DE-0), tables 10 to 12; low-bit-optimizers",
    .rule = "adamw_lpmm",
    .slot =
        {
            {"exp_avg", "de:4s/block:2048/bisect/mid/lo/nantop", .min_numel = 4097},
            {"exp_avg_sq", "de0:4u/block:2048/bisect/mid/lo/nantop", .min_numel = 4097},
        },
    .hyper = {.lr = 4e-5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .weight_decay = 1e-2},
    .state_bits = 8.03125,
    .step_sqnr_db = 10.0,
};
