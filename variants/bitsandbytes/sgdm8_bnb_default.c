/* sgdm8_bnb_default.c - 8-bit SGD with momentum of bitsandbytes, CPU update, Python quantizer.
 *
 *   momentum_buffer  signed dynamic map, one absmax per 256 elements
 *
 * The source's class has no defaults of lr and momentum: the values here are those of its tests. x
 * is multiplied by 1/absmax; a short last block divides. Ties go to the lower code. Tensors of
 * fewer than 4096 elements keep float32 states. The package takes this quantizer where its compiled
 * one is not loaded, and on other devices than CPU and CUDA. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_sgdm8_bnb_default = {
    .name = "sgdm8_bnb_default",
    .summary =
        "8-bit SGD with momentum of bitsandbytes' Python quantizer: dynamic map, blocks of 256",
    .source = "arXiv:2110.02861; bitsandbytes backends/cpu/ops.py, backends/default/ops.py",
    .rule = "momentum_bnb",
    .small_rule = "momentum_bnb32",
    .slot =
        {
            {"momentum_buffer", "dyn:8s/block:256/mids/mid/recip_tail/guard:1e-38/nantop",
             .min_numel = 4096},
        },
    .hyper = {.lr = 1e-2, .momentum = 0.9, .gnorm_scale = 1.0},
    .state_bits = 8.125,
    .step_sqnr_db = 35.0,
};
