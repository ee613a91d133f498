/* rosen.c - Problem `rosen`: the chained Rosenbrock function.
 *
 * f = sum_{i=1}^{n-1} 100 (x_{i+1} - x_i^2)^2 + (1 - x_i)^2; floor 0 at x = 1.  From n = 4 on there
 * is one more local minimum near (-1, 1, ..., 1), whose value is about 4 for long chains.  The sign
 * of x_1 tells the basin of attraction.
 *
 * The start is x_i = -1.2 for odd i, 1 for even i (counted from 1), plus jitter N(0, 1), a function
 * of (seed, i).  The gradient is exact.  H. H. Rosenbrock, Comput. J. 3 (1960) 175. */
#include "experiments/cli/key_value_args.h"
#include "experiments/problems/problem.h"
#include "experiments/source/distribution.h"

#include <stdlib.h>

static const char defaults[] = "n=64,jitter=0.01,rows=0";

static const struct qm_arg known[] = {
    {.key = "n", .lo = 2, .hi = 0x1p26, .whole = 1, .text = "elements"},
    {.key = "jitter",
     .lo = 0,
     .hi = 10,
     .text = "standard deviation of the normals added to the start"},
    {.key = "rows", .lo = 0, .hi = 0x1p26, .whole = 1, .text = QM_ROWS_TEXT},
};
enum { ARGS = sizeof known / sizeof *known };

struct rosen {
    int64_t n;
    uint64_t seed;
    double jitter;
};

static qm_status rosen_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                            struct qm_shape *shapes)
{
    double value[ARGS];
    QM_TRY(qm_args_read("rosen", defaults, args, known, ARGS, value));
    struct qm_shape shape;
    QM_TRY(qm_problem_shape("rosen", (int64_t)value[0], (int64_t)value[2], &shape));
    struct rosen *s = malloc(sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "rosen");
    *s = (struct rosen){(int64_t)value[0], seed, value[1]};
    *self = s;
    *n_tensors = 1;
    shapes[0] = shape;
    return QM_OK;
}

static void rosen_close(void *self) { free(self); }

static void rosen_start(void *self, double *x)
{
    struct rosen *s = self;
    qm_normals(s->seed, QM_STREAM_start, 0, 0, s->n, x);
    for (int64_t i = 0; i < s->n; i++)
        x[i] = (i % 2 ? 1 : -1.2) + s->jitter * x[i];
}

static double rosen_eval(void *self, const double *x, int64_t t, double *grad)
{
    int64_t n = ((struct rosen *)self)->n;
    double sum = 0;
    (void)t;
    for (int64_t i = 0; i + 1 < n; i++) {
        double curve = x[i + 1] - x[i] * x[i], side = 1 - x[i];
        sum += 100 * curve * curve + side * side;
    }
    if (!grad)
        return sum;
    grad[n - 1] = 0;
    for (int64_t i = 0; i + 1 < n; i++)
        grad[i] = -400 * x[i] * (x[i + 1] - x[i] * x[i]) - 2 * (1 - x[i]);
    for (int64_t i = 1; i < n; i++)
        grad[i] += 200 * (x[i] - x[i - 1] * x[i - 1]);
    return sum;
}

static double rosen_optimum(void *self)
{
    (void)self;
    return 0;
}

static void rosen_argmin(void *self, double *x)
{
    for (int64_t i = 0; i < ((struct rosen *)self)->n; i++)
        x[i] = 1;
}

/* Chains of fewer than 4 elements have one basin. */
static int rosen_basin(void *self, const double *x)
{
    return ((struct rosen *)self)->n >= 4 && x[0] < 0;
}

const struct qm_problem qm_problem_rosen = {
    .name = "rosen",
    .summary = "chained Rosenbrock function: a curved valley, two basins; deterministic",
    .source = "H. H. Rosenbrock, Comput. J. 3 (1960) 175; floor 0 at x = 1 by its definition",
    .args = defaults,
    .arg = known,
    .n_args = ARGS,
    .open = rosen_open,
    .start = rosen_start,
    .eval = rosen_eval,
    .gives_loss = qm_problem_gives_loss,
    .optimum = rosen_optimum,
    .argmin = rosen_argmin,
    .basin = rosen_basin,
    .expected = qm_problem_unexpected,
    .close = rosen_close,
    .steps = 20000,
    .lr_adamw = 0.000316227766,
    .lr_sgdm = 0.0001,
    .lr_lion = 0.001,
};
