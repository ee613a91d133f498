/* muon8_bnb.c - Muon of a fork of bitsandbytes, dynamic 8-bit momentum, by the CPU's table.
 *
 * Zero is code 131 there, 2.1e-5 of the absmax, so exact zeros of the momentum turn positive.
 * Tensors of fewer than 4096 elements keep float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_muon8_bnb = {
    .name = "muon8_bnb",
    .summary = "8-bit Muon, dynamic map, blocks of 256, as bitsandbytes encodes on a CPU",
    .source = "bitsandbytes fork feature/muon (issue 1973), optim/muon.py",
    .rule = "muon_bnb",
    .slot = {{.name = "momentum_buffer",
              .quantizer = "dyn:8s/block:256/grid/mid/recip/maxskip/zero:0",
              .min_numel = 4096,
              .init_code = 0}},
    .hyper = {.lr = 1e-3,
              .momentum = 0.95,
              .weight_decay = 0.1,
              .eps = 1e-7,
              .nesterov = 1,
              .adjust = 2},
    .state_bits = 8.125,
    .step_sqnr_db = 35.0,
};
