/* adafactor8_024_torch.c - Adafactor of adafactor8bit 0.2.4 without CUDA.
 *
 *   exp_avg  16-entry table of the package, scale = absmax, nearest entry
 *
 * The update uses the moments before they are encoded (PyTorch path). */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_adafactor8_024_torch = {
    .name = "adafactor8_024_torch",
    .summary = "Adafactor, table momentum, nearest entry, PyTorch path (adafactor8bit 0.2.4)",
    .source = "adafactor8bit 0.2.4 optimizer.py",
    .rule = "adafactor8_024",
    .slot =
        {
            QM_ADAFACTOR8_TABLE("nf4a8:4s/block:128/argmin/mid/hi/floor:1e-12"),
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_SCHEDULE, .factored = 1},
    .pads = QM_PADS_moment,
    .state_bits = 4.26568603515625,
    .step_sqnr_db = 19.0,
};
