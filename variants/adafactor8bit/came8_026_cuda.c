/* came8_026_cuda.c - CAME of adafactor8bit 0.2.6 on its CUDA path, the package's default.
 *
 *   exp_avg             uniform integers -8..7, scale = absmax per 128
 *   row_var, col_var    8 bits in log2 space above 2^-126, one maximum per 2048
 *   variance            likewise, of tensors of one dimension
 *   conf_row, conf_col  likewise; they begin at 2^-126
 *
 * Every state is encoded before the next is formed of it: the momentum of what the second moment's
 * codes give, the confidence of what the momentum's do.  No second clip (came8_026 has one).  So the
 * confidence carries the error of two log codes, of about 20 dB each: hence its lower floor.
 * Package defaults, but for the betas (None there): 0.9, 0.999, 0.9999.  Tensors of fewer than 4096
 * elements keep float32.  The package pads every factor to whole blocks, which is not counted
 * here.
 *
 * Speed: a factored rule must read everything five times: the means of the squared gradient come
 * before the update, its RMS before the momentum, the means of their squared distance before the
 * step, whose RMS and the parameter's come before it is taken. Passes over memory: four over the
 * gradient, seven over the momentum (three of them its codes', which come between the momentum and
 * the residual), two over the parameter; of two updates one is formed three times, one twice, and
 * none is stored. adamw_f32 makes one pass over each of its four arrays. The order of the seven
 * sums is fixed. 0.196 of adamw_f32 on one thread, 0.16 on two (16 M parameters; 4.3 and 2.6 ns
 * each). These passes with next to no arithmetic take 2.4 and 1.1 ns; the same arithmetic on
 * numbers in the first-level cache takes 2.3 on one thread (sums of squares 0.6, of rows and
 * columns 0.5, updates 0.9, the rest 0.3), the codes come on top. 0.2 on two threads would be 2.1
 * ns; adamw_f32, which does little but move memory, is twice as fast there (0.84 to 0.41 ns). */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_came8_026_cuda = {
    .name = "came8_026_cuda",
    .summary = "CAME, uniform int4 momentum, log2 V, CUDA path (adafactor8bit 0.2.6)",
    .source = "adafactor8bit 0.2.6 optimizer.py _update_param_8bit; kernels.cu",
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
              .beta3 = 0.9999},
    .state_used = "stored",
    .state_bits = 4.2813720703125,
    .step_sqnr_db = 15.5,
};
