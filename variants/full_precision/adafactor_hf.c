/* adafactor_hf.c - Adafactor with the defaults of transformers.
 *
 * The step is relative and capped by 1e-2, scaled by the parameter's RMS; no first moment. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adafactor_hf = {
    .name = "adafactor_hf",
    .summary = "Adafactor, float32 factors, as transformers and the paper",
    .source = "arXiv:1804.04235; transformers src/transformers/optimization.py",
    .rule = "adafactor",
    .slot = {{.name = "exp_avg_sq_row", .quantizer = "f32"},
             {.name = "exp_avg_sq_col", .quantizer = "f32"},
             {.name = "exp_avg_sq", .quantizer = "f32"},
             {.name = "exp_avg", .quantizer = "f32"}},
    .hyper = {.lr = 1e-2,
              .eps1 = 1e-30,
              .eps2 = 1e-3,
              .clip = 1.0,
              .beta2_decay = -0.8,
              .relative_step = 1,
              .scale_parameter = 1,
              .factored = 1},
    .pads = QM_PADS_product, /* RMS of the parameter, formed in float32 */
    .state_bits = 0.0625,
    .step_sqnr_db = 120.0,
};
