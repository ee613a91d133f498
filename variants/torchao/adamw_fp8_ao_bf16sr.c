/* adamw_fp8_ao_bf16sr.c - AdamWFp8 of torchao, bf16_stochastic_round=True.
 *
 * adamw_fp8_ao on a bfloat16 parameter that is rounded stochastically.  Tensors too small for codes
 * keep both moments in bfloat16. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw_fp8_ao_bf16sr = {
    .name = "adamw_fp8_ao_bf16sr",
    .summary = "AdamW of torchao with e4m3 moments on bfloat16 parameters, stochastic",
    .source = "torchao/optim/subclass_fp8.py, quant_utils.py, adam.py",
    .rule = "adamw_ao",
    .slot =
        {
            {"exp_avg", "e4m3:8s/block:256/bisect/even/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1, .plain = "bf16"},
            {"exp_avg_sq", "e4m3:8s/block:256/bisect/even/floor:1e-12", .min_numel = 4096,
             .whole_blocks = 1, .plain = "bf16"},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .param = "bf16/stoch",
    .state_bits = 16.25,
    .step_sqnr_db = 28.0,
};
