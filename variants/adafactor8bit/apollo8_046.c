/* apollo8_046.c - APOLLO of adafactor8bit 0.4.6: its preset "apollo" at the default rank 256.
 *
 *   exp_avg   of the projected gradient; integers -128..127, scale = absmax / 128, blocks of 256
 *   variance  of the projected gradient; 8 bits of log2 between the extremes of 2048 numbers, the
 *             lower one at least log2(apollo_eps^2), code 0 for 0
 *   row_var, col_var  float32, in place of variance when factored (apollo_factorize)
 *
 * Tensors of two and more dimensions are projected, vectors take the package's AdamW with
 * eps1 = 1e-6.  The update uses the moments before they are encoded (PyTorch path).
 *
 * The package lets the first second moment of a tensor lie below apollo_eps^2; here its code has
 * the same lower end in every step. A vector's second moment has no such end in the package. */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_apollo8_046 = {
    .name = "apollo8_046",
    .summary = "APOLLO rank 256, uf8 momentum, al8 V, PyTorch path (adafactor8bit 0.4.6)",
    .source = "adafactor8bit 0.4.6 optimizer.py _update_param_apollo, presets.py",
    .rule = "adafactor8_046",
    .slot =
        {
            QM_ADAFACTOR8_UF8,
            QM_ADAFACTOR8_F32("row_var"),
            QM_ADAFACTOR8_F32("col_var"),
            QM_ADAFACTOR8_VAR("variance", QM_ADAFACTOR8_AL8 "/floor:1e-12"),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_AL8),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {.lr = 1e-2,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .beta2_decay = -0.8,
              .eps = 1e-6,
              .eps1 = 1e-6,
              .eps2 = 1e-3,
              .rank = 256.0,
              .gap = 200.0,
              .scale = 1.0,
              .margin = 0.01,
              .correct_bias = 1},
    .pads = QM_PADS_blocks,
    .state_bits = 4.039093017578125,
    .step_sqnr_db = 25.0,
};
