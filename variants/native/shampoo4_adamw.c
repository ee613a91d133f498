/* shampoo4_adamw.c - 4-bit Shampoo in eigenvector form, on top of AdamW.
 *
 * The gradient is a matrix [d0, rest], dims of size 1 dropped, and is cut into tiles of max_order x
 * max_order, the last ones of a row or column smaller.  Each tile has a left and a right factor,
 * which are symmetric matrices of the order of its rows and of its columns:
 *
 *     every stat_gap steps   V^T, ev: eigenvectors (as rows) and eigenvalues of the average of
 *                            G G^T, or of G^T G
 *     every root_gap steps   root = V diag((ev + matrix_eps max ev)^(-1/4)) V^T
 *     from step start on     P = L G R tile by tile, then P |G| / (|P| + 1e-12)
 *
 * AdamW, or SGD where there is one moment, takes P for the gradient.  V^T and the roots of large
 * factors have 4-bit codes, and the diagonals of such roots stand in a slot of floats.  A
 * tensor of fewer than two dims has no factors.  Linear algebra is in double, and norms are where
 * float32 has their squares.
 *
 * Also: shampoo4_sgd shampoo_adamw_f32 shampoo_sgd_f32 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_abi.h"

QM_KERNEL("shampoo4_adamw");

/* The slots behind the moments, left ones first; LAST_: of factors of the last, smaller tiles. */
enum { VECTORS, VALUES = 2, ROOT, DIAGONALS = 5, LAST_VECTORS, LAST_ROOT = 8, FACTOR_SLOTS = 10 };

/* ---- matrices of codes ----------------------------------------------------------------------- */

/* Blocks of a row of n elements. */
static int64_t blocks_of(const struct qm_kernel_slot *s, int64_t n)
{
    return s->bits ? (n + s->block - 1) / s->block : 0;
}

/* x[n][n] <- the rows of s from `first` on. */
static void decode(const struct qm_kernel_slot *s, int64_t n, int64_t first, double *x)
{
    int64_t blocks = blocks_of(s, n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t at = (first + i) * n + j;
            if (s->bits) {
                int code = s->codes[at / 2] >> (at % 2 ? 4 : 0) & 15;
                float scale = s->scales[(first + i) * blocks + j / s->block];
                x[i * n + j] = (double)(s->codebook[code] * scale);
            } else {
                x[i * n + j] = (double)s->values[at];
            }
        }
}

/* The nearest code, at a tie the even one; NaN gives 7, the code of 0. */
static int nearest(const float *value, float y)
{
    int code = 0;
    for (int k = 0; k < 15; k++) {
        float mid = (value[k] + value[k + 1]) * 0.5f;
        code += y > mid || (y == mid && k % 2 == 1);
    }
    return y != y ? 7 : code;
}

/* Rows of s from `first` on <- x[n][n]. */
static void encode(const struct qm_kernel_slot *s, int64_t n, int64_t first, const double *x)
{
    for (int64_t i = 0; i < n * n && !s->bits; i++)
        s->values[first * n + i] = (float)x[i];
    for (int64_t i = 0, block = first * blocks_of(s, n); i < n && s->bits; i++)
        for (int64_t from = 0; from < n; from += s->block, block++) {
            int64_t end = from + s->block < n ? from + s->block : n;
            float most = 0.0f;
            for (int64_t j = from; j < end; j++) {
                float size = fabsf((float)x[i * n + j]);
                most = size > most || size != size ? size : most;
            }
            s->scales[block] = most;
            for (int64_t j = from; j < end; j++) {
                int code = nearest(s->codebook, (float)x[i * n + j] * (1.0f / most));
                int64_t at = (first + i) * n + j;
                int rest = s->codes[at / 2] & (at % 2 ? 15 : 240);
                s->codes[at / 2] = (uint8_t)(rest | code << (at % 2 ? 4 : 0));
            }
        }
}

/* ---- linear algebra, row-major --------------------------------------------------------------- */

/* out[a][c] = x[a][b] y[b][c]. */
static void times(int64_t a, int64_t b, int64_t c, const double *x, const double *y, double *out)
{
    memset(out, 0, sizeof *out * (size_t)(a * c));
    for (int64_t i = 0; i < a; i++)
        for (int64_t k = 0; k < b; k++)
            for (int64_t j = 0; j < c; j++)
                out[i * c + j] += x[i * b + k] * y[k * c + j];
}

/* out[a][a] = x[a][b] x^T. */
static void gram(int64_t a, int64_t b, const double *x, double *out)
{
    for (int64_t i = 0; i < a; i++)
        for (int64_t j = 0; j < a; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < b; k++)
                sum += x[i * b + k] * x[j * b + k];
            out[i * a + j] = sum;
        }
}

/* out[n][n] = X^T diag(d) X. */
static void compose(int64_t n, const double *x, const double *d, double *out)
{
    memset(out, 0, sizeof *out * (size_t)(n * n));
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                out[i * n + j] += x[k * n + i] * d[k] * x[k * n + j];
}

/* Makes the rows of x[n][n] more nearly orthonormal, `count` times; room: 2 n n. */
static void rectify(int64_t n, int count, double *x, double *room)
{
    for (int t = 0; t < count; t++) {
        gram(n, n, x, room);
        times(n, n, n, room, x, room + n * n);
        for (int64_t i = 0; i < n * n; i++)
            x[i] = 1.5 * x[i] - 0.5 * room[n * n + i];
    }
}

/* x <- (I - tau v v^T) x; v is 0 before element k, 1 there, and given behind it. */
static void reflect(int64_t n, int64_t k, const double *v, double tau, double *x)
{
    double sum = x[k];
    for (int64_t i = k + 1; i < n; i++)
        sum += v[i] * x[i];
    x[k] -= tau * sum;
    for (int64_t i = k + 1; i < n; i++)
        x[i] -= tau * sum * v[i];
}

/* q[n][n] <- Q^T of Q R = Y^T by Householder reflections, the diagonal of R with the signs of
 * LAPACK's geqrf; y[n][n] is overwritten, tau[n] is room. */
static void orthonormalize(int64_t n, double *y, double *tau, double *q)
{
    for (int64_t k = 0; k < n; k++) {
        double *v = y + k * n, rest = 0.0;
        for (int64_t h = 0; h < k; h++)
            reflect(n, h, y + h * n, tau[h], v);
        for (int64_t i = k + 1; i < n; i++)
            rest += v[i] * v[i];
        double alpha = v[k], beta = -copysign(sqrt(alpha * alpha + rest), alpha);
        tau[k] = rest == 0.0 ? 0.0 : (beta - alpha) / beta;
        for (int64_t i = k + 1; i < n && rest != 0.0; i++)
            v[i] /= alpha - beta;
    }
    for (int64_t j = 0; j < n; j++) {
        double *x = q + j * n;
        for (int64_t i = 0; i < n; i++)
            x[i] = i == j;
        for (int64_t k = n - 1; k >= 0; k--)
            reflect(n, k, y + k * n, tau[k], x);
    }
}

/* ---- factors --------------------------------------------------------------------------------- */

/* The matrix that the tensor is, and a tile of it. */
struct grid {
    int64_t rows, cols, high, wide, down, across;
};

/* One factor of one tile, and where its numbers begin in its slots. */
struct factor {
    int right, vectors, root; /* slots of V^T and of the root */
    int64_t n, row;           /* order, and first row of V^T and of the root */
    int64_t value, diagonal;  /* -1: the root has its diagonal */
};

static int cut(const struct qm_kernel_args *a, struct grid *s)
{
    int dims = 0;
    *s = (struct grid){.rows = 1, .cols = 1};
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i] != 1)
            *(dims++ ? &s->cols : &s->rows) *= a->dim[i];
    if (dims < 2 || a->n == 0)
        return 0;
    s->high = (double)s->rows < a->max_order ? s->rows : (int64_t)a->max_order;
    s->wide = (double)s->cols < a->max_order ? s->cols : (int64_t)a->max_order;
    s->across = (s->cols + s->wide - 1) / s->wide;
    s->down = (s->rows + s->high - 1) / s->high;
    return 1;
}

/* Whether factors of order n have their roots' diagonals in a slot of their own. */
static int is_large(const struct qm_kernel_args *a, int64_t n)
{
    return a->min_lowbit > 0.0 && (double)n * (double)n >= a->min_lowbit;
}

static int64_t at_most(int64_t x, int64_t most) { return x < most ? x : most; }

/* How many numbers the diagonals of factors have that are `order` large where they have a slot. */
static int64_t stored(const struct qm_kernel_args *a, int64_t order, int64_t factors)
{
    return is_large(a, order) ? order * factors : 0;
}

/* The slots of eigenvalues and diagonals hold all left factors, then all right ones, tile by tile;
 * those of matrices one kind of factors, as tiles follow each other. */
static struct factor factor_of(const struct qm_kernel_args *a, const struct grid *s, int64_t tile,
                               int right)
{
    int64_t i = tile / s->across, j = tile % s->across, high = s->high, wide = s->wide;
    int64_t short_rows = s->rows % high, short_cols = s->cols % wide, full_rows = s->rows / high,
            full_cols = s->cols / wide;
    int is_last = right ? j == full_cols : i == full_rows;
    struct factor f = {.right = right,
                       .vectors = (is_last ? LAST_VECTORS : VECTORS) + right,
                       .root = (is_last ? LAST_ROOT : ROOT) + right,
                       .diagonal = -1};
    if (!right) {
        f.n = is_last ? short_rows : high;
        f.row = (is_last ? j : tile) * f.n;
        f.value = i * s->across * high + j * f.n;
        if (is_large(a, f.n))
            f.diagonal = f.value;
        return f;
    }
    f.n = is_last ? short_cols : wide;
    f.row = (is_last ? i : i * full_cols + j) * f.n;
    f.value = s->across * s->rows + i * s->cols + j * wide;
    if (is_large(a, f.n)) /* none but full ones stand before it in its row of tiles */
        f.diagonal = stored(a, high, full_rows * s->across) + stored(a, short_rows, s->across) +
                     stored(a, wide, i * full_cols + j) + stored(a, short_cols, i);
    return f;
}

/* x[n][n] <- V^T and d[n] <- ev; before the first statistic the identity and matrix_eps. */
static void load_vectors(const struct qm_kernel_args *a, const struct qm_kernel_slot *slot,
                         const struct factor *f, double *x, double *d)
{
    int64_t n = f->n, any = 0;
    decode(slot + f->vectors, n, f->row, x);
    for (int64_t i = 0; i < n * n; i++)
        any |= x[i] != 0.0;
    for (int64_t i = 0; i < n; i++) {
        x[i * n + i] = any ? x[i * n + i] : 1.0;
        d[i] = (double)(any ? slot[VALUES].values[f->value + i] : (float)a->matrix_eps);
    }
}

/* Takes the tile g[rows][cols] into the statistic; room: 5 n n + 2 n + rows cols. */
static void new_statistic(const struct qm_kernel_args *a, const struct qm_kernel_slot *slot,
                          const struct factor *f, const double *g, int64_t rows, int64_t cols,
                          double *room)
{
    int64_t n = f->n, nn = n * n, inner = f->right ? rows : cols;
    double *x = room, *cov = x + nn, *y = cov + nn, *more = y + nn, *d = more + 2 * nn,
           *side = d + 2 * n;
    load_vectors(a, slot, f, x, d);
    rectify(n, (int)a->rect_stat, x, more);
    compose(n, x, d, cov);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < inner; k++)
            side[i * inner + k] = g[f->right ? k * cols + i : i * cols + k];
    gram(n, inner, side, more);
    for (int64_t i = 0; i < nn; i++)
        cov[i] = a->stat_decay * cov[i] + (1.0 - a->stat_decay) * more[i];
    times(n, n, n, x, cov, y); /* rows of y: the columns of cov X^T */
    orthonormalize(n, y, d + n, x);
    times(n, n, n, x, cov, y);
    for (int64_t k = 0; k < n; k++) {
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++)
            sum += x[k * n + i] * y[k * n + i];
        slot[VALUES].values[f->value + k] = (float)sum;
    }
    encode(slot + f->vectors, n, f->row, x);
}

/* The root from V^T and ev as they are stored; room: 3 n n + n. */
static void new_root(const struct qm_kernel_args *a, const struct qm_kernel_slot *slot,
                     const struct factor *f, double *room)
{
    int64_t n = f->n;
    double *x = room, *more = x + n * n, *d = more + 2 * n * n, most;
    const struct qm_kernel_slot *to = slot + f->root;
    load_vectors(a, slot, f, x, d);
    rectify(n, (int)a->rect_root, x, more);
    most = d[0];
    for (int64_t i = 1; i < n; i++)
        most = d[i] > most || isnan(d[i]) ? d[i] : most;
    for (int64_t i = 0; i < n; i++)
        d[i] = 1.0 / sqrt(sqrt(d[i] + a->matrix_eps * most));
    compose(n, x, d, more);
    for (int64_t i = 0; i < n && f->diagonal >= 0; i++) {
        slot[DIAGONALS].values[f->diagonal + i] = (float)more[i * n + i];
        more[i * n + i] = 0.0;
    }
    encode(to, n, f->row, more);
}

/* x[n][n] <- the root; before the first one the identity. */
static void load_root(const struct qm_kernel_slot *slot, const struct factor *f, double *x)
{
    int64_t n = f->n, any = 0;
    decode(slot + f->root, n, f->row, x);
    for (int64_t i = 0; i < n && f->diagonal >= 0; i++)
        x[i * n + i] = (double)slot[DIAGONALS].values[f->diagonal + i];
    for (int64_t i = 0; i < n * n; i++)
        any |= x[i] != 0.0;
    for (int64_t i = 0; i < n && !any; i++)
        x[i * n + i] = 1.0;
}

/* ---- the step -------------------------------------------------------------------------------- */

static int is_due(const struct qm_kernel_args *a, double gap) { return a->t % (int64_t)gap == 0; }

/* Renews the factors of one tile, and writes L G R into u; room: 5 k k + 2 k + 3 k k with k the
 * longer side. */
static void one_tile(const struct qm_kernel_args *a, const struct qm_kernel_slot *slot,
                     const struct grid *s, int64_t tile, double *room, float *u)
{
    int64_t i0 = tile / s->across * s->high, j0 = tile % s->across * s->wide;
    int64_t m = at_most(s->rows - i0, s->high), n = at_most(s->cols - j0, s->wide);
    int64_t from = i0 * s->cols + j0;
    const float *g = (const float *)a->g + from;
    double *x = room, *y = x + m * n, *more = y + m * n;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            x[i * n + j] = (double)g[i * s->cols + j];
    for (int right = 0; right < 2; right++) {
        struct factor f = factor_of(a, s, tile, right);
        if (is_due(a, a->stat_gap))
            new_statistic(a, slot, &f, x, m, n, more);
        if (is_due(a, a->root_gap))
            new_root(a, slot, &f, more);
    }
    if ((double)a->t < a->start)
        return;
    struct factor left = factor_of(a, s, tile, 0), right = factor_of(a, s, tile, 1);
    load_root(slot, &left, more);
    times(m, m, n, more, x, y);
    load_root(slot, &right, more);
    times(m, n, n, y, more, x);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            u[from + i * s->cols + j] = (float)x[i * n + j];
}

/* The sum of the squares of x: in double, but as float32 has it where it overflows, and where
 * squares are so small that they are counts of 2^-149 there. */
static double sum_squares(int64_t n, const float *x)
{
    double sum = 0.0, rounded = 0.0;
    for (int64_t i = 0; i < n; i++) {
        float square = x[i] * x[i];
        sum += (double)x[i] * (double)x[i];
        rounded += (double)square;
    }
    if (sum < (double)n * 0x1p-100)
        return rounded;
    return isfinite((float)sum) ? sum : (double)(float)sum;
}

/* u <- u |g| / (|u| + 1e-12). */
static void graft(int64_t n, const float *g, float *u)
{
    double ratio = sqrt(sum_squares(n, g)) / (sqrt(sum_squares(n, u)) + 1e-12);
    for (int64_t i = 0; i < n; i++)
        u[i] = (float)((double)u[i] * ratio);
}

static void adamw(const struct qm_kernel_args *a, const float *u)
{
    float *p = a->p, *m = a->slot[0].values, *v = a->slot[1].values;
    float b1 = (float)a->beta1, w1 = (float)(1.0 - a->beta1), b2 = (float)a->beta2,
          w2 = (float)(1.0 - a->beta2), eps = (float)a->eps;
    float root2 = (float)sqrt(1.0 - pow(a->beta2, (double)a->t));
    float rate = (float)(a->lr / (1.0 - pow(a->beta1, (double)a->t)));
    float keep = (float)(1.0 - a->lr * a->weight_decay);
    for (int64_t i = 0; i < a->n; i++) {
        m[i] = m[i] * b1 + u[i] * w1;
        v[i] = v[i] * b2 + w2 * u[i] * u[i];
        p[i] = p[i] * keep - rate * m[i] / (sqrtf(v[i]) / root2 + eps);
    }
}

static void sgd(const struct qm_kernel_args *a, const float *u)
{
    float *p = a->p, *b = a->slot[0].values, mu = (float)a->momentum, lr = (float)a->lr;
    for (int64_t i = 0; i < a->n; i++) {
        float d = u[i];
        if (a->weight_decay != 0.0)
            d = d + (float)a->weight_decay * p[i];
        b[i] = b[i] * mu + d;
        p[i] = p[i] - lr * (a->nesterov ? d + mu * b[i] : b[i]);
    }
}

static int takes(const struct qm_kernel_slot *s)
{
    return s->bits ? strncmp(s->quantizer, "lin2:4s/rowblock:", 17) == 0
                   : strcmp(s->quantizer, "f32") == 0;
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    struct grid s;
    int moments = a->n_slots - FACTOR_SLOTS, is_known = 1;
    for (int i = 0; i < a->n_slots; i++)
        is_known &= takes(&a->slot[i]) && (i >= moments || !a->slot[i].bits);
    if (!is_known || a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32)
        return 1; /* refused */
    float *u = malloc(sizeof *u * (size_t)a->n + 1);
    if (!u)
        return 2;
    memcpy(u, a->g, sizeof *u * (size_t)a->n);
    if (cut(a, &s)) {
        size_t k = (size_t)(s.high > s.wide ? s.high : s.wide);
        double *room = malloc(sizeof *room * (8 * k * k + 2 * k));
        for (int64_t i = 0; i < s.down * s.across && room; i++)
            one_tile(a, a->slot + moments, &s, i, room, u);
        free(room);
        if (!room) {
            free(u);
            return 2;
        }
        if ((double)a->t >= a->start)
            graft(a->n, a->g, u);
    }
    (moments == 2 ? adamw : sgd)(a, u);
    free(u);
    return 0;
}
