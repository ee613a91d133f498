/* flash_adamw.c - FlashAdamW: 24-bit master weights as bf16 and one byte, 8-bit moments.
 *
 *   exp_avg     int8, evenly spaced in 2u / (1 + |u|) of the unit value u
 *   exp_avg_sq  uint8, evenly spaced in sqrt(u)
 *
 * Each has one float16 scale per 32 elements.  exp_avg_sq has code 0 where its root is below 1/510
 * of the largest root of the block: such an element has forgotten its second moment, and the next
 * step is that of its own gradient alone, lr exp_avg / (sqrt((1 - beta2) g^2) + eps) without
 * corrections. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_flash_adamw = {
    .name = "flash_adamw",
    .summary = "FlashOptim's AdamW: bf16 parameters, 8 bits of error, 8-bit moments",
    .source = "arXiv:2602.23349; FlashOptim flashoptim/optimizers.py",
    .rule = "flash_adamw",
    .slot =
        {
            {"exp_avg", "lint:8s/block:32/arith/near/softsign/floor:1e-12/f16", .init_code = 127},
            {"exp_avg_sq", "lint:8u/block:32/arith/near/sqrt/floor:1e-12/f16", .init_code = 0},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2},
    .param = "bf16/ecc8",
    .state_bits = 25.0,
    .step_sqnr_db = 35.0,
};
