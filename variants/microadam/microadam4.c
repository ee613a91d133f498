/* microadam4.c - MicroAdam with its 4-bit error feedback.
 *
 *   error  affine codes between the bfloat16 minimum and maximum of blocks of 64000 elements
 *   index  of each element of the window within its block of d_block elements, 16 bits
 *   value  of it, bfloat16
 *
 * d_block is 20864, which the package derives from the shared memory of the GPU it runs on (164 KiB
 * a multiprocessor); the window of 10 rows and the block of 64000 are the paper's. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_microadam4 = {
    .name = "microadam4",
    .summary = "MicroAdam: window of the largest 1 % of 10 gradients, 4-bit error feedback",
    .source = "arXiv:2405.15593; package ista-daslab-optimizers 1.1.3, micro_adam/micro_adam.py",
    .rule = "microadam",
    .slot = {{.name = "error", .quantizer = "affine:4s/block:64000/arith/near/hi/affine/bf16"},
             {.name = "index", .quantizer = "i16"},
             {.name = "value", .quantizer = "bf16"}},
    .param = "bf16",
    .hyper = {.lr = 1e-3,
              .beta1 = 0.9,
              .beta2 = 0.999,
              .eps = 1e-8,
              .window = 10,
              .k_init = 0.01,
              .d_block = 20864},
    .pads = QM_PADS_spare,
    .state_bits = 7.206085205078125,
    .step_sqnr_db = 0.5,
};
