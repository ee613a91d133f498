/* ema4_nf4.c - Momentum in canonical NormalFloat-4, for comparison with the 0.2.4 table.
 *
 * Tensors of fewer than 4096 elements keep the moment in float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_ema4_nf4 = {
    .name = "ema4_nf4",
    .summary = "momentum as canonical NF4, blocks of 128",
    .source = "arXiv:2305.14314, appendix E; bitsandbytes functional.py",
    .rule = "ema",
    .slot = {{"exp_avg", "nf4:4s/block:128/bisect/mid/hi/floor:1e-12", .min_numel = 4096,
              .init_code = 7, .init_scale = 1.0f}},
    .hyper = {.beta1 = 0.9},
    .state_bits = 4.25,
    .step_sqnr_db = 10.0,
};
