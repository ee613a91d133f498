/* curve.h - AXIS curve: a monotone function applied to x before its scale is taken, and undone
 * after decoding (dual).  Words: none (not printed), log2, allog, sqrt, softsign. */
#ifndef QM_QUANT_CURVE_H
#define QM_QUANT_CURVE_H

#include "core/base/logexp.h"

/* clang-format off */
#define QM_CURVE_LIST(X)                                                                        \
    X(none,     "x itself")                                                                     \
    X(log2,     "log2(max(x, 2^-126)) + 126; unsigned states only (adafactor8bit 0.2.x V)")     \
    X(allog,    "log2 between the block's own ends, two numbers per block (adaptive_log.h, adafactor8bit 0.4.3)") \
    X(sqrt,     "square root; unsigned states only (FlashOptim's second moment)")               \
    X(softsign, "2u / (1 + |u|) of the unit value u, undone by u / (2 - |u|) (FlashOptim)")
/* clang-format on */

enum qm_curve {
#define X(name, text) QM_CURVE_##name,
    QM_CURVE_LIST(X)
#undef X
        QM_CURVE_COUNT
};

/* Before the scale: softsign acts on the unit value instead (qm_curve_unit). */
QM_FN float qm_curve_to(enum qm_curve curve, float x)
{
    switch (curve) {
    case QM_CURVE_log2: /* NaN stays NaN, negative x counts as the floor */
        return qm_log2(x < 1.17549435e-38f ? 1.17549435e-38f : x) + 126.0f;
    case QM_CURVE_sqrt: return sqrtf(x);
    default: return x;
    }
}

QM_FN float qm_curve_from(enum qm_curve curve, float u)
{
    switch (curve) {
    case QM_CURVE_log2: return qm_exp2(u - 126.0f);
    case QM_CURVE_sqrt: return u * u;
    default: return u;
    }
}

/* After the scale: on unit values in [-1, 1]. */
QM_FN float qm_curve_unit_to(enum qm_curve curve, float y)
{
    return curve == QM_CURVE_softsign ? (2.0f * y) / (1.0f + fabsf(y)) : y;
}

QM_FN float qm_curve_unit_from(enum qm_curve curve, float y)
{
    return curve == QM_CURVE_softsign ? y / (2.0f - fabsf(y)) : y;
}

#endif
