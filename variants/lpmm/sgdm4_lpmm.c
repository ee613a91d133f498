/* sgdm4_lpmm.c - SGD with 4-bit momentum, as lpmm configures it by default.
 *
 * The source's default momentum is none, which has no state; here it is 0.9.  Tensors of at most
 * 4096 elements keep the buffer in float32. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_sgdm4_lpmm = {
    .name = "sgdm4_lpmm",
    .summary = "SGD with 4-bit momentum: dynamic map, blocks of 128 (lpmm)",
    .source = "arXiv:2309.01507; low-bit-optimizers, lpmm/optim/sgd.py",
    .rule = "sgdm_lpmm",
    .slot = {{"momentum_buffer", "de:4s/block:128/bisect/mid/lo/nantop", .min_numel = 4097}},
    .hyper = {.lr = 1e-2, .momentum = 0.9},
    .state_bits = 4.25,
    .step_sqnr_db = 10.0,
};
