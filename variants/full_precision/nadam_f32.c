/* nadam_f32.c - NAdam with the defaults of PyTorch; a decay is an L2 term. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_nadam_f32 = {
    .name = "nadam_f32",
    .summary = "NAdam, float32 states, PyTorch 2 on CPU but for its inexact roots",
    .source = "Dozat 2016; torch/optim/nadam.py",
    .rule = "nadam",
    .slot = {{.name = "exp_avg", .quantizer = "f32"}, {.name = "exp_avg_sq", .quantizer = "f32"}},
    .hyper = {.lr = 2e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .momentum_decay = 4e-3},
    .pads = QM_PADS_product,
    .state_bits = 64.0,
    .step_sqnr_db = 120.0,
};
