/* adafactor8_024.c - Adafactor of adafactor8bit 0.2.4, CUDA path.
 *
 * The first moment has 4 bits, found by the kernel's thresholds; the factors have 8 bits of log2
 * above 2^-126; the step reads the codes back.  Matrices whose factors are float32 have no kernel:
 * the PyTorch path steps them. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "kernel_abi.h"

QM_KERNEL("adafactor8_024");

enum { AVG, ROW, COL, FULL };

#define TINY 0x1p-126f /* the least second moment */

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
    return exp2f(product(s->codebook[s->codes[i]], s->scales[i / s->block]) - 126.0f);
}

/* Thresholds of the 16 entries; an equal value goes away from zero, NaN to code 0. */
static int code_of(float y)
{
    static const float cut[8] = {0.0397901f, 0.1262246f, 0.2234769f, 0.3317961f,
                                 0.4572902f, 0.6106329f, 0.7801653f, 0.9320689f};
    int k = 0;
    for (int i = 6; i >= 0; i--)
        k += y > -cut[i];
    for (int i = 0; i < 8; i++)
        k += y >= cut[i];
    return k;
}

/* Scales skip NaN. */
static void encode_signed(const struct qm_kernel_slot *s, int64_t from, int64_t n, const float *x)
{
    float top = 1e-12f;
    for (int64_t i = 0; i < n; i++)
        top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
    float by = 1.0f / top;
    s->scales[from / s->block] = top;
    for (int64_t i = from; i < from + n; i += 2)
        s->codes[i / 2] = (uint8_t)(code_of(x[i - from] * by) << 4 |
                                    (i + 1 < from + n ? code_of(x[i + 1 - from] * by) : 0));
}

static float log_of(float x) { return log2f(x < TINY ? TINY : x) + 126.0f; }

static void encode_log(const struct qm_kernel_slot *s, int64_t from, int64_t n, const float *x)
{
    float top = 0.0f;
    for (int64_t i = 0; i < n; i++)
        top = log_of(x[i]) > top ? log_of(x[i]) : top;
    top = top > 176.0f ? 176.0f : top;
    float by = 1.0f / top;
    s->scales[from / s->block] = top;
    for (int64_t i = 0; i < n; i++) {
        float k = floorf(log_of(x[i]) * by * 255.0f + 0.5f);
        s->codes[from + i] = (uint8_t)(k > 255.0f ? 255.0f : k > 0.0f ? k : 0.0f);
    }
}

static void store(const struct qm_kernel_slot *s, int64_t n, const float *x)
{
    for (int64_t i = 0; i < n && !s->bits; i++)
        s->values[i] = x[i];
    for (int64_t from = 0; from < n && s->bits; from += s->block) {
        int64_t k = n - from < s->block ? n - from : s->block;
        if (s->bits == 4)
            encode_signed(s, from, k, x + from);
        else
            encode_log(s, from, k, x + from);
    }
}

/* (1 - b) times element i plus b times a new square; codes have a floor. */
static float averaged(const struct qm_kernel_slot *s, int64_t i, float fresh, float b)
{
    float old = value(s, i);
    if (!s->bits)
        return old * (1.0f - b) + fresh * b;
    fresh = fresh > TINY && fresh <= FLT_MAX ? fresh : TINY;
    float v = fmaf(old, 1.0f - b, b * fresh);
    return v > TINY ? v : TINY;
}

/* Averages means of g^2 into a factor: count means per matrix, each over n elements, a stride
 * apart; matrices have count * n elements. */
static void factor(const struct qm_kernel_slot *s, const float *g, int64_t count, int64_t n,
                   int64_t jump, int64_t stride, float b, float *x)
{
    for (int64_t i = 0; i < s->n; i++) {
        const float *at = g + i / count * (count * n) + i % count * jump;
        double sum = 0.0;
        for (int64_t k = 0; k < n; k++)
            sum += (double)(at[k * stride] * at[k * stride]);
        x[i] = n > 0 ? averaged(s, i, (float)(sum / (double)n), b) : value(s, i);
    }
    store(s, s->n, x);
}

/* max(x, least), and NaN of a NaN. */
static double at_least(double x, double least) { return x < least ? least : x; }

static double floor_of(double eps) { return fmax(eps * eps, (double)TINY); }
static double kernel_floor(double eps) { return fmax(floor_of(eps), 0x1p-53); }

static double rms(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)n);
}

/* u = moment / sqrt(second moment that the factors approximate), both as stored.  The floor is
 * under the product; where the factors are float32, under each of them. */
static void divide(const struct qm_kernel_slot *row, const struct qm_kernel_slot *col, int64_t n,
                   int64_t rows, int64_t cols, double eps, float *u)
{
    double under = row->bits ? 0.0 : floor_of(eps), least = row->bits ? kernel_floor(eps) : 0.0;
    for (int64_t from = 0, r = 0, c = 0; from < n; from += rows * cols, r += rows, c += cols) {
        double mean = 0.0;
        for (int64_t i = 0; i < rows; i++)
            mean += (double)value(row, r + i);
        mean = at_least(mean / (double)rows, eps);
        for (int64_t i = 0; i < rows * cols; i++) {
            double v = at_least((double)value(row, r + i / cols), under) *
                       at_least((double)value(col, c + i % cols), under) / mean;
            v = row->bits ? fmax(v, least) : v;
            u[from + i] = (float)((double)u[from + i] / sqrt(v));
        }
    }
}

/* Gradients as the moment takes them in: the kernel counts those that are not finite as 0. */
static float taken(const struct qm_kernel_args *a, float g, int plain)
{
    float x = a->maximize ? -g : g;
    return plain || fabsf(g) <= FLT_MAX ? x : 0.0f;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    const struct qm_kernel_slot *s = a->slot;
    int factored = s[ROW].n > 0 || s[COL].n > 0;
    int64_t n = a->n, cols = factored ? a->dim[a->ndim - 1] : 1;
    int64_t rows = factored ? a->dim[a->ndim - 2] : 1;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || a->beta1 < 0.0 ||
        a->beta3 > 0.0 || a->limiter || a->rank != 0.0)
        return 1; /* refused: no first moment, CAME, the limiter, APOLLO */
    float *p = a->p, *u = malloc(2 * sizeof *u * (size_t)(n + s[ROW].n + s[COL].n + 1));
    const float *g = a->g;
    double t = (double)a->t, eps = a->eps1 < 0.0 ? (double)FLT_EPSILON : a->eps1;
    float b = (float)(a->beta2 >= 0.0 ? 1.0 - a->beta2 : pow(t, a->beta2_decay));
    if (!u)
        return 2;
    int plain = factored && !s[ROW].bits;
    float *x = u + n, beta1 = (float)a->beta1;
    float weight = plain ? (float)(1.0 - a->beta1) : 1.0f - beta1;

    if (factored) {
        factor(&s[ROW], g, rows, cols, cols, 1, b, x);
        factor(&s[COL], g, cols, rows, 1, cols, b, x);
    } else {
        for (int64_t i = 0; i < n; i++)
            x[i] = averaged(&s[FULL], i, g[i] * g[i], b);
        store(&s[FULL], n, x);
    }
    for (int64_t i = 0; i < n; i++)
        u[i] = value(&s[AVG], i) * beta1 + taken(a, g[i], plain) * weight;
    store(&s[AVG], n, u);
    for (int64_t i = 0; i < n; i++)
        u[i] = value(&s[AVG], i);
    if (factored)
        divide(&s[ROW], &s[COL], n, rows, cols, eps, u);
    for (int64_t i = 0; i < n && !factored; i++)
        u[i] = (float)((double)u[i] / sqrt(fmax((double)value(&s[FULL], i), kernel_floor(eps))));

    double rho = a->relative_step ? fmin(a->lr, 1.0 / sqrt(t)) : a->lr, alpha = rho;
    if (a->scale_parameter)
        alpha = rho * at_least(rms(p, n), a->eps2);
    if (!a->relative_step)
        alpha *= (a->beta2 >= 0.0 ? sqrt(1.0 - pow(a->beta2, t)) : 1.0) / (1.0 - pow(a->beta1, t));
    float keep = (float)(1.0 - a->weight_decay * (a->scale_weight_decay ? alpha : rho));
    double by = rms(u, n) / a->clip; /* the kernel counts NaN, as of 0 / 0, as 1 */
    float step = (float)(alpha / (plain ? at_least(by, 1.0) : fmax(by, 1.0)));
    for (int64_t i = 0; i < n; i++)
        p[i] = p[i] * keep - u[i] * step;
    free(u);
    return 0;
}
