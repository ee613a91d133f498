/* adamw8_bnb_default.c - 8-bit AdamW of bitsandbytes, CPU update, Python quantizer.
 *
 *   exp_avg     signed dynamic map, one absmax per 256 elements
 *   exp_avg_sq  unsigned dynamic map, one absmax per 256 elements
 *
 * x is multiplied by 1/absmax; a short last block divides. Ties go to the lower code. Tensors of
 * fewer than 4096 elements keep float32 states. The package takes this quantizer where its compiled
 * one is not loaded, and on other devices than CPU and CUDA. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw8_bnb_default = {
    .name = "adamw8_bnb_default",
    .summary = "8-bit AdamW of bitsandbytes' Python quantizer: dynamic maps, blocks of 256",
    .source = "arXiv:2110.02861; bitsandbytes backends/default/ops.py, backends/cpu/ops.py",
    .rule = "adamw_bnb",
    .small_rule = "adamw_bnb32",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:256/mids/mid/recip_tail/guard:1e-38/nantop",
             .min_numel = 4096},
            {"exp_avg_sq", "dyn:8u/block:256/mids/mid/recip_tail/guard:1e-38/nantop",
             .min_numel = 4096},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 16.25,
    .step_sqnr_db = 35.0,
};
