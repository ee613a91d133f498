/* came8_022.c - CAME of adafactor8bit 0.2.2.
 *
 *   exp_avg             uniform integers -7..7, scale = absmax / 7
 *   conf_row, conf_col  begin at 2^-126
 *
 * The momentum averages the gradient.  The confidence averages ((g - M) / sqrt(V))^2 and multiplies
 * the second moment, which CAME's paper and 0.2.6 do not; the step is clipped once.  The update
 * uses the moments before they are encoded (PyTorch path). */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_came8_022 = {
    .name = "came8_022",
    .summary = "CAME on variance times confidence from 0, uniform int4 momentum, PyTorch path "
               "(adafactor8bit 0.2.2)",
    .source = "adafactor8bit 0.2.2 optimizer.py _update_param_8bit",
    .rule = "adafactor8_024",
    .slot =
        {
            QM_ADAFACTOR8_UNIFORM("int:4s/block:128/arith/even/hi/floor:1e-12"),
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_CAME},
    .pads = QM_PADS_moment,
    .state_bits = 4.2813720703125,
    .step_sqnr_db = 19.0,
};
