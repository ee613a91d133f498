/* sgdm_f32.c - SGD with momentum 0.9, the buffer in float32: the baseline of momentum formats. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_sgdm_f32 = {
    .name = "sgdm_f32",
    .summary = "SGD with momentum, float32 buffer, bit-equal to PyTorch on CPU",
    .source = "torch/optim/sgd.py",
    .rule = "sgdm",
    .slot = {{.name = "momentum_buffer", .quantizer = "f32"}},
    .hyper = {.lr = 1e-2, .momentum = 0.9},
    .state_bits = 32.0,
    .step_sqnr_db = 120.0,
};
