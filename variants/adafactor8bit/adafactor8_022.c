/* adafactor8_022.c - Adafactor of adafactor8bit 0.2.2: uniform 4-bit momentum.
 *
 *   exp_avg  uniform integers -7..7, scale = absmax / 7
 *
 * The update reads the codes back (CUDA path, the package's default). */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_adafactor8_022 = {
    .name = "adafactor8_022",
    .summary = "Adafactor, uniform int4 momentum, log2 V, CUDA path (adafactor8bit 0.2.2)",
    .source = "adafactor8bit 0.2.2 kernels.cu",
    .rule = "adafactor8_024_cuda",
    .slot =
        {
            QM_ADAFACTOR8_UNIFORM(
                "int:4s/block:128/arith/even/hi/recip/floor:1e-12/maxskip/nanzero"),
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
