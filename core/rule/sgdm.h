/* sgdm.h - One element of SGD with momentum and of the exponential moving average (dual). */
#ifndef QM_RULE_SGDM_H
#define QM_RULE_SGDM_H

#include "core/rule/adamw.h"

/* flag[] of the families sgdm, sgdw and sgd_zero, besides QM_FLAG_MAXIMIZE; FlashOptim's rules have
 * QM_FLAG_COUPLED in the place of the first. */
enum {
    QM_FLAG_FIRST = 0,   /* the first step; lpmm: also where the buffer does not exist yet */
    QM_FLAG_NESTEROV = 2 /* Nesterov's form */
};

/* c[] of qm_sgdm_prepare. */
enum {
    QM_SGDM_L2,                  /* weight_decay */
    QM_SGDM_MOMENTUM,            /* momentum */
    QM_SGDM_ONE_MINUS_DAMPENING, /* 1 - dampening */
    QM_SGDM_STEP,                /* -lr */
    QM_SGDM_SCALARS
};

/* The step from the buffer's new value, which on the first step is d, the gradient itself. */
QM_FN void qm_sgdm_apply(const float *c, int first, int nesterov, float *p, float d, float next,
                         float *b)
{
    if (c[QM_SGDM_MOMENTUM] != 0.0f) {
        *b = first ? d : next;
        d = nesterov ? fmaf(*b, c[QM_SGDM_MOMENTUM], d) : *b;
    }
    *p = fmaf(d, c[QM_SGDM_STEP], *p);
}

/* torch.optim.SGD, float32 on CPU: every a + alpha b is one fma. */
QM_FN void qm_sgdm_torch(const float *c, int first, int nesterov, float *p, float g, float *b)
{
    float d = c[QM_SGDM_L2] != 0.0f ? fmaf(*p, c[QM_SGDM_L2], g) : g;
    float next = fmaf(d, c[QM_SGDM_ONE_MINUS_DAMPENING], *b * c[QM_SGDM_MOMENTUM]);
    qm_sgdm_apply(c, first, nesterov, p, d, next, b);
}

/* The last n mod 8 elements of a tensor in PyTorch's fused CPU
 * kernel: aten/src/ATen/native/cpu/FusedSGDKernel.cpp. */
QM_FN void qm_sgdm_tail(const float *c, int first, int nesterov, float *p, float g, float *b)
{
    float d = c[QM_SGDM_L2] != 0.0f ? fmaf(*p, c[QM_SGDM_L2], g) : g;
    float next = fmaf(*b, c[QM_SGDM_MOMENTUM], d * c[QM_SGDM_ONE_MINUS_DAMPENING]);
    qm_sgdm_apply(c, first, nesterov, p, d, next, b);
}

/* c[] of prepare_ema. */
enum {
    QM_EMA_W,         /* w = 1 - beta1 */
    QM_EMA_W_MINUS_1, /* w - 1 */
    QM_EMA_SCALARS
};

/* m <- lerp(m, g, 1 - beta1); the parameter stays. */
QM_FN void qm_ema_lerp(const float *c, float g, float *m)
{
    *m = qm_lerp(*m, g, c[QM_EMA_W], c[QM_EMA_W_MINUS_1]);
}

#endif
