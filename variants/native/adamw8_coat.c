/* adamw8_coat.c - FP8 AdamW of COAT with dynamic range expansion, block by block.
 *
 * A block of 128 keeps three numbers, scale, exponent k and centre c: an element x is the e4m3 code
 * of (|x| / c)^k / scale with the sign of x.  The plain form keeps a scale alone.  Maximum and
 * minimum are those of the source's reduction by warps of 32 lanes, which may lose the minimum
 * where a lane holds 0, so that a kernel has to do the same.
 *
 * Also: adamw8_coat_plain */
#include <math.h>
#include <string.h>

#include "kernel_abi.h"

QM_KERNEL("adamw8_coat");

enum { BLOCK = 128, LANES = 32, WARPS = BLOCK / LANES, NUMBERS = 3 };

static const float top = 448.0f, range = 100352.0f, steps = 16.0f;

static int expands(const struct qm_kernel_slot *s) { return strstr(s->quantizer, "/expand") != 0; }

/* ---- e4m3 ---- */

/* The nearest number of the format, ties to even; larger ones become 448, NaN the code 127. */
static uint8_t to_e4m3(float y)
{
    float size = fabsf(y);
    int e, sign = signbit(y) ? 0x80 : 0;
    if (y != y)
        return 0x7f;
    if (size >= top)
        return (uint8_t)(sign | 0x7e);
    frexpf(size, &e); /* size < 2^e */
    e = size < 0x1p-6f ? -9 : e - 4;
    int code = (int)rintf(ldexpf(size, -e)); /* in units of the last place, 2^e */
    return (uint8_t)(sign | (code + 8 * (e + 9)));
}

/* ---- a block's numbers ---- */

/* With the distances 16, 8, 4, 2, 1 each lane takes maximum and minimum of the lane that far above
 * it.  No zero is taken as a minimum. */
static void reduce(float *most, float *least)
{
    for (int d = LANES / 2; d > 0; d /= 2)
        for (int l = 0; l + d < LANES; l++) {
            most[l] = fmaxf(most[l], most[l + d]);
            if (least[l + d] > 0.0f)
                least[l] = fminf(least[l], least[l + d]);
        }
}

static void extremes(int64_t n, const float *x, float *most, float *least)
{
    float high[LANES], low[LANES], warp_high[LANES], warp_low[LANES];
    for (int l = 0; l < LANES; l++)
        warp_high[l] = 0.0f, warp_low[l] = 1e9f;
    for (int w = 0; w < WARPS; w++) {
        for (int l = 0; l < LANES; l++) {
            int64_t i = w * LANES + l;
            high[l] = i < n ? fabsf(x[i]) : 0.0f;
            low[l] = i < n ? fabsf(x[i]) : 3.4028234664e38f;
        }
        reduce(high, low);
        warp_high[w] = high[0];
        warp_low[w] = low[0];
    }
    reduce(warp_high, warp_low);
    *most = warp_high[0];
    *least = warp_low[0];
}

/* Sets scale, exponent and centre of a block. */
static void measure(int64_t n, const float *x, float *number)
{
    float most, least;
    extremes(n, x, &most, &least);
    most = (float)((double)most + 1e-30);
    least = (float)((double)least + 1e-30);
    float c = sqrtf(most) * sqrtf(least);
    float k = floorf(log2f(range) / log2f(most / least) * steps) / steps;
    number[0] = powf(most / c, k) / top;
    number[1] = k;
    number[2] = c;
}

/* (the largest magnitude + 1e-20) / 448; a NaN is left out. */
static float plain_scale(int64_t n, const float *x)
{
    float most = 0.0f;
    for (int64_t i = 0; i < n; i++)
        if (fabsf(x[i]) > most)
            most = fabsf(x[i]);
    return (float)((double)most + 1e-20) / top;
}

/* ---- a block's elements ---- */

static void decode(const struct qm_kernel_slot *s, int64_t from, int64_t n, float *x)
{
    for (int64_t i = 0; i < n; i++) {
        if (!s->bits) {
            x[i] = s->values[from + i];
            continue;
        }
        float unit = s->codebook[s->codes[from + i]];
        if (!expands(s)) {
            x[i] = unit * s->scales[from / BLOCK];
            continue;
        }
        const float *number = s->scales + from / BLOCK * NUMBERS;
        float y = unit * number[0], size = powf(fabsf(y), 1.0f / number[1]) * number[2];
        x[i] = y == y && signbit(y) ? -size : size; /* NaN^0 = 1, and has no sign */
    }
}

static void encode(const struct qm_kernel_slot *s, int64_t from, int64_t n, const float *x)
{
    float *number = s->bits ? s->scales + from / BLOCK * (expands(s) ? NUMBERS : 1) : 0;
    if (s->bits && expands(s))
        measure(n, x, number);
    else if (s->bits)
        *number = plain_scale(n, x);
    for (int64_t i = 0; i < n; i++) {
        if (!s->bits) {
            s->values[from + i] = x[i];
            continue;
        }
        float y = x[i];
        if (expands(s))
            y = copysignf(powf(fabsf(x[i]) / number[2], number[1]), x[i]);
        s->codes[from + i] = to_e4m3(y / number[0]);
    }
}

/* ---- the step ---- */

/* Quantized as this kernel expects it, or plain float32. */
static int fits(const struct qm_kernel_slot *s)
{
    return s->bits ? s->bits == 8 && s->block == BLOCK : s->values || s->n == 0;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || !fits(&a->slot[0]) ||
        !fits(&a->slot[1]))
        return 1; /* refused */
    float *p = a->p, m[BLOCK], v[BLOCK];
    const float *g = a->g;
    float lr = (float)a->lr, b1 = (float)a->beta1, b2 = (float)a->beta2, eps = (float)a->eps;
    float decay = (float)a->weight_decay, c1 = 1.0f - powf(b1, (float)a->t);
    float c2 = sqrtf(1.0f - powf(b2, (float)a->t));

    for (int64_t from = 0; from < a->n; from += BLOCK) {
        int64_t n = a->n - from < BLOCK ? a->n - from : BLOCK;
        decode(&a->slot[0], from, n, m);
        decode(&a->slot[1], from, n, v);
        for (int64_t i = 0; i < n; i++) {
            float x = a->maximize ? -g[from + i] : g[from + i], *w = &p[from + i];
            m[i] = b1 * m[i] + (1.0f - b1) * x;
            v[i] = b2 * v[i] + (1.0f - b2) * x * x;
            *w = *w - lr * (m[i] / ((sqrtf(v[i]) / c2 + eps) * c1) + decay * *w);
        }
        encode(&a->slot[0], from, n, m);
        encode(&a->slot[1], from, n, v);
    }
    return 0;
}
