/* apollo8_026.c - APOLLO of adafactor8bit 0.2.6 at the documented rank 256.
 *
 *   exp_avg             of the projected gradient; uniform integers -8..7, scale = absmax
 *   variance            of the projected gradient; 8 bits of log2(x)
 *   row_var, col_var    float32, in place of variance when factored (apollo_factorize)
 *
 * Tensors of two and more dimensions are projected, vectors take plain Adafactor.  The update uses
 * the momentum before it is encoded and the second moment after it (PyTorch path).  From the second
 * step on the package also allocates a momentum of the full size that nothing reads; it is not
 * counted in state_bits.
 *
 * The projection is a matrix product in double, 256 multiply-adds per parameter before the first
 * update and again for the step, since it is not kept; the order of its sums is fixed. */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_apollo8_026 = {
    .name = "apollo8_026",
    .summary = "APOLLO rank 256, uniform int4 momentum, log2 V, PyTorch path (adafactor8bit 0.2.6)",
    .source = "adafactor8bit 0.2.6 optimizer.py _update_param_apollo",
    .rule = "adafactor8",
    .slot =
        {
            QM_ADAFACTOR8_UNIFORM("intm:4s/block:128/arith/even/hi/floor:1e-12"),
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
