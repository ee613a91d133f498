/* projection.c - Projects a matrix and scales channels; makes the projections by GSL. */
#include "oracle/rule/projection.h"

#include <gsl/gsl_eigen.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_rng.h>
#include <math.h>

#include "oracle/bound/factored_sums.h"

int qm_projection_of(const struct qm_oracle_hyper *h, int cut, const struct qm_shape *shape,
                     struct qm_projection *out)
{
    if (shape->rank != 2 || !(h->rank > 0.0) || qm_shape_numel(shape) < 1)
        return 0;
    int64_t m = shape->dim[0], n = shape->dim[1], least = m < n ? m : n;
    int64_t r = h->rank < 1.0 ? (int64_t)floor(h->rank * (double)least) : (int64_t)h->rank;
    if (r < 1)
        r = 1;
    if (cut && r > least)
        r = least;
    int right = m >= n; /* side 0: std */
    if (h->side == 1.0) /* reverse_std */
        right = !right;
    else if (h->side == 2.0)
        right = 1;
    else if (h->side == 3.0)
        right = 0;
    *out = (struct qm_projection){right, m, n, r, right ? m : r, right ? r : n};
    return 1;
}

/* sum over k of x[k step_x] y[k step_y] */
static double dot(const double *x, int64_t step_x, const double *y, int64_t step_y, int64_t n)
{
    struct qm_sum sum = {0.0, 0.0};
    for (int64_t k = 0; k < n; k++)
        qm_sum_add(&sum, x[k * step_x] * y[k * step_y]);
    return qm_sum_value(&sum);
}

void qm_project(const struct qm_projection *q, const double *g, const double *p, double *r)
{
    for (int64_t i = 0; i < q->rows; i++)
        for (int64_t j = 0; j < q->cols; j++)
            r[i * q->cols + j] = q->right ? dot(g + i * q->n, 1, p + j * q->n, 1, q->n)
                                          : dot(p + i, q->r, g + j, q->n, q->m);
}

void qm_project_back(const struct qm_projection *q, const double *x, const double *p, double alpha,
                     double *out)
{
    for (int64_t i = 0; i < q->m; i++)
        for (int64_t j = 0; j < q->n; j++) {
            const double *a = q->right ? x : p, *b = q->right ? p : x;
            out[i * q->n + j] = alpha * dot(a + i * q->r, 1, b + j, q->n, q->r);
        }
}

qm_status qm_project_scale(const struct qm_projection *q, int axis, const double *a,
                           const double *b, double *x)
{
    int64_t count = axis ? q->rows : q->cols, wanted = axis ? q->m : q->n;
    if (count != 1 && count != wanted)
        return qm_fail(QM_BAD_ARG, "%lld channel norms for %lld channels", (long long)count,
                       (long long)wanted);
    for (int64_t i = 0; i < q->m; i++)
        for (int64_t j = 0; j < q->n; j++) {
            int64_t k = count == 1 ? 0 : axis ? i : j;
            int64_t from = axis ? k * q->cols : k, step = axis ? 1 : q->cols;
            int64_t n = axis ? q->cols : q->rows;
            double top = qm_norm_of(a + from, n, step), low = qm_norm_of(b + from, n, step);
            x[i * q->n + j] = x[i * q->n + j] * (top / (low + 1e-8));
        }
    return QM_OK;
}

void qm_project_limit(double *x, int64_t n, double margin, int64_t t, double *prev)
{
    double norm = qm_norm_of(x, n, 1), gamma = 1.0 + margin, limiter = 1.0;
    if (t > 1)
        limiter = fmax(norm / (*prev + 1e-8), gamma) / gamma;
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] / limiter;
    *prev = norm / limiter;
}

/* ---- random matrices ------------------------------------------------------------------------- */

/* Two 32-bit words, the first one high. */
static uint64_t pair(gsl_rng *r)
{
    uint64_t high = gsl_rng_get(r);
    return (high << 32) + gsl_rng_get(r);
}

/* init_genrand(seed mod 2^32).  GSL replaces the seed 0 by its default, 4357; the words of its
 * state are then those that the seed 0 gives. */
static void seed(gsl_rng *r, uint64_t s)
{
    enum { WORDS = 624 };
    uint32_t low = (uint32_t)s;
    gsl_rng_set(r, low ? (unsigned long)low : 1ul);
    unsigned long *word = gsl_rng_state(r);
    for (uint32_t i = 1, last = 0; low == 0 && i < WORDS; i++) {
        last = 1812433253u * (last ^ last >> 30) + i;
        word[0] = 0;
        word[i] = last;
    }
}

/* n >= 16 normals, row-major, in blocks of 16 words x of 24 bits: x_j gives the radius and x_(j+8)
 * the angle of two normals (Box-Muller).  A last block of fewer than 16 is replaced by the block
 * that ends at n, which overwrites part of the one before. */
static void fill_blocks(gsl_rng *r, int64_t n, double *out)
{
    for (int64_t from = 0; from < n; from += 16) {
        int64_t start = from + 16 <= n ? from : n - 16;
        double x[16];
        for (int64_t k = 0; from + 16 > n && k < n - from; k++)
            (void)gsl_rng_get(r); /* drawn for the tail, then drawn anew */
        for (int k = 0; k < 16; k++)
            x[k] = (double)(gsl_rng_get(r) % 16777216u) / 16777216.0;
        for (int j = 0; j < 8; j++) {
            double rho = sqrt(-2.0 * log(1.0 - x[j])), phi = 2.0 * M_PI * x[j + 8];
            out[start + j] = (double)(float)(rho * cos(phi));
            out[start + j + 8] = (double)(float)(rho * sin(phi));
        }
    }
}

/* n < 16 normals: each pair from two words of 53 bits (Box-Muller). */
static void fill_pairs(gsl_rng *r, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i += 2) {
        double u1 = ldexp((double)(pair(r) % (UINT64_C(1) << 53)), -53);
        double u2 = ldexp((double)(pair(r) % (UINT64_C(1) << 53)), -53);
        double rho = sqrt(-2.0 * log1p(-u2));
        out[i] = (double)(float)(rho * cos(2.0 * M_PI * u1));
        if (i + 1 < n)
            out[i + 1] = (double)(float)(rho * sin(2.0 * M_PI * u1));
    }
}

/* Link k of a chain of seeds: link 0 is `first`, and the next one is the 15th 64-bit draw of the
 * generator seeded with the last one, mod 2^63 - 1.  Links that were computed are looked up: a
 * check asks for the links of a chain in any order, and link 2^18 is a second away from link 0. */
static uint64_t chained_seed(gsl_rng *r, uint64_t first, int64_t k)
{
    enum { LINKS = 128 };
    static _Thread_local struct link {
        uint64_t first, seed;
        int64_t k;
    } links[LINKS];
    static _Thread_local int oldest;
    struct link s = {first, first, 0};
    for (int i = 0; i < LINKS; i++)
        if (links[i].first == first && links[i].k <= k && links[i].k > s.k)
            s = links[i];
    if (s.k == k)
        return s.seed;
    for (; s.k < k; s.k++) {
        seed(r, s.seed);
        for (int i = 0; i < 15; i++)
            s.seed = pair(r) % ((UINT64_C(1) << 63) - 1);
    }
    links[oldest++ % LINKS] = s;
    return s.seed;
}

/* Matrix k of tensor number `tensor`, whose chain of seeds starts at tensor + 1. */
static qm_status random_matrix(const struct qm_projection *q, uint32_t tensor, int64_t k, double *p)
{
    int64_t n = q->r * (q->right ? q->n : q->m);
    gsl_rng *r = gsl_rng_alloc(gsl_rng_mt19937);
    if (!r)
        return qm_fail(QM_NO_MEMORY, "random generator");
    seed(r, chained_seed(r, (uint64_t)tensor + 1, k));
    if (n >= 16)
        fill_blocks(r, n, p);
    else
        fill_pairs(r, n, p);
    for (int64_t i = 0; i < n; i++)
        p[i] = (double)((float)p[i] / (float)sqrt((double)q->r));
    gsl_rng_free(r);
    return QM_OK;
}

/* ---- singular vectors ------------------------------------------------------------------------ */

/* P from the sorted eigenvectors: the r leading ones of G^T G as rows (right), or of G G^T as
 * columns (left), each with the sign that makes its first entry of largest magnitude positive. */
static void copy_vectors(const struct qm_projection *q, const gsl_matrix *vectors, double *p)
{
    for (int64_t i = 0; i < q->r; i++) {
        size_t k = vectors->size1, at = 0;
        for (size_t j = 0; j < k; j++)
            if (fabs(gsl_matrix_get(vectors, j, (size_t)i)) >
                fabs(gsl_matrix_get(vectors, at, (size_t)i)))
                at = j;
        double sign = gsl_matrix_get(vectors, at, (size_t)i) < 0.0 ? -1.0 : 1.0;
        for (size_t j = 0; j < k; j++) {
            double x = (double)(float)(sign * gsl_matrix_get(vectors, j, (size_t)i));
            p[q->right ? i * q->n + (int64_t)j : (int64_t)j * q->r + i] = x;
        }
    }
}

static qm_status singular_vectors(const struct qm_projection *q, const double *g, double *p)
{
    int64_t k = q->right ? q->n : q->m;
    gsl_error_handler_t *before = gsl_set_error_handler_off();
    gsl_matrix *gram = gsl_matrix_alloc((size_t)k, (size_t)k);
    gsl_matrix *vectors = gsl_matrix_alloc((size_t)k, (size_t)k);
    gsl_vector *values = gsl_vector_alloc((size_t)k);
    gsl_eigen_symmv_workspace *w = gsl_eigen_symmv_alloc((size_t)k);
    int failed = !gram || !vectors || !values || !w;
    for (int64_t i = 0; i < k && !failed; i++)
        for (int64_t j = 0; j < k; j++)
            gsl_matrix_set(gram, (size_t)i, (size_t)j,
                           q->right ? dot(g + i, q->n, g + j, q->n, q->m)
                                    : dot(g + i * q->n, 1, g + j * q->n, 1, q->n));
    failed = failed || gsl_eigen_symmv(gram, values, vectors, w) ||
             gsl_eigen_symmv_sort(values, vectors, GSL_EIGEN_SORT_VAL_DESC);
    if (!failed)
        copy_vectors(q, vectors, p);
    if (gram)
        gsl_matrix_free(gram);
    if (vectors)
        gsl_matrix_free(vectors);
    if (values)
        gsl_vector_free(values);
    if (w)
        gsl_eigen_symmv_free(w);
    gsl_set_error_handler(before);
    return failed ? qm_fail(QM_INTERNAL, "singular vectors of %lld x %lld", (long long)q->m,
                            (long long)q->n)
                  : QM_OK;
}

int qm_project_is_due(const struct qm_oracle_hyper *h, const struct qm_projection *q, int64_t t,
                      const double *p)
{
    int64_t gap = (int64_t)h->gap, n = q->r * (q->right ? q->n : q->m);
    return gap >= 1 && ((t - 1) % gap == 0 || !(qm_norm_of(p, n, 1) > 0.0));
}

qm_status qm_project_renew(const struct qm_oracle_hyper *h, int svd, const struct qm_projection *q,
                           const double *g, uint32_t tensor, int64_t t, double *p)
{
    if (!qm_project_is_due(h, q, t, p))
        return QM_OK;
    return svd ? singular_vectors(q, g, p) : random_matrix(q, tensor, (t - 1) / (int64_t)h->gap, p);
}
