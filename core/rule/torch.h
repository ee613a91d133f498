/* torch.h - One element of RMSprop, Adagrad, NAdam and RAdam in the order of PyTorch 2 (dual).
 *
 * The order is that of the single-tensor functions on a CPU, in float32; scalars are formed in
 * double and rounded once, where they meet a tensor.  c[] is what family_torch.c prepares. */
#ifndef QM_RULE_TORCH_H
#define QM_RULE_TORCH_H

#include "core/rule/adamw.h"

/* flag[]: of RMSprop and Adagrad, besides QM_FLAG_MAXIMIZE; of RAdam, besides those of AdamW. */
enum {
    QM_FLAG_TORCH_COUPLED = 0, /* weight_decay is not 0: the L2 term is added */
    QM_FLAG_CENTERED = 2,      /* RMSprop: the mean gradient's square is taken off */
    QM_FLAG_MOMENTUM = 3,      /* RMSprop: momentum is above 0 */
    QM_FLAG_RECTIFIED = 2      /* RAdam: the length of the average allows a rectified step */
};

/* c[] of prepare_rmsprop and prepare_adagrad. */
enum {
    QM_TORCH_L2,                  /* weight_decay */
    QM_TORCH_STEP,                /* -lr */
    QM_TORCH_EPS,                 /* eps */
    QM_TORCH_KEEP,                /* RMSprop: beta2, which the class calls alpha */
    QM_TORCH_ONE_MINUS_KEEP,      /* RMSprop: w = 1 - beta2 */
    QM_TORCH_ONE_MINUS_KEEP_LESS, /* RMSprop: w - 1 */
    QM_TORCH_MOMENTUM,            /* RMSprop: momentum */
    QM_TORCH_SCALARS
};

/* The gradient, with the L2 term where it couples. */
QM_FN float qm_torch_gradient(const float *c, int couples, float p, float g)
{
    return couples ? fmaf(p, c[QM_TORCH_L2], g) : g;
}

/* torch/optim/rmsprop.py _single_tensor_rmsprop. */
QM_FN void qm_rmsprop_torch(const float *c, int centered, int momentum, float *p, float g, float *v,
                            float *mean, float *b)
{
    float square = fmaf(c[QM_TORCH_ONE_MINUS_KEEP] * g, g, *v * c[QM_TORCH_KEEP]);
    *v = square;
    if (centered) {
        *mean = qm_lerp(*mean, g, c[QM_TORCH_ONE_MINUS_KEEP], c[QM_TORCH_ONE_MINUS_KEEP_LESS]);
        square = fmaf(-*mean, *mean, square);
    }
    float den = sqrtf(square) + c[QM_TORCH_EPS];
    if (momentum) {
        *b = *b * c[QM_TORCH_MOMENTUM] + g / den;
        *p = fmaf(*b, c[QM_TORCH_STEP], *p);
    } else {
        *p = *p + (c[QM_TORCH_STEP] * g) / den;
    }
}

/* torch/optim/adagrad.py _single_tensor_adagrad. */
QM_FN void qm_adagrad_torch(const float *c, float *p, float g, float *sum)
{
    *sum = fmaf(g, g, *sum);
    *p = *p + (c[QM_TORCH_STEP] * g) / (sqrtf(*sum) + c[QM_TORCH_EPS]);
}

/* c[] of prepare_nadam and prepare_radam beyond those of prepare_adamw that the moments read. */
enum {
    QM_NADAM_BC2 = QM_ADAMW_SCALARS, /* 1 - beta2^t */
    QM_NADAM_STEP,                   /* -lr (1 - mu_t) / (1 - mu_1 ... mu_t) */
    QM_NADAM_STEP_MEAN,              /* -lr mu_{t+1} / (1 - mu_1 ... mu_{t+1}) */
    QM_NADAM_ROOT_BC2,               /* sqrt(1 - beta2^t) */
    QM_NADAM_SCALARS
};
enum {
    QM_RADAM_BC1 = QM_ADAMW_SCALARS, /* 1 - beta1^t */
    QM_RADAM_LR,                     /* lr */
    QM_RADAM_ROOT_BC2,               /* sqrt(1 - beta2^t) */
    QM_RADAM_RECT,                   /* the rectification */
    QM_RADAM_RATE,                   /* foreach: -lr rect sqrt(1 - beta2^t) / (1 - beta1^t) */
    QM_RADAM_PLAIN,                  /* foreach: -lr / (1 - beta1^t), or -0 where it rectifies */
    QM_RADAM_SCALARS
};

/* torch/optim/nadam.py _single_tensor_nadam: two steps, along the gradient and the moment. */
QM_FN void qm_nadam_torch(const float *c, int coupled, float *p, float g, float *m, float *v)
{
    g = qm_adamw_torch_decayed(c, coupled, p, g);
    *m = qm_lerp(*m, g, c[QM_ADAMW_ONE_MINUS_BETA1], c[QM_ADAMW_W1_MINUS_1]);
    *v = fmaf(c[QM_ADAMW_ONE_MINUS_BETA2] * g, g, *v * c[QM_ADAMW_BETA2]);
    float den = sqrtf(*v / c[QM_NADAM_BC2]) + c[QM_ADAMW_EPS];
    *p = *p + (c[QM_NADAM_STEP] * g) / den;
    *p = *p + (c[QM_NADAM_STEP_MEAN] * *m) / den;
}

/* torch/optim/nadam.py _multi_tensor_nadam: the root is taken before the correction. */
QM_FN void qm_nadam_foreach(const float *c, int coupled, float *p, float g, float *m, float *v)
{
    g = qm_adamw_torch_decayed(c, coupled, p, g);
    *m = qm_lerp(*m, g, c[QM_ADAMW_ONE_MINUS_BETA1], c[QM_ADAMW_W1_MINUS_1]);
    *v = fmaf(c[QM_ADAMW_ONE_MINUS_BETA2] * g, g, *v * c[QM_ADAMW_BETA2]);
    float den = sqrtf(*v) / c[QM_NADAM_ROOT_BC2] + c[QM_ADAMW_EPS];
    *p = *p + (c[QM_NADAM_STEP] * g) / den;
    *p = *p + (c[QM_NADAM_STEP_MEAN] * *m) / den;
}

/* torch/optim/radam.py _single_tensor_radam. */
QM_FN void qm_radam_torch(const float *c, int coupled, int rectified, float *p, float g, float *m,
                          float *v)
{
    qm_adamw_torch_states(c, coupled, p, g, m, v);
    float step = *m / c[QM_RADAM_BC1] * c[QM_RADAM_LR];
    float rate = (1.0f / (sqrtf(*v) + c[QM_ADAMW_EPS])) * c[QM_RADAM_ROOT_BC2];
    *p = *p - (rectified ? step * rate * c[QM_RADAM_RECT] : step);
}

/* torch/optim/radam.py _multi_tensor_radam: one factor of the moment, in steps that are not
 * rectified 1 / (den / -0), which is 0 unless den is. */
QM_FN void qm_radam_foreach(const float *c, int coupled, float *p, float g, float *m, float *v)
{
    qm_adamw_torch_states(c, coupled, p, g, m, v);
    float den = (sqrtf(*v) + c[QM_ADAMW_EPS]) / c[QM_RADAM_RATE];
    *p = fmaf(*m, 1.0f / den + c[QM_RADAM_PLAIN], *p);
}

#endif
