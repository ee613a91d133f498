/* nadam_f32_foreach.c - nadam_f32 by torch's functions for many tensors (foreach=True).
 *
 * It is the default on a GPU: the same formulas, with other roundings. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_nadam_f32_foreach = {
    .name = "nadam_f32_foreach",
    .summary = "NAdam, float32 states, PyTorch 2 with foreach=True on CPU but for its roots",
    .source = "Dozat 2016; torch/optim/nadam.py _multi_tensor_nadam",
    .rule = "nadam_foreach",
    .slot = {{.name = "exp_avg", .quantizer = "f32"}, {.name = "exp_avg_sq", .quantizer = "f32"}},
    .hyper = {.lr = 2e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .momentum_decay = 4e-3},
    .pads = QM_PADS_product,
    .state_bits = 64.0,
    .step_sqnr_db = 120.0,
};
