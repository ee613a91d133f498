/* lpmm.h - One element of AdamW of low-bit-optimizers (lpmm) (dual).
 *
 * The scalars c[] are those that the prepare functions of family_lpmm.c form; reciprocal:
 * see adamw.h. */
#ifndef QM_RULE_LPMM_H
#define QM_RULE_LPMM_H

#include "core/rule/adamw.h"

/* flag[] of lpmm's AdamW, besides QM_FLAG_MAXIMIZE. */
enum {
    QM_FLAG_ABSENT = 2 /* QM_FLAG_ABSENT + i, i < 2: slot i does not exist yet and counts as 0 */
};

/* c[] of prepare_adamw. */
enum {
    QM_LPMM_KEEP,            /* 1 - lr weight_decay */
    QM_LPMM_W1,              /* w1 = 1 - beta1 */
    QM_LPMM_W1_MINUS_1,      /* w1 - 1 */
    QM_LPMM_BETA2,           /* beta2 */
    QM_LPMM_ONE_MINUS_BETA2, /* 1 - beta2 */
    QM_LPMM_ROOT_BC2,        /* sqrt(1 - beta2^t); reciprocal 0 */
    QM_LPMM_EPS,             /* eps */
    QM_LPMM_STEP,            /* -lr / (1 - beta1^t) */
    QM_LPMM_SCALARS
};

/* lpmm/optim/adamw.py _single_tensor_adamw4bit, on CPU: torch's AdamW, but the first moment
 * by lerp. */
QM_FN void qm_adamw_lpmm_second(const float *c, float g, float *v)
{
    *v = fmaf(c[QM_LPMM_ONE_MINUS_BETA2] * g, g, *v * c[QM_LPMM_BETA2]);
}

QM_FN void qm_adamw_lpmm_states(const float *c, float g, float *m, float *v)
{
    *m = qm_lerp(*m, g, c[QM_LPMM_W1], c[QM_LPMM_W1_MINUS_1]);
    qm_adamw_lpmm_second(c, g, v);
}

QM_FN void qm_adamw_lpmm_apply(const float *c, const struct qm_inverse *reciprocal, float *p,
                               float m, float v)
{
    float den = qm_divided(sqrtf(v), c[QM_LPMM_ROOT_BC2], reciprocal) + c[QM_LPMM_EPS];
    *p = *p * c[QM_LPMM_KEEP];
    *p = *p + (c[QM_LPMM_STEP] * m) / den;
}

/* c[] of prepare_fused. */
enum {
    QM_LPMM_FUSED_BETA1,           /* beta1 */
    QM_LPMM_FUSED_ONE_MINUS_BETA1, /* 1 - beta1 */
    QM_LPMM_FUSED_BETA2,           /* beta2 */
    QM_LPMM_FUSED_ONE_MINUS_BETA2, /* 1 - beta2 */
    QM_LPMM_FUSED_ROOT_BC2,        /* sqrt(1 - beta2^t); reciprocal 0 */
    QM_LPMM_FUSED_EPS,             /* eps */
    QM_LPMM_FUSED_BC1,             /* 1 - beta1^t */
    QM_LPMM_FUSED_LR,              /* lr */
    QM_LPMM_FUSED_DECAY,           /* weight_decay */
    QM_LPMM_FUSED_SCALARS
};

/* lpmm/cpp_extension/fused_adamw_kernel.cu adamw4bit_cuda_kernel and adamw_cuda_kernel, all
 * float32; the step decays the old parameter.  contract: products are fused with additions as nvcc
 * does for sm_80 by default; otherwise none is. */
QM_FN float qm_lpmm_average(int contract, float old, float beta, float fresh)
{
    return contract ? fmaf(old, beta, fresh) : beta * old + fresh;
}

QM_FN void qm_adamw_lpmm_fused_states(const float *c, int contract, float g, float *m, float *v)
{
    *m =
        qm_lpmm_average(contract, *m, c[QM_LPMM_FUSED_BETA1], c[QM_LPMM_FUSED_ONE_MINUS_BETA1] * g);
    *v = qm_lpmm_average(contract, *v, c[QM_LPMM_FUSED_BETA2],
                         (c[QM_LPMM_FUSED_ONE_MINUS_BETA2] * g) * g);
}

QM_FN void qm_adamw_lpmm_fused_apply(const float *c, const struct qm_inverse *reciprocal,
                                     int contract, float *p, float m, float v)
{
    float root = qm_divided(sqrtf(v), c[QM_LPMM_FUSED_ROOT_BC2], reciprocal);
    float den = (root + c[QM_LPMM_FUSED_EPS]) * c[QM_LPMM_FUSED_BC1];
    if (contract) {
        float update = fmaf(*p, c[QM_LPMM_FUSED_DECAY], m / den);
        /* The rate is negated and not the update: gcc folds the negation of a fused product into
         * it, and an exact 0 then has the other sign. */
        *p = fmaf(update, -c[QM_LPMM_FUSED_LR], *p);
    } else {
        float update = m / den + c[QM_LPMM_FUSED_DECAY] * *p;
        *p = *p - c[QM_LPMM_FUSED_LR] * update;
    }
}

#endif
