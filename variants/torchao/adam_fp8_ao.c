/* adam_fp8_ao.c - AdamFp8 of torchao.
 *
 * The quantizers are those of adamw_fp8_ao; weight decay, 0 by default, is coupled. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adam_fp8_ao = {
    .name = "adam_fp8_ao",
    .summary = "Adam of torchao with e4m3 moments, blocks of 256",
    .source = "torchao/optim/subclass_fp8.py, quant_utils.py, adam.py",
    .rule = "adam_ao",
    .slot =
        {
            {"exp_avg", "e4m3:8s/block:256/bisect/even/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1},
            {"exp_avg_sq", "e4m3:8s/block:256/bisect/even/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .state_bits = 16.25,
    .step_sqnr_db = 28.0,
};
