/* apollo_f32.c - APOLLO as its authors trained: one scale per channel, rank 1/4 of the width. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_apollo_f32 = {
    .name = "apollo_f32",
    .summary = "APOLLO, channel scales, random projection, float32 states",
    .source = "arXiv:2412.05270; apollo_torch/apollo.py, scripts",
    .rule = "apollo",
    .slot = {{.name = "exp_avg", .quantizer = "f32"},
             {.name = "exp_avg_sq", .quantizer = "f32"},
             {.name = "proj", .quantizer = "f32"},
             {.name = "scaled_grad", .quantizer = "f32"}},
    .hyper = {.lr = 1e-2,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .eps = 1e-6,
              .rank = 0.25,
              .gap = 200,
              .scale = 1.0,
              .margin = 0.01,
              .limiter = 1,
              .correct_bias = 1},
    .state_bits = 24.000030517578125,
    .step_sqnr_db = 120.0,
};
