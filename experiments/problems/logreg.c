/* logreg.c - Problem `logreg`: logistic regression with a certified optimum.
 *
 * F(w) = 1/n sum_i log(1 + exp(-y_i x_i w)) + lambda/2 ||w||^2; w is one vector of d.  The data
 * depend on data_seed alone (portable generator): X is n x d normals, the teacher d normals, and
 * z = 2 X teacher / sqrt(d).  Labels are y = sign z (labels=separable), or drawn with
 * P(y = 1) = 1 / (1 + exp(-z)) by one uniform per row (labels=noisy).  Then column j of X is
 * multiplied by 10^(-2 j / (d - 1)).  The start is w = 0, where F = ln 2.
 *
 * Newton's method, damped by halving, finds the optimum.  Since F is lambda-strongly convex,
 * F(w) - F* <= ||grad F(w)||^2 / (2 lambda), and opening fails unless this bound is below 1e-24.
 * lambda=0 needs separable labels: the infimum is then 0 and nowhere attained, ||w|| grows like
 * log t and the gradients fade like 1/t.
 *
 * batch=B > 0 draws B rows with replacement per step from the seed; batch=0 takes the exact
 * gradient.  The plotted loss is F on all rows. */
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

static const char defaults[] = "n=1000,d=20,lambda=1e-3,labels=noisy,batch=64,data_seed=12345";

static const struct qm_arg known[] = {
    {.key = "n", .lo = 1, .hi = 1048576, .whole = 1, .text = "samples"},
    {.key = "d", .lo = 1, .hi = 4096, .whole = 1, .text = "features"},
    {.key = "lambda",
     .lo = 0,
     .hi = 1e6,
     .text = "weight of ||w||^2 / 2; 0 needs labels=separable"},
    {.key = "labels",
     .words = "noisy|separable",
     .text = "drawn by the teacher's odds, or its sign"},
    {.key = "batch",
     .lo = 0,
     .hi = 1048576,
     .whole = 1,
     .text = "rows that a step draws; 0: all, the exact gradient"},
    QM_DATA_SEED_ARG,
};
enum { ARGS = sizeof known / sizeof *known };

struct logreg {
    int64_t n, d, batch;
    uint64_t seed;
    double lambda, floor;
    double *x;      /* n x d, row i times y_i: the labels are in the rows */
    double *score;  /* n, scratch */
    double *best;   /* d */
    double *weight; /* n x d, scratch of Newton's method; freed after opening */
};

/* log(1 + exp(-z)) without overflow. */
static double loss_of(double z) { return z > 0 ? log1p(exp(-z)) : -z + log1p(exp(z)); }

/* Minus the derivative of loss_of, 1 / (1 + exp(z)), without overflow. */
static double slope_of(double z)
{
    double e = exp(-fabs(z));
    return z > 0 ? e / (1 + e) : 1 / (1 + e);
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* F(w); the scores y_i x_i w stay in s->score.  The sum is compensated (Neumaier), so that F* is
 * exact to its last digits. */
static double value_at(struct logreg *s, const double *w)
{
    double sum = 0, lost = 0;
    memset(s->score, 0, (size_t)s->n * sizeof *s->score);
    qm_dense_add(s->x, w, s->score, s->n, s->d, 1);
    for (int64_t i = 0; i < s->n; i++) {
        double term = loss_of(s->score[i]), total = sum + term;
        lost += sum > term ? sum - total + term : term - total + sum;
        sum = total;
    }
    return (sum + lost) / (double)s->n + 0.5 * s->lambda * dot(w, w, s->d);
}

/* grad F(w) from the scores at w. */
static void gradient(const struct logreg *s, const double *w, double *grad)
{
    memset(grad, 0, (size_t)s->d * sizeof *grad);
    for (int64_t i = 0; i < s->n; i++) {
        double slope = slope_of(s->score[i]);
        for (int64_t j = 0; j < s->d; j++)
            grad[j] -= slope * s->x[i * s->d + j];
    }
    for (int64_t j = 0; j < s->d; j++)
        grad[j] = grad[j] / (double)s->n + s->lambda * w[j];
}

/* ---- the certified optimum ------------------------------------------------------------------- */

/* step = H^-1 grad, H = 1/n X' diag(p (1 - p)) X + lambda. */
static qm_status newton_step(struct logreg *s, const double *grad, gsl_matrix *h, double *step)
{
    int64_t d = s->d;
    memset(h->data, 0, (size_t)(d * d) * sizeof *h->data);
    for (int64_t i = 0; i < s->n; i++) {
        double p = slope_of(s->score[i]);
        for (int64_t j = 0; j < d; j++)
            s->weight[i * d + j] = p * (1 - p) / (double)s->n * s->x[i * d + j];
    }
    qm_dense_add_left(s->x, s->weight, h->data, d, s->n, d);
    for (int64_t j = 0; j < d; j++)
        h->data[j * d + j] += s->lambda;
    gsl_vector_const_view b = gsl_vector_const_view_array(grad, (size_t)d);
    gsl_vector_view out = gsl_vector_view_array(step, (size_t)d);
    if (gsl_linalg_cholesky_decomp1(h) || gsl_linalg_cholesky_solve(h, &b.vector, &out.vector))
        return qm_fail(QM_INTERNAL, "logreg: the Hessian is not positive definite");
    return QM_OK;
}

/* Newton's method from 0, halving steps that do not descend; work[3 d] is scratch. */
static qm_status newton(struct logreg *s, gsl_matrix *h, double *work)
{
    double *grad = work, *step = work + s->d, *next = step + s->d, certificate = 0;
    s->floor = value_at(s, s->best);
    for (int k = 0; k < 100; k++) {
        gradient(s, s->best, grad);
        certificate = dot(grad, grad, s->d) / (2 * s->lambda);
        if (certificate < 1e-28)
            break;
        QM_TRY(newton_step(s, grad, h, step));
        double f = HUGE_VAL, rate = 1;
        for (; rate > 1e-3 && !(f <= s->floor); rate /= 2) {
            for (int64_t j = 0; j < s->d; j++)
                next[j] = s->best[j] - rate * step[j];
            f = value_at(s, next);
        }
        if (!(f <= s->floor)) { /* F is at its resolution; the full step still improves w */
            for (int64_t j = 0; j < s->d; j++)
                next[j] = s->best[j] - step[j];
            f = value_at(s, next);
        }
        memcpy(s->best, next, (size_t)s->d * sizeof *next);
        s->floor = f;
    }
    gradient(s, s->best, grad);
    certificate = dot(grad, grad, s->d) / (2 * s->lambda);
    if (!(certificate < 1e-24))
        return qm_fail(QM_INTERNAL, "logreg: Newton's method ends %g above the optimum",
                       certificate);
    return QM_OK;
}

static qm_status solve(struct logreg *s)
{
    gsl_set_error_handler_off(); /* by default it aborts */
    gsl_matrix *h = gsl_matrix_alloc((size_t)s->d, (size_t)s->d);
    double *work = malloc(3 * (size_t)s->d * sizeof *work);
    s->weight = malloc((size_t)(s->n * s->d) * sizeof *s->weight);
    qm_status st = h && work && s->weight ? newton(s, h, work)
                                          : qm_fail(QM_NO_MEMORY, "logreg: Newton's method");
    if (h)
        gsl_matrix_free(h);
    free(work);
    free(s->weight);
    s->weight = NULL;
    return st;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void logreg_close(void *self)
{
    struct logreg *s = self;
    if (!s)
        return;
    free(s->x);
    free(s);
}

/* Sets the rows and their labels; s->best holds the teacher meanwhile and is 0 afterwards. */
static qm_status make_data(struct logreg *s, uint32_t data_seed, int separable)
{
    void *data;
    QM_TRY(qm_data_open(data_seed, &data));
    qm_data_normals(data, s->n * s->d, s->x);
    qm_data_normals(data, s->d, s->best);
    for (int64_t i = 0; i < s->n; i++) {
        double *row = s->x + i * s->d, u = 0;
        double z = 2 * dot(row, s->best, s->d) / sqrt((double)s->d);
        if (!separable)
            qm_data_uniforms(data, 1, &u);
        double y = separable ? (z > 0 ? 1 : -1) : u < 1 / (1 + exp(-z)) ? 1 : -1;
        for (int64_t j = 0; j < s->d; j++)
            row[j] *= y * pow(10, s->d > 1 ? -2 * (double)j / (double)(s->d - 1) : 0);
    }
    qm_data_close(data);
    memset(s->best, 0, (size_t)s->d * sizeof *s->best);
    return QM_OK;
}

static qm_status logreg_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                             struct qm_shape *shapes)
{
    double value[ARGS];
    QM_TRY(qm_args_read("logreg", defaults, args, known, ARGS, value));
    int separable = value[3] > 0;
    if (value[2] == 0 && !separable)
        return qm_fail(QM_BAD_ARG, "logreg: lambda is 0, expected above 0 for labels=noisy");
    struct logreg *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "logreg");
    s->n = (int64_t)value[0];
    s->d = (int64_t)value[1];
    s->lambda = value[2];
    s->batch = (int64_t)value[4];
    s->seed = seed;
    s->x = malloc((size_t)(s->n * s->d + s->n + s->d) * sizeof *s->x);
    qm_status st = s->x ? QM_OK : qm_fail(QM_NO_MEMORY, "logreg: data");
    if (st == QM_OK) {
        s->score = s->x + s->n * s->d;
        s->best = s->score + s->n;
        st = make_data(s, (uint32_t)value[5], separable);
    }
    if (st == QM_OK && s->lambda > 0)
        st = solve(s);
    if (st != QM_OK) {
        logreg_close(s);
        return st;
    }
    *self = s;
    *n_tensors = 1;
    shapes[0] = (struct qm_shape){.rank = 1, .dim = {s->d}};
    return QM_OK;
}

/* ---- the problem ----------------------------------------------------------------------------- */

static void logreg_start(void *self, double *w)
{
    memset(w, 0, (size_t)((struct logreg *)self)->d * sizeof *w);
}

static double minibatch(struct logreg *s, const double *w, int64_t t, double *grad)
{
    double sum = 0;
    memset(grad, 0, (size_t)s->d * sizeof *grad);
    for (int64_t b = 0; b < s->batch; b++) {
        const double *x = s->x + qm_pick(s->seed, QM_STREAM_rows, t, b, s->n) * s->d;
        double z = dot(x, w, s->d), slope = slope_of(z);
        sum += loss_of(z);
        for (int64_t j = 0; j < s->d; j++)
            grad[j] -= slope * x[j];
    }
    for (int64_t j = 0; j < s->d; j++)
        grad[j] = grad[j] / (double)s->batch + s->lambda * w[j];
    return sum / (double)s->batch + 0.5 * s->lambda * dot(w, w, s->d);
}

static int logreg_gives_loss(void *self) { return ((struct logreg *)self)->batch == 0; }

static double logreg_eval(void *self, const double *w, int64_t t, double *grad)
{
    struct logreg *s = self;
    if (grad && s->batch)
        return minibatch(s, w, t, grad);
    double loss = value_at(s, w);
    if (grad)
        gradient(s, w, grad);
    return loss;
}

static double logreg_optimum(void *self) { return ((struct logreg *)self)->floor; }

/* Where lambda is 0 no minimiser exists; w becomes 0, which is none. */
static void logreg_argmin(void *self, double *w)
{
    struct logreg *s = self;
    memcpy(w, s->best, (size_t)s->d * sizeof *w);
}

const struct qm_problem qm_problem_logreg = {
    .name = "logreg",
    .summary = "logistic regression, features over 2 decades; lambda=0: gradients that fade",
    .source = "Newton's method; certificate ||grad||^2 / (2 lambda) of strong convexity",
    .args = defaults,
    .arg = known,
    .n_args = ARGS,
    .open = logreg_open,
    .start = logreg_start,
    .eval = logreg_eval,
    .gives_loss = logreg_gives_loss,
    .optimum = logreg_optimum,
    .argmin = logreg_argmin,
    .expected = qm_problem_unexpected,
    .close = logreg_close,
    .steps = 2000,
    .lr_adamw = 0.01,
    .lr_sgdm = 0.1,
    .lr_lion = 0.00316227766,
};
