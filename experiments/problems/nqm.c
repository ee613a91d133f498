/* nqm.c - Problem `nqm`: the noisy quadratic model.
 *
 * G. Zhang et al., "Which algorithmic choices matter at which batch sizes?", arXiv:1907.04164,
 * section 3: L = 1/2 sum_i h_i x_i^2, h_i = 1 / i, gradient h_i x_i + xi_i with independent xi of
 * variance h_i / batch.  The plotted loss is the population loss L; its floor is 0, which noise
 * keeps an optimizer with a constant learning rate from reaching.
 *
 *   start=normal  x_i ~ N(0, 1), a function of (seed, i)
 *   start=one     x_i = 1
 *   nu=0          normal noise
 *   nu > 2        Student's t, rescaled to the same variance, so that the same expected curves hold
 *   nu <= 2       Student's t without rescaling; it has no variance and no expected curve, so that
 *                 only medians of the loss mean something
 *   layout=sorted    neighbours have similar curvatures, easy for block-wise quantization
 *   layout=shuffled  a permutation, a function of n alone: every block spans all curvatures
 *
 * The noise of element i at step t is a function of (seed, t, i), in streams of its own
 * (source/distribution.h).  Both starts have E x_i^2 = 1, which `expected` starts from. */
#include "experiments/cli/key_value_args.h"
#include "experiments/problems/problem.h"
#include "experiments/source/distribution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char defaults[] = "n=1000,batch=32,start=normal,nu=0,rows=0,layout=sorted";

static const struct qm_arg known[] = {
    {.key = "n", .lo = 1, .hi = 0x1p26, .whole = 1, .text = "elements"},
    {.key = "batch",
     .lo = 1e-30,
     .hi = 1e30,
     .text = "samples a gradient is the mean of: its variance is h_i / batch"},
    {.key = "start", .words = "normal|one", .text = "normals of variance 1, or 1"},
    {.key = "nu",
     .lo = 0,
     .hi = 1e6,
     .text = "noise: 0 normal, else degrees of freedom of Student's t, from 0.1"},
    {.key = "rows", .lo = 0, .hi = 0x1p26, .whole = 1, .text = QM_ROWS_TEXT},
    {.key = "layout", .words = "sorted|shuffled", .text = "the order of the curvatures"},
};
enum { ARGS = sizeof known / sizeof *known };

struct nqm {
    int64_t n;
    uint64_t seed;
    double batch, nu;
    int start_at_one;
    int64_t *place; /* [n]: the place of element i in the sorted order; NULL: i */
};

static double curvature(const struct nqm *q, int64_t i)
{
    return 1 / (double)((q->place ? q->place[i] : i) + 1);
}

static qm_status nqm_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                          struct qm_shape *shapes)
{
    double value[ARGS];
    QM_TRY(qm_args_read("nqm", defaults, args, known, ARGS, value));
    if (value[3] > 0 && value[3] < 0.1)
        return qm_fail(QM_BAD_ARG, "nqm: nu is %g, expected 0 (normal) or from 0.1", value[3]);
    struct qm_shape shape;
    QM_TRY(qm_problem_shape("nqm", (int64_t)value[0], (int64_t)value[4], &shape));
    struct nqm *q = calloc(1, sizeof *q);
    if (!q)
        return qm_fail(QM_NO_MEMORY, "nqm");
    q->n = (int64_t)value[0];
    q->seed = seed;
    q->batch = value[1];
    q->start_at_one = value[2] > 0;
    q->nu = value[3];
    qm_status st = value[5] > 0 ? qm_problem_shuffle("nqm", q->n, &q->place) : QM_OK;
    if (st != QM_OK) {
        free(q);
        return st;
    }
    *self = q;
    *n_tensors = 1;
    shapes[0] = shape;
    return QM_OK;
}

static void nqm_close(void *self)
{
    if (self)
        free(((struct nqm *)self)->place);
    free(self);
}

static void nqm_start(void *self, double *x)
{
    struct nqm *q = self;
    if (!q->start_at_one)
        qm_normals(q->seed, QM_STREAM_start, 0, 0, q->n, x);
    else
        for (int64_t i = 0; i < q->n; i++)
            x[i] = 1;
}

static double nqm_eval(void *self, const double *x, int64_t t, double *grad)
{
    struct nqm *q = self;
    double sum = 0;
    for (int64_t i = 0; i < q->n; i++)
        sum += curvature(q, i) * x[i] * x[i];
    if (!grad)
        return 0.5 * sum;

    if (q->nu > 0)
        qm_students(q->seed, QM_STREAM_noise, t, q->nu, 0, q->n, grad);
    else
        qm_normals(q->seed, QM_STREAM_noise, t, 0, q->n, grad);
    double unit = q->nu > 2 ? (q->nu - 2) / q->nu : 1; /* 1 / variance of the draws */
    for (int64_t i = 0; i < q->n; i++) {
        double h = curvature(q, i);
        grad[i] = h * x[i] + sqrt(unit * h / q->batch) * grad[i];
    }
    return 0.5 * sum;
}

static double nqm_optimum(void *self)
{
    (void)self;
    return 0;
}

static void nqm_argmin(void *self, double *x)
{
    memset(x, 0, (size_t)((struct nqm *)self)->n * sizeof *x);
}

/* E x_i^2 after t steps of SGD from 1: s' = (1 - a)^2 s + noise with a = lr h and
 * noise = lr^2 h / batch. */
static double square_sgd(double a, double noise, double t)
{
    double rest = a * (2 - a); /* 1 - (1 - a)^2 */
    double lost = t > 0 ? -expm1(t * log1p(-rest)) : 0;
    return 1 - lost + noise * (rest != 0 ? lost / rest : t);
}

/* E x_i^2 after t steps of heavy ball v' = m v - lr g, x' = x + v': the second moments
 * (E x^2, E v^2, E x v) move by M y + noise (1, 1, 1).  The noise settles at the fixed point y*, so
 * y_t = y* + M^t (y_0 - y*).  From y*: E x^2 = noise (1 + m) / (a (1 - m) (2 (1 + m) - a)),
 * E v^2 = 2 noise / ((1 - m) (2 (1 + m) - a)) and E x v = E v^2 / 2, since x' - v' = x has the
 * same mean square as x'. */
static double square_heavy_ball(double a, double m, double noise, int64_t t)
{
    double s[9] = {
        (1 - a) * (1 - a),
        m * m,
        2 * (1 - a) * m, /* E x^2 */
        a * a,
        m * m,
        -2 * a * m, /* E v^2 */
        -(1 - a) * a,
        m * m,
        (1 - 2 * a) * m, /* E x v */
    };
    double rest = (1 - m) * (2 * (1 + m) - a);
    double x2 = noise * (1 + m) / (a * rest), v2 = 2 * noise / rest;
    qm_problem_power(s, t);
    return x2 + s[0] * (1 - x2) - s[1] * v2 - s[2] * 0.5 * v2;
}

static double nqm_expected(void *self, const char *family, double lr, double momentum, int64_t t)
{
    struct nqm *q = self;
    double sum = 0;
    if (strcmp(family, "sgdm") != 0 || !(momentum < 1) || (q->nu > 0 && q->nu <= 2))
        return (double)NAN;
    for (int64_t i = 0; i < q->n; i++) {
        double h = curvature(q, i), noise = lr * lr * h / q->batch;
        sum += h * (momentum != 0 && lr != 0 ? square_heavy_ball(lr * h, momentum, noise, t)
                                             : square_sgd(lr * h, noise, (double)t));
    }
    return 0.5 * sum;
}

const struct qm_problem qm_problem_nqm = {
    .name = "nqm",
    .summary = "noisy quadratic model, curvatures 1 / i, noise variance h / batch",
    .source = "arXiv:1907.04164, section 3; second moments by their recurrence",
    .args = defaults,
    .arg = known,
    .n_args = ARGS,
    .open = nqm_open,
    .start = nqm_start,
    .eval = nqm_eval,
    .gives_loss = qm_problem_gives_loss,
    .optimum = nqm_optimum,
    .argmin = nqm_argmin,
    .expected = nqm_expected,
    .close = nqm_close,
    .steps = 10000,
    .lr_adamw = 0.00316227766,
    .lr_sgdm = 0.0316227766,
    .lr_lion = 0.000316227766,
};
