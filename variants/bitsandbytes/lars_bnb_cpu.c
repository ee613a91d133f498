/* lars_bnb_cpu.c - LARS of bitsandbytes, float32 states, CPU back end.
 *
 * lars_bnb, except that the norm of the momentum with this step's weight decay is measured. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_lars_bnb_cpu = {
    .name = "lars_bnb_cpu",
    .summary = "LARS of bitsandbytes on CPU: the momentum's norm is bounded",
    .source = "arXiv:1708.03888; bitsandbytes backends/cpu/ops.py",
    .rule = "lars_bnb_cpu",
    .slot =
        {
            {.name = "momentum_buffer", .quantizer = "f32"},
        },
    .hyper = {.lr = 1e-2, .momentum = 0.9, .max_unorm = 0.02, .gnorm_scale = 1.0},
    .pads = QM_PADS_product, /* the norm of the update, unorm_vec */
    .state_bits = 32.0,
    .step_sqnr_db = 120.0,
};
