/* adagrad_f32.c - Adagrad of PyTorch with a float32 state. */
#include <math.h>

#include "kernel_abi.h"

QM_KERNEL("adagrad_f32");

int qm_kernel_step(const struct qm_kernel_args *a)
{
    float *p = a->p, *sum = a->slot[0].values;
    const float *g = a->g;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !sum)
        return 1; /* refused: this kernel knows float32 only */
    float lr = (float)a->lr, eps = (float)a->eps, decay = (float)a->weight_decay;

    for (int64_t i = 0; i < a->n; i++) {
        float x = a->maximize ? -g[i] : g[i];
        if (a->weight_decay != 0.0)
            x = x + decay * p[i];
        sum[i] = sum[i] + x * x;
        p[i] = p[i] - lr * x / (sqrtf(sum[i]) + eps);
    }
    return 0;
}
