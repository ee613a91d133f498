/* adafactor8_026.c - Adafactor of adafactor8bit 0.2.6: uniform 4-bit momentum, scaled by 8.
 *
 *   exp_avg  uniform integers -8..7, scale = absmax: +absmax is stored as 7/8 of it
 *
 * The update reads the codes back (CUDA path, the package's default). */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_adafactor8_026 = {
    .name = "adafactor8_026",
    .summary = "Adafactor, uniform int4 momentum, log2 V, CUDA path (adafactor8bit 0.2.6)",
    .source = "adafactor8bit 0.2.6 kernels.cu",
    .rule = "adafactor8_cuda",
    .slot =
        {
            QM_ADAFACTOR8_UNIFORM(
                "intm:4s/block:128/arith/even/hi/recip/floor:1e-12/maxskip/nanzero"),
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_LOG_CUDA_026),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_LOG_CUDA_026),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_SCHEDULE, .factored = 1},
    .state_used = "stored",
    .pads = QM_PADS_moment,
    .state_bits = 4.26568603515625,
    .step_sqnr_db = 19.0,
};
