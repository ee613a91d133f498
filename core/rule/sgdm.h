/* sgdm.h - AXIS rule, families sgdm and ema: one element (dual). */
#ifndef QM_RULE_SGDM_H
#define QM_RULE_SGDM_H

#include "core/rule/adamw.h"

/* torch.optim.SGD, float32 on CPU: every a + alpha b is one fma.
 * c: 0 L2, 1 momentum, 2 1-dampening, 3 -lr; the first buffer is d itself. */
QM_FN void qm_sgdm_torch(const float *c, int first, int nesterov, float *p, float g, float *b)
{
    float d = c[0] != 0.0f ? fmaf(*p, c[0], g) : g;
    if (c[1] != 0.0f) {
        *b = first ? d : fmaf(d, c[2], *b * c[1]);
        d = nesterov ? fmaf(*b, c[1], d) : *b;
    }
    *p = fmaf(d, c[3], *p);
}

/* m <- lerp(m, g, 1 - beta1); the parameter is not touched.  c: 0 w, 1 w-1 */
QM_FN void qm_ema_lerp(const float *c, float g, float *m) { *m = qm_lerp(*m, g, c[0], c[1]); }

#endif
