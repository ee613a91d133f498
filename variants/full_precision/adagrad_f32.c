/* adagrad_f32.c - Adagrad with the defaults of PyTorch. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adagrad_f32 = {
    .name = "adagrad_f32",
    .summary = "Adagrad, float32 state, PyTorch 2 on CPU but for its inexact roots",
    .source = "torch/optim/adagrad.py",
    .rule = "adagrad",
    .slot = {{.name = "sum", .quantizer = "f32"}},
    .hyper = {.lr = 1e-2, .eps = 1e-10},
    .state_bits = 32.0,
    .step_sqnr_db = 120.0,
};
