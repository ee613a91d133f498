/* lion8_unfused.c - DecoupledLionW_8bit with _fused=False.
 *
 * A parameter of 16 bits is rounded after the decay and again after the step; there is no error
 * correction.
 *
 *   exp_avg  code k in -127 .. 127 means k / 127 of the largest magnitude of 32 elements.  That
 *            magnitude is stored as float16; codes are computed from the unrounded one, halves up
 *
 * The decay is weight_decay * (lr / initial_lr). */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_lion8_unfused = {
    .name = "lion8_unfused",
    .summary = "8-bit Lion in separate steps: 16-bit parameters are rounded twice",
    .source = "llm-foundry optim/lion8b.py lion_step_unfused",
    .rule = "lion8_unfused",
    .slot = {{"exp_avg", "lint:8s/block:32/arith/near/floor:1e-12/f16", .init_code = 127}},
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99},
    .state_bits = 8.5,
    .step_sqnr_db = 35.0,
};
