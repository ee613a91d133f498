/* came8_026_cuda.c - CAME of adafactor8bit 0.2.6 on its CUDA path, the package's default.
 *
 *   exp_avg             uniform integers -8..7, scale = absmax
 *   conf_row, conf_col  begin at 2^-126
 *
 * Every state is encoded before the next one is computed from it: the momentum from the decoded
 * second moment, the confidence from the decoded momentum.  There is no second clip (came8_026 has
 * one).  The confidence carries the errors of two log codes, about 20 dB each: hence the lower
 * floor of its SQNR. */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_came8_026_cuda = {
    .name = "came8_026_cuda",
    .summary = "CAME, uniform int4 momentum, log2 V, CUDA path (adafactor8bit 0.2.6)",
    .source = "adafactor8bit 0.2.6 optimizer.py _update_param_8bit; kernels.cu",
    .rule = "adafactor8_cuda",
    .slot =
        {
            QM_ADAFACTOR8_UNIFORM(
                "intm:4s/block:128/arith/even/hi/recip/floor:1e-12/maxskip/nanzero"),
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_LOG_CUDA_026),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_LOG_CUDA_026),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_CAME},
    .state_used = "stored",
    .pads = QM_PADS_moment,
    .state_bits = 4.2813720703125,
    .step_sqnr_db = 15.5,
};
