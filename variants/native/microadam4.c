/* microadam4.c - MicroAdam with its 4-bit error, block by block.
 *
 * Slot error holds codes between the ends lo and hi of each block, two numbers among the scales, or
 * plain floats.  Slots index and value are `window` rows with room for the elements that a step
 * takes, block of d_block elements after block.  bf16() stands where the source stores a number. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_abi.h"

QM_KERNEL("microadam4");

enum { TOP = 15, BLOCK = 1 << 15 }; /* last code; largest d_block */

static float bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u = x != x ? 0x7fc00000u : (u + 0x7fffu + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* ---- slot error ---- */

static float error_at(const struct qm_kernel_slot *s, int64_t i)
{
    if (!s->bits)
        return s->values[i];
    const float *end = s->scales + i / s->block * 2;
    int code = s->codes[i / 2] >> (i % 2 ? 0 : 4) & 15;
    return (float)code * ((end[1] - end[0]) / (float)TOP) + end[0];
}

static void encode_error(const struct qm_kernel_slot *s, const float *x)
{
    for (int64_t i = 0; !s->bits && i < s->n; i++)
        s->values[i] = x[i];
    for (int64_t from = 0; s->bits && from < s->n; from += s->block) {
        int64_t n = s->n - from < s->block ? s->n - from : s->block;
        float *end = s->scales + from / s->block * 2, lo = x[from], hi = x[from];
        for (int64_t i = from; i < from + n; i++) {
            lo = x[i] < lo || x[i] != x[i] ? x[i] : lo;
            hi = x[i] > hi || x[i] != x[i] ? x[i] : hi;
        }
        lo = bf16(lo);
        hi = bf16(hi);
        float unit = (hi - lo) / (float)TOP;
        for (int64_t i = from; i < from + n; i++) {
            float k = floorf((x[i] - lo) / unit + 0.5f);
            int code = k > 0.0f ? k > (float)TOP ? TOP : (int)k : 0; /* NaN: 0 */
            int rest = i % 2 ? s->codes[i / 2] & 0xf0 : s->codes[i / 2] & 0x0f;
            s->codes[i / 2] = (uint8_t)(rest | code << (i % 2 ? 0 : 4));
        }
        end[0] = lo;
        end[1] = hi;
    }
}

/* ---- the window ---- */

static uint32_t magnitude(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return x != x ? 0x7fffu : u >> 16 & 0x7fffu;
}

/* Moves the k largest of a[n] into a row, the first of equal ones, and leaves 0 in their places. */
static void take(float *a, int64_t n, int64_t k, float *index, float *value)
{
    uint32_t low = 0, high = 0x7fffu; /* the least magnitude that is exceeded by fewer than k */
    int64_t above = 0, at = 0;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        above = 0;
        for (int64_t i = 0; i < n; i++)
            above += magnitude(a[i]) > mid;
        if (above < k)
            high = mid;
        else
            low = mid + 1;
    }
    above = 0;
    for (int64_t i = 0; i < n; i++)
        above += magnitude(a[i]) > low;
    for (int64_t i = 0, equal = k - above; i < n && at < k; i++) {
        if (magnitude(a[i]) < low || (magnitude(a[i]) == low && equal-- <= 0))
            continue;
        index[at] = (float)i;
        value[at++] = a[i];
        a[i] = 0.0f;
    }
}

static float power(float b, int64_t e)
{
    float x = 1.0f;
    for (; e > 0; e >>= 1, b = b * b)
        x = e & 1 ? x * b : x;
    return x;
}

/* The sums of a block of n elements, which begins at place `at` of each row of `row` places; v is
 * -1 where no row has an element. */
static void gather(const struct qm_kernel_args *a, int64_t n, int64_t at, int64_t k, int64_t row,
                   float *m, float *v)
{
    int64_t window = (int64_t)a->window, rows = a->t < window ? a->t : window;
    for (int64_t i = 0; i < n; i++) {
        m[i] = 0.0f;
        v[i] = -1.0f;
    }
    for (int64_t r = 0; r < rows; r++) {
        int64_t age = (a->t - 1 - r) % window;
        float first = power((float)a->beta1, age), second = power((float)a->beta2, age);
        for (int64_t j = r * row + at; j < r * row + at + k; j++) {
            float place = a->slot[1].values[j], x = a->slot[2].values[j];
            if (!(place >= 0.0f && place < (float)n))
                continue;
            int64_t i = (int64_t)place;
            m[i] = m[i] + first * x;
            v[i] = (v[i] == -1.0f ? 0.0f : v[i]) + second * x * x;
        }
    }
}

/* ---- the step ---- */

static float load(const void *x, int dtype, int64_t i)
{
    float out;
    uint32_t u;
    if (dtype == QM_KERNEL_F32)
        return ((const float *)x)[i];
    u = (uint32_t)((const uint16_t *)x)[i] << 16;
    memcpy(&out, &u, sizeof out);
    return out;
}

/* p of element i, stored; x is rounded as p is. */
static float round_p(const struct qm_kernel_args *a, float x)
{
    return a->p_dtype == QM_KERNEL_BF16 ? bf16(x) : x;
}

static void store_p(const struct qm_kernel_args *a, int64_t i, float x)
{
    uint32_t u;
    if (a->p_dtype == QM_KERNEL_F32) {
        ((float *)a->p)[i] = x;
        return;
    }
    x = bf16(x);
    memcpy(&u, &x, sizeof u);
    ((uint16_t *)a->p)[i] = (uint16_t)(u >> 16);
}

static void update(const struct qm_kernel_args *a, int64_t from, int64_t n, const float *m,
                   const float *v, float *left)
{
    float b1 = (float)a->beta1, b2 = (float)a->beta2;
    float c1 = (float)((1.0 - b1) / (1.0 - power(b1, a->t)));
    float c2 = (float)((1.0 - b2) / (1.0 - power(b2, a->t)));
    float keep = (float)(1.0 - a->lr * a->weight_decay), alpha = (float)a->alpha,
          eps = (float)a->eps;
    float rate = round_p(a, (float)a->lr), rest = (float)(1.0 - a->alpha);
    for (int64_t i = 0; i < n; i++) {
        float p = load(a->p, a->p_dtype, from + i), u = 0.0f;
        if (a->weight_decay > 0.0)
            p = round_p(a, p * keep);
        if (a->alpha == -2.0) {
            p = round_p(a, p - left[i]);
            p = round_p(a, p + bf16(error_at(&a->slot[0], from + i)));
        }
        if (v[i] != -1.0f)
            u = bf16(c1 * m[i] / (sqrtf(c2 * v[i]) + eps));
        if (a->alpha > 0.0) {
            float e = error_at(&a->slot[0], from + i);
            u = bf16(u + bf16(e * alpha));
            left[i] = bf16(e * rest);
        }
        store_p(a, from + i, p - rate * u);
    }
}

static int64_t share(double k_init, int64_t n) { return (int64_t)ceil((double)n * k_init); }

int qm_kernel_step(const struct qm_kernel_args *a)
{
    static float m[BLOCK], v[BLOCK];
    const struct qm_kernel_slot *e = &a->slot[0];
    int is_known =
        !e->bits || (e->bits == 4 && e->block > 0 && !strncmp(e->quantizer, "affine", 6));
    if (!is_known || (a->p_dtype != QM_KERNEL_F32 && strcmp(a->param, "bf16/near") != 0) ||
        (a->g_dtype != QM_KERNEL_F32 && a->g_dtype != QM_KERNEL_BF16))
        return 1; /* refused */
    if (a->n == 0)
        return 0;
    int64_t block = (double)a->n < a->d_block ? a->n : (int64_t)a->d_block;
    int64_t many = share(a->k_init, block), row = a->slot[1].n / (int64_t)a->window;
    int64_t now = (a->t - 1) % (int64_t)a->window * row;
    float *left = malloc(sizeof *left * (size_t)a->n);
    if (!left)
        return 1;
    for (int64_t i = 0; i < a->n; i++)
        left[i] = bf16(bf16(load(a->g, a->g_dtype, i)) + bf16(error_at(e, i)));
    for (int64_t from = 0, at = now; from < a->n; from += block) {
        int64_t n = a->n - from < block ? a->n - from : block, k = share(a->k_init, n);
        take(left + from, n, k, a->slot[1].values + at, a->slot[2].values + at);
        at += k;
    }
    encode_error(e, left);
    for (int64_t from = 0, at = 0; from < a->n; from += block, at += many) {
        int64_t n = a->n - from < block ? a->n - from : block;
        gather(a, n, at, share(a->k_init, n), row, m, v);
        update(a, from, n, m, v, left + from);
    }
    if (a->alpha > 0.0)
        encode_error(e, left);
    free(left);
    return 0;
}
