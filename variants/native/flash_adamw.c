/* flash_adamw.c - FlashOptim's AdamW: bfloat16 parameters with one byte of error each.
 *
 * exp_avg has 8 bits of 2u / (1 + |u|) of the unit value u, exp_avg_sq has 8 bits of sqrt(u). */
#include <math.h>
#include <string.h>

#include "kernel_abi.h"

QM_KERNEL("flash_adamw");

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

/* The curves before the scale: x itself, or its square root. */
static float decode(const struct qm_kernel_slot *s, int64_t i)
{
    float z = s->codebook[s->codes[i]], scale = s->scales[i / BLOCK];
    if (s->is_signed)
        return z / (2.0f - fabsf(z)) * scale;
    return z * scale * (z * scale);
}

/* x is divided by the float32 scale, which is then stored as float16; ties go up, NaN to code 0. */
static void encode(const struct qm_kernel_slot *s, int64_t from, int64_t n, const float *x)
{
    float top = 1e-12f, steps = s->is_signed ? 127.0f : 255.0f,
          first = s->is_signed ? 127.0f : 0.0f;
    for (int64_t i = 0; i < n; i++) /* one NaN makes the scale NaN */
        if (top == top && !(fabsf(x[i]) <= top))
            top = fabsf(x[i]);
    s->scales[from / BLOCK] = half(top);
    for (int64_t i = 0; i < n; i++) {
        float y = x[i] / top;
        if (s->is_signed)
            y = 2.0f * y / (1.0f + fabsf(y));
        y = y * steps;
        float k = floorf(y);
        s->codes[from + i] = (uint8_t)(y == y ? k + first + (float)(y - k >= 0.5f) : 0.0f);
    }
}

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

/* Exponent of the ulp of a bfloat16. */
static int ulp_of(uint16_t h)
{
    int e = h >> 7 & 255;
    return (e == 0 ? -126 : e - 127) - 7;
}

/* The parameter plus its stored rounding error, in units of 1/127 of half an ulp. */
static float whole(uint16_t h, int lost)
{
    return widen(h) + ldexpf((float)lost / 127.0f, ulp_of(h) - 1);
}

static int8_t lost_by(float x, uint16_t h)
{
    float r = ldexpf(x - widen(h), 1 - ulp_of(h));
    if (!(fabsf(r) < INFINITY))
        return 0;
    r = r > 1.0f ? 1.0f : r < -1.0f ? -1.0f : r;
    float e = floorf(fabsf(r * 127.0f) + 0.5f);
    return (int8_t)(r < 0.0f ? -e : e);
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    const struct qm_kernel_slot *first = &a->slot[0], *second = &a->slot[1];
    if (a->p_dtype != QM_KERNEL_BF16 || !a->residual || a->g_dtype != QM_KERNEL_F32 ||
        first->bits != 8 || second->bits != 8 || first->block != BLOCK || second->block != BLOCK)
        return 1; /* refused */
    uint16_t *p = a->p;
    int8_t *lost = a->residual;
    const float *g = a->g;
    float m[BLOCK], root[BLOCK], lr = (float)a->lr, eps = (float)a->eps;
    float beta1 = (float)a->beta1, take1 = 1.0f - beta1;
    float beta2 = (float)a->beta2, take2 = 1.0f - beta2;
    float bc1 = 1.0f - (float)pow((double)beta1, (double)a->t);
    float bc2 = 1.0f - (float)pow((double)beta2, (double)a->t);
    double rate = !a->decouple_lr ? a->lr : a->initial_lr != 0.0 ? a->lr / a->initial_lr : 1.0;
    float decay = 1.0f - (float)(a->weight_decay * rate);

    for (int64_t from = 0; from < a->n; from += BLOCK) {
        int64_t n = a->n - from < BLOCK ? a->n - from : BLOCK;
        for (int64_t i = 0; i < n; i++) {
            float x = a->maximize ? -g[from + i] : g[from + i];
            float v = decode(second, from + i) * beta2 + x * x * take2;
            m[i] = decode(first, from + i) * beta1 + x * take1;
            root[i] = sqrtf(v);
            float w = whole(p[from + i], lost[from + i]) * decay -
                      lr * (m[i] / bc1) / (sqrtf(v / bc2) + eps);
            p[from + i] = nearest(w);
            lost[from + i] = lost_by(w, p[from + i]);
        }
        encode(first, from, n, m);
        encode(second, from, n, root);
    }
    return 0;
}
