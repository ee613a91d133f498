/* adamw_ao_bf16sr.c - _AdamW of torchao on bfloat16 parameters, bf16_stochastic_round=True.
 *
 * Both moments are plain bfloat16, rounded to nearest at every step; the step itself is float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw_ao_bf16sr = {
    .name = "adamw_ao_bf16sr",
    .summary = "AdamW of torchao wholly in bfloat16, parameters stochastic",
    .source = "torchao/optim/adam.py _AdamW, quant_utils.py _fp32_to_bf16_sr",
    .rule = "adamw_ao",
    .slot =
        {
            {.name = "exp_avg", .quantizer = "bf16"},
            {.name = "exp_avg_sq", .quantizer = "bf16"},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .param = "bf16/stoch",
    .state_bits = 32.0,
    .step_sqnr_db = 45.0,
};
