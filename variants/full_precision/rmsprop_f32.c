/* rmsprop_f32.c - RMSprop with the defaults of PyTorch; beta2 is its alpha. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_rmsprop_f32 = {
    .name = "rmsprop_f32",
    .summary = "RMSprop, float32 state, PyTorch 2 on CPU but for its inexact roots",
    .source = "torch/optim/rmsprop.py",
    .rule = "rmsprop",
    .slot = {{.name = "square_avg", .quantizer = "f32"}},
    .hyper = {.lr = 1e-2, .beta2 = 0.99, .eps = 1e-8},
    .state_bits = 32.0,
    .step_sqnr_db = 120.0,
};
