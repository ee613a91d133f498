/* gpt.c - The network of GPT-2 and its backward pass, written out. */
#include "experiments/network/gpt.h"

#include "experiments/network/dense.h"
#include "experiments/source/distribution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PER_LAYER = QM_GPT_PER_LAYER };

enum { GAIN1, BIAS1, QKV_W, QKV_B, BACK_W, BACK_B, GAIN2, BIAS2, UP_W, UP_B, DOWN_W, DOWN_B };

/* ---- sizes ----------------------------------------------------------------------------------- */

static void add_tensor(struct qm_gpt *s, struct qm_shape *shapes, int64_t rows, int64_t cols)
{
    int i = s->n_tensors++;
    shapes[i] = cols ? (struct qm_shape){.rank = 2, .dim = {rows, cols}}
                     : (struct qm_shape){.rank = 1, .dim = {rows}};
    s->at[i + 1] = s->at[i] + rows * (cols ? cols : 1);
}

static void set_tensors(struct qm_gpt *s, struct qm_shape *shapes)
{
    int64_t c = s->shape.width;
    add_tensor(s, shapes, s->symbols, c);
    add_tensor(s, shapes, s->shape.length, c);
    for (int64_t l = 0; l < s->layers; l++) {
        static const int rows[PER_LAYER] = {1, 1, 1, 3, 1, 1, 1, 1, 1, 4, 4, 1};
        static const int cols[PER_LAYER] = {0, 0, 3, 0, 1, 0, 0, 0, 4, 0, 1, 0};
        for (int k = 0; k < PER_LAYER; k++)
            add_tensor(s, shapes, rows[k] * c, cols[k] * c);
    }
    add_tensor(s, shapes, c, 0);
    add_tensor(s, shapes, c, 0);
    if (s->is_untied)
        add_tensor(s, shapes, s->symbols, c);
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
static int64_t set_buffers(struct qm_gpt *s, double *slab)
{
    const struct qm_attention *a = &s->shape;
    int64_t n = s->most * a->length, c = a->width;
    int64_t k = s->symbols, widest = 4 * c * c > k * c ? 4 * c * c : k * c;
    struct slab p = {slab, 0};
    for (int64_t l = 0; l < s->layers; l++) {
        struct qm_gpt_layer *y = &s->layer[l];
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
    s->transposed = take(&p, widest);
    s->scratch = take(&p, a->length * (a->length + c / a->heads));
    s->dx = take(&p, n * c);
    s->dnorm = take(&p, n * c);
    s->dqkv = take(&p, 3 * n * c);
    s->dup = take(&p, 4 * n * c);
    return p.used;
}

qm_status qm_gpt_open(struct qm_gpt *s, struct qm_shape *shapes)
{
    s->slab = malloc((size_t)set_buffers(s, NULL) * sizeof *s->slab);
    if (!s->slab)
        return qm_fail(QM_NO_MEMORY, "activations of a network");
    set_buffers(s, s->slab);
    set_tensors(s, shapes);
    return QM_OK;
}

void qm_gpt_close(struct qm_gpt *s)
{
    free(s->slab);
    s->slab = NULL;
}

double qm_gpt_work(int64_t symbols, const struct qm_attention *shape, int64_t layers)
{
    double width = (double)shape->width, length = (double)shape->length;
    double layer = 24 * width * width + 4 * length * width;
    return (double)layers * layer + 2 * (double)symbols * width;
}

/* The first tensor after the layers: the final gain. */
static int after_layers(const struct qm_gpt *s) { return 2 + (int)s->layers * PER_LAYER; }

static void fill(double *x, int64_t n, double value)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
}

void qm_gpt_start(const struct qm_gpt *s, uint64_t seed, double *p)
{
    const int64_t *at = s->at;
    int last = after_layers(s);
    qm_normals(seed, QM_STREAM_start, 0, 0, at[s->n_tensors], p);
    for (int64_t i = 0; i < at[s->n_tensors]; i++)
        p[i] *= 0.02;
    for (int t = 2; t < last + 2; t++) {
        int k = t < last ? (t - 2) % PER_LAYER : t - last;
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

static const int64_t *layer_at(const struct qm_gpt *s, int64_t l)
{
    return s->at + 2 + l * PER_LAYER;
}

static void add(double *to, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += x[i];
}

static void layer_forward(struct qm_gpt *s, const double *p, const int64_t *at,
                          struct qm_gpt_layer *y, double *out)
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

/* The matrix of the head: a row per symbol. */
static int64_t head_at(const struct qm_gpt *s)
{
    return s->is_untied ? s->at[after_layers(s) + 2] : 0;
}

void qm_gpt_forward(struct qm_gpt *s, const double *p, const int32_t *tokens, int64_t sequences)
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
    const int64_t *last = s->at + after_layers(s);
    qm_layernorm(s->out, p + last[0], p + last[1], n, c, s->stat, s->norm);
    qm_dense_transpose(p + head_at(s), c, s->symbols, c, s->transposed);
    memset(s->prob, 0, (size_t)(n * s->symbols) * sizeof *s->prob);
    qm_dense_add(s->norm, s->transposed, s->prob, n, c, s->symbols);
}

/* Turns s->dx from the gradient of the layer's output into the gradient of its input. */
static void layer_backward(struct qm_gpt *s, const double *p, const int64_t *at,
                           struct qm_gpt_layer *y, double *g)
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

void qm_gpt_backward(struct qm_gpt *s, const double *p, const int32_t *tokens, double *g)
{
    int64_t c = s->shape.width, length = s->shape.length, n = s->shape.batch * length;
    int64_t k = s->symbols;
    const int64_t *last = s->at + after_layers(s);
    double *gwte = g + s->at[0], *gwpe = g + s->at[1];
    struct qm_layer_gradient norm = {s->dx, g + last[0], g + last[1]};
    qm_dense_add_left(s->prob, s->norm, g + head_at(s), k, n, c);
    memset(s->dnorm, 0, (size_t)(n * c) * sizeof *s->dnorm);
    qm_dense_add(s->prob, p + head_at(s), s->dnorm, n, k, c);
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

/* ---- the loss -------------------------------------------------------------------------------- */

double qm_gpt_cross_entropy(struct qm_gpt *s, const int32_t *tokens, int has_gradient)
{
    int64_t length = s->shape.length, n = s->shape.batch * length, k = s->symbols;
    double sum = 0, log_sum;
    for (int64_t i = 0; i < n; i++) {
        int32_t target = tokens[i / length * (length + 1) + i % length + 1];
        double *logit = s->prob + i * k;
        sum -= logit[target];
        qm_softmax(logit, 1, k, &log_sum);
        sum += log_sum;
        if (!has_gradient)
            continue;
        logit[target] -= 1;
        for (int64_t j = 0; j < k; j++)
            logit[j] /= (double)n;
    }
    return sum / (double)n;
}
