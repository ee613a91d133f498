/* lion8_ecc16.c - 8-bit Lion with 32-bit master weights: bf16 and 16 bits of error.
 *
 *   exp_avg  code k in -127 .. 127 means k / 127 of the largest magnitude of 32 elements.  That
 *            magnitude is stored as float16; codes are computed from the unrounded one, halves up
 *
 * The decay is weight_decay * (lr / initial_lr). */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_lion8_ecc16 = {
    .name = "lion8_ecc16",
    .summary = "8-bit Lion, bf16 parameters with 16 bits of error correction",
    .source = "llm-foundry optim/lion8b.py; FlashOptim optimizers.py, error correction",
    .rule = "lion8_fused",
    .slot = {{"exp_avg", "lint:8s/block:32/arith/near/floor:1e-12/f16", .init_code = 127}},
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99},
    .param = "bf16/ecc16",
    .state_bits = 24.5,
    .step_sqnr_db = 35.0,
};
