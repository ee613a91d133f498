/* adamw4_2_solo.c - 4/2-bit AdamW of SOLO, block by block.
 *
 * The moments share their blocks: `block` of a slot is the largest divisor of the number of
 * elements up to 128, so that no block is short.  The second moment keeps two numbers per block,
 * its scale and the base alpha of its powers; code 0 is the maximum.  The variant keeps moments of
 * fewer than 128 elements, or whose codes do not fill whole bytes, in float32; a recipe may give
 * them codes nevertheless, and `qualm check` does. */
#include <math.h>

#include "kernel_abi.h"

QM_KERNEL("adamw4_2_solo");

enum { BLOCK = 128, LAST = 3 }; /* largest block; last code of the second moment */

static const float quantile = 0.1f, least = 1e-12f;

/* Codes of 4 and 2 bits, the first in the highest bits of a byte. */
static int get(const struct qm_kernel_slot *s, int64_t i)
{
    int per = 8 / s->bits, shift = s->bits * (per - 1 - (int)(i % per));
    return s->codes[i / per] >> shift & ((1 << s->bits) - 1);
}

static void put(const struct qm_kernel_slot *s, int64_t i, int code)
{
    int per = 8 / s->bits, shift = s->bits * (per - 1 - (int)(i % per));
    int rest = s->codes[i / per] & ~(((1 << s->bits) - 1) << shift);
    s->codes[i / per] = (uint8_t)(rest | code << shift);
}

/* The largest |x|, at least 1e-12; NaN where one is. */
static float scale_of(int64_t n, const float *x)
{
    float top = least;
    for (int64_t i = 0; i < n; i++)
        if (top == top && !(fabsf(x[i]) <= top))
            top = fabsf(x[i]);
    return top;
}

/* ---- first moment: the dynamic map ---- */

static void decode_first(const struct qm_kernel_slot *s, int64_t from, int64_t n, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = s->bits ? s->codebook[get(s, from + i)] * s->scales[from / s->block]
                       : s->values[from + i];
}

/* The nearest code; ties go up, NaN to code 0. */
static int nearest(const float *value, float y)
{
    int k = 0;
    while (k < 15 && y - value[k] >= (value[k + 1] - value[k]) * 0.5f)
        k++;
    return k;
}

static void encode_first(const struct qm_kernel_slot *s, int64_t from, int64_t n, const float *x)
{
    float top = scale_of(n, x);
    if (s->bits)
        s->scales[from / s->block] = top;
    for (int64_t i = 0; i < n; i++)
        if (s->bits)
            put(s, from + i, nearest(s->codebook, x[i] / top));
        else
            s->values[from + i] = x[i];
}

/* ---- second moment: powers of alpha ---- */

static void decode_second(const struct qm_kernel_slot *s, int64_t from, int64_t n, float *x)
{
    float value[LAST + 1];
    for (int k = 0; s->bits && k <= LAST; k++) {
        const float *number = s->scales + from / s->block * 2;
        value[k] = powf(number[1], (float)k) * number[0];
    }
    for (int64_t i = 0; i < n; i++)
        x[i] = s->bits ? value[get(s, from + i)] : s->values[from + i];
}

/* torch.quantile of n numbers without NaN. */
static float quantile_of(int64_t n, const float *x)
{
    float sorted[BLOCK], rank = quantile * (float)(n - 1), w = rank - floorf(rank);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i;
        for (; k > 0 && sorted[k - 1] > x[i]; k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = x[i];
    }
    float a = sorted[(int)floorf(rank)], c = sorted[(int)ceilf(rank)];
    return w < 0.5f ? fmaf(w, c - a, a) : fmaf(w - 1.0f, c - a, c);
}

/* The power of y = alpha^k, rounded at random to either whole number around it. */
static int power_of(float y, float alpha, uint32_t draw)
{
    float u = (float)draw * 0x1p-32f + 0x1p-33f;
    float k = rintf(log2f(y) / log2f(alpha) + (u - 0.5f));
    return k > 0.0f ? k > (float)LAST ? LAST : (int)k : 0; /* NaN: 0 */
}

static void encode_second(const struct qm_kernel_slot *s, int64_t from, int64_t n, const float *x)
{
    float top = scale_of(n, x), alpha = top;
    if (top == top)
        alpha = powf(quantile_of(n, x) / top, 1.0f / (float)LAST);
    if (s->bits) {
        s->scales[from / s->block * 2] = top;
        s->scales[from / s->block * 2 + 1] = alpha;
    }
    for (int64_t i = 0; i < n; i++)
        if (s->bits)
            put(s, from + i, power_of(x[i] / top, alpha, s->draws[from + i]));
        else
            s->values[from + i] = x[i];
}

/* ---- the step ---- */

/* torch.lerp: a + w (b - a) for w < 1/2, else b - (1 - w) (b - a). */
static float lerp(float a, float b, float w)
{
    return w < 0.5f ? fmaf(w, b - a, a) : fmaf(w - 1.0f, b - a, b);
}

/* Quantized as this kernel expects it, or plain float32. */
static int fits(const struct qm_kernel_slot *s, int bits)
{
    return s->bits ? s->bits == bits && s->block >= 1 && s->block <= BLOCK : s->values || s->n == 0;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    const struct qm_kernel_slot *first = &a->slot[0], *second = &a->slot[1];
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !fits(first, 4) ||
        !fits(second, 2) || (first->bits && second->bits && first->block != second->block))
        return 1; /* refused */
    float *p = a->p, m[BLOCK], v[BLOCK];
    const float *g = a->g;
    float keep = (float)(1.0 - a->lr * a->weight_decay), eps = (float)a->eps;
    float w1 = (float)(1.0 - a->beta1), w2 = (float)(1.0 - a->beta2);
    float step = (float)(-a->lr / (1.0 - pow(a->beta1, (double)a->t)));
    float root_bc2 = (float)sqrt(1.0 - pow(a->beta2, (double)a->t));
    int64_t block = first->bits ? first->block : second->bits ? second->block : BLOCK;

    for (int64_t from = 0; from < a->n; from += block) {
        int64_t n = a->n - from < block ? a->n - from : block;
        decode_first(first, from, n, m);
        decode_second(second, from, n, v);
        for (int64_t i = 0; i < n; i++) {
            float x = a->maximize ? -g[from + i] : g[from + i], *w = &p[from + i];
            *w = *w * keep;
            m[i] = lerp(m[i], x, w1);
            v[i] = lerp(v[i], x * x, w2);
            *w = *w + step * m[i] / (sqrtf(v[i]) / root_bc2 + eps);
        }
        encode_first(first, from, n, m);
        encode_second(second, from, n, v);
    }
    return 0;
}
