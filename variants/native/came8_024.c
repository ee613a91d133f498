/* came8_024.c - CAME and Adafactor of adafactor8bit 0.2.2, 0.2.4 and 0.2.5, PyTorch path.
 *
 * The first moment has 4 bits in the nearest of 16 entries, or (0.2.2) in sevenths of the largest;
 * second moments and confidence have 8 bits of log2 above 2^-126. The confidence averages
 * ((g - M) / sqrt(V))^2 and multiplies the second moment. Every state is used before it is encoded.
 * Tensors of one dimension, and all without a confidence, take Adafactor.
 *
 * Also: came8_022 came8_025 adafactor8_022_torch adafactor8_024_torch adafactor8_025_torch */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_abi.h"

QM_KERNEL("came8_024");

enum { AVG, ROW, COL, FULL, CONF_ROW, CONF_COL };

#define TINY 0x1p-126f /* the least second moment */

/* ---- states ---------------------------------------------------------------------------------- */

/* The product a b, rounded.  The volatile keeps a compiler from fusing it with a following sum: in
 * the exponent of a decoded state that would change the state. */
static float product(float a, float b)
{
    volatile float ab = a * b;
    return ab;
}

static float value(const struct qm_kernel_slot *s, int64_t i)
{
    if (!s->bits)
        return s->values[i];
    if (s->bits == 4)
        return s->codebook[s->codes[i / 2] >> (i % 2 ? 0 : 4) & 15] * s->scales[i / s->block];
    return exp2f(product((float)s->codes[i] * s->scales[i / s->block], 1.0f / 255.0f) - 126.0f);
}

static float log_of(float x) { return log2f(x < TINY ? TINY : x) + 126.0f; }

/* The nearest entry, the first of two that are as near; of NaN the first one. */
static int nearest(const struct qm_kernel_slot *s, float y)
{
    int best = 0;
    for (int k = 1; k < 16; k++)
        best = fabsf(y - s->codebook[k]) < fabsf(y - s->codebook[best]) ? k : best;
    return best;
}

/* The code of 0.2.2: k + 8 for k units, -8 .. 7; of NaN 0. */
static int whole(float y)
{
    float k = rintf(y);
    return k > 7.0f ? 15 : k >= -8.0f ? (int)k + 8 : 0;
}

/* Ties go to the even code. */
static int log_code(float x, float top)
{
    float k = rintf(log_of(x) / top * 255.0f);
    return k > 255.0f ? 255 : k > 0.0f ? (int)k : 0;
}

static void store(const struct qm_kernel_slot *s, const float *x)
{
    int sevenths = strncmp(s->quantizer, "int:", 4) == 0;
    for (int64_t i = 0; i < s->n && !s->bits; i++)
        s->values[i] = x[i];
    for (int64_t from = 0; from < s->n && s->bits; from += s->block) {
        int64_t end = s->n - from < s->block ? s->n : from + s->block;
        float top = 1e-12f;
        for (int64_t i = from; i < end; i++) {
            float y = s->bits == 4 ? fabsf(x[i]) : log_of(x[i]);
            top = y > top || y != y ? y : top;
        }
        top = sevenths ? top * (1.0f / 7.0f) : top;
        s->scales[from / s->block] = top;
        for (int64_t i = from; i < end; i++) {
            int code = s->bits == 8 ? log_code(x[i], top)
                       : sevenths   ? whole(x[i] / top)
                                    : nearest(s, x[i] / top);
            if (s->bits == 8)
                s->codes[i] = (uint8_t)code;
            else if (i % 2)
                s->codes[i / 2] = (uint8_t)(s->codes[i / 2] | code);
            else
                s->codes[i / 2] = (uint8_t)(code << 4);
        }
    }
}

/* a + w (b - a) for w < 1/2, else b - (1 - w) (b - a). */
static float lerp(float a, float b, float w)
{
    return w < 0.5f ? a + w * (b - a) : b - (b - a) * (1.0f - w);
}

/* ---- the step -------------------------------------------------------------------------------- */

/* max(x, least), and NaN of a NaN. */
static double at_least(double x, double least) { return x < least ? least : x; }

/* The matrices of a tensor: batch of rows x cols. */
struct matrices {
    int64_t batch, rows, cols;
};

/* Averages the means of squares of x over rows (to row) and columns (to col) with weight w; r, c:
 * the new averages before they are encoded. */
static void average(const struct matrices *m, const float *x, float w,
                    const struct qm_kernel_slot *row, const struct qm_kernel_slot *col, float *r,
                    float *c)
{
    for (int64_t i = 0; i < m->batch * m->rows; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < m->cols; j++)
            sum += (double)(x[i * m->cols + j] * x[i * m->cols + j]);
        r[i] = lerp(value(row, i), (float)(sum / (double)m->cols), w);
    }
    for (int64_t j = 0; j < m->batch * m->cols; j++) {
        const float *at = x + j / m->cols * m->rows * m->cols + j % m->cols;
        double sum = 0.0;
        for (int64_t i = 0; i < m->rows; i++)
            sum += (double)(at[i * m->cols] * at[i * m->cols]);
        c[j] = lerp(value(col, j), (float)(sum / (double)m->rows), w);
    }
    store(row, r);
    store(col, c);
}

/* x = x / sqrt(r c / mean r) in each matrix. */
static void divide(const struct matrices *m, double eps, const float *r, const float *c, float *x)
{
    double under = fmax(eps * eps, (double)TINY);
    for (int64_t k = 0; k < m->batch; k++) {
        double mean = 0.0;
        for (int64_t i = 0; i < m->rows; i++)
            mean += (double)r[k * m->rows + i];
        mean = at_least(mean / (double)m->rows, eps);
        for (int64_t i = 0; i < m->rows * m->cols; i++) {
            double row = at_least((double)r[k * m->rows + i / m->cols], under);
            double col = at_least((double)c[k * m->cols + i % m->cols], under);
            float *to = &x[k * m->rows * m->cols + i];
            *to = (float)((double)*to / sqrt(row / mean * col));
        }
    }
}

static double rms(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)n);
}

/* u = M / sqrt(V K); u holds g on entry.  room: 2 (rows + cols) + n numbers. */
static void confident(const struct qm_kernel_args *a, const struct matrices *m, double eps, float b,
                      const float *avg, float *u, float *room)
{
    const struct qm_kernel_slot *s = a->slot;
    int64_t rows = m->batch * m->rows, cols = m->batch * m->cols;
    float *r = room, *c = r + rows, *k_r = c + cols, *k_c = k_r + rows, *off = k_c + cols;
    float under = (float)fmax(eps * eps, (double)TINY);
    average(m, u, b, &s[ROW], &s[COL], r, c);
    if (!(a->beta3 > 0.0)) { /* Adafactor */
        for (int64_t i = 0; i < a->n; i++)
            u[i] = avg[i];
        divide(m, eps, r, c, u);
        return;
    }
    for (int64_t i = 0; i < a->n; i++)
        off[i] = u[i] - avg[i];
    divide(m, eps, r, c, off);
    average(m, off, (float)(1.0 - a->beta3), &s[CONF_ROW], &s[CONF_COL], k_r, k_c);
    for (int64_t i = 0; i < rows; i++)
        r[i] = r[i] * k_r[i] < under ? under : r[i] * k_r[i];
    for (int64_t j = 0; j < cols; j++)
        c[j] = c[j] * k_c[j] < under ? under : c[j] * k_c[j];
    for (int64_t i = 0; i < a->n; i++)
        u[i] = avg[i];
    divide(m, eps, r, c, u);
}

/* u = M / sqrt(V) of a tensor that is not factored; u holds g on entry, v is room. */
static void plain(const struct qm_kernel_args *a, double eps, float b, const float *avg, float *u,
                  float *v)
{
    const struct qm_kernel_slot *s = &a->slot[FULL];
    double under = fmax(eps * eps, (double)TINY);
    for (int64_t i = 0; i < a->n; i++) {
        float old = value(s, i), square = u[i] * u[i];
        v[i] = s->bits ? lerp(old, square, b) : old * (1.0f - b) + b * square;
        u[i] = (float)((double)avg[i] / sqrt(at_least((double)v[i], under)));
    }
    store(s, v);
}

/* Matrices without elements may have factors, which are encoded once more. */
static int store_again(const struct qm_kernel_args *a)
{
    for (int k = 0; k < a->n_slots; k++) {
        const struct qm_kernel_slot *s = &a->slot[k];
        float *x = malloc(sizeof *x * (size_t)(s->n + 1));
        if (!x)
            return 2;
        for (int64_t i = 0; i < s->n; i++)
            x[i] = value(s, i);
        store(s, x);
        free(x);
    }
    return 0;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    int factored = a->factored && a->ndim >= 2;
    int64_t n = a->n;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || a->beta1 < 0.0 ||
        a->limiter || a->rank != 0.0)
        return 1; /* refused: no first moment, the limiter, APOLLO */
    if (n == 0)
        return store_again(a);
    struct matrices m = {1, 1, 1};
    if (factored)
        m = (struct matrices){n / (a->dim[a->ndim - 2] * a->dim[a->ndim - 1]), a->dim[a->ndim - 2],
                              a->dim[a->ndim - 1]};
    float *p = a->p, *u = malloc(sizeof *u * (size_t)(7 * n)), *avg = u + n;
    const float *g = a->g;
    double t = (double)a->t, eps = a->eps1 < 0.0 ? (double)FLT_EPSILON : a->eps1;
    float b = (float)(a->beta2 >= 0.0 ? 1.0 - a->beta2 : pow(t, a->beta2_decay));
    if (!u)
        return 2;

    for (int64_t i = 0; i < n; i++) {
        u[i] = a->maximize ? -g[i] : g[i];
        avg[i] = lerp(value(&a->slot[AVG], i), u[i], (float)(1.0 - a->beta1));
    }
    store(&a->slot[AVG], avg);
    if (factored)
        confident(a, &m, eps, b, avg, u, avg + n);
    else
        plain(a, eps, b, avg, u, avg + n);

    double rho = a->relative_step ? fmin(a->lr, 1.0 / sqrt(t)) : a->lr, alpha = rho;
    if (a->scale_parameter)
        alpha = rho * at_least(rms(p, n), a->eps2);
    if (!a->relative_step)
        alpha *= (a->beta2 >= 0.0 ? sqrt(1.0 - pow(a->beta2, t)) : 1.0) / (1.0 - pow(a->beta1, t));
    float keep = (float)(1.0 - a->weight_decay * (a->scale_weight_decay ? alpha : rho));
    float step = (float)(alpha / at_least(rms(u, n) / a->clip, 1.0));
    for (int64_t i = 0; i < n; i++)
        p[i] = p[i] * keep - u[i] * step;
    free(u);
    return 0;
}
