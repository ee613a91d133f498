/* muon8_lin.c - 8-bit Muon of axolotl: int8 momentum, an orthogonal factor of it as the step.
 *
 * The momentum is kept as int8 + 127 with one scale, absmax / 127, for each run of `block` elements
 * of a row of [d0, rest].  The step is an orthogonal factor of the momentum before it is encoded,
 * by five Newton-Schulz iterations in which every product and every sum is rounded to bfloat16.
 *
 * Also: muon_f32 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_abi.h"

QM_KERNEL("muon8_lin");

static const float triple[5][3] = {{4.0848f, -6.8946f, 2.9270f},
                                   {3.9505f, -6.3029f, 2.6377f},
                                   {3.7418f, -5.5913f, 2.3037f},
                                   {2.8769f, -3.1427f, 1.2046f},
                                   {2.8366f, -3.0525f, 1.2012f}};

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

/* Scales of a row. */
static int64_t per_row(const struct qm_kernel_slot *s)
{
    return (s->dim[1] + s->block - 1) / s->block;
}

static float decode(const struct qm_kernel_slot *s, int64_t i)
{
    int64_t row = i / s->dim[1], col = i % s->dim[1];
    if (s->bits == 0)
        return s->values[i];
    return s->codebook[s->codes[i]] * s->scales[row * per_row(s) + col / s->block];
}

static void encode_run(const float *m, int64_t n, uint8_t *codes, float *scale)
{
    float most = 0.0f;
    for (int64_t i = 0; i < n; i++)
        most = fabsf(m[i]) > most || isnan(m[i]) ? fabsf(m[i]) : most;
    *scale = most / 127.0f < 0x1p-126f ? 0x1p-126f : most / 127.0f;
    for (int64_t i = 0; i < n; i++) {
        float z = rintf(m[i] / *scale);
        codes[i] = z >= -127.0f ? (uint8_t)((z < 127.0f ? (int)z : 127) + 127) : 0; /* NaN: 0 */
    }
}

static void encode(const struct qm_kernel_slot *s, const float *m)
{
    for (int64_t row = 0; row < s->dim[0] && s->bits > 0; row++)
        for (int64_t b = 0; b < per_row(s); b++) {
            int64_t from = b * s->block, n = s->dim[1] - from, at = row * s->dim[1] + from;
            encode_run(m + at, n < s->block ? n : s->block, s->codes + at,
                       s->scales + row * per_row(s) + b);
        }
    if (s->bits == 0)
        memcpy(s->values, m, sizeof *m * (size_t)s->n);
}

/* ---- Newton-Schulz --------------------------------------------------------------------------- */

/* out[rows][cols] = x[rows][inner] y, rounded to bfloat16. */
static void product(const float *x, const float *y, int64_t rows, int64_t inner, int64_t cols,
                    float *out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < inner; k++)
                sum += x[i * inner + k] * y[k * cols + j];
            out[i * cols + j] = bf16(sum);
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
        product(a, a, k, k, k, aa);
        for (int64_t i = 0; i < k * k; i++)
            b[i] = bf16(bf16(triple[t][1] * a[i]) + bf16(triple[t][2] * aa[i]));
        product(b, x, k, k, n, across);
        for (int64_t i = 0; i < k * n; i++)
            x[i] = bf16(bf16(triple[t][0] * x[i]) + across[i]);
    }
}

/* u[rows][cols], in bfloat16, <- its orthogonal factor. */
static void factor(double eps, int64_t rows, int64_t cols, float *u, float *room)
{
    double sum = 0.0;
    for (int64_t i = 0; i < rows * cols; i++)
        sum += (double)u[i] * (double)u[i];
    float by = bf16(bf16((float)sqrt(sum)) + (float)eps);
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
        if (a->flatten ? i == 0 : i == a->ndim - 2)
            rows *= a->dim[i];
        else if (a->flatten || i == a->ndim - 1)
            cols *= a->dim[i];
        else
            batch *= a->dim[i];
    }
    int64_t size = rows * cols, k = rows < cols ? rows : cols;
    float *m = malloc((size_t)(2 * n + 3 * k * k + 2 * size) * sizeof *m), *u = m + n;
    const float *g = a->g;
    float *p = a->p, mu = (float)a->momentum, rate = (float)a->lr * (float)ratio(a, rows, cols);
    float keep = 1.0f - (float)a->lr * (float)a->weight_decay;
    if (!m)
        return 2;
    for (int64_t i = 0; i < n; i++) {
        m[i] = decode(s, i) * mu + g[i];
        u[i] = bf16(a->nesterov ? m[i] * mu + g[i] : m[i]);
    }
    for (int64_t b = 0; b < batch; b++)
        factor(a->eps, rows, cols, u + b * size, u + n);
    for (int64_t i = 0; i < n; i++)
        p[i] = p[i] * keep - bf16(rate * u[i]);
    encode(s, m);
    free(m);
    return 0;
}
