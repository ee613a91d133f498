/* apollo8_024.c - APOLLO of adafactor8bit 0.2.4 at the documented rank 256.
 *
 *   exp_avg             of the projected gradient; 16-entry table of the package, scale = absmax
 *   variance            of the projected gradient; 8 bits of log2(x)
 *   row_var, col_var    float32, in place of variance when factored (apollo_factorize)
 *
 * Tensors of two and more dimensions are projected, vectors take plain Adafactor.  The package
 * drops the momentum before every step, so that it is (1 - beta1) times the projected gradient, and
 * begins the second moment anew with every projection.  The update uses the momentum before it is
 * encoded and the second moment after it (PyTorch path).  From the second step on the package also
 * allocates a momentum of the full size that nothing reads; it is not counted in state_bits. */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_apollo8_024 = {
    .name = "apollo8_024",
    .summary = "APOLLO rank 256, table momentum, log2 V, PyTorch path (adafactor8bit 0.2.4)",
    .source = "adafactor8bit 0.2.4 optimizer.py _update_param_apollo",
    .rule = "adafactor8_024",
    .slot =
        {
            QM_ADAFACTOR8_TABLE("nf4a8:4s/block:128/argmin/mid/hi/floor:1e-12"),
            QM_ADAFACTOR8_F32("row_var"),
            QM_ADAFACTOR8_F32("col_var"),
            QM_ADAFACTOR8_VAR("variance", QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_LOG),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {QM_ADAFACTOR8_SCHEDULE, .rank = 256.0},
    .pads = QM_PADS_moment,
    .state_bits = 3.066436767578125,
    .step_sqnr_db = 19.0,
};
