/* adamw_amsgrad_f32.c - torch.optim.AdamW with amsgrad=True, states in float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw_amsgrad_f32 = {
    .name = "adamw_amsgrad_f32",
    .summary = "AdamW of PyTorch with amsgrad, float32 states",
    .source = "arXiv:1904.09237; torch/optim/adamw.py _single_tensor_adamw",
    .rule = "adamw_amsgrad",
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
