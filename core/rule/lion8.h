/* lion8.h - AXIS rule, families lion8, sgdw and FlashOptim's orders of adamw, adam and sgdm: one
 * element (dual).
 *
 * c[] of every function is filled by the prepare of the same name in family_lion8.c. */
#ifndef QM_RULE_LION8_H
#define QM_RULE_LION8_H

#include "core/param.h"
#include "core/rule/adamw.h"

/* sign(0) = 0 of either zero, sign(NaN) = 0. */
QM_FN float qm_sign(float x) { return (float)((x > 0.0f) - (x < 0.0f)); }

/* llm-foundry lion8b.py lion_step_unfused: lerp is fused (torch CPU, float32), and a parameter of
 * 16 bits is rounded after the decay as well as after the step, which is the engine's business.
 * c: 0 decay factor, 1 1-beta1, 2 (1-beta1)-1, 3 1-beta2, 4 (1-beta2)-1, 5 lr */
QM_FN void qm_lion8_unfused(const float *c, enum qm_param_format format, float *p, float g,
                            float *m)
{
    float u = qm_sign(qm_lerp(*m, g, c[1], c[2]));
    *p = qm_param_widen(format, qm_param_nearest(format, *p * c[0]));
    *p = *p - c[5] * u;
    *m = qm_lerp(*m, g, c[3], c[4]);
}

/* FlashOptim flashoptim/optimizers.py, fused Lion step: nothing is fused into multiply-adds, and
 * the parameter stays in float32 throughout.
 * c: 0 decay factor, 1 beta1, 2 1-beta1, 3 beta2, 4 1-beta2, 5 lr */
QM_FN void qm_lion8_fused(const float *c, float *p, float g, float *m)
{
    float u = qm_sign(*m * c[1] + g * c[2]);
    *m = *m * c[3] + g * c[4];
    *p = *p * c[0] - u * c[5];
}

/* The same project's Adam step.  reciprocal: of c[6] and c[7], or null (adamw.h).
 * c: 0 decay factor, 1 beta1, 2 1-beta1, 3 beta2, 4 1-beta2, 5 lr, 6 bc1, 7 bc2, 8 eps, 9 L2 */
QM_FN void qm_flash_adam_states(const float *c, int coupled, float p, float g, float *m, float *v)
{
    if (coupled)
        g = g + p * c[9];
    *m = *m * c[1] + g * c[2];
    *v = *v * c[3] + (g * g) * c[4];
}

QM_FN void qm_flash_adam_apply(const float *c, const struct qm_inverse *reciprocal, int coupled,
                               float *p, float m, float v)
{
    float old = coupled ? *p : *p * c[0];
    float den = sqrtf(qm_divided(v, c[7], reciprocal ? reciprocal + 1 : 0)) + c[8];
    *p = old - (c[5] * qm_divided(m, c[6], reciprocal)) / den;
}

/* Its SGD step.  c: 0 decay factor, 1 momentum, 2 1-dampening, 5 lr, 9 L2 */
QM_FN void qm_flash_sgd(const float *c, int coupled, int nesterov, float *p, float g, float *m)
{
    if (coupled)
        g = g + *p * c[9];
    else
        *p = *p * c[0];
    *m = *m * c[1] + g * c[2];
    *p = *p - (nesterov ? g + c[1] * *m : *m) * c[5];
}

#endif
