/* adafactor8_step.c - a step of adafactor8bit: Adafactor, unfactored and factored, with first moment,
 * CAME's confidence and the norm limiter.
 *
 * Elementwise averages are float32 in the source's order; sums run in double in index order, of
 * which the source's own order (torch reductions, atomics) is a rounding. */
#include "core/rule/adafactor8.h"

#include <float.h>
#include <math.h>

#include "core/rule/whole.h"

/* ---- elements ------------------------------------------------------------------------------- */

/* How an average of squares in this slot takes one in; add: to a fresh one before. */
static struct qm_sweep square_of(const struct qm_a8 *a, enum qm_a8_slot slot, float add)
{
    enum qm_a8_way way = QM_A8_LERP;
    if (a->is_cuda && !a->w->slot_is_f32[slot])
        way = QM_A8_KERNEL;
    else if (slot == QM_A8_V && a->w->slot_is_f32[slot] && !a->is_apollo)
        way = QM_A8_MIX;
    return (struct qm_sweep){
        .c = {(float)a->b, (float)(1.0 - a->b), add}, .flag = {(int)way}, .x = {a->w->slot[slot]}};
}

void qm_a8_squares(const struct qm_a8 *a, enum qm_a8_slot slot, const float *fresh, int64_t n,
                   float add)
{
    struct qm_sweep m = square_of(a, slot, add);
    m.n = n;
    m.x[1] = QM_AT(fresh);
    qm_sweep_run(QM_SWEEP_a8_square, &m);
}

void qm_a8_squares_of(const struct qm_a8 *a, enum qm_a8_slot slot, const float *x, int64_t n,
                      int turns, float add)
{
    struct qm_sweep m = square_of(a, slot, add);
    m.n = n;
    m.flag[1] = turns;
    m.x[1] = QM_AT(x);
    qm_sweep_run(QM_SWEEP_a8_gradient_square, &m);
}

/* How the first moment takes numbers in; turns, sanitized: as they come from the gradient. */
static struct qm_moment moment_of(const struct qm_a8 *a, int turns, int sanitized)
{
    float beta = (float)a->h->beta1, w = (float)(1.0 - a->h->beta1);
    return (struct qm_moment){.is_lerp = !a->is_cuda && !a->is_came,
                              .turns = turns && a->h->maximize,
                              .only_finite = sanitized,
                              .keep = beta,
                              .weight = a->is_cuda ? 1.0f - beta : w};
}

void qm_a8_moment(const struct qm_a8 *a, int64_t n, const float *fresh, float *m)
{
    const struct qm_moment how = moment_of(a, 0, 0);
    QM_CHUNKS(n, i, k)
    qm_whole_blocks()->moment(&how, k, fresh + i, m + i);
}

void qm_a8_gradients(const struct qm_a8 *a, int sanitized, float *out)
{
    const struct qm_moment how = moment_of(a, 1, sanitized);
    QM_CHUNKS(a->n, i, k)
    qm_whole_blocks()->taken(&how, k, a->w->g + i, out + i);
}

/* ---- states --------------------------------------------------------------------------------- */

/* What 0.2.6 adds to a square or to a mean of squares. */
static float added(const struct qm_a8 *a) { return a->is_026 ? (float)a->eps1 : 0.0f; }

static void unfactored_states(const struct qm_a8 *a)
{
    qm_a8_squares_of(a, QM_A8_V, a->w->g, a->n, a->h->maximize,
                     a->w->slot_is_f32[QM_A8_V] ? 0.0f : added(a));
}

/* Rows and columns of the terms of x enter the averages of two slots with weight b. */
static qm_status factor_states(const struct qm_a8 *a, struct qm_term t, const float *x, float add,
                               enum qm_a8_slot row, enum qm_a8_slot col)
{
    int64_t n_rows = a->batch * a->rows, n_cols = a->batch * a->cols;
    const struct qm_matrices m = {a->batch, a->rows, a->cols};
    void *room = NULL;
    QM_TRY(qm_whole_room(sizeof(float) * (size_t)(n_rows + n_cols), &room));
    float *r = room;
    qm_row_means(&m, t, x, r);
    qm_col_means(&m, t, x, r + n_rows);
    qm_a8_squares(a, row, r, n_rows, add);
    qm_a8_squares(a, col, r + n_rows, n_cols, add);
    qm_whole_release(room);
    return QM_OK;
}

/* How a factored second moment is divided by: torch's operators; the same with the row mean of
 * values already at their floor (CAME's float states); the CUDA kernels, whose floor acts on the
 * product. */
enum form { TORCH, TORCH_CLAMPED, KERNEL };

/* One matrix: out = x over the root of row r times column c; root: of rows, then of columns. */
static void direction_of(const struct qm_a8 *a, enum form form, const float *r, const float *c,
                         double mean, double *root, const float *x, float *out)
{
    const struct qm_whole_blocks *blocks = qm_whole_blocks();
    int64_t n_rows = a->rows, n_cols = a->cols;
    double floor = fmax(a->eps_sq, 0x1p-53), *by = root + n_rows;
    int usual = mean > 0.0 && isfinite(mean); /* what over_root asks for */
    for (int64_t i = 0; i < n_rows; i++) {
        root[i] = qm_a8_row_root(r[i], mean, a->eps_sq);
        usual = usual && r[i] >= 0.0f && r[i] <= FLT_MAX;
    }
    for (int64_t j = 0; j < n_cols; j++) {
        by[j] = form == KERNEL ? 1.0 / sqrt((double)c[j]) : qm_a8_col_root(c[j], a->eps_sq);
        usual = usual && c[j] >= 0.0f && c[j] <= FLT_MAX;
    }
    QM_PARALLEL(n_rows * n_cols >= QM_THREADS_FROM)
    for (int64_t i = 0; i < n_rows; i++) {
        const struct qm_root k = {(double)r[i], mean, floor, c, by};
        const float *from = x + i * n_cols;
        float *to = out + i * n_cols;
        if (form != KERNEL)
            blocks->outer(n_cols, root[i], by, from, to);
        else if (usual)
            blocks->over_root(&k, n_cols, from, to);
        else
            for (int64_t j = 0; j < n_cols; j++)
                to[j] = qm_over_root(k.row, (double)c[j], mean, floor, from[j]);
    }
}

/* The same of all matrices at once; mean[batch]. */
static void direction_there(const struct qm_a8 *a, enum form form, float *row, float *col,
                            double *mean, const float *x, float *out)
{
    qm_sweep_run(form == KERNEL ? QM_SWEEP_a8_over_root : QM_SWEEP_a8_outer,
                 &(struct qm_sweep){.n = a->n,
                                    .rows = a->rows,
                                    .cols = a->cols,
                                    .d = {form == KERNEL ? fmax(a->eps_sq, 0x1p-53) : a->eps_sq},
                                    .x = {out, QM_AT(x), row, col},
                                    .y = {mean}});
}

/* mean[batch] of the averages of rows, at least eps1. */
static void means_of(const struct qm_a8 *a, enum form form, float *row, double *mean)
{
    qm_sweep_run(QM_SWEEP_a8_mean, &(struct qm_sweep){.n = a->batch,
                                                      .cols = a->rows,
                                                      .d = {a->eps_sq, a->eps1},
                                                      .flag = {form == TORCH_CLAMPED},
                                                      .x = {NULL, row},
                                                      .y = {mean}});
}

/* out = x over the root of the factored second moment in two slots; out may be x. */
static qm_status factored_direction(const struct qm_a8 *a, enum qm_a8_slot row, enum qm_a8_slot col,
                                    enum form form, const float *x, float *out)
{
    int64_t n_rows = a->rows, n_cols = a->cols, n_roots = qm_whole_device() ? 0 : n_rows + n_cols;
    void *room = NULL;
    QM_TRY(qm_whole_room(sizeof(double) * (size_t)(a->batch + n_roots), &room));
    double *mean = room;
    means_of(a, form, a->w->slot[row], mean);
    if (qm_whole_device())
        direction_there(a, form, a->w->slot[row], a->w->slot[col], mean, x, out);
    for (int64_t k = 0; n_roots > 0 && k < a->batch; k++) {
        const float *r = a->w->slot[row] + k * n_rows, *c = a->w->slot[col] + k * n_cols;
        int64_t at = k * n_rows * n_cols;
        direction_of(a, form, r, c, mean[k], mean + a->batch, x + at, out + at);
    }
    qm_whole_release(room);
    return QM_OK;
}

static double norm_of(const float *x, int64_t n) { return sqrt(qm_sum_squares(x, n)); }

/* CAME: the clipped direction enters the momentum (round 0, on the CUDA path 1), what it misses
 * enters the confidence (round 0; 2).  On the CUDA path both see the codes of what went before. */
static qm_status came_states(struct qm_a8 *a)
{
    const struct qm_whole_blocks *b = qm_whole_blocks();
    const struct qm_moment how = moment_of(a, 0, a->is_cuda);
    const float *g = a->w->g;
    float *m = a->w->slot[QM_A8_M], *u = a->w->room, eps = (float)a->h->eps;
    int round = a->w->round;
    if (a->h->maximize) {
        qm_a8_gradients(a, 0, u);
        g = u;
    }
    QM_TRY(factored_direction(a, QM_A8_ROW, QM_A8_COL, TORCH, g, u));
    double rms = norm_of(u, a->n) / sqrt((double)a->n), denom = fmax(1.0, rms / a->h->clip);
    QM_CHUNKS(a->n, i, n)
    {
        b->divide(n, (float)denom, u + i);
        if (round < 2)
            b->moment(&how, n, u + i, m + i);
        if (round != 1)
            b->residual(n, eps, m + i, u + i);
    }
    if (round == 1)
        return QM_OK;
    a->b = 1.0 - a->h->beta3;
    return factor_states(a, (struct qm_term){0}, u, 0.0f, QM_A8_CONF_ROW, QM_A8_CONF_COL);
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
    if (!a.is_factored)
        unfactored_states(&a);
    else if (w->round == 0) /* squares have no sign to turn */
        st = factor_states(&a, (struct qm_term){.is_square = 1}, w->g, added(&a), QM_A8_ROW,
                           QM_A8_COL);
    if (st == QM_OK && a.is_came && (w->round > 0 || !a.is_cuda))
        st = came_states(&a);
    const struct qm_moment how = moment_of(&a, 1, a.is_cuda);
    if (st == QM_OK && a.has_m && !a.is_came)
        QM_CHUNKS(a.n, i, n)
    qm_whole_blocks()->moment(&how, n, w->g + i, w->slot[QM_A8_M] + i);
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
    float prev, next;
    qm_whole_get(&prev, a->w->slot[QM_A8_NORM], sizeof prev);
    double n = *norm, p = (double)prev, threshold = 1.0 + a->h->margin;
    if (a->is_026 && !isfinite(n)) {
        *norm = 0.0;
        next = 0.0f;
        qm_whole_put(a->w->slot[QM_A8_NORM], &next, sizeof next);
        return 0.0;
    }
    double limit = fmax(n / (p + 1e-8), threshold) / threshold;
    if (a->t == 1 || (a->is_026 && p < 1e-6))
        limit = 1.0;
    next = (float)(n / limit);
    qm_whole_put(a->w->slot[QM_A8_NORM], &next, sizeof next);
    return 1.0 / limit;
}

void qm_a8_write(const struct qm_a8 *a, double alpha, double rate, const float *u)
{
    const struct qm_hyper *h = a->h;
    float keep = (float)(1.0 - h->weight_decay * (h->scale_weight_decay ? alpha : a->rho));
    float by = (float)rate, *p = a->w->p;
    QM_CHUNKS(a->n, i, n)
    qm_whole_blocks()->decay_step(n, keep, by, u + i, p + i);
}

/* The direction before clipping. */
static qm_status direction(const struct qm_a8 *a, float *u)
{
    int sanitized = a->is_cuda && a->is_026;
    double floor = a->is_cuda ? fmax(a->eps_sq, 0x1p-53) : a->eps_sq;
    const float *x = a->has_m ? a->w->slot[QM_A8_M] : u, *v = a->w->slot[QM_A8_V];
    if (!a->has_m)
        qm_a8_gradients(a, sanitized, u);
    if (a->is_came && a->w->slot_is_f32[QM_A8_CONF_ROW])
        return factored_direction(a, QM_A8_CONF_ROW, QM_A8_CONF_COL, TORCH_CLAMPED, x, u);
    if (a->is_came || a->is_factored)
        return factored_direction(a, a->is_came ? QM_A8_CONF_ROW : QM_A8_ROW,
                                  a->is_came ? QM_A8_CONF_COL : QM_A8_COL,
                                  a->is_cuda ? KERNEL : TORCH, x, u);
    qm_sweep_run(QM_SWEEP_a8_direction,
                 &(struct qm_sweep){.n = a->n, .d = {floor}, .x = {u, QM_AT(x), QM_AT(v)}});
    return QM_OK;
}

qm_status qm_a8_apply(const struct qm_whole *w)
{
    struct qm_a8 a = qm_a8_open(w);
    if (a.n == 0)
        return QM_OK;
    if (a.is_apollo)
        return qm_a8_apollo_apply(&a);
    float *u = w->room;
    qm_status st = direction(&a, u);
    if (st == QM_OK) {
        double norm = norm_of(u, a.n), limit = a.h->limiter ? qm_a8_limit(&a, &norm) : 1.0;
        double alpha = qm_a8_rate(&a) * a.correction;
        double d = a.is_came && !a.h->clip_twice ? 1e9 : a.h->clip; /* as the source turns it off */
        double clipped = a.is_026 ? norm : norm * limit;
        double denom = fmax(1.0, clipped / (sqrt((double)a.n) * d));
        if (limit == 0.0)
            qm_sweep_run(QM_SWEEP_fill, &(struct qm_sweep){.n = a.n, .x = {u}});
        qm_a8_write(&a, alpha, alpha / denom * limit, u);
    }
    return st;
}
