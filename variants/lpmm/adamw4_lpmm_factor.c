/* adamw4_lpmm_factor.c - "4-bit Factor": factor_second_moment=True with lpmm's defaults.
 *
 *   exp_avg                         dynamic exponent map, one absmax per 128 elements
 *   exp_avg_sq_row, exp_avg_sq_col  of two and more dimensions: float32 at any size
 *   exp_avg_sq                      of vectors only: linear map without a zero code, blocks of 128
 *
 * Tensors of at most 4096 elements keep exp_avg and exp_avg_sq in float32.
 *
 * The means of the squared gradient over all rows and columns precede the first update, so a step
 * passes three times over the gradient (average, row means, column means), four times over the
 * momentum (decoded, averaged, encoded, read) and once over the parameter. */
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
