/* ema.c - Problem `ema`: prescribed gradients that show what a codec does to a running average.
 *
 * There is no loss and no optimization.  Let `level` be `before` up to step `at`, then `after`.
 * The square of the gradient of element i at step t, which is the input of the second moment, is
 *   case=odd    1 for even i, level for odd i: a block whose elements move apart.  With nearest
 *               rounding at beta2 = 0.999 the averages of odd i stay where they are
 *   case=all    level for every element: a common factor
 *   case=one    level for i = n / 2, 1 for the others: an outlier that appears or vanishes
 *   case=gauss  z^2 with z normal, a function of (seed, t, i); the gradient is z itself, with its
 *               sign
 * In the other cases the gradient is the non-negative root.  The double-precision twin holds the
 * exact average v_t = (1 - beta2) sum_k beta2^k g_{t-k}^2. */
#include "experiments/cli/key_value_args.h"
#include "experiments/problems/problem.h"
#include "experiments/source/distribution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char defaults[] = "n=128,case=odd,at=3000,before=0.5,after=0,rows=0";

static const struct qm_arg known[] = {
    {.key = "n", .lo = 1, .hi = 0x1p26, .whole = 1, .text = "elements"},
    {.key = "case",
     .words = "odd|all|one|gauss",
     .text = "which squares of the gradient change: those of odd places, all, one; gauss: none, "
             "normals"},
    {.key = "at", .lo = 0, .hi = 1e15, .whole = 1, .text = "the last step with `before`"},
    {.key = "before", .lo = 0, .hi = 1e38, .text = "square of the gradient up to then"},
    {.key = "after", .lo = 0, .hi = 1e38, .text = "square of the gradient from then on"},
    {.key = "rows", .lo = 0, .hi = 0x1p26, .whole = 1, .text = QM_ROWS_TEXT},
};
enum { ARGS = sizeof known / sizeof *known };

enum which { ODD, ALL, ONE, GAUSS };

struct ema {
    int64_t n, at;
    uint64_t seed;
    enum which which;
    double before, after;
};

static qm_status ema_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                          struct qm_shape *shapes)
{
    double value[ARGS];
    struct qm_shape shape;
    QM_TRY(qm_args_read("ema", defaults, args, known, ARGS, value));
    QM_TRY(qm_problem_shape("ema", (int64_t)value[0], (int64_t)value[5], &shape));
    struct ema *s = malloc(sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "ema");
    s->n = (int64_t)value[0];
    s->which = (enum which)value[1];
    s->at = (int64_t)value[2];
    s->before = value[3];
    s->after = value[4];
    s->seed = seed;
    *self = s;
    *n_tensors = 1;
    shapes[0] = shape;
    return QM_OK;
}

static void ema_close(void *self) { free(self); }

static void ema_start(void *self, double *x)
{
    memset(x, 0, (size_t)((struct ema *)self)->n * sizeof *x);
}

static double ema_eval(void *self, const double *x, int64_t t, double *grad)
{
    struct ema *s = self;
    double level = sqrt(t <= s->at ? s->before : s->after);
    (void)x;
    if (grad && s->which == GAUSS)
        qm_normals(s->seed, QM_STREAM_noise, t, 0, s->n, grad);
    else if (grad)
        for (int64_t i = 0; i < s->n; i++)
            grad[i] = s->which == ALL || (s->which == ODD ? i % 2 : i == s->n / 2) ? level : 1;
    return 0;
}

const struct qm_problem qm_problem_ema = {
    .name = "ema",
    .summary = "prescribed gradients for the running averages: steps, an outlier, noise; no loss",
    .source = "the exact average in closed form",
    .args = defaults,
    .arg = known,
    .n_args = ARGS,
    .open = ema_open,
    .start = ema_start,
    .eval = ema_eval,
    .expected = qm_problem_unexpected,
    .close = ema_close,
    .steps = 8000,
};
