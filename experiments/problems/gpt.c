/* gpt.c - Problem `gpt`: a GPT that predicts the next byte of a novel, real data.
 *
 * Text: Jane Austen, Pride and Prejudice, 684,768 bytes of ASCII (experiments/data/
 * pride_and_prejudice.zip, embedded here; origin and licence in experiments/data/README.md).
 * Symbols are the 75 bytes that occur in it, in order of value.  Model: experiments/network/gpt.h.
 *
 * A twentieth of the text is held out: the one that data_seed chooses.  A step draws `batch`
 * windows of T + 1 bytes from the rest, each with a first byte that is uniform among those from
 * which no window runs into the held-out part or the end; its gradient is that of their mean
 * cross-entropy.  The plotted loss is the mean cross-entropy, in nats per byte, over `eval` windows
 * spread evenly over the held-out part.  Its infimum is not known; losses count from 0, which no
 * model attains, so that a gap is the share of the start's loss that is left. */
#include "experiments/network/gpt.h"
#include "experiments/cli/key_value_args.h"
#include "experiments/problems/problem.h"
#include "experiments/source/distribution.h"

#include <stdlib.h>
#include <string.h>
#include <zip.h>

static const char defaults[] = "T=64,C=64,L=2,heads=4,batch=8,tied=1,eval=16,data_seed=1";

enum { LOSS_INTERVAL = 10, BYTES = 684768, SYMBOLS = 75, HELD_OUT = BYTES / 20 };

static const unsigned char archive[] = {
#include "novel.inc"
};

struct gpt {
    struct qm_gpt net;
    int64_t batch, eval;
    int64_t held_out; /* its first byte */
    uint64_t seed;
    unsigned char *text;           /* BYTES symbols */
    int32_t *tokens, *eval_tokens; /* batch and eval windows of T + 1 */
};

/* ---- opening --------------------------------------------------------------------------------- */

static void gpt_close(void *self)
{
    struct gpt *s = self;
    if (!s)
        return;
    qm_gpt_close(&s->net);
    free(s->text);
    free(s->tokens);
    free(s);
}

/* Reads the only file of the archive into text[BYTES]; 0 where that fails. */
static int unpack(unsigned char *text)
{
    zip_source_t *source = zip_source_buffer_create(archive, sizeof archive, 0, NULL);
    zip_t *z = source ? zip_open_from_source(source, ZIP_RDONLY, NULL) : NULL;
    zip_file_t *f = z ? zip_fopen_index(z, 0, 0) : NULL;
    int ok = f && zip_fread(f, text, BYTES) == BYTES;
    if (f)
        zip_fclose(f);
    if (z)
        zip_discard(z);
    else if (source)
        zip_source_free(source);
    return ok;
}

/* Replaces bytes by the rank of their value among those that occur; returns how many occur. */
static int64_t number_symbols(unsigned char *text)
{
    unsigned char number[256] = {0};
    int64_t n = 0;
    for (int64_t i = 0; i < BYTES; i++)
        number[text[i]] = 1;
    for (int b = 0; b < 256; b++)
        if (number[b])
            number[b] = (unsigned char)n++;
    for (int64_t i = 0; i < BYTES; i++)
        text[i] = number[text[i]];
    return n;
}

static void copy_window(const struct gpt *s, int64_t from, int32_t *to)
{
    for (int64_t i = 0; i <= s->net.shape.length; i++)
        to[i] = s->text[from + i];
}

static qm_status open_text(struct gpt *s, uint64_t data_seed)
{
    int64_t window = s->net.shape.length + 1;
    s->text = malloc(BYTES);
    s->tokens = malloc((size_t)((s->batch + s->eval) * window) * sizeof *s->tokens);
    if (!s->text || !s->tokens)
        return qm_fail(QM_NO_MEMORY, "gpt: the text");
    if (!unpack(s->text) || number_symbols(s->text) != SYMBOLS)
        return qm_fail(QM_INTERNAL, "gpt: the text cannot be unpacked");
    s->net.symbols = SYMBOLS;
    s->held_out = (int64_t)(data_seed % 20) * HELD_OUT;
    s->eval_tokens = s->tokens + s->batch * window;
    for (int64_t i = 0; i < s->eval; i++)
        copy_window(s, s->held_out + i * (HELD_OUT - window) / s->eval,
                    s->eval_tokens + i * window);
    return QM_OK;
}

enum { LENGTH, WIDTH, LAYERS, HEADS, BATCH, TIED, EVAL, DATA_SEED, ARGS };

static const struct qm_arg known[ARGS] = {
    {.key = "T", .lo = 2, .hi = 1024, .whole = 1, .text = "bytes of context"},
    {.key = "C", .lo = 1, .hi = 1024, .whole = 1, .text = "width, a multiple of heads"},
    {.key = "L", .lo = 1, .hi = QM_GPT_LAYERS - 1, .whole = 1, .text = "layers"},
    {.key = "heads", .lo = 1, .hi = 64, .whole = 1, .text = "heads of attention"},
    {.key = "batch", .lo = 1, .hi = 1024, .whole = 1, .text = "windows that a step draws"},
    {.key = "tied", .lo = 0, .hi = 1, .whole = 1, .text = "1: the embedding is the head's matrix"},
    {.key = "eval", .lo = 1, .hi = 1024, .whole = 1, .text = "windows that the loss is over"},
    {.key = "data_seed",
     .lo = 0,
     .hi = 4294967295.0,
     .whole = 1,
     .text = "chooses the twentieth that is held out, modulo 20"},
};

static qm_status read_args(const char *args, double value[ARGS])
{
    return qm_args_read("gpt", defaults, args, known, ARGS, value);
}

static double gpt_work(const char *args)
{
    double value[ARGS];
    if (read_args(args, value) != QM_OK)
        return 0;
    struct qm_attention shape = {.length = (int64_t)value[LENGTH], .width = (int64_t)value[WIDTH]};
    return qm_gpt_work(SYMBOLS, &shape, (int64_t)value[LAYERS]) * value[LENGTH] *
           (3 * value[BATCH] + value[EVAL] / LOSS_INTERVAL);
}

static qm_status gpt_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                          struct qm_shape *shapes)
{
    double value[ARGS];
    QM_TRY(read_args(args, value));
    int64_t width = (int64_t)value[WIDTH], heads = (int64_t)value[HEADS];
    if (width % heads)
        return qm_fail(QM_BAD_ARG, "gpt: heads is %lld, expected a divisor of C = %lld",
                       (long long)heads, (long long)width);
    struct gpt *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "gpt");
    s->batch = (int64_t)value[BATCH];
    s->eval = (int64_t)value[EVAL];
    s->seed = seed;
    s->net.shape =
        (struct qm_attention){.length = (int64_t)value[LENGTH], .width = width, .heads = heads};
    s->net.layers = (int64_t)value[LAYERS];
    s->net.most = s->batch > s->eval ? s->batch : s->eval;
    s->net.is_untied = value[TIED] == 0;
    qm_status st = open_text(s, (uint64_t)value[DATA_SEED]);
    if (st == QM_OK)
        st = qm_gpt_open(&s->net, shapes);
    if (st != QM_OK) {
        gpt_close(s);
        return st;
    }
    *self = s;
    *n_tensors = s->net.n_tensors;
    return QM_OK;
}

static void gpt_start(void *self, double *p)
{
    struct gpt *s = self;
    qm_gpt_start(&s->net, s->seed, p);
}

/* ---- the two losses -------------------------------------------------------------------------- */

/* Draws the windows of step t: a window's first byte counts the allowed ones before the held-out
 * part, then those after it. */
static void draw_windows(struct gpt *s, int64_t t)
{
    int64_t window = s->net.shape.length + 1, after = s->held_out + HELD_OUT;
    int64_t before = s->held_out >= window ? s->held_out - window + 1 : 0;
    int64_t behind = BYTES - after >= window ? BYTES - after - window + 1 : 0;
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t i = qm_pick(s->seed, QM_STREAM_rows, t, b, before + behind);
        copy_window(s, i < before ? i : after + i - before, s->tokens + b * window);
    }
}

static double gpt_eval(void *self, const double *p, int64_t t, double *grad)
{
    struct gpt *s = self;
    if (!grad) {
        qm_gpt_forward(&s->net, p, s->eval_tokens, s->eval);
        return qm_gpt_cross_entropy(&s->net, s->eval_tokens, 0);
    }
    draw_windows(s, t);
    qm_gpt_forward(&s->net, p, s->tokens, s->batch);
    double loss = qm_gpt_cross_entropy(&s->net, s->tokens, 1);
    memset(grad, 0, (size_t)s->net.at[s->net.n_tensors] * sizeof *grad);
    qm_gpt_backward(&s->net, p, s->tokens, grad);
    return loss;
}

static double gpt_optimum(void *self)
{
    (void)self;
    return 0.0;
}

static int64_t gpt_loss_interval(void *self)
{
    (void)self;
    return LOSS_INTERVAL;
}

const struct qm_problem qm_problem_gpt = {
    .name = "gpt",
    .summary = "real data: a GPT predicts the next byte of a novel; nats per held-out byte",
    .source = "J. Austen, Pride and Prejudice (1813); model as GPT-2, backward written out",
    .args = defaults,
    .arg = known,
    .n_args = ARGS,
    .open = gpt_open,
    .work = gpt_work,
    .start = gpt_start,
    .eval = gpt_eval,
    .loss_interval = gpt_loss_interval,
    .optimum = gpt_optimum,
    .expected = qm_problem_unexpected,
    .close = gpt_close,
    .steps = 400,
    .lr_adamw = 0.001,
    .lr_sgdm = 0.1,
    .lr_lion = 0.001,
};
