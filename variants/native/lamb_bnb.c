/* lamb_bnb.c - LAMB of bitsandbytes: Adam whose step has a bounded norm.
 *
 * The norm of the bias-corrected update is at most max_unorm times the parameter's. */
#include <math.h>

#include "kernel_abi.h"

QM_KERNEL("lamb_bnb,max_unorm=0.003"); /* small enough to be met */

/* What the step is multiplied by, from the norms of the parameter and of the update. */
static float ratio_of(const struct qm_kernel_args *a, double size, double length)
{
    double most = a->max_unorm * size;
    return a->max_unorm > 0.0 && length > most ? (float)(most / length) : 1.0f;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    float *p = a->p, *m = a->slot[0].values, *v = a->slot[1].values;
    const float *g = a->g;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || (a->n && (!m || !v)))
        return 1; /* refused: another type, or states in codes */
    double bc1 = 1.0 - pow(a->beta1, (double)a->t), bc2 = 1.0 - pow(a->beta2, (double)a->t);
    float scale = (float)(a->gnorm_scale != 0.0 ? a->gnorm_scale : 1.0);
    float beta1 = (float)a->beta1, take1 = (float)(1.0 - a->beta1);
    float beta2 = (float)a->beta2, take2 = (float)(1.0 - a->beta2), eps = (float)a->eps;
    float decay = (float)(1.0 - a->lr * a->weight_decay);
    float step = (float)(-a->lr * sqrt(bc2) / bc1), eps_scaled = (float)(a->eps * sqrt(bc2));
    double size = 0.0, length = 0.0;

    for (int64_t i = 0; i < a->n; i++) { /* updates the states; sums both norms */
        float x = g[i] * scale;
        m[i] = m[i] * beta1 + take1 * x;
        v[i] = v[i] * beta2 + take2 * x * x;
        float u = m[i] / (float)bc1 / (sqrtf(v[i] / (float)bc2) + eps);
        length += (double)u * (double)u;
        size += (double)p[i] * (double)p[i];
    }
    step = ratio_of(a, sqrt(size), sqrt(length)) * step;
    for (int64_t i = 0; i < a->n; i++)
        p[i] = p[i] * decay + step * (m[i] / (sqrtf(v[i]) + eps_scaled));
    return 0;
}
