/* lars_bnb.c - LARS of bitsandbytes: momentum whose step has a bounded norm.
 *
 * The norm of the update, without the decay of this step, is at most max_unorm times
 * the parameter's. */
#include <math.h>

#include "kernel_abi.h"

QM_KERNEL("lars_bnb,max_unorm=1e-05"); /* small enough to be met */

/* What the step is multiplied by, from the norms of the parameter and of the update. */
static float ratio_of(const struct qm_kernel_args *a, double size, double length)
{
    double most = a->max_unorm * size + a->eps;
    return a->max_unorm > 0.0 && length > most ? (float)(most / length) : 1.0f;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    float *p = a->p, *b = a->slot[0].values;
    const float *g = a->g;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || (a->n && !b))
        return 1; /* refused: another type, or a buffer in codes */
    float scale = (float)(a->gnorm_scale != 0.0 ? a->gnorm_scale : 1.0), lr = (float)a->lr;
    float decay = (float)a->weight_decay, momentum = (float)a->momentum;
    double size = 0.0, length = 0.0;

    for (int64_t i = 0; i < a->n; i++) { /* updates the buffer; sums both norms */
        float d = decay > 0.0f ? g[i] * scale + decay * p[i] : g[i] * scale;
        b[i] = a->t == 1 ? d : b[i] * momentum + d; /* the first buffer is the gradient itself */
        float bare = b[i] - p[i] * decay;
        length += (double)bare * (double)bare;
        size += (double)p[i] * (double)p[i];
    }
    float ratio = ratio_of(a, sqrt(size), sqrt(length));
    for (int64_t i = 0; i < a->n; i++)
        p[i] = p[i] - ratio * (lr * b[i]);
    return 0;
}
