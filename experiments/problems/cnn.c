/* cnn.c - Problem `cnn`: a convolutional network learns to read 1797 handwritten digits, real data.
 *
 * Images of experiments/source/digit_images.h.  Network: convolution 1 to c channels, 3 x 3 with
 * zeros around the image, GELU (tanh), mean over 2 x 2; convolution c to 2c, the same, so that
 * 2 x 2 positions are left; a matrix from the 8c numbers (position by position, channels together)
 * to 10 classes; softmax and cross-entropy in nats.  A step draws `batch` images with replacement
 * from the seed; the plotted loss is the mean over all images, and its infimum 0, as in digits.c.
 *
 * Parameters: w1 c x 1 x 3 x 3, b1, w2 2c x c x 3 x 3, b2, w3 8c x 10, b3; start w = N(0, 2 /
 * inputs of a unit), b = 0. */
#include "experiments/cli/key_value_args.h"
#include "experiments/network/dense.h"
#include "experiments/network/layers.h"
#include "experiments/problems/problem.h"
#include "experiments/source/digit_images.h"
#include "experiments/source/distribution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char defaults[] = "channels=16,batch=64";

static const struct qm_arg known[] = {
    {.key = "channels",
     .lo = 1,
     .hi = 256,
     .whole = 1,
     .text = "channels of the first convolution"},
    {.key = "batch",
     .lo = 1,
     .hi = 65536,
     .whole = 1,
     .text = "images that a step draws, with replacement"},
};
enum { ARGS = sizeof known / sizeof *known };

enum { IMAGES = QM_DIGIT_IMAGES, CLASSES = QM_DIGIT_CLASSES, TAPS = 9, AT_ONCE = 64 };

/* Activations are [image][row][column][channel].  `patch` has a row of taps x channels per
 * position: the product with a transposed kernel is the convolution. */
struct layer {
    int64_t side, in, out;                          /* of the square image; channels */
    double *x, *patch, *y, *tanh_of, *act, *pooled; /* y: before GELU */
    double *kernel;                                 /* TAPS in x out */
    double *dy, *dpatch, *dkernel;
};

struct cnn {
    int64_t batch;
    uint64_t seed;
    struct layer layer[2];
    double *slab, *prob, *dpooled, *scratch;
    int label[AT_ONCE];
    int64_t at[7]; /* offsets of the tensors, then their total */
};

/* ---- opening --------------------------------------------------------------------------------- */

static void cnn_close(void *self)
{
    struct cnn *s = self;
    if (s)
        free(s->slab);
    free(s);
}

/* Divides the slab among the buffers; slab NULL only counts.  Returns the number of elements. */
static int64_t set_buffers(struct cnn *s, double *slab)
{
    int64_t used = 0, widest = 0;
#define TAKE(n) (used += (n), slab ? slab + used - (n) : NULL)
    for (int l = 0; l < 2; l++) {
        struct layer *y = &s->layer[l];
        int64_t n = AT_ONCE * y->side * y->side, taps = TAPS * y->in;
        if (l == 0)
            y->x = TAKE(n * y->in);
        y->patch = TAKE(n * taps);
        y->y = TAKE(n * y->out);
        y->tanh_of = TAKE(n * y->out);
        y->act = TAKE(n * y->out);
        y->pooled = TAKE(n / 4 * y->out);
        y->kernel = TAKE(taps * y->out);
        y->dy = TAKE(n * y->out);
        y->dpatch = TAKE(n * taps);
        y->dkernel = TAKE(taps * y->out);
        widest = taps * y->out > widest ? taps * y->out : widest;
    }
    s->layer[1].x = s->layer[0].pooled;
    int64_t last = 4 * s->layer[1].out;
    s->prob = TAKE(AT_ONCE * CLASSES);
    s->dpooled =
        TAKE(AT_ONCE * 16 * s->layer[0].out > AT_ONCE * last ? AT_ONCE * 16 * s->layer[0].out
                                                             : AT_ONCE * last);
    s->scratch = TAKE(widest > last * CLASSES ? widest : last * CLASSES);
#undef TAKE
    return used;
}

static qm_status cnn_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                          struct qm_shape *shapes)
{
    double value[ARGS];
    QM_TRY(qm_args_read("cnn", defaults, args, known, ARGS, value));
    struct cnn *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "cnn");
    int64_t c = (int64_t)value[0];
    s->batch = (int64_t)value[1];
    s->seed = seed;
    s->layer[0] = (struct layer){.side = 8, .in = 1, .out = c};
    s->layer[1] = (struct layer){.side = 4, .in = c, .out = 2 * c};
    s->slab = malloc((size_t)set_buffers(s, NULL) * sizeof *s->slab);
    if (!s->slab) {
        cnn_close(s);
        return qm_fail(QM_NO_MEMORY, "cnn: %lld channels", (long long)c);
    }
    set_buffers(s, s->slab);
    *self = s;
    *n_tensors = 6;
    shapes[0] = (struct qm_shape){.rank = 4, .dim = {c, 1, 3, 3}};
    shapes[1] = (struct qm_shape){.rank = 1, .dim = {c}};
    shapes[2] = (struct qm_shape){.rank = 4, .dim = {2 * c, c, 3, 3}};
    shapes[3] = (struct qm_shape){.rank = 1, .dim = {2 * c}};
    shapes[4] = (struct qm_shape){.rank = 2, .dim = {8 * c, CLASSES}};
    shapes[5] = (struct qm_shape){.rank = 1, .dim = {CLASSES}};
    for (int i = 0; i < 6; i++)
        s->at[i + 1] = s->at[i] + qm_shape_numel(&shapes[i]);
    return QM_OK;
}

static void cnn_start(void *self, double *p)
{
    struct cnn *s = self;
    const int64_t c = s->layer[0].out, inputs[3] = {TAPS, TAPS * c, 8 * c};
    memset(p, 0, (size_t)s->at[6] * sizeof *p);
    for (int k = 0; k < 3; k++) {
        int64_t at = s->at[2 * k], n = s->at[2 * k + 1] - at;
        qm_normals(s->seed, QM_STREAM_start, 0, at, n, p + at);
        for (int64_t i = at; i < at + n; i++)
            p[i] *= sqrt(2.0 / (double)inputs[k]);
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

/* The position of tap k of the patch at (row, column), or -1 beyond the image. */
static int64_t tap_at(int64_t side, int64_t row, int64_t column, int k)
{
    int64_t r = row + k / 3 - 1, c = column + k % 3 - 1;
    return r < 0 || r >= side || c < 0 || c >= side ? -1 : r * side + c;
}

static void gather(const struct layer *y, int64_t images)
{
    int64_t area = y->side * y->side, in = y->in;
    for (int64_t i = 0; i < images * area; i++)
        for (int k = 0; k < TAPS; k++) {
            int64_t from = tap_at(y->side, i % area / y->side, i % y->side, k);
            double *to = y->patch + (i * TAPS + k) * in;
            for (int64_t c = 0; c < in; c++)
                to[c] = from < 0 ? 0.0 : y->x[(i / area * area + from) * in + c];
        }
}

/* Means over 2 x 2 positions; with dpooled: spreads a quarter of it to each. */
static void pool(const struct layer *y, int64_t images, const double *dpooled)
{
    int64_t half = y->side / 2, out = y->out;
    for (int64_t i = 0; i < images * half * half; i++) {
        int64_t row = i % (half * half) / half, column = i % half;
        int64_t first = (i / (half * half) * y->side + 2 * row) * y->side + 2 * column;
        for (int64_t c = 0; c < out; c++) {
            double sum = 0;
            for (int k = 0; k < 4; k++) {
                int64_t at = (first + k / 2 * y->side + k % 2) * out + c;
                sum += y->act[at];
                if (dpooled)
                    y->dy[at] = dpooled[i * out + c] / 4;
            }
            if (!dpooled)
                y->pooled[i * out + c] = sum / 4;
        }
    }
}

/* kernel[tap][in][out] = w[out][in][tap]; back: the other way, added. */
static void turn_kernel(const struct layer *y, double *kernel, const double *w, double *dw)
{
    for (int64_t o = 0; o < y->out; o++)
        for (int64_t i = 0; i < y->in; i++)
            for (int k = 0; k < TAPS; k++) {
                int64_t at = (k * y->in + i) * y->out + o, torch = (o * y->in + i) * TAPS + k;
                if (dw)
                    dw[torch] += kernel[at];
                else
                    kernel[at] = w[torch];
            }
}

/* The sum of the cross-entropies of `images` images, whose pixels and labels are set. */
static double forward(struct cnn *s, const double *p, int64_t images)
{
    double sum = 0, log_sum;
    for (int l = 0; l < 2; l++) {
        struct layer *y = &s->layer[l];
        int64_t n = images * y->side * y->side;
        turn_kernel(y, y->kernel, p + s->at[2 * l], NULL);
        gather(y, images);
        qm_linear(y->patch, y->kernel, p + s->at[2 * l + 1], n, TAPS * y->in, y->out, y->y);
        qm_gelu(y->y, n * y->out, y->tanh_of, y->act);
        pool(y, images, NULL);
    }
    qm_linear(s->layer[1].pooled, p + s->at[4], p + s->at[5], images, 4 * s->layer[1].out, CLASSES,
              s->prob);
    for (int64_t i = 0; i < images; i++) {
        double *logit = s->prob + i * CLASSES, own = logit[s->label[i]];
        qm_softmax(logit, 1, CLASSES, &log_sum);
        sum += log_sum - own;
    }
    return sum;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Adds the gradient of the patches to that of the input, dx[images][side][side][in]. */
static void scatter(const struct layer *y, int64_t images, double *dx)
{
    int64_t area = y->side * y->side, in = y->in;
    memset(dx, 0, (size_t)(images * area * in) * sizeof *dx);
    for (int64_t i = 0; i < images * area; i++)
        for (int k = 0; k < TAPS; k++) {
            int64_t to = tap_at(y->side, i % area / y->side, i % y->side, k);
            const double *from = y->dpatch + (i * TAPS + k) * in;
            for (int64_t c = 0; to >= 0 && c < in; c++)
                dx[(i / area * area + to) * in + c] += from[c];
        }
}

/* Adds the gradient of these images' part of the mean over `total` images. */
static void backward(struct cnn *s, const double *p, int64_t images, int64_t total, double *grad)
{
    for (int64_t i = 0; i < images; i++) {
        s->prob[i * CLASSES + s->label[i]] -= 1;
        for (int k = 0; k < CLASSES; k++)
            s->prob[i * CLASSES + k] /= (double)total;
    }
    struct qm_layer_gradient head = {s->dpooled, grad + s->at[4], grad + s->at[5]};
    qm_linear_back(s->layer[1].pooled, p + s->at[4], s->prob, images, 4 * s->layer[1].out, CLASSES,
                   s->scratch, &head);
    for (int l = 1; l >= 0; l--) {
        struct layer *y = &s->layer[l];
        int64_t taps = TAPS * y->in, n = images * y->side * y->side;
        memset(y->dkernel, 0, (size_t)(taps * y->out) * sizeof *y->dkernel);
        struct qm_layer_gradient to = {l ? y->dpatch : NULL, y->dkernel, grad + s->at[2 * l + 1]};
        pool(y, images, s->dpooled);
        qm_gelu_back(y->y, y->tanh_of, y->dy, n * y->out, y->dy);
        qm_linear_back(y->patch, y->kernel, y->dy, n, taps, y->out, s->scratch, &to);
        turn_kernel(y, y->dkernel, NULL, grad + s->at[2 * l]);
        if (l)
            scatter(y, images, s->dpooled);
    }
}

/* The image of row b of step t; t = 0: of the whole set. */
static int64_t image_of(const struct cnn *s, int64_t t, int64_t b)
{
    return t ? qm_pick(s->seed, QM_STREAM_rows, t, b, IMAGES) : b;
}

static double cnn_eval(void *self, const double *p, int64_t t, double *grad)
{
    struct cnn *s = self;
    int64_t total = grad ? s->batch : IMAGES;
    double sum = 0;
    if (grad)
        memset(grad, 0, (size_t)s->at[6] * sizeof *grad);
    for (int64_t from = 0; from < total; from += AT_ONCE) {
        int64_t n = total - from < AT_ONCE ? total - from : AT_ONCE;
        for (int64_t b = 0; b < n; b++) {
            int64_t i = image_of(s, grad ? t : 0, from + b);
            qm_digit_image(i, s->layer[0].x + b * QM_DIGIT_PIXELS);
            s->label[b] = qm_digit_label(i);
        }
        sum += forward(s, p, n);
        if (grad)
            backward(s, p, n, total, grad);
    }
    return sum / (double)total;
}

static double cnn_work(const char *args)
{
    double value[ARGS];
    if (qm_args_read("cnn", defaults, args, known, ARGS, value) != QM_OK)
        return 0;
    double image = 2 * TAPS * (64 * value[0] + 16 * 2 * value[0] * value[0]) + 160 * value[0];
    return image * (3 * value[1] + IMAGES / 50.0);
}

static double cnn_optimum(void *self)
{
    (void)self;
    return 0;
}

static int64_t cnn_loss_interval(void *self)
{
    (void)self;
    return 50;
}

const struct qm_problem qm_problem_cnn = {
    .name = "cnn",
    .summary = "real data: a convolutional network learns to read 1797 handwritten digits",
    .source = "E. Alpaydin, C. Kaynak, UCI, doi 10.24432/C50P49; infimum 0 of a separated set",
    .args = defaults,
    .arg = known,
    .n_args = ARGS,
    .open = cnn_open,
    .work = cnn_work,
    .start = cnn_start,
    .eval = cnn_eval,
    .loss_interval = cnn_loss_interval,
    .optimum = cnn_optimum,
    .expected = qm_problem_unexpected,
    .close = cnn_close,
    .steps = 300,
    .lr_adamw = 0.0316227766,
    .lr_sgdm = 0.316227766,
    .lr_lion = 0.00316227766,
};
