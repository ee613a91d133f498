/* adamw4_qm.c - AdamW with few bits for both moments and one scale per index of every axis.
 *
 * An element uses the smallest of its own scales; a 1-D tensor has blocks of 128.  adamw4_qm has
 * NF4 momentum and the square root of the second moment in 4 bits each; adamw5_3_qm has 5 bits of
 * 2u / (1 + |u|) of the momentum's unit value u, and 3 bits of the root.  Codes are a stream of
 * bits, the first one highest.  Tensors of at most 4096 elements come with float32 moments.
 *
 * Also: adamw5_3_qm */
#include <math.h>
#include <stdlib.h>

#include "kernel_abi.h"

QM_KERNEL("adamw4_qm");

enum { BLOCK = 128 };

/* The byte in which the code of element i begins, and behind it the next, where it ends there. */
static int word_at(const struct qm_kernel_slot *s, int64_t i)
{
    const uint8_t *at = s->codes + i * s->bits / 8;
    return at[0] << 8 | (i * s->bits % 8 + s->bits > 8 ? at[1] : 0);
}

/* How far left the lowest bit of that code lies in the two bytes. */
static int place_of(const struct qm_kernel_slot *s, int64_t i)
{
    return 16 - (int)(i * s->bits % 8) - s->bits;
}

static int get(const struct qm_kernel_slot *s, int64_t i)
{
    return word_at(s, i) >> place_of(s, i) & ((1 << s->bits) - 1);
}

static void put(const struct qm_kernel_slot *s, int64_t i, int code)
{
    uint8_t *at = s->codes + i * s->bits / 8;
    int place = place_of(s, i), mask = ((1 << s->bits) - 1) << place;
    int word = (word_at(s, i) & ~mask) | code << place;
    at[0] = (uint8_t)(word >> 8);
    if (place < 8)
        at[1] = (uint8_t)word;
}

/* The larger, NaN if either is. */
static float larger(float a, float b) { return a == a && !(b <= a) ? b : a; }

static int has_root(const struct qm_kernel_slot *s) { return !s->is_signed; }

static int has_softsign(const struct qm_kernel_slot *s) { return s->bits == 5; }

/* What the scales are maxima of. */
static float magnitude(const struct qm_kernel_slot *s, float x)
{
    return has_root(s) ? sqrtf(x) : fabsf(x);
}

/* The scales of element i, one for each axis; a 1-D tensor has blocks as its axis.  Returns how
 * many. */
static int scales_of(const struct qm_kernel_slot *s, int64_t i, int64_t *at)
{
    int64_t base = s->n_scales;
    at[0] = i / BLOCK;
    for (int d = s->ndim - 1; d >= 0 && s->ndim > 1; d--) {
        base -= s->dim[d];
        at[d] = base + i % s->dim[d];
        i /= s->dim[d];
    }
    return s->ndim > 1 ? s->ndim : 1;
}

/* The smallest scale of element i, NaN if any is. */
static float smallest(const struct qm_kernel_slot *s, const float *scales, int64_t i)
{
    int64_t at[QM_KERNEL_RANK];
    int n = scales_of(s, i, at);
    float least = scales[at[0]];
    for (int d = 1; d < n; d++) {
        float x = scales[at[d]];
        if (least == least && !(x >= least))
            least = x;
    }
    return least;
}

static float decode(const struct qm_kernel_slot *s, const float *scales, int64_t i)
{
    if (!s->bits)
        return s->values[i];
    float y = s->codebook[get(s, i)];
    if (has_softsign(s))
        y = y / (2.0f - fabsf(y));
    y = y * smallest(s, scales, i);
    return has_root(s) ? y * y : y;
}

/* The nearest code; ties go down, NaN to code 0 (a row of zeros: 0 / 0). */
static int nearest(const struct qm_kernel_slot *s, float y)
{
    int k = 0, last = (1 << s->bits) - 1;
    while (s->codebook[last] != s->codebook[last])
        last--; /* codes that the map does not have */
    while (k < last && y > (s->codebook[k] + s->codebook[k + 1]) * 0.5f)
        k++;
    return k;
}

static void encode(const struct qm_kernel_slot *s, const float *scales, int64_t i, float x)
{
    if (!s->bits) {
        s->values[i] = x;
        return;
    }
    float y = (has_root(s) ? sqrtf(x) : x) / smallest(s, scales, i);
    if (has_softsign(s))
        y = 2.0f * y / (1.0f + fabsf(y));
    put(s, i, nearest(s, y));
}

/* The new moments of element i, from the codes and the scales old[0] and old[1]. */
static void fresh_of(const struct qm_kernel_args *a, float *const *old, int64_t i, float *m,
                     float *v)
{
    float x = ((const float *)a->g)[i], take1 = (float)(1.0 - a->beta1);
    float take2 = (float)(1.0 - a->beta2);
    x = a->maximize ? -x : x;
    *m = decode(&a->slot[0], old[0], i);
    *v = decode(&a->slot[1], old[1], i);
    *m = take1 < 0.5f ? *m + take1 * (x - *m) : x - (float)a->beta1 * (x - *m);
    *v = (float)a->beta2 * *v + take2 * x * x;
}

/* Sets fresh[] to the maxima of the new moments: all scales before the first code. */
static void find_scales(const struct qm_kernel_args *a, float *const *old, float *const *fresh)
{
    for (int64_t i = 0; i < a->n; i++) {
        float x[2];
        int64_t at[QM_KERNEL_RANK];
        fresh_of(a, old, i, &x[0], &x[1]);
        for (int k = 0; k < 2; k++)
            for (int d = a->slot[k].bits ? scales_of(&a->slot[k], i, at) : 0; d-- > 0;) {
                float *top = &fresh[k][at[d]];
                *top = larger(*top, magnitude(&a->slot[k], x[k]));
            }
    }
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    const struct qm_kernel_slot *s = a->slot;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32)
        return 1; /* refused */
    int64_t count = s[0].n_scales + s[1].n_scales;
    float *room = calloc((size_t)count + 1, 2 * sizeof(float)), *p = a->p;
    if (!room)
        return 2;
    float *old[] = {room, room + s[0].n_scales};
    float *fresh[] = {room + count, room + count + s[0].n_scales};
    double bc1 = 1.0 - pow(a->beta1, (double)a->t), bc2 = 1.0 - pow(a->beta2, (double)a->t);
    float decay = (float)(1.0 - a->lr * a->weight_decay), lr = (float)(a->lr / bc1);
    float root_bc2 = (float)sqrt(bc2), eps = (float)a->eps;

    for (int k = 0; k < 2; k++)
        for (int64_t j = 0; j < s[k].n_scales; j++)
            old[k][j] = s[k].scales[j];
    find_scales(a, old, fresh);
    for (int64_t i = 0; i < a->n; i++) {
        float m, v;
        fresh_of(a, old, i, &m, &v);
        p[i] = p[i] * decay - lr * m / (sqrtf(v) / root_bc2 + eps);
        encode(&s[0], fresh[0], i, m);
        encode(&s[1], fresh[1], i, v);
    }
    for (int k = 0; k < 2; k++)
        for (int64_t j = 0; j < s[k].n_scales; j++)
            s[k].scales[j] = fresh[k][j];
    free(room);
    return 0;
}
