/* fira_f32.c - Fira with Adam as its authors trained: alpha 0.25, rank 1/4 of the width. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_fira_f32 = {
    .name = "fira_f32",
    .summary = "Fira with Adam, singular vectors, float32 states",
    .source = "arXiv:2410.01623; optimizer_torch/fira_adamw.py",
    .rule = "fira",
    .slot = {{.name = "exp_avg", .quantizer = "f32"},
             {.name = "exp_avg_sq", .quantizer = "f32"},
             {.name = "proj", .quantizer = "f32"},
             {.name = "scaling_grad", .quantizer = "f32"}},
    .hyper = {.lr = 1e-2,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .eps = 1e-6,
              .rank = 0.25,
              .gap = 200,
              .scale = 0.25,
              .margin = 0.01,
              .limiter = 1,
              .correct_bias = 1},
    .state_bits = 24.000030517578125,
    .step_sqnr_db = 120.0,
};
