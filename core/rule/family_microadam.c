/* family_microadam.c - MicroAdam: Adam over a window of sparse gradients, with error feedback.
 *
 * State: error, what earlier steps left out, in low bits; and a ring of `window` rows, in each of
 * which index and value name the k elements of largest magnitude of each block of d_block elements
 * that one step took.  Step t, in which |x| stands for x rounded to bfloat16:
 *
 *     g     = |g + |error||                            in float32
 *     row (t - 1) mod window <- the k largest |g| of each block; there g = 0; error <- g
 *     p     = |p (1 - lr wd)|                          where wd > 0
 *     p     = |p - g|, then |p + |error||              alpha = -2: error as it is stored
 *     M, V  = sum over the rows of beta1^age v, (beta2^age v) v, oldest slot first
 *     u     = |c1 M / (sqrt(c2 V) + eps)|, c = (1 - beta) / (1 - beta^t); 0 in no row
 *     u     = |u + |alpha error||, error <- |(1 - alpha) error|     0 < alpha < 1
 *     p     = |p - |lr| u|
 *
 * The parameter and lr are rounded to the parameter's own format (the source has bfloat16 alone;
 * torch rounds lr to it on a CPU).  Of equal magnitudes the lower index is taken, NaN is the
 * largest; a row keeps its indices in ascending order.  An index that is not below the size of its
 * block counts for nothing.
 *
 * The bias corrections use t and not the number of rows, so that the step of a constant gradient
 * grows with t: to 6.5 times Adam's for the defaults. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "core/rule/tensor_rule.h"

enum { ERROR, INDEX, VALUE };                    /* slots */
enum { C1, C2, BETA1, BETA2, EPS, DECAY, RATE }; /* c[] */
enum { MOST_BLOCK = 1 << 15, MOST_WINDOW = 1 << 12 };

/* ---- shapes and scalars ---------------------------------------------------------------------- */

/* Blocks of a tensor of n elements: `full` of `block`, then one of `rest` (0: none); many, few:
 * elements taken of each; k: of all. */
struct geometry {
    int64_t n, block, full, rest, many, few, k;
};

static int64_t share(double k_init, int64_t n)
{
    int64_t k = (int64_t)ceil((double)n * k_init);
    return k < n ? k : n;
}

static struct geometry geometry_of(const struct qm_hyper *h, const struct qm_shape *param)
{
    struct geometry s = {.n = qm_shape_numel(param)};
    if (s.n < 1)
        return s;
    s.block = (double)s.n < h->d_block ? s.n : (int64_t)h->d_block;
    s.full = s.n / s.block;
    s.rest = s.n % s.block;
    s.many = share(h->k_init, s.block);
    s.few = share(h->k_init, s.rest);
    s.k = s.full * s.many + s.few;
    return s;
}

static int is_count(double x, int most) { return x >= 1 && x <= most && x == floor(x); }

static qm_status check(const struct qm_rule_use *use)
{
    const struct qm_hyper *h = use->hyper;
    QM_TRY(qm_rule_from_0("lr", h->lr));
    QM_TRY(qm_rule_from_0("eps", h->eps));
    QM_TRY(qm_rule_from_0("weight_decay", h->weight_decay));
    if (!(h->beta1 >= 0 && h->beta1 < 1 && h->beta2 >= 0 && h->beta2 < 1))
        return qm_fail(QM_BAD_ARG, "beta1 and beta2 must be in [0, 1)");
    if (!((h->alpha >= 0 && h->alpha < 1) || h->alpha == -2.0))
        return qm_fail(QM_BAD_ARG, "alpha must be in [0, 1), or -2");
    if (!is_count(h->window, MOST_WINDOW))
        return qm_fail(QM_BAD_ARG, "window must be a whole number from 1 to %d", MOST_WINDOW);
    if (!is_count(h->d_block, MOST_BLOCK))
        return qm_fail(QM_BAD_ARG,
                       "d_block must be a whole number from 1 to %d, for indices of 16 bits",
                       MOST_BLOCK);
    if (!(h->k_init > 0 && h->k_init <= 1))
        return qm_fail(QM_BAD_ARG, "k_init must be in (0, 1]");
    return QM_OK;
}

static void slot_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                       struct qm_shape *out)
{
    *out = *param;
    if (i != ERROR)
        *out = (struct qm_shape){2, {(int64_t)h->window, geometry_of(h, param).k}};
}

/* b^e by squaring, in float32. */
static float power(float b, int64_t e)
{
    float x = 1.0f;
    for (; e > 0; e >>= 1, b = b * b)
        x = e & 1 ? x * b : x;
    return x;
}

/* (1 - b) / (1 - b^t) in double, of a float32 beta and its float32 power. */
static float correction(double beta, int64_t t)
{
    float b = (float)beta;
    return (float)((1.0 - (double)b) / (1.0 - (double)power(b, t)));
}

static void prepare(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    memset(s, 0, sizeof *s);
    s->hyper = h;
    s->t = t;
    s->c[C1] = correction(h->beta1, t);
    s->c[C2] = correction(h->beta2, t);
    s->c[BETA1] = (float)h->beta1;
    s->c[BETA2] = (float)h->beta2;
    s->c[EPS] = (float)h->eps;
    s->c[DECAY] = (float)(1.0 - h->lr * h->weight_decay);
    s->c[RATE] = (float)h->lr;
}

static float narrow(float x) { return qm_bf16_to_float(qm_float_to_bf16(x)); }

/* x in the parameter's format. */
static float stored(enum qm_dtype param, float x)
{
    return param == QM_DTYPE_bf16  ? narrow(x)
           : param == QM_DTYPE_f16 ? qm_f16_to_float(qm_float_to_f16(x))
                                   : x;
}

/* Where block number b begins in the tensor and in a row, its elements, and those taken of it. */
struct part {
    int64_t from, size, at, k;
};

static struct part part_of(const struct geometry *s, int64_t b)
{
    int is_full = b < s->full;
    return (struct part){b * s->block, is_full ? s->block : s->rest, b * s->many,
                         is_full ? s->many : s->few};
}

static int64_t parts(const struct geometry *s) { return s->full + (s->rest > 0); }

/* ---- states ---------------------------------------------------------------------------------- */

/* The bits of a bfloat16 magnitude; one number for every NaN. */
static uint32_t magnitude(float x)
{
    uint32_t u = qm_bits(x) >> 16 & 0x7fffu;
    return u > 0x7f80u ? 0x7fffu : u;
}

/* The least magnitude of the k largest of x[n], 0 < k <= n; *equal: how many of that magnitude are
 * among them. */
static uint32_t threshold(const float *x, int64_t n, int64_t k, int64_t *equal)
{
    int64_t count[256] = {0}, above = 0;
    int high = 127, low = 255;
    for (int64_t i = 0; i < n; i++)
        count[magnitude(x[i]) >> 8]++;
    while (above + count[high] < k)
        above += count[high--];
    memset(count, 0, sizeof count);
    for (int64_t i = 0; i < n; i++)
        if (magnitude(x[i]) >> 8 == (uint32_t)high)
            count[magnitude(x[i]) & 255u]++;
    while (above + count[low] < k)
        above += count[low--];
    *equal = k - above;
    return (uint32_t)high << 8 | (uint32_t)low;
}

/* Moves the k largest of x[n] into a row, and leaves 0 in their places. */
static void take(float *x, int64_t n, int64_t k, float *index, float *value)
{
    int64_t equal, at = 0;
    if (k == 0)
        return;
    uint32_t least = threshold(x, n, k, &equal);
    for (int64_t i = 0; i < n; i++) {
        uint32_t m = magnitude(x[i]);
        if (m < least || (m == least && equal == 0))
            continue;
        equal -= m == least;
        index[at] = (float)i;
        value[at++] = x[i];
        x[i] = 0.0f;
    }
}

static qm_status states(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    const struct geometry s = geometry_of(h, w->shape);
    int64_t row = (w->s->t - 1) % (int64_t)h->window * s.k;
    float *error = w->slot[ERROR];
    QM_PARALLEL(s.n >= QM_THREADS_FROM)
    for (int64_t b = 0; b < parts(&s); b++) {
        const struct part of = part_of(&s, b);
        for (int64_t i = of.from; i < of.from + of.size; i++)
            error[i] = narrow(narrow(w->g[i]) + narrow(error[i]));
        take(error + of.from, of.size, of.k, w->slot[INDEX] + row + of.at,
             w->slot[VALUE] + row + of.at);
    }
    if (h->alpha == -2.0 && s.n > 0)
        memcpy(w->room, error, sizeof *error * (size_t)s.n);
    return QM_OK;
}

/* ---- the parameter --------------------------------------------------------------------------- */

/* M and V of one block from the rows of the window; V is -1 where no row has an element. */
static void gather(const struct qm_tensor_rule_args *w, const struct geometry *s,
                   const struct part *of, float *m, float *v)
{
    int64_t window = (int64_t)w->s->hyper->window, t = w->s->t, rows = t < window ? t : window;
    for (int64_t i = 0; i < of->size; i++) {
        m[i] = 0.0f;
        v[i] = -1.0f;
    }
    for (int64_t r = 0; r < rows; r++) {
        int64_t age = (t - 1 - r) % window, at = r * s->k + of->at;
        float first = power(w->s->c[BETA1], age), second = power(w->s->c[BETA2], age);
        const float *index = w->slot[INDEX] + at, *value = w->slot[VALUE] + at;
        for (int64_t j = 0; j < of->k; j++) {
            if (!(index[j] >= 0.0f && index[j] < (float)of->size))
                continue;
            int64_t i = (int64_t)index[j];
            float x = value[j], old = v[i] == -1.0f ? 0.0f : v[i];
            m[i] = m[i] + first * x;
            v[i] = old + second * x * x;
        }
    }
}

/* One element: its update u, with a part of the stored error where alpha > 0. */
static float step_of(const struct qm_tensor_rule_args *w, float m, float v, float *error)
{
    const float *c = w->s->c;
    float alpha = (float)w->s->hyper->alpha, rest = (float)(1.0 - w->s->hyper->alpha), u = 0.0f;
    if (v != -1.0f)
        u = narrow((c[C1] * m) / (sqrtf(c[C2] * v) + c[EPS]));
    if (alpha > 0.0f) {
        u = narrow(u + narrow(*error * alpha));
        *error = narrow(*error * rest);
    }
    return u;
}

static qm_status apply(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    const struct geometry s = geometry_of(h, w->shape);
    const float rate = stored(w->param, w->s->c[RATE]), *left = w->room;
    float *p = w->p, *error = w->slot[ERROR], *m, *v;
    if (s.n == 0)
        return QM_OK;
    QM_TRY(qm_tensor_rule_alloc(2 * sizeof *m * (size_t)s.n, (void **)&m));
    v = m + s.n;
    QM_PARALLEL(s.n >= QM_THREADS_FROM)
    for (int64_t b = 0; b < parts(&s); b++) {
        const struct part of = part_of(&s, b);
        gather(w, &s, &of, m + of.from, v + of.from);
        for (int64_t i = of.from; i < of.from + of.size; i++) {
            float x = p[i];
            if (h->weight_decay > 0.0)
                x = stored(w->param, x * w->s->c[DECAY]);
            if (h->alpha == -2.0)
                x = stored(w->param, stored(w->param, x - left[i]) + narrow(error[i]));
            p[i] = stored(w->param, x - rate * step_of(w, m[i], v[i], error + i));
        }
    }
    qm_tensor_rule_free(m);
    return QM_OK;
}

/* The step reads what is stored of the window always, and of the error where alpha says so. */
static int applies_stored(const struct qm_tensor_rule_args *w, int i)
{
    return i != ERROR || w->s->hyper->alpha != 0.0;
}

static int encodes_again(const struct qm_tensor_rule_args *w, int i)
{
    return i == ERROR && w->s->hyper->alpha > 0.0;
}

static const struct qm_rule rules[] = {
    {.name = "microadam",
     .family = "microadam",
     .order = QM_ORDER_rounds,
     .reads = "lr beta1 beta2 eps weight_decay alpha window k_init d_block",
     .summary = "MicroAdam: Adam over a window of the largest gradients, error feedback, bfloat16",
     .source = "ista-daslab-optimizers 1.1.3, micro_adam/micro_adam.py; arXiv:2405.15593",
     .n_slots = 3,
     .slot = {"error", "index", "value"},
     .slot_sign = {1, 0, 1},
     .slot_whole = {0, 1, 0},
     .check = check,
     .prepare = prepare,
     .slot_shape = slot_shape,
     .tensor = &(const struct qm_tensor_ops){.states = states,
                                             .apply = apply,
                                             .applies_stored = applies_stored,
                                             .encodes_again = encodes_again,
                                             .extra_passes = 2}},
};

const struct qm_rule_family qm_family_microadam = {sizeof rules / sizeof *rules, rules};
