/* flash_lion.c - FlashLion: 24-bit master weights as bf16 and one byte, softsign int8 momentum.
 *
 * initial_lr = 1 makes the decay lr * weight_decay, the source's default; initial_lr = 0 (lr
 * itself) is its decouple_lr. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_flash_lion = {
    .name = "flash_lion",
    .summary = "FlashOptim's Lion: bf16 parameters, 8 bits of error, int8 softsign momentum",
    .source = "arXiv:2602.23349; FlashOptim flashoptim/optimizers.py",
    .rule = "flash_lion",
    .slot = {{"exp_avg", "lint:8s/block:32/arith/near/softsign/floor:1e-12/f16", .init_code = 127}},
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .initial_lr = 1.0},
    .param = "bf16/ecc8",
    .state_bits = 16.5,
    .step_sqnr_db = 35.0,
};
