/* muon8_bnb_triton.c - 8-bit Muon of a fork of bitsandbytes, with the codes of its GPU kernel.
 *
 * The momentum is kept on the signed dynamic map, one absmax per block of the flattened tensor.
 * The step is an orthogonal factor of the momentum before it is encoded, by five iterations of
 * Polar Express with one rounding to bfloat16 a line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_abi.h"

QM_KERNEL("muon8_bnb_triton");

static const float triple[5][3] = {{7.892582874424408f, -20.38301394587957f, 13.555306149406924f},
                                   {3.911484868135431f, -2.5464635929060884f, 0.4268988319673074f},
                                   {3.760657955697423f, -2.512819018216563f, 0.4323647349070073f},
                                   {3.160399673686287f, -2.149649518898498f, 0.3996366907664389f},
                                   {2.1910971618617303f, -1.441662010214663f, 0.328146487623155f}};

/* x rounded to bfloat16, to nearest even. */
static float bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return x;
    u = (u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* ---- the momentum ---------------------------------------------------------------------------- */

static float decode(const struct qm_kernel_slot *s, int64_t i)
{
    if (s->bits == 0)
        return s->values[i];
    return s->codebook[s->codes[i]] * s->scales[i / s->block];
}

/* The code of the nearest value, the lower one of two as near; NaN: 0. */
static uint8_t code_of(const float *codebook, float y)
{
    int low = 0, high = 255;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (codebook[middle] <= y)
            low = middle;
        else
            high = middle;
    }
    return (uint8_t)(fabsf(y - codebook[high]) < fabsf(y - codebook[low]) ? high : low);
}

static void encode(const struct qm_kernel_slot *s, const float *m)
{
    for (int64_t from = 0; from < s->n && s->bits > 0; from += s->block) {
        int64_t end = from + s->block < s->n ? from + s->block : s->n;
        float most = 0.0f;
        for (int64_t i = from; i < end; i++)
            most = fabsf(m[i]) > most ? fabsf(m[i]) : most;
        for (int64_t i = from; i < end; i++)
            s->codes[i] = most == 0.0f ? 127 : code_of(s->codebook, m[i] / most);
        s->scales[from / s->block] = most;
    }
    if (s->bits == 0)
        memcpy(s->values, m, sizeof *m * (size_t)s->n);
}

/* ---- Newton-Schulz --------------------------------------------------------------------------- */

/* out[rows][cols] = x[rows][inner] y. */
static void product(const float *x, const float *y, int64_t rows, int64_t inner, int64_t cols,
                    float *out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < inner; k++)
                sum += x[i * inner + k] * y[k * cols + j];
            out[i * cols + j] = sum;
        }
}

static void transpose(const float *x, int64_t rows, int64_t cols, float *out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            out[j * rows + i] = x[i * cols + j];
}

/* x[k][n] <- its orthogonal factor, k <= n; room: 3 k k + k n. */
static void iterate(int64_t k, int64_t n, float *x, float *room)
{
    float *a = room, *aa = a + k * k, *b = aa + k * k, *across = b + k * k;
    for (int t = 0; t < 5; t++) {
        transpose(x, k, n, across);
        product(x, across, k, n, k, a);
        for (int64_t i = 0; i < k * k; i++)
            a[i] = bf16(a[i]);
        product(a, a, k, k, k, aa);
        for (int64_t i = 0; i < k * k; i++)
            b[i] = bf16(triple[t][1] * a[i] + triple[t][2] * aa[i]);
        product(b, x, k, k, n, across);
        for (int64_t i = 0; i < k * n; i++)
            x[i] = bf16(triple[t][0] * x[i] + across[i]);
    }
}

/* u[rows][cols], in bfloat16, <- its orthogonal factor. */
static void factor(double eps, int64_t rows, int64_t cols, float *u, float *room)
{
    double sum = 0.0;
    for (int64_t i = 0; i < rows * cols; i++)
        sum += (double)u[i] * (double)u[i];
    float by = bf16((float)sqrt(sum)), least = bf16((float)eps);
    by = by < least ? least : by;
    for (int64_t i = 0; i < rows * cols; i++)
        u[i] = bf16(u[i] / by);
    if (rows <= cols) {
        iterate(rows, cols, u, room);
        return;
    }
    transpose(u, rows, cols, room);
    iterate(cols, rows, room, room + rows * cols);
    transpose(room, cols, rows, u);
}

/* ---- the step -------------------------------------------------------------------------------- */

/* The factor of the learning rate. */
static double ratio(const struct qm_kernel_args *a, int64_t rows, int64_t cols)
{
    if (a->adjust == 1.0)
        return sqrt((double)rows / (double)cols);
    return a->adjust == 2.0 ? 0.2 * sqrt((double)(rows > cols ? rows : cols)) : 1.0;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    const struct qm_kernel_slot *s = &a->slot[0];
    int64_t rows = 1, cols = 1, batch = 1, n = a->n;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || a->ndim < 2)
        return 1; /* refused */
    if (n == 0)
        return 0;
    for (int i = 0; i < a->ndim; i++) {
        if (a->ndim > 3 ? i == 0 : i == a->ndim - 2)
            rows *= a->dim[i];
        else if (a->ndim > 3 || i == a->ndim - 1)
            cols *= a->dim[i];
        else
            batch *= a->dim[i];
    }
    int64_t size = rows * cols, k = rows < cols ? rows : cols;
    float *m = malloc((size_t)(2 * n + 3 * k * k + 2 * size) * sizeof *m), *u = m + n;
    const float *g = a->g;
    float *p = a->p, mu = (float)a->momentum, rate = (float)(a->lr * ratio(a, rows, cols));
    float keep = (float)(1.0 - a->lr * a->weight_decay);
    if (!m)
        return 2;
    for (int64_t i = 0; i < n; i++) {
        m[i] = decode(s, i) * mu + g[i];
        u[i] = bf16(a->nesterov ? m[i] * mu + g[i] : m[i]);
    }
    for (int64_t b = 0; b < batch; b++)
        factor(a->eps, rows, cols, u + b * size, u + n);
    for (int64_t i = 0; i < n; i++)
        p[i] = p[i] * keep - rate * u[i];
    encode(s, m);
    free(m);
    return 0;
}
