/* rmsprop_f32.c - RMSprop of PyTorch with a float32 state. */
#include <math.h>

#include "kernel_abi.h"

QM_KERNEL("rmsprop_f32");

int qm_kernel_step(const struct qm_kernel_args *a)
{
    float *p = a->p, *v = a->slot[0].values;
    const float *g = a->g;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !v)
        return 1; /* refused: this kernel knows float32 only */
    float beta2 = (float)a->beta2, take2 = (float)(1.0 - a->beta2), eps = (float)a->eps;
    float lr = (float)a->lr, decay = (float)a->weight_decay;

    for (int64_t i = 0; i < a->n; i++) {
        float x = a->maximize ? -g[i] : g[i];
        if (a->weight_decay != 0.0)
            x = x + decay * p[i];
        v[i] = beta2 * v[i] + take2 * x * x;
        p[i] = p[i] - lr * x / (sqrtf(v[i]) + eps);
    }
    return 0;
}
