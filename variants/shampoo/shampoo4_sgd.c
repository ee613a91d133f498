/* shampoo4_sgd.c - 4-bit Shampoo on top of SGD with momentum. */
#include "variants/shampoo/slots.h"

const struct qm_variant qm_variant_shampoo4_sgd = {
    .name = "shampoo4_sgd",
    .summary = "4-bit Shampoo: eigenvectors and inverse roots in 4 bits, on top of SGD",
    .source = "arXiv:2405.18144; low-bit-Shampoo commit fc46867, optimizers/shampoo2.py",
    .rule = "shampoo_sgd",
    .slot = {{.name = "momentum_buffer", .quantizer = "f32"}, QM_SHAMPOO_SLOTS(QM_SHAMPOO_4)},
    .hyper = {.lr = 0.1, .momentum = 0.9, QM_SHAMPOO_HYPER, .min_lowbit = 4096},
    .state_bits = 50.125,
    .step_sqnr_db = 100.0,
};
