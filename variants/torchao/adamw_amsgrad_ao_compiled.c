/* adamw_amsgrad_ao_compiled.c - _AdamW of torchao, amsgrad=True, compiled as the class does.
 *
 * The source has no quantized form of the running maximum, so all three states are float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw_amsgrad_ao_compiled = {
    .name = "adamw_amsgrad_ao_compiled",
    .summary = "AdamW of torchao with amsgrad, compiled, float32 states",
    .source = "torchao/optim/adam.py single_param_adam",
    .rule = "adamw_ao_amsgrad_compiled",
    .slot =
        {
            {.name = "exp_avg", .quantizer = "f32"},
            {.name = "exp_avg_sq", .quantizer = "f32"},
            {.name = "max_exp_avg_sq", .quantizer = "f32"},
        },
    .hyper =
        {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2, .amsgrad = 1},
    .state_bits = 96.0,
    .step_sqnr_db = 120.0,
};
