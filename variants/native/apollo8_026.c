/* apollo8_026.c - APOLLO of adafactor8bit 0.2.6, PyTorch path.
 *
 * The projection is drawn at every step and never kept; its numbers depend on tensor and period.
 * The momentum has 4 bits and is used before it is encoded; the second moment has 8 bits of log2
 * above 2^-126 and is used after.  Tensors of one dimension take plain Adafactor. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "kernel_abi.h"

QM_KERNEL("apollo8_026");

enum { AVG, V = 3, NORM = 6 };

#define TINY 0x1p-126f

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
    float span = (float)s->codes[i] * s->scales[i / s->block];
    return exp2f(product(span, 1.0f / 255.0f) - 126.0f);
}

static float log_of(float x) { return log2f(x < TINY ? TINY : x) + 126.0f; }

/* k / 8, k = -8 .. 7 and stored as k + 8; or k / 255.  Ties go to the even k. */
static int code_of(const struct qm_kernel_slot *s, float x, float top)
{
    float least = s->bits == 4 ? -8.0f : 0.0f, most = s->bits == 4 ? 7.0f : 255.0f;
    float k = rintf((s->bits == 4 ? x : log_of(x)) / top * (s->bits == 4 ? 8.0f : 255.0f));
    k = k > most ? most : k < least ? least : k;
    return k == k ? (int)(k - least) : 0;
}

static void store(const struct qm_kernel_slot *s, const float *x)
{
    for (int64_t i = 0; i < s->n && !s->bits; i++)
        s->values[i] = x[i];
    for (int64_t from = 0; from < s->n && s->bits; from += s->block) {
        int64_t end = s->n - from < s->block ? s->n : from + s->block;
        float top = 1e-12f;
        for (int64_t i = from; i < end; i++) {
            float y = s->bits == 4 ? fabsf(x[i]) : log_of(x[i]);
            top = y > top || y != y ? y : top;
        }
        s->scales[from / s->block] = top;
        for (int64_t i = from; i < end; i++) {
            int code = code_of(s, x[i], top);
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

/* ---- the projection: N(0, 1) / sqrt(rank), counted by tensor, step and element ------------ */

static uint32_t draw(uint32_t tensor, uint32_t which, uint64_t i)
{
    uint32_t c0 = (uint32_t)(i >> 2), c1 = (uint32_t)(i >> 34), c2 = 0x80000000u + which;
    uint32_t c3 = tensor * 4 + 3, k0 = 0, k1 = 0;
    for (int round = 0; round < 10; round++) { /* Philox4x32-10 */
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return i % 4 == 0 ? c0 : i % 4 == 1 ? c1 : i % 4 == 2 ? c2 : c3;
}

static double uniform(uint32_t word) /* in (0, 1] */
{
    return (double)((float)word * 0x1p-32f + 0x1p-33f);
}

static void renew(const struct qm_kernel_args *a, int64_t rank, int64_t n, float *proj)
{
    int64_t gap = a->gap >= 1.0 ? (int64_t)a->gap : 1;
    uint32_t which = (uint32_t)((a->t - 1) / gap);
    for (int64_t i = 0; i < n; i++) {
        double u = uniform(draw(a->tensor, which, 2 * (uint64_t)i));
        double v = uniform(draw(a->tensor, which, 2 * (uint64_t)i + 1));
        proj[i] = (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v) / sqrt((double)rank));
    }
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Strides: G(c, o) = g[c gc + o go]; channels c, the projected side o, ranks k. */
struct layout {
    int64_t channels, other, rank, gc, go, lc, lk, pk, po;
};

static struct layout layout_of(const struct qm_kernel_args *a)
{
    int64_t m = a->dim[0], n = a->n / m, r = (int64_t)a->rank;
    if (m >= n)
        return (struct layout){m, n, r, n, 1, r, 1, n, 1};
    return (struct layout){n, m, r, 1, n, 1, n, 1, r};
}

static void project(const struct layout *l, const float *g, const float *proj, float *low)
{
    for (int64_t c = 0; c < l->channels; c++)
        for (int64_t k = 0; k < l->rank; k++) {
            double sum = 0.0;
            for (int64_t o = 0; o < l->other; o++)
                sum += (double)g[c * l->gc + o * l->go] * (double)proj[k * l->pk + o * l->po];
            low[c * l->lc + k * l->lk] = (float)sum;
        }
}

/* From squares in float32, as the package forms it; infinite where their sum is no float. */
static double norm(const float *x, int64_t n)
{
    double sum = 0.0, exact = 0.0;
    for (int64_t i = 0; i < n; i++) {
        float square = x[i] * x[i];
        exact += (double)x[i] * (double)x[i];
        sum += (double)square;
    }
    return exact > (double)FLT_MAX        ? HUGE_VAL
           : exact < (double)n * 0x1p-100 ? sqrt(sum)
                                          : sqrt(exact);
}

/* A sum that the package forms in float32: infinite where it overflows; a NaN stays one. */
static double float_sum(double sum) { return isinf((float)sum) ? HUGE_VAL : sum; }

/* The step's norm over the gradient's. */
static double ratio(double top, double plain)
{
    return sqrt(float_sum(top)) / (sqrt(float_sum(plain)) + 1e-8);
}

/* v[k] = the average of squares of x[k]; decoded again if projected and t > 1. */
static void second_moment(const struct qm_kernel_args *a, int projected, const float *x, int64_t k,
                          float *v)
{
    const struct qm_kernel_slot *s = &a->slot[V];
    float b = (float)(a->beta2 >= 0.0 ? 1.0 - a->beta2 : pow((double)a->t, a->beta2_decay));
    float add = (float)(a->eps1 >= 0.0 ? a->eps1 : projected ? a->eps : (double)FLT_EPSILON);
    for (int64_t i = 0; i < k; i++) {
        float square = x[i] * x[i];
        if (projected && a->t == 1)
            v[i] = b * square > TINY || square != square ? b * square : TINY;
        else if (projected || s->bits)
            v[i] = lerp(value(s, i), square + add, b);
        else
            v[i] = value(s, i) * (1.0f - b) + b * square;
    }
    store(s, v);
    for (int64_t i = 0; i < k && projected && a->t > 1; i++)
        v[i] = value(s, i);
}

/* by[c] = |adapted step| / |projected gradient| of channel c. */
static void channel_factors(const struct qm_kernel_args *a, const struct layout *l,
                            const float *low, const float *m, const float *v, double correction,
                            double *by)
{
    double tops = 0.0, plains = 0.0;
    for (int64_t c = 0; c < l->channels; c++) {
        double top = 0.0, plain = 0.0;
        for (int64_t k = 0; k < l->rank; k++) {
            int64_t i = c * l->lc + k * l->lk;
            double x = (double)m[i] / (sqrt((double)v[i]) + a->eps);
            top += x * x;
            plain += (double)low[i] * (double)low[i];
        }
        tops += top;
        plains += plain;
        by[c] = ratio(top, plain);
    }
    for (int64_t c = 0; c < l->channels; c++) {
        double s = a->tensor_scale ? ratio(tops, plains) : by[c];
        by[c] = (double)(float)(s * correction * (a->scale_front ? sqrt(a->scale) : 1.0));
    }
}

/* The norm of the gradient u with its channels times their factors, from squares in float32. */
static double scaled_norm(const struct qm_kernel_args *a, const struct layout *l, const double *by,
                          const float *u)
{
    double sum = 0.0, all = 0.0;
    for (int64_t c = 0; c < l->channels; c++) {
        double squares = 0.0;
        for (int64_t o = 0; o < l->other; o++) {
            float x = u[c * l->gc + o * l->go], square = x * x;
            squares += (double)square;
        }
        float size = (float)sqrt(float_sum(squares)), f = (float)by[c];
        float square = size * size, both = f * f;
        both *= square;
        sum += (double)both;
        all += squares;
    }
    float size = (float)sqrt(float_sum(all)), whole = size * (float)by[0];
    return a->tensor_scale ? (double)whole : sqrt(float_sum(sum));
}

/* max(x, least), and NaN of a NaN. */
static double at_least(double x, double least) { return x < least ? least : x; }

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

/* by: factors of channels, or NULL where the tensor is not projected. */
static void write_back(const struct qm_kernel_args *a, const struct layout *l, double correction,
                       const double *by, float *u)
{
    float *p = a->p;
    double n = sqrt((double)a->n), size = norm(p, a->n) / n;
    double now = by ? scaled_norm(a, l, by, u) : norm(u, a->n);
    double rho = a->relative_step ? fmin(a->lr, 1.0 / sqrt((double)a->t)) : a->lr;
    double limit = by || a->limiter ? limiter(a, now) : 1.0;
    int stopped = !by && a->limiter && !isfinite(now);
    double alpha = a->scale_parameter ? at_least(size, a->eps2) * rho : rho;
    if (!by)
        alpha *= correction;
    double after = by && !a->scale_front ? sqrt(a->scale) : 1.0;
    float keep = (float)(1.0 - a->weight_decay * (a->scale_weight_decay ? alpha : rho));
    double step = alpha / at_least((stopped ? 0.0 : now) / (n * a->clip), 1.0);
    for (int64_t c = 0; by && c < l->channels; c++)
        for (int64_t o = 0; o < l->other; o++) {
            float *x = &u[c * l->gc + o * l->go], f = (float)(by[c] * limit * after);
            *x = (float)((double)f * (double)(float)step * (double)*x);
        }
    for (int64_t i = 0; i < a->n; i++)
        p[i] = p[i] * keep - (by ? u[i] : (stopped ? 0.0f : u[i]) * (float)(step * limit));
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    int projected = a->ndim >= 2;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || a->beta1 < 0.0 ||
        a->factored || a->gap < 0.0 || !(a->rank >= 1.0))
        return 1; /* refused: no momentum, factors, a projection that is given */
    if (a->n == 0)
        return 0;
    struct layout l = projected ? layout_of(a) : (struct layout){0};
    int64_t n = a->n, k = projected ? l.channels * l.rank : n, n_proj = l.rank * l.other;
    float *u = calloc((size_t)(n + 3 * k + n_proj), sizeof *u), *low = u + n, *m = low + k;
    float *v = m + k, *proj = v + k, weight = (float)(1.0 - a->beta1);
    const float *g = a->g;
    double t = (double)a->t, correction = 1.0, eps = a->eps1 < 0.0 ? (double)FLT_EPSILON : a->eps1;
    if (!u)
        return 2;

    for (int64_t i = 0; i < n; i++)
        u[i] = projected && !isfinite(g[i]) ? 0.0f : a->maximize ? -g[i] : g[i];
    for (int64_t i = 0; i < k && !projected; i++)
        low[i] = u[i];
    if (projected) {
        renew(a, l.rank, n_proj, proj);
        project(&l, u, proj, low);
    }
    second_moment(a, projected, low, k, v);
    for (int64_t i = 0; i < k; i++)
        m[i] = lerp(value(&a->slot[AVG], i), low[i], weight);
    store(&a->slot[AVG], m);

    if (!a->relative_step)
        correction =
            (a->beta2 >= 0.0 ? sqrt(1.0 - pow(a->beta2, t)) : 1.0) / (1.0 - pow(a->beta1, t));
    double *by = malloc(sizeof *by * (size_t)(l.channels + 1));
    if (projected && by)
        channel_factors(a, &l, low, m, v, correction, by);
    for (int64_t i = 0; i < n && !projected; i++)
        u[i] = (float)((double)m[i] / sqrt(at_least((double)v[i], fmax(eps * eps, (double)TINY))));
    if (by)
        write_back(a, &l, correction, projected ? by : NULL, u);
    free(u);
    free(by);
    return by ? 0 : 2;
}
