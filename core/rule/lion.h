/* lion.h - AXIS rule, family lion: one element (dual). */
#ifndef QM_RULE_LION_H
#define QM_RULE_LION_H

#include "core/base/dual.h"

/* google/automl lion/lion_pytorch.py, float32 on CPU: the interpolation is three operations, the
 * moment is fused; the sign of 0 and of NaN is 0.
 * c: 0 decay factor, 1 beta1, 2 1-beta1, 3 beta2, 4 1-beta2, 5 lr */
QM_FN void qm_lion_automl(const float *c, float *p, float g, float *m)
{
    float u = *m * c[1] + g * c[2];
    float step = u > 0.0f ? c[5] : u < 0.0f ? -c[5] : 0.0f;
    *p = *p * c[0] - step;
    *m = fmaf(g, c[4], *m * c[3]);
}

#endif
