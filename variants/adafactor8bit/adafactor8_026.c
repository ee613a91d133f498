/* adafactor8_026.c - Adafactor of adafactor8bit 0.2.6: uniform 4-bit momentum again, other scale.
 *
 *   exp_avg             uniform integers -8..7, scale = absmax per 128: +absmax is stored as 7/8 of it
 *   row_var, col_var    8 bits in log2 space above 2^-126, one maximum per 2048
 *   variance            likewise, of tensors of one dimension
 *
 * The update reads the codes back (CUDA path, the package's default).
 * Package defaults, but for beta1 = 0.9 where the package has no first moment unless asked.  Tensors
 * of fewer than 4096 elements keep float32.  The package pads every factor to whole blocks, which is
 * not counted here.
 *
 * Speed: a factored rule must read everything three times: the means of the squared gradient come
 * before the update, the update's RMS and the parameter's before the step. Passes over memory: two
 * over the gradient (means, average), six over the momentum (averaged, read for the norm and for
 * the step, to and twice from its codes), two over the parameter; the update is formed twice and
 * never stored. adamw_f32 makes one pass over each of its four arrays. The order of the four sums
 * is fixed. 0.29 of adamw_f32 on one thread, 0.26 on two (16 M parameters). */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adafactor8_026 = {
    .name = "adafactor8_026",
    .summary = "Adafactor, uniform int4 momentum, log2 V, CUDA path (adafactor8bit 0.2.6)",
    .source = "adafactor8bit 0.2.6 kernels.cu",
    .rule = "adafactor8_cuda",
    .slot =
        {
            {"exp_avg", "intm:4s/block:128/arith/even/hi/recip/floor:1e-12/maxskip/nanzero",
             .min_numel = 4096, .init_code = 8, .init_scale = 1.0f},
            {"row_var", "logf:8u/logblock:2048/arith/near/recip/cap:252/maxskip", .min_numel = 4096,
             .init_scale = 1.0f},
            {"col_var", "logf:8u/logblock:2048/arith/near/recip/cap:252/maxskip", .min_numel = 4096,
             .init_scale = 1.0f},
            {"variance", "logf:8u/logblock:2048/arith/near/recip/cap:252/maxskip",
             .min_numel = 4096, .init_scale = 1.0f},
            {"conf_row", "logf:8u/logblock:2048/arith/near/recip/cap:252/maxskip",
             .min_numel = 4096, .init_scale = 1.0f},
            {"conf_col", "logf:8u/logblock:2048/arith/near/recip/cap:252/maxskip",
             .min_numel = 4096, .init_scale = 1.0f},
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
              .factored = 1},
    .state_used = "stored",
    .state_bits = 4.26568603515625,
    .step_sqnr_db = 19.0,
};
