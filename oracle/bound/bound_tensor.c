/* bound_tensor.c - Sums, means, norms and factored second moments in balls. */
#include "oracle/bound/bound_tensor.h"

#include <float.h>
#include <stdlib.h>

#define DOUBLE 0x1p-53 /* unit roundoff of double */

struct qm_ball qm_ball_mul_double(const struct qm_bound_step *b, struct qm_ball x, struct qm_ball y)
{
    double e = fabs(x.x) * y.e + fabs(y.x) * x.e + x.e * y.e;
    if (qm_ball_is_open(x, y, x.x * y.x))
        return QM_BALL_UNKNOWN;
    return qm_ball_round_double(b, (struct qm_ball){x.x * y.x, e});
}

struct qm_ball qm_ball_div_double(const struct qm_bound_step *b, struct qm_ball x, struct qm_ball y)
{
    double least = fabs(y.x) - y.e, q = x.x / y.x;
    if (qm_ball_is_open(x, y, q))
        return QM_BALL_UNKNOWN;
    double e = least > 0.0 ? (x.e + fabs(q) * y.e) / least : HUGE_VAL;
    if (b->reorder.tree && b->reorder.recip) /* in float32, by a rounded reciprocal */
        e = least < 0x1p-128 ? HUGE_VAL : e + QM_U * (fabs(q) + e) + QM_ETA * (fabs(x.x) + x.e);
    return qm_ball_round_double(b, (struct qm_ball){q, e});
}

struct qm_ball qm_ball_sqrt_double(const struct qm_bound_step *b, struct qm_ball x)
{
    double r = sqrt(x.x), low = x.x > x.e ? sqrt(x.x - x.e) : 0.0;
    return qm_ball_round_double(b, (struct qm_ball){r, fmax(r - low, sqrt(x.x + x.e) - r)});
}

struct qm_ball qm_ball_max(struct qm_ball a, struct qm_ball b)
{
    struct qm_ball top = a.x > b.x || isnan(b.x) ? a : b, other = a.x > b.x ? b : a;
    if (isnan(a.x) || isnan(b.x))
        return top;
    if (other.x + other.e <= top.x - top.e)
        return top;
    return (struct qm_ball){top.x, fmax(top.e, other.x + other.e - top.x)};
}

struct qm_ball qm_ball_at_least(struct qm_ball x, struct qm_ball least)
{
    return isnan(x.x) ? x : qm_ball_max(x, least);
}

/* The depth of the deepest tree that the list of re-orderings allows for n terms: 32 + n / 256
 * terms one after the other in each of many lanes, and the lanes pairwise. */
static double depth_of(int64_t n)
{
    int64_t depth = 32 + n / 256;
    for (int64_t k = 1; k < n; k *= 2)
        depth++;
    return (double)(depth < n - 1 ? depth : n - 1);
}

/* Adds the error of a sum in float32, of `roundings` more roundings of each term, where the judged
 * side may sum so.  Each partial sum is rounded once, and a term is part of `depth` of them.  A
 * partial sum is at most `size` and may overflow where that does. */
static struct qm_ball in_float_tree(const struct qm_bound_step *b, struct qm_ball sum, double size,
                                    int64_t n, int roundings)
{
    if (!b->reorder.tree)
        return sum;
    sum.e += (depth_of(n) + roundings) * QM_U * (size + sum.e) * (1.0 + 0x1p-10);
    sum.e += roundings * (double)n * QM_ETA;
    if (!(size + sum.e <= (double)FLT_MAX))
        sum.e = HUGE_VAL;
    return sum;
}

/* The sum x of n terms with sum |terms| = size, whose own errors add up to e: adds the error of n
 * additions in double and of float32 sums. */
static struct qm_ball with_summation_error(const struct qm_bound_step *b, double x, double e,
                                           double size, int64_t n)
{
    e += DOUBLE * (double)n * size;
    return in_float_tree(b, (struct qm_ball){x, e}, size, n, 0);
}

struct qm_ball qm_ball_of_products(const struct qm_bound_step *b, struct qm_ball sum, double size,
                                   int64_t n)
{
    return in_float_tree(b, sum, size, n, 1);
}

/* Sum of n balls from x on, `step` apart. */
static struct qm_ball ball_sum(const struct qm_bound_step *b, const struct qm_ball *x, int64_t n,
                               int64_t step)
{
    double sum = 0.0, e = 0.0, size = 0.0;
    int is_unknown = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i * step].x;
        size += fabs(x[i * step].x);
        e += x[i * step].e;
        is_unknown |= qm_ball_is_unknown(x[i * step]);
    }
    if (is_unknown && isinf(sum))
        return QM_BALL_UNKNOWN;
    return with_summation_error(b, sum, e, size, n);
}

struct qm_ball qm_ball_mean(const struct qm_bound_step *b, const struct qm_ball *x, int64_t n,
                            int64_t step)
{
    return qm_ball_div_double(b, ball_sum(b, x, n, step), qm_ball_exact((double)n));
}

struct qm_ball qm_ball_norm(const struct qm_bound_step *b, const struct qm_ball *x, int64_t n,
                            int64_t step)
{
    double sum = 0.0, e = 0.0;
    int is_unknown = 0;
    for (int64_t i = 0; i < n; i++) {
        double a = fabs(x[i * step].x), a_e = x[i * step].e;
        sum += a * a;
        e += (2.0 * a + a_e) * a_e;
        is_unknown |= qm_ball_is_unknown(x[i * step]);
    }
    if (is_unknown && isinf(sum)) /* NaN beside Inf is NaN */
        return QM_BALL_UNKNOWN;
    if (b->reorder.tree) /* the squares are rounded to float32 */
        e += QM_U * (sum + e) + (double)n * QM_ETA;
    else if (sum < (double)n * 0x1p-100) /* squares so small are counts of 2^-149 there */
        e += (double)n * QM_ETA;
    struct qm_ball squares = with_summation_error(b, sum, e, sum, n), norm;
    norm = qm_ball_sqrt_double(b, squares);
    if ((sum + squares.e) * (1.0 + 0x1p-20) > (double)FLT_MAX) /* the sources add up in float32 */
        norm.e = HUGE_VAL;
    return norm;
}

/* Every partial sum of a lane is rounded once (fma), and so is each of the seven additions at the
 * end; the last n mod 8 squares are added to the total of the lanes. */
struct qm_ball qm_ball_norm_in_lanes(const struct qm_bound_step *b, const struct qm_ball *x,
                                     int64_t n)
{
    struct qm_ball lane[8] = {{0.0, 0.0}}, sum = {0.0, 0.0};
    int64_t whole = n / 8 * 8;
    if (b->reorder.tree)
        return qm_ball_float32(qm_ball_norm(b, x, n, 1));
    for (int64_t i = 0; i < n; i++) {
        struct qm_ball *to = &lane[i < whole ? i % 8 : 0], square;
        if (i == whole) {
            for (int j = 1; j < 8; j++)
                lane[0] = qm_ball_add(lane[0], lane[j]);
        }
        square = (struct qm_ball){x[i].x * x[i].x, (2.0 * fabs(x[i].x) + x[i].e) * x[i].e};
        *to = qm_ball_is_open_sum(*to, square)
                  ? QM_BALL_UNKNOWN
                  : qm_ball_rounded(to->x + square.x, to->e + square.e, QM_ETA); /* fma */
    }
    sum = lane[0];
    if (n == whole)
        for (int j = 1; j < 8; j++)
            sum = qm_ball_add(sum, lane[j]);
    return qm_ball_sqrt(&b->reorder, sum);
}

struct qm_ball *qm_balls(int64_t n)
{
    struct qm_ball *p = calloc((size_t)(n > 0 ? n : 1), sizeof *p);
    if (!p)
        (void)qm_fail(QM_NO_MEMORY, "bounds of %lld elements", (long long)n);
    return p;
}

struct qm_ball *qm_balls_of(const double *x, int64_t n)
{
    struct qm_ball *p = qm_balls(n);
    for (int64_t i = 0; p && i < n; i++)
        p[i] = qm_ball_exact(x[i]);
    return p;
}

int qm_bound_reads_back(const struct qm_bound_step *b)
{
    int any = 0;
    for (int k = 0; k < QM_ORACLE_SLOTS && b->stored; k++)
        any |= b->stored[k] != NULL;
    return any;
}

/* ---- factored second moments ----------------------------------------------------------------- */

void qm_ball_row_means(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                       const struct qm_ball *x, struct qm_ball *row)
{
    for (int64_t i = 0; i < m->batch * m->rows; i++)
        row[i] = qm_ball_float32(qm_ball_mean(b, x + i * m->cols, m->cols, 1));
}

void qm_ball_col_means(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                       const struct qm_ball *x, struct qm_ball *col)
{
    for (int64_t k = 0; k < m->batch; k++)
        for (int64_t j = 0; j < m->cols; j++)
            col[k * m->cols + j] =
                qm_ball_float32(qm_ball_mean(b, x + k * m->rows * m->cols + j, m->rows, m->cols));
}

void qm_ball_average_slot(const struct qm_bound_step *b, int k, const struct qm_beta *w, int64_t n,
                          struct qm_ball *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = qm_bound_set(b, k, i, qm_bound_average(w, qm_bound_old(b, k, i), x[i]));
}

void qm_ball_factors_rsqrt(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                           const struct qm_ball *row, const struct qm_ball *col,
                           struct qm_ball *out)
{
    const struct qm_reorder *o = &b->reorder;
    const struct qm_ball one = {1.0, 0.0};
    for (int64_t k = 0; k < m->batch; k++) {
        const struct qm_ball *r = row + k * m->rows, *c = col + k * m->cols;
        struct qm_ball mean = qm_ball_float32(qm_ball_mean(b, r, m->rows, 1));
        qm_ball_sums_overflow(&mean, 1, m->rows);
        for (int64_t i = 0; i < m->rows; i++) {
            struct qm_ball by = qm_ball_div(o, one, qm_ball_sqrt(o, qm_ball_div(o, r[i], mean)));
            for (int64_t j = 0; j < m->cols; j++)
                out[(k * m->rows + i) * m->cols + j] =
                    qm_ball_mul(by, qm_ball_div(o, one, qm_ball_sqrt(o, c[j])));
        }
    }
}

struct qm_ball qm_ball_rms(const struct qm_bound_step *b, const struct qm_ball *x, int64_t n)
{
    return qm_ball_div(&b->reorder, qm_ball_float32(qm_ball_norm(b, x, n, 1)),
                       qm_ball_scalar(sqrt((double)n)));
}

void qm_ball_clip(const struct qm_bound_step *b, struct qm_ball *x, int64_t n, double clip)
{
    struct qm_ball by = qm_ball_div(&b->reorder, qm_ball_rms(b, x, n), qm_ball_scalar(clip));
    if (!isnan(by.x)) /* the sources keep a NaN */
        by = qm_ball_max(by, qm_ball_exact(1.0));
    for (int64_t i = 0; i < n; i++)
        x[i] = qm_ball_div(&b->reorder, x[i], by);
}
