/* muon4_bnb_nvfp4.c - Muon of a fork of bitsandbytes, momentum in what it calls NVFP4.
 *
 * Blocks of 64.  The magnitudes are E2M1's over 6, the scale is the float32 absmax and not E4M3; a
 * tie takes the larger magnitude, and a tiny negative number keeps its sign as -0. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_muon4_bnb_nvfp4 = {
    .name = "muon4_bnb_nvfp4",
    .summary = "4-bit Muon, E2M1 magnitudes over 6, float32 absmax of 64 (bitsandbytes fork)",
    .source = "bitsandbytes fork feature/muon (issue 1973), optim/muon.py, eager path",
    .rule = "muon_bnb",
    .slot = {{.name = "momentum_buffer",
              .quantizer = "nvfp4:4s/block:64/ladder/mid/guard:1e-12/nanzero/hi",
              .min_numel = 4096,
              .init_code = 0}},
    .hyper = {.lr = 1e-3,
              .momentum = 0.95,
              .weight_decay = 0.1,
              .eps = 1e-7,
              .nesterov = 1,
              .adjust = 2},
    .state_bits = 4.5,
    .step_sqnr_db = 12.0,
};
