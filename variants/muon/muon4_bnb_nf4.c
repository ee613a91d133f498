/* muon4_bnb_nf4.c - Muon of a fork of bitsandbytes, NF4 momentum in blocks of 64.
 *
 * Codes are those of the library's CPU path.  Tensors of fewer than 4096 elements keep float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_muon4_bnb_nf4 = {
    .name = "muon4_bnb_nf4",
    .summary = "4-bit Muon, NF4 momentum, blocks of 64 (bitsandbytes fork)",
    .source = "bitsandbytes fork feature/muon (issue 1973), optim/muon.py",
    .rule = "muon_bnb",
    .slot = {{.name = "momentum_buffer",
              .quantizer = "nf4:4s/block:64/mids/mid/recip_tail/guard:1e-38/nantop/hi",
              .min_numel = 4096,
              .init_code = 7}},
    .hyper = {.lr = 1e-3,
              .momentum = 0.95,
              .weight_decay = 0.1,
              .eps = 1e-7,
              .nesterov = 1,
              .adjust = 2},
    .state_bits = 4.5,
    .step_sqnr_db = 15.0,
};
