/* adagrad8_bnb_default.c - 8-bit Adagrad of bitsandbytes, CPU update, Python quantizer.
 *
 *   sum  signed dynamic map, one absmax per 256 elements
 *
 * The map is signed although sums of squares are not: half of its codes are never used. x is
 * multiplied by 1/absmax; a short last block divides. Ties go to the lower code. Tensors of fewer
 * than 4096 elements keep float32 states. The package takes this quantizer where its compiled one
 * is not loaded, and on other devices than CPU and CUDA. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adagrad8_bnb_default = {
    .name = "adagrad8_bnb_default",
    .summary = "8-bit Adagrad of bitsandbytes' Python quantizer: signed dynamic map, blocks of 256",
    .source = "arXiv:2110.02861; bitsandbytes backends/cpu/ops.py, backends/default/ops.py",
    .rule = "adagrad_bnb",
    .small_rule = "adagrad_bnb32",
    .slot =
        {
            {"sum", "dyn:8s/block:256/mids/mid/recip_tail/guard:1e-38/nantop", .min_numel = 4096},
        },
    .hyper = {.lr = 1e-2, .eps = 1e-10, .gnorm_scale = 1.0},
    .state_bits = 8.125,
    .step_sqnr_db = 35.0,
};
