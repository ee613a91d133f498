/* muon8_lin.c - Muon of axolotl with momentum in linear int8.
 *
 * One scale per 2048 elements of a row, absmax / 127 and at least 2^-126; the blocks begin anew at
 * each row of [d0, rest].  Byte k stands for the source's int8 k - 127.  The step uses the momentum
 * before it is encoded, so only what is carried to the next step is quantized. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_muon8_lin = {
    .name = "muon8_lin",
    .summary = "8-bit Muon of axolotl: linear int8 momentum, blocks of 2048 within a row",
    .source = "arXiv:2509.23106; axolotl pull request 3983, utils/optimizers/muon_8bit.py",
    .rule = "muon_lin",
    .slot = {{.name = "momentum_buffer",
              .quantizer = "intd:8s/rowblock:2048/arith/even/floor:1.4928778e-36",
              .init_code = 127}},
    .hyper = {.lr = 1e-2, .momentum = 0.95, .weight_decay = 1e-2, .eps = 1e-8, .adjust = 1},
    .state_bits = 8.03125,
    .step_sqnr_db = 35.0,
};
