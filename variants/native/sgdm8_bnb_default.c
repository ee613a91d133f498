/* sgdm8_bnb_default.c - 8-bit SGD with momentum of bitsandbytes, Python quantizer, block by block.
 *
 * Tensors of fewer than 4096 elements come with float32 states. */
#include <math.h>

#include "kernel_abi.h"

QM_KERNEL("sgdm8_bnb_default");

enum { BLOCK = 256 };

static void decode(const struct qm_kernel_slot *s, int64_t from, int64_t n, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = s->bits ? s->codebook[s->codes[from + i]] * s->scales[from / BLOCK]
                       : s->values[from + i];
}

/* The nearest of 256 ascending values by bisecting the mid-points; ties go down, NaN to the top. */
static int nearest(const float *value, float y)
{
    int low = 0, high = 255;
    while (low < high) {
        int k = (low + high) / 2;
        if (!(y <= (value[k] + value[k + 1]) * 0.5f))
            low = k + 1;
        else
            high = k;
    }
    return low;
}

/* x is multiplied by the reciprocal; a short last block divides and stores what it divided by. */
static void encode(const struct qm_kernel_slot *s, int64_t from, int64_t n, const float *x)
{
    float top = 0.0f;
    for (int64_t i = 0; i < n; i++) /* one NaN makes the scale NaN */
        if (top == top && !(fabsf(x[i]) <= top))
            top = fabsf(x[i]);
    float by = top < 1e-38f ? 1e-38f : top, reciprocal = 1.0f / by;
    if (s->bits)
        s->scales[from / BLOCK] = n < BLOCK ? by : top;
    for (int64_t i = 0; i < n; i++)
        if (s->bits)
            s->codes[from + i] =
                (uint8_t)nearest(s->codebook, n < BLOCK ? x[i] / by : x[i] * reciprocal);
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
    const struct qm_kernel_slot *buffer = &a->slot[0];
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !fits(buffer))
        return 1; /* refused */
    float *p = a->p, s[BLOCK];
    const float *g = a->g;
    float scale = (float)(a->gnorm_scale != 0.0 ? a->gnorm_scale : 1.0);
    float momentum = (float)a->momentum, lr = (float)a->lr, decay = (float)a->weight_decay;

    for (int64_t from = 0; from < a->n; from += BLOCK) {
        int64_t n = a->n - from < BLOCK ? a->n - from : BLOCK;
        decode(buffer, from, n, s);
        for (int64_t i = 0; i < n; i++) {
            float *w = &p[from + i], d = g[from + i] * scale;
            if (buffer->bits || decay > 0.0f) /* L2; where the state has codes, also of 0 */
                d = fmaf(*w, decay, d);
            s[i] = a->t == 1 ? d : s[i] * momentum + d;
            *w = fmaf(s[i], -lr, *w);
        }
        encode(buffer, from, n, s);
    }
    return 0;
}
