/* adamw4_lpmm.c - 4-bit AdamW of low-bit-optimizers (lpmm) with its default.yml.
 *
 * The second moment has one scale per index of every axis; an element uses the smallest of its own.
 *
 * Tensors of at most 4096 elements come with float32 moments.  The source takes moments of one
 * element for not yet initialized in every step.
 *
 * Also: adamw_lpmm_vonly */
#include <math.h>
#include <stdlib.h>

#include "kernel_abi.h"

QM_KERNEL("adamw4_lpmm");

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

/* The larger, NaN if either is. */
static float larger(float a, float b) { return a == a && !(b <= a) ? b : a; }

/* Index of the scale of element i along axis d; a 1-D tensor has blocks as its axis 0. */
static int64_t scale_at(const struct qm_kernel_slot *s, int64_t i, int d)
{
    int64_t base = 0;
    if (s->ndim < 2)
        return i / BLOCK;
    for (int k = s->ndim - 1; k > d; k--)
        i /= s->dim[k];
    for (int k = 0; k < d; k++)
        base += s->dim[k];
    return base + i % s->dim[d];
}

/* The smallest scale of element i, NaN if any is. */
static float smallest(const struct qm_kernel_slot *s, const float *scales, int64_t i)
{
    float least = scales[scale_at(s, i, 0)];
    for (int d = 1; d < s->ndim; d++) {
        float x = scales[scale_at(s, i, d)];
        if (least == least && !(x >= least))
            least = x;
    }
    return least;
}

static float decode(const struct qm_kernel_slot *s, const float *scales, int64_t i)
{
    return s->bits ? s->codebook[get(s->codes, i)] * smallest(s, scales, i) : s->values[i];
}

/* The nearest code; ties go down, NaN to the top code (a block of zeros: 0 / 0). */
static int nearest(const float *value, float y)
{
    int k = 0;
    while (k < 15 && !(y <= (value[k] + value[k + 1]) * 0.5f))
        k++;
    return k;
}

/* The scale of a block of the first moment is its largest |x|. */
static void encode(const struct qm_kernel_slot *s, int64_t from, int64_t n, const float *x)
{
    float top = 0.0f;
    for (int64_t i = 0; i < n; i++)
        top = larger(top, fabsf(x[i]));
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

/* The new second moment of element i. */
static float second_of(const struct qm_kernel_args *a, const float *scales, int64_t i)
{
    const struct qm_kernel_slot *s = &a->slot[1];
    float x = ((const float *)a->g)[i], w2 = (float)(1.0 - a->beta2), beta2 = (float)a->beta2;
    float old = a->n == 1 && !s->bits ? 0.0f : decode(s, scales, i);
    return fmaf(w2 * x, x, old * beta2);
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    const struct qm_kernel_slot *first = &a->slot[0], *second = &a->slot[1];
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 ||
        (first->bits && (first->bits != 4 || first->block != BLOCK)) ||
        (second->bits && second->bits != 4))
        return 1; /* refused */
    float *p = a->p, m[BLOCK], *old = calloc((size_t)second->n_scales + 1, 2 * sizeof(float));
    const float *g = a->g;
    double bc1 = 1.0 - pow(a->beta1, (double)a->t), bc2 = 1.0 - pow(a->beta2, (double)a->t);
    float decay = (float)(1.0 - a->lr * a->weight_decay), step = (float)(-a->lr / bc1);
    float root_bc2 = (float)sqrt(bc2), eps = (float)a->eps, w1 = (float)(1.0 - a->beta1);
    float *fresh = old + second->n_scales;
    if (!old)
        return 2;

    for (int64_t k = 0; k < second->n_scales; k++)
        old[k] = second->scales[k];
    for (int64_t i = 0; i < a->n && second->bits; i++) /* all scales before the first code */
        for (int d = 0; d < (second->ndim < 2 ? 1 : second->ndim); d++) {
            float *top = &fresh[scale_at(second, i, d)];
            *top = larger(*top, fabsf(second_of(a, old, i)));
        }
    for (int64_t from = 0; from < a->n; from += BLOCK) {
        int64_t n = a->n - from < BLOCK ? a->n - from : BLOCK;
        for (int64_t i = from; i < from + n; i++) {
            float v = second_of(a, old, i), x = 0.0f;
            if (first->bits)
                x = first->codebook[get(first->codes, i)] * first->scales[from / BLOCK];
            else if (a->n > 1)
                x = first->values[i];
            m[i - from] = x = lerp(x, a->maximize ? -g[i] : g[i], w1);
            p[i] = p[i] * decay + step * x / (sqrtf(v) / root_bc2 + eps);
            if (second->bits)
                put(second->codes, i, nearest(second->codebook, v / smallest(second, fresh, i)));
            else
                second->values[i] = v;
        }
        encode(first, from, n, m);
    }
    for (int64_t k = 0; k < second->n_scales; k++)
        second->scales[k] = fresh[k];
    free(old);
    return 0;
}
