/* apollo8_026.c - APOLLO of adafactor8bit 0.2.6 at the documented rank 256.
 *
 *   exp_avg             of the projected gradient; uniform integers -8..7, scale = absmax per 128
 *   variance            likewise; 8 bits in log2 space above 2^-126, one maximum per 2048
 *   row_var, col_var    float32, in place of variance when factored (apollo_factorize)
 *
 * Tensors of two and more dimensions are projected, vectors take plain Adafactor.  The update uses
 * the momentum before it is encoded and the second moment after it (PyTorch path).  Package defaults
 * but for beta1 and the rank.  Tensors of fewer than 4096 elements keep float32.  From the second
 * step the package also holds a momentum of the full size that nothing reads: not counted here.
 *
 * Speed: the projection is a matrix product, 256 multiply-adds in double per parameter before the
 * first update and, as nothing keeps it, once more for the step: 1024 operations, where adamw_f32
 * has 14; their order is fixed. 0.008 of adamw_f32 (4 M parameters, one thread, new projections
 * included). */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_apollo8_026 = {
    .name = "apollo8_026",
    .summary = "APOLLO rank 256, uniform int4 momentum, log2 V, PyTorch path (adafactor8bit 0.2.6)",
    .source = "adafactor8bit 0.2.6 optimizer.py _update_param_apollo",
    .rule = "adafactor8",
    .slot =
        {
            {"exp_avg", "intm:4s/block:128/arith/even/hi/floor:1e-12", .min_numel = 4096,
             .init_code = 8, .init_scale = 1.0f},
            {.name = "row_var", .quantizer = "f32"},
            {.name = "col_var", .quantizer = "f32"},
            {"variance", "log:8u/logblock:2048/arith/even/floor:1e-12", .min_numel = 4096,
             .init_scale = 1.0f},
            {"conf_row", "log:8u/logblock:2048/arith/even/floor:1e-12", .min_numel = 4096,
             .init_scale = 1.0f},
            {"conf_col", "log:8u/logblock:2048/arith/even/floor:1e-12", .min_numel = 4096,
             .init_scale = 1.0f},
            {.name = "prev_norm", .quantizer = "f32"},
            {.name = "proj", .quantizer = "f32"},
        },
    .hyper = {.lr = 1e-2,
              .beta1 = 0.9,
              .beta2 = -1.0,
              .beta2_decay = -0.8,
              .eps = 1e-8,
              .eps1 = -1.0,
              .eps2 = 1e-3,
              .clip = 1.0,
              .gap = 200.0,
              .scale = 1.0,
              .margin = 0.01,
              .relative_step = 1,
              .scale_parameter = 1,
              .scale_weight_decay = 1,
              .rank = 256.0},
    .state_bits = 3.066436767578125,
    .step_sqnr_db = 19.0,
};
