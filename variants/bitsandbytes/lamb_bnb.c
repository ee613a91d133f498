/* lamb_bnb.c - LAMB of bitsandbytes, float32 states, default back end.
 *
 * Adam whose step has at most max_unorm times the parameter's norm; the norm of the bias-corrected
 * update is measured. The source also stores that norm (4 bytes per tensor); it is not stored here.
 * LAMB8bit of the source bounds nothing: it is adam8_bnb. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_lamb_bnb = {
    .name = "lamb_bnb",
    .summary = "LAMB of bitsandbytes, float32 states: the update's norm is bounded",
    .source = "arXiv:1904.00962; bitsandbytes backends/default/ops.py",
    .rule = "lamb_bnb",
    .slot =
        {
            {.name = "exp_avg", .quantizer = "f32"},
            {.name = "exp_avg_sq", .quantizer = "f32"},
        },
    .hyper = {.lr = 1e-3,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .eps = 1e-8,
              .max_unorm = 1.0,
              .gnorm_scale = 1.0},
    .pads = QM_PADS_product, /* the norm of the update, unorm_vec */
    .state_bits = 64.0,
    .step_sqnr_db = 120.0,
};
