/* flash_sgdw.c - FlashSGDW: 24-bit master weights, int8 softsign momentum, decay lr * weight_decay.
 *
 * The source's default is momentum 0, which has no state at all; here it is 0.9. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_flash_sgdw = {
    .name = "flash_sgdw",
    .summary = "FlashOptim's SGDW: bf16 parameters, 8 bits of error, int8 softsign momentum",
    .source = "arXiv:2602.23349; FlashOptim flashoptim/optimizers.py",
    .rule = "flash_sgdw",
    .slot = {{"momentum_buffer", "lint:8s/block:32/arith/near/softsign/floor:1e-12/f16",
              .init_code = 127}},
    .hyper = {.lr = 1e-3, .momentum = 0.9},
    .param = "bf16/ecc8",
    .state_bits = 16.5,
    .step_sqnr_db = 35.0,
};
