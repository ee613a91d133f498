/* adamw.h - One element of AdamW and Adam in the order of PyTorch, torchao and bitsandbytes (dual).
 *
 * Each update has two parts: `states` updates the moments, `apply` the parameter.  The scalars c[]
 * are those that the prepare function of the same name in family_adamw.c forms.  `reciprocal` holds
 * the reciprocals that prepare makes, in its order, and may be null: then the update divides, with
 * the same bits (core/base/inverse.h). */
#ifndef QM_RULE_ADAMW_H
#define QM_RULE_ADAMW_H

#include "core/base/inverse.h"

/* flag[] of the families adamw, adam, ema and of FlashOptim's rules. */
enum {
    QM_FLAG_COUPLED,  /* L2 decay: weight_decay * p is added to the gradient */
    QM_FLAG_MAXIMIZE, /* the sign of the gradient is turned */
    QM_FLAG_AMSGRAD   /* the maximum of v is kept; otherwise its slot stays as it is */
};

/* torch.lerp on CPU with FMA: a + w (b - a) below w = 1/2, from the other end above it. */
QM_FN float qm_lerp(float a, float b, float w, float w_minus_1)
{
    return fmaf(w < 0.5f ? w : w_minus_1, b - a, w < 0.5f ? a : b);
}

/* c[] of prepare_adamw; bitsandbytes uses all but the last two. */
enum {
    QM_ADAMW_KEEP,            /* 1 - lr weight_decay; 1 for Adam */
    QM_ADAMW_BETA1,           /* beta1 */
    QM_ADAMW_ONE_MINUS_BETA1, /* 1 - beta1 */
    QM_ADAMW_BETA2,           /* beta2 */
    QM_ADAMW_ONE_MINUS_BETA2, /* 1 - beta2 */
    QM_ADAMW_ROOT_BC2,        /* sqrt(1 - beta2^t); reciprocal 0 */
    QM_ADAMW_EPS,             /* eps */
    QM_ADAMW_STEP,            /* -lr / (1 - beta1^t) */
    QM_ADAMW_L2,              /* weight_decay */
    QM_ADAMW_W1_MINUS_1,      /* (1 - beta1) - 1, in float32 */
    QM_ADAMW_SCALARS
};

/* What PyTorch does before the moments: L2 decay of the gradient, or decay of the parameter. */
QM_FN float qm_adamw_torch_decayed(const float *c, int coupled, float *p, float g)
{
    if (coupled)
        return fmaf(*p, c[QM_ADAMW_L2], g);
    *p = *p * c[QM_ADAMW_KEEP];
    return g;
}

/* torch.optim.AdamW and Adam of release 2, float32 on CPU: torch/optim/adam.py _single_tensor_adam;
 * NAdam and RAdam form their moments alike. */
QM_FN void qm_adamw_torch_states(const float *c, int coupled, float *p, float g, float *m, float *v)
{
    g = qm_adamw_torch_decayed(c, coupled, p, g);
    *m = qm_lerp(*m, g, c[QM_ADAMW_ONE_MINUS_BETA1], c[QM_ADAMW_W1_MINUS_1]);
    *v = fmaf(c[QM_ADAMW_ONE_MINUS_BETA2] * g, g, *v * c[QM_ADAMW_BETA2]);
}

/* The last n mod 8 elements of a tensor in PyTorch's fused CPU kernel, which are no whole
 * vector: aten/src/ATen/native/cpu/FusedAdamKernel.cpp. */
QM_FN void qm_adamw_tail_states(const float *c, int coupled, float *p, float g, float *m, float *v)
{
    g = qm_adamw_torch_decayed(c, coupled, p, g);
    *m = qm_lerp(*m, g, c[QM_ADAMW_ONE_MINUS_BETA1], c[QM_ADAMW_W1_MINUS_1]);
    *v = fmaf(*v, c[QM_ADAMW_BETA2], (c[QM_ADAMW_ONE_MINUS_BETA2] * g) * g);
}

/* The same classes of PyTorch 1.13, whose first moment is a weighted sum. */
QM_FN void qm_adamw_t113_states(const float *c, int coupled, float *p, float g, float *m, float *v)
{
    g = qm_adamw_torch_decayed(c, coupled, p, g);
    *m = fmaf(g, c[QM_ADAMW_ONE_MINUS_BETA1], *m * c[QM_ADAMW_BETA1]);
    *v = fmaf(c[QM_ADAMW_ONE_MINUS_BETA2] * g, g, *v * c[QM_ADAMW_BETA2]);
}

/* SOLO (package solow) adamw.py, adam.py: both moments are torch's lerp. */
QM_FN void qm_adamw_solo_states(const float *c, int coupled, float *p, float g, float *m, float *v)
{
    float w2 = c[QM_ADAMW_ONE_MINUS_BETA2];
    g = qm_adamw_torch_decayed(c, coupled, p, g);
    *m = qm_lerp(*m, g, c[QM_ADAMW_ONE_MINUS_BETA1], c[QM_ADAMW_W1_MINUS_1]);
    *v = qm_lerp(*v, g * g, w2, w2 - 1.0f);
}

/* The same with the squared distance of the gradient from its new average (SOLO adabelief.py). */
QM_FN void qm_adabelief_solo_states(const float *c, float *p, float g, float *m, float *v)
{
    float w2 = c[QM_ADAMW_ONE_MINUS_BETA2], off;
    g = qm_adamw_torch_decayed(c, 0, p, g);
    *m = qm_lerp(*m, g, c[QM_ADAMW_ONE_MINUS_BETA1], c[QM_ADAMW_W1_MINUS_1]);
    off = g - *m;
    *v = qm_lerp(*v, off * off, w2, w2 - 1.0f);
}

QM_FN void qm_adamw_torch_apply(const float *c, const struct qm_inverse *reciprocal, float *p,
                                float m, float v)
{
    float den = qm_divided(sqrtf(v), c[QM_ADAMW_ROOT_BC2], reciprocal) + c[QM_ADAMW_EPS];
    *p = *p + (c[QM_ADAMW_STEP] * m) / den;
}

/* torch.maximum: a NaN on either side wins. */
QM_FN float qm_adamw_top(float top, float v) { return v > top || qm_isnan(v) ? v : top; }

/* std::max(top, v), which the scalar code of the fused kernel takes: a NaN on either side leaves
 * top. */
QM_FN float qm_adamw_tail_top(float top, float v) { return top < v ? v : top; }

/* c[] of prepare_adamw_ao. */
enum {
    QM_ADAMW_AO_DECAY,      /* lr weight_decay */
    QM_ADAMW_AO_W1,         /* w1 = 1 - beta1 */
    QM_ADAMW_AO_W1_MINUS_1, /* w1 - 1 */
    QM_ADAMW_AO_W2,         /* w2 = 1 - beta2 */
    QM_ADAMW_AO_W2_MINUS_1, /* w2 - 1 */
    QM_ADAMW_AO_BC1,        /* 1 - beta1^t; reciprocal 1 */
    QM_ADAMW_AO_ROOT_BC2,   /* sqrt(1 - beta2^t); reciprocal 0 */
    QM_ADAMW_AO_EPS,        /* eps */
    QM_ADAMW_AO_LR,         /* lr */
    QM_ADAMW_AO_L2,         /* weight_decay */
    QM_ADAMW_AO_SCALARS
};

/* torchao/optim/adam.py single_param_adam. */
QM_FN void qm_adamw_ao_states(const float *c, int coupled, float p, float g, float *m, float *v)
{
    if (coupled)
        g = g + c[QM_ADAMW_AO_L2] * p;
    *m = qm_lerp(*m, g, c[QM_ADAMW_AO_W1], c[QM_ADAMW_AO_W1_MINUS_1]);
    *v = qm_lerp(*v, g * g, c[QM_ADAMW_AO_W2], c[QM_ADAMW_AO_W2_MINUS_1]);
}

/* The same by the code that torch.compile makes of it for a CPU, the way the classes step: the
 * product of an average is rounded before the sum. */
QM_FN float qm_lerp_rounded(float a, float b, float w, float w_minus_1)
{
    return (w < 0.5f ? a : b) + (w < 0.5f ? w : w_minus_1) * (b - a);
}

QM_FN void qm_adamw_ao_compiled_states(const float *c, int coupled, float p, float g, float *m,
                                       float *v)
{
    if (coupled)
        g = g + c[QM_ADAMW_AO_L2] * p;
    *m = qm_lerp_rounded(*m, g, c[QM_ADAMW_AO_W1], c[QM_ADAMW_AO_W1_MINUS_1]);
    *v = qm_lerp_rounded(*v, g * g, c[QM_ADAMW_AO_W2], c[QM_ADAMW_AO_W2_MINUS_1]);
}

/* The source decays the parameter before it updates the moments; the decay needs neither moment, so
 * it stands here. */
QM_FN void qm_adamw_ao_apply(const float *c, const struct qm_inverse *reciprocal, int coupled,
                             float *p, float m, float v)
{
    float den = qm_divided(sqrtf(v), c[QM_ADAMW_AO_ROOT_BC2], reciprocal) + c[QM_ADAMW_AO_EPS];
    float old = coupled ? *p : *p - c[QM_ADAMW_AO_DECAY] * *p;
    float first = qm_divided(m, c[QM_ADAMW_AO_BC1], reciprocal ? reciprocal + 1 : 0);
    *p = old - ((c[QM_ADAMW_AO_LR] * first) / den);
}

/* bitsandbytes backends/cpu, 8-bit Adam. */
QM_FN void qm_adamw_bnb_states(const float *c, float g, float *m, float *v)
{
    *m = fmaf(g, c[QM_ADAMW_ONE_MINUS_BETA1], *m * c[QM_ADAMW_BETA1]);
    *v = fmaf(c[QM_ADAMW_ONE_MINUS_BETA2] * g, g, *v * c[QM_ADAMW_BETA2]);
}

QM_FN void qm_adamw_bnb_apply(const float *c, const struct qm_inverse *reciprocal, float *p,
                              float m, float v)
{
    float den = qm_divided(sqrtf(v), c[QM_ADAMW_ROOT_BC2], reciprocal) + c[QM_ADAMW_EPS];
    *p = *p * c[QM_ADAMW_KEEP];
    *p = *p + (c[QM_ADAMW_STEP] * m) / den;
}

#endif
