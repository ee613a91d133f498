/* lion8.h - One element of Lion 8-bit and of FlashOptim's Lion, Adam and SGD (dual).
 *
 * Lion 8-bit is DecoupledLionW_8bit.  The scalars c[] are those that the prepare functions of
 * family_lion8.c form. */
#ifndef QM_RULE_LION8_H
#define QM_RULE_LION8_H

#include "core/rule/adamw.h"
#include "core/rule/lion.h"
#include "core/rule/param.h"

/* flag[] of lion8_unfused, besides QM_FLAG_MAXIMIZE. */
enum {
    QM_FLAG_ROUND_FACTOR = 3 /* the decay factor is rounded to the format of the parameter */
};

/* sign(0) = 0 for either zero, sign(NaN) = 0. */
QM_FN float qm_sign(float x) { return (float)((x > 0.0f) - (x < 0.0f)); }

/* c[] of prepare_lion8_unfused. */
enum {
    QM_LION8_KEEP,       /* 1 - decay */
    QM_LION8_W1,         /* w1 = 1 - beta1 */
    QM_LION8_W1_MINUS_1, /* w1 - 1 */
    QM_LION8_W2,         /* w2 = 1 - beta2 */
    QM_LION8_W2_MINUS_1, /* w2 - 1 */
    QM_LION8_LR,         /* lr */
    QM_LION8_SCALARS
};

/* llm-foundry lion8b.py lion_step_unfused: lerp is fused (torch on CPU, float32).  A parameter
 * of 16 bits is rounded after the decay, which is done here, and after the step, which the
 * engine does. */
QM_FN void qm_lion8_unfused(const float *c, enum qm_param_format format, float *p, float g,
                            float *m)
{
    float u = qm_sign(qm_lerp(*m, g, c[QM_LION8_W1], c[QM_LION8_W1_MINUS_1]));
    *p = qm_param_widen(format, qm_param_nearest(format, *p * c[QM_LION8_KEEP]));
    *p = *p - c[QM_LION8_LR] * u;
    *m = qm_lerp(*m, g, c[QM_LION8_W2], c[QM_LION8_W2_MINUS_1]);
}

/* FlashOptim flashoptim/optimizers.py, fused Lion step: no multiplication and addition are fused,
 * and the parameter stays in float32 throughout.  c[]: QM_LION_... */
QM_FN void qm_lion8_fused(const float *c, float *p, float g, float *m)
{
    float u = qm_sign(*m * c[QM_LION_BETA1] + g * c[QM_LION_ONE_MINUS_BETA1]);
    *m = *m * c[QM_LION_BETA2] + g * c[QM_LION_ONE_MINUS_BETA2];
    *p = *p * c[QM_LION_KEEP] - u * c[QM_LION_LR];
}

/* c[] of prepare_flash_adamw and prepare_flash_sgdw. */
enum {
    QM_FLASH_KEEP,            /* 1 - decay */
    QM_FLASH_BETA1,           /* beta1 */
    QM_FLASH_ONE_MINUS_BETA1, /* 1 - beta1 */
    QM_FLASH_BETA2,           /* beta2 */
    QM_FLASH_ONE_MINUS_BETA2, /* 1 - beta2 */
    QM_FLASH_LR,              /* lr */
    QM_FLASH_BC1,             /* 1 - beta1^t; reciprocal 0 */
    QM_FLASH_BC2,             /* 1 - beta2^t; reciprocal 1 */
    QM_FLASH_EPS,             /* eps */
    QM_FLASH_L2,              /* weight_decay */
    QM_FLASH_SCALARS,
    QM_FLASH_MOMENTUM = QM_FLASH_BETA1,                     /* SGD: momentum */
    QM_FLASH_ONE_MINUS_DAMPENING = QM_FLASH_ONE_MINUS_BETA1 /* SGD: 1 - dampening */
};

/* The Adam step of the same file; reciprocal: see adamw.h. */
QM_FN void qm_flash_adam_states(const float *c, int coupled, float p, float g, float *m, float *v)
{
    if (coupled)
        g = g + p * c[QM_FLASH_L2];
    *m = *m * c[QM_FLASH_BETA1] + g * c[QM_FLASH_ONE_MINUS_BETA1];
    *v = *v * c[QM_FLASH_BETA2] + (g * g) * c[QM_FLASH_ONE_MINUS_BETA2];
}

QM_FN void qm_flash_adam_apply(const float *c, const struct qm_inverse *reciprocal, int coupled,
                               float *p, float m, float v)
{
    float old = coupled ? *p : *p * c[QM_FLASH_KEEP];
    float second = qm_divided(v, c[QM_FLASH_BC2], reciprocal ? reciprocal + 1 : 0);
    float den = sqrtf(second) + c[QM_FLASH_EPS];
    *p = old - (c[QM_FLASH_LR] * qm_divided(m, c[QM_FLASH_BC1], reciprocal)) / den;
}

/* The SGD step of the same file. */
QM_FN void qm_flash_sgd(const float *c, int coupled, int nesterov, float *p, float g, float *m)
{
    if (coupled)
        g = g + *p * c[QM_FLASH_L2];
    else
        *p = *p * c[QM_FLASH_KEEP];
    *m = *m * c[QM_FLASH_MOMENTUM] + g * c[QM_FLASH_ONE_MINUS_DAMPENING];
    *p = *p - (nesterov ? g + c[QM_FLASH_MOMENTUM] * *m : *m) * c[QM_FLASH_LR];
}

#endif
