/* lion8_bnb_default.c - 8-bit Lion of bitsandbytes, CPU update, Python quantizer.
 *
 *   exp_avg  signed dynamic map, one absmax per 256 elements
 *
 * x is multiplied by 1/absmax; a short last block divides. Ties go to the lower code. Tensors of
 * fewer than 4096 elements keep float32 states. The package takes this quantizer where its compiled
 * one is not loaded, and on other devices than CPU and CUDA. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_lion8_bnb_default = {
    .name = "lion8_bnb_default",
    .summary = "8-bit Lion of bitsandbytes' Python quantizer: dynamic map, blocks of 256",
    .source = "arXiv:2302.06675; bitsandbytes backends/cpu/ops.py, backends/default/ops.py",
    .rule = "lion_bnb",
    .small_rule = "lion_bnb32",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:256/mids/mid/recip_tail/guard:1e-38/nantop",
             .min_numel = 4096},
        },
    .hyper = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99, .gnorm_scale = 1.0},
    .state_bits = 8.125,
    .step_sqnr_db = 35.0,
};
