/* bound_adafactor8.c - The error bound of adafactor8bit's Adafactor, CAME and APOLLO to 0.2.6, and
 * of APOLLO of 0.4.6.
 *
 * It follows the formulas of adafactor8.c in the order of the package: averages are float32, one
 * element at a time; sums, norms, factors and the limiter are double.  The package deviates from
 * its formulas, and the bound follows it, in these points: float32 vectors of 0.2.6 get no eps1,
 * and 0.2.6 clips CAME's step only where its states are quantized; the CUDA path (QM_ORDER_cuda)
 * keeps second moments at or above 2^-126, divides by no less than 2^-53, replaces numbers that are
 * not finite by 0 and, in CAME before 0.2.6, codes the factors of the step once more.  On the CUDA
 * path, where the step reads stored states back, and where an input is not finite (0 times Inf in
 * a float32 lerp is NaN), the wanted values are the midpoints of the balls instead of the
 * oracle's. */
#include <stdlib.h>

#include "oracle/bound/bound_tensor.h"
#include "oracle/rule/adafactor8.h"

/* The scalars and the shape of one step. own: an input is not finite; has_nan: one is NaN. is_came:
 * CAME of 0.2.6; is_old_came: the one before. unclipped: the package does not clip where the
 * formula does. */
struct scalars {
    const struct qm_bound_step *b;
    int is_024, is_025, is_026, is_046; /* that release or a later one */
    int is_cuda, has_m, is_factored, is_came, is_old_came, is_apollo, own, has_nan, unclipped;
    double t, eps1, eps_sq, weight, rho, correction;
    struct qm_matrix_batch m;
    int64_t n;
};

static const struct qm_ball one = {1.0, 0.0}, tiny = {0x1p-126, 0.0};

/* Whether the slot is kept as float32. */
static int is_plain(const struct scalars *a, int slot) { return a->b->plain >> slot & 1u; }

/* A scalar formed in double by a few operations. */
static struct qm_ball in_double(double x) { return (struct qm_ball){x, 0x1p-48 * fabs(x)}; }

/* Element i of the gradient; sanitized: 0 where it is not finite. */
static struct qm_ball gradient(const struct scalars *a, int64_t i, int sanitized)
{
    double g = a->b->h->maximize ? -a->b->g[i] : a->b->g[i];
    return qm_ball_exact(sanitized && !isfinite(g) ? 0.0 : g);
}

/* Records a new state.  Where the package deviates from the formula the midpoint of v is wanted. */
static struct qm_ball set_state(const struct scalars *a, int slot, int64_t i, struct qm_ball v,
                                int deviates)
{
    if (a->own || deviates)
        a->b->want[slot][i] = v.x;
    return qm_bound_set(a->b, slot, i, v);
}

/* One element of an average of squares; w: the weight of the new square x. */
static struct qm_ball average_square(const struct scalars *a, int slot, double w,
                                     struct qm_ball old, struct qm_ball x)
{
    int sum = slot == V && is_plain(a, slot) && !a->is_apollo;
    struct qm_beta beta = qm_bound_weight(a->b, w, !sum);
    if (!a->is_cuda || is_plain(a, slot))
        return qm_bound_average_or_any(&beta, old, x);
    x = isfinite(x.x) && !isnan(x.e) ? qm_ball_max(x, tiny) : tiny;
    struct qm_ball keep = qm_ball_add(one, qm_ball_negated(beta.weight));
    return qm_ball_max(qm_ball_add(qm_ball_mul(old, keep), qm_ball_mul(beta.weight, x)), tiny);
}

/* Whether the package keeps this second moment at or above 2^-126. */
static int has_floor(const struct scalars *a, int slot) { return a->is_cuda && !is_plain(a, slot); }

static struct qm_ball average_moment(const struct scalars *a, struct qm_ball old, struct qm_ball x)
{
    struct qm_beta w = qm_bound_beta(a->b, a->b->h->beta1, !a->is_cuda);
    return qm_bound_average_or_any(&w, old, x);
}

/* Averages the row and column means of x, plus `add`, into slots row and col with weight w; r and c
 * get the new states. */
static void factor_states(const struct scalars *a, const struct qm_ball *x, double add, double w,
                          int row, int col, struct qm_ball *r, struct qm_ball *c)
{
    int64_t rows = a->m.batch * a->m.rows, cols = a->m.batch * a->m.cols;
    struct qm_ball e = qm_ball_scalar(add);
    qm_ball_row_means(a->b, &a->m, x, r);
    qm_ball_col_means(a->b, &a->m, x, c);
    qm_ball_sums_overflow(r, a->m.batch * a->m.rows, a->m.cols);
    qm_ball_sums_overflow(c, a->m.batch * a->m.cols, a->m.rows);
    /* the residual of a momentum that was stored before */
    int own = a->is_cuda && row == CONF_R;
    for (int64_t i = 0; i < rows; i++)
        r[i] = set_state(
            a, row, i, average_square(a, row, w, qm_bound_old(a->b, row, i), qm_ball_add(r[i], e)),
            own || has_floor(a, row));
    for (int64_t i = 0; i < cols; i++)
        c[i] = set_state(
            a, col, i, average_square(a, col, w, qm_bound_old(a->b, col, i), qm_ball_add(c[i], e)),
            own || has_floor(a, col));
}

/* x <- the states that the update of the parameter reads. */
static void use_stored(const struct scalars *a, int slot, int64_t n, struct qm_ball *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = qm_bound_stored(a->b, slot, i, x[i]);
}

/* Where the floor acts: TORCH on r and c; TORCH_CLAMPED (CAME's float32 states) on r before its
 * mean, too; KERNEL on the product r c / mean r. */
enum form { TORCH, TORCH_CLAMPED, KERNEL };

/* x / sqrt(V) of element (i, j), rounded to float32. */
static struct qm_ball over_root(const struct scalars *a, enum form form, struct qm_ball r,
                                struct qm_ball c, struct qm_ball mean, struct qm_ball x)
{
    const struct qm_bound_step *b = a->b;
    struct qm_ball least = qm_ball_exact(a->eps_sq), v;
    if (form == KERNEL) {
        v = qm_ball_div_double(b, qm_ball_mul_double(b, r, c), mean);
        v = qm_ball_max(v, qm_ball_exact(fmax(a->eps_sq, 0x1p-53)));
        v = qm_ball_div_double(b, one, qm_ball_sqrt_double(b, v));
        return qm_ball_float32(qm_ball_mul_double(b, x, v));
    }
    r = qm_ball_div_double(b, qm_ball_at_least(r, least), mean);
    c = qm_ball_at_least(c, least);
    return qm_bound_two_products(b, x, qm_bound_inverse_root(b, r, c), r, c);
}

/* The mean of the rows r of matrix k, at least eps1; TORCH_CLAMPED: r is floored before. */
static struct qm_ball mean_of(const struct scalars *a, struct qm_ball *row, enum form form,
                              int64_t k)
{
    struct qm_ball *r = row + k * a->m.rows;
    for (int64_t i = 0; i < a->m.rows && form == TORCH_CLAMPED; i++)
        r[i] = qm_ball_at_least(r[i], qm_ball_exact(a->eps_sq));
    struct qm_ball mean = qm_ball_mean(a->b, r, a->m.rows, 1);
    qm_ball_sums_overflow(&mean, 1, a->m.rows);
    return qm_ball_at_least(mean, qm_ball_exact(a->eps1));
}

/* x <- x / sqrt(V) in matrix k, V the factored second moment with mean `mean`, rounded
 * to float32. */
static void divide_matrix(const struct scalars *a, int64_t k, const struct qm_ball *row,
                          const struct qm_ball *col, enum form form, struct qm_ball mean,
                          struct qm_ball *x)
{
    const struct qm_ball *r = row + k * a->m.rows, *c = col + k * a->m.cols;
    for (int64_t i = 0; i < a->m.rows; i++)
        for (int64_t j = 0; j < a->m.cols; j++) {
            struct qm_ball *to = &x[(k * a->m.rows + i) * a->m.cols + j];
            *to = over_root(a, form, r[i], c[j], mean, *to);
        }
}

static void divide(const struct scalars *a, struct qm_ball *row, const struct qm_ball *col,
                   enum form form, struct qm_ball *x)
{
    for (int64_t k = 0; k < a->m.batch; k++)
        divide_matrix(a, k, row, col, form, mean_of(a, row, form, k), x);
}

/* ---- the step -------------------------------------------------------------------------------- */

/* The factor that the limiter puts on an update of this norm; records the limited norm in
 * slot NORM.  A norm that is not finite counts as 0 (0.2.5 and later). */
static struct qm_ball limit(const struct scalars *a, struct qm_ball norm)
{
    const struct qm_bound_step *b = a->b;
    struct qm_ball threshold = qm_ball_exact(1.0 + b->h->margin), by = one;
    double prev = b->slot[NORM][0];
    if (a->is_025 && !isfinite(norm.x))
        norm = qm_ball_exact(0.0);
    if (a->t > 1.0 && !(a->is_025 && prev < 1e-6)) {
        by = qm_ball_div_double(b, norm, in_double(prev + 1e-8));
        by = qm_ball_div_double(b, qm_ball_at_least(by, threshold), threshold);
    }
    (void)set_state(a, NORM, 0, qm_ball_float32(qm_ball_div_double(b, norm, by)), 1);
    return qm_ball_div_double(b, one, by);
}

/* alpha before the bias correction. */
static struct qm_ball rate_of(const struct scalars *a)
{
    const struct qm_bound_step *b = a->b;
    struct qm_ball *p = qm_balls_of(b->p, a->n), rate = {0.0, HUGE_VAL};
    if (!b->h->scale_parameter) {
        rate = in_double(a->rho);
    } else if (p) {
        rate = qm_ball_div_double(b, qm_bound_norm_of_floats(b, p, a->n, 1),
                                  in_double(sqrt((double)a->n)));
        rate = qm_ball_mul_double(b, qm_ball_at_least(rate, qm_ball_exact(b->h->eps2)),
                                  in_double(a->rho));
    }
    free(p);
    return rate;
}

/* theta <- theta (1 - decay) - rate u, rate the step size alpha with limiter (where limits) and
 * clipping, times `after`.  norm: of u. */
static void write_back(const struct scalars *a, struct qm_ball alpha, double clip, double after,
                       int limits, struct qm_ball norm, const struct qm_ball *u)
{
    const struct qm_bound_step *b = a->b;
    struct qm_ball by = limits ? limit(a, norm) : one, denom = one, size = norm;
    int is_stopped = limits && a->is_025 && !a->is_apollo && !isfinite(norm.x);
    if (is_stopped)
        norm = qm_ball_exact(0.0);
    struct qm_ball counted = a->is_026 ? norm : qm_ball_mul_double(b, norm, by);
    if (!a->is_046 || clip > 0.0)
        denom = qm_ball_div_double(b, counted, in_double(sqrt((double)a->n) * clip));
    denom = a->is_cuda && !a->is_apollo ? qm_ball_max(denom, one) : qm_ball_at_least(denom, one);
    struct qm_ball rate = qm_ball_mul_double(b, qm_ball_div_double(b, alpha, denom), by);
    struct qm_ball decay = b->h->scale_weight_decay ? alpha : in_double(a->rho);
    rate = qm_ball_float32(qm_ball_mul_double(b, rate, in_double(after)));
    for (int64_t i = 0; i < a->n; i++) {
        struct qm_ball step = is_stopped && !a->is_cuda ? qm_ball_exact(0.0) : u[i];
        step = qm_ball_mul(rate, step);
        struct qm_ball p = qm_adafactor8_written(b, b->p[i], decay, step);
        /* Of NaN that no input is, another order makes infinity, which as a norm stops the step. */
        if (isnan(size.x) && !a->has_nan)
            p = (struct qm_ball){0.0, HUGE_VAL};
        b->e_p[i] = p.e;
        if (a->own || a->is_cuda || a->unclipped || b->between || qm_bound_reads_back(b))
            b->p_want[i] = p.x;
        if (!(p.e < HUGE_VAL) && !(a->has_nan && isnan(p.x)))
            b->p_want[i] = 0.0; /* what may overflow has any sign, or is NaN in one order alone */
    }
}

/* ---- Adafactor and CAME ---------------------------------------------------------------------- */

/* CAME: the clipped direction u enters the momentum, (u - M)^2 the second pair of factors; then
 * u <- M / sqrt(V of the residuals).  x, r, c: work space. */
static void came_update(const struct scalars *a, struct qm_ball *u, struct qm_ball *x,
                        struct qm_ball *r, struct qm_ball *c)
{
    const struct qm_bound_step *b = a->b;
    struct qm_ball clip = qm_bound_norm_of_floats(b, u, a->n, 1);
    clip = qm_ball_div_double(b, clip, in_double(sqrt((double)a->n) * b->h->clip));
    clip = b->h->clip > 0.0 ? qm_ball_float32(qm_ball_at_least(clip, one)) : one;
    for (int64_t i = 0; i < a->n; i++) {
        struct qm_ball step = qm_ball_div(&b->reorder, u[i], clip), off;
        struct qm_ball seen = a->is_cuda && !isfinite(step.x) ? qm_ball_exact(0.0) : step;
        u[i] = set_state(a, M, i, average_moment(a, qm_bound_old(b, M, i), seen), a->is_cuda);
        if (a->is_cuda) /* the momentum is encoded before the residual is taken */
            u[i] = qm_bound_stored(b, M, i, u[i]);
        off = qm_ball_add(step, qm_ball_negated(u[i]));
        x[i] = qm_ball_add(qm_ball_mul(off, off), qm_ball_scalar(b->h->eps));
    }
    factor_states(a, x, 0.0, 1.0 - b->h->beta3, CONF_R, CONF_C, r, c);
    for (int64_t i = 0; i < a->n; i++)
        u[i] = qm_bound_stored(b, M, i, u[i]);
    use_stored(a, CONF_R, a->m.batch * a->m.rows, r);
    use_stored(a, CONF_C, a->m.batch * a->m.cols, c);
    divide(a, r, c, is_plain(a, CONF_R) ? TORCH_CLAMPED : a->is_cuda ? KERNEL : TORCH, u);
}

/* x <- max(x y, least). */
static void multiply(struct qm_ball *x, const struct qm_ball *y, int64_t n, double least)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = qm_ball_mul(x[i], y[i]);
        x[i] = qm_ball_at_least(x[i], qm_ball_exact(least));
    }
}

/* CAME before 0.2.6: u, the new momentum, becomes M / sqrt(V).  r, c: the new factors; x:
 * work space. */
static qm_status old_came_update(const struct scalars *a, struct qm_ball *u, struct qm_ball *x,
                                 struct qm_ball *r, struct qm_ball *c)
{
    const struct qm_bound_step *b = a->b;
    int64_t rows = a->m.batch * a->m.rows, cols = a->m.batch * a->m.cols;
    struct qm_ball *k_r = qm_balls(rows + cols + 2), *k_c = k_r + rows + 1;
    if (!k_r)
        return QM_NO_MEMORY;
    for (int64_t i = 0; i < a->n; i++) {
        struct qm_ball g = gradient(a, i, a->is_cuda && a->is_025);
        x[i] = qm_ball_add(g, qm_ball_negated(u[i]));
        if (!a->is_cuda && fabs(g.x) < 0x1p-62 && fabs(u[i].x) < 0x1p-62)
            x[i].e +=
                0x1p-74; /* the root of four halves of 2^-149, as three products are rounded */
    }
    divide(a, r, c, a->is_cuda ? KERNEL : TORCH, x);
    for (int64_t i = 0; i < a->n; i++)
        x[i] = qm_ball_mul(x[i], x[i]);
    for (int64_t k = 0; k < a->m.batch && !a->is_cuda; k++)
        qm_bound_open_products(b, k, mean_of(a, r, TORCH, k), a->eps_sq, r, c, u, x);
    factor_states(a, x, 0.0, 1.0 - b->h->beta3, CONF_R, CONF_C, k_r, k_c);
    use_stored(a, R, rows, r);
    use_stored(a, C, cols, c);
    use_stored(a, CONF_R, rows, k_r);
    use_stored(a, CONF_C, cols, k_c);
    for (int64_t i = 0; i < a->n; i++)
        u[i] = qm_bound_stored(b, M, i, u[i]);
    double least = a->is_cuda ? 0x1p-126 : (double)(float)a->eps_sq;
    multiply(r, k_r, rows, least);
    multiply(c, k_c, cols, least);
    if (!a->is_cuda) {
        divide(a, r, c, TORCH, u);
    } else { /* the means are taken before the factors are coded once more */
        struct qm_ball *mean = k_r;
        for (int64_t k = 0; k < a->m.batch; k++)
            mean[k] = mean_of(a, r, KERNEL, k);
        qm_bound_recoded(r, rows);
        qm_bound_recoded(c, cols);
        for (int64_t k = 0; k < a->m.batch; k++)
            divide_matrix(a, k, r, c, KERNEL, mean[k], u);
    }
    free(k_r);
    return QM_OK;
}

/* x <- sqrt(V) of vectors. */
static void unfactored(const struct scalars *a, struct qm_ball *x)
{
    int bare = is_plain(a, V);
    double floor = a->is_cuda ? fmax(a->eps_sq, 0x1p-53) : a->eps_sq;
    struct qm_ball e = qm_ball_scalar(a->is_026 && !bare ? a->eps1 : 0.0);
    for (int64_t i = 0; i < a->n; i++) {
        struct qm_ball g = gradient(a, i, 0), v = qm_ball_add(qm_ball_mul(g, g), e);
        struct qm_ball old = qm_bound_old(a->b, V, i);
        struct qm_beta w = qm_bound_weight(a->b, a->weight, 0);
        v = bare ? qm_bound_square(a->b, &w, old, g) : average_square(a, V, a->weight, old, v);
        v = set_state(a, V, i, v, has_floor(a, V) || (a->is_026 && bare));
        v = qm_bound_stored(a->b, V, i, v);
        v = a->is_cuda ? qm_ball_max(v, qm_ball_exact(floor))
                       : qm_ball_at_least(v, qm_ball_exact(floor));
        x[i] = qm_ball_sqrt_double(a->b, v);
    }
}

static qm_status plain_step(const struct scalars *a)
{
    const struct qm_bound_step *b = a->b;
    int64_t n = a->n;
    struct qm_ball *u = qm_balls(4 * n + 2), *x = u + n, *r = x + n, *c = r + n + 1;
    double clip = a->is_came && (a->unclipped || !b->h->clip_twice) ? 1e9 : b->h->clip;
    qm_status st = QM_OK;
    if (!u)
        return QM_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        struct qm_ball g = gradient(a, i, 0);
        u[i] = gradient(a, i, a->is_cuda && a->is_025 && !a->is_came);
        if (a->has_m && !a->is_came) {
            u[i] = average_moment(a, qm_bound_old(b, M, i), gradient(a, i, a->is_cuda));
            u[i] = set_state(a, M, i, u[i], 0);
            if (!a->is_old_came || a->is_cuda)
                u[i] = qm_bound_stored(b, M, i, u[i]);
        }
        x[i] = qm_ball_mul(g, g);
    }
    if (a->is_factored) {
        factor_states(a, x, a->is_026 ? a->eps1 : 0.0, a->weight, R, C, r, c);
        if (!(a->is_came || a->is_old_came) || a->is_cuda) {
            use_stored(a, R, a->m.batch * a->m.rows, r);
            use_stored(a, C, a->m.batch * a->m.cols, c);
        }
        if (a->is_old_came)
            st = old_came_update(a, u, x, r, c);
        else
            divide(a, r, c, a->is_cuda && !a->is_came ? KERNEL : TORCH, u);
        if (a->is_came)
            came_update(a, u, x, r, c);
    } else {
        unfactored(a, x);
        for (int64_t i = 0; i < n; i++)
            u[i] = qm_ball_float32(qm_ball_div_double(b, u[i], x[i]));
    }
    write_back(a, qm_ball_mul_double(b, rate_of(a), in_double(a->correction)), clip, 1.0,
               b->h->limiter, qm_bound_norm_of_floats(b, u, n, 1), u);
    free(u);
    return st;
}

/* ---- APOLLO ---------------------------------------------------------------------------------- */

/* A projected step: G P is rows x cols, its channels are its rows (right) or columns.  starts: V
 * starts again. */
struct projected {
    int right, starts;
    int64_t rank, rows, cols, n, channels;
    double eps;
    struct qm_ball *x, *v, *w, *r, *c;
};

static void project(const struct scalars *a, const struct projected *l, const double *p)
{
    int64_t rows = a->m.rows, cols = a->m.cols, inner = l->right ? cols : rows;
    for (int64_t i = 0; i < l->rows; i++)
        for (int64_t j = 0; j < l->cols; j++) {
            struct qm_ball sum = {0.0, 0.0};
            double size = 0.0;
            for (int64_t k = 0; k < inner; k++) {
                double g =
                    gradient(a, l->right ? i * cols + k : k * cols + j, a->is_025 || a->is_cuda).x;
                double term = g * (l->right ? p[j * cols + k] : p[k * l->rank + i]);
                sum.x += term;
                size += fabs(term);
            }
            sum.e = 0x1p-52 * (double)inner * size;
            sum = qm_ball_of_products(a->b, sum, size, inner);
            l->x[i * l->cols + j] = qm_ball_float32(sum);
        }
}

/* Averages of squares of rows and columns; every product and sum in float32. */
static void low_factors(const struct scalars *a, const struct projected *l)
{
    const struct qm_bound_step *b = a->b;
    double e = a->is_046 ? tiny.x : a->is_026 ? l->eps : 0.0, w = a->weight, keep = 1.0 - w;
    if (l->starts) {
        w = a->is_024 ? w : 1.0;
        keep = 0.0;
    }
    struct qm_ball by = qm_ball_scalar(w), old = qm_ball_scalar(keep);
    int has_least = l->starts && a->is_024 && !a->is_046;
    for (int axis = 0; axis < 2; axis++) {
        int64_t count = axis ? l->cols : l->rows, inner = axis ? l->rows : l->cols;
        struct qm_ball *to = axis ? l->c : l->r;
        for (int64_t i = 0; i < count; i++) {
            struct qm_ball n = qm_bound_norm_of_floats(b, axis ? l->x + i : l->x + i * l->cols,
                                                       inner, axis ? l->cols : 1);
            struct qm_ball s = qm_ball_mul_double(b, n, n);
            s = qm_ball_div_double(b, s, qm_ball_exact((double)inner));
            s = qm_ball_float32((struct qm_ball){s.x + e, s.e + 0x1p-52 * (s.x + e)});
            s = qm_ball_mul(by, s);
            if (!l->starts)
                s = qm_ball_add(qm_ball_mul(old, qm_bound_old(b, axis ? C : R, i)), s);
            if (has_least && !isnan(s.x))
                s = qm_ball_max(s, tiny);
            s = set_state(a, axis ? C : R, i, s, has_least);
            to[i] = qm_bound_stored(b, axis ? C : R, i, s);
        }
    }
}

/* V of every element, from the states that the update of the parameter reads, in double. */
static void second_moment(const struct scalars *a, const struct projected *l)
{
    const struct qm_bound_step *b = a->b;
    struct qm_ball e = qm_ball_scalar(a->is_026 && !a->is_046 ? l->eps : 0.0), mean;
    struct qm_ball first = qm_ball_scalar(a->is_024 ? a->weight : 1.0);
    if (b->h->factored) {
        low_factors(a, l);
        mean = qm_ball_mean(b, l->r, l->rows, 1);
        qm_ball_sums_overflow(&mean, 1, l->rows);
        mean = qm_ball_at_least(mean, qm_ball_exact(l->eps));
        for (int64_t i = 0; i < l->n; i++)
            l->v[i] = qm_ball_div(&b->reorder, qm_ball_mul(l->r[i / l->cols], l->c[i % l->cols]),
                                  qm_ball_float32(mean));
        return;
    }
    for (int64_t i = 0; i < l->n; i++) {
        struct qm_ball s = qm_ball_mul(l->x[i], l->x[i]);
        if (!l->starts)
            s = average_square(a, V, a->weight, qm_bound_old(b, V, i), qm_ball_add(s, e));
        else
            s = a->is_046 ? qm_ball_mul(first, s) : qm_ball_at_least(qm_ball_mul(first, s), tiny);
        s = qm_bound_stored(b, V, i, set_state(a, V, i, s, l->starts || has_floor(a, V)));
        l->v[i] = a->is_cuda ? qm_ball_max(s, qm_ball_exact(0x1p-53)) : s;
    }
}

/* |adapted| / (|x| + 1e-8) of channel k, or of the whole tensor (tensor_scale). */
static struct qm_ball channel_factor(const struct scalars *a, const struct projected *l, int64_t k)
{
    const struct qm_bound_step *b = a->b;
    int64_t from = l->right ? k * l->cols : k, step = l->right ? 1 : l->cols;
    int64_t n = l->right ? l->cols : l->rows;
    if (b->h->tensor_scale) {
        from = 0;
        step = 1;
        n = l->n;
    }
    struct qm_ball plain = qm_bound_norm_of_floats(b, l->x + from, n, step), by;
    plain.x += 1e-8;
    by = qm_ball_div_double(b, qm_bound_norm_of_floats(b, l->w + from, n, step),
                            qm_ball_round_double(b, plain));
    double front = b->h->scale_front ? sqrt(b->h->scale) : 1.0;
    return qm_ball_mul_double(b, by, in_double(a->is_046 ? front : a->correction * front));
}

/* w <- M / (sqrt(V) + eps). */
static void adapt_moments(const struct scalars *a, const struct projected *l)
{
    const struct qm_bound_step *b = a->b;
    for (int64_t i = 0; i < l->n; i++) {
        struct qm_ball m = l->x[i], den = qm_ball_sqrt_double(b, l->v[i]);
        if (a->has_m) {
            m = average_moment(a, a->is_026 ? qm_bound_old(b, M, i) : qm_ball_exact(0.0), m);
            m = qm_bound_stored(b, M, i, set_state(a, M, i, m, 0));
        }
        den.x += b->h->eps;
        l->w[i] = qm_ball_div_double(b, m, qm_ball_round_double(b, den));
    }
}

static qm_status apollo_step(const struct scalars *a)
{
    const struct qm_bound_step *b = a->b;
    const struct qm_oracle_hyper *h = b->h;
    struct projected l = {.right = a->m.rows >= a->m.cols, .rank = (int64_t)h->rank};
    int64_t gap = fabs(h->gap) >= 1.0 ? (int64_t)fabs(h->gap) : 1;
    l.rows = l.right ? a->m.rows : l.rank;
    l.cols = l.right ? l.rank : a->m.cols;
    l.n = l.rows * l.cols;
    l.channels = l.right ? l.rows : l.cols;
    l.eps = a->is_046 || h->eps1 < 0.0 ? h->eps : h->eps1;
    l.starts = a->t == 1.0 || (!a->is_026 && (b->t - 1) % gap == 0);
    int64_t n_p = l.rank * (l.right ? a->m.cols : a->m.rows);
    double *p = malloc(sizeof *p * (size_t)(n_p + 1));
    struct qm_ball *u = qm_balls(a->n + 3 * l.n + l.rows + l.cols + l.channels), *factor;
    if (!u || !p) {
        free(u);
        free(p);
        return qm_fail(QM_NO_MEMORY, "bounds of a projection");
    }
    l.x = u + a->n;
    l.v = l.x + l.n;
    l.w = l.v + l.n;
    l.r = l.w + l.n;
    l.c = l.r + l.rows;
    factor = l.c + l.cols;
    for (int64_t i = 0; i < n_p && h->gap < 0.0; i++)
        p[i] = b->slot[PROJ][i];
    if (!(h->gap < 0.0))
        qm_adafactor8_matrix(b->tensor, (b->t - 1) / gap, l.rank, n_p, p);
    project(a, &l, p);
    second_moment(a, &l);
    adapt_moments(a, &l);
    for (int64_t k = 0; k < l.channels; k++)
        factor[k] = channel_factor(a, &l, k);
    for (int64_t i = 0; i < a->n; i++)
        u[i] =
            qm_ball_float32(qm_ball_mul_double(b, factor[l.right ? i / a->m.cols : i % a->m.cols],
                                               gradient(a, i, a->is_025 || a->is_cuda)));
    double after = h->scale_front ? 1.0 : sqrt(h->scale);
    write_back(a, rate_of(a), h->clip, a->is_046 ? after * a->correction : after, h->margin >= 0.0,
               qm_bound_scaled_norm(b, factor, qm_bound_norm_of_floats(b, u, a->n, 1)), u);
    free(u);
    free(p);
    return QM_OK;
}

/* ---- all releases ---------------------------------------------------------------------------- */

/* Adam's bias correction where lr is given; 1 with relative_step. */
static double correction(const struct qm_oracle_hyper *h, double t, int corrects)
{
    double c = 1.0;
    if (h->beta1 >= 0.0 && !h->relative_step && corrects) {
        c = 1.0 / (1.0 - pow(h->beta1, t));
        if (h->beta2 >= 0.0)
            c *= sqrt(1.0 - pow(h->beta2, t));
    }
    return c;
}

static qm_status bound(const struct qm_bound_step *b, int release)
{
    const struct qm_oracle_hyper *h = b->h;
    int rank = b->shape->rank;
    int forgets = h->rank > 0.0 && rank >= 2 && h->factored && release >= 24 && release < 26;
    struct scalars a = {.b = b, .t = forgets ? 1.0 : (double)b->t, .n = b->n};
    a.is_024 = release >= 24;
    a.is_025 = release >= 25;
    a.is_026 = release >= 26;
    a.is_046 = release >= 46;
    a.has_m = h->beta1 >= 0.0;
    a.is_apollo = h->rank > 0.0 && rank >= 2;
    a.is_factored = !a.is_apollo && h->factored && rank >= 2;
    a.is_came = a.is_factored && h->beta3 > 0.0 && a.has_m && a.is_026;
    a.is_old_came = a.is_factored && h->beta3 > 0.0 && a.has_m && !a.is_026;
    /* no kernel has matrices whose second moments are float32 */
    a.is_cuda = (b->order & QM_ORDER_cuda) && !(a.is_factored && is_plain(&a, R));
    a.unclipped = a.is_came && h->clip_twice && is_plain(&a, CONF_R);
    a.eps1 = h->eps1 < 0.0 ? 0x1p-23 : h->eps1;
    a.eps_sq = fmax(a.eps1 * a.eps1, 0x1p-126);
    a.weight = h->beta2 >= 0.0 ? 1.0 - h->beta2 : pow(a.t, h->beta2_decay);
    a.rho = h->relative_step ? fmin(h->lr, 1.0 / sqrt(a.t)) : h->lr;
    a.correction = correction(h, a.t, !a.is_046 || h->correct_bias);
    a.m = qm_batch_of(b->shape);
    if (a.is_apollo)
        a.m = (struct qm_matrix_batch){1, b->shape->dim[0], a.n > 0 ? a.n / b->shape->dim[0] : 0,
                                       a.n};
    a.own = qm_bound_is_not_finite(b, a.n, SLOTS, &a.has_nan);
    if (a.n == 0)
        return QM_OK;
    return a.is_apollo ? apollo_step(&a) : plain_step(&a);
}

qm_status qm_bound_adafactor8_046_projected(const struct qm_bound_step *b) { return bound(b, 46); }
qm_status qm_bound_adafactor8(const struct qm_bound_step *b) { return bound(b, 26); }
qm_status qm_bound_adafactor8_021(const struct qm_bound_step *b) { return bound(b, 21); }
qm_status qm_bound_adafactor8_024(const struct qm_bound_step *b) { return bound(b, 24); }
qm_status qm_bound_adafactor8_025(const struct qm_bound_step *b) { return bound(b, 25); }
