/* lion_f32.c - Lion with the defaults of google/automl. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_lion_f32 = {
    .name = "lion_f32",
    .summary = "Lion, float32 moment, as google/automl on PyTorch",
    .source = "arXiv:2302.06675; google/automl lion/lion_pytorch.py",
    .rule = "lion",
    .slot = {{.name = "exp_avg", .quantizer = "f32"}},
    .hyper = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99},
    .state_bits = 32.0,
    .step_sqnr_db = 120.0,
};
