/* sgd8_046.c - SGD as adafactor8bit 0.4.6 has it: its preset "sgd" with a momentum.
 *
 *   exp_avg   uniform integers -128..127, scale = absmax / 128, blocks of 256
 *
 * The momentum averages the gradient; the step takes 1 - beta1 off again. beta2_decay = 1 stands
 * for the package's None, by which it knows SGD. The preset has no momentum and no state. The
 * update uses the moment before it is encoded (PyTorch path). */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_sgd8_046 = {
    .name = "sgd8_046",
    .summary = "SGD, uf8 momentum, PyTorch path (adafactor8bit 0.4.6)",
    .source = "adafactor8bit 0.4.6 optimizer.py _update_param_8bit, presets.py",
    .rule = "adafactor8_046",
    .slot =
        {
            QM_ADAFACTOR8_UF8,
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_AL8),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_AL8),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {.lr = 1e-2,
              .beta1 = 0.9,
              .beta2 = -1.0,
              .beta2_decay = 1.0,
              .eps = 1e-16,
              .eps1 = 1e-30,
              .eps2 = 1e-3,
              .margin = 0.01},
    .pads = QM_PADS_blocks,
    .state_bits = 8.125,
    .step_sqnr_db = 25.0,
};
