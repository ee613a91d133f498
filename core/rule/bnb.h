/* bnb.h - One element of bitsandbytes' updates, in the order of each of its back ends (dual).
 *
 * The forms are
 *
 *     8      backends/cpu/ops.py _optimizer_update_8bit_blockwise_cpu
 *     32     backends/cpu/ops.py _optimizer_update_32bit_cpu
 *     plain  backends/default/ops.py _optimizer_update_32bit: every operation rounds
 *     cuda   csrc/kernels.cu kOptimizerStatic8bit{1,2}StateBlockwise in IEEE arithmetic
 *
 * Forms 8 and 32 fuse where PyTorch on CPU does: add with alpha and addcmul, not addcdiv.  The
 * scalars c[] are those that the prepare functions of family_bnb.c and family_bnb_norm.c form.  A
 * moment that is the only one of its rule decays by beta1 if it is a first moment, by beta2 if it
 * is a second moment. */
#ifndef QM_RULE_BNB_H
#define QM_RULE_BNB_H

#include "core/base/dual.h"

/* flag[] of momentum, rmsprop and LARS. */
enum {
    QM_FLAG_BNB_FIRST,  /* the first step */
    QM_FLAG_BNB_COUPLED /* the L2 term is added to the gradient */
};

/* c[]; the denominators of the bias correction stand alone only where the form has them apart. */
enum {
    QM_BNB_GNORM_SCALE, /* gnorm_scale; Adam: 1, or -1 with maximize */
    QM_BNB_DECAY,       /* 1 - lr weight_decay; momentum, RMSprop, Adagrad, LARS: weight_decay */
    QM_BNB_BETA1,       /* beta1; momentum, LARS: momentum */
    QM_BNB_ONE_MINUS_BETA1, /* 1 - beta1 */
    QM_BNB_BETA2,           /* beta2; Adagrad: 1 */
    QM_BNB_ONE_MINUS_BETA2, /* 1 - beta2; Adagrad: 1 */
    QM_BNB_EPS,             /* eps as it is added; Adam, LAMB: eps sqrt(1 - beta2^t) */
    QM_BNB_STEP,            /* -lr; Adam, LAMB: -lr sqrt(1 - beta2^t) / (1 - beta1^t) */
    QM_BNB_BC1,             /* 1 - beta1^t; LAMB: its inverse */
    QM_BNB_ROOT_BC2,        /* sqrt(1 - beta2^t); LAMB: 1 / (1 - beta2^t) */
    QM_BNB_ALPHA,           /* AdEMAMix: weight of the slow moment */
    QM_BNB_BETA3,           /* AdEMAMix: decay of the slow moment */
    QM_BNB_ONE_MINUS_BETA3, /* 1 - beta3 */
    QM_BNB_SCALARS
};

/* The form: which back end (see above). */
enum qm_bnb_form { QM_BNB_8, QM_BNB_32, QM_BNB_plain, QM_BNB_cuda };

QM_FN int qm_bnb_fuses(enum qm_bnb_form form) { return form == QM_BNB_8 || form == QM_BNB_32; }

QM_FN int qm_bnb_finite(float x) { return (qm_bits(x) & 0x7fffffffu) < 0x7f800000u; }

/* The sign of NaN is 0. */
QM_FN float qm_bnb_sign(float x) { return (x > 0.0f ? 1.0f : 0.0f) - (x < 0.0f ? 1.0f : 0.0f); }

/* a + w x */
QM_FN float qm_bnb_add(enum qm_bnb_form form, float a, float w, float x)
{
    return qm_bnb_fuses(form) ? fmaf(x, w, a) : a + w * x;
}

/* a + w x^2 */
QM_FN float qm_bnb_add_square(enum qm_bnb_form form, float a, float w, float x)
{
    return qm_bnb_fuses(form) ? fmaf(w * x, x, a) : a + w * x * x;
}

/* Adam and AdamW: the decay is decoupled and comes before the step, in CUDA after it.  Where the
 * gradient is not finite, CUDA leaves the parameter as it is and sets its moments to 0. */
QM_FN void qm_bnb_adamw(enum qm_bnb_form form, const float *c, float *p, float g, float *m,
                        float *v)
{
    int take = form != QM_BNB_cuda || qm_bnb_finite(g);
    float x = g * c[QM_BNB_GNORM_SCALE], step;
    float first = qm_bnb_add(form, *m * c[QM_BNB_BETA1], c[QM_BNB_ONE_MINUS_BETA1], x);
    float second = qm_bnb_add_square(form, *v * c[QM_BNB_BETA2], c[QM_BNB_ONE_MINUS_BETA2], x);
    float u = first / (sqrtf(second) + c[QM_BNB_EPS]);
    if (form == QM_BNB_cuda)
        step = (*p + c[QM_BNB_STEP] * u) * c[QM_BNB_DECAY];
    else
        step = qm_bnb_add(form, *p * c[QM_BNB_DECAY], c[QM_BNB_STEP], u);
    *m = take ? first : 0.0f;
    *v = take ? second : 0.0f;
    *p = take ? step : *p;
}

/* AdEMAMix, arXiv:2409.03137: the moments of Adam, and a slow first moment. */
QM_FN void qm_bnb_ademamix(enum qm_bnb_form form, const float *c, float *p, float g, float *m,
                           float *slow, float *v)
{
    int take = form != QM_BNB_cuda || qm_bnb_finite(g);
    float x = g * c[QM_BNB_GNORM_SCALE], step;
    float first = qm_bnb_add(form, *m * c[QM_BNB_BETA1], c[QM_BNB_ONE_MINUS_BETA1], x);
    float third = qm_bnb_add(form, *slow * c[QM_BNB_BETA3], c[QM_BNB_ONE_MINUS_BETA3], x);
    float second = qm_bnb_add_square(form, *v * c[QM_BNB_BETA2], c[QM_BNB_ONE_MINUS_BETA2], x);
    float u = (first / c[QM_BNB_BC1] + c[QM_BNB_ALPHA] * third) /
              (sqrtf(second) / c[QM_BNB_ROOT_BC2] + c[QM_BNB_EPS]);
    if (form == QM_BNB_cuda)
        step = (*p + c[QM_BNB_STEP] * u) * c[QM_BNB_DECAY];
    else
        step = qm_bnb_add(form, *p * c[QM_BNB_DECAY], c[QM_BNB_STEP], u);
    *m = take ? first : 0.0f;
    *slow = take ? third : 0.0f;
    *v = take ? second : 0.0f;
    *p = take ? step : *p;
}

/* The momentum buffer, which on the first step is the gradient itself.  couples: with the
 * L2 term. */
QM_FN float qm_bnb_buffer(enum qm_bnb_form form, const float *c, int couples, int first, float p,
                          float g, float s)
{
    float d = couples ? qm_bnb_add(form, g * c[QM_BNB_GNORM_SCALE], c[QM_BNB_DECAY], p)
                      : g * c[QM_BNB_GNORM_SCALE];
    return first ? d : s * c[QM_BNB_BETA1] + d;
}

QM_FN void qm_bnb_momentum(enum qm_bnb_form form, const float *c, int couples, int first, float *p,
                           float g, float *s)
{
    *s = qm_bnb_buffer(form, c, couples, first, *p, g, *s);
    *p = qm_bnb_add(form, *p, c[QM_BNB_STEP], *s);
}

/* RMSprop; Adagrad where the scalars beta2 and 1 - beta2 are both 1.  CUDA divides the raw
 * gradient, without the L2 term and without gnorm_scale. */
QM_FN void qm_bnb_rmsprop(enum qm_bnb_form form, const float *c, int couples, float *p, float g,
                          float *v)
{
    float d = couples ? qm_bnb_add(form, g * c[QM_BNB_GNORM_SCALE], c[QM_BNB_DECAY], *p)
                      : g * c[QM_BNB_GNORM_SCALE];
    if (form == QM_BNB_cuda)
        *v = *v * c[QM_BNB_BETA2] + c[QM_BNB_ONE_MINUS_BETA2] * (d * d);
    else
        *v = qm_bnb_add_square(form, *v * c[QM_BNB_BETA2], c[QM_BNB_ONE_MINUS_BETA2], d);
    float den = sqrtf(*v) + c[QM_BNB_EPS];
    if (form == QM_BNB_cuda)
        *p = *p + c[QM_BNB_STEP] * (g / den);
    else if (form == QM_BNB_32)
        *p = fmaf(d / den, c[QM_BNB_STEP], *p);
    else
        *p = *p + (c[QM_BNB_STEP] * d) / den;
}

/* Lion, arXiv:2302.06675: the decay is decoupled and comes before the step. */
QM_FN void qm_bnb_lion(enum qm_bnb_form form, const float *c, float *p, float g, float *m)
{
    float x = g * c[QM_BNB_GNORM_SCALE], old = *m * c[QM_BNB_BETA1];
    float u = form == QM_BNB_32 ? fmaf(x, c[QM_BNB_ONE_MINUS_BETA1], old)
                                : old + c[QM_BNB_ONE_MINUS_BETA1] * x;
    *p = qm_bnb_add(form, *p * c[QM_BNB_DECAY], c[QM_BNB_STEP], qm_bnb_sign(u));
    *m = qm_bnb_add(form, *m * c[QM_BNB_BETA2], c[QM_BNB_ONE_MINUS_BETA2], x);
}

#endif
