/* heavy.c - Problem `heavy`: heavy-tailed noise on the gradients of any problem.
 *
 * Adds sigma t_nu to every element of the gradient: Student's t, independent over elements and
 * steps, a function of (seed, step, element) in a stream of its own.  nu > 2: the noise is rescaled
 * to variance sigma^2, so that only its tail differs from normal noise (at nu = 3 the fourth moment
 * is infinite); nu <= 2: the noise is not rescaled and has no variance, so that only medians of the
 * loss mean something.  Loss, floor and start are the base's.  The noisy quadratic model nqm has
 * the same noise by its argument nu, with its expected loss in closed form. */
#include "experiments/cli/key_value_args.h"
#include "experiments/problems/problem_wrapper.h"
#include "experiments/source/distribution.h"

#include <math.h>
#include <stdlib.h>

#define OWN  "nu=3,sigma=0.01"
#define BASE "quad"

static const struct qm_arg known[] = {
    {.key = "nu",
     .lo = 0.1,
     .hi = 1e6,
     .text = "degrees of freedom of Student's t; at most 2: no variance"},
    {.key = "sigma",
     .lo = 0,
     .hi = 1e30,
     .text = "standard deviation of the noise for nu > 2, else its factor"},
    QM_WRAPPER_BASE_ARG,
};
enum { ARGS = sizeof known / sizeof *known - 1 }; /* without base= */

struct heavy {
    struct qm_problem_wrapper wrap;
    uint64_t seed;
    double nu, sigma;
    double *noise; /* [numel] */
};

static void heavy_close(void *self)
{
    struct heavy *s = self;
    if (!s)
        return;
    qm_problem_wrapper_close(&s->wrap);
    free(s->noise);
    free(s);
}

static qm_status heavy_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                            struct qm_shape *shapes)
{
    double value[ARGS];
    int n = 0;
    struct heavy *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "heavy");
    qm_status st = qm_problem_wrapper_open("heavy", args, BASE, seed, &s->wrap, &n, shapes);
    if (st == QM_OK)
        st = qm_args_read("heavy", OWN, s->wrap.own, known, ARGS, value);
    if (st == QM_OK) {
        s->noise = malloc((size_t)s->wrap.numel * sizeof *s->noise);
        st = s->noise ? QM_OK : qm_fail(QM_NO_MEMORY, "heavy: noise");
    }
    if (st != QM_OK) {
        heavy_close(s);
        return st;
    }
    s->seed = seed;
    s->nu = value[0];
    s->sigma = value[1] * (s->nu > 2 ? sqrt((s->nu - 2) / s->nu) : 1);
    *self = s;
    *n_tensors = n;
    return QM_OK;
}

static double heavy_work(const char *args) { return qm_problem_wrapper_work(args, BASE); }

static void heavy_start(void *self, double *x)
{
    struct qm_problem_wrapper *w = &((struct heavy *)self)->wrap;
    w->base->start(w->self, x);
}

static double heavy_eval(void *self, const double *x, int64_t t, double *grad)
{
    struct heavy *s = self;
    double loss = s->wrap.base->eval(s->wrap.self, x, t, grad);
    if (!grad)
        return loss;
    qm_students(s->seed, QM_STREAM_heavy, t, s->nu, 0, s->wrap.numel, s->noise);
    for (int64_t i = 0; i < s->wrap.numel; i++)
        grad[i] += s->sigma * s->noise[i];
    return loss;
}

static int heavy_gives_loss(void *self)
{
    struct qm_problem_wrapper *w = &((struct heavy *)self)->wrap;
    return w->base->gives_loss && w->base->gives_loss(w->self);
}

static int64_t heavy_loss_interval(void *self)
{
    struct qm_problem_wrapper *w = &((struct heavy *)self)->wrap;
    return w->base->loss_interval ? w->base->loss_interval(w->self) : 0;
}

static int heavy_basin(void *self, const double *x)
{
    struct qm_problem_wrapper *w = &((struct heavy *)self)->wrap;
    return w->base->basin ? w->base->basin(w->self, x) : 0;
}

static double heavy_optimum(void *self)
{
    struct qm_problem_wrapper *w = &((struct heavy *)self)->wrap;
    return w->base->optimum(w->self);
}

const struct qm_problem qm_problem_heavy = {
    .name = "heavy",
    .summary = "heavy-tailed noise on the gradients of any problem: base=NAME:ARGS",
    .source = "Student's t; loss and floor are the base's",
    .args = OWN ",base=" BASE,
    .arg = known,
    .n_args = ARGS + 1,
    .open = heavy_open,
    .work = heavy_work,
    .start = heavy_start,
    .eval = heavy_eval,
    .gives_loss = heavy_gives_loss,
    .loss_interval = heavy_loss_interval,
    .basin = heavy_basin,
    .optimum = heavy_optimum,
    .expected = qm_problem_unexpected,
    .close = heavy_close,
    .steps = 10000,
    .lr_adamw = 0.00316227766,
    .lr_sgdm = 0.0316227766,
    .lr_lion = 0.000316227766,
};
