/* adamw8_ao.c - AdamW8bit of torchao.
 *
 *   exp_avg     signed dynamic map, one absmax per 256 elements, at least 1e-12
 *   exp_avg_sq  unsigned dynamic map, one absmax per 256 elements, at least 1e-12
 *
 * Ties go to the upper code.  Tensors of fewer than 4096 elements, or no multiple of 256, keep
 * both moments in the parameter's type. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw8_ao = {
    .name = "adamw8_ao",
    .summary = "8-bit AdamW of torchao: dynamic maps, blocks of 256",
    .source = "torchao/optim/subclass_8bit.py, quant_utils.py, adam.py",
    .rule = "adamw_ao",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:256/bisect/near/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1},
            {"exp_avg_sq", "dyn:8u/block:256/bisect/near/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .pads = QM_PADS_tables,
    .state_bits = 16.25,
    .step_sqnr_db = 35.0,
};
