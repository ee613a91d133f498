/* adafactor8_022_torch.c - Adafactor of adafactor8bit 0.2.2 without CUDA.
 *
 *   exp_avg  uniform integers -7..7, scale = absmax / 7
 *
 * The update uses the moments before they are encoded (PyTorch path). */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_adafactor8_022_torch = {
    .name = "adafactor8_022_torch",
    .summary = "Adafactor, uniform int4 momentum, log2 V, PyTorch path (adafactor8bit 0.2.2)",
    .source = "adafactor8bit 0.2.2 optimizer.py",
    .rule = "adafactor8_024",
    .slot =
        {
            QM_ADAFACTOR8_UNIFORM("int:4s/block:128/arith/even/hi/floor:1e-12"),
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_SCHEDULE, .factored = 1},
    .pads = QM_PADS_moment,
    .state_bits = 4.26568603515625,
    .step_sqnr_db = 19.0,
};
