/* cc -O2 -ffp-contract=off adafactor8_046-repro.c -lm -o repro && ./repro
 *
 * adafactor8_046.c of sgd8_046 (case 1x4096x1/edges/beta0+maximize=1/t17/forced/p2^13/g2^0, seed 20240501), shrunk to 1 step of a tensor of shape 2.
 * Found: parameter 1 is 0x0p+0 = 0, want 0x1p+0 = 1 within 1.79e-07; step 1, p 0x0p+0
 *   = 0, g -0x1p+0 = -1, exp_avg 0x0p+0 = 0, variance 0x0p+0 = 0.
 * Prints what is expected and what comes; exits 1 while they differ. */
/* adafactor8_046.c - Adafactor, CAME, AdamW and SGD of adafactor8bit 0.4.6, PyTorch path.
 *
 * The first moment has 8 even bits, second moments and confidence 8 bits of log2 between the extremes
 * of a block.  Every state is used before it is encoded.  The same kernel serves adafactor8_046,
 * came8_046, adamw8_046 and sgd8_046 (--as). */
#include <math.h>
#include <stdlib.h>

#include <stdint.h>
#define QM_KERNEL_ABI 2
#define QM_KERNEL_SLOTS 8
#define QM_KERNEL_RANK 8
enum qm_kernel_dtype { QM_KERNEL_F32, QM_KERNEL_BF16, QM_KERNEL_F16, QM_KERNEL_E4M3 };
struct qm_kernel_slot { const char *name; const char *quantizer; int bits, is_signed; int64_t
block; int64_t n; int ndim; int64_t dim[QM_KERNEL_RANK]; uint8_t *codes; int64_t code_bytes; float
*scales; int64_t n_scales; float *values; const float *codebook; const uint32_t *draws; };
struct qm_kernel_args { int abi; const char *recipe; int64_t n; int ndim; int64_t
dim[QM_KERNEL_RANK]; void *p; int p_dtype; const char *param; const void *g; int g_dtype; void
*residual; const uint32_t *p_draws; int n_slots; struct qm_kernel_slot slot[QM_KERNEL_SLOTS];
int64_t t; uint64_t seed; uint32_t tensor; double lr, beta1, beta2, beta3, eps, eps1, eps2,
weight_decay, momentum, dampening, alpha, clip, t_alpha, t_beta3, beta2_decay, rank, side, gap,
scale, margin, max_unorm, gnorm_scale, initial_lr, momentum_decay; int nesterov, maximize,
amsgrad, relative_step, scale_parameter, scale_weight_decay, factored, limiter, tensor_scale,
scale_front, correct_bias, svd, centered, warmup, clip_twice, decouple_lr; };
int qm_kernel_step(const struct qm_kernel_args *a); extern const int qm_kernel_abi; extern const
char qm_kernel_as[];
#define QM_KERNEL(recipe) const int qm_kernel_abi = QM_KERNEL_ABI; const char qm_kernel_as[] = recipe

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

/* Code 0 for 0; the others divide the block's span of logarithms by 254.  A block of one number has a
 * span of 1 below it. */
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
            double row = (double)r[k * m->rows + i / m->cols];
            double col = (double)c[k * m->cols + i % m->cols];
            float *to = &x[k * m->rows * m->cols + i];
            *to = (float)((double)*to / sqrt(row / mean * col));
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

/* u holds g on entry; v is room.  adam_eps < 0: not AdamW. */
static void full_update(const struct qm_kernel_args *a, double eps, double adam_eps, float b,
                        float *u, float *v)
{
    const struct qm_kernel_slot *s = &a->slot[FULL];
    int adam = adam_eps >= 0.0;
    double under = fmax(eps * eps, 0x1p-126);
    for (int64_t i = 0; i < a->n; i++) {
        float square = u[i] * u[i] + (adam ? 0.0f : (float)eps), old = value(s, i);
        v[i] = s->bits ? lerp(old, square, b) : old * (1.0f - b) + b * square;
    }
    store(s, v);
    if (adam && a->beta1 >= 0.0)
        take_in(a, u);
    for (int64_t i = 0; i < a->n; i++) {
        double root = adam ? sqrt((double)v[i]) + adam_eps : sqrt(at_least((double)v[i], under));
        u[i] = (float)((double)u[i] / root);
    }
    if (adam || a->beta1 < 0.0)
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

/* The factor that lets the update's norm grow by at most 1 + margin; 0 if it is not finite. */
static double limiter(const struct qm_kernel_args *a, double *now)
{
    float *before = a->slot[NORM].values;
    double most = 1.0 + a->margin, by = at_least(*now / ((double)*before + 1e-8), most) / most;
    if (!isfinite(*now)) {
        *before = 0.0f;
        return *now = 0.0;
    }
    if (a->t == 1 || (double)*before < 1e-6)
        by = 1.0;
    *before = (float)(*now / by);
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
    int unit = !sgd && !factored && !adam && a->beta1 >= 0.0;
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
        full_update(a, eps, adam ? eps * root : -1.0, b, u, u + n);

    double size = norm(u, n), by = a->limiter ? limiter(a, &size) : 1.0;
    double rho = a->relative_step ? fmin(a->lr, 1.0 / sqrt(t)) : a->lr, alpha = rho;
    if (a->scale_parameter)
        alpha = rho * at_least(norm(p, n) / sqrt((double)n), a->eps2);
    alpha *= correction;
    float keep = (float)(1.0 - a->weight_decay * (a->scale_weight_decay ? alpha : rho));
    float step = (float)(alpha / (came || unit ? 1.0 : clip_of(a, size)) * by);
    for (int64_t i = 0; i < n && by == 0.0 && unit && !a->slot[AVG].bits; i++)
        a->slot[AVG].values[i] = 0.0f; /* a float32 moment is the update, which becomes 0 */
    for (int64_t i = 0; i < n; i++)
        p[i] = p[i] * keep - (by == 0.0 ? 0.0f : u[i] * step);
    free(u);
    return 0;
}

/* ---- what the step gets, and what it must leave ---- */
#include <stdio.h>

int main(void)
{
    _Alignas(64) static float repro_p[2] = {0, 0};
    _Alignas(64) static const float repro_g[2] = {0x1p+126f, -0x1p+0f};
    _Alignas(64) static uint8_t repro_codes0[2] = {0x80, 0x80};
    _Alignas(64) static float repro_scales0[1] = {0x1p+0f};
    _Alignas(64) static const float repro_codebook0[256] = {-0x1p+0f, -0x1.fcp-1f, -0x1.f8p-1f,
    -0x1.f4p-1f, -0x1.fp-1f, -0x1.ecp-1f, -0x1.e8p-1f, -0x1.e4p-1f, -0x1.ep-1f, -0x1.dcp-1f,
    -0x1.d8p-1f, -0x1.d4p-1f, -0x1.dp-1f, -0x1.ccp-1f, -0x1.c8p-1f, -0x1.c4p-1f, -0x1.cp-1f,
    -0x1.bcp-1f, -0x1.b8p-1f, -0x1.b4p-1f, -0x1.bp-1f, -0x1.acp-1f, -0x1.a8p-1f, -0x1.a4p-1f,
    -0x1.ap-1f, -0x1.9cp-1f, -0x1.98p-1f, -0x1.94p-1f, -0x1.9p-1f, -0x1.8cp-1f, -0x1.88p-1f,
    -0x1.84p-1f, -0x1.8p-1f, -0x1.7cp-1f, -0x1.78p-1f, -0x1.74p-1f, -0x1.7p-1f, -0x1.6cp-1f,
    -0x1.68p-1f, -0x1.64p-1f, -0x1.6p-1f, -0x1.5cp-1f, -0x1.58p-1f, -0x1.54p-1f, -0x1.5p-1f,
    -0x1.4cp-1f, -0x1.48p-1f, -0x1.44p-1f, -0x1.4p-1f, -0x1.3cp-1f, -0x1.38p-1f, -0x1.34p-1f,
    -0x1.3p-1f, -0x1.2cp-1f, -0x1.28p-1f, -0x1.24p-1f, -0x1.2p-1f, -0x1.1cp-1f, -0x1.18p-1f,
    -0x1.14p-1f, -0x1.1p-1f, -0x1.0cp-1f, -0x1.08p-1f, -0x1.04p-1f, -0x1p-1f, -0x1.f8p-2f,
    -0x1.fp-2f, -0x1.e8p-2f, -0x1.ep-2f, -0x1.d8p-2f, -0x1.dp-2f, -0x1.c8p-2f, -0x1.cp-2f,
    -0x1.b8p-2f, -0x1.bp-2f, -0x1.a8p-2f, -0x1.ap-2f, -0x1.98p-2f, -0x1.9p-2f, -0x1.88p-2f,
    -0x1.8p-2f, -0x1.78p-2f, -0x1.7p-2f, -0x1.68p-2f, -0x1.6p-2f, -0x1.58p-2f, -0x1.5p-2f,
    -0x1.48p-2f, -0x1.4p-2f, -0x1.38p-2f, -0x1.3p-2f, -0x1.28p-2f, -0x1.2p-2f, -0x1.18p-2f,
    -0x1.1p-2f, -0x1.08p-2f, -0x1p-2f, -0x1.fp-3f, -0x1.ep-3f, -0x1.dp-3f, -0x1.cp-3f, -0x1.bp-3f,
    -0x1.ap-3f, -0x1.9p-3f, -0x1.8p-3f, -0x1.7p-3f, -0x1.6p-3f, -0x1.5p-3f, -0x1.4p-3f,
    -0x1.3p-3f, -0x1.2p-3f, -0x1.1p-3f, -0x1p-3f, -0x1.ep-4f, -0x1.cp-4f, -0x1.ap-4f, -0x1.8p-4f,
    -0x1.6p-4f, -0x1.4p-4f, -0x1.2p-4f, -0x1p-4f, -0x1.cp-5f, -0x1.8p-5f, -0x1.4p-5f, -0x1p-5f,
    -0x1.8p-6f, -0x1p-6f, -0x1p-7f, 0, 0x1p-7f, 0x1p-6f, 0x1.8p-6f, 0x1p-5f, 0x1.4p-5f, 0x1.8p-5f,
    0x1.cp-5f, 0x1p-4f, 0x1.2p-4f, 0x1.4p-4f, 0x1.6p-4f, 0x1.8p-4f, 0x1.ap-4f, 0x1.cp-4f,
    0x1.ep-4f, 0x1p-3f, 0x1.1p-3f, 0x1.2p-3f, 0x1.3p-3f, 0x1.4p-3f, 0x1.5p-3f, 0x1.6p-3f,
    0x1.7p-3f, 0x1.8p-3f, 0x1.9p-3f, 0x1.ap-3f, 0x1.bp-3f, 0x1.cp-3f, 0x1.dp-3f, 0x1.ep-3f,
    0x1.fp-3f, 0x1p-2f, 0x1.08p-2f, 0x1.1p-2f, 0x1.18p-2f, 0x1.2p-2f, 0x1.28p-2f, 0x1.3p-2f,
    0x1.38p-2f, 0x1.4p-2f, 0x1.48p-2f, 0x1.5p-2f, 0x1.58p-2f, 0x1.6p-2f, 0x1.68p-2f, 0x1.7p-2f,
    0x1.78p-2f, 0x1.8p-2f, 0x1.88p-2f, 0x1.9p-2f, 0x1.98p-2f, 0x1.ap-2f, 0x1.a8p-2f, 0x1.bp-2f,
    0x1.b8p-2f, 0x1.cp-2f, 0x1.c8p-2f, 0x1.dp-2f, 0x1.d8p-2f, 0x1.ep-2f, 0x1.e8p-2f, 0x1.fp-2f,
    0x1.f8p-2f, 0x1p-1f, 0x1.04p-1f, 0x1.08p-1f, 0x1.0cp-1f, 0x1.1p-1f, 0x1.14p-1f, 0x1.18p-1f,
    0x1.1cp-1f, 0x1.2p-1f, 0x1.24p-1f, 0x1.28p-1f, 0x1.2cp-1f, 0x1.3p-1f, 0x1.34p-1f, 0x1.38p-1f,
    0x1.3cp-1f, 0x1.4p-1f, 0x1.44p-1f, 0x1.48p-1f, 0x1.4cp-1f, 0x1.5p-1f, 0x1.54p-1f, 0x1.58p-1f,
    0x1.5cp-1f, 0x1.6p-1f, 0x1.64p-1f, 0x1.68p-1f, 0x1.6cp-1f, 0x1.7p-1f, 0x1.74p-1f, 0x1.78p-1f,
    0x1.7cp-1f, 0x1.8p-1f, 0x1.84p-1f, 0x1.88p-1f, 0x1.8cp-1f, 0x1.9p-1f, 0x1.94p-1f, 0x1.98p-1f,
    0x1.9cp-1f, 0x1.ap-1f, 0x1.a4p-1f, 0x1.a8p-1f, 0x1.acp-1f, 0x1.bp-1f, 0x1.b4p-1f, 0x1.b8p-1f,
    0x1.bcp-1f, 0x1.cp-1f, 0x1.c4p-1f, 0x1.c8p-1f, 0x1.ccp-1f, 0x1.dp-1f, 0x1.d4p-1f, 0x1.d8p-1f,
    0x1.dcp-1f, 0x1.ep-1f, 0x1.e4p-1f, 0x1.e8p-1f, 0x1.ecp-1f, 0x1.fp-1f, 0x1.f4p-1f, 0x1.f8p-1f,
    0x1.fcp-1f};
    _Alignas(64) static uint8_t repro_codes1[1] = {0x0};
    _Alignas(64) static float repro_scales1[1] = {0};
    _Alignas(64) static const float repro_codebook1[256] = {0, 0, 0x1.020408p-8f, 0x1.020408p-7f,
    0x1.83060cp-7f, 0x1.020408p-6f, 0x1.42850ap-6f, 0x1.83060cp-6f, 0x1.c3870ep-6f,
    0x1.020408p-5f, 0x1.22448ap-5f, 0x1.42850ap-5f, 0x1.62c58cp-5f, 0x1.83060cp-5f,
    0x1.a3468ep-5f, 0x1.c3870ep-5f, 0x1.e3c79p-5f, 0x1.020408p-4f, 0x1.122448p-4f, 0x1.22448ap-4f,
    0x1.3264cap-4f, 0x1.42850ap-4f, 0x1.52a54ap-4f, 0x1.62c58cp-4f, 0x1.72e5ccp-4f,
    0x1.83060cp-4f, 0x1.93264cp-4f, 0x1.a3468ep-4f, 0x1.b366cep-4f, 0x1.c3870ep-4f,
    0x1.d3a74ep-4f, 0x1.e3c79p-4f, 0x1.f3e7dp-4f, 0x1.020408p-3f, 0x1.0a1428p-3f, 0x1.122448p-3f,
    0x1.1a3468p-3f, 0x1.22448ap-3f, 0x1.2a54aap-3f, 0x1.3264cap-3f, 0x1.3a74eap-3f,
    0x1.42850ap-3f, 0x1.4a952ap-3f, 0x1.52a54ap-3f, 0x1.5ab56ap-3f, 0x1.62c58cp-3f,
    0x1.6ad5acp-3f, 0x1.72e5ccp-3f, 0x1.7af5ecp-3f, 0x1.83060cp-3f, 0x1.8b162cp-3f,
    0x1.93264cp-3f, 0x1.9b366cp-3f, 0x1.a3468ep-3f, 0x1.ab56aep-3f, 0x1.b366cep-3f,
    0x1.bb76eep-3f, 0x1.c3870ep-3f, 0x1.cb972ep-3f, 0x1.d3a74ep-3f, 0x1.dbb76ep-3f, 0x1.e3c79p-3f,
    0x1.ebd7bp-3f, 0x1.f3e7dp-3f, 0x1.fbf7fp-3f, 0x1.020408p-2f, 0x1.060c18p-2f, 0x1.0a1428p-2f,
    0x1.0e1c38p-2f, 0x1.122448p-2f, 0x1.162c58p-2f, 0x1.1a3468p-2f, 0x1.1e3c78p-2f,
    0x1.22448ap-2f, 0x1.264c9ap-2f, 0x1.2a54aap-2f, 0x1.2e5cbap-2f, 0x1.3264cap-2f,
    0x1.366cdap-2f, 0x1.3a74eap-2f, 0x1.3e7cfap-2f, 0x1.42850ap-2f, 0x1.468d1ap-2f,
    0x1.4a952ap-2f, 0x1.4e9d3ap-2f, 0x1.52a54ap-2f, 0x1.56ad5ap-2f, 0x1.5ab56ap-2f,
    0x1.5ebd7ap-2f, 0x1.62c58cp-2f, 0x1.66cd9cp-2f, 0x1.6ad5acp-2f, 0x1.6eddbcp-2f,
    0x1.72e5ccp-2f, 0x1.76eddcp-2f, 0x1.7af5ecp-2f, 0x1.7efdfcp-2f, 0x1.83060cp-2f,
    0x1.870e1cp-2f, 0x1.8b162cp-2f, 0x1.8f1e3cp-2f, 0x1.93264cp-2f, 0x1.972e5cp-2f,
    0x1.9b366cp-2f, 0x1.9f3e7cp-2f, 0x1.a3468ep-2f, 0x1.a74e9ep-2f, 0x1.ab56aep-2f,
    0x1.af5ebep-2f, 0x1.b366cep-2f, 0x1.b76edep-2f, 0x1.bb76eep-2f, 0x1.bf7efep-2f,
    0x1.c3870ep-2f, 0x1.c78f1ep-2f, 0x1.cb972ep-2f, 0x1.cf9f3ep-2f, 0x1.d3a74ep-2f,
    0x1.d7af5ep-2f, 0x1.dbb76ep-2f, 0x1.dfbf7ep-2f, 0x1.e3c79p-2f, 0x1.e7cfap-2f, 0x1.ebd7bp-2f,
    0x1.efdfcp-2f, 0x1.f3e7dp-2f, 0x1.f7efep-2f, 0x1.fbf7fp-2f, 0x1p-1f, 0x1.020408p-1f,
    0x1.04081p-1f, 0x1.060c18p-1f, 0x1.08102p-1f, 0x1.0a1428p-1f, 0x1.0c183p-1f, 0x1.0e1c38p-1f,
    0x1.10204p-1f, 0x1.122448p-1f, 0x1.14285p-1f, 0x1.162c58p-1f, 0x1.18306p-1f, 0x1.1a3468p-1f,
    0x1.1c387p-1f, 0x1.1e3c78p-1f, 0x1.204082p-1f, 0x1.22448ap-1f, 0x1.244892p-1f, 0x1.264c9ap-1f,
    0x1.2850a2p-1f, 0x1.2a54aap-1f, 0x1.2c58b2p-1f, 0x1.2e5cbap-1f, 0x1.3060c2p-1f,
    0x1.3264cap-1f, 0x1.3468d2p-1f, 0x1.366cdap-1f, 0x1.3870e2p-1f, 0x1.3a74eap-1f,
    0x1.3c78f2p-1f, 0x1.3e7cfap-1f, 0x1.408102p-1f, 0x1.42850ap-1f, 0x1.448912p-1f,
    0x1.468d1ap-1f, 0x1.489122p-1f, 0x1.4a952ap-1f, 0x1.4c9932p-1f, 0x1.4e9d3ap-1f,
    0x1.50a142p-1f, 0x1.52a54ap-1f, 0x1.54a952p-1f, 0x1.56ad5ap-1f, 0x1.58b162p-1f,
    0x1.5ab56ap-1f, 0x1.5cb972p-1f, 0x1.5ebd7ap-1f, 0x1.60c184p-1f, 0x1.62c58cp-1f,
    0x1.64c994p-1f, 0x1.66cd9cp-1f, 0x1.68d1a4p-1f, 0x1.6ad5acp-1f, 0x1.6cd9b4p-1f,
    0x1.6eddbcp-1f, 0x1.70e1c4p-1f, 0x1.72e5ccp-1f, 0x1.74e9d4p-1f, 0x1.76eddcp-1f,
    0x1.78f1e4p-1f, 0x1.7af5ecp-1f, 0x1.7cf9f4p-1f, 0x1.7efdfcp-1f, 0x1.810204p-1f,
    0x1.83060cp-1f, 0x1.850a14p-1f, 0x1.870e1cp-1f, 0x1.891224p-1f, 0x1.8b162cp-1f,
    0x1.8d1a34p-1f, 0x1.8f1e3cp-1f, 0x1.912244p-1f, 0x1.93264cp-1f, 0x1.952a54p-1f,
    0x1.972e5cp-1f, 0x1.993264p-1f, 0x1.9b366cp-1f, 0x1.9d3a74p-1f, 0x1.9f3e7cp-1f,
    0x1.a14286p-1f, 0x1.a3468ep-1f, 0x1.a54a96p-1f, 0x1.a74e9ep-1f, 0x1.a952a6p-1f,
    0x1.ab56aep-1f, 0x1.ad5ab6p-1f, 0x1.af5ebep-1f, 0x1.b162c6p-1f, 0x1.b366cep-1f,
    0x1.b56ad6p-1f, 0x1.b76edep-1f, 0x1.b972e6p-1f, 0x1.bb76eep-1f, 0x1.bd7af6p-1f,
    0x1.bf7efep-1f, 0x1.c18306p-1f, 0x1.c3870ep-1f, 0x1.c58b16p-1f, 0x1.c78f1ep-1f,
    0x1.c99326p-1f, 0x1.cb972ep-1f, 0x1.cd9b36p-1f, 0x1.cf9f3ep-1f, 0x1.d1a346p-1f,
    0x1.d3a74ep-1f, 0x1.d5ab56p-1f, 0x1.d7af5ep-1f, 0x1.d9b366p-1f, 0x1.dbb76ep-1f,
    0x1.ddbb76p-1f, 0x1.dfbf7ep-1f, 0x1.e1c388p-1f, 0x1.e3c79p-1f, 0x1.e5cb98p-1f, 0x1.e7cfap-1f,
    0x1.e9d3a8p-1f, 0x1.ebd7bp-1f, 0x1.eddbb8p-1f, 0x1.efdfcp-1f, 0x1.f1e3c8p-1f, 0x1.f3e7dp-1f,
    0x1.f5ebd8p-1f, 0x1.f7efep-1f, 0x1.f9f3e8p-1f, 0x1.fbf7fp-1f, 0x1.fdfbf8p-1f, 0x1p+0f};
    _Alignas(64) static uint8_t repro_codes2[1] = {0x0};
    _Alignas(64) static float repro_scales2[1] = {0};
    _Alignas(64) static const float repro_codebook2[256] = {0, 0, 0x1.020408p-8f, 0x1.020408p-7f,
    0x1.83060cp-7f, 0x1.020408p-6f, 0x1.42850ap-6f, 0x1.83060cp-6f, 0x1.c3870ep-6f,
    0x1.020408p-5f, 0x1.22448ap-5f, 0x1.42850ap-5f, 0x1.62c58cp-5f, 0x1.83060cp-5f,
    0x1.a3468ep-5f, 0x1.c3870ep-5f, 0x1.e3c79p-5f, 0x1.020408p-4f, 0x1.122448p-4f, 0x1.22448ap-4f,
    0x1.3264cap-4f, 0x1.42850ap-4f, 0x1.52a54ap-4f, 0x1.62c58cp-4f, 0x1.72e5ccp-4f,
    0x1.83060cp-4f, 0x1.93264cp-4f, 0x1.a3468ep-4f, 0x1.b366cep-4f, 0x1.c3870ep-4f,
    0x1.d3a74ep-4f, 0x1.e3c79p-4f, 0x1.f3e7dp-4f, 0x1.020408p-3f, 0x1.0a1428p-3f, 0x1.122448p-3f,
    0x1.1a3468p-3f, 0x1.22448ap-3f, 0x1.2a54aap-3f, 0x1.3264cap-3f, 0x1.3a74eap-3f,
    0x1.42850ap-3f, 0x1.4a952ap-3f, 0x1.52a54ap-3f, 0x1.5ab56ap-3f, 0x1.62c58cp-3f,
    0x1.6ad5acp-3f, 0x1.72e5ccp-3f, 0x1.7af5ecp-3f, 0x1.83060cp-3f, 0x1.8b162cp-3f,
    0x1.93264cp-3f, 0x1.9b366cp-3f, 0x1.a3468ep-3f, 0x1.ab56aep-3f, 0x1.b366cep-3f,
    0x1.bb76eep-3f, 0x1.c3870ep-3f, 0x1.cb972ep-3f, 0x1.d3a74ep-3f, 0x1.dbb76ep-3f, 0x1.e3c79p-3f,
    0x1.ebd7bp-3f, 0x1.f3e7dp-3f, 0x1.fbf7fp-3f, 0x1.020408p-2f, 0x1.060c18p-2f, 0x1.0a1428p-2f,
    0x1.0e1c38p-2f, 0x1.122448p-2f, 0x1.162c58p-2f, 0x1.1a3468p-2f, 0x1.1e3c78p-2f,
    0x1.22448ap-2f, 0x1.264c9ap-2f, 0x1.2a54aap-2f, 0x1.2e5cbap-2f, 0x1.3264cap-2f,
    0x1.366cdap-2f, 0x1.3a74eap-2f, 0x1.3e7cfap-2f, 0x1.42850ap-2f, 0x1.468d1ap-2f,
    0x1.4a952ap-2f, 0x1.4e9d3ap-2f, 0x1.52a54ap-2f, 0x1.56ad5ap-2f, 0x1.5ab56ap-2f,
    0x1.5ebd7ap-2f, 0x1.62c58cp-2f, 0x1.66cd9cp-2f, 0x1.6ad5acp-2f, 0x1.6eddbcp-2f,
    0x1.72e5ccp-2f, 0x1.76eddcp-2f, 0x1.7af5ecp-2f, 0x1.7efdfcp-2f, 0x1.83060cp-2f,
    0x1.870e1cp-2f, 0x1.8b162cp-2f, 0x1.8f1e3cp-2f, 0x1.93264cp-2f, 0x1.972e5cp-2f,
    0x1.9b366cp-2f, 0x1.9f3e7cp-2f, 0x1.a3468ep-2f, 0x1.a74e9ep-2f, 0x1.ab56aep-2f,
    0x1.af5ebep-2f, 0x1.b366cep-2f, 0x1.b76edep-2f, 0x1.bb76eep-2f, 0x1.bf7efep-2f,
    0x1.c3870ep-2f, 0x1.c78f1ep-2f, 0x1.cb972ep-2f, 0x1.cf9f3ep-2f, 0x1.d3a74ep-2f,
    0x1.d7af5ep-2f, 0x1.dbb76ep-2f, 0x1.dfbf7ep-2f, 0x1.e3c79p-2f, 0x1.e7cfap-2f, 0x1.ebd7bp-2f,
    0x1.efdfcp-2f, 0x1.f3e7dp-2f, 0x1.f7efep-2f, 0x1.fbf7fp-2f, 0x1p-1f, 0x1.020408p-1f,
    0x1.04081p-1f, 0x1.060c18p-1f, 0x1.08102p-1f, 0x1.0a1428p-1f, 0x1.0c183p-1f, 0x1.0e1c38p-1f,
    0x1.10204p-1f, 0x1.122448p-1f, 0x1.14285p-1f, 0x1.162c58p-1f, 0x1.18306p-1f, 0x1.1a3468p-1f,
    0x1.1c387p-1f, 0x1.1e3c78p-1f, 0x1.204082p-1f, 0x1.22448ap-1f, 0x1.244892p-1f, 0x1.264c9ap-1f,
    0x1.2850a2p-1f, 0x1.2a54aap-1f, 0x1.2c58b2p-1f, 0x1.2e5cbap-1f, 0x1.3060c2p-1f,
    0x1.3264cap-1f, 0x1.3468d2p-1f, 0x1.366cdap-1f, 0x1.3870e2p-1f, 0x1.3a74eap-1f,
    0x1.3c78f2p-1f, 0x1.3e7cfap-1f, 0x1.408102p-1f, 0x1.42850ap-1f, 0x1.448912p-1f,
    0x1.468d1ap-1f, 0x1.489122p-1f, 0x1.4a952ap-1f, 0x1.4c9932p-1f, 0x1.4e9d3ap-1f,
    0x1.50a142p-1f, 0x1.52a54ap-1f, 0x1.54a952p-1f, 0x1.56ad5ap-1f, 0x1.58b162p-1f,
    0x1.5ab56ap-1f, 0x1.5cb972p-1f, 0x1.5ebd7ap-1f, 0x1.60c184p-1f, 0x1.62c58cp-1f,
    0x1.64c994p-1f, 0x1.66cd9cp-1f, 0x1.68d1a4p-1f, 0x1.6ad5acp-1f, 0x1.6cd9b4p-1f,
    0x1.6eddbcp-1f, 0x1.70e1c4p-1f, 0x1.72e5ccp-1f, 0x1.74e9d4p-1f, 0x1.76eddcp-1f,
    0x1.78f1e4p-1f, 0x1.7af5ecp-1f, 0x1.7cf9f4p-1f, 0x1.7efdfcp-1f, 0x1.810204p-1f,
    0x1.83060cp-1f, 0x1.850a14p-1f, 0x1.870e1cp-1f, 0x1.891224p-1f, 0x1.8b162cp-1f,
    0x1.8d1a34p-1f, 0x1.8f1e3cp-1f, 0x1.912244p-1f, 0x1.93264cp-1f, 0x1.952a54p-1f,
    0x1.972e5cp-1f, 0x1.993264p-1f, 0x1.9b366cp-1f, 0x1.9d3a74p-1f, 0x1.9f3e7cp-1f,
    0x1.a14286p-1f, 0x1.a3468ep-1f, 0x1.a54a96p-1f, 0x1.a74e9ep-1f, 0x1.a952a6p-1f,
    0x1.ab56aep-1f, 0x1.ad5ab6p-1f, 0x1.af5ebep-1f, 0x1.b162c6p-1f, 0x1.b366cep-1f,
    0x1.b56ad6p-1f, 0x1.b76edep-1f, 0x1.b972e6p-1f, 0x1.bb76eep-1f, 0x1.bd7af6p-1f,
    0x1.bf7efep-1f, 0x1.c18306p-1f, 0x1.c3870ep-1f, 0x1.c58b16p-1f, 0x1.c78f1ep-1f,
    0x1.c99326p-1f, 0x1.cb972ep-1f, 0x1.cd9b36p-1f, 0x1.cf9f3ep-1f, 0x1.d1a346p-1f,
    0x1.d3a74ep-1f, 0x1.d5ab56p-1f, 0x1.d7af5ep-1f, 0x1.d9b366p-1f, 0x1.dbb76ep-1f,
    0x1.ddbb76p-1f, 0x1.dfbf7ep-1f, 0x1.e1c388p-1f, 0x1.e3c79p-1f, 0x1.e5cb98p-1f, 0x1.e7cfap-1f,
    0x1.e9d3a8p-1f, 0x1.ebd7bp-1f, 0x1.eddbb8p-1f, 0x1.efdfcp-1f, 0x1.f1e3c8p-1f, 0x1.f3e7dp-1f,
    0x1.f5ebd8p-1f, 0x1.f7efep-1f, 0x1.f9f3e8p-1f, 0x1.fbf7fp-1f, 0x1.fdfbf8p-1f, 0x1p+0f};
    _Alignas(64) static uint8_t repro_codes3[2] = {0x0, 0x0};
    _Alignas(64) static float repro_scales3[2] = {0x1p+0f, 0x1p+0f};
    _Alignas(64) static const float repro_codebook3[256] = {0, 0, 0x1.020408p-8f, 0x1.020408p-7f,
    0x1.83060cp-7f, 0x1.020408p-6f, 0x1.42850ap-6f, 0x1.83060cp-6f, 0x1.c3870ep-6f,
    0x1.020408p-5f, 0x1.22448ap-5f, 0x1.42850ap-5f, 0x1.62c58cp-5f, 0x1.83060cp-5f,
    0x1.a3468ep-5f, 0x1.c3870ep-5f, 0x1.e3c79p-5f, 0x1.020408p-4f, 0x1.122448p-4f, 0x1.22448ap-4f,
    0x1.3264cap-4f, 0x1.42850ap-4f, 0x1.52a54ap-4f, 0x1.62c58cp-4f, 0x1.72e5ccp-4f,
    0x1.83060cp-4f, 0x1.93264cp-4f, 0x1.a3468ep-4f, 0x1.b366cep-4f, 0x1.c3870ep-4f,
    0x1.d3a74ep-4f, 0x1.e3c79p-4f, 0x1.f3e7dp-4f, 0x1.020408p-3f, 0x1.0a1428p-3f, 0x1.122448p-3f,
    0x1.1a3468p-3f, 0x1.22448ap-3f, 0x1.2a54aap-3f, 0x1.3264cap-3f, 0x1.3a74eap-3f,
    0x1.42850ap-3f, 0x1.4a952ap-3f, 0x1.52a54ap-3f, 0x1.5ab56ap-3f, 0x1.62c58cp-3f,
    0x1.6ad5acp-3f, 0x1.72e5ccp-3f, 0x1.7af5ecp-3f, 0x1.83060cp-3f, 0x1.8b162cp-3f,
    0x1.93264cp-3f, 0x1.9b366cp-3f, 0x1.a3468ep-3f, 0x1.ab56aep-3f, 0x1.b366cep-3f,
    0x1.bb76eep-3f, 0x1.c3870ep-3f, 0x1.cb972ep-3f, 0x1.d3a74ep-3f, 0x1.dbb76ep-3f, 0x1.e3c79p-3f,
    0x1.ebd7bp-3f, 0x1.f3e7dp-3f, 0x1.fbf7fp-3f, 0x1.020408p-2f, 0x1.060c18p-2f, 0x1.0a1428p-2f,
    0x1.0e1c38p-2f, 0x1.122448p-2f, 0x1.162c58p-2f, 0x1.1a3468p-2f, 0x1.1e3c78p-2f,
    0x1.22448ap-2f, 0x1.264c9ap-2f, 0x1.2a54aap-2f, 0x1.2e5cbap-2f, 0x1.3264cap-2f,
    0x1.366cdap-2f, 0x1.3a74eap-2f, 0x1.3e7cfap-2f, 0x1.42850ap-2f, 0x1.468d1ap-2f,
    0x1.4a952ap-2f, 0x1.4e9d3ap-2f, 0x1.52a54ap-2f, 0x1.56ad5ap-2f, 0x1.5ab56ap-2f,
    0x1.5ebd7ap-2f, 0x1.62c58cp-2f, 0x1.66cd9cp-2f, 0x1.6ad5acp-2f, 0x1.6eddbcp-2f,
    0x1.72e5ccp-2f, 0x1.76eddcp-2f, 0x1.7af5ecp-2f, 0x1.7efdfcp-2f, 0x1.83060cp-2f,
    0x1.870e1cp-2f, 0x1.8b162cp-2f, 0x1.8f1e3cp-2f, 0x1.93264cp-2f, 0x1.972e5cp-2f,
    0x1.9b366cp-2f, 0x1.9f3e7cp-2f, 0x1.a3468ep-2f, 0x1.a74e9ep-2f, 0x1.ab56aep-2f,
    0x1.af5ebep-2f, 0x1.b366cep-2f, 0x1.b76edep-2f, 0x1.bb76eep-2f, 0x1.bf7efep-2f,
    0x1.c3870ep-2f, 0x1.c78f1ep-2f, 0x1.cb972ep-2f, 0x1.cf9f3ep-2f, 0x1.d3a74ep-2f,
    0x1.d7af5ep-2f, 0x1.dbb76ep-2f, 0x1.dfbf7ep-2f, 0x1.e3c79p-2f, 0x1.e7cfap-2f, 0x1.ebd7bp-2f,
    0x1.efdfcp-2f, 0x1.f3e7dp-2f, 0x1.f7efep-2f, 0x1.fbf7fp-2f, 0x1p-1f, 0x1.020408p-1f,
    0x1.04081p-1f, 0x1.060c18p-1f, 0x1.08102p-1f, 0x1.0a1428p-1f, 0x1.0c183p-1f, 0x1.0e1c38p-1f,
    0x1.10204p-1f, 0x1.122448p-1f, 0x1.14285p-1f, 0x1.162c58p-1f, 0x1.18306p-1f, 0x1.1a3468p-1f,
    0x1.1c387p-1f, 0x1.1e3c78p-1f, 0x1.204082p-1f, 0x1.22448ap-1f, 0x1.244892p-1f, 0x1.264c9ap-1f,
    0x1.2850a2p-1f, 0x1.2a54aap-1f, 0x1.2c58b2p-1f, 0x1.2e5cbap-1f, 0x1.3060c2p-1f,
    0x1.3264cap-1f, 0x1.3468d2p-1f, 0x1.366cdap-1f, 0x1.3870e2p-1f, 0x1.3a74eap-1f,
    0x1.3c78f2p-1f, 0x1.3e7cfap-1f, 0x1.408102p-1f, 0x1.42850ap-1f, 0x1.448912p-1f,
    0x1.468d1ap-1f, 0x1.489122p-1f, 0x1.4a952ap-1f, 0x1.4c9932p-1f, 0x1.4e9d3ap-1f,
    0x1.50a142p-1f, 0x1.52a54ap-1f, 0x1.54a952p-1f, 0x1.56ad5ap-1f, 0x1.58b162p-1f,
    0x1.5ab56ap-1f, 0x1.5cb972p-1f, 0x1.5ebd7ap-1f, 0x1.60c184p-1f, 0x1.62c58cp-1f,
    0x1.64c994p-1f, 0x1.66cd9cp-1f, 0x1.68d1a4p-1f, 0x1.6ad5acp-1f, 0x1.6cd9b4p-1f,
    0x1.6eddbcp-1f, 0x1.70e1c4p-1f, 0x1.72e5ccp-1f, 0x1.74e9d4p-1f, 0x1.76eddcp-1f,
    0x1.78f1e4p-1f, 0x1.7af5ecp-1f, 0x1.7cf9f4p-1f, 0x1.7efdfcp-1f, 0x1.810204p-1f,
    0x1.83060cp-1f, 0x1.850a14p-1f, 0x1.870e1cp-1f, 0x1.891224p-1f, 0x1.8b162cp-1f,
    0x1.8d1a34p-1f, 0x1.8f1e3cp-1f, 0x1.912244p-1f, 0x1.93264cp-1f, 0x1.952a54p-1f,
    0x1.972e5cp-1f, 0x1.993264p-1f, 0x1.9b366cp-1f, 0x1.9d3a74p-1f, 0x1.9f3e7cp-1f,
    0x1.a14286p-1f, 0x1.a3468ep-1f, 0x1.a54a96p-1f, 0x1.a74e9ep-1f, 0x1.a952a6p-1f,
    0x1.ab56aep-1f, 0x1.ad5ab6p-1f, 0x1.af5ebep-1f, 0x1.b162c6p-1f, 0x1.b366cep-1f,
    0x1.b56ad6p-1f, 0x1.b76edep-1f, 0x1.b972e6p-1f, 0x1.bb76eep-1f, 0x1.bd7af6p-1f,
    0x1.bf7efep-1f, 0x1.c18306p-1f, 0x1.c3870ep-1f, 0x1.c58b16p-1f, 0x1.c78f1ep-1f,
    0x1.c99326p-1f, 0x1.cb972ep-1f, 0x1.cd9b36p-1f, 0x1.cf9f3ep-1f, 0x1.d1a346p-1f,
    0x1.d3a74ep-1f, 0x1.d5ab56p-1f, 0x1.d7af5ep-1f, 0x1.d9b366p-1f, 0x1.dbb76ep-1f,
    0x1.ddbb76p-1f, 0x1.dfbf7ep-1f, 0x1.e1c388p-1f, 0x1.e3c79p-1f, 0x1.e5cb98p-1f, 0x1.e7cfap-1f,
    0x1.e9d3a8p-1f, 0x1.ebd7bp-1f, 0x1.eddbb8p-1f, 0x1.efdfcp-1f, 0x1.f1e3c8p-1f, 0x1.f3e7dp-1f,
    0x1.f5ebd8p-1f, 0x1.f7efep-1f, 0x1.f9f3e8p-1f, 0x1.fbf7fp-1f, 0x1.fdfbf8p-1f, 0x1p+0f};
    _Alignas(64) static uint8_t repro_codes4[1] = {0x0};
    _Alignas(64) static float repro_scales4[1] = {0};
    _Alignas(64) static const float repro_codebook4[256] = {0, 0, 0x1.020408p-8f, 0x1.020408p-7f,
    0x1.83060cp-7f, 0x1.020408p-6f, 0x1.42850ap-6f, 0x1.83060cp-6f, 0x1.c3870ep-6f,
    0x1.020408p-5f, 0x1.22448ap-5f, 0x1.42850ap-5f, 0x1.62c58cp-5f, 0x1.83060cp-5f,
    0x1.a3468ep-5f, 0x1.c3870ep-5f, 0x1.e3c79p-5f, 0x1.020408p-4f, 0x1.122448p-4f, 0x1.22448ap-4f,
    0x1.3264cap-4f, 0x1.42850ap-4f, 0x1.52a54ap-4f, 0x1.62c58cp-4f, 0x1.72e5ccp-4f,
    0x1.83060cp-4f, 0x1.93264cp-4f, 0x1.a3468ep-4f, 0x1.b366cep-4f, 0x1.c3870ep-4f,
    0x1.d3a74ep-4f, 0x1.e3c79p-4f, 0x1.f3e7dp-4f, 0x1.020408p-3f, 0x1.0a1428p-3f, 0x1.122448p-3f,
    0x1.1a3468p-3f, 0x1.22448ap-3f, 0x1.2a54aap-3f, 0x1.3264cap-3f, 0x1.3a74eap-3f,
    0x1.42850ap-3f, 0x1.4a952ap-3f, 0x1.52a54ap-3f, 0x1.5ab56ap-3f, 0x1.62c58cp-3f,
    0x1.6ad5acp-3f, 0x1.72e5ccp-3f, 0x1.7af5ecp-3f, 0x1.83060cp-3f, 0x1.8b162cp-3f,
    0x1.93264cp-3f, 0x1.9b366cp-3f, 0x1.a3468ep-3f, 0x1.ab56aep-3f, 0x1.b366cep-3f,
    0x1.bb76eep-3f, 0x1.c3870ep-3f, 0x1.cb972ep-3f, 0x1.d3a74ep-3f, 0x1.dbb76ep-3f, 0x1.e3c79p-3f,
    0x1.ebd7bp-3f, 0x1.f3e7dp-3f, 0x1.fbf7fp-3f, 0x1.020408p-2f, 0x1.060c18p-2f, 0x1.0a1428p-2f,
    0x1.0e1c38p-2f, 0x1.122448p-2f, 0x1.162c58p-2f, 0x1.1a3468p-2f, 0x1.1e3c78p-2f,
    0x1.22448ap-2f, 0x1.264c9ap-2f, 0x1.2a54aap-2f, 0x1.2e5cbap-2f, 0x1.3264cap-2f,
    0x1.366cdap-2f, 0x1.3a74eap-2f, 0x1.3e7cfap-2f, 0x1.42850ap-2f, 0x1.468d1ap-2f,
    0x1.4a952ap-2f, 0x1.4e9d3ap-2f, 0x1.52a54ap-2f, 0x1.56ad5ap-2f, 0x1.5ab56ap-2f,
    0x1.5ebd7ap-2f, 0x1.62c58cp-2f, 0x1.66cd9cp-2f, 0x1.6ad5acp-2f, 0x1.6eddbcp-2f,
    0x1.72e5ccp-2f, 0x1.76eddcp-2f, 0x1.7af5ecp-2f, 0x1.7efdfcp-2f, 0x1.83060cp-2f,
    0x1.870e1cp-2f, 0x1.8b162cp-2f, 0x1.8f1e3cp-2f, 0x1.93264cp-2f, 0x1.972e5cp-2f,
    0x1.9b366cp-2f, 0x1.9f3e7cp-2f, 0x1.a3468ep-2f, 0x1.a74e9ep-2f, 0x1.ab56aep-2f,
    0x1.af5ebep-2f, 0x1.b366cep-2f, 0x1.b76edep-2f, 0x1.bb76eep-2f, 0x1.bf7efep-2f,
    0x1.c3870ep-2f, 0x1.c78f1ep-2f, 0x1.cb972ep-2f, 0x1.cf9f3ep-2f, 0x1.d3a74ep-2f,
    0x1.d7af5ep-2f, 0x1.dbb76ep-2f, 0x1.dfbf7ep-2f, 0x1.e3c79p-2f, 0x1.e7cfap-2f, 0x1.ebd7bp-2f,
    0x1.efdfcp-2f, 0x1.f3e7dp-2f, 0x1.f7efep-2f, 0x1.fbf7fp-2f, 0x1p-1f, 0x1.020408p-1f,
    0x1.04081p-1f, 0x1.060c18p-1f, 0x1.08102p-1f, 0x1.0a1428p-1f, 0x1.0c183p-1f, 0x1.0e1c38p-1f,
    0x1.10204p-1f, 0x1.122448p-1f, 0x1.14285p-1f, 0x1.162c58p-1f, 0x1.18306p-1f, 0x1.1a3468p-1f,
    0x1.1c387p-1f, 0x1.1e3c78p-1f, 0x1.204082p-1f, 0x1.22448ap-1f, 0x1.244892p-1f, 0x1.264c9ap-1f,
    0x1.2850a2p-1f, 0x1.2a54aap-1f, 0x1.2c58b2p-1f, 0x1.2e5cbap-1f, 0x1.3060c2p-1f,
    0x1.3264cap-1f, 0x1.3468d2p-1f, 0x1.366cdap-1f, 0x1.3870e2p-1f, 0x1.3a74eap-1f,
    0x1.3c78f2p-1f, 0x1.3e7cfap-1f, 0x1.408102p-1f, 0x1.42850ap-1f, 0x1.448912p-1f,
    0x1.468d1ap-1f, 0x1.489122p-1f, 0x1.4a952ap-1f, 0x1.4c9932p-1f, 0x1.4e9d3ap-1f,
    0x1.50a142p-1f, 0x1.52a54ap-1f, 0x1.54a952p-1f, 0x1.56ad5ap-1f, 0x1.58b162p-1f,
    0x1.5ab56ap-1f, 0x1.5cb972p-1f, 0x1.5ebd7ap-1f, 0x1.60c184p-1f, 0x1.62c58cp-1f,
    0x1.64c994p-1f, 0x1.66cd9cp-1f, 0x1.68d1a4p-1f, 0x1.6ad5acp-1f, 0x1.6cd9b4p-1f,
    0x1.6eddbcp-1f, 0x1.70e1c4p-1f, 0x1.72e5ccp-1f, 0x1.74e9d4p-1f, 0x1.76eddcp-1f,
    0x1.78f1e4p-1f, 0x1.7af5ecp-1f, 0x1.7cf9f4p-1f, 0x1.7efdfcp-1f, 0x1.810204p-1f,
    0x1.83060cp-1f, 0x1.850a14p-1f, 0x1.870e1cp-1f, 0x1.891224p-1f, 0x1.8b162cp-1f,
    0x1.8d1a34p-1f, 0x1.8f1e3cp-1f, 0x1.912244p-1f, 0x1.93264cp-1f, 0x1.952a54p-1f,
    0x1.972e5cp-1f, 0x1.993264p-1f, 0x1.9b366cp-1f, 0x1.9d3a74p-1f, 0x1.9f3e7cp-1f,
    0x1.a14286p-1f, 0x1.a3468ep-1f, 0x1.a54a96p-1f, 0x1.a74e9ep-1f, 0x1.a952a6p-1f,
    0x1.ab56aep-1f, 0x1.ad5ab6p-1f, 0x1.af5ebep-1f, 0x1.b162c6p-1f, 0x1.b366cep-1f,
    0x1.b56ad6p-1f, 0x1.b76edep-1f, 0x1.b972e6p-1f, 0x1.bb76eep-1f, 0x1.bd7af6p-1f,
    0x1.bf7efep-1f, 0x1.c18306p-1f, 0x1.c3870ep-1f, 0x1.c58b16p-1f, 0x1.c78f1ep-1f,
    0x1.c99326p-1f, 0x1.cb972ep-1f, 0x1.cd9b36p-1f, 0x1.cf9f3ep-1f, 0x1.d1a346p-1f,
    0x1.d3a74ep-1f, 0x1.d5ab56p-1f, 0x1.d7af5ep-1f, 0x1.d9b366p-1f, 0x1.dbb76ep-1f,
    0x1.ddbb76p-1f, 0x1.dfbf7ep-1f, 0x1.e1c388p-1f, 0x1.e3c79p-1f, 0x1.e5cb98p-1f, 0x1.e7cfap-1f,
    0x1.e9d3a8p-1f, 0x1.ebd7bp-1f, 0x1.eddbb8p-1f, 0x1.efdfcp-1f, 0x1.f1e3c8p-1f, 0x1.f3e7dp-1f,
    0x1.f5ebd8p-1f, 0x1.f7efep-1f, 0x1.f9f3e8p-1f, 0x1.fbf7fp-1f, 0x1.fdfbf8p-1f, 0x1p+0f};
    _Alignas(64) static uint8_t repro_codes5[1] = {0x0};
    _Alignas(64) static float repro_scales5[1] = {0};
    _Alignas(64) static const float repro_codebook5[256] = {0, 0, 0x1.020408p-8f, 0x1.020408p-7f,
    0x1.83060cp-7f, 0x1.020408p-6f, 0x1.42850ap-6f, 0x1.83060cp-6f, 0x1.c3870ep-6f,
    0x1.020408p-5f, 0x1.22448ap-5f, 0x1.42850ap-5f, 0x1.62c58cp-5f, 0x1.83060cp-5f,
    0x1.a3468ep-5f, 0x1.c3870ep-5f, 0x1.e3c79p-5f, 0x1.020408p-4f, 0x1.122448p-4f, 0x1.22448ap-4f,
    0x1.3264cap-4f, 0x1.42850ap-4f, 0x1.52a54ap-4f, 0x1.62c58cp-4f, 0x1.72e5ccp-4f,
    0x1.83060cp-4f, 0x1.93264cp-4f, 0x1.a3468ep-4f, 0x1.b366cep-4f, 0x1.c3870ep-4f,
    0x1.d3a74ep-4f, 0x1.e3c79p-4f, 0x1.f3e7dp-4f, 0x1.020408p-3f, 0x1.0a1428p-3f, 0x1.122448p-3f,
    0x1.1a3468p-3f, 0x1.22448ap-3f, 0x1.2a54aap-3f, 0x1.3264cap-3f, 0x1.3a74eap-3f,
    0x1.42850ap-3f, 0x1.4a952ap-3f, 0x1.52a54ap-3f, 0x1.5ab56ap-3f, 0x1.62c58cp-3f,
    0x1.6ad5acp-3f, 0x1.72e5ccp-3f, 0x1.7af5ecp-3f, 0x1.83060cp-3f, 0x1.8b162cp-3f,
    0x1.93264cp-3f, 0x1.9b366cp-3f, 0x1.a3468ep-3f, 0x1.ab56aep-3f, 0x1.b366cep-3f,
    0x1.bb76eep-3f, 0x1.c3870ep-3f, 0x1.cb972ep-3f, 0x1.d3a74ep-3f, 0x1.dbb76ep-3f, 0x1.e3c79p-3f,
    0x1.ebd7bp-3f, 0x1.f3e7dp-3f, 0x1.fbf7fp-3f, 0x1.020408p-2f, 0x1.060c18p-2f, 0x1.0a1428p-2f,
    0x1.0e1c38p-2f, 0x1.122448p-2f, 0x1.162c58p-2f, 0x1.1a3468p-2f, 0x1.1e3c78p-2f,
    0x1.22448ap-2f, 0x1.264c9ap-2f, 0x1.2a54aap-2f, 0x1.2e5cbap-2f, 0x1.3264cap-2f,
    0x1.366cdap-2f, 0x1.3a74eap-2f, 0x1.3e7cfap-2f, 0x1.42850ap-2f, 0x1.468d1ap-2f,
    0x1.4a952ap-2f, 0x1.4e9d3ap-2f, 0x1.52a54ap-2f, 0x1.56ad5ap-2f, 0x1.5ab56ap-2f,
    0x1.5ebd7ap-2f, 0x1.62c58cp-2f, 0x1.66cd9cp-2f, 0x1.6ad5acp-2f, 0x1.6eddbcp-2f,
    0x1.72e5ccp-2f, 0x1.76eddcp-2f, 0x1.7af5ecp-2f, 0x1.7efdfcp-2f, 0x1.83060cp-2f,
    0x1.870e1cp-2f, 0x1.8b162cp-2f, 0x1.8f1e3cp-2f, 0x1.93264cp-2f, 0x1.972e5cp-2f,
    0x1.9b366cp-2f, 0x1.9f3e7cp-2f, 0x1.a3468ep-2f, 0x1.a74e9ep-2f, 0x1.ab56aep-2f,
    0x1.af5ebep-2f, 0x1.b366cep-2f, 0x1.b76edep-2f, 0x1.bb76eep-2f, 0x1.bf7efep-2f,
    0x1.c3870ep-2f, 0x1.c78f1ep-2f, 0x1.cb972ep-2f, 0x1.cf9f3ep-2f, 0x1.d3a74ep-2f,
    0x1.d7af5ep-2f, 0x1.dbb76ep-2f, 0x1.dfbf7ep-2f, 0x1.e3c79p-2f, 0x1.e7cfap-2f, 0x1.ebd7bp-2f,
    0x1.efdfcp-2f, 0x1.f3e7dp-2f, 0x1.f7efep-2f, 0x1.fbf7fp-2f, 0x1p-1f, 0x1.020408p-1f,
    0x1.04081p-1f, 0x1.060c18p-1f, 0x1.08102p-1f, 0x1.0a1428p-1f, 0x1.0c183p-1f, 0x1.0e1c38p-1f,
    0x1.10204p-1f, 0x1.122448p-1f, 0x1.14285p-1f, 0x1.162c58p-1f, 0x1.18306p-1f, 0x1.1a3468p-1f,
    0x1.1c387p-1f, 0x1.1e3c78p-1f, 0x1.204082p-1f, 0x1.22448ap-1f, 0x1.244892p-1f, 0x1.264c9ap-1f,
    0x1.2850a2p-1f, 0x1.2a54aap-1f, 0x1.2c58b2p-1f, 0x1.2e5cbap-1f, 0x1.3060c2p-1f,
    0x1.3264cap-1f, 0x1.3468d2p-1f, 0x1.366cdap-1f, 0x1.3870e2p-1f, 0x1.3a74eap-1f,
    0x1.3c78f2p-1f, 0x1.3e7cfap-1f, 0x1.408102p-1f, 0x1.42850ap-1f, 0x1.448912p-1f,
    0x1.468d1ap-1f, 0x1.489122p-1f, 0x1.4a952ap-1f, 0x1.4c9932p-1f, 0x1.4e9d3ap-1f,
    0x1.50a142p-1f, 0x1.52a54ap-1f, 0x1.54a952p-1f, 0x1.56ad5ap-1f, 0x1.58b162p-1f,
    0x1.5ab56ap-1f, 0x1.5cb972p-1f, 0x1.5ebd7ap-1f, 0x1.60c184p-1f, 0x1.62c58cp-1f,
    0x1.64c994p-1f, 0x1.66cd9cp-1f, 0x1.68d1a4p-1f, 0x1.6ad5acp-1f, 0x1.6cd9b4p-1f,
    0x1.6eddbcp-1f, 0x1.70e1c4p-1f, 0x1.72e5ccp-1f, 0x1.74e9d4p-1f, 0x1.76eddcp-1f,
    0x1.78f1e4p-1f, 0x1.7af5ecp-1f, 0x1.7cf9f4p-1f, 0x1.7efdfcp-1f, 0x1.810204p-1f,
    0x1.83060cp-1f, 0x1.850a14p-1f, 0x1.870e1cp-1f, 0x1.891224p-1f, 0x1.8b162cp-1f,
    0x1.8d1a34p-1f, 0x1.8f1e3cp-1f, 0x1.912244p-1f, 0x1.93264cp-1f, 0x1.952a54p-1f,
    0x1.972e5cp-1f, 0x1.993264p-1f, 0x1.9b366cp-1f, 0x1.9d3a74p-1f, 0x1.9f3e7cp-1f,
    0x1.a14286p-1f, 0x1.a3468ep-1f, 0x1.a54a96p-1f, 0x1.a74e9ep-1f, 0x1.a952a6p-1f,
    0x1.ab56aep-1f, 0x1.ad5ab6p-1f, 0x1.af5ebep-1f, 0x1.b162c6p-1f, 0x1.b366cep-1f,
    0x1.b56ad6p-1f, 0x1.b76edep-1f, 0x1.b972e6p-1f, 0x1.bb76eep-1f, 0x1.bd7af6p-1f,
    0x1.bf7efep-1f, 0x1.c18306p-1f, 0x1.c3870ep-1f, 0x1.c58b16p-1f, 0x1.c78f1ep-1f,
    0x1.c99326p-1f, 0x1.cb972ep-1f, 0x1.cd9b36p-1f, 0x1.cf9f3ep-1f, 0x1.d1a346p-1f,
    0x1.d3a74ep-1f, 0x1.d5ab56p-1f, 0x1.d7af5ep-1f, 0x1.d9b366p-1f, 0x1.dbb76ep-1f,
    0x1.ddbb76p-1f, 0x1.dfbf7ep-1f, 0x1.e1c388p-1f, 0x1.e3c79p-1f, 0x1.e5cb98p-1f, 0x1.e7cfap-1f,
    0x1.e9d3a8p-1f, 0x1.ebd7bp-1f, 0x1.eddbb8p-1f, 0x1.efdfcp-1f, 0x1.f1e3c8p-1f, 0x1.f3e7dp-1f,
    0x1.f5ebd8p-1f, 0x1.f7efep-1f, 0x1.f9f3e8p-1f, 0x1.fbf7fp-1f, 0x1.fdfbf8p-1f, 0x1p+0f};
    _Alignas(64) static float repro_values6[1] = {0};
    _Alignas(64) static float repro_values7[1] = {0};
    struct qm_kernel_args a[1] = {{.abi = QM_KERNEL_ABI,
        .recipe = "sgd8_046,exp_avg.min_numel=0,row_var.min_numel=0,col_var.min_numel=0,variance.min_numel=0,conf_row.min_numel=0,conf_col.min_numel=0,lr=1,beta1=0,beta2=0,eps=0,eps1=0,eps2=0,beta2_decay=0,margin=0,limiter=1",
        .n = 2, .ndim = 1, .dim = {2}, .p_dtype = 0, .param = "f32", .g_dtype = 0,
        .n_slots = 8, .t = 1, .seed = 0u, .tensor = 1, .lr = 1, .initial_lr = 1,
        .limiter = 1, .p = repro_p, .g = repro_g,
        .slot[0] = {.name = "exp_avg", .quantizer = "intm:8s/block:256/arith/even/floor:1e-12",
        .bits = 8, .is_signed = 1, .block = 256, .n = 2, .ndim = 1, .dim = {2},
        .code_bytes = 2, .n_scales = 1, .codebook = repro_codebook0, .codes = repro_codes0,
        .scales = repro_scales0},
        .slot[1] = {.name = "row_var", .quantizer = "al:8u/block:2048/arith/even/allog",
        .bits = 8, .is_signed = 0, .block = 2048, .n = 0, .ndim = 1, .dim = {0},
        .code_bytes = 0, .n_scales = 0, .codebook = repro_codebook1, .codes = repro_codes1,
        .scales = repro_scales1},
        .slot[2] = {.name = "col_var", .quantizer = "al:8u/block:2048/arith/even/allog",
        .bits = 8, .is_signed = 0, .block = 2048, .n = 0, .ndim = 1, .dim = {0},
        .code_bytes = 0, .n_scales = 0, .codebook = repro_codebook2, .codes = repro_codes2,
        .scales = repro_scales2},
        .slot[3] = {.name = "variance", .quantizer = "al:8u/block:2048/arith/even/allog",
        .bits = 8, .is_signed = 0, .block = 2048, .n = 2, .ndim = 1, .dim = {2},
        .code_bytes = 2, .n_scales = 2, .codebook = repro_codebook3, .codes = repro_codes3,
        .scales = repro_scales3},
        .slot[4] = {.name = "conf_row", .quantizer = "al:8u/block:2048/arith/even/allog",
        .bits = 8, .is_signed = 0, .block = 2048, .n = 0, .ndim = 1, .dim = {0},
        .code_bytes = 0, .n_scales = 0, .codebook = repro_codebook4, .codes = repro_codes4,
        .scales = repro_scales4},
        .slot[5] = {.name = "conf_col", .quantizer = "al:8u/block:2048/arith/even/allog",
        .bits = 8, .is_signed = 0, .block = 2048, .n = 0, .ndim = 1, .dim = {0},
        .code_bytes = 0, .n_scales = 0, .codebook = repro_codebook5, .codes = repro_codes5,
        .scales = repro_scales5},
        .slot[6] = {.name = "prev_norm", .quantizer = "f32", .bits = 0, .is_signed = 0,
        .block = 0, .n = 1, .ndim = 1, .dim = {1}, .values = repro_values6},
        .slot[7] = {.name = "proj", .quantizer = "f32", .bits = 0, .is_signed = 1, .block = 0,
        .n = 0, .ndim = 1, .dim = {0}, .values = repro_values7}}};
    qm_kernel_step(a);
    float got = ((float *)a->p)[1], low = 0x1.fffffap-1f, high = 0x1.000002p+0f;
    printf("parameter 1: expected %a to %a, got %a\n", (double)low, (double)high,
           (double)got);
    return !(got >= low && got <= high);
}
