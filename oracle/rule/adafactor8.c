/* adafactor8.c - Adafactor, CAME and APOLLO of adafactor8bit in double: families adafactor8
 * (release 0.2.6), adafactor8_021, adafactor8_024 (which is 0.2.2 too), adafactor8_025,
 * adafactor8_046 and adafactor8_046_1d.
 *
 *   b     = 1 - beta2, or t^tau                     rho = min(lr, 1 / sqrt(t)) or lr
 *   alpha = max(RMS(theta), eps2) rho or rho, times Adam's bias correction where lr is given
 *   theta <- (1 - lambda alpha) theta, or (1 - lambda rho) theta
 *   R <- (1 - b) R + b (row means of g^2 + e),  C likewise by columns,  V = R C / max(mean R, eps1)
 *   vectors, or all: V <- (1 - b) V + b (g^2 + e)
 *   M <- beta1 M + (1 - beta1) g
 *   U = M / sqrt(V), its norm limited (arXiv:2410.01623)
 *   theta <- theta - alpha / max(1, RMS(U) / d) U
 *
 * The package deviates from arXiv:1804.04235: M averages g and not U; V is at least eps1^2; eps1 is
 * added to the squares (e = eps1, 0.2.6) or not (e = 0); RMS(U) is taken before the limiter (0.2.6)
 * or after it.  Release 0.2.6 leaves e out for float32 vectors; the formula here
 * does not.
 *
 * CAME (beta3, arXiv:2307.02047): U = g / sqrt(V) is clipped, M averages U, and (U - M)^2 + eps
 * enters a second pair of factors with weight 1 - beta3; M is divided by the root of their V.  The
 * package's quantized path clips the quotient, too (clip_twice).  Before 0.2.6 CAME is another
 * formula: M averages g, (g - M)^2 / V enters the second pair of factors R', C', and V is that of
 * the products R R' and C C'; the step alone is clipped.
 *
 * APOLLO (rank, arXiv:2412.05270): the same moments of G P, or P G; channel j of G is scaled by
 * |M_j / (sqrt(V_j) + eps)| / (|(G P)_j| + 1e-8).  The first V is b (G P)^2 or (G P)^2 (0.2.1),
 * without e; before 0.2.6 V starts again with every projection and no M is kept; 0.2.2 to 0.2.5
 * take every step with a factored V for the first.
 *
 * Release 0.4.6 (0.4.3 is the same): e = eps1 everywhere; R and C have no floor; CAME of 0.2.6
 * without a second clip; of a tensor that is not factored M averages the clipped U, and the step is
 * M, unless beta2 is given without beta3: then e = 0, U = M / (sqrt(V) + eps1 sqrt(1 - beta2^t)).
 * Family adafactor8_046_1d (momentum_only_1d against its default) turns that round: M averages g
 * and U = M / sqrt(V), or with beta2 and without beta3 M averages the clipped g / sqrt(V).
 * The bias is corrected only where correct_bias is set (the root beside eps1 too); d = 0: no clip.
 * tau > 0 without beta2: no V, and the step is M / (1 - beta1).  APOLLO: V averages (G P)^2 alone,
 * its factors means plus 2^-126, whose least mean is eps; the bias is corrected behind the limiter.
 *
 * The value -1 of beta1, beta2 and eps1 stands for "none" (eps1 is then 2^-23; in the projected
 * space eps).  Slots: M; R [batch x rows]; C [batch x cols]; V; CAME's R and C; the limiter's norm
 * [1]; P where gap < 0. */
#include "oracle/rule/adafactor8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/philox.h"

/* The scalars and the shape of one step. */
struct scalars {
    const struct qm_oracle_hyper *h;
    int is_024, is_025, is_026, is_046; /* that release or a later one */
    int is_sgd, is_unit; /* is_unit: M averages U, of a tensor that is not factored */
    double t, adam_eps, eps1, floor, b, rho, correction;
    int64_t n, batch, rows, cols;
};

static double norm(const double *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static double rms(const double *x, int64_t n) { return norm(x, n) / sqrt((double)n); }

/* r <- (1 - b) r + b (mean over columns of x + e), c likewise over rows, in every matrix. */
static void average_factors(const struct scalars *a, const double *x, double b, double e, double *r,
                            double *c)
{
    for (int64_t k = 0; k < a->batch; k++) {
        const double *m = x + k * a->rows * a->cols;
        for (int64_t i = 0; i < a->rows; i++) {
            double sum = 0.0;
            for (int64_t j = 0; j < a->cols; j++)
                sum += m[i * a->cols + j];
            double *to = &r[k * a->rows + i];
            *to = (1.0 - b) * *to + b * (sum / (double)a->cols + e);
        }
        for (int64_t j = 0; j < a->cols; j++) {
            double sum = 0.0;
            for (int64_t i = 0; i < a->rows; i++)
                sum += m[i * a->cols + j];
            double *to = &c[k * a->cols + j];
            *to = (1.0 - b) * *to + b * (sum / (double)a->rows + e);
        }
    }
}

static double floored(const struct scalars *a, double x)
{
    return a->floor > 0.0 ? fmax(x, a->floor) : x;
}

/* x <- x / sqrt(r c / mean r) in every matrix, r and c at least floor, mean r at least eps1. */
static void divide_by_factors(const struct scalars *a, const double *r, const double *c, double *x)
{
    for (int64_t k = 0; k < a->batch; k++) {
        double mean = 0.0;
        for (int64_t i = 0; i < a->rows; i++)
            mean += r[k * a->rows + i] / (double)a->rows;
        mean = fmax(mean, a->eps1);
        for (int64_t i = 0; i < a->rows; i++)
            for (int64_t j = 0; j < a->cols; j++) {
                double ri = floored(a, r[k * a->rows + i]);
                double cj = floored(a, c[k * a->cols + j]);
                x[(k * a->rows + i) * a->cols + j] /= sqrt(ri / mean * cj);
            }
    }
}

/* max(x, least), and NaN of a NaN. */
static double at_least(double x, double least) { return x < least ? least : x; }

/* The factor that the limiter puts on an update of norm n; *prev: the limited norm of the last
 * update, replaced by that of this one. A norm that is not finite counts as 0 (0.2.5 and later). */
static double limiter(const struct scalars *a, double n, double *prev)
{
    double gamma = 1.0 + a->h->margin, limit = 1.0, size = a->is_025 && !isfinite(n) ? 0.0 : n;
    if (a->t > 1.0 && !(a->is_025 && *prev < 1e-6))
        limit = at_least(size / (*prev + 1e-8), gamma) / gamma;
    *prev = size / limit;
    return 1.0 / limit;
}

/* alpha before the bias correction. */
static double rate(const struct scalars *a, const double *theta)
{
    return a->h->scale_parameter ? fmax(rms(theta, a->n), a->h->eps2) * a->rho : a->rho;
}

/* Decays theta and subtracts `by` u. */
static void write_back(const struct scalars *a, double alpha, double by, const double *u,
                       double *theta)
{
    double lambda = a->h->weight_decay;
    for (int64_t i = 0; i < a->n; i++) {
        theta[i] = (1.0 - lambda * (a->h->scale_weight_decay ? alpha : a->rho)) * theta[i];
        theta[i] = theta[i] - by * u[i];
    }
}

/* ---- Adafactor and CAME ---------------------------------------------------------------------- */

/* CAME: from U in u to M / sqrt(V of the residuals) in u; residual: work space of n numbers. */
static void came_update(const struct scalars *a, double *const *slot, double *u, double *residual)
{
    double clip = a->h->clip > 0.0 ? fmax(1.0, rms(u, a->n) / a->h->clip) : 1.0;
    for (int64_t i = 0; i < a->n; i++) {
        u[i] = u[i] / clip;
        slot[M][i] = a->h->beta1 * slot[M][i] + (1.0 - a->h->beta1) * u[i];
        residual[i] = (u[i] - slot[M][i]) * (u[i] - slot[M][i]);
    }
    average_factors(a, residual, 1.0 - a->h->beta3, a->h->eps, slot[CONF_R], slot[CONF_C]);
    memcpy(u, slot[M], sizeof *u * (size_t)a->n);
    divide_by_factors(a, slot[CONF_R], slot[CONF_C], u);
}

/* CAME before 0.2.6: from g in u to M / sqrt(V), V of the products of both pairs of factors; off:
 * work space of n numbers. */
static void old_came_update(const struct scalars *a, double *const *slot, double *u, double *off)
{
    int64_t n_rows = a->batch * a->rows, n_cols = a->batch * a->cols;
    for (int64_t i = 0; i < a->n; i++)
        off[i] = u[i] - slot[M][i];
    divide_by_factors(a, slot[R], slot[C], off);
    for (int64_t i = 0; i < a->n; i++)
        off[i] *= off[i];
    average_factors(a, off, 1.0 - a->h->beta3, 0.0, slot[CONF_R], slot[CONF_C]);
    double *r = malloc(sizeof *r * (size_t)(n_rows + n_cols)), *c = r + n_rows;
    for (int64_t i = 0; r && i < n_rows; i++)
        r[i] = fmax(slot[R][i] * slot[CONF_R][i], a->floor);
    for (int64_t j = 0; r && j < n_cols; j++)
        c[j] = fmax(slot[C][j] * slot[CONF_C][j], a->floor);
    for (int64_t i = 0; i < a->n; i++)
        u[i] = r ? slot[M][i] : (double)NAN;
    if (r)
        divide_by_factors(a, r, c, u);
    free(r);
}

/* Release 0.4.6, not factored: from g in u to the update in u; *clips: whether it is
 * clipped still. */
static void full_update(const struct scalars *a, double *const *slot, double *u, int is_adam,
                        int *clips)
{
    const struct qm_oracle_hyper *h = a->h;
    for (int64_t i = 0; i < a->n; i++) {
        double m = u[i];
        if (!a->is_unit && h->beta1 >= 0.0)
            m = slot[M][i] = h->beta1 * slot[M][i] + (1.0 - h->beta1) * m;
        if (a->is_sgd)
            u[i] = h->beta1 >= 0.0 ? m / (1.0 - h->beta1) : m;
        else if (is_adam && !a->is_unit)
            u[i] = m / (sqrt(slot[V][i]) + a->adam_eps);
        else
            u[i] = m / sqrt(fmax(slot[V][i], a->floor));
    }
    if (!a->is_unit)
        return;
    double by = h->clip > 0.0 ? fmax(1.0, rms(u, a->n) / h->clip) : 1.0;
    for (int64_t i = 0; i < a->n; i++)
        u[i] = slot[M][i] = h->beta1 * slot[M][i] + (1.0 - h->beta1) * (u[i] / by);
    *clips = 0;
}

static void plain_step(struct scalars *a, double *theta, double *const *slot, const double *g,
                       int is_factored, double *u, double *square)
{
    const struct qm_oracle_hyper *h = a->h;
    int is_full = (a->is_046 || a->is_sgd) && !is_factored, clips = h->clip > 0.0;
    int is_adam = a->is_046 && !h->factored && h->beta2 >= 0.0 && !(h->beta3 > 0.0);
    double e = a->is_026 && !is_adam ? a->eps1 : 0.0;
    int has_m = h->beta1 >= 0.0, is_came = is_factored && has_m && h->beta3 > 0.0;
    double alpha = rate(a, theta) * a->correction;

    for (int64_t i = 0; i < a->n; i++)
        square[i] = g[i] * g[i];
    if (is_factored)
        average_factors(a, square, a->b, e, slot[R], slot[C]);
    for (int64_t i = 0; !is_factored && !a->is_sgd && i < a->n; i++)
        slot[V][i] = (1.0 - a->b) * slot[V][i] + a->b * (square[i] + e);
    int has_update = is_came && a->is_026; /* M averages updates */
    for (int64_t i = 0; has_m && !has_update && !is_full && i < a->n; i++)
        slot[M][i] = h->beta1 * slot[M][i] + (1.0 - h->beta1) * g[i];

    for (int64_t i = 0; i < a->n; i++)
        u[i] = has_m && !is_came && !is_full ? slot[M][i] : g[i];
    if (is_full)
        full_update(a, slot, u, is_adam, &clips);
    else if (is_came && !a->is_026)
        old_came_update(a, slot, u, square);
    else if (is_factored)
        divide_by_factors(a, slot[R], slot[C], u);
    for (int64_t i = 0; !is_factored && !is_full && i < a->n; i++)
        u[i] = u[i] / sqrt(fmax(slot[V][i], a->floor));
    if (has_update)
        came_update(a, slot, u, square);

    double size = norm(u, a->n), limit = h->limiter ? limiter(a, size, slot[NORM]) : 1.0;
    int is_stopped = h->limiter && a->is_025 && !isfinite(size);
    for (int64_t i = 0; is_stopped && i < a->n; i++)
        u[i] = size = 0.0;
    double counted = a->is_026 ? size : size * limit;
    double denom = clips ? at_least(counted / (sqrt((double)a->n) * h->clip), 1.0) : 1.0;
    if (has_update && (a->is_046 || !h->clip_twice))
        denom = 1.0;
    write_back(a, alpha, alpha / denom * limit, u, theta);
}

/* ---- APOLLO ---------------------------------------------------------------------------------- */

void qm_adafactor8_matrix(uint32_t tensor, int64_t which, int64_t rank, int64_t n, double *p)
{
    uint64_t stream = (uint64_t)(tensor * 4u + 3u) << 32 | (0x80000000u + (uint32_t)which);
    for (uint64_t i = 0; i < (uint64_t)n; i++) {
        double u = (double)qm_uniform(qm_philox_stream(0, stream, 2 * i));
        double v = (double)qm_uniform(qm_philox_stream(0, stream, 2 * i + 1));
        double z = sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
        p[i] = (double)(float)(z / sqrt((double)rank));
    }
}

/* The shape of a projected step: G P is rows x cols, its channels are its rows (right)
 * or columns. */
struct projected {
    int right;
    int64_t rank, rows, cols;
};

/* V of the projected gradient x, every element into v, and into the slots. */
static void second_moment(const struct scalars *a, const struct projected *l, double *const *slot,
                          const double *x, double *v)
{
    const struct qm_oracle_hyper *h = a->h;
    int64_t n = l->rows * l->cols, gap = fabs(h->gap) >= 1.0 ? (int64_t)fabs(h->gap) : 1;
    double e = a->is_046 || h->eps1 < 0.0 ? h->eps : h->eps1, mean = 0.0;
    double first = a->is_024 ? a->b : 1.0, more = a->is_046 ? 0.0 : a->is_026 ? e : 0.0;
    int begins = a->t == 1.0 || (!a->is_026 && ((int64_t)a->t - 1) % gap == 0);
    struct scalars low = {.batch = 1, .rows = l->rows, .cols = l->cols};
    if (!h->factored) {
        for (int64_t i = 0; i < n; i++) {
            double s = x[i] * x[i] + more;
            v[i] = slot[V][i] = begins ? first * x[i] * x[i] : (1.0 - a->b) * slot[V][i] + a->b * s;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++)
        v[i] = x[i] * x[i];
    for (int64_t i = 0; begins && i < l->rows; i++)
        slot[R][i] = 0.0;
    for (int64_t j = 0; begins && j < l->cols; j++)
        slot[C][j] = 0.0;
    average_factors(&low, v, begins ? first : a->b, a->is_046 ? 0x1p-126 : more, slot[R], slot[C]);
    for (int64_t i = 0; i < l->rows; i++)
        mean += slot[R][i] / (double)l->rows;
    for (int64_t i = 0; i < n; i++)
        v[i] = slot[R][i / l->cols] * slot[C][i % l->cols] / fmax(mean, e);
}

/* |adapted| / (|x| + 1e-8) of channel k, or of the whole tensor (tensor_scale). */
static double channel_factor(const struct scalars *a, const struct projected *l, const double *x,
                             const double *adapted, int64_t k)
{
    double top = 0.0, plain = 0.0;
    int64_t n = l->rows * l->cols, is_whole = a->h->tensor_scale, is_row = !is_whole && l->right;
    int64_t from = is_whole ? 0 : is_row ? k * l->cols : k, to = is_row ? from + l->cols : n;
    for (int64_t i = from; i < to; i += is_whole || is_row ? 1 : l->cols) {
        top += adapted[i] * adapted[i];
        plain += x[i] * x[i];
    }
    return sqrt(top) / (sqrt(plain) + 1e-8);
}

/* x = G P^T (right) or P^T G. */
static void project(const struct scalars *a, const struct projected *l, const double *g,
                    const double *p, double *x)
{
    for (int64_t i = 0; i < l->rows; i++)
        for (int64_t j = 0; j < l->cols; j++) {
            double sum = 0.0;
            if (l->right)
                for (int64_t k = 0; k < a->cols; k++)
                    sum += g[i * a->cols + k] * p[j * a->cols + k];
            else
                for (int64_t k = 0; k < a->rows; k++)
                    sum += p[k * l->rank + i] * g[k * a->cols + j];
            x[i * l->cols + j] = sum;
        }
}

static qm_status apollo_step(struct scalars *a, double *theta, double *const *slot, const double *g,
                             uint32_t tensor, int64_t t, double *u)
{
    const struct qm_oracle_hyper *h = a->h;
    struct projected l = {.right = a->rows >= a->cols, .rank = (int64_t)h->rank};
    l.rows = l.right ? a->rows : l.rank;
    l.cols = l.right ? l.rank : a->cols;
    int64_t n = l.rows * l.cols, n_p = l.rank * (l.right ? a->cols : a->rows);
    int64_t channels = l.right ? a->rows : a->cols, gap = (int64_t)fmax(h->gap, 1.0);
    double *x = calloc((size_t)(3 * n + n_p + channels), sizeof *x), *v = x + n, *w = v + n;
    double *p = w + n, *factor = p + n_p;
    if (!x)
        return qm_fail(QM_NO_MEMORY, "oracle of rank %lld", (long long)l.rank);

    if (h->gap < 0.0)
        memcpy(p, slot[PROJ], sizeof *p * (size_t)n_p);
    else
        qm_adafactor8_matrix(tensor, (t - 1) / gap, l.rank, n_p, p);
    project(a, &l, g, p, x);
    second_moment(a, &l, slot, x, v);
    for (int64_t i = 0; i < n; i++) {
        double m = x[i];
        if (h->beta1 >= 0.0)
            m = slot[M][i] = h->beta1 * (a->is_026 ? slot[M][i] : 0.0) + (1.0 - h->beta1) * x[i];
        w[i] = m / (sqrt(v[i]) + h->eps);
    }
    for (int64_t k = 0; k < channels; k++)
        factor[k] = k > 0 && h->tensor_scale
                        ? factor[0]
                        : channel_factor(a, &l, x, w, k) * (a->is_046 ? 1.0 : a->correction);
    for (int64_t i = 0; i < a->n; i++)
        u[i] = factor[l.right ? i / a->cols : i % a->cols] * g[i] *
               (h->scale_front ? sqrt(h->scale) : 1.0);

    double alpha = rate(a, theta), size = norm(u, a->n);
    double limit = h->margin >= 0.0 ? limiter(a, size, slot[NORM]) : 1.0;
    double counted = a->is_026 ? size : size * limit;
    double denom = at_least(counted / (sqrt((double)a->n) * h->clip), 1.0);
    if (a->is_046 && h->clip == 0.0)
        denom = 1.0;
    double after = (a->is_046 ? a->correction : 1.0) * (h->scale_front ? 1.0 : sqrt(h->scale));
    write_back(a, alpha, alpha / denom * limit * after, u, theta);
    free(x);
    return QM_OK;
}

/* ---- all releases ---------------------------------------------------------------------------- */

/* Added to the number of a release: momentum_only_1d against its default. */
enum { OTHER_1D = 100 };

static qm_status step(int release, double *theta, double *const *slot, const double *grad,
                      const struct qm_shape *shape, uint32_t tensor,
                      const struct qm_oracle_hyper *h, int64_t t)
{
    int is_sgd = h->beta2 < 0.0 && h->beta2_decay > 0.0, last = shape->rank - 1;
    int is_apollo = h->rank > 0.0 && shape->rank >= 2 && !is_sgd;
    int forgets = is_apollo && h->factored && release >= 24 && release < 26;
    struct scalars a = {.h = h, .t = forgets ? 1.0 : (double)t, .n = qm_shape_numel(shape)};
    a.is_024 = release >= 24;
    a.is_025 = release >= 25;
    a.is_026 = release >= 26;
    a.is_046 = release >= 46;
    a.is_sgd = is_sgd;
    int is_adam = !h->factored && h->beta2 >= 0.0 && !(h->beta3 > 0.0);
    a.is_unit = a.is_046 && h->beta1 >= 0.0 && !is_sgd && is_adam == (release >= OTHER_1D);
    if (a.n < 1)
        return QM_OK;
    a.eps1 = h->eps1 >= 0.0 ? h->eps1 : a.is_046 ? 1e-30 : 0x1p-23;
    a.floor = fmax(a.eps1 * a.eps1, 0x1p-126);
    a.adam_eps = a.eps1;
    a.b = h->beta2 >= 0.0 ? 1.0 - h->beta2 : pow(a.t, h->beta2_decay);
    a.rho = h->relative_step ? fmin(h->lr, 1.0 / sqrt(a.t)) : h->lr;
    a.correction = 1.0;
    if (h->beta1 >= 0.0 && !h->relative_step && !is_sgd && (!a.is_046 || h->correct_bias)) {
        a.correction = a.correction / (1.0 - pow(h->beta1, a.t));
        if (h->beta2 >= 0.0) {
            a.correction = a.correction * sqrt(1.0 - pow(h->beta2, a.t));
            a.adam_eps = a.eps1 * sqrt(1.0 - pow(h->beta2, a.t));
        }
    }
    if (a.is_046 && h->factored && shape->rank >= 2)
        a.floor = 0.0;
    a.batch = 1;
    a.rows = shape->rank >= 2 ? shape->dim[is_apollo ? 0 : last - 1] : 1;
    a.cols = shape->rank >= 1 ? shape->dim[last] : 1;
    if (is_apollo)
        a.cols = a.n / a.rows;
    else
        a.batch = a.n / (a.rows * a.cols);

    double *g = malloc(3 * sizeof *g * (size_t)a.n);
    if (!g)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)a.n);
    for (int64_t i = 0; i < a.n; i++) {
        g[i] = h->maximize ? -grad[i] : grad[i];
        if (is_apollo && a.is_025 && !isfinite(g[i]))
            g[i] = 0.0;
    }
    qm_status st = QM_OK;
    if (is_apollo)
        st = apollo_step(&a, theta, slot, g, tensor, t, g + a.n);
    else
        plain_step(&a, theta, slot, g, h->factored && shape->rank >= 2 && !is_sgd, g + a.n,
                   g + 2 * a.n);
    free(g);
    return st;
}

#define WHOLE(release)                                                                \
    static qm_status whole_##release(double *p, double *const *slot, const double *g, \
                                     const struct qm_shape *shape, uint32_t tensor,   \
                                     const struct qm_oracle_hyper *h, int64_t t)      \
    {                                                                                 \
        return step(release, p, slot, g, shape, tensor, h, t);                        \
    }
WHOLE(21)
WHOLE(24)
WHOLE(25)
WHOLE(26)
WHOLE(46)
WHOLE(146) /* 46 + OTHER_1D */
#undef WHOLE

#define ADAFACTOR8                                                                              \
    .source = "arXiv:1804.04235, algorithms 4 and 5; 2307.02047, algorithm 2; 2412.05270, "     \
              "algorithm 1; 2410.01623, equation 6; deviations: adafactor8bit's documentation", \
    .n_slots = SLOTS, .slot = {"exp_avg",  "row_var",  "col_var",   "variance",                 \
                               "conf_row", "conf_col", "prev_norm", "proj"}

extern const struct qm_oracle qm_oracle_adafactor8, qm_oracle_adafactor8_021,
    qm_oracle_adafactor8_024, qm_oracle_adafactor8_025, qm_oracle_adafactor8_046,
    qm_oracle_adafactor8_046_1d;
const struct qm_oracle qm_oracle_adafactor8 = {
    .family = "adafactor8", ADAFACTOR8, .whole = whole_26, .bound = qm_bound_adafactor8};
const struct qm_oracle qm_oracle_adafactor8_021 = {
    .family = "adafactor8_021", ADAFACTOR8, .whole = whole_21, .bound = qm_bound_adafactor8_021};
const struct qm_oracle qm_oracle_adafactor8_024 = {
    .family = "adafactor8_024", ADAFACTOR8, .whole = whole_24, .bound = qm_bound_adafactor8_024};
const struct qm_oracle qm_oracle_adafactor8_025 = {
    .family = "adafactor8_025", ADAFACTOR8, .whole = whole_25, .bound = qm_bound_adafactor8_025};
const struct qm_oracle qm_oracle_adafactor8_046 = {
    .family = "adafactor8_046", ADAFACTOR8, .whole = whole_46, .bound = qm_bound_adafactor8_046};
const struct qm_oracle qm_oracle_adafactor8_046_1d = {.family = "adafactor8_046_1d",
                                                      ADAFACTOR8,
                                                      .whole = whole_146,
                                                      .bound = qm_bound_adafactor8_046_1d};
