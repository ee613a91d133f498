/* adamw.h - AXIS rule, family adamw and adam: one element, in each source's order (dual).
 *
 * c[] of every function is filled by the prepare of the same name in family_adamw.c; reciprocal
 * holds those of the divisors that it prepares, and may be null (core/base/inverse.h: the same bits). */
#ifndef QM_RULE_ADAMW_H
#define QM_RULE_ADAMW_H

#include "core/base/inverse.h"

/* torch.lerp on CPU with FMA: a + w (b - a) below w = 1/2, from the other end above it. */
QM_FN float qm_lerp(float a, float b, float w, float w_minus_1)
{
    return fmaf(w < 0.5f ? w : w_minus_1, b - a, w < 0.5f ? a : b);
}

/* torch.optim.AdamW and Adam, float32 on CPU: torch/optim/adamw.py _single_tensor_adamw.
 * c: 0 decay factor, 1 beta1, 2 1-beta1, 3 beta2, 4 1-beta2, 5 sqrt(bc2), 6 eps, 7 -lr/bc1, 8 L2 */
QM_FN void qm_adamw_torch_states(const float *c, int coupled, float *p, float g, float *m, float *v)
{
    if (coupled)
        g = fmaf(*p, c[8], g);
    else
        *p = *p * c[0];
    *m = fmaf(g, c[2], *m * c[1]);
    *v = fmaf(c[4] * g, g, *v * c[3]);
}

QM_FN void qm_adamw_torch_apply(const float *c, const struct qm_inverse *reciprocal, float *p,
                                float m, float v)
{
    float den = qm_divided(sqrtf(v), c[5], reciprocal) + c[6];
    *p = *p + (c[7] * m) / den;
}

/* torch.maximum: NaN of either side wins. */
QM_FN float qm_adamw_top(float top, float v) { return v > top || qm_isnan(v) ? v : top; }

/* torchao/optim/adam.py single_param_adam.  c: 0 lr*wd, 1 w1, 2 w1-1, 3 w2, 4 w2-1, 5 c1,
 * 6 sqrt(c2), 7 eps, 8 lr, 9 wd */
QM_FN void qm_adamw_ao_states(const float *c, int coupled, float p, float g, float *m, float *v)
{
    if (coupled)
        g = g + c[9] * p;
    *m = qm_lerp(*m, g, c[1], c[2]);
    *v = qm_lerp(*v, g * g, c[3], c[4]);
}

/* The decay of the old parameter, which the source takes first, needs neither moment. */
QM_FN void qm_adamw_ao_apply(const float *c, const struct qm_inverse *reciprocal, int coupled,
                             float *p, float m, float v)
{
    float den = qm_divided(sqrtf(v), c[6], reciprocal) + c[7];
    float old = coupled ? *p : *p - c[0] * *p;
    *p = old - ((c[8] * qm_divided(m, c[5], reciprocal ? reciprocal + 1 : 0)) / den);
}

/* bitsandbytes backends/cpu, 8-bit Adam.  c: 0 decay factor, 1 beta1, 2 1-beta1, 3 beta2,
 * 4 1-beta2, 5 sqrt(bc2), 6 eps, 7 -lr/bc1 */
QM_FN void qm_adamw_bnb_states(const float *c, float g, float *m, float *v)
{
    *m = fmaf(g, c[2], *m * c[1]);
    *v = fmaf(c[4] * g, g, *v * c[3]);
}

QM_FN void qm_adamw_bnb_apply(const float *c, const struct qm_inverse *reciprocal, float *p,
                              float m, float v)
{
    float den = qm_divided(sqrtf(v), c[5], reciprocal) + c[6];
    *p = *p * c[0];
    *p = *p + (c[7] * m) / den;
}

#endif
