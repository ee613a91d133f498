/* adamw_fp8_ao.c - AdamWFp8 of torchao.
 *
 * Both moments are 8-bit floats e4m3fn times a scale of at least 1e-12 / 448 per 256 elements; the
 * second moment never uses the sign.  Rounding is to nearest, ties to the even code.  Tensors of
 * fewer than 4096 elements, or no multiple of 256, keep both moments in the parameter's type. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw_fp8_ao = {
    .name = "adamw_fp8_ao",
    .summary = "AdamW of torchao with e4m3 moments, blocks of 256",
    .source = "torchao/optim/subclass_fp8.py, quant_utils.py, adam.py",
    .rule = "adamw_ao",
    .slot =
        {
            {"exp_avg", "e4m3:8s/block:256/bisect/even/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1},
            {"exp_avg_sq", "e4m3:8s/block:256/bisect/even/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .state_bits = 16.25,
    .step_sqnr_db = 28.0,
};
