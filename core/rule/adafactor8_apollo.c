/* adafactor8_apollo.c - adafactor8bit's APOLLO: the gradient's channels are scaled by what an
 * adaptive step does to them in a random projection (arXiv:2412.05270).
 *
 * The source redraws the projection from its framework's generator every step; here its numbers are
 * counted by tensor and projection, and are never stored either.  gap < 0: every |gap| steps,
 * and the projection is slot proj, which the caller fills. */
#include "core/rule/adafactor8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/philox.h"
#include "core/rule/whole.h"

static int64_t gap_of(const struct qm_a8 *a)
{
    double gap = fabs(a->h->gap);
    return gap >= 1.0 ? (int64_t)gap : 1;
}

int qm_a8_starts(const struct qm_a8 *a)
{
    return a->t == 1 || (!a->is_026 && (a->t - 1) % gap_of(a) == 0);
}

/* N(0, 1) / sqrt(rank) by Box and Muller from two words of the counter generator. */
static void draw_projection(const struct qm_a8 *a, float *p)
{
    const double tau = 6.283185307179586;
    int64_t n = a->rank * (a->is_right ? a->cols : a->rows), which = (a->t - 1) / gap_of(a);
    struct qm_draws d = qm_draws_for(0, (int64_t)0x80000000 + which, a->w->tensor,
                                     QM_ROLE_spare); /* apart from the draws of rounding */
    for (int64_t i = 0; i < n; i++) {
        double u = (double)qm_uniform(qm_draw(&d, 2 * i));
        double v = (double)qm_uniform(qm_draw(&d, 2 * i + 1));
        p[i] = (float)(sqrt(-2.0 * log(u)) * cos(tau * v) / sqrt((double)a->rank));
    }
}

/* low = G P^T (rows x rank) or P^T G (rank x cols), sums in double in index order.  g: the gradient;
 * 0.2.6 takes non-finite entries as 0 before it projects. */
static qm_status multiply(const struct qm_a8 *a, const float *g, const float *p, float *low)
{
    int64_t rows = a->rows, cols = a->cols, rank = a->rank;
    if (!a->is_right) {
        qm_product(p, 1, rank, g, rank, rows, cols, low);
        return QM_OK;
    }
    float *across = malloc(sizeof *across * (size_t)(rank * cols));
    if (!across)
        return qm_fail(QM_NO_MEMORY, "a projection of rank %lld", (long long)rank);
    for (int64_t j = 0; j < cols; j++)
        for (int64_t k = 0; k < rank; k++)
            across[j * rank + k] = p[k * cols + j];
    qm_product(g, cols, 1, across, rows, cols, rank, low);
    free(across);
    return QM_OK;
}

static int64_t low_size(const struct qm_a8 *a)
{
    return a->rank * (a->is_right ? a->rows : a->cols);
}

/* The projected gradient in memory of the caller's; the gradient itself in w->room. */
static qm_status project(const struct qm_a8 *a, float **out)
{
    int64_t n = a->rank * (a->is_right ? a->cols : a->rows);
    float *low = malloc(sizeof *low * (size_t)(low_size(a) + n)), *p = low + low_size(a);
    float *g = a->w->room;
    if (!low)
        return qm_fail(QM_NO_MEMORY, "a projection of rank %lld", (long long)a->rank);
    if (a->h->gap < 0.0)
        p = a->w->slot[QM_A8_PROJ];
    else
        draw_projection(a, p);
    qm_a8_gradients(a, a->is_026 || a->is_cuda, g);
    qm_status st = multiply(a, g, p, low);
    if (st != QM_OK)
        free(low);
    *out = low;
    return st;
}

/* Adafactor's eps1 or, where the source is given none, apollo_eps. */
static double regularizer(const struct qm_a8 *a)
{
    return a->h->eps1 < 0.0 ? a->h->eps : a->h->eps1;
}

/* Row and column means of the squares, in float32 averages that start at the first of them. */
static void factor_states(const struct qm_a8 *a, const float *low)
{
    int64_t rows = a->is_right ? a->rows : a->rank, cols = a->is_right ? a->rank : a->cols;
    float *r = a->w->slot[QM_A8_ROW], *c = a->w->slot[QM_A8_COL];
    double add = a->is_026 ? regularizer(a) : 0.0, b = a->b, old = 1.0 - b;
    if (qm_a8_starts(a)) {
        b = a->is_026 ? b : 1.0;
        old = 0.0;
    }
    for (int64_t i = 0; i < rows; i++) {
        double s = 0.0;
        for (int64_t j = 0; j < cols; j++)
            s += (double)low[i * cols + j] * (double)low[i * cols + j];
        r[i] = (float)old * r[i] + (float)b * (float)(s / (double)cols + add);
    }
    for (int64_t j = 0; j < cols; j++) {
        double s = 0.0;
        for (int64_t i = 0; i < rows; i++)
            s += (double)low[i * cols + j] * (double)low[i * cols + j];
        c[j] = (float)old * c[j] + (float)b * (float)(s / (double)rows + add);
    }
}

qm_status qm_a8_apollo_states(const struct qm_a8 *a)
{
    float *low = NULL, *v = a->w->slot[QM_A8_V], *m = a->w->slot[QM_A8_M];
    float add = a->is_026 ? (float)regularizer(a) : 0.0f, first = a->is_026 ? (float)a->b : 1.0f;
    QM_TRY(project(a, &low));
    if (a->h->factored)
        factor_states(a, low);
    if (!a->h->factored && !qm_a8_starts(a))
        qm_a8_squares_of(a, QM_A8_V, low, low_size(a), 0, add);
    for (int64_t i = 0; !a->h->factored && qm_a8_starts(a) && i < low_size(a); i++)
        v[i] = fmaxf(first * (low[i] * low[i]), QM_A8_TINY);
    if (a->has_m && !a->is_026) /* 0.2.1 drops the momentum every step */
        memset(m, 0, sizeof *m * (size_t)low_size(a));
    if (a->has_m)
        qm_a8_moment(a, low_size(a), low, m);
    free(low);
    return QM_OK;
}

/* Second moment of element e = (i, j) of the projected gradient; mean: of the rows' averages. */
static double second_of(const struct qm_a8 *a, int64_t e, int64_t cols, double mean)
{
    const float *const *slot = (const float *const *)a->w->slot;
    if (a->h->factored)
        return (double)slot[QM_A8_ROW][e / cols] * (double)slot[QM_A8_COL][e % cols] / mean;
    double v = (double)slot[QM_A8_V][e];
    return a->is_cuda ? fmax(v, 0x1p-53) : v;
}

/* |adapted| / |plain| of every channel of the projected gradient, or of all of it. */
static void scaling_factors(const struct qm_a8 *a, const float *low, double *factor)
{
    int64_t rows = a->is_right ? a->rows : a->rank, cols = a->is_right ? a->rank : a->cols;
    int64_t channels = a->is_right ? rows : cols;
    double mean = 0.0, *plain = factor + channels, adapted_all = 0.0, plain_all = 0.0;
    for (int64_t i = 0; a->h->factored && i < rows; i++)
        mean += (double)a->w->slot[QM_A8_ROW][i] / (double)rows;
    mean = fmax(mean, regularizer(a));
    for (int64_t k = 0; k < 2 * channels; k++)
        factor[k] = 0.0;
    for (int64_t e = 0; e < rows * cols; e++) {
        int64_t k = a->is_right ? e / cols : e % cols;
        double x = a->has_m ? (double)a->w->slot[QM_A8_M][e] : (double)low[e];
        x /= sqrt(second_of(a, e, cols, mean)) + a->h->eps;
        factor[k] += x * x;
        plain[k] += (double)low[e] * (double)low[e];
    }
    for (int64_t k = 0; k < channels; k++) {
        adapted_all += factor[k];
        plain_all += plain[k];
        factor[k] = sqrt(factor[k]) / (sqrt(plain[k]) + 1e-8);
    }
    for (int64_t k = 0; a->h->tensor_scale && k < channels; k++)
        factor[k] = sqrt(adapted_all) / (sqrt(plain_all) + 1e-8);
    for (int64_t k = 0; k < channels; k++)
        factor[k] *= a->correction * (a->h->scale_front ? sqrt(a->h->scale) : 1.0);
}

qm_status qm_a8_apollo_apply(const struct qm_a8 *a)
{
    int64_t channels = a->is_right ? a->rows : a->cols;
    float *low = NULL;
    QM_TRY(project(a, &low));
    double *factor = malloc(2 * sizeof *factor * (size_t)channels);
    float *u = a->w->room;
    if (!factor) {
        free(low);
        return qm_fail(QM_NO_MEMORY, "scales of %lld channels", (long long)channels);
    }
    scaling_factors(a, low, factor);
    QM_PARALLEL(a->n >= QM_THREADS_FROM)
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t j = 0; j < a->cols; j++) {
            float *x = u + i * a->cols + j;
            *x = (float)(factor[a->is_right ? i : j] * (double)*x);
        }
    double norm = sqrt(qm_sum_squares(u, a->n)), limit = qm_a8_limit(a, &norm);
    double denom = fmax(1.0, (a->is_026 ? norm : norm * limit) / (sqrt((double)a->n) * a->h->clip));
    double alpha = qm_a8_rate(a), after = a->h->scale_front ? 1.0 : sqrt(a->h->scale);
    if (limit == 0.0)
        memset(u, 0, sizeof *u * (size_t)a->n);
    qm_a8_write(a, alpha, alpha / denom * limit * after, u);
    free(low);
    free(factor);
    return QM_OK;
}
