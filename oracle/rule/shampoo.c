/* shampoo.c - Shampoo in eigenvector form with grafting, in double, and its error bound.
 *
 *   every T1 steps: eigenvectors and eigenvalues of the covariances of each tile  (kronecker.c)
 *   every T2 steps: L, R <- inverse fourth roots
 *   P = L G R tile by tile;  P <- P |G| / (|P| + 1e-12) over the tensor   (from step `start`)
 *   AdamW of P:  theta <- theta (1 - lr lambda);  m, v;  theta <- theta - lr m^ / (sqrt(v^) + eps)
 *   SGD:         d = P + lambda theta;  b <- mu b + d;  theta <- theta - lr (b, or d + mu b)
 *
 * T1 = stat_gap, T2 = root_gap divide the number of the step.  P = G where a tensor has no
 * preconditioner.  L and R are the identity while they are all zero.
 *
 * Slots: moments; V^T of all left factors of order m, one above the other, of the right ones of
 * order n; ev of the left ones, then of the right ones; L, R as V^T; their diagonals as ev, of
 * factors that are quantized (at least min_lowbit elements), whose L and R have zeros there; V^T,
 * then L and R, of the factors of what remains of a side behind its last whole piece, left and
 * right.  Factors follow each other as their tiles do, row by row.
 *
 * The judged side forms the linear algebra in double and rounds its results, so the bound has the
 * unit roundoff of double; where it may sum in float32 (reorder.tree), that of float32.  What is
 * stored decides what follows from it: roots follow from the stored V^T and ev, P from the stored
 * roots. */
#include "oracle/rule/shampoo.h"

#include <stdlib.h>

enum {
    LEFT_VECTORS,
    RIGHT_VECTORS,
    EIGENVALUES,
    LEFT_ROOT,
    RIGHT_ROOT,
    DIAGONALS,
    LEFT_VECTORS_LAST,
    RIGHT_VECTORS_LAST,
    LEFT_ROOT_LAST,
    RIGHT_ROOT_LAST,
    SLOTS
};
enum { ADAM = 2, SGD = 1 }; /* moments, which come first */

static int is_due(int64_t t, double gap) { return t % (int64_t)gap == 0; }

static int is_coded(const struct qm_oracle_hyper *h, int64_t n)
{
    return h->min_lowbit > 0.0 && (double)n * (double)n >= h->min_lowbit;
}

/* One factor of one tile, and where its numbers begin in its slots. */
struct factor {
    int right, of_vectors, of_root;                 /* slots */
    int64_t order, inner, matrix, values, diagonal; /* diagonal -1: the root has it */
    int64_t row, col;                               /* of the tile */
};

/* Rows, or columns, of a tile. */
static int64_t side_of(const struct qm_kronecker *k, int64_t tile, int right)
{
    int64_t piece = right ? k->n : k->m, side = right ? k->cols : k->rows;
    int64_t before = (right ? tile % k->across : tile / k->across) * piece;
    return side - before < piece ? side - before : piece;
}

/* How a tensor is cut, and the factors of all tiles: f[2 t] is the left one of tile t, f[2 t + 1]
 * the right one. */
struct factors {
    struct qm_kronecker k;
    struct factor *f;
};

static qm_status factors_of(const struct qm_oracle_hyper *h, const struct qm_shape *shape,
                            struct factors *out)
{
    out->k = qm_kronecker_of(h, shape);
    const struct qm_kronecker *k = &out->k;
    int64_t tiles = k->down * k->across, values = 0, coded = 0, matrix[2][2] = {{0}};
    struct factor *all = out->f = calloc((size_t)(2 * tiles), sizeof *all);
    for (int64_t i = 0; all && i < 2 * tiles; i++) {
        int right = i >= tiles;
        int64_t tile = i % tiles, n = side_of(k, tile, right);
        int is_last = n < (right ? k->n : k->m);
        all[2 * tile + right] =
            (struct factor){.right = right,
                            .of_vectors = (is_last ? LEFT_VECTORS_LAST : LEFT_VECTORS) + right,
                            .of_root = (is_last ? LEFT_ROOT_LAST : LEFT_ROOT) + right,
                            .order = n,
                            .inner = side_of(k, tile, !right),
                            .matrix = matrix[right][is_last],
                            .values = values,
                            .diagonal = is_coded(h, n) ? coded : -1,
                            .row = tile / k->across * k->m,
                            .col = tile % k->across * k->n};
        values += n;
        coded += is_coded(h, n) ? n : 0;
        matrix[right][is_last] += n * n;
    }
    return all ? QM_OK : qm_fail(QM_NO_MEMORY, "factors of %lld tiles", (long long)tiles);
}

/* The whole root of a factor, with its diagonal. */
static void load_root(const struct factor *f, double *const *slot, double *x)
{
    const double *from = slot[f->of_root] + f->matrix;
    int64_t n = f->order, any = 0;
    for (int64_t i = 0; i < n * n; i++)
        x[i] = from[i];
    for (int64_t i = 0; i < n && f->diagonal >= 0; i++)
        x[i * n + i] = slot[DIAGONALS][f->diagonal + i];
    for (int64_t i = 0; i < n * n; i++)
        any |= x[i] != 0.0;
    for (int64_t i = 0; i < n && !any; i++)
        x[i * n + i] = 1.0;
}

/* Puts a root and its error into its slots; e NULL: no errors. */
static void store_root(const struct factor *f, const double *x, double error, double *const *slot,
                       double *const *e)
{
    int64_t n = f->order;
    int k = f->of_root;
    for (int64_t i = 0; i < n * n; i++) {
        int is_apart = f->diagonal >= 0 && i % (n + 1) == 0;
        struct qm_ball b = qm_ball_rounded(x[i], error, QM_ETA);
        slot[k][f->matrix + i] = is_apart ? 0.0 : x[i];
        if (is_apart)
            slot[DIAGONALS][f->diagonal + i / n] = x[i];
        if (e && is_apart)
            e[DIAGONALS][f->diagonal + i / n] = b.e;
        if (e)
            e[k][f->matrix + i] = is_apart ? 0.0 : b.e;
    }
}

/* ---- statistics and roots -------------------------------------------------------------------- */

/* Updates the statistic of a factor in its slots; e NULL: no errors.  judged: the vectors that the
 * judged side stored, or NULL. */
static qm_status statistic(const struct qm_oracle_hyper *h, const struct factor *f,
                           const struct qm_kronecker *k, const double *g, double unit,
                           const double *judged, double *const *slot, double *const *e)
{
    int64_t n = f->order, inner = f->inner;
    int vectors = f->of_vectors;
    double *x = malloc((size_t)(n * inner + 2 * n) * sizeof *x), *e_v = x + n * inner;
    if (!x)
        return qm_fail(QM_NO_MEMORY, "oracle of order %lld", (long long)n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < inner; j++)
            x[i * inner + j] =
                g[(f->row + (f->right ? j : i)) * k->cols + f->col + (f->right ? i : j)];
    const struct qm_eigenbasis to = {slot[vectors] + f->matrix,
                                     slot[EIGENVALUES] + f->values,
                                     e_v,
                                     e_v + n,
                                     judged ? judged + f->matrix : NULL,
                                     e != NULL};
    qm_status st = qm_kronecker_statistic(h, n, inner, x, unit, &to);
    for (int64_t i = 0; i < n * n && e && st == QM_OK; i++)
        e[vectors][f->matrix + i] =
            qm_ball_float32((struct qm_ball){slot[vectors][f->matrix + i], e_v[i / n]}).e;
    for (int64_t i = 0; i < n && e && st == QM_OK; i++)
        e[EIGENVALUES][f->values + i] =
            qm_ball_float32((struct qm_ball){slot[EIGENVALUES][f->values + i], e_v[n + i]}).e;
    free(x);
    return st;
}

/* A new root in `slot`, from the vectors and values in `from`. */
static qm_status root_of(const struct qm_oracle_hyper *h, const struct factor *f, double unit,
                         const double *const *from, double *const *slot, double *const *e)
{
    double *x = malloc((size_t)(f->order * f->order) * sizeof *x), error;
    if (!x)
        return qm_fail(QM_NO_MEMORY, "oracle of order %lld", (long long)f->order);
    const double *vt = from[f->of_vectors] + f->matrix;
    qm_status st =
        qm_kronecker_root(h, f->order, vt, from[EIGENVALUES] + f->values, unit, x, &error);
    if (st == QM_OK)
        store_root(f, x, error, slot, e);
    free(x);
    return st;
}

/* The judged side: its unit roundoff, what it stored (judged[SLOTS], each NULL where nothing is
 * known of it), and what roots follow from (from[SLOTS]); NULL: nobody is judged. */
struct judged_side {
    double unit;
    const double *const *judged, *const *from;
};

/* Both, where they are due.  by.from NULL: roots follow from what the statistics just became. */
static qm_status renew(const struct qm_oracle_hyper *h, const struct factors *s, int64_t t,
                       const double *g, struct judged_side by, double *const *slot,
                       double *const *e)
{
    for (int64_t i = 0; i < 2 * s->k.down * s->k.across; i++) {
        if (is_due(t, h->stat_gap))
            QM_TRY(statistic(h, &s->f[i], &s->k, g, by.unit,
                             by.judged ? by.judged[s->f[i].of_vectors] : NULL, slot, e));
        if (is_due(t, h->root_gap))
            QM_TRY(root_of(h, &s->f[i], by.unit, by.from ? by.from : (const double *const *)slot,
                           slot, e));
    }
    return QM_OK;
}

/* ---- the direction --------------------------------------------------------------------------- */

/* Numbers that both_sides has room for. */
static size_t room_of(const struct qm_kronecker *k)
{
    return (size_t)(k->m * k->m + k->n * k->n + k->m * k->n);
}

/* The largest sum of magnitudes of a column of r[n][n]. */
static double largest_column(int64_t n, const double *r)
{
    double most = 0.0;
    for (int64_t j = 0; j < n; j++) {
        double sum = 0.0;
        for (int64_t a = 0; a < n; a++)
            sum += fabs(r[a * n + j]);
        most = sum > most ? sum : most;
    }
    return most;
}

/* out = L G R of tile t by the roots in `slot`; e: the error of these sums.  In float32 a product
 * below the normal range rounds by QM_ETA in addition: m times in L G, which the columns of |R|
 * multiply, and n times after that. */
static void both_sides(const struct factors *s, int64_t t, double *const *slot, const double *g,
                       double unit, double *out, double *e, double *room)
{
    const struct factor *f = &s->f[2 * t];
    int64_t m = f->order, n = f->inner, cols = s->k.cols;
    double by = (double)(m + n + 4) * unit; /* of the sums of magnitudes */
    double *l = room + m * n, *r = l + m * m;
    load_root(f, slot, l);
    load_root(f + 1, slot, r);
    double below = unit >= QM_U ? QM_ETA * ((double)m * largest_column(n, r) + (double)n) : 0.0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0.0;
                for (int64_t a = 0; a < m; a++) {
                    double term = l[i * m + a] * g[(f->row + a) * cols + f->col + j];
                    sum += pass ? fabs(term) : term;
                }
                room[i * n + j] = sum;
            }
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0.0;
                for (int64_t a = 0; a < n; a++) {
                    double term = room[i * n + a] * r[a * n + j];
                    sum += pass ? fabs(term) : term;
                }
                (pass ? e : out)[(f->row + i) * cols + f->col + j] = pass ? by * sum + below : sum;
            }
    }
}

/* u[n] <- the balls of the grafted direction from the roots in `slot`. */
static qm_status direction(const struct qm_bound_step *b, const struct factors *s, double unit,
                           double *const *slot, struct qm_ball *u)
{
    double *x = malloc(((size_t)(2 * b->n) + room_of(&s->k)) * sizeof *x);
    if (!x)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)b->n);
    double *e = x + b->n;
    for (int64_t t = 0; t < s->k.down * s->k.across; t++)
        both_sides(s, t, slot, b->g, unit, x, e, e + b->n);
    struct qm_ball *p = qm_balls(2 * b->n);
    if (p) {
        for (int64_t i = 0; i < b->n; i++) {
            p[i] = qm_ball_float32((struct qm_ball){x[i], e[i]});
            p[b->n + i] = qm_ball_exact(b->g[i]);
        }
        struct qm_ball of_g = qm_ball_norm(b, p + b->n, b->n, 1),
                       of_p = qm_ball_norm(b, p, b->n, 1);
        of_p.x += 1e-12;
        struct qm_ball ratio = qm_ball_div_double(b, of_g, of_p);
        for (int64_t i = 0; i < b->n; i++)
            u[i] = qm_ball_float32(qm_ball_mul_double(b, p[i], ratio));
    }
    free(p);
    free(x);
    return p ? QM_OK : QM_NO_MEMORY;
}

/* The same numbers without their errors. */
static qm_status exact_direction(const struct factors *s, int64_t count, const double *g,
                                 double *const *slot, double *u)
{
    double *e = malloc(((size_t)count + room_of(&s->k)) * sizeof *e), of_g = 0.0, of_p = 0.0;
    if (!e)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)count);
    for (int64_t t = 0; t < s->k.down * s->k.across; t++)
        both_sides(s, t, slot, g, 0.0, u, e, e + count);
    for (int64_t i = 0; i < count; i++) {
        of_g += g[i] * g[i];
        of_p += u[i] * u[i];
    }
    for (int64_t i = 0; i < count; i++)
        u[i] = u[i] * sqrt(of_g) / (sqrt(of_p) + 1e-12);
    free(e);
    return QM_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The slots behind the moments; u[n] <- the direction. */
static qm_status precondition(const struct qm_oracle_hyper *h, const struct qm_shape *shape,
                              int64_t t, const double *g, double *const *slot, double *u)
{
    struct factors s;
    int64_t n = qm_shape_numel(shape);
    for (int64_t i = 0; i < n; i++)
        u[i] = g[i];
    if (!qm_kronecker_has(shape))
        return QM_OK;
    QM_TRY(factors_of(h, shape, &s));
    qm_status st = renew(h, &s, t, g, (struct judged_side){0x1p-53, NULL, NULL}, slot, NULL);
    if (st == QM_OK && (double)t >= h->start)
        st = exact_direction(&s, n, g, slot, u);
    free(s.f);
    return st;
}

static qm_status whole(double *theta, double *const *slot, const double *g,
                       const struct qm_shape *shape, const struct qm_oracle_hyper *h, int64_t t,
                       int moments)
{
    int64_t n = qm_shape_numel(shape);
    double *u = calloc((size_t)n + 1, sizeof *u), *m = slot[0], *v = slot[1];
    double bc1 = -expm1((double)t * log1p(h->beta1 - 1.0));
    double bc2 = -expm1((double)t * log1p(h->beta2 - 1.0));
    if (!u)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)n);
    qm_status st = precondition(h, shape, t, g, slot + moments, u);
    for (int64_t i = 0; i < n && st == QM_OK && moments == ADAM; i++) {
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * u[i];
        v[i] = h->beta2 * v[i] + (1.0 - h->beta2) * u[i] * u[i];
        theta[i] = theta[i] * (1.0 - h->lr * h->weight_decay) -
                   h->lr * (m[i] / bc1) / (sqrt(v[i] / bc2) + h->eps);
    }
    for (int64_t i = 0; i < n && st == QM_OK && moments == SGD; i++) {
        double d = h->weight_decay != 0.0 ? u[i] + h->weight_decay * theta[i] : u[i];
        m[i] = h->momentum * m[i] + d;
        theta[i] = theta[i] - h->lr * (h->nesterov ? d + h->momentum * m[i] : m[i]);
    }
    free(u);
    return st;
}

static qm_status adam_whole(double *p, double *const *slot, const double *g,
                            const struct qm_shape *shape, uint32_t tensor,
                            const struct qm_oracle_hyper *h, int64_t t)
{
    (void)tensor;
    return whole(p, slot, g, shape, h, t, ADAM);
}

static qm_status sgd_whole(double *p, double *const *slot, const double *g,
                           const struct qm_shape *shape, uint32_t tensor,
                           const struct qm_oracle_hyper *h, int64_t t)
{
    (void)tensor;
    return whole(p, slot, g, shape, h, t, SGD);
}

/* ---- their bound ----------------------------------------------------------------------------- */

/* Bounds the slots behind the moments, and u[n], the direction from the stored roots. */
static qm_status bound_direction(const struct qm_bound_step *b, int moments, struct qm_ball *u)
{
    const struct qm_oracle_hyper *h = b->h;
    double unit = b->reorder.tree ? QM_U : 0x1p-53, *kept[SLOTS];
    const double *stored[SLOTS], *judged[SLOTS];
    struct factors s;
    for (int64_t i = 0; i < b->n; i++)
        u[i] = qm_ball_exact(b->g[i]);
    if (!qm_kronecker_has(b->shape))
        return QM_OK;
    for (int i = 0; i < SLOTS; i++) {
        int at = moments + i;
        judged[i] = b->stored ? b->stored[at] : NULL;
        stored[i] = judged[i] ? judged[i] : b->want[at];
        kept[i] = (double *)(uintptr_t)stored[i];
        for (int64_t j = 0; j < b->slot_n[at]; j++)
            b->want[at][j] = b->slot[at][j];
    }
    QM_TRY(factors_of(h, b->shape, &s));
    qm_status st = renew(h, &s, b->t, b->g, (struct judged_side){unit, judged, stored},
                         b->want + moments, b->e_slot + moments);
    if (st == QM_OK && (double)b->t >= h->start)
        st = direction(b, &s, unit, kept, u);
    free(s.f);
    return st;
}

static void adam_element(const struct qm_bound_step *b, const struct qm_adam_scalars *s, int64_t i,
                         struct qm_ball u)
{
    struct qm_ball m = qm_bound_average(&s->m, qm_bound_old(b, 0, i), u);
    struct qm_ball v = qm_bound_square(b, &s->v, qm_bound_old(b, 1, i), u);
    b->want[0][i] = m.x;
    b->want[1][i] = v.x;
    m = qm_bound_new(b, 0, i, m);
    v = qm_bound_new(b, 1, i, v);
    struct qm_ball p = qm_bound_adam_param(s, qm_ball_exact(b->p[i]), m, v);
    b->p_want[i] = p.x;
    b->e_p[i] = p.e;
}

static void sgd_element(const struct qm_bound_step *b, int64_t i, struct qm_ball d)
{
    const struct qm_oracle_hyper *h = b->h;
    struct qm_ball p = qm_ball_exact(b->p[i]), mu = qm_ball_scalar(h->momentum), buffer;
    if (h->weight_decay != 0.0)
        d = qm_ball_add(d, qm_ball_mul(qm_ball_scalar(h->weight_decay), p));
    buffer = qm_ball_add(qm_ball_mul(mu, qm_bound_old(b, 0, i)), d);
    b->want[0][i] = buffer.x;
    buffer = qm_bound_new(b, 0, i, buffer);
    if (h->nesterov)
        buffer = qm_ball_add(d, qm_ball_mul(mu, buffer));
    p = qm_ball_add(p, qm_ball_negated(qm_ball_mul(qm_ball_scalar(h->lr), buffer)));
    b->p_want[i] = p.x;
    b->e_p[i] = p.e;
}

static qm_status bound(const struct qm_bound_step *b, int moments)
{
    struct qm_ball *u = qm_balls(b->n + 1);
    struct qm_adam_scalars s = {0};
    if (!u)
        return QM_NO_MEMORY;
    if (moments == ADAM)
        s = qm_adam_scalars_of(b, 0, 0);
    qm_status st = bound_direction(b, moments, u);
    for (int64_t i = 0; i < b->n && st == QM_OK; i++)
        if (moments == ADAM)
            adam_element(b, &s, i, u[i]);
        else
            sgd_element(b, i, u[i]);
    free(u);
    return st;
}

static qm_status adam_bound(const struct qm_bound_step *b) { return bound(b, ADAM); }
static qm_status sgd_bound(const struct qm_bound_step *b) { return bound(b, SGD); }

#define SOURCE "arXiv:2405.18144, algorithms 1 to 3; low-bit-Shampoo optimizers/shampoo2.py"
#define PRECONDITIONERS                                                                     \
    "left_vectors", "right_vectors", "eigenvalues", "left_root", "right_root", "diagonals", \
        "left_vectors_last", "right_vectors_last", "left_root_last", "right_root_last"

extern const struct qm_oracle qm_oracle_shampoo_adamw, qm_oracle_shampoo_sgd;
const struct qm_oracle qm_oracle_shampoo_adamw = {
    .family = "shampoo_adamw",
    .source = SOURCE,
    .n_slots = ADAM + SLOTS,
    .slot = {"exp_avg", "exp_avg_sq", PRECONDITIONERS},
    .whole = adam_whole,
    .bound = adam_bound,
};
const struct qm_oracle qm_oracle_shampoo_sgd = {
    .family = "shampoo_sgd",
    .source = SOURCE,
    .n_slots = SGD + SLOTS,
    .slot = {"momentum_buffer", PRECONDITIONERS},
    .whole = sgd_whole,
    .bound = sgd_bound,
};
