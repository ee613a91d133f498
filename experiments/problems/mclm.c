/* mclm.c - Problem `mclm`: a small GPT on a synthetic language whose entropy rate is known.
 *
 * Language: a Markov chain of order 1 or 2 over K symbols (experiments/network/markov_chain.h).
 * Model: experiments/network/gpt.h, tied.
 *
 * A step draws `batch` sequences of T + 1 tokens from the seed; its gradient is the gradient of
 * their mean cross-entropy in nats.  The plotted loss has no label noise: it is the mean
 * Kullback-Leibler divergence of the model from the chain's law over `eval` fixed sequences (drawn
 * from data_seed) plus the floor (H_1 + (T - 1) H) / T, where H is the entropy rate and H_1 the
 * entropy of the first target, whose context is one token.
 */
#include "experiments/cli/key_value_args.h"
#include "experiments/network/gpt.h"
#include "experiments/network/markov_chain.h"
#include "experiments/problems/problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char defaults[] = "K=32,T=16,C=32,L=1,heads=2,batch=8,order=1,a=3,eval=16,data_seed=1";

enum { MOST_LAYERS = 5, LOSS_INTERVAL = 5 };

struct mclm {
    struct qm_gpt net;
    struct qm_markov_chain chain;
    int64_t batch, eval;
    uint64_t seed;
    double eval_entropy; /* mean entropy of the laws after every context of the eval tokens */
    int32_t *tokens, *eval_tokens; /* batch and eval sequences of T + 1 */
};

/* ---- opening --------------------------------------------------------------------------------- */

static void mclm_close(void *self)
{
    struct mclm *s = self;
    if (!s)
        return;
    qm_markov_chain_close(&s->chain);
    free(s->tokens);
    qm_gpt_close(&s->net);
    free(s);
}

/* The law of the token after position i of these sequences. */
static const double *law_at(const struct mclm *s, const int32_t *tokens, int64_t i)
{
    int64_t length = s->net.shape.length;
    const int32_t *token = tokens + i / length * (length + 1) + i % length;
    return qm_markov_chain_next(&s->chain, i % length ? token[-1] : -1, *token);
}

static qm_status open_tokens(struct mclm *s, uint64_t data_seed)
{
    int64_t long_by_one = s->net.shape.length + 1;
    s->tokens = malloc((size_t)((s->batch + s->eval) * long_by_one) * sizeof *s->tokens);
    if (!s->tokens)
        return qm_fail(QM_NO_MEMORY, "mclm: tokens");
    s->eval_tokens = s->tokens + s->batch * long_by_one;
    qm_markov_chain_draw(&s->chain, data_seed, QM_STREAM_dist, 0, s->eval, long_by_one,
                         s->eval_tokens);
    int64_t n = s->eval * s->net.shape.length;
    for (int64_t i = 0; i < n; i++) {
        const double *law = law_at(s, s->eval_tokens, i);
        for (int64_t j = 0; j < s->chain.symbols; j++)
            s->eval_entropy -= law[j] > 0 ? law[j] * log(law[j]) / (double)n : 0;
    }
    return QM_OK;
}

enum { SYMBOLS, LENGTH, WIDTH, LAYERS, HEADS, BATCH, ORDER, PEAK, EVAL, DATA_SEED, ARGS };

static const struct qm_arg known[ARGS] = {
    {.key = "K", .lo = 2, .hi = 256, .whole = 1, .text = "symbols of the language"},
    {.key = "T", .lo = 2, .hi = 1024, .whole = 1, .text = "tokens of context"},
    {.key = "C", .lo = 1, .hi = 1024, .whole = 1, .text = "width, a multiple of heads"},
    {.key = "L", .lo = 1, .hi = MOST_LAYERS, .whole = 1, .text = "layers"},
    {.key = "heads", .lo = 1, .hi = 64, .whole = 1, .text = "heads of attention"},
    {.key = "batch", .lo = 1, .hi = 1024, .whole = 1, .text = "sequences that a step draws"},
    {.key = "order", .lo = 1, .hi = 2, .whole = 1, .text = "tokens that the next one depends on"},
    {.key = "a", .lo = 0, .hi = 30, .text = "how peaked the language is; 0: all symbols alike"},
    {.key = "eval",
     .lo = 1,
     .hi = 1024,
     .whole = 1,
     .text = "fixed sequences that the loss is over"},
    {.key = "data_seed",
     .lo = 0,
     .hi = 4294967295.0,
     .whole = 1,
     .text = "seed of those sequences"},
};

static qm_status read_args(const char *args, double value[ARGS])
{
    return qm_args_read("mclm", defaults, args, known, ARGS, value);
}

static double mclm_work(const char *args)
{
    double value[ARGS];
    if (read_args(args, value) != QM_OK)
        return 0;
    double length = value[LENGTH];
    struct qm_attention shape = {.length = (int64_t)length, .width = (int64_t)value[WIDTH]};
    double token = qm_gpt_work((int64_t)value[SYMBOLS], &shape, (int64_t)value[LAYERS]);
    return token * length * (3 * value[BATCH] + value[EVAL] / LOSS_INTERVAL);
}

static qm_status mclm_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                           struct qm_shape *shapes)
{
    double value[ARGS];
    QM_TRY(read_args(args, value));
    int64_t width = (int64_t)value[WIDTH], heads = (int64_t)value[HEADS];
    if (width % heads)
        return qm_fail(QM_BAD_ARG, "mclm: heads is %lld, expected a divisor of C = %lld",
                       (long long)heads, (long long)width);
    struct mclm *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "mclm");
    s->net.shape =
        (struct qm_attention){.length = (int64_t)value[LENGTH], .width = width, .heads = heads};
    s->batch = (int64_t)value[BATCH];
    s->eval = (int64_t)value[EVAL];
    s->net.symbols = (int64_t)value[SYMBOLS];
    s->net.layers = (int64_t)value[LAYERS];
    s->net.most = s->batch > s->eval ? s->batch : s->eval;
    s->seed = seed;
    qm_status st =
        qm_markov_chain_open((int64_t)value[SYMBOLS], (int)value[ORDER], value[PEAK], &s->chain);
    if (st == QM_OK)
        st = open_tokens(s, (uint64_t)value[DATA_SEED]);
    if (st == QM_OK)
        st = qm_gpt_open(&s->net, shapes);
    if (st != QM_OK) {
        mclm_close(s);
        return st;
    }
    *self = s;
    *n_tensors = s->net.n_tensors;
    return QM_OK;
}

static void mclm_start(void *self, double *p)
{
    struct mclm *s = self;
    qm_gpt_start(&s->net, s->seed, p);
}

/* ---- the two losses -------------------------------------------------------------------------- */

/* The plotted loss: the floor plus the mean divergence from the chain's law. */
static double population(struct mclm *s, const double *p)
{
    int64_t length = s->net.shape.length, n = s->eval * length, k = s->chain.symbols;
    double sum = 0;
    qm_gpt_forward(&s->net, p, s->eval_tokens, s->eval);
    for (int64_t i = 0; i < n; i++) {
        const double *law = law_at(s, s->eval_tokens, i);
        double *logit = s->net.prob + i * k, cross = 0, log_sum;
        for (int64_t j = 0; j < k; j++)
            cross += law[j] * logit[j];
        qm_softmax(logit, 1, k, &log_sum);
        sum += log_sum - cross;
    }
    return qm_markov_chain_floor(&s->chain, length) + sum / (double)n - s->eval_entropy;
}

static double mclm_eval(void *self, const double *p, int64_t t, double *grad)
{
    struct mclm *s = self;
    if (!grad)
        return population(s, p);
    qm_markov_chain_draw(&s->chain, s->seed, QM_STREAM_rows, t, s->batch, s->net.shape.length + 1,
                         s->tokens);
    qm_gpt_forward(&s->net, p, s->tokens, s->batch);
    double loss = qm_gpt_cross_entropy(&s->net, s->tokens, 1);
    memset(grad, 0, (size_t)s->net.at[s->net.n_tensors] * sizeof *grad);
    qm_gpt_backward(&s->net, p, s->tokens, grad);
    return loss;
}

static double mclm_optimum(void *self)
{
    struct mclm *s = self;
    return qm_markov_chain_floor(&s->chain, s->net.shape.length);
}

static int64_t mclm_loss_interval(void *self)
{
    (void)self;
    return LOSS_INTERVAL;
}

const struct qm_problem qm_problem_mclm = {
    .name = "mclm",
    .summary = "small GPT on a Markov chain; the floor is the chain's entropy rate",
    .source = "entropy rate from the stationary law; model as GPT-2, backward written out",
    .args = defaults,
    .arg = known,
    .n_args = ARGS,
    .open = mclm_open,
    .work = mclm_work,
    .start = mclm_start,
    .eval = mclm_eval,
    .loss_interval = mclm_loss_interval,
    .optimum = mclm_optimum,
    .expected = qm_problem_unexpected,
    .close = mclm_close,
    .steps = 500,
    .lr_adamw = 0.01,
    .lr_sgdm = 0.1,
    .lr_lion = 0.00316227766,
};
