/* family_muon.c - Muon in the forms of axolotl (muon_lin) and of a fork of bitsandbytes (muon_bnb).
 *
 * Momentum m = mu m + g; the step is an orthogonal factor of m, with Nesterov's form of mu m + g,
 * by five Newton-Schulz iterations in bfloat16.  Sums of products are float32, in the order of the
 * inner index. */
#include "core/rule/rule.h"

#include <math.h>
#include <string.h>

#include "core/rule/muon.h"

enum { ITERATIONS = 5 };

/* axolotl-contribs-mit muon/dist_muon.py; a, b, c of A = X X', X <- a X + (b A + c A A) X. */
static const float lin_triple[ITERATIONS][3] = {{4.0848f, -6.8946f, 2.9270f},
                                                {3.9505f, -6.3029f, 2.6377f},
                                                {3.7418f, -5.5913f, 2.3037f},
                                                {2.8769f, -3.1427f, 1.2046f},
                                                {2.8366f, -3.0525f, 1.2012f}};

/* bitsandbytes fork, optim/muon.py: Polar Express over 1.05, 1.05^3, 1.05^5. */
static const float bnb_triple[ITERATIONS][3] = {
    {7.892582874424408f, -20.38301394587957f, 13.555306149406924f},
    {3.911484868135431f, -2.5464635929060884f, 0.4268988319673074f},
    {3.760657955697423f, -2.512819018216563f, 0.4323647349070073f},
    {3.160399673686287f, -2.149649518898498f, 0.3996366907664389f},
    {2.1910971618617303f, -1.441662010214663f, 0.328146487623155f}};

/* ---- shapes and scalars ---------------------------------------------------------------------- */

static qm_status takes(const struct qm_hyper *h, const struct qm_shape *param)
{
    (void)h;
    if (param->rank >= 2)
        return QM_OK;
    return qm_fail(QM_BAD_ARG,
                   "Muon takes tensors of two and more dimensions, not of %d: its sources leave "
                   "those to AdamW",
                   param->rank);
}

static qm_status check(const struct qm_rule_use *use)
{
    const struct qm_hyper *h = use->hyper;
    QM_TRY(qm_rule_from_0("lr", h->lr));
    QM_TRY(qm_rule_from_0("eps", h->eps));
    QM_TRY(qm_rule_from_0("weight_decay", h->weight_decay));
    if (!(h->momentum >= 0 && h->momentum <= 1))
        return qm_fail(QM_BAD_ARG, "momentum must be in [0, 1]");
    if (h->adjust != 0 && h->adjust != 1 && h->adjust != 2)
        return qm_fail(QM_BAD_ARG, "adjust must be 0 (lr), 1 (spectral_norm) or 2 (rms_norm)");
    return QM_OK;
}

static void prepare(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    memset(s, 0, sizeof *s);
    s->hyper = h;
    s->t = t;
}

/* The first dim, and all others as one. */
static struct qm_shape two_dims(const struct qm_shape *s)
{
    struct qm_shape m = {2, {s->dim[0], 1}};
    for (int i = 1; i < s->rank; i++)
        m.dim[1] *= s->dim[i];
    return m;
}

/* The momentum of muon_lin is quantized row by row of the first dim. */
static void lin_slot_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                           struct qm_shape *out)
{
    (void)h;
    (void)i;
    *out = param->rank > 2 ? two_dims(param) : *param;
}

void qm_muon_matrices(const struct qm_hyper *h, int is_lin, const struct qm_shape *shape,
                      struct qm_matrices *out)
{
    struct qm_shape one = two_dims(shape);
    int is_one = is_lin ? h->flatten : shape->rank > 3;
    qm_matrices_of(is_one ? &one : shape, out);
}

/* The factor of lr that adjust stands for. */
static double ratio_of(const struct qm_hyper *h, const struct qm_matrices *m)
{
    double rows = (double)m->rows, cols = (double)m->cols;
    return h->adjust == 1.0   ? sqrt(rows / cols)
           : h->adjust == 2.0 ? 0.2 * sqrt(rows > cols ? rows : cols)
                              : 1.0;
}

/* ---- Newton-Schulz --------------------------------------------------------------------------- */

/* out[rows][cols] = x[rows][inner] y[inner][cols], every element as qm_muon_sum forms it. */
static void product(const float *x, const float *y, int rounds, int64_t rows, int64_t inner,
                    int64_t cols, float *out)
{
    const struct qm_sweep a = {.n = rows * cols,
                               .cols = cols,
                               .inner = inner,
                               .flag = {[QM_MUON_LIN] = rounds},
                               .x = {out, QM_AT(x), QM_AT(y)}};
    if (qm_tensor_rule_device()) {
        qm_sweep_run(QM_SWEEP_muon_product, &a);
        return;
    }
    QM_PARALLEL(rows * cols * inner >= 16 * QM_THREADS_FROM)
    for (int64_t i = 0; i < rows; i++) {
        float *restrict to = out + i * cols;
        memset(to, 0, sizeof *to * (size_t)cols);
        for (int64_t k = 0; k < inner; k++) {
            const float f = x[i * inner + k], *restrict from = y + k * cols;
            for (int64_t j = 0; j < cols; j++)
                to[j] = to[j] + f * from[j];
        }
        for (int64_t j = 0; j < cols && rounds; j++)
            to[j] = qm_muon_bf16_of(to[j]);
    }
}

static void blend(int rounds, int64_t n, float c, const float *x, float d, const float *y,
                  float *out)
{
    qm_sweep_run(QM_SWEEP_muon_blend,
                 &(struct qm_sweep){.n = n,
                                    .c = {[QM_MUON_BLEND_X] = c, [QM_MUON_BLEND_Y] = d},
                                    .flag = {[QM_MUON_LIN] = rounds},
                                    .x = {out, QM_AT(x), QM_AT(y)}});
}

static void transpose(const float *x, int64_t rows, int64_t cols, float *out)
{
    qm_sweep_run(
        QM_SWEEP_transpose,
        &(struct qm_sweep){.n = rows * cols, .rows = rows, .cols = cols, .x = {out, QM_AT(x)}});
}

/* What x is divided by: bf16(norm + eps), or the norm in bfloat16, at least bf16(eps). */
static float divisor(const float *x, int64_t n, int is_lin, double eps)
{
    float norm = qm_muon_bf16_of(qm_norm2(x, n));
    if (is_lin)
        return qm_muon_bf16_of(norm + (float)eps);
    float least = qm_muon_bf16_of((float)eps);
    return norm < least ? least : norm;
}

/* One matrix x[rows][cols].  room: 3 k k + 2 k n floats for the smaller side k and the larger
 * side n. */
static void one_factor(const struct qm_matrices *m, int is_lin, double eps, float *x, float *room)
{
    const float(*triple)[3] = is_lin ? lin_triple : bnb_triple;
    int tall = m->rows > m->cols;
    int64_t k = tall ? m->cols : m->rows, n = tall ? m->rows : m->cols;
    float *a = room, *aa = a + k * k, *b = aa + k * k, *across = b + k * k, *wide = across + k * n;
    qm_sweep_run(QM_SWEEP_muon_over,
                 &(struct qm_sweep){.n = k * n,
                                    .c = {[QM_MUON_OVER_NORM] = divisor(x, k * n, is_lin, eps)},
                                    .x = {x}});
    if (tall)
        transpose(x, m->rows, m->cols, wide);
    else
        qm_sweep_run(QM_SWEEP_copy, &(struct qm_sweep){.n = k * n, .x = {wide, x}});
    for (int t = 0; t < ITERATIONS; t++) {
        const float *c = triple[t];
        transpose(wide, k, n, across);
        product(wide, across, 1, k, n, k, a);
        product(a, a, is_lin, k, k, k, aa);
        blend(is_lin, k * k, c[1], a, c[2], aa, b);
        product(b, wide, is_lin, k, k, n, across);
        blend(is_lin, k * n, c[0], wide, 1.0f, across, wide);
    }
    if (tall)
        transpose(wide, k, n, x);
    else
        qm_sweep_run(QM_SWEEP_copy, &(struct qm_sweep){.n = k * n, .x = {x, wide}});
}

qm_status qm_muon_orthogonalize(const struct qm_matrices *m, int is_lin, double eps, float *x)
{
    int64_t size = m->rows * m->cols, k = m->rows < m->cols ? m->rows : m->cols;
    void *room = NULL;
    if (size == 0)
        return QM_OK;
    QM_TRY(qm_tensor_rule_alloc(sizeof(float) * (size_t)(3 * k * k + 2 * size), &room));
    for (int64_t b = 0; b < m->batch; b++)
        one_factor(m, is_lin, eps, x + b * size, room);
    qm_tensor_rule_free(room);
    return QM_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static qm_status states(const struct qm_tensor_rule_args *w)
{
    qm_sweep_run(QM_SWEEP_muon_momentum,
                 &(struct qm_sweep){.n = qm_shape_numel(w->shape),
                                    .c = {[QM_MUON_MOMENTUM] = (float)w->s->hyper->momentum},
                                    .x = {w->slot[0], QM_AT(w->g)}});
    return QM_OK;
}

struct qm_sweep qm_muon_step(const struct qm_hyper *h, int is_lin, const struct qm_shape *shape,
                             float *p, const float *o)
{
    struct qm_matrices m;
    float lr = (float)h->lr;
    struct qm_sweep a = {.n = qm_shape_numel(shape),
                         .flag = {[QM_MUON_LIN] = is_lin, [QM_MUON_STEP_APART] = shape->rank > 2},
                         .x = {p, QM_AT(o)}};
    qm_muon_matrices(h, is_lin, shape, &m);
    double ratio = ratio_of(h, &m);
    if (is_lin) { /* the scalars are tensors of float32 */
        a.c[QM_MUON_STEP_KEEP] = 1.0f - lr * (float)h->weight_decay;
        a.c[QM_MUON_STEP_LR] = -(lr * (float)ratio);
    } else {
        a.c[QM_MUON_STEP_KEEP] = (float)(1.0 - h->lr * h->weight_decay);
        a.c[QM_MUON_STEP_LR] = (float)-(h->lr * ratio);
    }
    return a;
}

static qm_status apply_as(const struct qm_tensor_rule_args *w, int is_lin)
{
    const struct qm_hyper *h = w->s->hyper;
    struct qm_matrices m;
    int64_t n = qm_shape_numel(w->shape);
    if (n == 0)
        return QM_OK;
    qm_muon_matrices(h, is_lin, w->shape, &m);
    qm_sweep_run(QM_SWEEP_muon_direction,
                 &(struct qm_sweep){.n = n,
                                    .c = {[QM_MUON_MOMENTUM] = (float)h->momentum},
                                    .flag = {[QM_MUON_NESTEROV] = h->nesterov},
                                    .x = {w->room, w->slot[0], QM_AT(w->g)}});
    QM_TRY(qm_muon_orthogonalize(&m, is_lin, h->eps, w->room));
    struct qm_sweep a = qm_muon_step(h, is_lin, w->shape, w->p, w->room);
    qm_sweep_run(QM_SWEEP_muon_step, &a);
    return QM_OK;
}

static qm_status lin_apply(const struct qm_tensor_rule_args *w) { return apply_as(w, 1); }
static qm_status bnb_apply(const struct qm_tensor_rule_args *w) { return apply_as(w, 0); }

static const struct qm_rule rules[] = {
    {.name = "muon_lin",
     .family = "muon_lin",
     .reads = "lr momentum weight_decay nesterov eps adjust flatten",
     .summary = "Muon of axolotl: Newton-Schulz by tuned triples, every operation in bfloat16",
     .source = "axolotl-contribs-mit muon/dist_muon.py, utils/optimizers/muon_8bit.py",
     .n_slots = 1,
     .slot = {"momentum_buffer"},
     .slot_sign = {1},
     .check = check,
     .takes = takes,
     .prepare = prepare,
     .slot_shape = lin_slot_shape,
     .tensor =
         &(const struct qm_tensor_ops){
             .states = states, .apply = lin_apply, .on_device = 1, .extra_passes = 1}},
    {.name = "muon_bnb",
     .family = "muon_bnb",
     .reads = "lr momentum weight_decay nesterov eps adjust",
     .summary = "Muon of a fork of bitsandbytes: Polar Express, one rounding a line",
     .source = "theblackcat102/bitsandbytes feature/muon optim/muon.py; arXiv:2505.16932",
     .n_slots = 1,
     .slot = {"momentum_buffer"},
     .slot_sign = {1},
     .check = check,
     .takes = takes,
     .prepare = prepare,
     .tensor =
         &(const struct qm_tensor_ops){
             .states = states, .apply = bnb_apply, .on_device = 1, .extra_passes = 1}},
};

const struct qm_rule_family qm_family_muon = {sizeof rules / sizeof *rules, rules};
