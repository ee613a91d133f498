/* adafactor8_step.c - a step of adafactor8bit: Adafactor, unfactored and factored, with first moment,
 * CAME's confidence and the norm limiter.
 *
 * Elementwise averages are float32 in the source's order; sums run in double in index order, of
 * which the source's own order (torch reductions, atomics) is a rounding. */
#include "core/rule/adafactor8.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rule/adamw.h"

/* ---- elements ------------------------------------------------------------------------------- */

float qm_a8_gradient(const struct qm_a8 *a, int64_t i, int sanitized)
{
    float g = a->h->maximize ? -a->w->g[i] : a->w->g[i];
    return sanitized && !(fabsf(g) <= FLT_MAX) ? 0.0f : g;
}

float qm_a8_square(const struct qm_a8 *a, enum qm_a8_slot slot, float old, float fresh)
{
    float b = (float)a->b;
    if (a->is_cuda && !a->w->slot_is_f32[slot]) { /* fused_log_quantize_lerp_kernel */
        float x = fabsf(fresh) <= FLT_MAX && fresh > QM_A8_TINY ? fresh : QM_A8_TINY;
        float v = fmaf(old, 1.0f - b, b * x);
        return v > QM_A8_TINY ? v : QM_A8_TINY;
    }
    if (slot == QM_A8_V && a->w->slot_is_f32[slot] && !a->is_apollo)
        return old * (float)(1.0 - a->b) + b * fresh;
    return qm_lerp(old, fresh, b, b - 1.0f);
}

float qm_a8_moment(const struct qm_a8 *a, float old, float fresh)
{
    float beta = (float)a->h->beta1, w = (float)(1.0 - a->h->beta1);
    return a->is_cuda   ? beta * old + (1.0f - beta) * fresh
           : a->is_came ? old * beta + w * fresh
                        : qm_lerp(old, fresh, w, w - 1.0f);
}

/* ---- states --------------------------------------------------------------------------------- */

/* What 0.2.6 adds to a square or to a mean of squares. */
static float added(const struct qm_a8 *a) { return a->is_026 ? (float)a->eps1 : 0.0f; }

static void unfactored_states(const struct qm_a8 *a)
{
    float *v = a->w->slot[QM_A8_V], add = a->w->slot_is_f32[QM_A8_V] ? 0.0f : added(a);
    for (int64_t i = 0; i < a->n; i++) {
        float g = qm_a8_gradient(a, i, 0);
        v[i] = qm_a8_square(a, QM_A8_V, v[i], g * g + add);
    }
}

/* Means over columns and over rows of x[batch][rows][cols], each rounded to float32. */
static qm_status means(const struct qm_a8 *a, const float *x, float *row, float *col)
{
    double *sum = malloc(sizeof *sum * (size_t)a->cols);
    if (!sum)
        return qm_fail(QM_NO_MEMORY, "%lld column sums", (long long)a->cols);
    for (int64_t k = 0; k < a->batch; k++) {
        memset(sum, 0, sizeof *sum * (size_t)a->cols);
        for (int64_t i = 0; i < a->rows; i++) {
            const float *at = x + (k * a->rows + i) * a->cols;
            double s = 0.0;
            for (int64_t j = 0; j < a->cols; j++) {
                s += (double)at[j];
                sum[j] += (double)at[j];
            }
            row[k * a->rows + i] = (float)(s / (double)a->cols);
        }
        for (int64_t j = 0; j < a->cols; j++)
            col[k * a->cols + j] = (float)(sum[j] / (double)a->rows);
    }
    free(sum);
    return QM_OK;
}

/* Rows and columns of x enter the averages of two slots with weight b. */
static qm_status factor_states(const struct qm_a8 *a, const float *x, float add,
                               enum qm_a8_slot row, enum qm_a8_slot col)
{
    int64_t n_rows = a->batch * a->rows, n_cols = a->batch * a->cols;
    float *r = malloc(sizeof *r * (size_t)(n_rows + n_cols));
    if (!r)
        return qm_fail(QM_NO_MEMORY, "%lld means", (long long)(n_rows + n_cols));
    qm_status st = means(a, x, r, r + n_rows);
    for (int64_t i = 0; st == QM_OK && i < n_rows; i++)
        a->w->slot[row][i] = qm_a8_square(a, row, a->w->slot[row][i], r[i] + add);
    for (int64_t i = 0; st == QM_OK && i < n_cols; i++)
        a->w->slot[col][i] = qm_a8_square(a, col, a->w->slot[col][i], r[n_rows + i] + add);
    free(r);
    return st;
}

/* How a factored second moment is divided by: torch's operators; the same with the row mean of
 * values already at their floor (CAME's float states); the CUDA kernels, whose floor acts on the
 * product. */
enum form { TORCH, TORCH_CLAMPED, KERNEL };

/* out = x over the root of the factored second moment in two slots. */
static qm_status factored_direction(const struct qm_a8 *a, enum qm_a8_slot row, enum qm_a8_slot col,
                                    enum form form, const float *x, float *out)
{
    int64_t n_rows = a->rows, n_cols = a->cols;
    double *root = malloc(sizeof *root * (size_t)(n_rows + n_cols));
    if (!root)
        return qm_fail(QM_NO_MEMORY, "%lld roots", (long long)(n_rows + n_cols));
    double floor = fmax(a->eps_sq, 0x1p-53);
    for (int64_t k = 0; k < a->batch; k++) {
        const float *r = a->w->slot[row] + k * n_rows, *c = a->w->slot[col] + k * n_cols;
        double mean = 0.0;
        for (int64_t i = 0; i < n_rows; i++)
            mean += form == TORCH_CLAMPED ? fmax((double)r[i], a->eps_sq) : (double)r[i];
        mean = fmax(mean / (double)n_rows, a->eps1);
        for (int64_t i = 0; i < n_rows; i++)
            root[i] = sqrt(mean / fmax((double)r[i], a->eps_sq));
        for (int64_t j = 0; j < n_cols; j++)
            root[n_rows + j] = 1.0 / sqrt(fmax((double)c[j], a->eps_sq));
        for (int64_t i = 0; i < n_rows; i++)
            for (int64_t j = 0; j < n_cols; j++) {
                int64_t e = (k * n_rows + i) * n_cols + j;
                double by = root[i] * root[n_rows + j];
                if (form == KERNEL)
                    by = 1.0 / sqrt(fmax((double)r[i] * (double)c[j] / mean, floor));
                out[e] = (float)((double)x[e] * by);
            }
    }
    free(root);
    return QM_OK;
}

static double norm_of(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* CAME: the clipped direction enters the momentum (round 0, on the CUDA path 1), what it misses
 * enters the confidence (round 0; 2).  On the CUDA path both see the codes of what went before. */
static qm_status came_states(struct qm_a8 *a, const float *g, float *u)
{
    float *m = a->w->slot[QM_A8_M];
    QM_TRY(factored_direction(a, QM_A8_ROW, QM_A8_COL, TORCH, g, u));
    double rms = norm_of(u, a->n) / sqrt((double)a->n), denom = fmax(1.0, rms / a->h->clip);
    for (int64_t i = 0; i < a->n; i++)
        u[i] = u[i] / (float)denom;
    for (int64_t i = 0; i < a->n && a->w->round < 2; i++) {
        int skips = a->is_cuda && !(fabsf(u[i]) <= FLT_MAX);
        m[i] = qm_a8_moment(a, m[i], skips ? 0.0f : u[i]);
    }
    if (a->w->round == 1)
        return QM_OK;
    for (int64_t i = 0; i < a->n; i++)
        u[i] = (u[i] - m[i]) * (u[i] - m[i]) + (float)a->h->eps;
    a->b = 1.0 - a->h->beta3;
    return factor_states(a, u, 0.0f, QM_A8_CONF_ROW, QM_A8_CONF_COL);
}

qm_status qm_a8_states(const struct qm_whole *w)
{
    struct qm_a8 a = qm_a8_open(w);
    if (a.n == 0)
        return QM_OK;
    if (a.is_came && a.is_cuda && !a.is_026)
        return qm_fail(QM_BAD_ARG, "CAME on the CUDA path is known of 0.2.6 only: use rule "
                                   "adafactor8_cuda");
    if (a.is_apollo)
        return qm_a8_apollo_states(&a);
    qm_status st = QM_OK;
    if (!a.is_factored) {
        unfactored_states(&a);
    } else {
        float *x = malloc(2 * sizeof *x * (size_t)a.n), *g = x + a.n;
        if (!x)
            return qm_fail(QM_NO_MEMORY, "%lld squares", (long long)a.n);
        for (int64_t i = 0; i < a.n; i++) {
            g[i] = qm_a8_gradient(&a, i, 0);
            x[i] = g[i] * g[i];
        }
        if (w->round == 0)
            st = factor_states(&a, x, added(&a), QM_A8_ROW, QM_A8_COL);
        if (st == QM_OK && a.is_came && (w->round > 0 || !a.is_cuda))
            st = came_states(&a, g, x);
        free(x);
    }
    for (int64_t i = 0; st == QM_OK && a.has_m && !a.is_came && i < a.n; i++)
        w->slot[QM_A8_M][i] =
            qm_a8_moment(&a, w->slot[QM_A8_M][i], qm_a8_gradient(&a, i, a.is_cuda));
    return st;
}

/* ---- the step ------------------------------------------------------------------------------- */

double qm_a8_rate(const struct qm_a8 *a)
{
    if (!a->h->scale_parameter)
        return a->rho;
    return fmax(norm_of(a->w->p, a->n) / sqrt((double)a->n), a->h->eps2) * a->rho;
}

double qm_a8_limit(const struct qm_a8 *a, double *norm)
{
    float *prev = a->w->slot[QM_A8_NORM];
    double n = *norm, p = (double)*prev, threshold = 1.0 + a->h->margin;
    if (a->is_026 && !isfinite(n)) {
        *norm = 0.0;
        *prev = 0.0f;
        return 0.0;
    }
    double limit = fmax(n / (p + 1e-8), threshold) / threshold;
    if (a->t == 1 || (a->is_026 && p < 1e-6))
        limit = 1.0;
    *prev = (float)(n / limit);
    return 1.0 / limit;
}

void qm_a8_write(const struct qm_a8 *a, double alpha, double rate, const float *u)
{
    const struct qm_hyper *h = a->h;
    float keep = (float)(1.0 - h->weight_decay * (h->scale_weight_decay ? alpha : a->rho));
    float by = (float)rate, *p = a->w->p;
    for (int64_t i = 0; i < a->n; i++)
        p[i] = p[i] * keep - by * u[i];
}

/* The direction before clipping. */
static qm_status direction(const struct qm_a8 *a, float *u)
{
    int sanitized = a->is_cuda && a->is_026;
    double floor = a->is_cuda ? fmax(a->eps_sq, 0x1p-53) : a->eps_sq;
    for (int64_t i = 0; i < a->n; i++)
        u[i] = a->has_m ? a->w->slot[QM_A8_M][i] : qm_a8_gradient(a, i, sanitized);
    if (a->is_came && a->w->slot_is_f32[QM_A8_CONF_ROW])
        return factored_direction(a, QM_A8_CONF_ROW, QM_A8_CONF_COL, TORCH_CLAMPED, u, u);
    if (a->is_came || a->is_factored)
        return factored_direction(a, a->is_came ? QM_A8_CONF_ROW : QM_A8_ROW,
                                  a->is_came ? QM_A8_CONF_COL : QM_A8_COL,
                                  a->is_cuda ? KERNEL : TORCH, u, u);
    for (int64_t i = 0; i < a->n; i++)
        u[i] = (float)((double)u[i] / sqrt(fmax((double)a->w->slot[QM_A8_V][i], floor)));
    return QM_OK;
}

qm_status qm_a8_apply(const struct qm_whole *w)
{
    struct qm_a8 a = qm_a8_open(w);
    if (a.n == 0)
        return QM_OK;
    if (a.is_apollo)
        return qm_a8_apollo_apply(&a);
    float *u = malloc(sizeof *u * (size_t)a.n);
    if (!u)
        return qm_fail(QM_NO_MEMORY, "an update of %lld elements", (long long)a.n);
    qm_status st = direction(&a, u);
    if (st == QM_OK) {
        double norm = norm_of(u, a.n), limit = a.h->limiter ? qm_a8_limit(&a, &norm) : 1.0;
        double alpha = qm_a8_rate(&a) * a.correction;
        double d = a.is_came && !a.h->clip_twice ? 1e9 : a.h->clip; /* as the source turns it off */
        double clipped = a.is_026 ? norm : norm * limit;
        double denom = fmax(1.0, clipped / (sqrt((double)a.n) * d));
        if (limit == 0.0)
            memset(u, 0, sizeof *u * (size_t)a.n);
        qm_a8_write(&a, alpha, alpha / denom * limit, u);
    }
    free(u);
    return st;
}
