/* adafactor8_046_1d.c - adafactor8_046 with momentum_only_1d=False.
 *
 * The moment of a vector averages the gradient, and not the clipped update; matrices are those of
 * adafactor8_046. */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_adafactor8_046_1d = {
    .name = "adafactor8_046_1d",
    .summary = "Adafactor, uf8 momentum, al8 V, momentum_only_1d=False (adafactor8bit 0.4.6)",
    .source = "adafactor8bit 0.4.6 optimizer.py _fallback_1d_update",
    .rule = "adafactor8_046_1d",
    .slot =
        {
            QM_ADAFACTOR8_UF8,
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_AL8),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_AL8),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_DEFAULTS_046, .beta2 = -1.0, .factored = 1},
    .pads = QM_PADS_blocks,
    .state_bits = 8.1407470703125,
    .step_sqnr_db = 25.0,
};
