/* lion8_softsign.c - 8-bit Lion with FlashLion's momentum format and the decay of 8-bit Lion.
 *
 * Codes are evenly spaced in 2u / (1 + |u|) of the unit value u, so that small elements get more
 * of them. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_lion8_softsign = {
    .name = "lion8_softsign",
    .summary = "8-bit Lion with the softsign shape of FlashOptim",
    .source = "arXiv:2602.23349; FlashOptim optimizers.py, softsign=True",
    .rule = "lion8_fused",
    .slot = {{"exp_avg", "lint:8s/block:32/arith/near/softsign/floor:1e-12/f16", .init_code = 127}},
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99},
    .state_bits = 8.5,
    .step_sqnr_db = 35.0,
};
