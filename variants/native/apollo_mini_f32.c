/* apollo_mini_f32.c - APOLLO-Mini: a projection of rank 1, one scale for the matrix; float32.
 *
 * A matrix of m >= n is projected to a column of m numbers, a wider one to a row of n.  A tensor
 * without projection takes a plain Adam step. */
#include <math.h>
#include <stdlib.h>

#include "kernel_abi.h"

QM_KERNEL("apollo_mini_f32");

enum { AVG, SQ, PROJ, NORM };

/* ---- the projection, as torch.randn makes it with a generator on the CPU ------------------ */

struct twister {
    uint32_t word[624];
    int at;
};

static void seed(struct twister *w, uint64_t s)
{
    w->word[0] = (uint32_t)s;
    for (uint32_t i = 1; i < 624; i++)
        w->word[i] = 1812433253u * (w->word[i - 1] ^ w->word[i - 1] >> 30) + i;
    w->at = 624;
}

static uint32_t draw(struct twister *w)
{
    for (int i = 0; i < 624 && w->at == 624; i++) {
        uint32_t y = (w->word[i] & 0x80000000u) | (w->word[(i + 1) % 624] & 0x7fffffffu);
        w->word[i] = w->word[(i + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0u);
    }
    w->at %= 624;
    uint32_t y = w->word[w->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

static uint64_t draw_64(struct twister *w)
{
    uint64_t high = draw(w);
    return high << 32 | draw(w);
}

/* Turns x[0] and x[apart] into normal numbers (Box and Muller). */
static void two_normals(double log_of_rest, double angle, float *x, int64_t apart)
{
    double radius = sqrt(-2.0 * log_of_rest), turn = 2.0 * 3.14159265358979323846 * angle;
    x[0] = (float)(radius * cos(turn));
    if (apart)
        x[apart] = (float)(radius * sin(turn));
}

/* n >= 16: draws of 24 bits in groups of 16, the last of which ends at n; else pairs of 53 bits. */
static void normals(struct twister *w, int64_t n, float *x)
{
    double u[16];
    for (int64_t i = 0; i < n && n < 16; i += 2) {
        double angle = (double)(draw_64(w) % (UINT64_C(1) << 53)) * 0x1p-53;
        double rest = (double)(draw_64(w) % (UINT64_C(1) << 53)) * 0x1p-53;
        two_normals(log1p(-rest), angle, x + i, i + 1 < n);
    }
    for (int64_t from = 0; from < n && n >= 16; from += 16) {
        int64_t start = from + 16 <= n ? from : n - 16;
        for (int64_t i = from; i < n && start < from; i++)
            (void)draw(w); /* torch draws the last 16 numbers again */
        for (int i = 0; i < 16; i++)
            u[i] = (double)(draw(w) % (1u << 24)) * 0x1p-24;
        for (int i = 0; i < 8; i++)
            two_normals(log(1.0 - u[i]), u[i + 8], x + start + i, 8);
    }
}

/* The projection is drawn every gap steps, and where there is none yet; the seed of draw k is the
 * k-th successor of the first seed. */
static void renew(const struct qm_kernel_args *a)
{
    int64_t n = a->slot[PROJ].n, gap = (int64_t)a->gap, is_new = 1;
    float *proj = a->slot[PROJ].values;
    struct twister w;
    uint64_t s = (uint64_t)a->tensor + 1;
    for (int64_t i = 0; i < n && is_new; i++)
        is_new = proj[i] == 0.0f;
    if (gap < 1 || (!is_new && (a->t - 1) % gap != 0))
        return;
    for (int64_t k = 0; k < (a->t - 1) / gap; k++) {
        seed(&w, s);
        for (int i = 0; i < 15; i++)
            s = draw_64(&w) % INT64_MAX;
    }
    seed(&w, s);
    normals(&w, n, proj);
}

/* ---- the step -------------------------------------------------------------------------------- */

/* low[m] = G p, or low[n] = p G. */
static void project(const struct qm_kernel_args *a, float *low)
{
    const float *g = a->g, *proj = a->slot[PROJ].values;
    int64_t m = a->dim[0], n = a->dim[1], tall = m >= n, channels = tall ? m : n;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0.0;
        for (int64_t o = 0; o < (tall ? n : m); o++)
            sum += (double)(tall ? g[c * n + o] : g[o * n + c]) * (double)proj[o];
        low[c] = (float)sum;
    }
}

static float norm(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return (float)sqrt(sum);
}

/* Lets the norm grow by at most 1 + margin per step; NaN stays. */
static float limiter(const struct qm_kernel_args *a, float now)
{
    float most = (float)(1.0 + a->margin), *before = a->slot[NORM].values;
    float growth = now / (*before + 1e-8f), by = most > growth ? 1.0f : growth / most;
    if (a->t == 1)
        by = 1.0f;
    *before = now / by;
    return by;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    int projected = a->slot[PROJ].n > 0;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || a->svd || a->side != 0.0 ||
        (projected && (a->rank != 1.0 || !a->tensor_scale)))
        return 1; /* refused */
    int64_t n = a->n, k = a->slot[AVG].n;
    float *u = malloc(sizeof *u * (size_t)(n + 2 * k + 1)), *low = u + n, *adapted = low + k;
    float *m = a->slot[AVG].values, *v = a->slot[SQ].values, *p = a->p, eps = (float)a->eps;
    float beta1 = (float)a->beta1, take1 = (float)(1.0 - a->beta1), root = (float)sqrt(a->scale);
    float beta2 = (float)a->beta2, take2 = (float)(1.0 - a->beta2);
    const float *g = a->g;
    double t = (double)a->t, step = a->lr;
    if (!u)
        return 2;

    if (projected) {
        renew(a);
        project(a, low);
    }
    for (int64_t i = 0; i < k; i++) {
        float x = projected ? low[i] : g[i];
        m[i] = m[i] * beta1 + take1 * x;
        v[i] = v[i] * beta2 + take2 * x * x;
        adapted[i] = m[i] / (sqrtf(v[i]) + eps);
    }
    float s = projected ? norm(adapted, k) / (norm(low, k) + 1e-8f) : 1.0f;
    for (int64_t i = 0; i < n; i++)
        u[i] = projected ? g[i] * s * (a->scale_front ? root : 1.0f) : adapted[i];
    float by = projected && a->limiter ? limiter(a, norm(u, n)) : 1.0f;
    for (int64_t i = 0; i < n && projected; i++)
        u[i] = u[i] / by * (a->scale_front ? 1.0f : root);

    if (a->correct_bias)
        step = step * sqrt(1.0 - pow(a->beta2, t)) / (1.0 - pow(a->beta1, t));
    for (int64_t i = 0; i < n; i++) {
        p[i] -= (float)step * u[i];
        if (a->weight_decay > 0.0)
            p[i] -= p[i] * (float)(a->lr * a->weight_decay);
    }
    free(u);
    return 0;
}
