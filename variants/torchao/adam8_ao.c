/* adam8_ao.c - Adam8bit of torchao.
 *
 * The quantizers are those of adamw8_ao; weight decay, 0 by default, is coupled. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adam8_ao = {
    .name = "adam8_ao",
    .summary = "8-bit Adam of torchao: dynamic maps, blocks of 256",
    .source = "torchao/optim/subclass_8bit.py, quant_utils.py, adam.py",
    .rule = "adam_ao",
    .slot =
        {
            {"exp_avg", "dyn:8s/block:256/bisect/near/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1},
            {"exp_avg_sq", "dyn:8u/block:256/bisect/near/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .pads = QM_PADS_tables,
    .state_bits = 16.25,
    .step_sqnr_db = 35.0,
};
