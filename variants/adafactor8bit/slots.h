/* slots.h - Slot tables and hyper-parameters that the variants of adafactor8bit share.
 *
 *   exp_avg             4 bits, one scale per 128 elements
 *   row_var, col_var    8 bits of log2(x) above 2^-126, one maximum per 2048 elements
 *   variance            the same format; of tensors that are not factored
 *   conf_row, conf_col  the same format; CAME's confidence
 *   prev_norm, proj     float32; the limiter's norm and APOLLO's projection
 *
 * This is 0.2.x; 0.4.x has 8 bits and other blocks, stated at the end of this file.
 *
 * Tensors of fewer than 4096 elements keep float32 (min_8bit_size).  The package pads every factor
 * to whole blocks; `qualm size` counts the padding, state_bits does not.
 * variants/README.md tells which release computes what.
 *
 * Passes over memory: Adafactor needs the means of the squared gradient before the update, and the
 * RMS of the update and of the parameter before the step.  It reads the gradient twice and the
 * parameter twice; the update is formed twice and never stored.  The momentum is passed five times
 * on the PyTorch path (averaged, to and from its codes, read for the norm and for the step) and six
 * times on the CUDA path, which decodes it twice.  CAME adds the means of the squared distance
 * between update and momentum: it reads the gradient three times (four on the CUDA path) and passes
 * the momentum five times (seven).  The order of every sum is fixed. */
#ifndef QM_VARIANTS_ADAFACTOR8BIT_SLOTS_H
#define QM_VARIANTS_ADAFACTOR8BIT_SLOTS_H

#include "core/recipe/variant.h"

/* clang-format off */
/* PyTorch path: l = log2(x) + 126, M = max l of the block, code = rint(255 l / M).
 * CUDA path: the reciprocal 255 / M, halves upward, M at most 50 + 126 (to 0.2.4) or 126 + 126. */
#define QM_ADAFACTOR8_LOG          "log:8u/logblock:2048/arith/even/floor:1e-12"
#define QM_ADAFACTOR8_LOG_CUDA_021 "logf:8u/logblock:2048/arith/near/recip/cap:176/maxskip"
#define QM_ADAFACTOR8_LOG_CUDA_026 "logf:8u/logblock:2048/arith/near/recip/cap:252/maxskip"

/* A momentum of uniform integers begins with code 8, one of the 0.2.4 table with code 7: both 0.
 * A log slot begins with code 0 and scale 1, which mean 2^-126, or as ONE with code 255 and scale
 * 126, which mean 1. */
#define QM_ADAFACTOR8_UNIFORM(text) \
    {"exp_avg", text, .min_numel = 4096, .init_code = 8, .init_scale = 1.0f}
#define QM_ADAFACTOR8_TABLE(text) \
    {"exp_avg", text, .min_numel = 4096, .init_code = 7, .init_scale = 1.0f}
#define QM_ADAFACTOR8_VAR(slot, text) {slot, text, .min_numel = 4096, .init_scale = 1.0f}
#define QM_ADAFACTOR8_ONE(slot, text) \
    {slot, text, .min_numel = 4096, .init_code = 255, .init_scale = 126.0f}
#define QM_ADAFACTOR8_F32(slot_name) {.name = slot_name, .quantizer = "f32"}

/* The slots behind exp_avg, in the rule's order. */
#define QM_ADAFACTOR8_FACTORS(text) \
    QM_ADAFACTOR8_VAR("row_var", text), QM_ADAFACTOR8_VAR("col_var", text), \
    QM_ADAFACTOR8_VAR("variance", text)
#define QM_ADAFACTOR8_CONFIDENCE(text) \
    QM_ADAFACTOR8_VAR("conf_row", text), QM_ADAFACTOR8_VAR("conf_col", text)
#define QM_ADAFACTOR8_REST QM_ADAFACTOR8_F32("prev_norm"), QM_ADAFACTOR8_F32("proj")

/* The package's defaults, but for beta1 = 0.9: the package has no first moment unless asked.
 * eps1 = -1 stands for its None, float32's machine epsilon. */
#define QM_ADAFACTOR8_DEFAULTS                                                                     \
    .lr = 1e-2, .beta1 = 0.9, .beta2_decay = -0.8, .eps = 1e-8, .eps1 = -1.0, .eps2 = 1e-3,        \
    .clip = 1.0, .gap = 200.0, .scale = 1.0, .margin = 0.01, .relative_step = 1,                   \
    .scale_parameter = 1, .scale_weight_decay = 1
/* Adafactor and APOLLO: beta2 = -1 stands for None, a weight of t^beta2_decay for new squares. */
#define QM_ADAFACTOR8_SCHEDULE QM_ADAFACTOR8_DEFAULTS, .beta2 = -1.0
/* CAME, whose betas are None in the package: 0.9, 0.999, 0.9999. */
#define QM_ADAFACTOR8_CAME QM_ADAFACTOR8_DEFAULTS, .beta2 = 0.999, .beta3 = 0.9999, .factored = 1

/* 0.4.3 to 0.4.6: uf8 momentum in blocks of 256, al8 second moments in blocks of 2048: log2 between
 * the smallest non-zero and the largest number of a block, code 0 for 0. */
#define QM_ADAFACTOR8_UF8 \
    {"exp_avg", "intm:8s/block:256/arith/even/floor:1e-12", .min_numel = 4096, .init_code = 128, \
     .init_scale = 1.0f}
#define QM_ADAFACTOR8_AL8 "al:8u/block:2048/arith/even/allog"
/* Its defaults, but for beta1 = 0.9 as above; clip 1, and eps is eps_came. */
#define QM_ADAFACTOR8_DEFAULTS_046                                                                 \
    .lr = 1e-2, .beta1 = 0.9, .beta2_decay = -0.8, .eps = 1e-16, .eps1 = 1e-30, .eps2 = 1e-3,      \
    .clip = 1.0, .margin = 0.01, .relative_step = 1, .scale_parameter = 1, .scale_weight_decay = 1
/* clang-format on */

#endif
