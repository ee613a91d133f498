/* apollo8_043.c - APOLLO of adafactor8bit 0.4.3: the steps of apollo8_046, and more memory.
 *
 * The slots are apollo8_046's. Beside them the package holds a momentum of the parameter's size,
 * codes and scales, which nothing reads. */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_apollo8_043 = {
    .name = "apollo8_043",
    .summary = "APOLLO rank 256, uf8 momentum, al8 V, PyTorch path (adafactor8bit 0.4.3)",
    .source = "adafactor8bit 0.4.3 optimizer.py _update_param_apollo, presets.py",
    .rule = "adafactor8_046",
    .slot =
        {
            QM_ADAFACTOR8_UF8,
            QM_ADAFACTOR8_F32("row_var"),
            QM_ADAFACTOR8_F32("col_var"),
            QM_ADAFACTOR8_VAR("variance", QM_ADAFACTOR8_AL8 "/floor:1e-12"),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_AL8),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {.lr = 1e-2,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .beta2_decay = -0.8,
              .eps = 1e-6,
              .eps1 = 1e-6,
              .eps2 = 1e-3,
              .rank = 256.0,
              .gap = 200.0,
              .scale = 1.0,
              .margin = 0.01,
              .correct_bias = 1},
    .pads = QM_PADS_moment,
    .state_bits = 4.039093017578125,
    .step_sqnr_db = 25.0,
};
