/* ema4_uniform.c - The momentum format of adafactor8bit 0.2.2: uniform 4-bit integers.
 *
 * Scale = absmax * (1/7), ties to even, codes -7..7 stored as 1..15; the even element is in the
 * high nibble.  Tensors of fewer than 4096 elements keep the moment in float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_ema4_uniform = {
    .name = "ema4_uniform",
    .summary = "momentum as uniform int4, blocks of 128 (adafactor8bit 0.2.2)",
    .source = "adafactor8bit 0.2.2 optimizer.py _quantize_4bit_pytorch",
    .rule = "ema",
    .slot = {{"exp_avg", "int:4s/block:128/arith/even/hi/floor:1e-12", .min_numel = 4096,
              .init_code = 8, .init_scale = 1.0f}},
    .hyper = {.beta1 = 0.9},
    .state_bits = 4.25,
    .step_sqnr_db = 10.0,
};
