/* kronecker.c - The Kronecker factors of Shampoo in double: eigenvectors, inverse roots, errors.
 *
 *   X  <- V^T;  X <- 3/2 X - 1/2 X X^T X, rect_stat times       (Bjorck and Bowie, order 1)
 *   A   = beta X^T diag(ev) X + (1 - beta) G G^T                (arXiv:2405.18144, algorithm 1)
 *   Q R = A X^T;  ev <- diag(Q^T A Q),  V^T <- Q^T              (one step of subspace iteration)
 *   root = V diag((ev + eps max ev)^(-1/4)) V^T, V^T rectified rect_root times   (algorithm 2)
 *
 * Errors are normwise: a product of matrices x y with n inner terms is off by unit n |x| |y|. */
#include "oracle/rule/shampoo.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_linalg.h>
#include <stdlib.h>

#define SMALL 0x1p-6 /* larger turns of a vector are not first order */
/* Of the size of B: what is left of a column that depends on others is a rounding of double, up to
 * n 2^-53, for orders n up to 2^13. */
#define DEPENDENT 0x1p-40

int qm_kronecker_has(const struct qm_shape *shape)
{
    int larger = 0;
    for (int i = 0; i < shape->rank; i++)
        larger += shape->dim[i] > 1;
    return qm_shape_numel(shape) > 0 && larger >= 2;
}

struct qm_kronecker qm_kronecker_of(const struct qm_oracle_hyper *h, const struct qm_shape *shape)
{
    struct qm_kronecker k = {1, 1, 0, 0, 1, 1};
    int first = 0;
    while (first < shape->rank && shape->dim[first] == 1)
        first++;
    for (int i = first; i < shape->rank; i++)
        *(i == first ? &k.rows : &k.cols) *= shape->dim[i];
    k.m = (int64_t)fmin((double)k.rows, h->max_order);
    k.n = (int64_t)fmin((double)k.cols, h->max_order);
    k.down = k.rows / k.m + (k.rows % k.m > 0);
    k.across = k.cols / k.n + (k.cols % k.n > 0);
    return k;
}

/* ---- matrices -------------------------------------------------------------------------------- */

/* out[a][c] = x[a][b] y[b][c]; x_t: x is given as [b][a].  Each element is a sum over b in order; a
 * row's sums are taken side by side. */
static void times(const double *x, int x_t, const double *y, int64_t a, int64_t b, int64_t c,
                  double *out)
{
    int64_t across = x_t ? 1 : b, down = x_t ? a : 1;
    for (int64_t i = 0; i < a; i++) {
        double *restrict row = out + i * c;
        for (int64_t j = 0; j < c; j++)
            row[j] = 0.0;
        int64_t k = 0;
        for (; k + 4 <= b; k += 4) { /* four at a time, in order, for fewer stores */
            const double *at = x + i * across + k * down, *restrict from = y + k * c;
            const double by[] = {at[0], at[down], at[2 * down], at[3 * down]};
            for (int64_t j = 0; j < c; j++)
                row[j] = row[j] + by[0] * from[j] + by[1] * from[c + j] + by[2] * from[2 * c + j] +
                         by[3] * from[3 * c + j];
        }
        for (; k < b; k++) {
            const double by = x[i * across + k * down], *restrict from = y + k * c;
            for (int64_t j = 0; j < c; j++)
                row[j] += by * from[j];
        }
    }
}

/* out[c][r] = x[r][c]^T */
static void transpose(const double *x, int64_t r, int64_t c, double *out)
{
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < c; j++)
            out[j * r + i] = x[i * c + j];
}

static double norm(const double *x, int64_t n, int64_t step)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i * step] * x[i * step];
    return sqrt(sum);
}

/* At least the square of the largest singular value of X, whose gram matrix is X X^T. */
static double square_of_largest(int64_t n, const double *gram)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < n; j++)
            sum += fabs(gram[i * n + j]);
        most = sum > most || isnan(sum) ? sum : most;
    }
    return most;
}

/* At least the largest singular value of |X|: the root of the largest sum of a row times the
 * largest of a column.  column: room of n. */
static double largest_of_magnitudes(int64_t n, const double *x, double *column)
{
    double row = 0.0, most = 0.0;
    for (int64_t j = 0; j < n; j++)
        column[j] = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < n; j++) {
            sum += fabs(x[i * n + j]);
            column[j] += fabs(x[i * n + j]);
        }
        row = sum > row || isnan(sum) ? sum : row;
    }
    for (int64_t j = 0; j < n; j++)
        most = column[j] > most || isnan(column[j]) ? column[j] : most;
    return sqrt(row * most);
}

/* |M - I|, the norm of Frobenius. */
static double from_identity(int64_t n, const double *m)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            sum += pow(m[i * n + j] - (i == j ? 1.0 : 0.0), 2.0);
    return sqrt(sum);
}

/* X rectified; returns the Frobenius norm of its error.  An error E becomes
 * E / 2 + E (I - X^T X) / 2 + (I - X X^T) E / 2 - X E^T X / 2: at most 1 + 3/2 |X X^T - I| times as
 * large, or 3/2 and 3/2 of the square of the largest singular value.  room: 2 n n. */
static double rectify(int64_t n, int count, double unit, double *x, double *room)
{
    double error = 0.0, *gram = room, *cube = room + n * n;
    for (int t = 0; t < count; t++) {
        double size = norm(x, n * n, 1), magnitudes = largest_of_magnitudes(n, x, cube), most;
        transpose(x, n, n, cube);
        times(x, 0, cube, n, n, n, gram);
        most = square_of_largest(n, gram);
        double of_gram = norm(gram, n * n, 1), apart = from_identity(n, gram);
        times(gram, 0, x, n, n, n, cube);
        for (int64_t i = 0; i < n * n; i++)
            x[i] = 1.5 * x[i] - 0.5 * cube[i];
        double rounding = size * magnitudes * sqrt(most) + of_gram * magnitudes;
        error = error * fmin(1.5 + 1.5 * most, 1.0 + 1.5 * apart) +
                (double)(n + 4) * unit * 0.5 * rounding + 4.0 * unit * size * (1.0 + most);
    }
    return error;
}

/* x <- V^T, or the identity, and d <- ev, or matrix_eps as float32. */
static void start(const struct qm_oracle_hyper *h, int64_t n, const double *vt, const double *ev,
                  double *x, double *d)
{
    int any = 0;
    for (int64_t i = 0; i < n * n; i++)
        any |= vt[i] != 0.0;
    for (int64_t i = 0; i < n * n; i++)
        x[i] = any ? vt[i] : i / n == i % n ? 1.0 : 0.0;
    for (int64_t i = 0; i < n; i++)
        d[i] = any ? ev[i] : qm_round_float32(h->matrix_eps);
}

/* out = X^T diag(d) X; returns its error, given X's.  *most: at least the largest singular value of
 * X.  The rounding of the sums is of |X|^T |diag(d)| |X|, whose norm is at most the sum of |d_k|
 * times the square of row k.  room: n n. */
static double compose(int64_t n, const double *x, double e_x, const double *d, double unit,
                      double *room, double *out, double *most)
{
    double top = 0.0, sizes = 0.0;
    transpose(x, n, n, room);
    times(x, 0, room, n, n, n, out);
    *most = sqrt(square_of_largest(n, out));
    for (int64_t k = 0; k < n; k++) {
        top = fmax(top, fabs(d[k]));
        sizes += fabs(d[k]) * out[k * n + k];
        for (int64_t i = 0; i < n; i++)
            room[k * n + i] = d[k] * x[k * n + i];
    }
    times(x, 1, room, n, n, n, out);
    return top * (2.0 * *most * e_x + e_x * e_x) + (double)(n + 4) * unit * sizes;
}

/* ---- QR -------------------------------------------------------------------------------------- */

/* qr[n][n], a copy of B, becomes GSL's packed form; q and r its factors; tau[n]. */
static qm_status factorize(int64_t n, double *qr, double *tau, double *q, double *r)
{
    size_t k = (size_t)n;
    gsl_error_handler_t *before = gsl_set_error_handler_off();
    gsl_matrix_view packed = gsl_matrix_view_array(qr, k, k), vq = gsl_matrix_view_array(q, k, k);
    gsl_matrix_view vr = gsl_matrix_view_array(r, k, k);
    gsl_vector_view vt = gsl_vector_view_array(tau, k);
    int failed =
        gsl_linalg_QR_decomp(&packed.matrix, &vt.vector) != GSL_SUCCESS ||
        gsl_linalg_QR_unpack(&packed.matrix, &vt.vector, &vq.matrix, &vr.matrix) != GSL_SUCCESS;
    gsl_set_error_handler(before);
    return failed ? qm_fail(QM_INTERNAL, "QR of order %lld", (long long)n) : QM_OK;
}

/* From which columns of Q on something is not known, n: from none: the sign; the column itself, for
 * that of B depends on those before it, and a judged side may divide 0 by 0. */
struct open_columns {
    int64_t sign, all;
};

/* turn[j]: the error of column j of Q but for its sign, given that of B; HUGE_VAL: not small.  inv:
 * room of n n, for R^-1. */
static struct open_columns turns(int64_t n, const double *r, const double *tau, double error,
                                 double *inv, double *turn)
{
    double sum = 0.0, size = norm(r, n * n, 1);
    struct open_columns open = {n, n};
    for (int64_t j = 0; j < n; j++) {
        double of_column = 0.0, beta = r[j * n + j], alpha = beta * (1.0 - tau[j]);
        for (int64_t i = j; i >= 0; i--) {
            double x = i == j ? 1.0 : 0.0;
            for (int64_t k = i + 1; k <= j; k++)
                x -= r[i * n + k] * inv[k * n + j];
            inv[i * n + j] = x / r[i * n + i];
            of_column += inv[i * n + j] * inv[i * n + j];
        }
        double rest = tau[j] == 0.0 ? 0.0 : sqrt(fmax(0.0, beta * beta - alpha * alpha));
        double apart = error * (1.0 + sqrt(2.0 * sum) * fabs(beta));
        sum += of_column;
        int is_open = tau[j] != 0.0 && (!(fabs(alpha) > apart) || !(rest > apart));
        open.sign = is_open && open.sign == n ? j : open.sign;
        open.all = !(fabs(beta) > DEPENDENT * size) && open.all == n ? j : open.all;
        turn[j] = sqrt(2.0 * sum) * error;
        if (!(turn[j] < SMALL))
            turn[j] = HUGE_VAL;
    }
    return open;
}

/* ---- statistic and root ---------------------------------------------------------------------- */

/* A, its trace and the errors of A and of any q^T A q: that of A, (2 n + 4) unit |A| of its sums,
 * and as much because a computed q has length 1 within (n + 2) unit; how far such a number may be
 * below 0, because loaded eigenvalues are negative.  In float32 each product and sum that is
 * denormal rounds by QM_ETA in addition, 2 for each of the `inner` terms of G G^T and 4 for each of
 * the n terms of the two products of V^T d V, and of A q and q^T A q. */
struct average {
    const double *a;
    double trace, error, e_value, below;
};

/* ev, V^T and their errors from A, Q (as columns) and the turns of Q, whose signs are open from
 * column `signs` on.  y: room of n n, for A Q. */
static void take(int64_t n, const struct average *of, const double *q, const double *turn,
                 int64_t signs, double *y, const struct qm_eigenbasis *to)
{
    double size = norm(of->a, n * n, 1);
    times(of->a, 0, q, n, n, n, y);
    for (int64_t j = 0; j < n; j++) {
        double sum = 0.0, off = 0.0, along = 0.0;
        for (int64_t i = 0; i < n; i++)
            sum += q[i * n + j] * y[i * n + j];
        for (int64_t i = 0; i < n; i++)
            off += pow(y[i * n + j] - sum * q[i * n + j], 2.0);
        for (int64_t i = 0; i < n && to->judged && j >= signs; i++)
            along += q[i * n + j] * to->judged[j * n + i];
        for (int64_t i = 0; i < n; i++)
            to->vt[j * n + i] = along < 0.0 ? -q[i * n + j] : q[i * n + j];
        to->ev[j] = sum;
        to->e_vt[j] = j >= signs && !to->judged ? HUGE_VAL : turn[j];
        to->e_ev[j] = of->e_value + 2.0 * sqrt(off) * turn[j] + size * turn[j] * turn[j];
        if (!(to->e_ev[j] < HUGE_VAL))
            to->e_ev[j] = HUGE_VAL;
    }
}

/* What is known of rows before row `end` that turn by any angle: no number of theirs is above 1,
 * and their eigenvalues are not below 0 and add up with the others to the trace of A. */
static void enclose(int64_t n, int64_t end, const struct average *of, double unit,
                    const struct qm_eigenbasis *to)
{
    double least = of->below + of->e_value, rest = of->trace + (double)n * of->e_value;
    for (int64_t j = 0; j < n; j++)
        rest -= to->e_ev[j] < HUGE_VAL ? to->ev[j] - to->e_ev[j] : -least;
    for (int64_t j = 0; j < end && rest < HUGE_VAL && least < HUGE_VAL; j++) {
        for (int64_t i = 0; i < n && !(to->e_vt[j] < HUGE_VAL); i++)
            to->vt[j * n + i] = 0.0;
        if (!(to->e_vt[j] < HUGE_VAL))
            to->e_vt[j] = 1.0 + (double)(4 * n + 8) * unit;
        if (!(to->e_ev[j] < HUGE_VAL)) { /* from -least to rest - least */
            to->ev[j] = 0.5 * rest - least;
            to->e_ev[j] = fmax(0.5 * rest, 0.0);
        }
    }
}

qm_status qm_kronecker_statistic(const struct qm_oracle_hyper *h, int64_t n, int64_t inner,
                                 const double *g, double unit, const struct qm_eigenbasis *to)
{
    int64_t nn = n * n;
    double *x = malloc((size_t)(6 * nn + 3 * n + n * inner) * sizeof *x), beta = h->stat_decay;
    if (!x)
        return qm_fail(QM_NO_MEMORY, "oracle of order %lld", (long long)n);
    double *a = x + nn, *b = a + nn, *room = b + nn, *r = room + nn, *q = r + nn, *d = q + nn;
    double *tau = d + n, *turn = tau + n;
    start(h, n, to->vt, to->ev, x, d);
    int is_finite = isfinite(norm(x, nn, 1) + norm(d, n, 1) + norm(g, n * inner, 1));
    double e_x = rectify(n, (int)h->rect_stat, unit, x, room), most;
    struct average of = {.a = a};
    of.error = beta * compose(n, x, e_x, d, unit, room, a, &most);
    double of_g = norm(g, n * inner, 1);
    for (int64_t k = 0; k < n; k++)
        of.below += beta * fmax(-d[k], 0.0) * pow(norm(x + k * n, n, 1) + e_x, 2.0);
    transpose(g, n, inner, turn + n);
    times(g, 0, turn + n, n, inner, n, b);
    double of_old = norm(a, nn, 1); /* which A + (1 - beta) (G G^T - A) rounds at its own size */
    for (int64_t i = 0; i < nn; i++)
        a[i] = beta * a[i] + (1.0 - beta) * b[i];
    double of_a = norm(a, nn, 1);
    of.error += 2.0 * unit * (1.0 - beta) * of_old;
    of.error += (double)(inner + 4) * unit * (1.0 - beta) * of_g * of_g + 2.0 * unit * of_a;
    double below = unit >= QM_U ? (double)n * QM_ETA : 0.0; /* denormal sums of n n numbers */
    of.error += (double)(2 * inner + 4 * n + 8) * below;
    of.e_value = of.error + (double)(4 * n + 8) * (unit * of_a + below);
    for (int64_t i = 0; i < n; i++)
        of.trace += a[i * n + i];
    double magnitudes = largest_of_magnitudes(n, x, tau);
    transpose(x, n, n, room);
    times(a, 0, room, n, n, n, b);
    double e_b = of.error * (most + e_x) + of_a * e_x;
    e_b += (double)(n + 4) * unit * (of_a * magnitudes + 2.0 * norm(b, nn, 1));
    qm_status st = factorize(n, b, tau, q, r);
    if (st == QM_OK) {
        struct open_columns open = turns(n, r, tau, e_b, b, turn);
        take(n, &of, q, turn, open.sign, room, to);
        if (to->encloses)
            enclose(n, open.all, &of, unit, to);
    }
    int may_overflow = unit >= QM_U && !(of_g * of_g + of_a <= (double)FLT_MAX);
    for (int64_t j = 0; j < n && st == QM_OK && may_overflow; j++)
        to->e_vt[j] = to->e_ev[j] = HUGE_VAL; /* sums of squares in float32 */
    for (int64_t i = 0; i < nn && st == QM_OK && may_overflow && is_finite && to->encloses; i++)
        to->vt[i] = to->ev[i / n] = 0.0; /* which may not be NaN in another order */
    free(x);
    return st;
}

qm_status qm_kronecker_root(const struct qm_oracle_hyper *h, int64_t n, const double *vt,
                            const double *ev, double unit, double *root, double *e)
{
    int64_t nn = n * n;
    double *x = malloc((size_t)(3 * nn + n) * sizeof *x), most, least = 0.0;
    if (!x)
        return qm_fail(QM_NO_MEMORY, "oracle of order %lld", (long long)n);
    double *room = x + nn, *d = room + 2 * nn, size;
    start(h, n, vt, ev, x, d);
    double e_x = rectify(n, (int)h->rect_root, unit, x, room);
    most = d[0];
    for (int64_t i = 1; i < n; i++)
        most = isnan(most) || isnan(d[i]) ? (double)NAN : fmax(most, d[i]);
    for (int64_t i = 0; i < n; i++) {
        double of = d[i] + h->matrix_eps * most;
        double slack = 8.0 * unit * (fabs(d[i]) + fabs(h->matrix_eps * most));
        least = fmax(least, slack > 0.0 && fabs(of) <= 4.0 * slack ? HUGE_VAL
                            : of != 0.0                            ? slack / fabs(of)
                                                                   : 0.0);
        d[i] = pow(of, -0.25);
    }
    *e = compose(n, x, e_x, d, unit * 8.0 + least, room, root, &size);
    if (!(*e < HUGE_VAL))
        *e = HUGE_VAL;
    free(x);
    return QM_OK;
}
