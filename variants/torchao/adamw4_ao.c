/* adamw4_ao.c - AdamW4bit of torchao.
 *
 *   exp_avg     signed dynamic map of 16 codes, one absmax per 128 elements, at least 1e-12
 *   exp_avg_sq  k/16, k = 1..16: no zero code
 *
 * The even element is in the high nibble; ties go to the upper code.  Tensors of fewer than 4096
 * elements, or no multiple of 128, keep both moments in the parameter's type. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw4_ao = {
    .name = "adamw4_ao",
    .summary = "4-bit AdamW of torchao: dynamic exp_avg, linear exp_avg_sq, blocks of 128",
    .source = "torchao/optim/subclass_4bit.py, quant_utils.py, adam.py",
    .rule = "adamw_ao",
    .slot =
        {
            {"exp_avg", "dyn:4s/block:128/bisect/near/hi/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1},
            {"exp_avg_sq", "lin:4u/block:128/bisect/near/hi/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .pads = QM_PADS_tables,
    .state_bits = 8.5,
    .step_sqnr_db = 10.0,
};
