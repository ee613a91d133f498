/* cc -O2 -ffp-contract=off m_apollo8_026-repro.c -lm -o repro && ./repro
 *
 * m_apollo8_026.c of apollo8_026 (case 1x0/normal/beta2_decay=-0.0068+clip_twice=0/t7/forced/p2^-101, seed 20240501), shrunk to 1 step of a tensor of shape 1x0.
 * Found: exp_avg: scale 0 is 0x1p+0, want 0x1.197998p-40 to 0x1.197998p-40; step 1.
 * Prints what is expected and what comes; exits 1 while they differ. */
/* apollo8_026.c - APOLLO of adafactor8bit 0.2.6, PyTorch path.
 *
 * The projection is drawn at every step and never kept; its numbers depend on tensor and period.
 * The momentum has 4 bits and is used before it is encoded; the second moment has 8 bits of log2
 * above 2^-126 and is used after.  Tensors of one dimension take plain Adafactor. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include <stdint.h>
#define QM_KERNEL_ABI 1
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
scale, margin, max_unorm, gnorm_scale, initial_lr; int nesterov, maximize, amsgrad, relative_step,
scale_parameter, scale_weight_decay, factored, limiter, tensor_scale, scale_front, correct_bias,
svd, centered, warmup, clip_twice, decouple_lr; };
int qm_kernel_step(const struct qm_kernel_args *a); extern const int qm_kernel_abi; extern const
char qm_kernel_as[];
#define QM_KERNEL(recipe) const int qm_kernel_abi = QM_KERNEL_ABI; const char qm_kernel_as[] = recipe

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

static double norm(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
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

/* u holds G on entry; every channel is multiplied by |adapted step| / |projected gradient|. */
static void scale_channels(const struct qm_kernel_args *a, const struct layout *l, const float *low,
                           const float *m, const float *v, double correction, float *u)
{
    double tops = 0.0, plains = 0.0, *by = malloc(sizeof *by * (size_t)(l->channels + 1));
    for (int64_t c = 0; c < l->channels && by; c++) {
        double top = 0.0, plain = 0.0;
        for (int64_t k = 0; k < l->rank; k++) {
            int64_t i = c * l->lc + k * l->lk;
            double x = (double)m[i] / (sqrt((double)v[i]) + a->eps);
            top += x * x;
            plain += (double)low[i] * (double)low[i];
        }
        tops += top;
        plains += plain;
        by[c] = sqrt(top) / (sqrt(plain) + 1e-8);
    }
    for (int64_t c = 0; c < l->channels && by; c++) {
        double s = a->tensor_scale ? sqrt(tops) / (sqrt(plains) + 1e-8) : by[c];
        s *= correction * (a->scale_front ? sqrt(a->scale) : 1.0);
        for (int64_t o = 0; o < l->other; o++)
            u[c * l->gc + o * l->go] = (float)(s * (double)u[c * l->gc + o * l->go]);
    }
    free(by);
}

/* The factor that lets the update's norm grow by at most 1 + margin; 0 if it is not finite. */
static double limiter(const struct qm_kernel_args *a, double *now)
{
    float *before = a->slot[NORM].values;
    double most = 1.0 + a->margin, by = fmax(*now / ((double)*before + 1e-8), most) / most;
    if (!isfinite(*now)) {
        *before = 0.0f;
        return *now = 0.0;
    }
    if (a->t == 1 || (double)*before < 1e-6)
        by = 1.0;
    *before = (float)(*now / by);
    return 1.0 / by;
}

static void write_back(const struct qm_kernel_args *a, int projected, double correction, float *u)
{
    float *p = a->p;
    double n = sqrt((double)a->n), now = norm(u, a->n), size = norm(p, a->n) / n;
    double rho = a->relative_step ? fmin(a->lr, 1.0 / sqrt((double)a->t)) : a->lr;
    double by = projected || a->limiter ? limiter(a, &now) : 1.0;
    double alpha = a->scale_parameter ? fmax(size, a->eps2) * rho : rho;
    if (!projected)
        alpha *= correction;
    double after = projected && !a->scale_front ? sqrt(a->scale) : 1.0;
    float keep = (float)(1.0 - a->weight_decay * (a->scale_weight_decay ? alpha : rho));
    float step = (float)(alpha / fmax(1.0, now / (n * a->clip)) * by * after);
    for (int64_t i = 0; i < a->n; i++)
        p[i] = p[i] * keep - (by == 0.0 ? 0.0f : u[i]) * step;
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
    if (projected)
        scale_channels(a, &l, low, m, v, correction, u);
    for (int64_t i = 0; i < n && !projected; i++)
        u[i] = (float)((double)m[i] / sqrt(fmax((double)v[i], fmax(eps * eps, (double)TINY))));
    write_back(a, projected, correction, u);
    free(u);
    return 0;
}

/* ---- what the step gets, and what it must leave ---- */
#include <stdio.h>

int main(void)
{
    _Alignas(64) static float repro_p[1] = {0};
    _Alignas(64) static const float repro_g[1] = {0};
    _Alignas(64) static uint8_t repro_codes0[2] = {0x88, 0x88};
    _Alignas(64) static float repro_scales0[1] = {0x1p+0f};
    _Alignas(64) static const float repro_codebook0[16] = {-0x1p+0f, -0x1.cp-1f, -0x1.8p-1f,
    -0x1.4p-1f, -0x1p-1f, -0x1.8p-2f, -0x1p-2f, -0x1p-3f, 0, 0x1p-3f, 0x1p-2f, 0x1.8p-2f, 0x1p-1f,
    0x1.4p-1f, 0x1.8p-1f, 0x1.cp-1f};
    _Alignas(64) static float repro_values1[1] = {0};
    _Alignas(64) static float repro_values2[1] = {0};
    _Alignas(64) static uint8_t repro_codes3[4] = {0x0, 0x0, 0x0, 0x0};
    _Alignas(64) static float repro_scales3[1] = {0x1p+0f};
    _Alignas(64) static const float repro_codebook3[256] = {0, 0x1.010102p-8f, 0x1.010102p-7f,
    0x1.818184p-7f, 0x1.010102p-6f, 0x1.414142p-6f, 0x1.818184p-6f, 0x1.c1c1c4p-6f,
    0x1.010102p-5f, 0x1.212122p-5f, 0x1.414142p-5f, 0x1.616162p-5f, 0x1.818184p-5f,
    0x1.a1a1a4p-5f, 0x1.c1c1c4p-5f, 0x1.e1e1e4p-5f, 0x1.010102p-4f, 0x1.111112p-4f,
    0x1.212122p-4f, 0x1.313132p-4f, 0x1.414142p-4f, 0x1.515152p-4f, 0x1.616162p-4f,
    0x1.717172p-4f, 0x1.818184p-4f, 0x1.919194p-4f, 0x1.a1a1a4p-4f, 0x1.b1b1b4p-4f,
    0x1.c1c1c4p-4f, 0x1.d1d1d4p-4f, 0x1.e1e1e4p-4f, 0x1.f1f1f4p-4f, 0x1.010102p-3f,
    0x1.09090ap-3f, 0x1.111112p-3f, 0x1.19191ap-3f, 0x1.212122p-3f, 0x1.29292ap-3f,
    0x1.313132p-3f, 0x1.39393ap-3f, 0x1.414142p-3f, 0x1.49494ap-3f, 0x1.515152p-3f,
    0x1.59595ap-3f, 0x1.616162p-3f, 0x1.69696ap-3f, 0x1.717172p-3f, 0x1.79797ap-3f,
    0x1.818184p-3f, 0x1.89898cp-3f, 0x1.919194p-3f, 0x1.99999cp-3f, 0x1.a1a1a4p-3f,
    0x1.a9a9acp-3f, 0x1.b1b1b4p-3f, 0x1.b9b9bcp-3f, 0x1.c1c1c4p-3f, 0x1.c9c9ccp-3f,
    0x1.d1d1d4p-3f, 0x1.d9d9dcp-3f, 0x1.e1e1e4p-3f, 0x1.e9e9ecp-3f, 0x1.f1f1f4p-3f,
    0x1.f9f9fcp-3f, 0x1.010102p-2f, 0x1.050506p-2f, 0x1.09090ap-2f, 0x1.0d0d0ep-2f,
    0x1.111112p-2f, 0x1.151516p-2f, 0x1.19191ap-2f, 0x1.1d1d1ep-2f, 0x1.212122p-2f,
    0x1.252526p-2f, 0x1.29292ap-2f, 0x1.2d2d2ep-2f, 0x1.313132p-2f, 0x1.353536p-2f,
    0x1.39393ap-2f, 0x1.3d3d3ep-2f, 0x1.414142p-2f, 0x1.454546p-2f, 0x1.49494ap-2f,
    0x1.4d4d4ep-2f, 0x1.515152p-2f, 0x1.555556p-2f, 0x1.59595ap-2f, 0x1.5d5d5ep-2f,
    0x1.616162p-2f, 0x1.656566p-2f, 0x1.69696ap-2f, 0x1.6d6d6ep-2f, 0x1.717172p-2f,
    0x1.757576p-2f, 0x1.79797ap-2f, 0x1.7d7d7ep-2f, 0x1.818184p-2f, 0x1.858588p-2f,
    0x1.89898cp-2f, 0x1.8d8d9p-2f, 0x1.919194p-2f, 0x1.959598p-2f, 0x1.99999cp-2f, 0x1.9d9dap-2f,
    0x1.a1a1a4p-2f, 0x1.a5a5a8p-2f, 0x1.a9a9acp-2f, 0x1.adadbp-2f, 0x1.b1b1b4p-2f, 0x1.b5b5b8p-2f,
    0x1.b9b9bcp-2f, 0x1.bdbdcp-2f, 0x1.c1c1c4p-2f, 0x1.c5c5c8p-2f, 0x1.c9c9ccp-2f, 0x1.cdcddp-2f,
    0x1.d1d1d4p-2f, 0x1.d5d5d8p-2f, 0x1.d9d9dcp-2f, 0x1.ddddep-2f, 0x1.e1e1e4p-2f, 0x1.e5e5e8p-2f,
    0x1.e9e9ecp-2f, 0x1.ededfp-2f, 0x1.f1f1f4p-2f, 0x1.f5f5f8p-2f, 0x1.f9f9fcp-2f, 0x1.fdfep-2f,
    0x1.010102p-1f, 0x1.030304p-1f, 0x1.050506p-1f, 0x1.070708p-1f, 0x1.09090ap-1f,
    0x1.0b0b0cp-1f, 0x1.0d0d0ep-1f, 0x1.0f0f1p-1f, 0x1.111112p-1f, 0x1.131314p-1f, 0x1.151516p-1f,
    0x1.171718p-1f, 0x1.19191ap-1f, 0x1.1b1b1cp-1f, 0x1.1d1d1ep-1f, 0x1.1f1f2p-1f, 0x1.212122p-1f,
    0x1.232324p-1f, 0x1.252526p-1f, 0x1.272728p-1f, 0x1.29292ap-1f, 0x1.2b2b2cp-1f,
    0x1.2d2d2ep-1f, 0x1.2f2f3p-1f, 0x1.313132p-1f, 0x1.333334p-1f, 0x1.353536p-1f, 0x1.373738p-1f,
    0x1.39393ap-1f, 0x1.3b3b3cp-1f, 0x1.3d3d3ep-1f, 0x1.3f3f4p-1f, 0x1.414142p-1f, 0x1.434344p-1f,
    0x1.454546p-1f, 0x1.474748p-1f, 0x1.49494ap-1f, 0x1.4b4b4cp-1f, 0x1.4d4d4ep-1f, 0x1.4f4f5p-1f,
    0x1.515152p-1f, 0x1.535354p-1f, 0x1.555556p-1f, 0x1.575758p-1f, 0x1.59595ap-1f,
    0x1.5b5b5cp-1f, 0x1.5d5d5ep-1f, 0x1.5f5f6p-1f, 0x1.616162p-1f, 0x1.636364p-1f, 0x1.656566p-1f,
    0x1.676768p-1f, 0x1.69696ap-1f, 0x1.6b6b6cp-1f, 0x1.6d6d6ep-1f, 0x1.6f6f7p-1f, 0x1.717172p-1f,
    0x1.737374p-1f, 0x1.757576p-1f, 0x1.777778p-1f, 0x1.79797ap-1f, 0x1.7b7b7cp-1f,
    0x1.7d7d7ep-1f, 0x1.7f7f8p-1f, 0x1.818184p-1f, 0x1.838386p-1f, 0x1.858588p-1f, 0x1.87878ap-1f,
    0x1.89898cp-1f, 0x1.8b8b8ep-1f, 0x1.8d8d9p-1f, 0x1.8f8f92p-1f, 0x1.919194p-1f, 0x1.939396p-1f,
    0x1.959598p-1f, 0x1.97979ap-1f, 0x1.99999cp-1f, 0x1.9b9b9ep-1f, 0x1.9d9dap-1f, 0x1.9f9fa2p-1f,
    0x1.a1a1a4p-1f, 0x1.a3a3a6p-1f, 0x1.a5a5a8p-1f, 0x1.a7a7aap-1f, 0x1.a9a9acp-1f,
    0x1.ababaep-1f, 0x1.adadbp-1f, 0x1.afafb2p-1f, 0x1.b1b1b4p-1f, 0x1.b3b3b6p-1f, 0x1.b5b5b8p-1f,
    0x1.b7b7bap-1f, 0x1.b9b9bcp-1f, 0x1.bbbbbep-1f, 0x1.bdbdcp-1f, 0x1.bfbfc2p-1f, 0x1.c1c1c4p-1f,
    0x1.c3c3c6p-1f, 0x1.c5c5c8p-1f, 0x1.c7c7cap-1f, 0x1.c9c9ccp-1f, 0x1.cbcbcep-1f, 0x1.cdcddp-1f,
    0x1.cfcfd2p-1f, 0x1.d1d1d4p-1f, 0x1.d3d3d6p-1f, 0x1.d5d5d8p-1f, 0x1.d7d7dap-1f,
    0x1.d9d9dcp-1f, 0x1.dbdbdep-1f, 0x1.ddddep-1f, 0x1.dfdfe2p-1f, 0x1.e1e1e4p-1f, 0x1.e3e3e6p-1f,
    0x1.e5e5e8p-1f, 0x1.e7e7eap-1f, 0x1.e9e9ecp-1f, 0x1.ebebeep-1f, 0x1.ededfp-1f, 0x1.efeff2p-1f,
    0x1.f1f1f4p-1f, 0x1.f3f3f6p-1f, 0x1.f5f5f8p-1f, 0x1.f7f7fap-1f, 0x1.f9f9fcp-1f,
    0x1.fbfbfep-1f, 0x1.fdfep-1f, 0x1p+0f};
    _Alignas(64) static uint8_t repro_codes4[1] = {0x0};
    _Alignas(64) static float repro_scales4[1] = {0};
    _Alignas(64) static const float repro_codebook4[256] = {0, 0x1.010102p-8f, 0x1.010102p-7f,
    0x1.818184p-7f, 0x1.010102p-6f, 0x1.414142p-6f, 0x1.818184p-6f, 0x1.c1c1c4p-6f,
    0x1.010102p-5f, 0x1.212122p-5f, 0x1.414142p-5f, 0x1.616162p-5f, 0x1.818184p-5f,
    0x1.a1a1a4p-5f, 0x1.c1c1c4p-5f, 0x1.e1e1e4p-5f, 0x1.010102p-4f, 0x1.111112p-4f,
    0x1.212122p-4f, 0x1.313132p-4f, 0x1.414142p-4f, 0x1.515152p-4f, 0x1.616162p-4f,
    0x1.717172p-4f, 0x1.818184p-4f, 0x1.919194p-4f, 0x1.a1a1a4p-4f, 0x1.b1b1b4p-4f,
    0x1.c1c1c4p-4f, 0x1.d1d1d4p-4f, 0x1.e1e1e4p-4f, 0x1.f1f1f4p-4f, 0x1.010102p-3f,
    0x1.09090ap-3f, 0x1.111112p-3f, 0x1.19191ap-3f, 0x1.212122p-3f, 0x1.29292ap-3f,
    0x1.313132p-3f, 0x1.39393ap-3f, 0x1.414142p-3f, 0x1.49494ap-3f, 0x1.515152p-3f,
    0x1.59595ap-3f, 0x1.616162p-3f, 0x1.69696ap-3f, 0x1.717172p-3f, 0x1.79797ap-3f,
    0x1.818184p-3f, 0x1.89898cp-3f, 0x1.919194p-3f, 0x1.99999cp-3f, 0x1.a1a1a4p-3f,
    0x1.a9a9acp-3f, 0x1.b1b1b4p-3f, 0x1.b9b9bcp-3f, 0x1.c1c1c4p-3f, 0x1.c9c9ccp-3f,
    0x1.d1d1d4p-3f, 0x1.d9d9dcp-3f, 0x1.e1e1e4p-3f, 0x1.e9e9ecp-3f, 0x1.f1f1f4p-3f,
    0x1.f9f9fcp-3f, 0x1.010102p-2f, 0x1.050506p-2f, 0x1.09090ap-2f, 0x1.0d0d0ep-2f,
    0x1.111112p-2f, 0x1.151516p-2f, 0x1.19191ap-2f, 0x1.1d1d1ep-2f, 0x1.212122p-2f,
    0x1.252526p-2f, 0x1.29292ap-2f, 0x1.2d2d2ep-2f, 0x1.313132p-2f, 0x1.353536p-2f,
    0x1.39393ap-2f, 0x1.3d3d3ep-2f, 0x1.414142p-2f, 0x1.454546p-2f, 0x1.49494ap-2f,
    0x1.4d4d4ep-2f, 0x1.515152p-2f, 0x1.555556p-2f, 0x1.59595ap-2f, 0x1.5d5d5ep-2f,
    0x1.616162p-2f, 0x1.656566p-2f, 0x1.69696ap-2f, 0x1.6d6d6ep-2f, 0x1.717172p-2f,
    0x1.757576p-2f, 0x1.79797ap-2f, 0x1.7d7d7ep-2f, 0x1.818184p-2f, 0x1.858588p-2f,
    0x1.89898cp-2f, 0x1.8d8d9p-2f, 0x1.919194p-2f, 0x1.959598p-2f, 0x1.99999cp-2f, 0x1.9d9dap-2f,
    0x1.a1a1a4p-2f, 0x1.a5a5a8p-2f, 0x1.a9a9acp-2f, 0x1.adadbp-2f, 0x1.b1b1b4p-2f, 0x1.b5b5b8p-2f,
    0x1.b9b9bcp-2f, 0x1.bdbdcp-2f, 0x1.c1c1c4p-2f, 0x1.c5c5c8p-2f, 0x1.c9c9ccp-2f, 0x1.cdcddp-2f,
    0x1.d1d1d4p-2f, 0x1.d5d5d8p-2f, 0x1.d9d9dcp-2f, 0x1.ddddep-2f, 0x1.e1e1e4p-2f, 0x1.e5e5e8p-2f,
    0x1.e9e9ecp-2f, 0x1.ededfp-2f, 0x1.f1f1f4p-2f, 0x1.f5f5f8p-2f, 0x1.f9f9fcp-2f, 0x1.fdfep-2f,
    0x1.010102p-1f, 0x1.030304p-1f, 0x1.050506p-1f, 0x1.070708p-1f, 0x1.09090ap-1f,
    0x1.0b0b0cp-1f, 0x1.0d0d0ep-1f, 0x1.0f0f1p-1f, 0x1.111112p-1f, 0x1.131314p-1f, 0x1.151516p-1f,
    0x1.171718p-1f, 0x1.19191ap-1f, 0x1.1b1b1cp-1f, 0x1.1d1d1ep-1f, 0x1.1f1f2p-1f, 0x1.212122p-1f,
    0x1.232324p-1f, 0x1.252526p-1f, 0x1.272728p-1f, 0x1.29292ap-1f, 0x1.2b2b2cp-1f,
    0x1.2d2d2ep-1f, 0x1.2f2f3p-1f, 0x1.313132p-1f, 0x1.333334p-1f, 0x1.353536p-1f, 0x1.373738p-1f,
    0x1.39393ap-1f, 0x1.3b3b3cp-1f, 0x1.3d3d3ep-1f, 0x1.3f3f4p-1f, 0x1.414142p-1f, 0x1.434344p-1f,
    0x1.454546p-1f, 0x1.474748p-1f, 0x1.49494ap-1f, 0x1.4b4b4cp-1f, 0x1.4d4d4ep-1f, 0x1.4f4f5p-1f,
    0x1.515152p-1f, 0x1.535354p-1f, 0x1.555556p-1f, 0x1.575758p-1f, 0x1.59595ap-1f,
    0x1.5b5b5cp-1f, 0x1.5d5d5ep-1f, 0x1.5f5f6p-1f, 0x1.616162p-1f, 0x1.636364p-1f, 0x1.656566p-1f,
    0x1.676768p-1f, 0x1.69696ap-1f, 0x1.6b6b6cp-1f, 0x1.6d6d6ep-1f, 0x1.6f6f7p-1f, 0x1.717172p-1f,
    0x1.737374p-1f, 0x1.757576p-1f, 0x1.777778p-1f, 0x1.79797ap-1f, 0x1.7b7b7cp-1f,
    0x1.7d7d7ep-1f, 0x1.7f7f8p-1f, 0x1.818184p-1f, 0x1.838386p-1f, 0x1.858588p-1f, 0x1.87878ap-1f,
    0x1.89898cp-1f, 0x1.8b8b8ep-1f, 0x1.8d8d9p-1f, 0x1.8f8f92p-1f, 0x1.919194p-1f, 0x1.939396p-1f,
    0x1.959598p-1f, 0x1.97979ap-1f, 0x1.99999cp-1f, 0x1.9b9b9ep-1f, 0x1.9d9dap-1f, 0x1.9f9fa2p-1f,
    0x1.a1a1a4p-1f, 0x1.a3a3a6p-1f, 0x1.a5a5a8p-1f, 0x1.a7a7aap-1f, 0x1.a9a9acp-1f,
    0x1.ababaep-1f, 0x1.adadbp-1f, 0x1.afafb2p-1f, 0x1.b1b1b4p-1f, 0x1.b3b3b6p-1f, 0x1.b5b5b8p-1f,
    0x1.b7b7bap-1f, 0x1.b9b9bcp-1f, 0x1.bbbbbep-1f, 0x1.bdbdcp-1f, 0x1.bfbfc2p-1f, 0x1.c1c1c4p-1f,
    0x1.c3c3c6p-1f, 0x1.c5c5c8p-1f, 0x1.c7c7cap-1f, 0x1.c9c9ccp-1f, 0x1.cbcbcep-1f, 0x1.cdcddp-1f,
    0x1.cfcfd2p-1f, 0x1.d1d1d4p-1f, 0x1.d3d3d6p-1f, 0x1.d5d5d8p-1f, 0x1.d7d7dap-1f,
    0x1.d9d9dcp-1f, 0x1.dbdbdep-1f, 0x1.ddddep-1f, 0x1.dfdfe2p-1f, 0x1.e1e1e4p-1f, 0x1.e3e3e6p-1f,
    0x1.e5e5e8p-1f, 0x1.e7e7eap-1f, 0x1.e9e9ecp-1f, 0x1.ebebeep-1f, 0x1.ededfp-1f, 0x1.efeff2p-1f,
    0x1.f1f1f4p-1f, 0x1.f3f3f6p-1f, 0x1.f5f5f8p-1f, 0x1.f7f7fap-1f, 0x1.f9f9fcp-1f,
    0x1.fbfbfep-1f, 0x1.fdfep-1f, 0x1p+0f};
    _Alignas(64) static uint8_t repro_codes5[1] = {0x0};
    _Alignas(64) static float repro_scales5[1] = {0};
    _Alignas(64) static const float repro_codebook5[256] = {0, 0x1.010102p-8f, 0x1.010102p-7f,
    0x1.818184p-7f, 0x1.010102p-6f, 0x1.414142p-6f, 0x1.818184p-6f, 0x1.c1c1c4p-6f,
    0x1.010102p-5f, 0x1.212122p-5f, 0x1.414142p-5f, 0x1.616162p-5f, 0x1.818184p-5f,
    0x1.a1a1a4p-5f, 0x1.c1c1c4p-5f, 0x1.e1e1e4p-5f, 0x1.010102p-4f, 0x1.111112p-4f,
    0x1.212122p-4f, 0x1.313132p-4f, 0x1.414142p-4f, 0x1.515152p-4f, 0x1.616162p-4f,
    0x1.717172p-4f, 0x1.818184p-4f, 0x1.919194p-4f, 0x1.a1a1a4p-4f, 0x1.b1b1b4p-4f,
    0x1.c1c1c4p-4f, 0x1.d1d1d4p-4f, 0x1.e1e1e4p-4f, 0x1.f1f1f4p-4f, 0x1.010102p-3f,
    0x1.09090ap-3f, 0x1.111112p-3f, 0x1.19191ap-3f, 0x1.212122p-3f, 0x1.29292ap-3f,
    0x1.313132p-3f, 0x1.39393ap-3f, 0x1.414142p-3f, 0x1.49494ap-3f, 0x1.515152p-3f,
    0x1.59595ap-3f, 0x1.616162p-3f, 0x1.69696ap-3f, 0x1.717172p-3f, 0x1.79797ap-3f,
    0x1.818184p-3f, 0x1.89898cp-3f, 0x1.919194p-3f, 0x1.99999cp-3f, 0x1.a1a1a4p-3f,
    0x1.a9a9acp-3f, 0x1.b1b1b4p-3f, 0x1.b9b9bcp-3f, 0x1.c1c1c4p-3f, 0x1.c9c9ccp-3f,
    0x1.d1d1d4p-3f, 0x1.d9d9dcp-3f, 0x1.e1e1e4p-3f, 0x1.e9e9ecp-3f, 0x1.f1f1f4p-3f,
    0x1.f9f9fcp-3f, 0x1.010102p-2f, 0x1.050506p-2f, 0x1.09090ap-2f, 0x1.0d0d0ep-2f,
    0x1.111112p-2f, 0x1.151516p-2f, 0x1.19191ap-2f, 0x1.1d1d1ep-2f, 0x1.212122p-2f,
    0x1.252526p-2f, 0x1.29292ap-2f, 0x1.2d2d2ep-2f, 0x1.313132p-2f, 0x1.353536p-2f,
    0x1.39393ap-2f, 0x1.3d3d3ep-2f, 0x1.414142p-2f, 0x1.454546p-2f, 0x1.49494ap-2f,
    0x1.4d4d4ep-2f, 0x1.515152p-2f, 0x1.555556p-2f, 0x1.59595ap-2f, 0x1.5d5d5ep-2f,
    0x1.616162p-2f, 0x1.656566p-2f, 0x1.69696ap-2f, 0x1.6d6d6ep-2f, 0x1.717172p-2f,
    0x1.757576p-2f, 0x1.79797ap-2f, 0x1.7d7d7ep-2f, 0x1.818184p-2f, 0x1.858588p-2f,
    0x1.89898cp-2f, 0x1.8d8d9p-2f, 0x1.919194p-2f, 0x1.959598p-2f, 0x1.99999cp-2f, 0x1.9d9dap-2f,
    0x1.a1a1a4p-2f, 0x1.a5a5a8p-2f, 0x1.a9a9acp-2f, 0x1.adadbp-2f, 0x1.b1b1b4p-2f, 0x1.b5b5b8p-2f,
    0x1.b9b9bcp-2f, 0x1.bdbdcp-2f, 0x1.c1c1c4p-2f, 0x1.c5c5c8p-2f, 0x1.c9c9ccp-2f, 0x1.cdcddp-2f,
    0x1.d1d1d4p-2f, 0x1.d5d5d8p-2f, 0x1.d9d9dcp-2f, 0x1.ddddep-2f, 0x1.e1e1e4p-2f, 0x1.e5e5e8p-2f,
    0x1.e9e9ecp-2f, 0x1.ededfp-2f, 0x1.f1f1f4p-2f, 0x1.f5f5f8p-2f, 0x1.f9f9fcp-2f, 0x1.fdfep-2f,
    0x1.010102p-1f, 0x1.030304p-1f, 0x1.050506p-1f, 0x1.070708p-1f, 0x1.09090ap-1f,
    0x1.0b0b0cp-1f, 0x1.0d0d0ep-1f, 0x1.0f0f1p-1f, 0x1.111112p-1f, 0x1.131314p-1f, 0x1.151516p-1f,
    0x1.171718p-1f, 0x1.19191ap-1f, 0x1.1b1b1cp-1f, 0x1.1d1d1ep-1f, 0x1.1f1f2p-1f, 0x1.212122p-1f,
    0x1.232324p-1f, 0x1.252526p-1f, 0x1.272728p-1f, 0x1.29292ap-1f, 0x1.2b2b2cp-1f,
    0x1.2d2d2ep-1f, 0x1.2f2f3p-1f, 0x1.313132p-1f, 0x1.333334p-1f, 0x1.353536p-1f, 0x1.373738p-1f,
    0x1.39393ap-1f, 0x1.3b3b3cp-1f, 0x1.3d3d3ep-1f, 0x1.3f3f4p-1f, 0x1.414142p-1f, 0x1.434344p-1f,
    0x1.454546p-1f, 0x1.474748p-1f, 0x1.49494ap-1f, 0x1.4b4b4cp-1f, 0x1.4d4d4ep-1f, 0x1.4f4f5p-1f,
    0x1.515152p-1f, 0x1.535354p-1f, 0x1.555556p-1f, 0x1.575758p-1f, 0x1.59595ap-1f,
    0x1.5b5b5cp-1f, 0x1.5d5d5ep-1f, 0x1.5f5f6p-1f, 0x1.616162p-1f, 0x1.636364p-1f, 0x1.656566p-1f,
    0x1.676768p-1f, 0x1.69696ap-1f, 0x1.6b6b6cp-1f, 0x1.6d6d6ep-1f, 0x1.6f6f7p-1f, 0x1.717172p-1f,
    0x1.737374p-1f, 0x1.757576p-1f, 0x1.777778p-1f, 0x1.79797ap-1f, 0x1.7b7b7cp-1f,
    0x1.7d7d7ep-1f, 0x1.7f7f8p-1f, 0x1.818184p-1f, 0x1.838386p-1f, 0x1.858588p-1f, 0x1.87878ap-1f,
    0x1.89898cp-1f, 0x1.8b8b8ep-1f, 0x1.8d8d9p-1f, 0x1.8f8f92p-1f, 0x1.919194p-1f, 0x1.939396p-1f,
    0x1.959598p-1f, 0x1.97979ap-1f, 0x1.99999cp-1f, 0x1.9b9b9ep-1f, 0x1.9d9dap-1f, 0x1.9f9fa2p-1f,
    0x1.a1a1a4p-1f, 0x1.a3a3a6p-1f, 0x1.a5a5a8p-1f, 0x1.a7a7aap-1f, 0x1.a9a9acp-1f,
    0x1.ababaep-1f, 0x1.adadbp-1f, 0x1.afafb2p-1f, 0x1.b1b1b4p-1f, 0x1.b3b3b6p-1f, 0x1.b5b5b8p-1f,
    0x1.b7b7bap-1f, 0x1.b9b9bcp-1f, 0x1.bbbbbep-1f, 0x1.bdbdcp-1f, 0x1.bfbfc2p-1f, 0x1.c1c1c4p-1f,
    0x1.c3c3c6p-1f, 0x1.c5c5c8p-1f, 0x1.c7c7cap-1f, 0x1.c9c9ccp-1f, 0x1.cbcbcep-1f, 0x1.cdcddp-1f,
    0x1.cfcfd2p-1f, 0x1.d1d1d4p-1f, 0x1.d3d3d6p-1f, 0x1.d5d5d8p-1f, 0x1.d7d7dap-1f,
    0x1.d9d9dcp-1f, 0x1.dbdbdep-1f, 0x1.ddddep-1f, 0x1.dfdfe2p-1f, 0x1.e1e1e4p-1f, 0x1.e3e3e6p-1f,
    0x1.e5e5e8p-1f, 0x1.e7e7eap-1f, 0x1.e9e9ecp-1f, 0x1.ebebeep-1f, 0x1.ededfp-1f, 0x1.efeff2p-1f,
    0x1.f1f1f4p-1f, 0x1.f3f3f6p-1f, 0x1.f5f5f8p-1f, 0x1.f7f7fap-1f, 0x1.f9f9fcp-1f,
    0x1.fbfbfep-1f, 0x1.fdfep-1f, 0x1p+0f};
    _Alignas(64) static float repro_values6[1] = {0};
    _Alignas(64) static float repro_values7[1] = {0};
    struct qm_kernel_args a[1] = {{.abi = QM_KERNEL_ABI,
        .recipe = "apollo8_026,exp_avg.min_numel=0,variance.min_numel=0,conf_row.min_numel=0,conf_col.min_numel=0,lr=1,beta1=0,beta2=0,eps=0,eps1=0,eps2=0,clip=0,beta2_decay=0,rank=4,gap=0,scale=0,margin=0,relative_step=0,scale_parameter=0,scale_weight_decay=0",
        .n = 0, .ndim = 2, .dim = {1, 0}, .p_dtype = 0, .param = "f32", .g_dtype = 0,
        .n_slots = 8, .t = 1, .seed = 0u, .tensor = 1, .lr = 1, .rank = 4, .initial_lr = 1,
        .p = repro_p, .g = repro_g,
        .slot[0] = {.name = "exp_avg", .quantizer = "intm:4s/block:128/arith/even/hi/floor:1e-12",
        .bits = 4, .is_signed = 1, .block = 128, .n = 4, .ndim = 1, .dim = {4},
        .code_bytes = 2, .n_scales = 1, .codebook = repro_codebook0, .codes = repro_codes0,
        .scales = repro_scales0},
        .slot[1] = {.name = "row_var", .quantizer = "f32", .bits = 0, .is_signed = 0,
        .block = 0, .n = 0, .ndim = 1, .dim = {0}, .values = repro_values1},
        .slot[2] = {.name = "col_var", .quantizer = "f32", .bits = 0, .is_signed = 0,
        .block = 0, .n = 0, .ndim = 1, .dim = {0}, .values = repro_values2},
        .slot[3] = {.name = "variance",
        .quantizer = "log:8u/block:2048/arith/even/log2/floor:1e-12", .bits = 8,
        .is_signed = 0, .block = 2048, .n = 4, .ndim = 1, .dim = {4}, .code_bytes = 4,
        .n_scales = 1, .codebook = repro_codebook3, .codes = repro_codes3,
        .scales = repro_scales3},
        .slot[4] = {.name = "conf_row",
        .quantizer = "log:8u/block:2048/arith/even/log2/floor:1e-12", .bits = 8,
        .is_signed = 0, .block = 2048, .n = 0, .ndim = 1, .dim = {0}, .code_bytes = 0,
        .n_scales = 0, .codebook = repro_codebook4, .codes = repro_codes4,
        .scales = repro_scales4},
        .slot[5] = {.name = "conf_col",
        .quantizer = "log:8u/block:2048/arith/even/log2/floor:1e-12", .bits = 8,
        .is_signed = 0, .block = 2048, .n = 0, .ndim = 1, .dim = {0}, .code_bytes = 0,
        .n_scales = 0, .codebook = repro_codebook5, .codes = repro_codes5,
        .scales = repro_scales5},
        .slot[6] = {.name = "prev_norm", .quantizer = "f32", .bits = 0, .is_signed = 0,
        .block = 0, .n = 0, .ndim = 1, .dim = {0}, .values = repro_values6},
        .slot[7] = {.name = "proj", .quantizer = "f32", .bits = 0, .is_signed = 1, .block = 0,
        .n = 0, .ndim = 1, .dim = {0}, .values = repro_values7}}};
    qm_kernel_step(a);
    float got = a->slot[0].scales[0], low = 0x1.197998p-40f, high = 0x1.197998p-40f;
    printf("scale of exp_avg 0: expected %a to %a, got %a\n", (double)low, (double)high,
           (double)got);
    return !(got >= low && got <= high);
}
