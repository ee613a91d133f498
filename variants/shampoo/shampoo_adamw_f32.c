/* shampoo_adamw_f32.c - Shampoo in eigenvector form on top of AdamW, full precision: the package's
 * default, prec_bits=32. */
#include "variants/shampoo/slots.h"

const struct qm_variant qm_variant_shampoo_adamw_f32 = {
    .name = "shampoo_adamw_f32",
    .summary = "Shampoo in eigenvector form on top of AdamW, float32 preconditioners",
    .source = "arXiv:2405.18144; low-bit-Shampoo commit fc46867, optimizers/shampoo2.py",
    .rule = "shampoo_adamw",
    .slot = {{.name = "exp_avg", .quantizer = "f32"},
             {.name = "exp_avg_sq", .quantizer = "f32"},
             QM_SHAMPOO_SLOTS("f32")},
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, QM_SHAMPOO_HYPER},
    .state_bits = 192.0625,
    .step_sqnr_db = 100.0,
};
