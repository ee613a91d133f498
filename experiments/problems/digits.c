/* digits.c - Problem `digits`: a network learns to read 1797 handwritten digits, real data.
 *
 * The images are those of experiments/source/digit_images.h.  The network is 64 - hidden - 10
 * with ReLU, softmax and cross-entropy in nats.  A step draws `batch` images with replacement from
 * the seed; the plotted loss is the mean over all images.  Its infimum is 0 and nowhere attained:
 * once every image is classified, larger outputs bring the loss arbitrarily near to 0
 * (test_problems_known.c shows such a network).
 *
 * Parameters: w1 64 x hidden, b1, w2 hidden x 10, b2; start w = N(0, 2 / rows of w), b = 0. */
#include "experiments/cli/key_value_args.h"
#include "experiments/network/layers.h"
#include "experiments/problems/problem.h"
#include "experiments/source/digit_images.h"
#include "experiments/source/distribution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char defaults[] = "hidden=32,batch=64";

static const struct qm_arg known[] = {
    {.key = "hidden", .lo = 1, .hi = 4096, .whole = 1, .text = "units of the hidden layer"},
    {.key = "batch",
     .lo = 1,
     .hi = 65536,
     .whole = 1,
     .text = "images that a step draws, with replacement"},
};
enum { ARGS = sizeof known / sizeof *known };

enum { IMAGES = QM_DIGIT_IMAGES, PIXELS = QM_DIGIT_PIXELS, CLASSES = QM_DIGIT_CLASSES };

struct digits {
    int64_t hidden, batch;
    uint64_t seed;
    double *x;          /* images x 64 */
    double *batch_x;    /* batch x 64 */
    double *act, *prob; /* most x hidden, most x 10; most = max(images, batch) */
    double *dact;       /* batch x hidden */
    double *scratch;    /* transposed weights */
    int *label;         /* [most]: of the rows that forward reads */
};

static void digits_close(void *self)
{
    struct digits *s = self;
    if (!s)
        return;
    free(s->x);
    free(s->label);
    free(s);
}

static qm_status digits_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                             struct qm_shape *shapes)
{
    double value[ARGS];
    QM_TRY(qm_args_read("digits", defaults, args, known, ARGS, value));
    struct digits *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "digits");
    int64_t h = (int64_t)value[0], b = (int64_t)value[1], most = b > IMAGES ? b : IMAGES;
    s->hidden = h;
    s->batch = b;
    s->seed = seed;
    s->x = malloc((size_t)((IMAGES + b) * PIXELS + (most + b) * h + most * CLASSES + PIXELS * h) *
                  sizeof *s->x);
    s->label = malloc((size_t)most * sizeof *s->label);
    if (!s->x || !s->label) {
        digits_close(s);
        return qm_fail(QM_NO_MEMORY, "digits: %lld hidden units", (long long)h);
    }
    s->batch_x = s->x + IMAGES * PIXELS;
    s->act = s->batch_x + b * PIXELS;
    s->prob = s->act + most * h;
    s->dact = s->prob + most * CLASSES;
    s->scratch = s->dact + b * h;
    for (int64_t i = 0; i < IMAGES; i++)
        qm_digit_image(i, s->x + i * PIXELS);
    *self = s;
    *n_tensors = 4;
    shapes[0] = (struct qm_shape){.rank = 2, .dim = {PIXELS, h}};
    shapes[1] = (struct qm_shape){.rank = 1, .dim = {h}};
    shapes[2] = (struct qm_shape){.rank = 2, .dim = {h, CLASSES}};
    shapes[3] = (struct qm_shape){.rank = 1, .dim = {CLASSES}};
    return QM_OK;
}

/* Offsets of b1, w2 and b2 in the parameters. */
static int64_t at_b1(const struct digits *s) { return PIXELS * s->hidden; }
static int64_t at_w2(const struct digits *s) { return at_b1(s) + s->hidden; }
static int64_t at_b2(const struct digits *s) { return at_w2(s) + s->hidden * CLASSES; }

static void digits_start(void *self, double *p)
{
    struct digits *s = self;
    memset(p, 0, (size_t)(at_b2(s) + CLASSES) * sizeof *p);
    qm_normals(s->seed, QM_STREAM_start, 0, 0, at_b1(s), p);
    qm_normals(s->seed, QM_STREAM_start, 0, at_b1(s), s->hidden * CLASSES, p + at_w2(s));
    for (int64_t i = 0; i < at_b2(s); i++)
        p[i] *= sqrt(2.0 / (double)(i < at_b1(s) ? PIXELS : s->hidden));
}

/* Mean cross-entropy of n rows; leaves activations in s->act and probabilities in s->prob. */
static double forward(struct digits *s, const double *p, const double *x, int64_t n)
{
    double sum = 0, log_sum;
    qm_linear(x, p, p + at_b1(s), n, PIXELS, s->hidden, s->act);
    for (int64_t i = 0; i < n * s->hidden; i++)
        s->act[i] = s->act[i] > 0 ? s->act[i] : 0;
    qm_linear(s->act, p + at_w2(s), p + at_b2(s), n, s->hidden, CLASSES, s->prob);
    for (int64_t i = 0; i < n; i++) {
        double *logit = s->prob + i * CLASSES, own = logit[s->label[i]];
        qm_softmax(logit, 1, CLASSES, &log_sum);
        sum += log_sum - own;
    }
    return sum / (double)n;
}

static void backward(struct digits *s, const double *p, double *grad)
{
    int64_t n = s->batch;
    memset(grad, 0, (size_t)(at_b2(s) + CLASSES) * sizeof *grad);
    for (int64_t i = 0; i < n; i++) {
        s->prob[i * CLASSES + s->label[i]] -= 1;
        for (int k = 0; k < CLASSES; k++)
            s->prob[i * CLASSES + k] /= (double)n;
    }
    struct qm_layer_gradient layer1 = {NULL, grad, grad + at_b1(s)};
    struct qm_layer_gradient layer2 = {s->dact, grad + at_w2(s), grad + at_b2(s)};
    qm_linear_back(s->act, p + at_w2(s), s->prob, n, s->hidden, CLASSES, s->scratch, &layer2);
    for (int64_t i = 0; i < n * s->hidden; i++)
        s->dact[i] = s->act[i] > 0 ? s->dact[i] : 0;
    qm_linear_back(s->batch_x, p, s->dact, n, PIXELS, s->hidden, s->scratch, &layer1);
}

static double digits_eval(void *self, const double *p, int64_t t, double *grad)
{
    struct digits *s = self;
    for (int64_t i = 0; !grad && i < IMAGES; i++)
        s->label[i] = qm_digit_label(i);
    if (!grad)
        return forward(s, p, s->x, IMAGES);
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t i = qm_pick(s->seed, QM_STREAM_rows, t, b, IMAGES);
        memcpy(s->batch_x + b * PIXELS, s->x + i * PIXELS, PIXELS * sizeof *s->x);
        s->label[b] = qm_digit_label(i);
    }
    double loss = forward(s, p, s->batch_x, s->batch);
    backward(s, p, grad);
    return loss;
}

static double digits_optimum(void *self)
{
    (void)self;
    return 0;
}

static int64_t digits_loss_interval(void *self)
{
    (void)self;
    return 50;
}

const struct qm_problem qm_problem_digits = {
    .name = "digits",
    .summary = "real data: a network learns to read 1797 handwritten digits",
    .source = "E. Alpaydin, C. Kaynak, UCI, doi 10.24432/C50P49; infimum 0 of a separated set",
    .args = defaults,
    .arg = known,
    .n_args = ARGS,
    .open = digits_open,
    .start = digits_start,
    .eval = digits_eval,
    .loss_interval = digits_loss_interval,
    .optimum = digits_optimum,
    .expected = qm_problem_unexpected,
    .close = digits_close,
    .steps = 1000,
    .lr_adamw = 0.0316227766,
    .lr_sgdm = 0.316227766,
    .lr_lion = 0.001,
};
