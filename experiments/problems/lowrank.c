/* lowrank.c - Problem `lowrank`: multi-output linear regression with scaled features and outputs.
 *
 * f(W) = 1/(2n) ||X W - Y||_F^2, W p x q, one tensor.  X is n x p normals, column i times
 * 10^(-3 i / (p - 1)); Y = (X Wbar + 0.1 E) diag(10^(-2 j / (q - 1))).  Row i of the gradient
 * X'(X W - Y) / n has the scale of feature i and column j the scale of output j: the rank-1 pattern
 * that row, column and rank-1 scales are made for.
 *
 * The data (X, Wbar, E in this order, portable generator) depend on data_seed only.  The seed
 * chooses the start (init=normal: W = 0.01 N(0, 1); init=0: W = 0) and the rows of a minibatch:
 * batch=B > 0 draws B rows with replacement per step, so that the gradient is unbiased; batch=0
 * takes the exact gradient.  The plotted loss is f on all rows in both cases; its floor comes from
 * a QR decomposition of X. */
#include "experiments/cli/key_value_args.h"
#include "experiments/network/dense.h"
#include "experiments/problems/problem.h"
#include "experiments/source/distribution.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_linalg.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char defaults[] = "n=256,p=64,q=32,batch=0,init=normal,data_seed=12345";

static const struct qm_arg known[] = {
    {.key = "n", .lo = 1, .hi = 65536, .whole = 1, .text = "samples, at least p"},
    {.key = "p", .lo = 1, .hi = 4096, .whole = 1, .text = "features"},
    {.key = "q", .lo = 1, .hi = 4096, .whole = 1, .text = "outputs"},
    {.key = "batch",
     .lo = 0,
     .hi = 65536,
     .whole = 1,
     .text = "rows that a step draws; 0: all, the exact gradient"},
    {.key = "init", .words = "normal|0", .text = "start: normals of size 0.01, or 0"},
    QM_DATA_SEED_ARG,
};
enum { ARGS = sizeof known / sizeof *known };

struct lowrank {
    int64_t n, p, q, batch;
    uint64_t seed;
    int start_at_zero;
    double *x, *y;    /* n x p, n x q */
    double *residual; /* n x q, scratch */
    double *best;     /* p x q, the minimiser */
    double floor;
};

static double scale_of(double decades, int64_t i, int64_t n)
{
    return n > 1 ? pow(10, -decades * (double)i / (double)(n - 1)) : 1;
}

/* residual = X w - Y; returns f(w). */
static double residual_at(struct lowrank *s, const double *w)
{
    int64_t numel = s->n * s->q;
    double sum = 0;
    for (int64_t i = 0; i < numel; i++)
        s->residual[i] = -s->y[i];
    qm_dense_add(s->x, w, s->residual, s->n, s->p, s->q);
    for (int64_t i = 0; i < numel; i++)
        sum += s->residual[i] * s->residual[i];
    return sum / (2 * (double)s->n);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void lowrank_close(void *self)
{
    struct lowrank *s = self;
    if (!s)
        return;
    free(s->x);
    free(s);
}

/* Sets X and Y.  s->best holds Wbar and s->residual holds E meanwhile. */
static qm_status make_data(struct lowrank *s, uint32_t data_seed)
{
    void *data;
    QM_TRY(qm_data_open(data_seed, &data));
    qm_data_normals(data, s->n * s->p, s->x);
    qm_data_normals(data, s->p * s->q, s->best);
    qm_data_normals(data, s->n * s->q, s->residual);
    qm_data_close(data);
    for (int64_t i = 0; i < s->n * s->p; i++)
        s->x[i] *= scale_of(3, i % s->p, s->p);
    for (int64_t i = 0; i < s->n * s->q; i++)
        s->y[i] = 0.1 * s->residual[i];
    qm_dense_add(s->x, s->best, s->y, s->n, s->p, s->q);
    for (int64_t i = 0; i < s->n * s->q; i++)
        s->y[i] *= scale_of(2, i % s->q, s->q);
    return QM_OK;
}

/* Least squares by Householder QR, one column of Y at a time. */
static qm_status solve(struct lowrank *s)
{
    size_t n = (size_t)s->n, p = (size_t)s->p, q = (size_t)s->q;
    gsl_set_error_handler_off(); /* by default it aborts */
    gsl_matrix *a = gsl_matrix_alloc(n, p);
    gsl_vector *tau = gsl_vector_alloc(p), *rest = gsl_vector_alloc(n), *w = gsl_vector_alloc(p);
    qm_status st = QM_OK;
    if (!a || !tau || !rest || !w)
        st = qm_fail(QM_NO_MEMORY, "lowrank: QR of %zu x %zu", n, p);
    if (st == QM_OK) {
        memcpy(a->data, s->x, n * p * sizeof *s->x);
        gsl_linalg_QR_decomp(a, tau);
    }
    for (size_t j = 0; st == QM_OK && j < q; j++) {
        gsl_vector_const_view y = gsl_vector_const_view_array_with_stride(s->y + j, q, n);
        gsl_linalg_QR_lssolve(a, tau, &y.vector, w, rest);
        for (size_t i = 0; i < p; i++)
            s->best[i * q + j] = gsl_vector_get(w, i);
    }
    gsl_matrix_free(a);
    gsl_vector_free(tau);
    gsl_vector_free(rest);
    gsl_vector_free(w);
    s->floor = st == QM_OK ? residual_at(s, s->best) : (double)NAN;
    return st;
}

static qm_status lowrank_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                              struct qm_shape *shapes)
{
    double value[ARGS];
    QM_TRY(qm_args_read("lowrank", defaults, args, known, ARGS, value));
    int64_t n = (int64_t)value[0], p = (int64_t)value[1], q = (int64_t)value[2];
    if (p > n)
        return qm_fail(QM_BAD_ARG, "lowrank: p is %lld, expected at most n = %lld", (long long)p,
                       (long long)n);
    struct lowrank *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "lowrank");
    s->n = n;
    s->p = p;
    s->q = q;
    s->batch = (int64_t)value[3];
    s->start_at_zero = value[4] > 0;
    s->seed = seed;
    s->x = malloc((size_t)(n * p + 2 * n * q + p * q) * sizeof *s->x);
    qm_status st =
        s->x ? QM_OK
             : qm_fail(QM_NO_MEMORY, "lowrank: data of %lld x %lld", (long long)n, (long long)p);
    if (st == QM_OK) {
        s->y = s->x + n * p;
        s->residual = s->y + n * q;
        s->best = s->residual + n * q;
        st = make_data(s, (uint32_t)value[5]);
    }
    if (st == QM_OK)
        st = solve(s);
    if (st != QM_OK) {
        lowrank_close(s);
        return st;
    }
    *self = s;
    *n_tensors = 1;
    shapes[0] = (struct qm_shape){.rank = 2, .dim = {p, q}};
    return QM_OK;
}

/* ---- the problem ----------------------------------------------------------------------------- */

static void lowrank_start(void *self, double *x)
{
    struct lowrank *s = self;
    int64_t numel = s->p * s->q;
    if (s->start_at_zero)
        memset(x, 0, (size_t)numel * sizeof *x);
    else
        qm_normals(s->seed, QM_STREAM_start, 0, 0, numel, x);
    for (int64_t i = 0; i < numel; i++)
        x[i] *= 0.01;
}

/* The loss of the rows drawn for step t; adds B times its gradient to grad. */
static double minibatch(struct lowrank *s, const double *w, int64_t t, double *grad)
{
    double sum = 0, *r = s->residual;
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t row = qm_pick(s->seed, QM_STREAM_rows, t, b, s->n);
        for (int64_t j = 0; j < s->q; j++)
            r[j] = -s->y[row * s->q + j];
        qm_dense_add(s->x + row * s->p, w, r, 1, s->p, s->q);
        qm_dense_add_left(s->x + row * s->p, r, grad, s->p, 1, s->q);
        for (int64_t j = 0; j < s->q; j++)
            sum += r[j] * r[j];
    }
    return sum / (2 * (double)s->batch);
}

static int lowrank_gives_loss(void *self) { return ((struct lowrank *)self)->batch == 0; }

static double lowrank_eval(void *self, const double *w, int64_t t, double *grad)
{
    struct lowrank *s = self;
    int64_t numel = s->p * s->q;
    if (!grad)
        return residual_at(s, w);
    memset(grad, 0, (size_t)numel * sizeof *grad);
    double loss = s->batch ? minibatch(s, w, t, grad) : residual_at(s, w);
    if (!s->batch)
        qm_dense_add_left(s->x, s->residual, grad, s->p, s->n, s->q);
    for (int64_t i = 0; i < numel; i++)
        grad[i] /= (double)(s->batch ? s->batch : s->n);
    return loss;
}

static double lowrank_optimum(void *self) { return ((struct lowrank *)self)->floor; }

static void lowrank_argmin(void *self, double *x)
{
    struct lowrank *s = self;
    memcpy(x, s->best, (size_t)(s->p * s->q) * sizeof *x);
}

const struct qm_problem qm_problem_lowrank = {
    .name = "lowrank",
    .summary = "multi-output linear regression, features over 3 decades, outputs over 2",
    .source = "linear least squares; the floor by QR decomposition",
    .args = defaults,
    .arg = known,
    .n_args = ARGS,
    .open = lowrank_open,
    .start = lowrank_start,
    .eval = lowrank_eval,
    .gives_loss = lowrank_gives_loss,
    .optimum = lowrank_optimum,
    .argmin = lowrank_argmin,
    .expected = qm_problem_unexpected,
    .close = lowrank_close,
    .steps = 3000,
    .lr_adamw = 0.01,
    .lr_sgdm = 1,
    .lr_lion = 0.00316227766,
};
