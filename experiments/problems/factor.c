/* factor.c - Problem `factor`: weighted matrix factorisation.
 *
 * f(U, V) = 1/2 ||D_r (U V' - M) D_c||_F^2, U m x r, V n x r, D_r = diag 10^(-2 i / (m - 1)), D_c =
 * diag 10^(-2 j / (n - 1)), M m x n normals by data_seed (portable generator).  With the residual
 * E = D_r (U V' - M) D_c the gradients are D_r E D_c V and D_c E' D_r U.
 *
 * The floor is 1/2 sum_{i > r} sigma_i(D_r M D_c)^2: C. Eckart, G. Young, Psychometrika 1 (1936)
 * 211, exact because the weights are separable; every other critical point is a saddle.  The seed
 * chooses the start U, V = 0.1 N(0, 1) (0 is a saddle); the gradient is exact. */
#include "experiments/cli/key_value_args.h"
#include "experiments/network/dense.h"
#include "experiments/network/layers.h"
#include "experiments/problems/problem.h"
#include "experiments/source/distribution.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_linalg.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char defaults[] = "m=48,n=32,r=4,data_seed=12345";

static const struct qm_arg known[] = {
    {.key = "m", .lo = 1, .hi = 4096, .whole = 1, .text = "rows of the matrix"},
    {.key = "n", .lo = 1, .hi = 4096, .whole = 1, .text = "its columns, at most m"},
    {.key = "r", .lo = 1, .hi = 4096, .whole = 1, .text = "rank of the factors, at most n"},
    QM_DATA_SEED_ARG,
};
enum { ARGS = sizeof known / sizeof *known };

struct factor {
    int64_t m, n, r;
    uint64_t seed;
    double *target;     /* m x n: D_r M D_c */
    double *row, *col;  /* m, n: the weights */
    double *residual;   /* m x n, scratch */
    double *left;       /* m x r: D_r U, scratch */
    double *right;      /* n x r: D_c V, scratch */
    double *transposed; /* r x n, scratch */
    double *best;       /* (m + n) x r */
    double floor;
};

static double weight_of(int64_t i, int64_t n)
{
    return pow(10, n > 1 ? -2 * (double)i / (double)(n - 1) : 0);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void factor_close(void *self)
{
    struct factor *s = self;
    if (!s)
        return;
    free(s->target);
    free(s);
}

static qm_status make_data(struct factor *s, uint32_t data_seed)
{
    void *data;
    QM_TRY(qm_data_open(data_seed, &data));
    qm_data_normals(data, s->m * s->n, s->target);
    qm_data_close(data);
    for (int64_t i = 0; i < s->m; i++)
        s->row[i] = weight_of(i, s->m);
    for (int64_t j = 0; j < s->n; j++)
        s->col[j] = weight_of(j, s->n);
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < s->n; j++)
            s->target[i * s->n + j] *= s->row[i] * s->col[j];
    return QM_OK;
}

/* Sets the floor and the minimiser by the singular value decomposition of Golub and Reinsch, which
 * needs m >= n.  (GSL's Jacobi method stops 1e-9 short at 256 x 128.) */
static qm_status solve(struct factor *s)
{
    size_t m = (size_t)s->m, n = (size_t)s->n;
    gsl_set_error_handler_off(); /* by default it aborts */
    gsl_matrix *a = gsl_matrix_alloc(m, n), *q = gsl_matrix_alloc(n, n);
    gsl_vector *sigma = gsl_vector_alloc(n), *work = gsl_vector_alloc(n);
    qm_status st = QM_OK;
    if (!a || !q || !sigma || !work)
        st = qm_fail(QM_NO_MEMORY, "factor: SVD of %zu x %zu", m, n);
    if (st == QM_OK) {
        memcpy(a->data, s->target, m * n * sizeof *s->target);
        if (gsl_linalg_SV_decomp(a, q, sigma, work))
            st = qm_fail(QM_INTERNAL, "factor: no singular value decomposition");
    }
    for (int64_t k = 0; st == QM_OK && k < s->n; k++) {
        double value = gsl_vector_get(sigma, (size_t)k);
        if (k >= s->r) {
            s->floor += 0.5 * value * value;
            continue;
        }
        for (int64_t i = 0; i < s->m; i++)
            s->best[i * s->r + k] =
                sqrt(value) * gsl_matrix_get(a, (size_t)i, (size_t)k) / s->row[i];
        for (int64_t j = 0; j < s->n; j++)
            s->best[(s->m + j) * s->r + k] =
                sqrt(value) * gsl_matrix_get(q, (size_t)j, (size_t)k) / s->col[j];
    }
    gsl_matrix_free(a);
    gsl_matrix_free(q);
    gsl_vector_free(sigma);
    gsl_vector_free(work);
    return st;
}

static qm_status factor_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                             struct qm_shape *shapes)
{
    double value[ARGS];
    QM_TRY(qm_args_read("factor", defaults, args, known, ARGS, value));
    int64_t m = (int64_t)value[0], n = (int64_t)value[1], r = (int64_t)value[2];
    if (n > m || r > n)
        return qm_fail(QM_BAD_ARG, "factor: m=%lld,n=%lld,r=%lld, expected m >= n >= r",
                       (long long)m, (long long)n, (long long)r);
    struct factor *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "factor");
    s->m = m;
    s->n = n;
    s->r = r;
    s->seed = seed;
    s->target = malloc((size_t)(2 * m * n + m + n + (2 * m + 3 * n) * r) * sizeof *s->target);
    qm_status st = s->target ? QM_OK : qm_fail(QM_NO_MEMORY, "factor: data");
    if (st == QM_OK) {
        s->residual = s->target + m * n;
        s->row = s->residual + m * n;
        s->col = s->row + m;
        s->left = s->col + n;
        s->right = s->left + m * r;
        s->transposed = s->right + n * r;
        s->best = s->transposed + n * r;
        st = make_data(s, (uint32_t)value[3]);
    }
    if (st == QM_OK)
        st = solve(s);
    if (st != QM_OK) {
        factor_close(s);
        return st;
    }
    *self = s;
    *n_tensors = 2;
    shapes[0] = (struct qm_shape){.rank = 2, .dim = {m, r}};
    shapes[1] = (struct qm_shape){.rank = 2, .dim = {n, r}};
    return QM_OK;
}

/* ---- the problem ----------------------------------------------------------------------------- */

static void factor_start(void *self, double *x)
{
    struct factor *s = self;
    int64_t numel = (s->m + s->n) * s->r;
    qm_normals(s->seed, QM_STREAM_start, 0, 0, numel, x);
    for (int64_t i = 0; i < numel; i++)
        x[i] *= 0.1;
}

/* out[rows x r] = diag(weight) x; out may be x. */
static void weighted(const double *weight, const double *x, int64_t rows, int64_t r, double *out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < r; k++)
            out[i * r + k] = weight[i] * x[i * r + k];
}

static double factor_eval(void *self, const double *x, int64_t t, double *grad)
{
    struct factor *s = self;
    int64_t m = s->m, n = s->n, r = s->r;
    double sum = 0;
    (void)t;
    weighted(s->row, x, m, r, s->left);
    weighted(s->col, x + m * r, n, r, s->right);
    qm_dense_transpose(s->right, r, n, r, s->transposed);
    for (int64_t i = 0; i < m * n; i++)
        s->residual[i] = -s->target[i];
    qm_dense_add(s->left, s->transposed, s->residual, m, r, n);
    for (int64_t i = 0; i < m * n; i++)
        sum += s->residual[i] * s->residual[i];
    if (!grad)
        return 0.5 * sum;
    memset(grad, 0, (size_t)((m + n) * r) * sizeof *grad);
    qm_dense_add(s->residual, s->right, grad, m, n, r);
    qm_dense_add_left(s->residual, s->left, grad + m * r, n, m, r);
    weighted(s->row, grad, m, r, grad);
    weighted(s->col, grad + m * r, n, r, grad + m * r);
    return 0.5 * sum;
}

static double factor_optimum(void *self) { return ((struct factor *)self)->floor; }

static void factor_argmin(void *self, double *x)
{
    struct factor *s = self;
    memcpy(x, s->best, (size_t)((s->m + s->n) * s->r) * sizeof *x);
}

const struct qm_problem qm_problem_factor = {
    .name = "factor",
    .summary = "weighted matrix factorisation, rows and columns over 2 decades each; deterministic",
    .source = "C. Eckart, G. Young, Psychometrika 1 (1936) 211; the floor by singular values",
    .args = defaults,
    .arg = known,
    .n_args = ARGS,
    .open = factor_open,
    .start = factor_start,
    .eval = factor_eval,
    .gives_loss = qm_problem_gives_loss,
    .optimum = factor_optimum,
    .argmin = factor_argmin,
    .expected = qm_problem_unexpected,
    .close = factor_close,
    .steps = 1000,
    .lr_adamw = 0.00316227766,
    .lr_sgdm = 0.1,
    .lr_lion = 0.00316227766,
};
