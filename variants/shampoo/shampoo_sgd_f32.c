/* shampoo_sgd_f32.c - Shampoo in eigenvector form on top of SGD, full precision: the package's
 * default, prec_bits=32. */
#include "variants/shampoo/slots.h"

const struct qm_variant qm_variant_shampoo_sgd_f32 = {
    .name = "shampoo_sgd_f32",
    .summary = "Shampoo in eigenvector form on top of SGD, float32 preconditioners",
    .source = "arXiv:2405.18144; low-bit-Shampoo commit fc46867, optimizers/shampoo2.py",
    .rule = "shampoo_sgd",
    .slot = {{.name = "momentum_buffer", .quantizer = "f32"}, QM_SHAMPOO_SLOTS("f32")},
    .hyper = {.lr = 0.1, .momentum = 0.9, QM_SHAMPOO_HYPER},
    .state_bits = 160.0625,
    .step_sqnr_db = 100.0,
};
