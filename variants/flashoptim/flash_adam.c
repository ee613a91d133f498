/* flash_adam.c - FlashAdam: flash_adamw with weight decay coupled as L2. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_flash_adam = {
    .name = "flash_adam",
    .summary = "FlashOptim's Adam: bf16 parameters, 8 bits of error, 8-bit moments",
    .source = "arXiv:2602.23349; FlashOptim flashoptim/optimizers.py",
    .rule = "flash_adam",
    .slot =
        {
            {"exp_avg", "lint:8s/block:32/arith/near/softsign/floor:1e-12/f16", .init_code = 127},
            {"exp_avg_sq", "lint:8u/block:32/arith/near/sqrt/floor:1e-12/f16", .init_code = 0},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .param = "bf16/ecc8",
    .state_bits = 25.0,
    .step_sqnr_db = 35.0,
};
