/* shampoo.c - The linear algebra of Shampoo in eigenvector form, for one preconditioner at a time.
 *
 * Every element of a product or a reflection is one chain of additions in the order of its inner
 * index; loops over columns and threads over rows or columns change no chain. */
#include "core/rule/shampoo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rule/tensor_rule.h"

enum { WIDTH = 64 }; /* columns of a reflection that a thread takes at a time */

/* ---- tiles ----------------------------------------------------------------------------------- */

int qm_shampoo_tiles_of(const struct qm_hyper *h, const struct qm_shape *param,
                        struct qm_shampoo_tiles *out)
{
    struct qm_shampoo_tiles s = {.rows = 1, .cols = 1};
    int64_t most = (int64_t)h->max_order;
    int dims = 0;
    for (int i = 0; i < param->rank; i++) {
        if (param->dim[i] != 1 && dims++ == 0)
            s.rows = param->dim[i];
        else
            s.cols *= param->dim[i];
    }
    if (dims < 2 || s.rows < 1 || s.cols < 1)
        return 0;
    s.high = s.rows < most ? s.rows : most;
    s.wide = s.cols < most ? s.cols : most;
    s.down = (s.rows + s.high - 1) / s.high;
    s.across = (s.cols + s.wide - 1) / s.wide;
    *out = s;
    return 1;
}

struct qm_shampoo_tile qm_shampoo_tile_at(const struct qm_shampoo_tiles *s, int64_t k)
{
    struct qm_shampoo_tile t = {k / s->across * s->high, k % s->across * s->wide, s->high, s->wide};
    t.rows = s->rows - t.row < t.rows ? s->rows - t.row : t.rows;
    t.cols = s->cols - t.col < t.cols ? s->cols - t.col : t.cols;
    return t;
}

struct qm_shampoo_group qm_shampoo_group_of(const struct qm_shampoo_tiles *s, int right, int last)
{
    int64_t side = right ? s->cols : s->rows, n = right ? s->wide : s->high;
    int64_t lines = right ? s->down : s->across; /* tiles beside each other on that side */
    struct qm_shampoo_group full = {n, side / n * lines}, rest = {side % n, lines};
    return !last ? full : rest.n > 0 ? rest : (struct qm_shampoo_group){0, 0};
}

struct qm_shampoo_place qm_shampoo_place_of(const struct qm_shampoo_tiles *s, int right, int64_t k)
{
    int64_t row = k / s->across, col = k % s->across, fulls = s->cols / s->wide;
    int is_last = right ? col == fulls : row == s->rows / s->high;
    struct qm_shampoo_group of = qm_shampoo_group_of(s, right, is_last);
    struct qm_shampoo_place p = {.last = is_last, .n = of.n};
    if (right) {
        p.at = is_last ? row : row * fulls + col;
        p.before = row * s->cols + col * s->wide;
    } else {
        p.at = is_last ? col : k;
        p.before = row * s->across * s->high + col * of.n;
    }
    return p;
}

/* ---- products -------------------------------------------------------------------------------- */

static int is_worth_threads(int64_t operations) { return operations >= 16 * QM_THREADS_FROM; }

/* out[rows][cols] = x[rows][inner] y[inner][cols]. */
static void product(int64_t rows, int64_t inner, int64_t cols, const double *x, const double *y,
                    double *out)
{
    QM_PARALLEL(is_worth_threads(rows * inner * cols))
    for (int64_t i = 0; i < rows; i++) {
        double *restrict to = out + i * cols;
        memset(to, 0, sizeof *to * (size_t)cols);
        for (int64_t k = 0; k < inner; k++) {
            const double f = x[i * inner + k], *restrict from = y + k * cols;
            for (int64_t j = 0; j < cols; j++)
                to[j] = to[j] + f * from[j];
        }
    }
}

/* out[n][n] = the transpose of x, its column k times by[k] (NULL: 1). */
static void transpose(int64_t n, const double *x, const double *by, double *out)
{
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++)
            out[i * n + k] = by ? x[k * n + i] * by[k] : x[k * n + i];
}

/* X <- 3/2 X - 1/2 (X X^T) X, `times` times; room: 2 n n. */
static void rectify(int64_t n, int times, double *x, double *room)
{
    double *across = room, *gram = room + n * n;
    for (int t = 0; t < times; t++) {
        transpose(n, x, NULL, across);
        product(n, n, n, x, across, gram);
        product(n, n, n, gram, x, across);
        for (int64_t i = 0; i < n * n; i++)
            x[i] = 1.5 * x[i] - 0.5 * across[i];
    }
}

/* out = X^T diag(d) X; room: n n. */
static void compose(int64_t n, const double *x, const double *d, double *room, double *out)
{
    transpose(n, x, d, room);
    product(n, n, n, room, x, out);
}

/* ---- QR -------------------------------------------------------------------------------------- */

/* Rows k .. n - 1 of columns from .. n - 1 of b[n][n] <- (I - tau v v^T) of them; v[k] = 1. */
static void reflect(int64_t n, int64_t k, int64_t from, double tau, const double *v, double *b)
{
    QM_PARALLEL(is_worth_threads(4 * (n - k) * (n - from)))
    for (int64_t first = from; first < n; first += WIDTH) {
        double w[WIDTH] = {0.0};
        int64_t m = n - first < WIDTH ? n - first : WIDTH;
        for (int64_t i = k; i < n; i++)
            for (int64_t j = 0; j < m; j++)
                w[j] = w[j] + v[i] * b[i * n + first + j];
        for (int64_t i = k; i < n; i++)
            for (int64_t j = 0; j < m; j++)
                b[i * n + first + j] = b[i * n + first + j] - (tau * v[i]) * w[j];
    }
}

/* The reflection that makes b[k + 1 .. n - 1] of column k zero: v[k ..], v[k] = 1, and tau; LAPACK
 * geqrf leaves a column that is zero there as it is, and otherwise turns the sign of its
 * diagonal. */
static double reflection(int64_t n, int64_t k, const double *b, double *v)
{
    double alpha = b[k * n + k], sum = 0.0;
    v[k] = 1.0;
    for (int64_t i = k + 1; i < n; i++) {
        v[i] = b[i * n + k];
        sum = sum + v[i] * v[i];
    }
    if (sum == 0.0)
        return 0.0;
    double beta = -copysign(sqrt(alpha * alpha + sum), alpha);
    for (int64_t i = k + 1; i < n; i++)
        v[i] = v[i] / (alpha - beta);
    return (beta - alpha) / beta;
}

/* q[n][n] <- the orthogonal factor of b[n][n], which is overwritten; room: n n + n. */
static void orthogonal(int64_t n, double *b, double *room, double *q)
{
    double *v = room, *tau = room + n * n;
    for (int64_t k = 0; k < n; k++) {
        tau[k] = reflection(n, k, b, v + k * n);
        if (tau[k] != 0.0)
            reflect(n, k, k + 1, tau[k], v + k * n, b);
    }
    memset(q, 0, sizeof *q * (size_t)(n * n));
    for (int64_t k = n - 1; k >= 0; k--) {
        q[k * n + k] = 1.0;
        if (tau[k] != 0.0)
            reflect(n, k, k, tau[k], v + k * n, q);
    }
}

/* ---- statistic and root ---------------------------------------------------------------------- */

static int is_zero(int64_t n, const float *x)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0.0f)
            return 0;
    return 1;
}

/* X and ev in double; the identity and matrix_eps where there is nothing yet. */
static void load(const struct qm_hyper *h, int64_t n, const float *vt, const float *ev, double *x,
                 double *d)
{
    int is_new = is_zero(n * n, vt);
    for (int64_t i = 0; i < n * n; i++)
        x[i] = is_new ? i % (n + 1) == 0 : (double)vt[i];
    for (int64_t i = 0; i < n; i++)
        d[i] = is_new ? (double)(float)h->matrix_eps : (double)ev[i];
}

/* out[n][n] = G G^T, or G^T G; room: twice the tile. */
static void gram_of(const struct qm_shampoo_tile *t, int64_t cols, const float *g, int right,
                    double *room, double *out)
{
    double *x = room, *across = room + t->rows * t->cols;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->cols; j++) {
            double v = (double)g[(t->row + i) * cols + t->col + j];
            x[i * t->cols + j] = across[j * t->rows + i] = v;
        }
    if (right)
        product(t->cols, t->rows, t->cols, across, x, out);
    else
        product(t->rows, t->cols, t->rows, x, across, out);
}

qm_status qm_shampoo_statistic(const struct qm_hyper *h, const struct qm_shampoo_tile *tile,
                               int64_t cols, const float *g, int right, float *vt, float *ev)
{
    int64_t n = right ? tile->cols : tile->rows, nn = n * n, both = 2 * tile->rows * tile->cols;
    double *x = malloc(sizeof *x * (size_t)(5 * nn + 2 * n + both));
    if (!x)
        return qm_fail(QM_NO_MEMORY, "a statistic of order %lld", (long long)n);
    double *a = x + nn, *b = a + nn, *room = b + nn, *d = room + 2 * nn + n;
    load(h, n, vt, ev, x, d);
    rectify(n, (int)h->rect_stat, x, room);
    compose(n, x, d, room, a);
    gram_of(tile, cols, g, right, d + n, b);
    for (int64_t i = 0; i < nn; i++)
        a[i] = h->stat_decay * a[i] + (1.0 - h->stat_decay) * b[i];
    transpose(n, x, NULL, room);
    product(n, n, n, a, room, b);
    orthogonal(n, b, room, x); /* x[i][j]: element i of eigenvector j */
    product(n, n, n, a, x, b);
    for (int64_t j = 0; j < n; j++) {
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++) {
            sum = sum + x[i * n + j] * b[i * n + j];
            vt[j * n + i] = (float)x[i * n + j];
        }
        ev[j] = (float)sum;
    }
    free(x);
    return QM_OK;
}

qm_status qm_shampoo_root(const struct qm_hyper *h, int64_t n, const float *vt, const float *ev,
                          float *root)
{
    int64_t nn = n * n;
    double *x = malloc(sizeof *x * (size_t)(3 * nn + n)), most = -HUGE_VAL;
    if (!x)
        return qm_fail(QM_NO_MEMORY, "a root of order %lld", (long long)n);
    double *room = x + nn, *d = room + 2 * nn;
    load(h, n, vt, ev, x, d);
    rectify(n, (int)h->rect_root, x, room);
    for (int64_t i = 0; i < n; i++)
        most = isnan(d[i]) || d[i] > most ? d[i] : most;
    for (int64_t i = 0; i < n; i++)
        d[i] = 1.0 / sqrt(sqrt(d[i] + h->matrix_eps * most));
    compose(n, x, d, room, room + nn);
    for (int64_t i = 0; i < nn; i++)
        root[i] = (float)room[nn + i];
    free(x);
    return QM_OK;
}

/* ---- the step -------------------------------------------------------------------------------- */

/* x[n][n] <- the root in double. */
static void widen(int64_t n, struct qm_shampoo_factor root, double *x)
{
    int any = 0;
    for (int64_t i = 0; i < n * n; i++) {
        int is_apart = root.d && i % (n + 1) == 0;
        x[i] = (double)(is_apart ? root.d[i / n] : root.x[i]);
        any |= x[i] != 0.0;
    }
    for (int64_t i = 0; i < n && !any; i++)
        x[i * (n + 1)] = 1.0;
}

qm_status qm_shampoo_precondition(const struct qm_shampoo_tile *t, int64_t cols,
                                  struct qm_shampoo_factor l, struct qm_shampoo_factor r,
                                  const float *g, float *out)
{
    int64_t m = t->rows, n = t->cols, most = m > n ? m : n;
    double *x = malloc(sizeof *x * (size_t)(2 * m * n + most * most));
    if (!x)
        return qm_fail(QM_NO_MEMORY, "a tile of %lld x %lld", (long long)m, (long long)n);
    double *y = x + m * n, *root = y + m * n;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            x[i * n + j] = (double)g[(t->row + i) * cols + t->col + j];
    widen(m, l, root);
    product(m, m, n, root, x, y);
    widen(n, r, root);
    product(m, n, n, y, root, x);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            out[(t->row + i) * cols + t->col + j] = (float)x[i * n + j];
    free(x);
    return QM_OK;
}

void qm_shampoo_graft(int64_t n, const float *g, float *p)
{
    const struct qm_lazy_floats of_g = {.made = g}, of_p = {.made = p};
    double ratio =
        sqrt(qm_float_squares_of(&of_g, n)) / (sqrt(qm_float_squares_of(&of_p, n)) + 1e-12);
    for (int64_t i = 0; i < n; i++)
        p[i] = (float)((double)p[i] * ratio);
}
