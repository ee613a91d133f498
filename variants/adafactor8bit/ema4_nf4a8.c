/* ema4_nf4a8.c - The momentum format of adafactor8bit 0.2.4: its 16-entry table and thresholds.
 *
 * The table is symmetric, unlike the canonical NF4.  The thresholds are those of the CUDA kernel:
 * on (-0.8480964, -0.7801653] they yield code 0 where code 1 is nearest.  Tensors of fewer
 * than 4096 elements keep the moment in float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_ema4_nf4a8 = {
    .name = "ema4_nf4a8",
    .summary = "momentum as the 0.2.4 table with its own thresholds (adafactor8bit 0.2.4)",
    .source = "adafactor8bit 0.2.4 kernels.cu find_nearest_nf4",
    .rule = "ema",
    .slot = {{"exp_avg", "nf4a8:4s/block:128/ladder/mid/hi/recip/floor:1e-12/maxskip",
              .min_numel = 4096, .init_code = 7, .init_scale = 1.0f}},
    .hyper = {.beta1 = 0.9},
    .state_bits = 4.25,
    .step_sqnr_db = 10.0,
};
