/* came8_046.c - CAME of adafactor8bit 0.4.6 (0.4.3 computes the same).
 *
 *   exp_avg             uniform integers -128..127, scale = absmax / 128, blocks of 256
 *   row_var, col_var, conf_row, conf_col
 *                       8 bits of log2 between the extremes of 2048 numbers, code 0 for 0
 *
 * The quotient is never clipped a second time, eps_came is 1e-16 and the confidence begins at 0.
 * The update uses the moments before they are encoded (PyTorch path). */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_came8_046 = {
    .name = "came8_046",
    .summary = "CAME, uf8 momentum, al8 V, PyTorch path (adafactor8bit 0.4.6)",
    .source = "adafactor8bit 0.4.6 optimizer.py",
    .rule = "adafactor8_046",
    .slot =
        {
            QM_ADAFACTOR8_UF8,
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_AL8),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_AL8),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_DEFAULTS_046, .beta2 = 0.999, .beta3 = 0.9999, .factored = 1},
    .pads = QM_PADS_blocks,
    .state_bits = 8.156494140625,
    .step_sqnr_db = 25.0,
};
