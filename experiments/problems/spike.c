/* spike.c - Problem `spike`: spikes, shifts of scale and zeros in the gradients of any problem.
 *
 *   at, count, gap, times   the gradients of steps at, at + gap, ... (`count` steps) are multiplied
 *                           by `times`
 *   zero                    the gradient of this step is 0
 *   shift, by               from step `shift` on all gradients are multiplied by `by`, as if the
 *                           loss were rescaled
 *   clip                    last, the gradient of all tensors together is scaled down to this norm
 *                           where its norm is larger, as training loops do
 *
 * A step of 0 means never; a clip of 0 does nothing.  Loss, floor and start are the base's.  With
 * exact Adam a spike moves the parameters by at most (1 - beta1) / sqrt(1 - beta2) lr and raises
 * the second moment for ln((1 - beta2) times^2) / (1 - beta2) steps. */
#include "experiments/cli/key_value_args.h"
#include "experiments/problems/problem_wrapper.h"

#include <math.h>
#include <stdlib.h>

#define OWN  "at=500,count=1,gap=1,times=1e4,zero=0,shift=0,by=1,clip=0"
#define BASE "quad:layout=dct"

static const struct qm_arg known[] = {
    {.key = "at", .lo = 0, .hi = 1e9, .whole = 1, .text = "the first step with a spike; 0: never"},
    {.key = "count", .lo = 0, .hi = 1e9, .whole = 1, .text = "spikes"},
    {.key = "gap", .lo = 1, .hi = 1e9, .whole = 1, .text = "steps from one to the next"},
    {.key = "times", .lo = -1e30, .hi = 1e30, .text = "factor of the gradient in a spike"},
    {.key = "zero",
     .lo = 0,
     .hi = 1e9,
     .whole = 1,
     .text = "the step whose gradient is 0; 0: never"},
    {.key = "shift",
     .lo = 0,
     .hi = 1e9,
     .whole = 1,
     .text = "the step from which gradients are times `by`; 0: never"},
    {.key = "by", .lo = -1e30, .hi = 1e30, .text = "that factor"},
    {.key = "clip",
     .lo = 0,
     .hi = 1e30,
     .text = "norm that gradients of all tensors together are scaled to, at most; 0: any"},
    QM_WRAPPER_BASE_ARG,
};
enum { ARGS = sizeof known / sizeof *known - 1 }; /* without base= */

struct spike {
    struct qm_problem_wrapper wrap;
    int64_t at, count, gap, zero, shift;
    double times, by, clip;
};

static void spike_close(void *self)
{
    struct spike *s = self;
    if (!s)
        return;
    qm_problem_wrapper_close(&s->wrap);
    free(s);
}

static qm_status spike_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                            struct qm_shape *shapes)
{
    double value[ARGS];
    int n = 0;
    struct spike *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "spike");
    qm_status st = qm_problem_wrapper_open("spike", args, BASE, seed, &s->wrap, &n, shapes);
    if (st == QM_OK)
        st = qm_args_read("spike", OWN, s->wrap.own, known, ARGS, value);
    if (st != QM_OK) {
        spike_close(s);
        return st;
    }
    s->at = (int64_t)value[0];
    s->count = (int64_t)value[1];
    s->gap = (int64_t)value[2];
    s->times = value[3];
    s->zero = (int64_t)value[4];
    s->shift = (int64_t)value[5];
    s->by = value[6];
    s->clip = value[7];
    *self = s;
    *n_tensors = n;
    return QM_OK;
}

static double spike_work(const char *args) { return qm_problem_wrapper_work(args, BASE); }

static void spike_start(void *self, double *x)
{
    struct qm_problem_wrapper *w = &((struct spike *)self)->wrap;
    w->base->start(w->self, x);
}

static double factor_of(const struct spike *s, int64_t t)
{
    int64_t since = t - s->at;
    double factor = s->shift > 0 && t >= s->shift ? s->by : 1;
    if (s->at > 0 && since >= 0 && since % s->gap == 0 && since / s->gap < s->count)
        factor *= s->times;
    return s->zero > 0 && t == s->zero ? 0 : factor;
}

static void clip(double *grad, int64_t n, double most)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += grad[i] * grad[i];
    double factor = most / sqrt(sum);
    for (int64_t i = 0; i < n && factor < 1; i++)
        grad[i] *= factor;
}

static double spike_eval(void *self, const double *x, int64_t t, double *grad)
{
    struct spike *s = self;
    double loss = s->wrap.base->eval(s->wrap.self, x, t, grad);
    double factor = grad ? factor_of(s, t) : 1;
    for (int64_t i = 0; factor != 1 && i < s->wrap.numel; i++)
        grad[i] *= factor;
    if (grad && s->clip > 0)
        clip(grad, s->wrap.numel, s->clip);
    return loss;
}

static int spike_gives_loss(void *self)
{
    struct qm_problem_wrapper *w = &((struct spike *)self)->wrap;
    return w->base->gives_loss && w->base->gives_loss(w->self);
}

static int64_t spike_loss_interval(void *self)
{
    struct qm_problem_wrapper *w = &((struct spike *)self)->wrap;
    return w->base->loss_interval ? w->base->loss_interval(w->self) : 0;
}

static int spike_basin(void *self, const double *x)
{
    struct qm_problem_wrapper *w = &((struct spike *)self)->wrap;
    return w->base->basin ? w->base->basin(w->self, x) : 0;
}

static double spike_optimum(void *self)
{
    struct qm_problem_wrapper *w = &((struct spike *)self)->wrap;
    return w->base->optimum(w->self);
}

const struct qm_problem qm_problem_spike = {
    .name = "spike",
    .summary = "spikes, shifts of scale and zeros in the gradients of any problem: base=NAME:ARGS",
    .source = "loss and floor are the base's",
    .args = OWN ",base=" BASE,
    .arg = known,
    .n_args = ARGS + 1,
    .open = spike_open,
    .work = spike_work,
    .start = spike_start,
    .eval = spike_eval,
    .gives_loss = spike_gives_loss,
    .loss_interval = spike_loss_interval,
    .basin = spike_basin,
    .optimum = spike_optimum,
    .expected = qm_problem_unexpected,
    .close = spike_close,
    .steps = 2000,
    .lr_adamw = 0.00316227766,
    .lr_sgdm = 1,
    .lr_lion = 0.01,
};
