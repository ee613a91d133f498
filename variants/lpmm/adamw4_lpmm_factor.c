/* adamw4_lpmm_factor.c - "4-bit Factor": factor_second_moment=True with lpmm's defaults.
 *
 *   exp_avg                         dynamic exponent map, one absmax per 128 elements
 *   exp_avg_sq_row, exp_avg_sq_col  of matrices and kernels: float32 whatever the size
 *   exp_avg_sq                      of vectors only: linear map without a zero code, blocks of 128
 *
 * Tensors of at most 4096 elements keep exp_avg and exp_avg_sq in float32.
 *
 * Speed: the means of the squared gradient over all rows and columns precede the first update.
 * Passes over memory: three over the gradient (average, row means, column means), four over the
 * momentum (decoded, averaged, encoded, read), one over the parameter; adamw_f32 makes one pass
 * over each of its four arrays. 0.43 of adamw_f32 (16 M parameters, one thread). */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adamw4_lpmm_factor = {
    .name = "adamw4_lpmm_factor",
    .summary = "4-bit AdamW: dynamic exp_avg, factored exp_avg_sq (lpmm)",
    .source = "arXiv:2309.01507; low-bit-optimizers, lpmm/optim/adamw.py",
    .rule = "adamw_lpmm_factor",
    .slot =
        {
            {"exp_avg", "de:4s/block:128/bisect/mid/lo/nantop", .min_numel = 4097},
            {"exp_avg_sq", "lin:4u/block:128/bisect/mid/lo/nantop", .min_numel = 4097},
            {.name = "exp_avg_sq_row", .quantizer = "f32"},
            {.name = "exp_avg_sq_col", .quantizer = "f32"},
        },
    .hyper = {.lr = 1e-3,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .eps = 1e-8,
              .weight_decay = 1e-2,
              .factored = 1},
    .state_bits = 4.3125, /* 4 + 32/128 and 32 (1024 + 1024) / 1024^2 */
    .step_sqnr_db = 10.0,
};
