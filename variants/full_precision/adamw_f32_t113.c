/* adamw_f32_t113.c - AdamW as PyTorch 1.13 computes it: the first moment is a weighted sum. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw_f32_t113 = {
    .name = "adamw_f32_t113",
    .summary = "AdamW, float32 states, bit-equal to PyTorch 1.13 on CPU",
    .source = "arXiv:1711.05101; torch/optim/adamw.py of PyTorch 1.13",
    .rule = "adamw_t113",
    .slot = {{.name = "exp_avg", .quantizer = "f32"}, {.name = "exp_avg_sq", .quantizer = "f32"}},
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 64.0,
    .step_sqnr_db = 120.0,
};
