/* came8_026.c - CAME of adafactor8bit 0.2.6.
 *
 *   exp_avg             uniform integers -8..7, scale = absmax per 128
 *   row_var, col_var    8 bits in log2 space above 2^-126, one maximum per 2048
 *   variance            likewise, of tensors of one dimension
 *   conf_row, conf_col  likewise; they begin at 2^-126
 *
 * The update uses the moments before they are encoded (PyTorch path).
 * Package defaults, but for the betas (None there): 0.9, 0.999, 0.9999.  Tensors of fewer than 4096
 * elements keep float32.  The package pads every factor to whole blocks, which is not counted here,
 * and it leaves out the second clip for float32 states, which this does not.
 *
 * Speed: a factored rule must read everything five times: the means of the squared gradient come
 * before the update, its RMS before the momentum, the means of their squared distance before the
 * step, whose RMS and the parameter's come before it is taken. Passes over memory: three over the
 * gradient, five over the momentum (two of them its codes'), two over the parameter; each of two
 * updates is formed twice and never stored. adamw_f32 makes one pass over each of its four arrays.
 * The order of the seven sums is fixed. 0.24 of adamw_f32 on one thread, 0.18 on two (16 M
 * parameters; 3.4 and 2.3 ns each). There 0.2 would be 2.1 ns, of which these passes with next to
 * no arithmetic take 1.0, while a second thread makes adamw_f32, which does little else, twice as
 * fast (0.84 to 0.41 ns). Where memory gave the second thread less (0.50 ns), it was 0.23. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_came8_026 = {
    .name = "came8_026",
    .summary = "CAME, uniform int4 momentum, log2 V, PyTorch path (adafactor8bit 0.2.6)",
    .source = "adafactor8bit 0.2.6 optimizer.py",
    .rule = "adafactor8",
    .slot =
        {
            {"exp_avg", "intm:4s/block:128/arith/even/hi/floor:1e-12", .min_numel = 4096,
             .init_code = 8, .init_scale = 1.0f},
            {"row_var", "log:8u/logblock:2048/arith/even/floor:1e-12", .min_numel = 4096,
             .init_scale = 1.0f},
            {"col_var", "log:8u/logblock:2048/arith/even/floor:1e-12", .min_numel = 4096,
             .init_scale = 1.0f},
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
              .beta2 = 0.999,
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
              .factored = 1,
              .clip_twice = 1,
              .beta3 = 0.9999},
    .state_bits = 4.2813720703125,
    .step_sqnr_db = 19.0,
};
