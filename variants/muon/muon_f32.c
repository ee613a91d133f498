/* muon_f32.c - Muon as axolotl's package publishes it, with float32 momentum. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_muon_f32 = {
    .name = "muon_f32",
    .summary = "Muon, float32 momentum, Newton-Schulz in bfloat16 (axolotl-contribs-mit)",
    .source = "axolotl-contribs-mit 0.0.6 muon/dist_muon.py, after microsoft/dion",
    .rule = "muon_lin",
    .slot = {{.name = "momentum_buffer", .quantizer = "f32"}},
    .hyper = {.lr = 1e-2, .momentum = 0.95, .weight_decay = 1e-2, .eps = 1e-8, .adjust = 1},
    .state_bits = 32.0,
    .step_sqnr_db = 120.0,
};
