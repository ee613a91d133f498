/* radam_f32_foreach.c - radam_f32 by torch's functions for many tensors (foreach=True).
 *
 * It is the default on a GPU: the same formulas, with other roundings. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_radam_f32_foreach = {
    .name = "radam_f32_foreach",
    .summary = "RAdam, float32 states, PyTorch 2 with foreach=True on CPU but for its roots",
    .source = "arXiv:1908.03265; torch/optim/radam.py _multi_tensor_radam",
    .rule = "radam_foreach",
    .slot = {{.name = "exp_avg", .quantizer = "f32"}, {.name = "exp_avg_sq", .quantizer = "f32"}},
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .state_bits = 64.0,
    .step_sqnr_db = 120.0,
};
