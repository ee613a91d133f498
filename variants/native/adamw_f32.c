/* adamw_f32.c - AdamW with float32 states: the smallest complete kernel.  Copy it and edit.
 *
 * Also: adamw_f32_t113 */
#include <math.h>

#include "kernel_abi.h"

QM_KERNEL("adamw_f32");

int qm_kernel_step(const struct qm_kernel_args *a)
{
    float *p = a->p, *m = a->slot[0].values, *v = a->slot[1].values;
    const float *g = a->g;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !m || !v)
        return 1; /* refused: this kernel knows float32 only */

    double bc1 = 1.0 - pow(a->beta1, (double)a->t), bc2 = 1.0 - pow(a->beta2, (double)a->t);
    float beta1 = (float)a->beta1, take1 = (float)(1.0 - a->beta1);
    float beta2 = (float)a->beta2, take2 = (float)(1.0 - a->beta2);
    float decay = (float)(1.0 - a->lr * a->weight_decay), lr = (float)(a->lr / bc1);
    float root_bc2 = (float)sqrt(bc2), eps = (float)a->eps;

    for (int64_t i = 0; i < a->n; i++) {
        float x = a->maximize ? -g[i] : g[i];
        /* torch.lerp: from the nearer end */
        m[i] = take1 < 0.5f ? m[i] + take1 * (x - m[i]) : x - beta1 * (x - m[i]);
        v[i] = beta2 * v[i] + take2 * x * x;
        p[i] = p[i] * decay - lr * m[i] / (sqrtf(v[i]) / root_bc2 + eps);
    }
    return 0;
}
