/* adafactor8_024.c - Adafactor of adafactor8bit 0.2.4: its "NF4" momentum.
 *
 *   exp_avg  16-entry table of the package, scale = absmax, searched by the thresholds of its
 *            kernel: on (-0.8480964, -0.7801653] they do not give the nearest entry
 *
 * The update reads the codes back (CUDA path, the package's default). */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_adafactor8_024 = {
    .name = "adafactor8_024",
    .summary = "Adafactor, table momentum by thresholds, CUDA path (adafactor8bit 0.2.4)",
    .source = "adafactor8bit 0.2.4 kernels.cu",
    .rule = "adafactor8_024_cuda",
    .slot =
        {
            QM_ADAFACTOR8_TABLE("nf4a8:4s/block:128/ladder/mid/hi/recip/floor:1e-12/maxskip"),
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_LOG_CUDA_021),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_LOG_CUDA_021),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_SCHEDULE, .factored = 1},
    .state_used = "stored",
    .pads = QM_PADS_moment,
    .state_bits = 4.26568603515625,
    .step_sqnr_db = 19.0,
};
