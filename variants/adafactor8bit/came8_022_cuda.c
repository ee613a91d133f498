/* came8_022_cuda.c - CAME of adafactor8bit 0.2.2 on its CUDA path, the package's default.
 *
 *   exp_avg             uniform integers -7..7, scale = absmax / 7
 *   conf_row, conf_col  begin at 2^-126
 *
 * The formula is that of came8_022; every state is encoded before the next one is computed from it,
 * and the products of second moment and confidence are encoded once more before the step.  The
 * confidence carries the errors of two log codes: hence the lower floor of its SQNR. */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_came8_022_cuda = {
    .name = "came8_022_cuda",
    .summary = "CAME on variance times confidence from 0, uniform int4 momentum, CUDA path "
               "(adafactor8bit 0.2.2)",
    .source = "adafactor8bit 0.2.2 optimizer.py _update_param_8bit; kernels.cu",
    .rule = "adafactor8_024_cuda",
    .slot =
        {
            QM_ADAFACTOR8_UNIFORM(
                "int:4s/block:128/arith/even/hi/recip/floor:1e-12/maxskip/nanzero"),
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_LOG_CUDA_021),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_LOG_CUDA_021),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_CAME},
    .state_used = "stored",
    .pads = QM_PADS_moment,
    .state_bits = 4.2813720703125,
    .step_sqnr_db = 15.0,
};
