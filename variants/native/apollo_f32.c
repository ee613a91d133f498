/* apollo_f32.c - APOLLO: Adam on a randomly projected gradient scales the channels; float32.
 *
 * Channels run along the longer side of a matrix; the shorter one is projected.  A tensor without
 * projection takes a plain Adam step. */
#include <math.h>
#include <stdlib.h>

#include "kernel_abi.h"

QM_KERNEL("apollo_f32");

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
            (void)draw(w); /* what stood there is drawn anew */
        for (int i = 0; i < 16; i++)
            u[i] = (double)(draw(w) % (1u << 24)) * 0x1p-24;
        for (int i = 0; i < 8; i++)
            two_normals(log(1.0 - u[i]), u[i + 8], x + start + i, 8);
    }
}

/* Drawn every gap steps, and where there is none yet; draw k has the seed k links down a chain. */
static void renew(const struct qm_kernel_args *a, int64_t rank)
{
    int64_t n = a->slot[PROJ].n, gap = (int64_t)a->gap, is_new = 1;
    float *proj = a->slot[PROJ].values, root = (float)sqrt((double)rank);
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
    for (int64_t i = 0; i < n; i++)
        proj[i] /= root;
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Strides: G(c, o) = g[c gc + o go]; channels c, the projected side o, ranks k. */
struct layout {
    int64_t channels, other, rank, gc, go, lc, lk, pk, po;
};

static struct layout layout_of(const struct qm_kernel_args *a)
{
    int64_t m = a->dim[0], n = a->dim[1], least = m < n ? m : n, r = a->slot[PROJ].n / least;
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

/* Averages low[n] into m and v; u = m / (sqrt(v) + eps). */
static void moments(const struct qm_kernel_args *a, const float *low, int64_t n, float *u)
{
    float *m = a->slot[AVG].values, *v = a->slot[SQ].values, eps = (float)a->eps;
    float beta1 = (float)a->beta1, beta2 = (float)a->beta2;
    float take1 = (float)(1.0 - a->beta1), take2 = (float)(1.0 - a->beta2);
    for (int64_t i = 0; i < n; i++) {
        m[i] = m[i] * beta1 + take1 * low[i];
        v[i] = v[i] * beta2 + take2 * low[i] * low[i];
        u[i] = m[i] / (sqrtf(v[i]) + eps);
    }
}

static float norm(const float *x, int64_t n, int64_t stride)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i * stride] * (double)x[i * stride];
    return (float)sqrt(sum);
}

/* u holds G on entry; every channel is multiplied by |Adam's step| / |projected gradient|. */
static void scale_channels(const struct qm_kernel_args *a, const struct layout *l, const float *low,
                           const float *adapted, float *u)
{
    const float *g = a->g;
    int64_t all = l->rank * l->channels;
    float tensor = norm(adapted, all, 1) / (norm(low, all, 1) + 1e-8f);
    for (int64_t c = 0; c < l->channels; c++) {
        int64_t at = c * l->lc;
        float s = norm(adapted + at, l->rank, l->lk) / (norm(low + at, l->rank, l->lk) + 1e-8f);
        for (int64_t o = 0; o < l->other; o++)
            u[c * l->gc + o * l->go] = g[c * l->gc + o * l->go] * (a->tensor_scale ? tensor : s);
    }
}

/* Lets the norm grow by at most 1 + margin per step; NaN stays. */
static void limit(const struct qm_kernel_args *a, float *u)
{
    float now = norm(u, a->n, 1), most = (float)(1.0 + a->margin), *before = a->slot[NORM].values;
    float growth = now / (*before + 1e-8f), by = most > growth ? 1.0f : growth / most;
    if (a->t == 1)
        by = 1.0f;
    for (int64_t i = 0; i < a->n; i++)
        u[i] /= by;
    *before = now / by;
}

static void multiply(float *u, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i++)
        u[i] *= by;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    int projected = a->slot[PROJ].n > 0;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || a->svd || a->side != 0.0)
        return 1; /* refused */
    int64_t n = a->n, k = a->slot[AVG].n;
    float *u = calloc((size_t)(n + 2 * k + 1), sizeof *u), *low = u + n, *p = a->p;
    double t = (double)a->t, step = a->lr;
    if (!u)
        return 2;

    if (projected) {
        struct layout l = layout_of(a);
        renew(a, l.rank);
        project(&l, a->g, a->slot[PROJ].values, low);
        moments(a, low, k, low + k);
        scale_channels(a, &l, low, low + k, u);
        if (a->scale_front)
            multiply(u, n, (float)sqrt(a->scale));
        if (a->limiter)
            limit(a, u);
        if (!a->scale_front)
            multiply(u, n, (float)sqrt(a->scale));
    } else {
        moments(a, a->g, n, u);
    }
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
