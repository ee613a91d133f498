/* bound_tensor.c - sums, means and norms of pairs. */
#include "oracle/bound/bound_tensor.h"

#include <stdlib.h>

#define DOUBLE 0x1p-53 /* unit roundoff of double */

struct qm_pair qm_pair_wide_mul(const struct qm_bound_step *b, struct qm_pair x, struct qm_pair y)
{
    double e = fabs(x.x) * y.e + fabs(y.x) * x.e + x.e * y.e;
    return qm_pair_loose(b, (struct qm_pair){x.x * y.x, e});
}

struct qm_pair qm_pair_wide_over(const struct qm_bound_step *b, struct qm_pair x, struct qm_pair y)
{
    double least = fabs(y.x) - y.e, q = x.x / y.x;
    double e = least > 0.0 ? (x.e + fabs(q) * y.e) / least : HUGE_VAL;
    return qm_pair_loose(b, (struct qm_pair){q, e});
}

struct qm_pair qm_pair_wide_root(const struct qm_bound_step *b, struct qm_pair x)
{
    double r = sqrt(x.x), low = x.x > x.e ? sqrt(x.x - x.e) : 0.0;
    return qm_pair_loose(b, (struct qm_pair){r, fmax(r - low, sqrt(x.x + x.e) - r)});
}

struct qm_pair qm_pair_max(struct qm_pair a, struct qm_pair b)
{
    struct qm_pair top = a.x > b.x || isnan(b.x) ? a : b, other = a.x > b.x ? b : a;
    if (isnan(a.x) || isnan(b.x))
        return top;
    if (other.x + other.e <= top.x - top.e)
        return top;
    return (struct qm_pair){top.x, fmax(top.e, other.x + other.e - top.x)};
}

static int depth_of(const struct qm_bound_step *b, int64_t n)
{
    int depth = b->reorder.tree - 1;
    for (int64_t k = 1; k < n; k *= 2)
        depth++;
    return depth;
}

/* A sum of magnitudes `size` errs by e before it is added up. */
static struct qm_pair added(const struct qm_bound_step *b, double x, double e, double size,
                            int64_t n)
{
    e += DOUBLE * (double)n * size;
    if (b->reorder.tree > 0)
        e += (double)depth_of(b, n) * QM_U * (size + e);
    return (struct qm_pair){x, e};
}

struct qm_pair qm_pair_sum(const struct qm_bound_step *b, const struct qm_pair *x, int64_t n,
                           int64_t step)
{
    double sum = 0.0, e = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i * step].x;
        size += fabs(x[i * step].x);
        e += x[i * step].e;
    }
    return added(b, sum, e, size, n);
}

struct qm_pair qm_pair_mean(const struct qm_bound_step *b, const struct qm_pair *x, int64_t n,
                            int64_t step)
{
    return qm_pair_wide_over(b, qm_pair_sum(b, x, n, step), qm_pair_exact((double)n));
}

struct qm_pair qm_pair_norm(const struct qm_bound_step *b, const struct qm_pair *x, int64_t n,
                            int64_t step)
{
    double sum = 0.0, e = 0.0;
    int may_overflow = 0;
    for (int64_t i = 0; i < n; i++) {
        double a = fabs(x[i * step].x), a_e = x[i * step].e;
        sum += a * a;
        e += (2.0 * a + a_e) * a_e;
        may_overflow |= b->reorder.tree > 0 && a + a_e > 0x1p63;
    }
    if (b->reorder.tree > 0) /* the squares round */
        e += QM_U * (sum + e) + (double)n * QM_ETA;
    struct qm_pair squares = added(b, sum, may_overflow ? HUGE_VAL : e, sum, n);
    return qm_pair_wide_root(b, squares);
}

/* Each lane's partial sums are rounded once; so are the seven additions at the end. */
struct qm_pair qm_pair_norm_in_lanes(const struct qm_bound_step *b, const struct qm_pair *x,
                                     int64_t n)
{
    struct qm_pair lane[8] = {{0.0, 0.0}}, sum = {0.0, 0.0};
    int64_t whole = n / 8 * 8;
    if (b->reorder.tree > 0)
        return qm_pair_float(qm_pair_norm(b, x, n, 1));
    for (int64_t i = 0; i < n; i++) {
        struct qm_pair *to = &lane[i < whole ? i % 8 : 0], square;
        if (i == whole) {
            for (int j = 1; j < 8; j++)
                lane[0] = qm_pair_add(lane[0], lane[j]);
        }
        square = (struct qm_pair){x[i].x * x[i].x, (2.0 * fabs(x[i].x) + x[i].e) * x[i].e};
        *to = qm_pair_rounded(to->x + square.x, to->e + square.e, QM_ETA); /* fused */
    }
    sum = lane[0];
    if (n == whole)
        for (int j = 1; j < 8; j++)
            sum = qm_pair_add(sum, lane[j]);
    return qm_pair_root(&b->reorder, sum);
}

struct qm_pair *qm_pairs(int64_t n)
{
    struct qm_pair *p = calloc((size_t)(n > 0 ? n : 1), sizeof *p);
    if (!p)
        (void)qm_fail(QM_NO_MEMORY, "bounds of %lld elements", (long long)n);
    return p;
}

struct qm_pair *qm_pairs_of(const double *x, int64_t n)
{
    struct qm_pair *p = qm_pairs(n);
    for (int64_t i = 0; p && i < n; i++)
        p[i] = qm_pair_exact(x[i]);
    return p;
}

int qm_bound_reads_back(const struct qm_bound_step *b)
{
    int any = 0;
    for (int k = 0; k < QM_ORACLE_SLOTS && b->stored; k++)
        any |= b->stored[k] != NULL;
    return any;
}

/* ---- factored second moments ------------------------------------------------------------------- */

void qm_pair_row_means(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                       const struct qm_pair *x, struct qm_pair *row)
{
    for (int64_t i = 0; i < m->batch * m->rows; i++)
        row[i] = qm_pair_float(qm_pair_mean(b, x + i * m->cols, m->cols, 1));
}

void qm_pair_col_means(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                       const struct qm_pair *x, struct qm_pair *col)
{
    for (int64_t k = 0; k < m->batch; k++)
        for (int64_t j = 0; j < m->cols; j++)
            col[k * m->cols + j] =
                qm_pair_float(qm_pair_mean(b, x + k * m->rows * m->cols + j, m->rows, m->cols));
}

void qm_pair_average_slot(const struct qm_bound_step *b, int k, const struct qm_beta *w, int64_t n,
                          struct qm_pair *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = qm_fresh(b, k, i, qm_bound_average(w, qm_old(b, k, i), x[i]));
}

void qm_pair_factors_rsqrt(const struct qm_bound_step *b, const struct qm_matrix_batch *m,
                           const struct qm_pair *row, const struct qm_pair *col,
                           struct qm_pair *out)
{
    const struct qm_reorder *o = &b->reorder;
    const struct qm_pair one = {1.0, 0.0};
    for (int64_t k = 0; k < m->batch; k++) {
        const struct qm_pair *r = row + k * m->rows, *c = col + k * m->cols;
        struct qm_pair mean = qm_pair_float(qm_pair_mean(b, r, m->rows, 1));
        for (int64_t i = 0; i < m->rows; i++) {
            struct qm_pair by = qm_pair_over(o, one, qm_pair_root(o, qm_pair_over(o, r[i], mean)));
            for (int64_t j = 0; j < m->cols; j++)
                out[(k * m->rows + i) * m->cols + j] =
                    qm_pair_mul(by, qm_pair_over(o, one, qm_pair_root(o, c[j])));
        }
    }
}

struct qm_pair qm_pair_rms(const struct qm_bound_step *b, const struct qm_pair *x, int64_t n)
{
    return qm_pair_over(&b->reorder, qm_pair_float(qm_pair_norm(b, x, n, 1)),
                        qm_pair_scalar(sqrt((double)n)));
}

void qm_pair_clip(const struct qm_bound_step *b, struct qm_pair *x, int64_t n, double clip)
{
    struct qm_pair by = qm_pair_over(&b->reorder, qm_pair_rms(b, x, n), qm_pair_scalar(clip));
    if (!isnan(by.x)) /* the sources keep that one */
        by = qm_pair_max(by, qm_pair_exact(1.0));
    for (int64_t i = 0; i < n; i++)
        x[i] = qm_pair_over(&b->reorder, x[i], by);
}
