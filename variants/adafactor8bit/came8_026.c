/* came8_026.c - CAME of adafactor8bit 0.2.6.
 *
 *   exp_avg             uniform integers -8..7, scale = absmax
 *   conf_row, conf_col  begin at 2^-126
 *
 * The update uses the moments before they are encoded (PyTorch path).  The quotient is
 * clipped a second time where the states are encoded, as the package does, and not where they are
 * float32. */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_came8_026 = {
    .name = "came8_026",
    .summary = "CAME, uniform int4 momentum, log2 V, PyTorch path (adafactor8bit 0.2.6)",
    .source = "adafactor8bit 0.2.6 optimizer.py",
    .rule = "adafactor8",
    .slot =
        {
            QM_ADAFACTOR8_UNIFORM("intm:4s/block:128/arith/even/hi/floor:1e-12"),
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_CAME, .clip_twice = 1},
    .pads = QM_PADS_moment,
    .state_bits = 4.2813720703125,
    .step_sqnr_db = 19.0,
};
