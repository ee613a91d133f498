/* fira_f32.c - Fira with Adam: a step in the leading singular directions plus the rest; float32.
 *
 * The step is projected back.  The rest is what the projection leaves of the gradient, scaled
 * channel by channel and limited in growth.  Channels run along the longer side of a matrix; the
 * shorter one is projected.  A tensor without projection takes a plain Adam step. */
#include <math.h>
#include <stdlib.h>

#include "kernel_abi.h"

QM_KERNEL("fira_f32");

enum { AVG, SQ, PROJ, NORM };

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

/* ---- the singular vectors ----------------------------------------------------------------- */

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static void turn(double *x, double *y, int64_t n, double c, double s)
{
    for (int64_t i = 0; i < n; i++) {
        double old = x[i];
        x[i] = c * old - s * y[i];
        y[i] = s * old + c * y[i];
    }
}

/* One-sided Jacobi: rotates pairs of the `other` vectors of `channels` numbers in b until all are
 * orthogonal; v, the unit matrix at first, collects the rotations in its rows. */
static void orthogonalize(const struct layout *l, double *b, double *v)
{
    int64_t m = l->channels, n = l->other, moved = 1;
    for (int sweep = 0; sweep < 60 && moved; sweep++) {
        moved = 0;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i + 1; j < n; j++) {
                double *x = b + i * m, *y = b + j * m;
                double xx = dot(x, x, m), yy = dot(y, y, m), xy = dot(x, y, m);
                if (!(fabs(xy) > 1e-15 * sqrt(xx * yy)))
                    continue;
                double z = (yy - xx) / (2.0 * xy);
                double t = (z < 0.0 ? -1.0 : 1.0) / (fabs(z) + sqrt(1.0 + z * z));
                double c = 1.0 / sqrt(1.0 + t * t);
                turn(x, y, m, c, c * t);
                turn(v + i * n, v + j * n, n, c, c * t);
                moved = 1;
            }
    }
}

/* Makes the first entry of largest magnitude in v[n] positive. */
static void put_vector(const double *v, int64_t n, float *out, int64_t step)
{
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        at = fabs(v[i]) > fabs(v[at]) ? i : at;
    for (int64_t i = 0; i < n; i++)
        out[i * step] = (float)(v[at] < 0.0 ? -v[i] : v[i]);
}

/* The directions of the largest singular values; every gap steps, and where there are none yet. */
static int renew(const struct qm_kernel_args *a, const struct layout *l)
{
    int64_t m = l->channels, n = l->other, gap = (int64_t)a->gap, is_new = 1;
    float *proj = a->slot[PROJ].values;
    const float *g = a->g;
    for (int64_t i = 0; i < a->slot[PROJ].n && is_new; i++)
        is_new = proj[i] == 0.0f;
    if (gap < 1 || (!is_new && (a->t - 1) % gap != 0))
        return 0;
    double *b = calloc((size_t)(n * (m + n + 1)), sizeof *b), *v = b + n * m, *size = v + n * n;
    if (!b)
        return 2;
    for (int64_t o = 0; o < n; o++) {
        v[o * n + o] = 1.0;
        for (int64_t c = 0; c < m; c++)
            b[o * m + c] = (double)g[c * l->gc + o * l->go];
    }
    orthogonalize(l, b, v);
    for (int64_t o = 0; o < n; o++)
        size[o] = dot(b + o * m, b + o * m, m);
    for (int64_t k = 0; k < l->rank; k++) {
        int64_t best = 0;
        for (int64_t o = 1; o < n; o++)
            best = size[o] > size[best] ? o : best;
        put_vector(v + best * n, n, proj + k * l->pk, l->po);
        size[best] = -1.0;
    }
    free(b);
    return 0;
}

/* ---- the step -------------------------------------------------------------------------------- */

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

/* Element c, o of alpha times low, projected back. */
static float back(const struct layout *l, const float *low, const float *proj, int64_t c, int64_t o,
                  float alpha)
{
    double sum = 0.0;
    for (int64_t k = 0; k < l->rank; k++)
        sum += (double)low[c * l->lc + k * l->lk] * (double)proj[k * l->pk + o * l->po];
    return (float)sum * alpha;
}

static float norm(const float *x, int64_t n, int64_t stride)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i * stride] * (double)x[i * stride];
    return (float)sqrt(sum);
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

/* u = alpha Adapted P + limited (G - alpha Low P) |Adapted| / |Low|. */
static void full_rank(const struct qm_kernel_args *a, const struct layout *l, const float *low,
                      const float *adapted, float *u)
{
    const float *g = a->g, *proj = a->slot[PROJ].values;
    float alpha = (float)a->scale;
    for (int64_t c = 0; c < l->channels; c++) {
        int64_t at = c * l->lc;
        float s = norm(adapted + at, l->rank, l->lk) / (norm(low + at, l->rank, l->lk) + 1e-8f);
        for (int64_t o = 0; o < l->other; o++) {
            int64_t i = c * l->gc + o * l->go;
            u[i] = (g[i] - back(l, low, proj, c, o, alpha)) * s;
        }
    }
    if (a->limiter)
        limit(a, u);
    for (int64_t c = 0; c < l->channels; c++)
        for (int64_t o = 0; o < l->other; o++)
            u[c * l->gc + o * l->go] += back(l, adapted, proj, c, o, alpha);
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

int qm_kernel_step(const struct qm_kernel_args *a)
{
    int projected = a->slot[PROJ].n > 0;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || a->side != 0.0)
        return 1; /* refused */
    int64_t n = a->n, k = a->slot[AVG].n;
    float *u = calloc((size_t)(n + 2 * k + 1), sizeof *u), *low = u + n, *p = a->p;
    struct layout l = projected ? layout_of(a) : (struct layout){0};
    double t = (double)a->t, step = a->lr;
    if (!u || (projected && renew(a, &l))) {
        free(u);
        return 2;
    }
    if (projected) {
        project(&l, a->g, a->slot[PROJ].values, low);
        moments(a, low, k, low + k);
        full_rank(a, &l, low, low + k, u);
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
