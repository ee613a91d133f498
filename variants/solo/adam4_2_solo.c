/* adam4_2_solo.c - The 4/2 default of SOLO's AdamQ.
 *
 *   exp_avg     signed dynamic map, one absmax per block, at least 1e-12; ties go up
 *   exp_avg_sq  maximum and 0.1-quantile of each block, codes spaced evenly in the logarithm,
 *               rounded at random (core/quant/quantile_log.h)
 *
 * A state's blocks are of the largest divisor of its number of elements up to 128.  States of fewer
 * than 128 elements, and those whose codes do not fill whole bytes, keep the parameter's type. */
#include "core/recipe/variant.h"

const struct qm_variant qm_variant_adam4_2_solo = {
    .name = "adam4_2_solo",
    .summary = "Adam of SOLO: 4-bit dynamic exp_avg, 2-bit logarithmic exp_avg_sq",
    .source = "arXiv:2505.00347; package solow 0.2.0, solo/adam.py, quantizer/",
    .rule = "adam_solo",
    .slot =
        {
            {"exp_avg", "dyn:4s/divblock:128/bisect/near/hi/floor:1e-12", .min_numel = 128,
             .whole_blocks = 1},
            {"exp_avg_sq", "qlog:2u/divblock:128/arith/dither/hi/qlog/floor:1e-12/quantile:0.1",
             .min_numel = 128, .whole_blocks = 1},
        },
    .hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .pads = QM_PADS_tables,
    .state_bits = 6.75,
    .step_sqnr_db = 0.5,
};
