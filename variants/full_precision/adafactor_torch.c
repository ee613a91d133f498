/* adafactor_torch.c - Adafactor with the defaults of PyTorch core.
 *
 * eps1 is float32's machine epsilon. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adafactor_torch = {
    .name = "adafactor_torch",
    .summary = "Adafactor, float32 factors, as PyTorch core",
    .source = "torch/optim/_adafactor.py",
    .rule = "adafactor_torch",
    .slot = {{.name = "row_var", .quantizer = "f32"},
             {.name = "col_var", .quantizer = "f32"},
             {.name = "variance", .quantizer = "f32"}},
    .hyper = {.lr = 1e-2,
              .eps1 = 0x1p-23,
              .eps2 = 1e-3,
              .clip = 1.0,
              .beta2_decay = -0.8,
              .factored = 1},
    .state_bits = 0.0625,
    .step_sqnr_db = 120.0,
};
