/* adam4_ao.c - Adam4bit of torchao.
 *
 * The quantizers are those of adamw4_ao; weight decay, 0 by default, is coupled. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adam4_ao = {
    .name = "adam4_ao",
    .summary = "4-bit Adam of torchao: dynamic exp_avg, linear exp_avg_sq, blocks of 128",
    .source = "torchao/optim/subclass_4bit.py, quant_utils.py, adam.py",
    .rule = "adam_ao",
    .slot =
        {
            {"exp_avg", "dyn:4s/block:128/bisect/near/hi/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1},
            {"exp_avg_sq", "lin:4u/block:128/bisect/near/hi/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .pads = QM_PADS_tables,
    .state_bits = 8.5,
    .step_sqnr_db = 10.0,
};
