/* adagrad8_bnb.c - 8-bit Adagrad of bitsandbytes' CPU update, block by block.
 *
 * Tensors of fewer than 4096 elements come with float32 states, unless the recipe gives them
 * codes, as `qualm check` does. */
#include <math.h>

#include "kernel_abi.h"

QM_KERNEL("adagrad8_bnb");

enum { BLOCK = 256 };

static void decode(const struct qm_kernel_slot *s, int64_t from, int64_t n, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = s->bits ? s->codebook[s->codes[from + i]] * s->scales[from / BLOCK]
                       : s->values[from + i];
}

/* The code of y by a table of 65,536 entries over [-1, 1]: of the entry next to y, the nearest of
 * 256 ascending values; ties go down, NaN has code 0. */
static int nearest(const float *value, float y)
{
    float inside = y < -1.0f ? -1.0f : y > 1.0f ? 1.0f : y;
    int entry = y == y ? (int)((inside + 1.0f) * 0.5f * 65535.0f + 0.5f) : 0;
    float at = -1.0f + 2.0f * (float)entry / 65535.0f;
    int low = 0, high = 255;
    while (low < high) {
        int k = (low + high) / 2;
        if (!(at <= (value[k] + value[k + 1]) * 0.5f))
            low = k + 1;
        else
            high = k;
    }
    return low;
}

/* x is multiplied by the reciprocal of the largest; a block of zeros has code 0. */
static void encode(const struct qm_kernel_slot *s, int64_t from, int64_t n, const float *x)
{
    float top = 0.0f;
    for (int64_t i = 0; i < n; i++) /* a NaN is left out */
        if (fabsf(x[i]) > top)
            top = fabsf(x[i]);
    float reciprocal = 1.0f / top;
    if (s->bits)
        s->scales[from / BLOCK] = top;
    for (int64_t i = 0; i < n; i++)
        if (s->bits)
            s->codes[from + i] =
                (uint8_t)(top > 0.0f ? nearest(s->codebook, x[i] * reciprocal) : 0);
        else
            s->values[from + i] = x[i];
}

/* Quantized as this kernel expects it, or plain float32. */
static int fits(const struct qm_kernel_slot *s)
{
    return s->bits ? s->bits == 8 && s->block == BLOCK : s->values != 0;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    const struct qm_kernel_slot *sum = &a->slot[0];
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !fits(sum))
        return 1; /* refused */
    float *p = a->p, v[BLOCK];
    const float *g = a->g;
    float scale = (float)(a->gnorm_scale != 0.0 ? a->gnorm_scale : 1.0);
    float lr = (float)a->lr, decay = (float)a->weight_decay, eps = (float)a->eps;

    for (int64_t from = 0; from < a->n; from += BLOCK) {
        int64_t n = a->n - from < BLOCK ? a->n - from : BLOCK;
        decode(sum, from, n, v);
        for (int64_t i = 0; i < n; i++) {
            float *w = &p[from + i], d = g[from + i] * scale;
            if (sum->bits || decay > 0.0f) /* L2; where the state has codes, also of 0 */
                d = fmaf(*w, decay, d);
            v[i] = fmaf(d, d, v[i]);
            *w = *w + -lr * d / (sqrtf(v[i]) + eps);
        }
        encode(sum, from, n, v);
    }
    return 0;
}
