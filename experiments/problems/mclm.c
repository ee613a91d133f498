/* mclm.c - Problem `mclm`: a small GPT on a synthetic language whose entropy rate is known.
 *
 * Language: a Markov chain of order 1 or 2 over K symbols (experiments/network/markov_chain.h).
 * Model: GPT-2 with learned positions and a tied head; per layer LN, attention, residual, LN,
 * C x 4C, GELU (tanh), 4C x C, residual; a final LN; logits = x wte'.  Matrices act from the right
 * (x w + b); LN's epsilon is 1e-5.
 *
 * A step draws `batch` sequences of T + 1 tokens from the seed; its gradient is the gradient of
 * their mean cross-entropy in nats.  The plotted loss has no label noise: it is the mean
 * Kullback-Leibler divergence of the model from the chain's law over `eval` fixed sequences (drawn
 * from data_seed) plus the floor (H_1 + (T - 1) H) / T, where H is the entropy rate and H_1 the
 * entropy of the first target, whose context is one token.
 *
 * Parameters: wte K x C, wpe T x C; per layer ln gain, bias, qkv C x 3C, bias, projection C x C,
 * bias, ln gain, bias, C x 4C, bias, 4C x C, bias; final gain, bias.  Start: N(0, 0.02^2),
 * projections back into the residual stream times 1 / sqrt(2 L), gains 1, biases 0. */
#include "experiments/cli/key_value_args.h"
#include "experiments/network/dense.h"
#include "experiments/network/layers.h"
#include "experiments/network/markov_chain.h"
#include "experiments/problems/problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char defaults[] = "K=32,T=16,C=32,L=1,heads=2,batch=8,order=1,a=3,eval=16,data_seed=1";

enum { MOST_LAYERS = 5, PER_LAYER = 12, LOSS_INTERVAL = 5 };

enum { GAIN1, BIAS1, QKV_W, QKV_B, BACK_W, BACK_B, GAIN2, BIAS2, UP_W, UP_B, DOWN_W, DOWN_B };

/* Activations of one layer that backward needs. */
struct layer {
    double *in, *norm1, *stat1, *qkv, *weight, *mixed, *middle, *norm2, *stat2, *up, *tanh_of, *act;
};

struct mclm {
    struct qm_markov_chain chain;
    struct qm_attention shape; /* batch: the sequences of the last forward pass */
    int64_t layers, batch, eval;
    uint64_t seed;
    double eval_entropy; /* mean entropy of the laws after every context of the eval tokens */
    int n_tensors;
    int64_t at[2 + PER_LAYER * MOST_LAYERS + 3]; /* offset of each tensor, then their total */
    int32_t *tokens, *eval_tokens;               /* batch and eval sequences of T + 1 */
    double *slab;
    struct layer layer[MOST_LAYERS];
    double *out, *norm, *stat, *prob, *log_sum;             /* after the last layer */
    double *transposed, *scratch, *dx, *dnorm, *dqkv, *dup; /* scratch of both passes */
};

/* ---- sizes ----------------------------------------------------------------------------------- */

static void add_tensor(struct mclm *s, struct qm_shape *shapes, int64_t rows, int64_t cols)
{
    int i = s->n_tensors++;
    shapes[i] = cols ? (struct qm_shape){.rank = 2, .dim = {rows, cols}}
                     : (struct qm_shape){.rank = 1, .dim = {rows}};
    s->at[i + 1] = s->at[i] + rows * (cols ? cols : 1);
}

static void set_tensors(struct mclm *s, struct qm_shape *shapes)
{
    int64_t c = s->shape.width;
    add_tensor(s, shapes, s->chain.symbols, c);
    add_tensor(s, shapes, s->shape.length, c);
    for (int64_t l = 0; l < s->layers; l++) {
        static const int rows[PER_LAYER] = {1, 1, 1, 3, 1, 1, 1, 1, 1, 4, 4, 1};
        static const int cols[PER_LAYER] = {0, 0, 3, 0, 1, 0, 0, 0, 4, 0, 1, 0};
        for (int k = 0; k < PER_LAYER; k++)
            add_tensor(s, shapes, rows[k] * c, cols[k] * c);
    }
    add_tensor(s, shapes, c, 0);
    add_tensor(s, shapes, c, 0);
}

struct slab {
    double *base; /* NULL: only count */
    int64_t used;
};

static double *take(struct slab *from, int64_t n)
{
    double *p = from->base ? from->base + from->used : NULL;
    from->used += n;
    return p;
}

/* Divides the slab among the buffers; slab NULL only counts.  Returns the number of elements. */
static int64_t set_buffers(struct mclm *s, double *slab)
{
    const struct qm_attention *a = &s->shape;
    int64_t most = s->batch > s->eval ? s->batch : s->eval, n = most * a->length, c = a->width;
    int64_t k = s->chain.symbols, widest = 4 * c * c > k * c ? 4 * c * c : k * c;
    struct slab p = {slab, 0};
    for (int64_t l = 0; l < s->layers; l++) {
        struct layer *y = &s->layer[l];
        y->in = take(&p, n * c);
        y->norm1 = take(&p, n * c);
        y->stat1 = take(&p, 2 * n);
        y->qkv = take(&p, 3 * n * c);
        y->weight = take(&p, n * a->heads * a->length);
        y->mixed = take(&p, n * c);
        y->middle = take(&p, n * c);
        y->norm2 = take(&p, n * c);
        y->stat2 = take(&p, 2 * n);
        y->up = take(&p, 4 * n * c);
        y->tanh_of = take(&p, 4 * n * c);
        y->act = take(&p, 4 * n * c);
    }
    s->out = take(&p, n * c);
    s->norm = take(&p, n * c);
    s->stat = take(&p, 2 * n);
    s->prob = take(&p, n * k);
    s->log_sum = take(&p, n);
    s->transposed = take(&p, widest);
    s->scratch = take(&p, a->length * (a->length + c / a->heads));
    s->dx = take(&p, n * c);
    s->dnorm = take(&p, n * c);
    s->dqkv = take(&p, 3 * n * c);
    s->dup = take(&p, 4 * n * c);
    return p.used;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void mclm_close(void *self)
{
    struct mclm *s = self;
    if (!s)
        return;
    qm_markov_chain_close(&s->chain);
    free(s->tokens);
    free(s->slab);
    free(s);
}

/* The law of the token after position i of these sequences. */
static const double *law_at(const struct mclm *s, const int32_t *tokens, int64_t i)
{
    int64_t length = s->shape.length;
    const int32_t *token = tokens + i / length * (length + 1) + i % length;
    return qm_markov_chain_next(&s->chain, i % length ? token[-1] : -1, *token);
}

static qm_status open_buffers(struct mclm *s, uint64_t data_seed)
{
    int64_t long_by_one = s->shape.length + 1;
    s->tokens = malloc((size_t)((s->batch + s->eval) * long_by_one) * sizeof *s->tokens);
    s->slab = malloc((size_t)set_buffers(s, NULL) * sizeof *s->slab);
    if (!s->tokens || !s->slab)
        return qm_fail(QM_NO_MEMORY, "mclm: activations");
    set_buffers(s, s->slab);
    s->eval_tokens = s->tokens + s->batch * long_by_one;
    qm_markov_chain_draw(&s->chain, data_seed, QM_STREAM_dist, 0, s->eval, long_by_one,
                         s->eval_tokens);
    int64_t n = s->eval * s->shape.length;
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

/* Forward takes 2 operations per weight and 4 T C of attention for each token; backward twice as
 * many. */
static double mclm_work(const char *args)
{
    double value[ARGS];
    if (read_args(args, value) != QM_OK)
        return 0;
    double width = value[WIDTH], length = value[LENGTH];
    double layer = 24 * width * width + 4 * length * width;
    double token = value[LAYERS] * layer + 2 * value[SYMBOLS] * width;
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
    s->shape =
        (struct qm_attention){.length = (int64_t)value[LENGTH], .width = width, .heads = heads};
    s->layers = (int64_t)value[LAYERS];
    s->batch = (int64_t)value[BATCH];
    s->eval = (int64_t)value[EVAL];
    s->seed = seed;
    qm_status st =
        qm_markov_chain_open((int64_t)value[SYMBOLS], (int)value[ORDER], value[PEAK], &s->chain);
    if (st == QM_OK)
        st = open_buffers(s, (uint64_t)value[DATA_SEED]);
    if (st != QM_OK) {
        mclm_close(s);
        return st;
    }
    set_tensors(s, shapes);
    *self = s;
    *n_tensors = s->n_tensors;
    return QM_OK;
}

static void fill(double *x, int64_t n, double value)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
}

static void mclm_start(void *self, double *p)
{
    struct mclm *s = self;
    const int64_t *at = s->at;
    int last = s->n_tensors;
    qm_normals(s->seed, QM_STREAM_start, 0, 0, at[last], p);
    for (int64_t i = 0; i < at[last]; i++)
        p[i] *= 0.02;
    for (int t = 2; t < last; t++) {
        int k = t < last - 2 ? (t - 2) % PER_LAYER : t - (last - 2);
        double *x = p + at[t], residual = 1 / sqrt(2 * (double)s->layers);
        int64_t n = at[t + 1] - at[t];
        if (k == GAIN1 || k == GAIN2)
            fill(x, n, 1);
        else if (k == BACK_W || k == DOWN_W)
            for (int64_t i = 0; i < n; i++)
                x[i] *= residual;
        else if (k != QKV_W && k != UP_W)
            fill(x, n, 0);
    }
}

/* ---- forward and backward -------------------------------------------------------------------- */

static const int64_t *layer_at(const struct mclm *s, int64_t l)
{
    return s->at + 2 + l * PER_LAYER;
}

static void add(double *to, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += x[i];
}

static void layer_forward(struct mclm *s, const double *p, const int64_t *at, struct layer *y,
                          double *out)
{
    int64_t c = s->shape.width, n = s->shape.batch * s->shape.length;
    qm_layernorm(y->in, p + at[GAIN1], p + at[BIAS1], n, c, y->stat1, y->norm1);
    qm_linear(y->norm1, p + at[QKV_W], p + at[QKV_B], n, c, 3 * c, y->qkv);
    qm_attention(&s->shape, y->qkv, y->weight, s->scratch, y->mixed);
    qm_linear(y->mixed, p + at[BACK_W], p + at[BACK_B], n, c, c, y->middle);
    add(y->middle, y->in, n * c);
    qm_layernorm(y->middle, p + at[GAIN2], p + at[BIAS2], n, c, y->stat2, y->norm2);
    qm_linear(y->norm2, p + at[UP_W], p + at[UP_B], n, c, 4 * c, y->up);
    qm_gelu(y->up, 4 * n * c, y->tanh_of, y->act);
    qm_linear(y->act, p + at[DOWN_W], p + at[DOWN_B], n, 4 * c, c, out);
    add(out, y->middle, n * c);
}

/* Logits of the next token after every position of these sequences, into s->prob. */
static void forward(struct mclm *s, const double *p, const int32_t *tokens, int64_t sequences)
{
    int64_t c = s->shape.width, length = s->shape.length, n = sequences * length;
    const double *wte = p + s->at[0], *wpe = p + s->at[1];
    s->shape.batch = sequences;
    for (int64_t i = 0; i < n; i++) {
        const double *word = wte + tokens[i / length * (length + 1) + i % length] * c;
        for (int64_t k = 0; k < c; k++)
            s->layer[0].in[i * c + k] = word[k] + wpe[i % length * c + k];
    }
    for (int64_t l = 0; l < s->layers; l++)
        layer_forward(s, p, layer_at(s, l), &s->layer[l],
                      l + 1 < s->layers ? s->layer[l + 1].in : s->out);
    const int64_t *last = s->at + s->n_tensors - 2;
    qm_layernorm(s->out, p + last[0], p + last[1], n, c, s->stat, s->norm);
    qm_dense_transpose(wte, c, s->chain.symbols, c, s->transposed);
    memset(s->prob, 0, (size_t)(n * s->chain.symbols) * sizeof *s->prob);
    qm_dense_add(s->norm, s->transposed, s->prob, n, c, s->chain.symbols);
}

/* Turns s->dx from the gradient of the layer's output into the gradient of its input. */
static void layer_backward(struct mclm *s, const double *p, const int64_t *at, struct layer *y,
                           double *g)
{
    int64_t c = s->shape.width, n = s->shape.batch * s->shape.length;
    struct qm_layer_gradient norm1 = {s->dx, g + at[GAIN1], g + at[BIAS1]};
    struct qm_layer_gradient qkv = {s->dnorm, g + at[QKV_W], g + at[QKV_B]};
    struct qm_layer_gradient back = {s->dnorm, g + at[BACK_W], g + at[BACK_B]};
    struct qm_layer_gradient norm2 = {s->dx, g + at[GAIN2], g + at[BIAS2]};
    struct qm_layer_gradient up = {s->dnorm, g + at[UP_W], g + at[UP_B]};
    struct qm_layer_gradient down = {s->dup, g + at[DOWN_W], g + at[DOWN_B]};
    double *scratch = s->transposed;
    qm_linear_back(y->act, p + at[DOWN_W], s->dx, n, 4 * c, c, scratch, &down);
    qm_gelu_back(y->up, y->tanh_of, s->dup, 4 * n * c, s->dup);
    qm_linear_back(y->norm2, p + at[UP_W], s->dup, n, c, 4 * c, scratch, &up);
    qm_layernorm_back(y->middle, p + at[GAIN2], y->stat2, s->dnorm, n, c, &norm2);
    qm_linear_back(y->mixed, p + at[BACK_W], s->dx, n, c, c, scratch, &back);
    qm_attention_back(&s->shape, y->qkv, y->weight, s->dnorm, s->scratch, s->dqkv);
    qm_linear_back(y->norm1, p + at[QKV_W], s->dqkv, n, c, 3 * c, scratch, &qkv);
    qm_layernorm_back(y->in, p + at[GAIN1], y->stat1, s->dnorm, n, c, &norm1);
}

/* Adds the gradient of the parameters to g, from the gradient of the logits in s->prob. */
static void backward(struct mclm *s, const double *p, const int32_t *tokens, double *g)
{
    int64_t c = s->shape.width, length = s->shape.length, n = s->shape.batch * length;
    int64_t k = s->chain.symbols;
    const int64_t *last = s->at + s->n_tensors - 2;
    double *gwte = g + s->at[0], *gwpe = g + s->at[1];
    struct qm_layer_gradient norm = {s->dx, g + last[0], g + last[1]};
    qm_dense_add_left(s->prob, s->norm, gwte, k, n, c);
    memset(s->dnorm, 0, (size_t)(n * c) * sizeof *s->dnorm);
    qm_dense_add(s->prob, p + s->at[0], s->dnorm, n, k, c);
    memset(s->dx, 0, (size_t)(n * c) * sizeof *s->dx);
    qm_layernorm_back(s->out, p + last[0], s->stat, s->dnorm, n, c, &norm);
    for (int64_t l = s->layers - 1; l >= 0; l--)
        layer_backward(s, p, layer_at(s, l), &s->layer[l], g);
    for (int64_t i = 0; i < n; i++) {
        int64_t word = tokens[i / length * (length + 1) + i % length];
        add(gwte + word * c, s->dx + i * c, c);
        add(gwpe + i % length * c, s->dx + i * c, c);
    }
}

/* ---- the two losses -------------------------------------------------------------------------- */

/* The plotted loss: the floor plus the mean divergence from the chain's law. */
static double population(struct mclm *s, const double *p)
{
    int64_t length = s->shape.length, n = s->eval * length, k = s->chain.symbols;
    double sum = 0;
    forward(s, p, s->eval_tokens, s->eval);
    for (int64_t i = 0; i < n; i++) {
        const double *law = law_at(s, s->eval_tokens, i);
        double *logit = s->prob + i * k, cross = 0;
        for (int64_t j = 0; j < k; j++)
            cross += law[j] * logit[j];
        qm_softmax(logit, 1, k, s->log_sum);
        sum += s->log_sum[0] - cross;
    }
    return qm_markov_chain_floor(&s->chain, length) + sum / (double)n - s->eval_entropy;
}

static double mclm_eval(void *self, const double *p, int64_t t, double *grad)
{
    struct mclm *s = self;
    int64_t length = s->shape.length, n = s->batch * length, k = s->chain.symbols;
    double sum = 0;
    if (!grad)
        return population(s, p);
    qm_markov_chain_draw(&s->chain, s->seed, QM_STREAM_rows, t, s->batch, length + 1, s->tokens);
    forward(s, p, s->tokens, s->batch);
    for (int64_t i = 0; i < n; i++) {
        int32_t target = s->tokens[i / length * (length + 1) + i % length + 1];
        double *logit = s->prob + i * k;
        sum -= logit[target];
        qm_softmax(logit, 1, k, s->log_sum);
        sum += s->log_sum[0];
        logit[target] -= 1;
        for (int64_t j = 0; j < k; j++)
            logit[j] /= (double)n;
    }
    memset(grad, 0, (size_t)s->at[s->n_tensors] * sizeof *grad);
    backward(s, p, s->tokens, grad);
    return sum / (double)n;
}

static double mclm_optimum(void *self)
{
    struct mclm *s = self;
    return qm_markov_chain_floor(&s->chain, s->shape.length);
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
