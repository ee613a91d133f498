/* adafactor8_046.c - Adafactor, CAME, AdamW and SGD of adafactor8bit 0.4.6, PyTorch path.
 *
 * The first moment has 8 even bits, second moments and confidence 8 bits of log2 between the
 * extremes of a block. Every state is used before it is encoded.
 *
 * Also: came8_046 adamw8_046 sgd8_046 adafactor8_046_1d */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_abi.h"

QM_KERNEL("adafactor8_046");

enum { AVG, ROW, COL, FULL, CONF_ROW, CONF_COL, NORM };

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
    if (s->is_signed)
        return s->codebook[s->codes[i]] * s->scales[i / s->block];
    const float *at = s->scales + i / s->block * 2; /* span, low */
    float k = (float)s->codes[i] - 1.0f;
    return s->codes[i] ? exp2f(product(k, at[0]) / 254.0f + at[1]) : 0.0f;
}

/* k / 128, k = -128 .. 127, stored as k + 128; ties go to the even k. */
static void store_signed(const struct qm_kernel_slot *s, int64_t from, int64_t end, const float *x)
{
    float top = 1e-12f;
    for (int64_t i = from; i < end; i++)
        top = fabsf(x[i]) > top || x[i] != x[i] ? fabsf(x[i]) : top;
    s->scales[from / s->block] = top;
    for (int64_t i = from; i < end; i++) {
        float k = rintf(x[i] / top * 128.0f);
        k = k > 127.0f ? 127.0f : k < -128.0f ? -128.0f : k;
        s->codes[i] = (uint8_t)(k == k ? k + 128.0f : 0.0f);
    }
}

static float log_of(float x) { return log2f(x < 1e-38f ? 1e-38f : x); }

/* Code 0 for 0; the others divide the block's span of logarithms by 254. A block of one number has
 * a span of 1 below it. */
static void store_log(const struct qm_kernel_slot *s, int64_t from, int64_t end, const float *x)
{
    float high = 0.0f, least = INFINITY, *at = s->scales + from / s->block * 2;
    for (int64_t i = from; i < end; i++) {
        high = x[i] > high || x[i] != x[i] ? x[i] : high;
        least = x[i] > 0.0f && x[i] < least ? x[i] : least;
    }
    high = log_of(high);
    float low = least < INFINITY ? log_of(least) : high;
    low = low < -126.0f ? -126.0f : low;
    low = low >= high ? high - 1.0f : low;
    low = high != high ? high : low;
    at[0] = high - low < 1e-12f ? 1e-12f : high - low;
    at[1] = low;
    for (int64_t i = from; i < end; i++) {
        float k = rintf((log_of(x[i]) - low) / at[0] * 254.0f);
        k = k < 0.0f ? 0.0f : k > 254.0f ? 254.0f : k;
        s->codes[i] = (uint8_t)(x[i] > 0.0f && k == k ? k + 1.0f : 0.0f);
    }
}

static void store(const struct qm_kernel_slot *s, const float *x)
{
    for (int64_t i = 0; i < s->n && !s->bits; i++)
        s->values[i] = x[i];
    for (int64_t from = 0; from < s->n && s->bits; from += s->block) {
        int64_t end = s->n - from < s->block ? s->n : from + s->block;
        if (s->is_signed)
            store_signed(s, from, end, x);
        else
            store_log(s, from, end, x);
    }
}

/* a + w (b - a) for w < 1/2, else b - (1 - w) (b - a). */
static float lerp(float a, float b, float w)
{
    return w < 0.5f ? a + w * (b - a) : b - (b - a) * (1.0f - w);
}

/* The first moment takes in x[n], which becomes the new moment. */
static void take_in(const struct qm_kernel_args *a, float *x)
{
    const struct qm_kernel_slot *s = &a->slot[AVG];
    for (int64_t i = 0; i < a->n; i++)
        x[i] = lerp(value(s, i), x[i], (float)(1.0 - a->beta1));
    store(s, x);
}

/* ---- directions ------------------------------------------------------------------------------ */

/* max(x, least), and NaN of a NaN. */
static double at_least(double x, double least) { return x < least ? least : x; }

static double norm(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* What x[n] is divided by such that its RMS is at most clip. */
static double clip_of(const struct qm_kernel_args *a, double size)
{
    return a->clip > 0.0 ? at_least(size / (sqrt((double)a->n) * a->clip), 1.0) : 1.0;
}

/* The matrices of a tensor: batch of rows x cols. */
struct matrices {
    int64_t batch, rows, cols;
};

/* Averages the means of x + add over rows and columns with weight w; r, c: the new averages before
 * they are encoded. */
static void average(const struct matrices *m, const float *x, float add, float w,
                    const struct qm_kernel_slot *row, float *r, float *c)
{
    const struct qm_kernel_slot *col = row + 1;
    for (int64_t i = 0; i < m->batch * m->rows; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < m->cols; j++)
            sum += (double)x[i * m->cols + j];
        r[i] = lerp(value(row, i), (float)(sum / (double)m->cols) + add, w);
    }
    for (int64_t j = 0; j < m->batch * m->cols; j++) {
        const float *at = x + j / m->cols * m->rows * m->cols + j % m->cols;
        double sum = 0.0;
        for (int64_t i = 0; i < m->rows; i++)
            sum += (double)at[i * m->cols];
        c[j] = lerp(value(col, j), (float)(sum / (double)m->rows) + add, w);
    }
    store(row, r);
    store(col, c);
}

/* x = x / sqrt(r c / mean r) in each matrix. */
static void divide(const struct matrices *m, double eps, const float *r, const float *c, float *x)
{
    for (int64_t k = 0; k < m->batch; k++) {
        double mean = 0.0;
        for (int64_t i = 0; i < m->rows; i++)
            mean += (double)r[k * m->rows + i];
        mean = at_least(mean / (double)m->rows, eps);
        for (int64_t i = 0; i < m->rows * m->cols; i++) {
            double row = (double)(r[k * m->rows + i / m->cols] / (float)mean); /* may vanish */
            double col = (double)c[k * m->cols + i % m->cols];
            float *to = &x[k * m->rows * m->cols + i];
            *to = (float)((double)*to / sqrt(row * col));
        }
    }
}

/* u holds g on entry; room: n + rows + cols numbers. */
static void factored_update(const struct qm_kernel_args *a, const struct matrices *m, double eps,
                            float b, float *u, float *room)
{
    int came = a->beta3 > 0.0 && a->beta1 >= 0.0;
    float *x = room, *r = x + a->n, *c = r + m->batch * m->rows;
    for (int64_t i = 0; i < a->n; i++)
        x[i] = u[i] * u[i];
    average(m, x, (float)eps, b, &a->slot[ROW], r, c);
    if (a->beta1 >= 0.0 && !came)
        take_in(a, u);
    divide(m, eps, r, c, u);
    if (!came)
        return;
    float by = (float)clip_of(a, norm(u, a->n));
    for (int64_t i = 0; i < a->n; i++)
        x[i] = u[i] = u[i] / by;
    take_in(a, u);
    for (int64_t i = 0; i < a->n; i++)
        x[i] = (x[i] - u[i]) * (x[i] - u[i]) + (float)a->eps;
    average(m, x, 0.0f, (float)(1.0 - a->beta3), &a->slot[CONF_ROW], r, c);
    divide(m, eps, r, c, u);
}

/* u holds g on entry; v is room.  unit: the first moment takes in the update; adam_eps < 0: not
 * AdamW. */
static void full_update(const struct qm_kernel_args *a, int unit, double eps, double adam_eps,
                        float b, float *u, float *v)
{
    const struct qm_kernel_slot *s = &a->slot[FULL];
    int adam = adam_eps >= 0.0;
    double under = fmax(eps * eps, 0x1p-126);
    for (int64_t i = 0; i < a->n; i++) {
        float square = u[i] * u[i] + (adam ? 0.0f : (float)eps), old = value(s, i);
        v[i] = s->bits ? lerp(old, square, b) : old * (1.0f - b) + b * square;
    }
    store(s, v);
    if (!unit && a->beta1 >= 0.0)
        take_in(a, u);
    for (int64_t i = 0; i < a->n; i++) {
        double root =
            adam && !unit ? sqrt((double)v[i]) + adam_eps : sqrt(at_least((double)v[i], under));
        u[i] = (float)((double)u[i] / root);
    }
    if (!unit)
        return;
    float by = (float)clip_of(a, norm(u, a->n));
    for (int64_t i = 0; i < a->n; i++)
        u[i] = u[i] / by;
    take_in(a, u);
}

static void plain_update(const struct qm_kernel_args *a, float *u)
{
    if (a->beta1 < 0.0)
        return;
    take_in(a, u);
    for (int64_t i = 0; i < a->n; i++)
        u[i] = u[i] / (float)(1.0 - a->beta1);
}

/* ---- the step -------------------------------------------------------------------------------- */

/* The factor that lets the update's norm grow by at most 1 + margin.  A norm that is not finite
 * counts as 0; a NaN before makes the factor NaN. */
static double limiter(const struct qm_kernel_args *a, double now)
{
    float *before = a->slot[NORM].values;
    double most = 1.0 + a->margin, size = isfinite(now) ? now : 0.0;
    double by = at_least(size / ((double)*before + 1e-8), most) / most;
    if (a->t == 1 || (double)*before < 1e-6)
        by = 1.0;
    *before = (float)(size / by);
    return 1.0 / by;
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
    int sgd = a->beta2 < 0.0 && a->beta2_decay > 0.0,
        factored = a->factored && a->ndim >= 2 && !sgd;
    int adam = !sgd && !a->factored && a->beta2 >= 0.0 && !(a->beta3 > 0.0);
    int other = strncmp(a->recipe, "adafactor8_046_1d", 17) == 0; /* momentum_only_1d=False */
    int unit = !sgd && !factored && a->beta1 >= 0.0 && adam == other;
    int came = factored && a->beta3 > 0.0 && a->beta1 >= 0.0;
    int64_t n = a->n;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 ||
        (a->rank > 0.0 && a->ndim >= 2))
        return 1; /* refused: APOLLO */
    if (n == 0)
        return store_again(a);
    struct matrices m = {1, 1, 1};
    if (factored)
        m = (struct matrices){n / (a->dim[a->ndim - 2] * a->dim[a->ndim - 1]), a->dim[a->ndim - 2],
                              a->dim[a->ndim - 1]};
    float *p = a->p, *u = malloc(sizeof *u * (size_t)(4 * n));
    const float *g = a->g;
    double t = (double)a->t, eps = a->eps1 < 0.0 ? 1e-30 : a->eps1, correction = 1.0, root = 1.0;
    float b = (float)(a->beta2 >= 0.0 ? 1.0 - a->beta2 : pow(t, a->beta2_decay));
    if (!u)
        return 2;
    if (a->beta1 >= 0.0 && !a->relative_step && a->correct_bias && !sgd) {
        root = a->beta2 >= 0.0 ? sqrt(1.0 - pow(a->beta2, t)) : 1.0;
        correction = root / (1.0 - pow(a->beta1, t));
    }

    for (int64_t i = 0; i < n; i++)
        u[i] = a->maximize ? -g[i] : g[i];
    if (sgd)
        plain_update(a, u);
    else if (factored)
        factored_update(a, &m, eps, b, u, u + n);
    else
        full_update(a, unit, eps, adam ? eps * root : -1.0, b, u, u + n);

    double size = norm(u, n), by = a->limiter ? limiter(a, size) : 1.0;
    int stopped = a->limiter && !isfinite(size);
    size = stopped ? 0.0 : size;
    double rho = a->relative_step ? fmin(a->lr, 1.0 / sqrt(t)) : a->lr, alpha = rho;
    if (a->scale_parameter)
        alpha = rho * at_least(norm(p, n) / sqrt((double)n), a->eps2);
    alpha *= correction;
    float keep = (float)(1.0 - a->weight_decay * (a->scale_weight_decay ? alpha : rho));
    float step = (float)(alpha / (came || unit ? 1.0 : clip_of(a, size)) * by);
    for (int64_t i = 0; i < n && stopped && unit && !a->slot[AVG].bits; i++)
        a->slot[AVG].values[i] = 0.0f; /* a float32 moment is the update, which becomes 0 */
    for (int64_t i = 0; i < n; i++)
        p[i] = p[i] * keep - (stopped ? 0.0f : u[i]) * step;
    free(u);
    return 0;
}
