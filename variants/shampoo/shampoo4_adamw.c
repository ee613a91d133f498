/* shampoo4_adamw.c - 4-bit Shampoo on top of AdamW.
 *
 * Eigenvectors and inverse roots of the covariances have 4-bit codes in blocks of 64 within a row;
 * eigenvalues and the diagonals of the roots stay float32, and so do Adam's moments.
 * Preconditioners of order below 64 keep float32. */
#include "variants/shampoo/slots.h"

const struct qm_variant qm_variant_shampoo4_adamw = {
    .name = "shampoo4_adamw",
    .summary = "4-bit Shampoo: eigenvectors and inverse roots in 4 bits, on top of AdamW",
    .source = "arXiv:2405.18144; low-bit-Shampoo commit fc46867, optimizers/shampoo2.py",
    .rule = "shampoo_adamw",
    .slot = {{.name = "exp_avg", .quantizer = "f32"},
             {.name = "exp_avg_sq", .quantizer = "f32"},
             QM_SHAMPOO_SLOTS(QM_SHAMPOO_4)},
    .hyper = {.lr = 1e-3,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .eps = 1e-8,
              QM_SHAMPOO_HYPER,
              .min_lowbit = 4096},
    .state_bits = 82.125,
    .step_sqnr_db = 100.0,
};
