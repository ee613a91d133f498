/* lion.h - One element of Lion (dual). */
#ifndef QM_RULE_LION_H
#define QM_RULE_LION_H

#include "core/base/dual.h"

/* c[] of the prepare functions of rules lion and lion8_fused. */
enum {
    QM_LION_KEEP,            /* 1 - decay */
    QM_LION_BETA1,           /* beta1 */
    QM_LION_ONE_MINUS_BETA1, /* 1 - beta1 */
    QM_LION_BETA2,           /* beta2 */
    QM_LION_ONE_MINUS_BETA2, /* 1 - beta2 */
    QM_LION_LR,              /* lr */
    QM_LION_SCALARS
};

/* The parameter and the moment, u being the interpolation; the update of the moment is fused; the
 * sign of 0 and of NaN is 0. */
QM_FN void qm_lion_apply(const float *c, float u, float *p, float g, float *m)
{
    float step = u > 0.0f ? c[QM_LION_LR] : u < 0.0f ? -c[QM_LION_LR] : 0.0f;
    *p = *p * c[QM_LION_KEEP] - step;
    *m = fmaf(g, c[QM_LION_ONE_MINUS_BETA2], *m * c[QM_LION_BETA2]);
}

/* google/automl lion/lion_pytorch.py, float32 on CPU: the interpolation takes three operations. */
QM_FN void qm_lion_automl(const float *c, float *p, float g, float *m)
{
    qm_lion_apply(c, *m * c[QM_LION_BETA1] + g * c[QM_LION_ONE_MINUS_BETA1], p, g, m);
}

/* lion-pytorch 0.2.5 lion_pytorch/lion_pytorch.py, float32 on CPU: add(grad, alpha) of the
 * interpolation is fused.  The sign may differ from that of three operations where the two terms
 * cancel. */
QM_FN void qm_lion_025(const float *c, float *p, float g, float *m)
{
    qm_lion_apply(c, fmaf(g, c[QM_LION_ONE_MINUS_BETA1], *m * c[QM_LION_BETA1]), p, g, m);
}

#endif
