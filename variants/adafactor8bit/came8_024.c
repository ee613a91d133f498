/* came8_024.c - CAME of adafactor8bit 0.2.4, reconstructed.
 *
 *   exp_avg             16-entry table of the package, scale = absmax, nearest entry
 *   conf_row, conf_col  begin at 1 and, at beta3 = 0.9999, stay there for thousands of steps
 *
 * The text of CAME in 0.2.4 is not available: this is 0.2.6 with the table and the first confidence
 * of the published difference.  The update uses the moments before they are encoded (PyTorch path).
 * The package leaves out the second clip where the states are float32; this variant does not. */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_came8_024 = {
    .name = "came8_024",
    .summary = "CAME, table momentum, confidence from 1, PyTorch path (adafactor8bit 0.2.4, "
               "reconstructed)",
    .source = "adafactor8bit 0.2.6 optimizer.py; published difference 0.2.2 to 0.2.4",
    .rule = "adafactor8",
    .slot =
        {
            QM_ADAFACTOR8_TABLE("nf4a8:4s/block:128/argmin/mid/hi/floor:1e-12"),
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_ONE("conf_row", QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_ONE("conf_col", QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_CAME, .clip_twice = 1},
    .state_bits = 4.2813720703125,
    .step_sqnr_db = 19.0,
};
