/* came8_024_cuda.c - CAME of adafactor8bit 0.2.4 on its CUDA path, the package's default.
 *
 *   exp_avg             16-entry table of the package, scale = absmax, the kernel's thresholds
 *   conf_row, conf_col  begin at 1 where they are encoded, at 0 where they are float32
 *
 * The formula is that of came8_024; every state is encoded before the next one is computed from it,
 * and the products of second moment and confidence are encoded once more before the step.  The
 * confidence carries the errors of two log codes: hence the lower floor of its SQNR. */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_came8_024_cuda = {
    .name = "came8_024_cuda",
    .summary = "CAME on variance times confidence from 1, table momentum, CUDA path "
               "(adafactor8bit 0.2.4)",
    .source = "adafactor8bit 0.2.4 optimizer.py _update_param_8bit; kernels.cu",
    .rule = "adafactor8_024_cuda",
    .slot =
        {
            QM_ADAFACTOR8_TABLE("nf4a8:4s/block:128/ladder/mid/hi/recip/floor:1e-12/maxskip"),
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_LOG_CUDA_021),
            QM_ADAFACTOR8_ONE("conf_row", QM_ADAFACTOR8_LOG_CUDA_021),
            QM_ADAFACTOR8_ONE("conf_col", QM_ADAFACTOR8_LOG_CUDA_021),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_CAME},
    .state_used = "stored",
    .pads = QM_PADS_moment,
    .state_bits = 4.2813720703125,
    .step_sqnr_db = 15.5,
};
