/* muon4_bnb_fp4.c - Muon of a fork of bitsandbytes, FP4 momentum in blocks of 64.
 *
 * Codes are those of the library's CPU path.  Tensors of fewer than 4096 elements keep float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_muon4_bnb_fp4 = {
    .name = "muon4_bnb_fp4",
    .summary = "4-bit Muon, FP4 momentum, blocks of 64 (bitsandbytes fork)",
    .source = "bitsandbytes fork feature/muon (issue 1973), optim/muon.py",
    .rule = "muon_bnb",
    .slot = {{.name = "momentum_buffer",
              .quantizer = "fp4s:4s/block:64/mids/mid/recip_tail/guard:1e-38/nantop/hi",
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
