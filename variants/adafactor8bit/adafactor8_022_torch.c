/* adafactor8_022_torch.c - the same 0.2.2 without CUDA, reconstructed.
 *
 *   exp_avg             uniform integers -7..7, scale = absmax / 7 per 128
 *   row_var, col_var    8 bits in log2 space above 2^-126, one maximum per 2048
 *   variance            likewise, of tensors of one dimension
 *
 * 0.2.2 is not available as text: a reconstruction, 0.2.1 with the reshape of 1-D codes that the
 * published difference to 0.2.4 proves.
 * The update uses the moments before they are encoded (PyTorch path).
 * Package defaults, but for beta1 = 0.9 where the package has no first moment unless asked.  Tensors
 * of fewer than 4096 elements keep float32.  The package pads every factor to whole blocks, which is
 * not counted here.
 *
 * Speed: a factored rule must read everything three times: the means of the squared gradient come
 * before the update, the update's RMS and the parameter's before the step. Passes over memory: two
 * over the gradient (means, average), five over the momentum (averaged, read for the norm and for
 * the step, and to and from its codes), two over the parameter; the update is formed twice and
 * never stored. adamw_f32 makes one pass over each of its four arrays. The order of the four sums
 * is fixed. 0.34 of adamw_f32 on one thread, 0.28 on two (16 M parameters). */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adafactor8_022_torch = {
    .name = "adafactor8_022_torch",
    .summary = "Adafactor, uniform int4 momentum, log2 V, PyTorch path (adafactor8bit 0.2.2, "
               "reconstructed)",
    .source = "adafactor8bit 0.2.1 optimizer.py; published difference 0.2.2 to 0.2.4",
    .rule = "adafactor8_021",
    .slot =
        {
            {"exp_avg", "int:4s/block:128/arith/even/hi/floor:1e-12", .min_numel = 4096,
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
    .state_bits = 4.26568603515625,
    .step_sqnr_db = 19.0,
};
