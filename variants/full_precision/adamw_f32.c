/* adamw_f32.c - AdamW with both moments in float32: the baseline of every comparison. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw_f32 = {
    .name = "adamw_f32",
    .summary = "AdamW, float32 states, PyTorch 2 on CPU but for its inexact roots",
    .source = "arXiv:1711.05101; torch/optim/adamw.py, adam.py",
    .rule = "adamw",
    .slot = {{.name = "exp_avg", .quantizer = "f32"}, {.name = "exp_avg_sq", .quantizer = "f32"}},
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 64.0,
    .step_sqnr_db = 120.0,
};
