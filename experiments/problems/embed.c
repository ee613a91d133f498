/* embed.c - Problem `embed`: a table of embeddings whose rows are drawn with Zipf's frequencies.
 *
 * The parameter E is rows x d, the targets T are unit normals (data_seed, portable generator), and
 * token w has probability p_w proportional to (w + 1)^-s.  A step draws `batch` tokens; its loss is
 * 1/(2 batch) sum ||E_w - T_w||^2, and its gradient is dense, with zeros in every row that was not
 * drawn.  The plotted loss is the population loss 1/2 sum p_w ||E_w - T_w||^2 with floor 0 where
 * E = T; loss=rare restricts this sum to the rarest tenth of the tokens and divides it by their
 * probability.  The expected square of a gradient is roughly proportional to p_w, so the second
 * moment spans a factor of rows^s across the table.
 *
 * The seed chooses the tokens; the start is E = 0. */
#include "experiments/cli/key_value_args.h"
#include "experiments/problems/problem.h"
#include "experiments/source/distribution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char defaults[] = "rows=4096,d=16,batch=64,s=1,loss=all,data_seed=12345";

static const struct qm_arg known[] = {
    {.key = "rows", .lo = 1, .hi = 1048576, .whole = 1, .text = "tokens"},
    {.key = "d", .lo = 1, .hi = 4096, .whole = 1, .text = "numbers a token"},
    {.key = "batch", .lo = 1, .hi = 1048576, .whole = 1, .text = "tokens that a step draws"},
    {.key = "s", .lo = 0, .hi = 10, .text = "Zipf's exponent: token w comes with (w + 1)^-s"},
    {.key = "loss", .words = "all|rare", .text = "of all tokens, or of the rarest tenth"},
    QM_DATA_SEED_ARG,
};
enum { ARGS = sizeof known / sizeof *known };

struct embed {
    int64_t rows, d, batch, from; /* from: the first row in the plotted loss */
    uint64_t seed;
    double *target;         /* rows x d */
    double *p, *cumulative; /* [rows]: p_w; p_0 + ... + p_w, with 1 as the last */
};

static qm_status make_data(struct embed *s, double power, uint32_t data_seed)
{
    void *data;
    double total = 0;
    QM_TRY(qm_data_open(data_seed, &data));
    qm_data_normals(data, s->rows * s->d, s->target);
    qm_data_close(data);
    for (int64_t w = 0; w < s->rows; w++)
        total += s->p[w] = pow((double)(w + 1), -power);
    double sum = 0;
    for (int64_t w = 0; w < s->rows; w++) {
        s->p[w] /= total;
        sum += s->p[w];
        s->cumulative[w] = sum;
    }
    s->cumulative[s->rows - 1] = 1;
    return QM_OK;
}

static void embed_close(void *self)
{
    struct embed *s = self;
    if (!s)
        return;
    free(s->target);
    free(s);
}

static qm_status embed_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                            struct qm_shape *shapes)
{
    double value[ARGS];
    QM_TRY(qm_args_read("embed", defaults, args, known, ARGS, value));
    struct embed *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "embed");
    s->rows = (int64_t)value[0];
    s->d = (int64_t)value[1];
    s->batch = (int64_t)value[2];
    s->from = value[4] > 0 ? s->rows - (s->rows + 9) / 10 : 0;
    s->seed = seed;
    s->target = malloc((size_t)(s->rows * (s->d + 2)) * sizeof *s->target);
    qm_status st = s->target ? QM_OK : qm_fail(QM_NO_MEMORY, "embed: table");
    if (st == QM_OK) {
        s->p = s->target + s->rows * s->d;
        s->cumulative = s->p + s->rows;
        st = make_data(s, value[3], (uint32_t)value[5]);
    }
    if (st != QM_OK) {
        embed_close(s);
        return st;
    }
    *self = s;
    *n_tensors = 1;
    shapes[0] = (struct qm_shape){.rank = 2, .dim = {s->rows, s->d}};
    return QM_OK;
}

static void embed_start(void *self, double *x)
{
    struct embed *s = self;
    memset(x, 0, (size_t)(s->rows * s->d) * sizeof *x);
}

/* The token of draw i at step t: the first w with u < p_0 + ... + p_w, u uniform of 32 bits. */
static int64_t token(const struct embed *s, int64_t t, int64_t i)
{
    double u = ((double)qm_pick(s->seed, QM_STREAM_rows, t, i, INT64_C(1) << 32) + 0.5) * 0x1p-32;
    int64_t lo = 0, hi = s->rows - 1;
    while (lo < hi) {
        int64_t middle = (lo + hi) / 2;
        if (u < s->cumulative[middle])
            hi = middle;
        else
            lo = middle + 1;
    }
    return lo;
}

static double row_square(const struct embed *s, const double *x, int64_t w)
{
    const double *target = s->target + w * s->d;
    double sum = 0;
    for (int64_t k = 0; k < s->d; k++)
        sum += (x[w * s->d + k] - target[k]) * (x[w * s->d + k] - target[k]);
    return sum;
}

static double embed_eval(void *self, const double *x, int64_t t, double *grad)
{
    struct embed *s = self;
    double sum = 0, weight = 0;
    for (int64_t w = s->from; !grad && w < s->rows; w++) {
        sum += s->p[w] * row_square(s, x, w);
        weight += s->p[w];
    }
    if (!grad)
        return 0.5 * (s->from ? sum / weight : sum);
    memset(grad, 0, (size_t)(s->rows * s->d) * sizeof *grad);
    for (int64_t i = 0; i < s->batch; i++) {
        int64_t at = token(s, t, i) * s->d;
        sum += row_square(s, x, at / s->d);
        for (int64_t k = at; k < at + s->d; k++)
            grad[k] += (x[k] - s->target[k]) / (double)s->batch;
    }
    return 0.5 * sum / (double)s->batch;
}

static double embed_optimum(void *self)
{
    (void)self;
    return 0;
}

static void embed_argmin(void *self, double *x)
{
    struct embed *s = self;
    memcpy(x, s->target, (size_t)(s->rows * s->d) * sizeof *x);
}

static int64_t embed_loss_interval(void *self)
{
    (void)self;
    return 10;
}

const struct qm_problem qm_problem_embed = {
    .name = "embed",
    .summary = "embedding table with Zipf's frequencies: most rows of a gradient are zero",
    .source = "quadratic; floor 0 at the targets",
    .args = defaults,
    .arg = known,
    .n_args = ARGS,
    .open = embed_open,
    .start = embed_start,
    .eval = embed_eval,
    .loss_interval = embed_loss_interval,
    .optimum = embed_optimum,
    .argmin = embed_argmin,
    .expected = qm_problem_unexpected,
    .close = embed_close,
    .steps = 5000,
    .lr_adamw = 0.01,
    .lr_sgdm = 3.16227766,
    .lr_lion = 0.001,
};
