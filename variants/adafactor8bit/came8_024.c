/* came8_024.c - CAME of adafactor8bit 0.2.4.
 *
 *   exp_avg             16-entry table of the package, scale = absmax, nearest entry
 *   conf_row, conf_col  begin at 1 where they are encoded, at 0 where they are float32
 *
 * The momentum averages the gradient.  The confidence averages ((g - M) / sqrt(V))^2 and multiplies
 * the second moment, which CAME's paper and 0.2.6 do not; the step is clipped once.  The update
 * uses the moments before they are encoded (PyTorch path). */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_came8_024 = {
    .name = "came8_024",
    .summary = "CAME on variance times confidence from 1, table momentum, PyTorch path "
               "(adafactor8bit 0.2.4)",
    .source = "adafactor8bit 0.2.4 optimizer.py _update_param_8bit",
    .rule = "adafactor8_024",
    .slot =
        {
            QM_ADAFACTOR8_TABLE("nf4a8:4s/block:128/argmin/mid/hi/floor:1e-12"),
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_ONE("conf_row", QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_ONE("conf_col", QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_CAME},
    .pads = QM_PADS_moment,
    .state_bits = 4.2813720703125,
    .step_sqnr_db = 19.0,
};
