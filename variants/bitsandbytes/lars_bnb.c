/* lars_bnb.c - LARS of bitsandbytes, float32 states, default back end.
 *
 * SGD with momentum whose step has at most max_unorm times the parameter's norm; the norm of the
 * update without this step's weight decay is measured. The source's class has no defaults of lr and
 * momentum: the values here are those of its tests. The source also stores that norm (4 bytes per
 * tensor); it is not stored here. LARS8bit of the source bounds nothing: it is sgdm8_bnb. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_lars_bnb = {
    .name = "lars_bnb",
    .summary = "LARS of bitsandbytes, float32 state: the update's norm is bounded",
    .source = "arXiv:1708.03888; bitsandbytes backends/default/ops.py",
    .rule = "lars_bnb",
    .slot =
        {
            {.name = "momentum_buffer", .quantizer = "f32"},
        },
    .hyper = {.lr = 1e-2, .momentum = 0.9, .max_unorm = 0.02, .gnorm_scale = 1.0},
    .pads = QM_PADS_product, /* the norm of the update, unorm_vec */
    .state_bits = 32.0,
    .step_sqnr_db = 120.0,
};
