/* rmsprop_full_f32.c - RMSprop, centered and with momentum; beta2 is its alpha. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_rmsprop_full_f32 = {
    .name = "rmsprop_full_f32",
    .summary = "centered RMSprop with momentum, float32 states, PyTorch 2 on CPU but for its "
               "inexact roots",
    .source = "torch/optim/rmsprop.py",
    .rule = "rmsprop_full",
    .slot = {{.name = "square_avg", .quantizer = "f32"},
             {.name = "grad_avg", .quantizer = "f32"},
             {.name = "momentum_buffer", .quantizer = "f32"}},
    .hyper = {.lr = 1e-2, .beta2 = 0.99, .eps = 1e-8, .momentum = 0.9, .centered = 1},
    .state_bits = 96.0,
    .step_sqnr_db = 120.0,
};
