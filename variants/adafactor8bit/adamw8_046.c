/* adamw8_046.c - AdamW as adafactor8bit 0.4.6 has it: its preset "adamw".
 *
 *   exp_avg   uniform integers -128..127, scale = absmax / 128, blocks of 256
 *   variance  8 bits of log2 between the extremes of 2048 numbers, code 0 for 0
 *
 * The biases correct the rate and eps, M / (sqrt(V) + eps sqrt(1 - beta2^t)); the decay follows the
 * corrected rate only with scale_weight_decay, which the preset turns off.  The update uses the
 * moments before they are encoded (PyTorch path). */
#include "variants/adafactor8bit/slots.h"

const struct qm_variant qm_variant_adamw8_046 = {
    .name = "adamw8_046",
    .summary = "AdamW, uf8 momentum, al8 V, PyTorch path (adafactor8bit 0.4.6, preset adamw)",
    .source = "adafactor8bit 0.4.6 optimizer.py",
    .rule = "adafactor8_046",
    .slot =
        {
            QM_ADAFACTOR8_UF8,
            QM_ADAFACTOR8_FACTORS(QM_ADAFACTOR8_AL8),
            QM_ADAFACTOR8_CONFIDENCE(QM_ADAFACTOR8_AL8),
            QM_ADAFACTOR8_REST,
        },
    .hyper = {.lr = 1e-3,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .beta2_decay = -0.8,
              .eps = 1e-16,
              .eps1 = 1e-8,
              .eps2 = 1e-3,
              .margin = 0.01,
              .correct_bias = 1},
    .pads = QM_PADS_blocks,
    .state_bits = 16.15625,
    .step_sqnr_db = 25.0,
};
