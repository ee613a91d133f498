/* adamw8_ao_bf16.c - AdamW8bit of torchao on bfloat16 parameters.
 *
 * The step is float32; the new parameter is rounded to nearest.  Tensors too small for codes keep
 * both moments in bfloat16. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw8_ao_bf16 = {
    .name = "adamw8_ao_bf16",
    .summary = "8-bit AdamW of torchao on bfloat16 parameters, to nearest",
    .source = "torchao/optim/subclass_8bit.py, quant_utils.py, adam.py",
    .rule = "adamw_ao",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:256/bisect/near/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1, .plain = "bf16"},
            {"exp_avg_sq", "dyn:8u/block:256/bisect/near/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1, .plain = "bf16"},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .param = "bf16/near",
    .pads = QM_PADS_tables,
    .state_bits = 16.25,
    .step_sqnr_db = 35.0,
};
