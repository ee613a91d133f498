/* adam_f32.c - Adam with both moments in float32; a decay is an L2 term. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adam_f32 = {
    .name = "adam_f32",
    .summary = "Adam, float32 states, PyTorch 2 on CPU but for its inexact roots",
    .source = "arXiv:1412.6980; torch/optim/adam.py",
    .rule = "adam",
    .slot = {{.name = "exp_avg", .quantizer = "f32"}, {.name = "exp_avg_sq", .quantizer = "f32"}},
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .state_bits = 64.0,
    .step_sqnr_db = 120.0,
};
