/* bnb.h - AXIS rule: bitsandbytes' updates, one element, in the order of each back end (dual).
 *
 * The forms are
 *
 *     8      backends/cpu/ops.py _optimizer_update_8bit_blockwise_cpu
 *     32     backends/cpu/ops.py _optimizer_update_32bit_cpu
 *     plain  backends/default/ops.py _optimizer_update_32bit: every operation rounds
 *     cuda   csrc/kernels.cu kOptimizerStatic8bit{1,2}StateBlockwise in IEEE arithmetic
 *
 * 8 and 32 fuse where PyTorch on CPU does: add with alpha and addcmul, not addcdiv.
 * c: 0 gnorm_scale, 1 L2 or the decay factor, 2 beta1, 3 1-beta1, 4 beta2, 5 1-beta2, 6 eps as
 *    added, 7 -lr or the step, 8 c1, 9 c2, 10 alpha, 11 beta3, 12 1-beta3
 * Moments of one slot decay by beta1 (first) or beta2 (second). */
#ifndef QM_RULE_BNB_H
#define QM_RULE_BNB_H

#include "core/base/dual.h"

enum qm_bnb_form { QM_BNB_8, QM_BNB_32, QM_BNB_plain, QM_BNB_cuda };

QM_FN int qm_bnb_fuses(enum qm_bnb_form form) { return form == QM_BNB_8 || form == QM_BNB_32; }

QM_FN int qm_bnb_finite(float x) { return (qm_bits(x) & 0x7fffffffu) < 0x7f800000u; }

/* NaN has no direction. */
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

/* Adam and AdamW: decoupled decay before the step, in CUDA after it.  CUDA leaves the parameter of
 * a gradient that is not finite alone and forgets its moments. */
QM_FN void qm_bnb_adamw(enum qm_bnb_form form, const float *c, float *p, float g, float *m,
                        float *v)
{
    int take = form != QM_BNB_cuda || qm_bnb_finite(g);
    float x = g * c[0], step;
    float first = qm_bnb_add(form, *m * c[2], c[3], x);
    float second = qm_bnb_add_square(form, *v * c[4], c[5], x);
    float u = first / (sqrtf(second) + c[6]);
    if (form == QM_BNB_cuda)
        step = (*p + c[7] * u) * c[1];
    else
        step = qm_bnb_add(form, *p * c[1], c[7], u);
    *m = take ? first : 0.0f;
    *v = take ? second : 0.0f;
    *p = take ? step : *p;
}

/* arXiv:2409.03137: m and v as Adam's, beside a slow first moment. */
QM_FN void qm_bnb_ademamix(enum qm_bnb_form form, const float *c, float *p, float g, float *m,
                           float *slow, float *v)
{
    int take = form != QM_BNB_cuda || qm_bnb_finite(g);
    float x = g * c[0], step;
    float first = qm_bnb_add(form, *m * c[2], c[3], x);
    float third = qm_bnb_add(form, *slow * c[11], c[12], x);
    float second = qm_bnb_add_square(form, *v * c[4], c[5], x);
    float u = (first / c[8] + c[10] * third) / (sqrtf(second) / c[9] + c[6]);
    if (form == QM_BNB_cuda)
        step = (*p + c[7] * u) * c[1];
    else
        step = qm_bnb_add(form, *p * c[1], c[7], u);
    *m = take ? first : 0.0f;
    *slow = take ? third : 0.0f;
    *v = take ? second : 0.0f;
    *p = take ? step : *p;
}

/* The first buffer is the gradient itself.  couples: the L2 term is there. */
QM_FN float qm_bnb_buffer(enum qm_bnb_form form, const float *c, int couples, int first, float p,
                          float g, float s)
{
    float d = couples ? qm_bnb_add(form, g * c[0], c[1], p) : g * c[0];
    return first ? d : s * c[2] + d;
}

QM_FN void qm_bnb_momentum(enum qm_bnb_form form, const float *c, int couples, int first, float *p,
                           float g, float *s)
{
    *s = qm_bnb_buffer(form, c, couples, first, *p, g, *s);
    *p = qm_bnb_add(form, *p, c[7], *s);
}

/* RMSprop; Adagrad with beta2 = 1 - beta2 = 1.  CUDA divides the raw gradient: without decay and
 * without gnorm_scale. */
QM_FN void qm_bnb_rmsprop(enum qm_bnb_form form, const float *c, int couples, float *p, float g,
                          float *v)
{
    float d = couples ? qm_bnb_add(form, g * c[0], c[1], *p) : g * c[0];
    if (form == QM_BNB_cuda)
        *v = *v * c[4] + c[5] * (d * d);
    else
        *v = qm_bnb_add_square(form, *v * c[4], c[5], d);
    float den = sqrtf(*v) + c[6];
    if (form == QM_BNB_cuda)
        *p = *p + c[7] * (g / den);
    else if (form == QM_BNB_32)
        *p = fmaf(d / den, c[7], *p);
    else
        *p = *p + (c[7] * d) / den;
}

/* arXiv:2302.06675; decoupled decay before the step. */
QM_FN void qm_bnb_lion(enum qm_bnb_form form, const float *c, float *p, float g, float *m)
{
    float x = g * c[0], old = *m * c[2];
    float u = form == QM_BNB_32 ? fmaf(x, c[3], old) : old + c[3] * x;
    *p = qm_bnb_add(form, *p * c[1], c[7], qm_bnb_sign(u));
    *m = qm_bnb_add(form, *m * c[4], c[5], x);
}

#endif
