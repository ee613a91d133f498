/* nadam_f32.c - NAdam of PyTorch with float32 states.
 *
 * The product of all momenta is a float32 number that each step multiplies; it is formed anew from
 * the first step on, until it is nothing beside 1. */
#include <math.h>

#include "kernel_abi.h"

QM_KERNEL("nadam_f32");

static double momentum(const struct qm_kernel_args *a, int64_t t)
{
    return a->beta1 * (1.0 - 0.5 * pow(0.96, (double)t * a->momentum_decay));
}

static double product(const struct qm_kernel_args *a)
{
    float all = 1.0f;
    int64_t t = 1;
    for (; t <= a->t && t <= 1 << 20 && all >= 0x1p-60f; t++)
        all *= (float)momentum(a, t);
    return t <= a->t && all >= 0x1p-60f ? all * pow(a->beta1, (double)(a->t - t + 1)) : all;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    float *p = a->p, *m = a->slot[0].values, *v = a->slot[1].values;
    const float *g = a->g;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !m || !v)
        return 1; /* refused: this kernel knows float32 only */
    double mu = momentum(a, a->t), next = momentum(a, a->t + 1), all = product(a);
    float beta1 = (float)a->beta1, take1 = (float)(1.0 - a->beta1), eps = (float)a->eps;
    float beta2 = (float)a->beta2, take2 = (float)(1.0 - a->beta2), decay = (float)a->weight_decay;
    float bc2 = (float)(1.0 - pow(a->beta2, (double)a->t));
    float along_g = (float)(a->lr * (1.0 - mu) / (1.0 - all));
    float along_m = (float)(a->lr * next / (1.0 - all * next));

    for (int64_t i = 0; i < a->n; i++) {
        float x = a->maximize ? -g[i] : g[i];
        if (a->weight_decay != 0.0)
            x = x + decay * p[i];
        m[i] = take1 < 0.5f ? m[i] + take1 * (x - m[i]) : x - beta1 * (x - m[i]);
        v[i] = beta2 * v[i] + take2 * x * x;
        float den = sqrtf(v[i] / bc2) + eps;
        p[i] = p[i] - along_g * x / den;
        p[i] = p[i] - along_m * m[i] / den;
    }
    return 0;
}
