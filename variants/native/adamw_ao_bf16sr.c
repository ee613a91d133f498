/* adamw_ao_bf16sr.c - AdamW of torchao wholly in bfloat16.
 *
 * Moments are rounded to nearest, parameters stochastically. */
#include <math.h>
#include <string.h>

#include "kernel_abi.h"

QM_KERNEL("adamw_ao_bf16sr");

static float widen(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* To nearest, ties to even; NaN stays NaN. */
static uint16_t nearest(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Rounds away from 0 with the probability that keeps the mean x. */
static uint16_t stochastic(float x, uint32_t draw)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (!(fabsf(x) < INFINITY))
        return nearest(x);
    return (uint16_t)((bits >> 16) + ((draw >> 16) < (bits & 0xffff)));
}

/* torch.lerp: a + w (b - a) for w < 1/2, else b - (1 - w) (b - a). */
static float lerp(float a, float b, float w)
{
    return w < 0.5f ? fmaf(w, b - a, a) : fmaf(w - 1.0f, b - a, b);
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    float *m = a->slot[0].values, *v = a->slot[1].values;
    if (a->p_dtype != QM_KERNEL_BF16 || a->g_dtype != QM_KERNEL_F32 || !a->p_draws || !m || !v)
        return 1; /* refused */
    uint16_t *p = a->p;
    const float *g = a->g;
    float lr = (float)a->lr, decay = lr * (float)a->weight_decay, eps = (float)a->eps;
    float w1 = (float)(1.0 - a->beta1), w2 = (float)(1.0 - a->beta2);
    float bc1 = 1.0f - (float)pow((double)(float)a->beta1, (double)a->t);
    float root_bc2 = sqrtf(1.0f - (float)pow((double)(float)a->beta2, (double)a->t));

    for (int64_t i = 0; i < a->n; i++) {
        float x = a->maximize ? -g[i] : g[i], w = widen(p[i]);
        w = w - decay * w;
        m[i] = lerp(m[i], x, w1);
        v[i] = lerp(v[i], x * x, w2);
        w = w - lr * (m[i] / bc1) / (sqrtf(v[i]) / root_bc2 + eps);
        p[i] = stochastic(w, a->p_draws[i]);
        m[i] = widen(nearest(m[i]));
        v[i] = widen(nearest(v[i]));
    }
    return 0;
}
