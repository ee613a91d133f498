/* curve.h - AXIS curve: a monotone function of x, undone after decoding (dual).
 *
 * log2 and sqrt are applied before the scale is taken, softsign to the unit value; allog, qlog,
 * expand and affine replace scale and code by those of adaptive_log.h, quantile_log.h, expand.h and
 * affine.h, with several numbers per block (block_numbers.h).  Words: none (not printed), log2,
 * allog, qlog, expand:N, affine, sqrt, softsign. */
#ifndef QM_QUANT_CURVE_H
#define QM_QUANT_CURVE_H

#include "core/base/logexp.h"

/* clang-format off */
#define QM_CURVE_LIST(X)                                                                        \
    X(none,     "x itself")                                                                     \
    X(log2,     "log2(max(x, 2^-126)) + 126; unsigned states only (adafactor8bit 0.2.x V)")     \
    X(allog,    "log2 between the block's own ends, two numbers per block (adaptive_log.h, adafactor8bit 0.4.3)") \
    X(qlog,     "log2 between the maximum of a block and its quantile, two numbers per block "          \
                "(quantile_log.h, SOLO)")                                                           \
    X(expand,   "expand:N - the power k, a multiple of 1/N, that fits a block's range to e4m3, three numbers per "  \
                "block; without :N it is expand:16 (expand.h, COAT)")                                  \
    X(affine,   "x between the least and the largest element of a block, which it stores (affine.h, "  \
                "MicroAdam)")                                                                       \
    X(sqrt,     "square root; unsigned states only (FlashOptim's second moment)")               \
    X(softsign, "2u / (1 + |u|) of the unit value u, undone by u / (2 - |u|) (FlashOptim)")
/* clang-format on */

enum qm_curve {
#define X(name, text) QM_CURVE_##name,
    QM_CURVE_LIST(X)
#undef X
        QM_CURVE_COUNT
};

/* u = curve(x), of which the scale is taken; x itself for softsign, see qm_curve_unit_to. */
QM_FN float qm_curve_to(enum qm_curve curve, float x)
{
    switch (curve) {
    case QM_CURVE_log2: /* NaN stays NaN, x < 2^-126 counts as 2^-126 */
        return qm_log2(x < 1.17549435e-38f ? 1.17549435e-38f : x) + 126.0f;
    case QM_CURVE_sqrt: return sqrtf(x);
    default: return x;
    }
}

/* The inverse of qm_curve_to. */
QM_FN float qm_curve_from(enum qm_curve curve, float u)
{
    switch (curve) {
    case QM_CURVE_log2: return qm_exp2(u - 126.0f);
    case QM_CURVE_sqrt: return u * u;
    default: return u;
    }
}

/* The curve of a unit value y in [-1, 1]; y itself for all curves but softsign. */
QM_FN float qm_curve_unit_to(enum qm_curve curve, float y)
{
    return curve == QM_CURVE_softsign ? (2.0f * y) / (1.0f + fabsf(y)) : y;
}

/* The inverse of qm_curve_unit_to. */
QM_FN float qm_curve_unit_from(enum qm_curve curve, float y)
{
    return curve == QM_CURVE_softsign ? y / (2.0f - fabsf(y)) : y;
}

#endif
