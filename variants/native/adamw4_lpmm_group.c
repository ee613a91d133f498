/* adamw4_lpmm_group.c - 4-bit AdamW of low-bit-optimizers (lpmm), block by block.
 *
 * Tensors of at most 4096 elements come with float32 moments.  In every step the
 * source takes the moments of a tensor of one element as not yet initialized. */
#include <math.h>

#include "kernel_abi.h"

QM_KERNEL("adamw4_lpmm_group");

enum { BLOCK = 128 };

/* Two codes per byte, the even element in the low nibble. */
static int get(const uint8_t *codes, int64_t i)
{
    return i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
}

static void put(uint8_t *codes, int64_t i, int code)
{
    int byte = codes[i / 2];
    codes[i / 2] = (uint8_t)(i % 2 ? (byte & 0x0f) | code << 4 : (byte & 0xf0) | code);
}

static void decode(const struct qm_kernel_slot *s, int64_t from, int64_t n, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = s->bits ? s->codebook[get(s->codes, from + i)] * s->scales[from / BLOCK]
                       : s->values[from + i];
}

/* The nearest code; ties go down, NaN to the top code (a block of zeros: 0 / 0). */
static int nearest(const float *value, float y)
{
    int k = 0;
    while (k < 15 && !(y <= (value[k] + value[k + 1]) * 0.5f))
        k++;
    return k;
}

/* The scale is the largest |x|. */
static void encode(const struct qm_kernel_slot *s, int64_t from, int64_t n, const float *x)
{
    float top = 0.0f;
    for (int64_t i = 0; i < n; i++) /* one NaN makes the scale NaN */
        if (top == top && !(fabsf(x[i]) <= top))
            top = fabsf(x[i]);
    if (s->bits)
        s->scales[from / BLOCK] = top;
    for (int64_t i = 0; i < n; i++)
        if (s->bits)
            put(s->codes, from + i, nearest(s->codebook, x[i] / top));
        else
            s->values[from + i] = x[i];
}

/* torch.lerp: a + w (b - a) for w < 1/2, else b - (1 - w) (b - a). */
static float lerp(float a, float b, float w)
{
    return w < 0.5f ? fmaf(w, b - a, a) : fmaf(w - 1.0f, b - a, b);
}

/* Quantized as this kernel expects it, or plain float32. */
static int fits(const struct qm_kernel_slot *s)
{
    return s->bits ? s->bits == 4 && s->block == BLOCK : s->values != 0;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    const struct qm_kernel_slot *first = &a->slot[0], *second = &a->slot[1];
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !fits(first) || !fits(second))
        return 1; /* refused */
    float *p = a->p, m[BLOCK], v[BLOCK];
    const float *g = a->g;
    double bc1 = 1.0 - pow(a->beta1, (double)a->t), bc2 = 1.0 - pow(a->beta2, (double)a->t);
    float w1 = (float)(1.0 - a->beta1), w2 = (float)(1.0 - a->beta2), beta2 = (float)a->beta2;
    float decay = (float)(1.0 - a->lr * a->weight_decay), step = (float)(-a->lr / bc1);
    float root_bc2 = (float)sqrt(bc2), eps = (float)a->eps;

    for (int64_t from = 0; from < a->n; from += BLOCK) {
        int64_t n = a->n - from < BLOCK ? a->n - from : BLOCK;
        decode(first, from, n, m);
        decode(second, from, n, v);
        for (int64_t i = 0; i < n; i++) {
            float x = a->maximize ? -g[from + i] : g[from + i], *w = &p[from + i];
            float old1 = a->n == 1 && !first->bits ? 0.0f : m[i];
            float old2 = a->n == 1 && !second->bits ? 0.0f : v[i];
            m[i] = lerp(old1, x, w1);
            v[i] = fmaf(w2 * x, x, old2 * beta2);
            *w = *w * decay + step * m[i] / (sqrtf(v[i]) / root_bc2 + eps);
        }
        encode(first, from, n, m);
        encode(second, from, n, v);
    }
    return 0;
}
