/* came_f32.c - CAME with the defaults of its class.
 *
 * The class has no default learning rate; the value here is that of its README. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_came_f32 = {
    .name = "came_f32",
    .summary = "CAME, everything in float32",
    .source = "arXiv:2307.02047; came_pytorch/CAME.py",
    .rule = "came",
    .slot = {{.name = "exp_avg", .quantizer = "f32"},
             {.name = "exp_avg_sq_row", .quantizer = "f32"},
             {.name = "exp_avg_sq_col", .quantizer = "f32"},
             {.name = "exp_avg_sq", .quantizer = "f32"},
             {.name = "exp_avg_res_row", .quantizer = "f32"},
             {.name = "exp_avg_res_col", .quantizer = "f32"}},
    .hyper = {.lr = 2e-4,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .beta3 = 0.9999,
              .eps1 = 1e-30,
              .eps2 = 1e-16,
              .clip = 1.0},
    .pads = QM_PADS_number, /* RMS of the parameter */
    .state_bits = 32.125,
    .step_sqnr_db = 120.0,
};
