/* lion8_fused.c - 8-bit Lion as the kernel of DecoupledLionW_8bit computes it.
 *
 * The momentum is int8 in groups of 32, with one float16 scale each. */
#include <math.h>
#include <string.h>

#include "kernel_abi.h"

QM_KERNEL("lion8_fused");

enum { BLOCK = 32 };

/* x rounded to float16, ties to even, as the float32 it decodes to; x is not negative. */
static float half(float x)
{
    if (x >= 65520.0f)
        return INFINITY;
    if (x != x)
        return x;
    if (x < 0x1p-14f) /* steps of 2^-24 */
        return x + 0.5f - 0.5f;
    uint32_t bits; /* the last 13 bits are rounded off; a carry may reach the exponent */
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* Codes are k + 127 for k = -127 to 127. */
static float decode(const struct qm_kernel_slot *s, int64_t i)
{
    return s->codebook[s->codes[i]] * s->scales[i / BLOCK];
}

/* x is divided by the float32 scale, which is then stored as float16. */
static void encode(const struct qm_kernel_slot *s, int64_t from, int64_t n, const float *x)
{
    float top = 1e-12f;
    for (int64_t i = 0; i < n; i++) /* one NaN makes the scale NaN */
        if (top == top && !(fabsf(x[i]) <= top))
            top = fabsf(x[i]);
    s->scales[from / BLOCK] = half(top);
    for (int64_t i = 0; i < n; i++) {
        float y = x[i] / top * 127.0f, k = floorf(y); /* ties go up, NaN to code 0 */
        s->codes[from + i] = (uint8_t)(y == y ? k + 127.0f + (float)(y - k >= 0.5f) : 0.0f);
    }
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    const struct qm_kernel_slot *s = &a->slot[0];
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || s->bits != 8 ||
        s->block != BLOCK)
        return 1; /* refused */
    float *p = a->p, m[BLOCK], lr = (float)a->lr;
    const float *g = a->g;
    float beta1 = (float)a->beta1, take1 = 1.0f - beta1;
    float beta2 = (float)a->beta2, take2 = 1.0f - beta2;
    double per_step =
        a->initial_lr != 0.0 ? a->weight_decay * (a->lr / a->initial_lr) : a->weight_decay;
    float decay = 1.0f - (float)per_step;

    for (int64_t from = 0; from < a->n; from += BLOCK) {
        int64_t n = a->n - from < BLOCK ? a->n - from : BLOCK;
        for (int64_t i = 0; i < n; i++) {
            float x = a->maximize ? -g[from + i] : g[from + i];
            float old = decode(s, from + i), u = old * beta1 + x * take1;
            float sign = (float)((u > 0.0f) - (u < 0.0f)); /* NaN has no direction */
            m[i] = old * beta2 + x * take2;
            p[from + i] = p[from + i] * decay - sign * lr;
        }
        encode(s, from, n, m);
    }
    return 0;
}
