/* adamw4_ao_bf16sr.c - AdamW4bit of torchao, bf16_stochastic_round=True.
 *
 * The step is float32; the bfloat16 parameter is rounded stochastically, with one draw per element.
 * Tensors of fewer than 4096 elements, or of no multiple of 128, keep both moments in bfloat16. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw4_ao_bf16sr = {
    .name = "adamw4_ao_bf16sr",
    .summary = "4-bit AdamW of torchao on bfloat16 parameters, stochastic",
    .source = "torchao/optim/subclass_4bit.py, quant_utils.py, adam.py",
    .rule = "adamw_ao",
    .slot =
        {
            {"exp_avg", "dyn:4s/block:128/bisect/near/hi/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1, .plain = "bf16"},
            {"exp_avg_sq", "lin:4u/block:128/bisect/near/hi/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1, .plain = "bf16"},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .param = "bf16/stoch",
    .pads = QM_PADS_tables,
    .state_bits = 8.5,
    .step_sqnr_db = 10.0,
};
