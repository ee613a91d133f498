/* radam_f32.c - RAdam with the defaults of PyTorch; a decay is an L2 term. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_radam_f32 = {
    .name = "radam_f32",
    .summary = "RAdam, float32 states, PyTorch 2 on CPU but for its inexact roots",
    .source = "arXiv:1908.03265; torch/optim/radam.py",
    .rule = "radam",
    .slot = {{.name = "exp_avg", .quantizer = "f32"}, {.name = "exp_avg_sq", .quantizer = "f32"}},
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .state_bits = 64.0,
    .step_sqnr_db = 120.0,
};
