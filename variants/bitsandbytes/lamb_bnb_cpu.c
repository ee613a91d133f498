/* lamb_bnb_cpu.c - LAMB of bitsandbytes, float32 states, CPU back end.
 *
 * lamb_bnb, except that the norm of the update without bias correction is measured. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_lamb_bnb_cpu = {
    .name = "lamb_bnb_cpu",
    .summary = "LAMB of bitsandbytes on CPU: the uncorrected update's norm is bounded",
    .source = "arXiv:1904.00962; bitsandbytes backends/cpu/ops.py",
    .rule = "lamb_bnb_cpu",
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
