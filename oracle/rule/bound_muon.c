/* bound_muon.c - The error bound of Muon, and the criterion for its orthogonal factor.
 *
 * Momentum and parameter are bounded as everywhere, in balls.  The factor O of five iterations in
 * bfloat16 is bounded in two ways; for each matrix the smaller one counts.
 *
 * 1. Balls through every product, sum and rounding.  A product of n terms may be summed in float32
 *    in any order: n u sum |terms|, and nothing where every partial sum is a float32 whatever the
 *    order.  While no rounding decision lies in a ball every later number is known to the bit, so
 *    small matrices and matrices of few bits are judged to the last bit of the factor.
 *
 * 2. Once a ball holds a rounding decision the balls grow by orders of magnitude an iteration,
 *    because the iteration magnifies small singular values up to 800 times.  So the factor is
 *    judged as a whole, by how far rounding moves it:  |O - f(X)|_F <= K d, where X is the start,
 *    bf16(U) over its norm, f the polynomials in exact arithmetic, and d the size of the difference
 *    to first order.  Iteration t adds to its result an error F_t, which the remaining ones f_t
 *    carry on.  In the basis of the singular vectors of X, with the singular values s_i of X_t, the
 *    symmetric part of entry i, j of F_t is multiplied by (f_t(s_i) - f_t(s_j)) / (s_i - s_j), the
 *    antisymmetric part by (f_t(s_i) + f_t(s_j)) / (s_i + s_j), and columns beyond the square part
 *    by f_t(s_i) / s_i (N. Higham, Functions of Matrices, theorem 3.11, and its analogue for
 *    singular values).  Roundings are taken for independent, each with the root mean square
 *    v = 2^-9 of its number (over a binade it is 0.85 of that), so that |F_t|_F^2 is a sum
 *    of squares and its entries are alike in any basis:
 *
 *        d^2 = sum over t of |F_t|_F^2 mean of the squares of those factors
 *
 *    K = 4 + 4 / k, k the shorter side, because the roundings of regular matrices are alike and add
 *    up, and those of few numbers are not independent: of 720 matrices with sides from 1 to 130
 *    (normal, low rank, constant, integers, 12 decades, sparse, unit), the largest |O - f(X)|_F / d
 *    was 0.8 for muon_lin and 2.7 for muon_bnb, of those of drawn cases 5.1 for k = 1 and 3.9
 *    above.  For normal matrices K d is about 15 % of |O|_F.
 *
 *    Roundings hardly add up along f(X) itself: g = <O - f(X), f(X)> / |f(X)|^2, by which the
 *    factor is longer, may be GAIN + ALONG / |f(X)|^2 and what an open norm moves.  Of 20,504
 *    matrices (three variants, four seeds of `qualm check`) the largest g |f(X)|^2 was 0.7, and
 *    where |f(X)|^2 is 90 or more g was at most 0.003.  A wrong coefficient is such a g.
 *
 *    Rows and columns are judged, too, where they are alike in X, their squares at most EVEN times
 *    their mean: d^2 is a sum over singular vectors u_i, the share of row r in that of u_i is
 *    u_ri^2, and so for columns.  They may be off by LINE K times the root of that: of 17,524 such
 *    matrices (three variants, seven seeds of `qualm check`) the largest quotient without LINE was
 *    2.2 below k = 17 and 1.9 above, and 3.7 the least of 480 normal ones from k = 17 on of which
 *    a row or a column was missing.  Of rows of unlike sizes the larger ones are rounded by more
 *    than their share, so only the whole factor is judged there.
 *
 *    Entries are judged, too, where X is like a matrix of normal numbers (are_alike).  With the
 *    shares d_r of row r and d_c of column c an entry may be off by ENTRY K d_r d_c / d: of some
 *    15,000 such matrices (templates and re-writings, thirteen seeds of `qualm check`) the largest
 *    quotient without ENTRY was 2.2.  As K d is about 15 % of |O|_F for normal matrices, the root
 *    mean square of their entries is about 7 of it.
 *
 *    The verdict is put as a bound on each entry of the parameter: what it is off beyond its own
 *    rounding, times the least quotient of what the matrix, its row, its column and the entry may
 *    be off and are.  Whether the iterations round to bfloat16 is told only where balls tell it, in
 *    small matrices. */
#include "oracle/rule/muon.h"

#include <gsl/gsl_eigen.h>
#include <gsl/gsl_errno.h>
#include <stdlib.h>
#include <string.h>

#define V     0x1p-9 /* root mean square of a rounding to bfloat16, relative */
#define K(k)  (4.0 + 4.0 / (double)(k))
#define LINE  3.5 /* times K: of rows and columns */
#define EVEN  4.0
#define ENTRY 4.0    /* times K: of entries */
#define GAIN  0x1p-7 /* of the length of the factor along f(X), beside ALONG / |f(X)|^2 */
#define ALONG 0.8

/* What one matrix needs; k <= n are its sides. */
struct factor {
    const struct qm_bound_step *b;
    const struct qm_muon_kind *kind;
    struct qm_muon_shape s;
    int64_t k, n;
    int norm_is_open;                      /* 1: the norm may be rounded either way */
    struct qm_ball *x, *bx, *a, *aa, *sum; /* [k n] twice, [k k] three times */
    double *exact, *room;                  /* f(X) [k n]; 2 k k + k n numbers */
    /* d^2 by left and by right singular vector, what columns beyond the square part have each, the
     * squared shifts of the singular values by an open norm; left vectors [k][k], in columns. */
    double *left, *right, beyond, *shift, *vectors;
    double *row, *col, *row_off, *col_off; /* what rows and columns may be off by, and are */
    double *of_row, *row_shift, *of_col, *col_share; /* rows' d^2 and shift, columns' d^2, share */
    double whole;                                    /* d^2 of all; 0: entries are not judged */
};

/* ---- 1. balls -------------------------------------------------------------------------------- */

/* The exponent of the lowest set bit of a bfloat16 x that is not 0. */
static int low_bit(double x)
{
    int e;
    int64_t m = (int64_t)ldexp(frexp(fabs(x), &e), 8);
    for (e -= 8; m > 0 && m % 2 == 0; m /= 2)
        e++;
    return e;
}

/* sum over k of x[k] y[k step], rounded to float32 in any order. */
static struct qm_ball dot(const struct qm_ball *x, const struct qm_ball *y, int64_t step, int64_t n)
{
    enum { FEW = 16 }; /* terms; more are seldom exact in every order */
    double sum = 0.0, size = 0.0, e = 0.0;
    int low = n > FEW ? -1000 : 1 << 20, terms = 0;
    for (int64_t k = 0; k < n; k++) {
        const struct qm_ball *a = &x[k], *c = &y[k * step];
        double p = a->x * c->x;
        sum += p;
        size += fabs(p);
        e += fabs(a->x) * c->e + fabs(c->x) * a->e + a->e * c->e;
        terms += p != 0.0;
        if (p != 0.0 && e == 0.0 && n <= FEW && low_bit(a->x) + low_bit(c->x) < low)
            low = low_bit(a->x) + low_bit(c->x);
    }
    if (e == 0.0 && (terms <= 1 || (low >= -149 && size < ldexp(1.0, low + 24))))
        return qm_ball_exact(sum);
    e += ((double)n * QM_U + (double)n * 0x1p-53) * (size + e) * (1.0 + 0x1p-10);
    return (struct qm_ball){sum, e + (double)n * QM_ETA};
}

static struct qm_ball narrow(struct qm_ball x) { return qm_ball_round_to(&qm_muon_bf16, x); }

/* c x + d y as the kind rounds it. */
static struct qm_ball blend(const struct factor *f, double c, struct qm_ball x, double d,
                            struct qm_ball y)
{
    struct qm_ball left = qm_ball_mul(qm_ball_scalar(c), x);
    struct qm_ball right = d == 1.0 ? y : qm_ball_mul(qm_ball_scalar(d), y);
    if (!f->kind->rounds_all)
        return narrow(qm_ball_add(left, right));
    return narrow(qm_ball_add(narrow(left), narrow(right)));
}

/* X <- the iterations in balls; 0 where a ball outgrew its number, so that they say nothing. */
static int iterate_balls(const struct factor *f)
{
    int64_t k = f->k, n = f->n;
    for (int t = 0; t < QM_MUON_ITERATIONS; t++) {
        const double *c = f->kind->triple[t];
        double most = 0.0;
        for (int64_t i = 0; i < k * k; i++)
            f->a[i] = narrow(dot(f->x + i / k * n, f->x + i % k * n, 1, n));
        for (int64_t i = 0; i < k * k; i++) {
            f->aa[i] = dot(f->a + i / k * k, f->a + i % k, k, k);
            if (f->kind->rounds_all)
                f->aa[i] = narrow(f->aa[i]);
            f->sum[i] = blend(f, c[1], f->a[i], c[2], f->aa[i]);
        }
        for (int64_t i = 0; i < k * n; i++) {
            f->bx[i] = dot(f->sum + i / n * k, f->x + i % n, n, k);
            if (f->kind->rounds_all)
                f->bx[i] = narrow(f->bx[i]);
        }
        for (int64_t i = 0; i < k * n; i++) {
            f->x[i] = blend(f, c[0], f->x[i], 1.0, f->bx[i]);
            most = fmax(most, f->x[i].e);
        }
        if (!(most < 0.25)) /* entries of a factor are below 1.3 */
            return 0;
    }
    return 1;
}

/* ---- 2. the whole factor --------------------------------------------------------------------- */

static double squares(const double *x, int64_t n, double power)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += pow(x[i], 2.0 * power);
    return sum;
}

static double polynomial(const double *c, double s)
{
    return s * (c[0] + s * s * (c[1] + s * s * c[2]));
}

/* (p(s) - p(t)) / (s - t); with -t it is (p(s) + p(t)) / (s + t), with t = 0 p(s) / s. */
static double quotient(const double *c, double s, double t)
{
    double ss = s * s, tt = t * t, st = s * t;
    return c[0] + c[1] * (ss + st + tt) + c[2] * (ss * ss + ss * st + ss * tt + st * tt + tt * tt);
}

/* |F_t|_F^2 of an iteration with singular values s before it and next behind it. */
static double added(const struct factor *f, const double *c, const double *s, const double *next)
{
    int64_t k = f->k;
    double kk = (double)k, a = squares(s, k, 2.0), b = 0.0, bs = 0.0, mean = 0.0;
    for (int64_t i = 0; i < k; i++) {
        double v = s[i] * s[i] * (c[1] + c[2] * s[i] * s[i]);
        b += v * v;
        bs += v * v * s[i] * s[i];
        for (int64_t j = 0; j < k; j++) {
            double by = c[1] + c[2] * (s[i] * s[i] + s[j] * s[j]);
            mean += by * by / (kk * kk);
        }
    }
    double e = mean * a + b; /* of B, in units of V^2 */
    if (f->kind->rounds_all)
        e += 2.0 * c[2] * c[2] * squares(s, k, 4.0) + c[1] * c[1] * a;
    double sum = e * squares(s, k, 1.0) / kk + squares(next, k, 1.0);
    if (f->kind->rounds_all)
        sum += c[0] * c[0] * squares(s, k, 1.0) + bs;
    return V * V * sum;
}

/* The singular values of X and its left singular vectors, by those of X X'.  room: k k. */
static qm_status singular_values(const struct factor *f, const double *x, double *s, double *room)
{
    int64_t k = f->k, n = f->n;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < k; j++) {
            double sum = 0.0;
            for (int64_t l = 0; l < n; l++)
                sum += x[i * n + l] * x[j * n + l];
            room[i * k + j] = sum;
        }
    gsl_error_handler_t *before = gsl_set_error_handler_off();
    gsl_eigen_symmv_workspace *w = gsl_eigen_symmv_alloc((size_t)k);
    gsl_matrix_view a = gsl_matrix_view_array(room, (size_t)k, (size_t)k);
    gsl_matrix_view u = gsl_matrix_view_array(f->vectors, (size_t)k, (size_t)k);
    gsl_vector_view values = gsl_vector_view_array(s, (size_t)k);
    int failed = !w || gsl_eigen_symmv(&a.matrix, &values.vector, &u.matrix, w) != GSL_SUCCESS;
    if (w)
        gsl_eigen_symmv_free(w);
    gsl_set_error_handler(before);
    for (int64_t i = 0; i < k; i++)
        s[i] = sqrt(fmax(s[i], 0.0));
    return failed ? qm_fail(QM_INTERNAL, "eigenvalues of %lld", (long long)k) : QM_OK;
}

/* Adds errors of variance v of all entries, whose parts the iterations behind multiply by one, two
 * and last, to the parts of d^2. */
static void carry(struct factor *f, const double *one, const double *two, const double *last,
                  double v)
{
    int64_t k = f->k;
    for (int64_t i = 0; i < k; i++) {
        double square = 0.0;
        for (int64_t j = i * k; j < (i + 1) * k; j++)
            square += 0.5 * (one[j] * one[j] + two[j] * two[j]);
        f->left[i] += v * (square + (double)(f->n - k) * last[i] * last[i]);
        f->right[i] += v * square;
        f->beyond += v * last[i] * last[i];
    }
}

static double sum_of(const double *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* K d of the factor whose start has the singular values s[0 .. k - 1]; s holds six times k numbers,
 * one_two 2 k k.  flips: |changes of the start by its own open roundings|_F^2. */
static double allowed(struct factor *f, double *s, double *one_two, double flips)
{
    int64_t k = f->k;
    double *one = one_two, *two = one + k * k, *last = f->room, entries = (double)(k * f->n);
    f->beyond = 0.0;
    for (int t = 0; t < QM_MUON_ITERATIONS; t++)
        for (int64_t i = 0; i < k; i++)
            s[(t + 1) * k + i] = polynomial(f->kind->triple[t], s[t * k + i]);
    const double *end = s + QM_MUON_ITERATIONS * k;
    for (int64_t i = 0; i < k; i++) {
        double z = s[i] * (1.0 + 0x1p-7);
        for (int t = 0; t < QM_MUON_ITERATIONS; t++)
            z = polynomial(f->kind->triple[t], z);
        f->shift[i] = f->norm_is_open ? (z - end[i]) * (z - end[i]) : 0.0;
        /* the scaled update is rounded, too */
        f->left[i] = f->right[i] = f->kind->rounds_all ? V * V * end[i] * end[i] : 0.0;
        last[i] = 1.0;
    }
    for (int64_t i = 0; i < k * k; i++)
        one[i] = two[i] = 1.0;
    for (int t = QM_MUON_ITERATIONS; t > 0; t--) {
        const double *c = f->kind->triple[t - 1], *at = s + (t - 1) * k;
        carry(f, one, two, last, added(f, c, at, at + k) / entries);
        for (int64_t i = 0; i < k * k; i++) {
            one[i] *= quotient(c, at[i / k], at[i % k]);
            two[i] *= quotient(c, at[i / k], -at[i % k]);
        }
        for (int64_t i = 0; i < k; i++)
            last[i] *= quotient(c, at[i], 0.0);
    }
    if (f->norm_is_open) /* the start is longer or shorter by one step, and rounded anew */
        flips += V * V * squares(s, k, 1.0);
    carry(f, one, two, last, flips / entries);
    return K(k) * sqrt(sum_of(f->left, k)) + sqrt(sum_of(f->shift, k));
}

/* Whether all lines of X have squares of at most EVEN times their mean; step: from one element of a
 * line to the next, next: from a line to the next. */
static int are_even(const double *x, int64_t lines, int64_t next, int64_t n, int64_t step)
{
    double sum = 0.0, most = 0.0;
    for (int64_t i = 0; i < lines; i++) {
        double of_line = 0.0;
        for (int64_t j = 0; j < n; j++)
            of_line += x[i * next + j * step] * x[i * next + j * step];
        sum += of_line;
        most = fmax(most, of_line);
    }
    return most * (double)lines <= EVEN * sum;
}

/* Whether X is like a matrix of normal numbers: its sides are beyond 16, its largest square is no
 * larger than that of so many, and it has no few directions, (sum s^2)^2 >= k sum s^4 / 4. */
static int are_alike(const struct factor *f, const double *x, const double *s)
{
    double most = 0.0, sum = squares(s, f->k, 1.0), fourth = 0.0, size = (double)(f->k * f->n);
    for (int64_t i = 0; i < f->k * f->n; i++)
        most = fmax(most, x[i] * x[i]);
    for (int64_t i = 0; i < f->k; i++)
        fourth += s[i] * s[i] * s[i] * s[i];
    return f->k > 16 && most * size <= (4.0 + 2.5 * log(size)) * sum &&
           4.0 * sum * sum >= (double)f->k * fourth;
}

/* What each row and column of the factor may be off by.  x: its start, with singular values s.
 * Right singular vectors of values near 0 are not known: each column may have all of theirs. */
static void allowed_lines(struct factor *f, const double *x, const double *s)
{
    int64_t k = f->k, n = f->n;
    int is_even = are_even(x, k, n, n, 1) && are_even(x, n, 1, k, n);
    double most = 0.0;
    for (int64_t i = 0; i < k; i++) {
        double d = is_even ? 0.0 : HUGE_VAL, shift = 0.0;
        most = fmax(most, s[i]);
        for (int64_t j = 0; j < k; j++) {
            double u = f->vectors[i * k + j];
            d += u * u * f->left[j];
            shift += u * u * f->shift[j];
        }
        f->row[i] = LINE * K(k) * sqrt(d) + sqrt(shift);
        f->of_row[i] = d;
        f->row_shift[i] = shift;
    }
    for (int64_t c = 0; c < n; c++) {
        double d = is_even ? 0.0 : HUGE_VAL, shift = 0.0, rest = 1.0;
        for (int64_t j = 0; j < k; j++) {
            double v = 0.0;
            for (int64_t i = 0; i < k; i++)
                v += x[i * n + c] * f->vectors[i * k + j];
            v = s[j] > 0x1p-20 * most ? v / s[j] : 1.0;
            d += v * v * f->right[j];
            shift += v * v * f->shift[j];
            rest -= v * v;
        }
        d += fmax(rest, 0.0) * f->beyond;
        f->col[c] = LINE * K(k) * sqrt(d) + sqrt(shift);
        f->of_col[c] = d;
        f->col_share[c] = fmin(1.0 - rest, 1.0);
    }
    f->whole = is_even && are_alike(f, x, s) ? sum_of(f->left, k) : 0.0;
}

/* Memory for spreads, one array for all; NULL: there is none. */
static double *spreads(struct factor *f)
{
    double *at = malloc((size_t)(7 * f->k + f->k * f->k + 4 * f->n) * sizeof *at);
    f->left = at;
    f->right = at + f->k;
    f->shift = f->right + f->k;
    f->row = f->shift + f->k;
    f->row_off = f->row + f->k;
    f->vectors = f->row_off + f->k;
    f->col = f->vectors + f->k * f->k;
    f->col_off = f->col + f->n;
    f->of_col = f->col_off + f->n;
    f->col_share = f->of_col + f->n;
    f->of_row = f->col_share + f->n;
    f->row_shift = f->of_row + f->k;
    return at;
}

qm_status qm_muon_spread(const struct qm_muon_kind *kind, int64_t k, int64_t n, const double *x,
                         double *d)
{
    struct factor f = {.kind = kind, .k = k, .n = n};
    double *s = malloc((size_t)(6 * k + 4 * k * k + k * n) * sizeof *s), *lines = spreads(&f);
    qm_status st = s && lines ? QM_OK
                              : qm_fail(QM_NO_MEMORY, "singular values of %lld x %lld",
                                        (long long)k, (long long)n);
    if (st == QM_OK) {
        f.room = s + 6 * k + 2 * k * k;
        st = singular_values(&f, x, s, f.room);
    }
    if (st == QM_OK)
        *d = allowed(&f, s, s + 6 * k, 0.0) / K(k);
    free(s);
    free(lines);
    return st;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* The balls of the start X of the matrix at element `at`; 0 where it may overflow, is not finite,
 * or where its squares, which a judged side may add up in float32, may lose bits. */
static int start(struct factor *f, int64_t at)
{
    const struct qm_bound_step *b = f->b;
    const struct qm_muon_shape *s = &f->s;
    struct qm_ball mu = qm_ball_scalar(b->h->momentum), eps = qm_ball_scalar(b->h->eps), norm;
    int64_t size = s->rows * s->cols;
    int is_finite = 1;
    double sum = 0.0;
    for (int64_t i = 0; i < size; i++) {
        struct qm_ball g = qm_ball_exact(b->g[at + i]), old = qm_bound_old(b, 0, at + i), m, u;
        m = qm_bound_new(b, 0, at + i, qm_ball_add(qm_ball_mul(mu, old), g));
        u = narrow(b->h->nesterov ? qm_ball_add(qm_ball_mul(mu, m), g) : m);
        f->bx[i] = u;
        is_finite &= isfinite(u.x) && u.e < HUGE_VAL;
        sum += u.x * u.x;
    }
    /* where squares are summed in float32 these must not overflow, nor lose their bits */
    if (!is_finite || !(sum < 0x1p100) || (b->reorder.tree && sum > 0.0 && sum < 0x1p-80))
        return 0;
    norm = narrow(qm_ball_float32(qm_ball_norm(b, f->bx, size, 1)));
    if (f->kind->rounds_all)
        norm = narrow(qm_ball_add(norm, eps));
    else
        norm = qm_ball_at_least(norm, narrow(eps));
    f->norm_is_open = norm.e > 0.0;
    if (norm.e > 0x1p-6 * norm.x) /* by more than a step: squares that are small lose bits */
        return 0;
    for (int64_t i = 0; i < size; i++) {
        int64_t to = s->rows > s->cols ? i % s->cols * s->rows + i / s->cols : i;
        f->x[to] = narrow(qm_ball_div(&b->reorder, f->bx[i], norm));
        is_finite &= isfinite(f->x[to].x) && f->x[to].e < HUGE_VAL;
    }
    return is_finite;
}

/* The element of the parameter from entry o of the factor. */
static struct qm_ball updated(const struct factor *f, int64_t i, struct qm_ball o)
{
    const struct qm_oracle_hyper *h = f->b->h;
    struct qm_ball lr = qm_ball_scalar(h->lr), wd = qm_ball_scalar(h->weight_decay), u, p;
    struct qm_ball decay = qm_bound_one_minus(f->b, h->lr, h->weight_decay);
    struct qm_ball by = qm_ball_scalar(h->lr * f->s.ratio);
    if (f->kind->rounds_all) { /* its scalars are products of float32 numbers */
        decay = qm_ball_either(
            qm_ball_add(qm_ball_exact(1.0), qm_ball_negated(qm_ball_mul(lr, wd))), decay);
        by = qm_ball_either(qm_ball_mul(lr, qm_ball_scalar(f->s.ratio)), by);
    }
    p = qm_bound_decayed(f->b, qm_ball_exact(f->b->p[i]), decay, h->lr, h->weight_decay);
    u = qm_ball_mul(by, o);
    if (f->b->reorder.fold) /* lr meets the scaled factor */
        u = qm_ball_either(u, qm_ball_mul(lr, qm_ball_mul(qm_ball_scalar(f->s.ratio), o)));
    return qm_bound_stepped(f->b, qm_ball_exact(f->b->p[i]), p, h->lr, h->weight_decay,
                            f->kind->rounds_all ? narrow(u) : u);
}

/* By how much entry i of the parameter is off its rounding bound; 0: it is within, or not known. */
static double excess(const struct qm_bound_step *b, int64_t i)
{
    double off = b->p_seen ? fabs((double)b->p_seen[i] - b->p_want[i]) - b->e_p[i] : 0.0;
    return off < 0.0 ? 0.0 : off;
}

/* The entry of the factor, as wide as it is long or wider, that entry i of the matrix has. */
static int64_t entry_of(const struct factor *f, int64_t i)
{
    const struct qm_muon_shape *s = &f->s;
    return s->rows > s->cols ? i % s->cols * s->rows + i / s->cols : i;
}

/* What entry c of row r may be off by. */
static double allowed_entry(const struct factor *f, int64_t r, int64_t c)
{
    return f->whole > 0.0 ? ENTRY * K(f->k) * sqrt(f->of_row[r] * f->of_col[c] / f->whole) +
                                sqrt(f->row_shift[r] * f->col_share[c])
                          : HUGE_VAL;
}

/* Puts the verdict on the whole factor, its rows and its columns as bounds on the entries of the
 * matrix at `at`. */
static void judge_whole(const struct factor *f, int64_t at, double most)
{
    const struct qm_bound_step *b = f->b;
    int64_t size = f->k * f->n, n = f->n;
    double rate = b->h->lr * f->s.ratio, by = fabs(rate), whole = 0.0, along = 0.0, square = 0.0;
    memset(f->row_off, 0, sizeof *f->row_off * (size_t)f->k);
    memset(f->col_off, 0, sizeof *f->col_off * (size_t)n);
    for (int64_t i = 0; i < size; i++) {
        int64_t from = entry_of(f, i);
        struct qm_ball p = updated(f, at + i, qm_ball_exact(f->exact[from]));
        b->p_want[at + i] = p.x;
        b->e_p[at + i] = p.e;
        double off = excess(b, at + i);
        f->row_off[from / n] += off * off;
        f->col_off[from % n] += off * off;
        whole += off * off;
        if (b->p_seen)
            along -= ((double)b->p_seen[at + i] < b->p_want[at + i] ? -off : off) / rate *
                     f->exact[from];
        square += f->exact[from] * f->exact[from];
    }
    double length = GAIN + ALONG / square + sqrt(sum_of(f->shift, f->k) / square);
    for (int64_t i = 0; i < size; i++) {
        int64_t from = entry_of(f, i);
        double off = excess(b, at + i), share = most * by / sqrt(whole);
        if (fabs(along) > length * square)
            share = fmin(share, length * square / fabs(along));
        share = fmin(share, f->row[from / n] * by / sqrt(f->row_off[from / n]));
        share = fmin(share, f->col[from % n] * by / sqrt(f->col_off[from % n]));
        share = fmin(share, allowed_entry(f, from / n, from % n) * by / off);
        b->e_p[at + i] += !b->p_seen ? most * by : off > 0.0 ? off * share : 0.0;
    }
}

/* For a matrix of which nothing is known but whether it has a NaN or an infinity; then all of its
 * factor is NaN.  Where the stored momentum is read back, that decides, not the oracle's. */
static void leave_open(const struct factor *f, int64_t at)
{
    int64_t size = f->k * f->n;
    int is_finite = 1;
    for (int64_t i = 0; i < size; i++)
        is_finite &= isfinite(f->bx[i].x);
    for (int64_t i = at; i < at + size; i++) {
        f->b->e_p[i] = HUGE_VAL;
        if (qm_bound_reads_back(f->b))
            f->b->p_want[i] = is_finite ? f->b->p[i] : (double)NAN;
    }
}

/* Bounds the parameter of the matrix at element `at`. */
static qm_status matrix(struct factor *f, int64_t at)
{
    int64_t k = f->k, n = f->n, size = k * n;
    double flips = 0.0, wide = 0.0, *s = f->exact + size, *one_two = s + 6 * k;
    if (!start(f, at)) {
        leave_open(f, at);
        return QM_OK;
    }
    for (int64_t i = 0; i < size; i++) {
        f->exact[i] = f->x[i].x;
        flips += f->x[i].e * f->x[i].e;
    }
    QM_TRY(singular_values(f, f->exact, s, f->room));
    double most = allowed(f, s, one_two, f->norm_is_open ? 0.0 : flips);
    allowed_lines(f, f->exact, s);
    int is_known = iterate_balls(f);
    for (int64_t i = 0; i < size && is_known; i++)
        wide += f->x[i].e * f->x[i].e;
    if (!is_known || sqrt(wide) > most) {
        qm_muon_iterate(f->kind, QM_MUON_ITERATIONS, 0, k, n, f->exact, f->room);
        judge_whole(f, at, most);
        return QM_OK;
    }
    for (int64_t i = 0; i < size; i++) {
        int64_t from = f->s.rows > f->s.cols ? i % f->s.cols * f->s.rows + i / f->s.cols : i;
        struct qm_ball p = updated(f, at + i, f->x[from]);
        f->b->p_want[at + i] = p.x;
        f->b->e_p[at + i] = p.e;
    }
    return QM_OK;
}

qm_status qm_muon_bound(const struct qm_bound_step *b, const struct qm_muon_kind *kind)
{
    struct factor f = {.b = b, .kind = kind};
    QM_TRY(qm_muon_shape_of(kind, b->h, b->shape, &f.s));
    f.k = f.s.rows < f.s.cols ? f.s.rows : f.s.cols;
    f.n = f.s.rows + f.s.cols - f.k;
    int64_t size = f.k * f.n, square = f.k * f.k;
    if (size == 0)
        return QM_OK;
    f.x = qm_balls(2 * size + 3 * square);
    f.exact = malloc((size_t)(2 * size + 4 * square + 6 * f.k) * sizeof *f.exact);
    double *lines = spreads(&f);
    qm_status st = f.x && f.exact && lines ? QM_OK : QM_NO_MEMORY;
    if (st == QM_OK) {
        f.bx = f.x + size;
        f.a = f.bx + size;
        f.aa = f.a + square;
        f.sum = f.aa + square;
        f.room = f.exact + size + 6 * f.k + 2 * square;
    }
    for (int64_t at = 0; at < f.s.batch * size && st == QM_OK; at += size)
        st = matrix(&f, at);
    free(f.x);
    free(f.exact);
    free(lines);
    return st;
}
