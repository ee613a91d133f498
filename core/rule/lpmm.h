/* lpmm.h - AXIS rule: AdamW of low-bit-optimizers (lpmm), one element (dual).
 *
 * c[] of every function is filled by the prepare of the same name in family_lpmm.c; reciprocal
 * as in adamw.h. */
#ifndef QM_RULE_LPMM_H
#define QM_RULE_LPMM_H

#include "core/rule/adamw.h"

/* lpmm/optim/adamw.py _single_tensor_adamw4bit, on CPU: torch's AdamW, but the first moment by lerp.
 * c: 0 decay factor, 1 1-beta1, 2 -beta1, 3 beta2, 4 1-beta2, 5 sqrt(bc2), 6 eps, 7 -lr/bc1 */
QM_FN void qm_adamw_lpmm_second(const float *c, float g, float *v)
{
    *v = fmaf(c[4] * g, g, *v * c[3]);
}

QM_FN void qm_adamw_lpmm_apply(const float *c, const struct qm_inverse *reciprocal, float *p,
                               float m, float v)
{
    float den = qm_divided(sqrtf(v), c[5], reciprocal) + c[6];
    *p = *p * c[0];
    *p = *p + (c[7] * m) / den;
}

QM_FN void qm_adamw_lpmm_states(const float *c, float g, float *m, float *v)
{
    *m = qm_lerp(*m, g, c[1], c[2]);
    qm_adamw_lpmm_second(c, g, v);
}

/* lpmm/cpp_extension/fused_adamw_kernel.cu adamw4bit_cuda_kernel and adamw_cuda_kernel, all float32,
 * decay of the old parameter within the step.  contract: the products that nvcc fuses for sm_80 by
 * default; otherwise none.
 * c: 0 beta1, 1 1-beta1, 2 beta2, 3 1-beta2, 4 sqrt(bc2), 5 eps, 6 bc1, 7 lr, 8 weight decay */
QM_FN float qm_lpmm_average(int contract, float old, float beta, float fresh)
{
    return contract ? fmaf(old, beta, fresh) : beta * old + fresh;
}

QM_FN void qm_adamw_lpmm_fused_states(const float *c, int contract, float g, float *m, float *v)
{
    *m = qm_lpmm_average(contract, *m, c[0], c[1] * g);
    *v = qm_lpmm_average(contract, *v, c[2], (c[3] * g) * g);
}

QM_FN void qm_adamw_lpmm_fused_apply(const float *c, const struct qm_inverse *reciprocal,
                                     int contract, float *p, float m, float v)
{
    float den = (qm_divided(sqrtf(v), c[4], reciprocal) + c[5]) * c[6];
    if (contract) {
        float update = fmaf(*p, c[8], m / den);
        *p = fmaf(-update, c[7], *p);
    } else {
        float update = m / den + c[8] * *p;
        *p = *p - c[7] * update;
    }
}

#endif
