/* muon8_bnb_triton.c - Muon of a fork of bitsandbytes, dynamic momentum, the GPU's search.
 *
 * The nearer of the two neighbours in float32, the lower one at a tie; zero is code 127 and exact.
 * Tensors of fewer than 4096 elements keep float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_muon8_bnb_triton = {
    .name = "muon8_bnb_triton",
    .summary = "8-bit Muon, dynamic map, blocks of 256, by the binary search of its GPU kernel",
    .source = "bitsandbytes fork feature/muon (issue 1973), optim/muon.py, "
              "backends/triton/kernels_muon.py",
    .rule = "muon_bnb",
    .slot = {{.name = "momentum_buffer",
              .quantizer = "dyn:8s/block:256/argmin/mid/maxskip/zero:127",
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
