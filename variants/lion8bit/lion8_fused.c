/* lion8_fused.c - DecoupledLionW_8bit, fused step: the parameter is rounded once, at the end.
 *
 *   exp_avg  code k in -127 .. 127 means k / 127 of the largest magnitude of 32 elements.  That
 *            magnitude is stored as float16; codes are computed from the unrounded one, halves up
 *
 * The decay is weight_decay * (lr / initial_lr). */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_lion8_fused = {
    .name = "lion8_fused",
    .summary = "8-bit Lion in one kernel: int8 momentum in groups of 32, float16 scales",
    .source = "arXiv:2302.06675; llm-foundry optim/lion8b.py; FlashOptim optimizers.py",
    .rule = "lion8_fused",
    .slot = {{"exp_avg", "lint:8s/block:32/arith/near/floor:1e-12/f16", .init_code = 127}},
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99},
    .state_bits = 8.5,
    .step_sqnr_db = 35.0,
};
