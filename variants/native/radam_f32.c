/* radam_f32.c - RAdam of PyTorch with float32 states. */
#include <math.h>

#include "kernel_abi.h"

QM_KERNEL("radam_f32");

int qm_kernel_step(const struct qm_kernel_args *a)
{
    float *p = a->p, *m = a->slot[0].values, *v = a->slot[1].values;
    const float *g = a->g;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !m || !v)
        return 1; /* refused: this kernel knows float32 only */
    double power = pow(a->beta2, (double)a->t), left = 1.0 - power;
    double limit = 2.0 / (1.0 - a->beta2) - 1.0;
    double length = limit - 2.0 * (double)a->t * power / left;
    float beta1 = (float)a->beta1, take1 = (float)(1.0 - a->beta1), eps = (float)a->eps;
    float beta2 = (float)a->beta2, take2 = (float)(1.0 - a->beta2), decay = (float)a->weight_decay;
    float bc1 = (float)(1.0 - pow(a->beta1, (double)a->t)), root_bc2 = (float)sqrt(left);
    float lr = (float)a->lr, rect = 0.0f;
    int rectified = length > 5.0;
    if (rectified)
        rect = (float)sqrt((length - 4.0) * (length - 2.0) * limit /
                           ((limit - 4.0) * (limit - 2.0) * length));

    for (int64_t i = 0; i < a->n; i++) {
        float x = a->maximize ? -g[i] : g[i];
        if (a->weight_decay != 0.0)
            x = x + decay * p[i];
        m[i] = take1 < 0.5f ? m[i] + take1 * (x - m[i]) : x - beta1 * (x - m[i]);
        v[i] = beta2 * v[i] + take2 * x * x;
        float step = m[i] / bc1 * lr;
        if (rectified)
            step = step * (1.0f / (sqrtf(v[i]) + eps) * root_bc2) * rect;
        p[i] = p[i] - step;
    }
    return 0;
}
