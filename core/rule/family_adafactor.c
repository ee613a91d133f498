/* family_adafactor.c - Adafactor in its two published forms, full precision.
 *
 * transformers (and fairseq, and the paper): eps1 is added to the squared gradient, the step is
 * lr_t times the clipped update, and the decay is proportional to lr_t.  PyTorch core: eps1 clamps,
 * and the decay is proportional to lr. */
#include "core/rule/rule.h"

#include <math.h>
#include <string.h>

#include "core/rule/tensor_rule.h"

static void prepare(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    memset(s, 0, sizeof *s);
    s->hyper = h;
    s->t = t;
}

static int is_factored(const struct qm_tensor_rule_args *w, struct qm_matrices *m)
{
    return w->s->hyper->factored && qm_matrices_of(w->shape, m);
}

/* ---- transformers ---------------------------------------------------------------------------- */

enum { HF_ROW, HF_COL, HF_SQ, HF_AVG };

static void hf_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                     struct qm_shape *out)
{
    int factored = h->factored && param->rank >= 2;
    *out = *param;
    if (i == HF_ROW && factored)
        qm_shape_of_rows(param, out);
    else if (i == HF_COL && factored)
        qm_shape_of_cols(param, out);
    else if (i == HF_AVG ? h->beta1 == 0.0 : (i == HF_SQ) == factored)
        *out = qm_shape_none();
}

/* lr_t: a float32 tensor where the scale of the parameter decides, otherwise a Python float. */
struct hf_lr {
    float lr, decay;
};

static struct hf_lr hf_lr(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    double t = (double)w->s->t, lr = h->lr, cap = h->warmup ? 1e-6 * t : h->lr;
    if (h->relative_step)
        lr = cap < 1.0 / sqrt(t) ? cap : 1.0 / sqrt(t);
    if (h->scale_parameter) {
        float rms = qm_rms(w->p, qm_shape_numel(w->shape));
        if (rms > (float)h->eps2) {
            float scaled = rms * (float)lr;
            return (struct hf_lr){scaled, (float)-h->weight_decay * scaled};
        }
        lr = h->eps2 * lr;
    }
    return (struct hf_lr){(float)lr, (float)(-h->weight_decay * lr)};
}

/* The clipped update times lr, from the second moments in the slots. */
static qm_status hf_update(const struct qm_tensor_rule_args *w, float lr, float *u)
{
    struct qm_matrices m;
    int64_t n = qm_shape_numel(w->shape);
    if (is_factored(w, &m))
        QM_TRY(qm_factor_rsqrt(&m, w->slot[HF_ROW], w->slot[HF_COL], w->g, u));
    else
        qm_sweep_run(QM_SWEEP_over_sqrt,
                     &(struct qm_sweep){.n = n, .x = {u, w->slot[HF_SQ], QM_AT(w->g)}});
    qm_clip_rms(u, n, w->s->hyper->clip);
    QM_CHUNKS(n, i)
    qm_tensor_rule_loops()->multiply(qm_chunk_n(n, i), lr, u + i);
    return QM_OK;
}

static qm_status hf_states(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    struct qm_matrices m;
    int64_t n = qm_shape_numel(w->shape);
    double beta2 = 1.0 - pow((double)w->s->t, h->beta2_decay);
    float *u = w->room, eps1 = (float)h->eps1;
    if (is_factored(w, &m) && n > 0) {
        const struct qm_term square = {1, eps1, 1};
        qm_row_means(&m, square, w->g, u); /* the room also holds the means of rows or of columns */
        qm_average(w->slot[HF_ROW], u, m.batch * m.rows, beta2, 1.0 - beta2);
        qm_col_means(&m, square, w->g, u);
        qm_average(w->slot[HF_COL], u, m.batch * m.cols, beta2, 1.0 - beta2);
    } else {
        qm_sweep_run(
            QM_SWEEP_add_square,
            &(struct qm_sweep){.n = n, .c = {[QM_ADD_SQUARE_EPS] = eps1}, .x = {u, QM_AT(w->g)}});
        qm_average(w->slot[HF_SQ], u, n, beta2, 1.0 - beta2);
    }
    if (h->beta1 != 0.0) {
        QM_TRY(hf_update(w, hf_lr(w).lr, u));
        qm_average(w->slot[HF_AVG], u, n, h->beta1, 1.0 - h->beta1);
    }
    return QM_OK;
}

static qm_status hf_apply(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    int64_t n = qm_shape_numel(w->shape);
    struct hf_lr lr = hf_lr(w);
    const float *u = h->beta1 == 0.0 ? w->room : w->slot[HF_AVG];
    if (h->beta1 == 0.0)
        QM_TRY(hf_update(w, lr.lr, w->room));
    QM_CHUNKS(n, i)
    {
        int64_t k = qm_chunk_n(n, i);
        if (h->weight_decay != 0.0)
            qm_tensor_rule_loops()->decay(k, lr.decay, w->p + i);
        qm_tensor_rule_loops()->decay_step(k, 1.0f, 1.0f, u + i, w->p + i);
    }
    return QM_OK;
}

/* ---- PyTorch core ---------------------------------------------------------------------------- */

enum { TORCH_ROW, TORCH_COL, TORCH_SQ };

static void torch_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                        struct qm_shape *out)
{
    struct qm_hyper second = *h;
    second.beta1 = 0.0;
    hf_shape(&second, i, param, out);
}

/* torch.lerp on CPU with FMA. */
static void lerp(float *a, const float *b, int64_t n, double weight)
{
    qm_sweep_run(QM_SWEEP_torch_lerp,
                 &(struct qm_sweep){
                     .n = n, .c = {[QM_TORCH_LERP_WEIGHT] = (float)weight}, .x = {a, QM_AT(b)}});
}

/* Rounds means of squares over `count` as PyTorch does, which computes them through a norm. */
static void mean_squares(float *mean, int64_t n, int64_t count)
{
    qm_sweep_run(
        QM_SWEEP_torch_means,
        &(struct qm_sweep){.n = n, .d = {[QM_TORCH_MEANS_COUNT] = (double)count}, .x = {mean}});
}

static qm_status torch_states(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    struct qm_matrices m;
    int64_t n = qm_shape_numel(w->shape);
    double weight = pow((double)w->s->t, h->beta2_decay);
    const struct qm_term squares = {.is_square = 1, .is_single = 1};
    float *mean = w->room;
    if (is_factored(w, &m) && n > 0) {
        qm_row_means(&m, squares, w->g, mean);
        mean_squares(mean, m.batch * m.rows, m.cols);
        lerp(w->slot[TORCH_ROW], mean, m.batch * m.rows, weight);
        qm_col_means(&m, squares, w->g, mean);
        mean_squares(mean, m.batch * m.cols, m.rows);
        lerp(w->slot[TORCH_COL], mean, m.batch * m.cols, weight);
    } else {
        qm_sweep_run(QM_SWEEP_add_square, &(struct qm_sweep){.n = n,
                                                             .flag = {[QM_ADD_SQUARE_BARE] = 1},
                                                             .x = {mean, QM_AT(w->g)}});
        lerp(w->slot[TORCH_SQ], mean, n, weight);
    }
    return QM_OK;
}

/* The estimate of the second moment, unclamped. */
static qm_status torch_estimate(const struct qm_tensor_rule_args *w, float *v)
{
    struct qm_matrices m;
    float eps1 = (float)w->s->hyper->eps1, *mean = NULL;
    float *row = w->slot[TORCH_ROW], *col = w->slot[TORCH_COL];
    int64_t n = qm_shape_numel(w->shape);
    if (!is_factored(w, &m)) {
        qm_sweep_run(QM_SWEEP_copy, &(struct qm_sweep){.n = n, .x = {v, w->slot[TORCH_SQ]}});
        return QM_OK;
    }
    QM_TRY(qm_batch_means(&m, row, &mean));
    if (qm_tensor_rule_device()) {
        qm_sweep_run(QM_SWEEP_torch_estimate,
                     &(struct qm_sweep){.n = n,
                                        .rows = m.rows,
                                        .cols = m.cols,
                                        .c = {[QM_TORCH_ESTIMATE_EPS] = eps1},
                                        .x = {v, row, col, mean}});
        qm_tensor_rule_free(mean);
        return QM_OK;
    }
    QM_PARALLEL(n >= QM_THREADS_FROM)
    for (int64_t i = 0; i < m.batch * m.rows; i++) {
        const float least = qm_torch_mean(mean[i / m.rows], eps1), *c = col + i / m.rows * m.cols;
        for (int64_t j = 0; j < m.cols; j++)
            v[i * m.cols + j] = qm_torch_second(row[i], c[j], least);
    }
    qm_tensor_rule_free(mean);
    return QM_OK;
}

static qm_status torch_apply(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    int64_t n = qm_shape_numel(w->shape);
    double root = sqrt((double)n), scale = (double)qm_norm2(w->p, n) / root, lr = h->lr;
    double rho = 1.0 / sqrt((double)w->s->t);
    rho = lr < rho ? lr : rho;
    scale = scale > h->eps2 ? scale : h->eps2;
    float least = (float)(h->eps1 * h->eps1), decay = (float)(1.0 - lr * h->weight_decay);
    float *u = w->room;
    if (n > 0)
        QM_TRY(torch_estimate(w, u));
    qm_sweep_run(QM_SWEEP_torch_update,
                 &(struct qm_sweep){.n = n,
                                    .c = {[QM_TORCH_UPDATE_LEAST] = least},
                                    .flag = {[QM_TORCH_UPDATE_TURNS] = h->maximize},
                                    .x = {u, QM_AT(w->g)}});
    double den = (double)qm_norm2(u, n) / (root * h->clip);
    float alpha = (float)(-(scale * rho) / (den > 1.0 ? den : 1.0));
    QM_CHUNKS(n, i)
    {
        int64_t k = qm_chunk_n(n, i);
        if (h->weight_decay != 0.0)
            qm_tensor_rule_loops()->multiply(k, decay, w->p + i);
        qm_tensor_rule_loops()->add_scaled(k, alpha, u + i, w->p + i);
    }
    return QM_OK;
}

static const struct qm_rule rules[] = {
    {.name = "adafactor",
     .family = "adafactor",
     .reads = "lr beta1 eps1 eps2 weight_decay "
              "clip beta2_decay relative_step scale_parameter factored warmup",
     .summary = "Adafactor of the paper, float32 as transformers: eps1 added to squares",
     .source = "arXiv:1804.04235; transformers src/transformers/optimization.py Adafactor",
     .n_slots = 4,
     .slot = {"exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq", "exp_avg"},
     .slot_sign = {0, 0, 0, 1},
     .prepare = prepare,
     .tensor =
         &(const struct qm_tensor_ops){
             .states = hf_states, .apply = hf_apply, .on_device = 1, .extra_passes = 2},
     .slot_shape = hf_shape},
    {.name = "adafactor_torch",
     .family = "adafactor_torch",
     .reads = "lr eps1 eps2 weight_decay clip beta2_decay maximize factored",
     .summary = "Adafactor of PyTorch core: eps1 clamps, lr caps the relative step",
     .source = "torch/optim/_adafactor.py _single_tensor_adafactor",
     .n_slots = 3,
     .slot = {"row_var", "col_var", "variance"},
     .slot_sign = {0, 0, 0},
     .prepare = prepare,
     .tensor =
         &(const struct qm_tensor_ops){
             .states = torch_states, .apply = torch_apply, .on_device = 1, .extra_passes = 2},
     .slot_shape = torch_shape},
};

const struct qm_rule_family qm_family_adafactor = {sizeof rules / sizeof *rules, rules};
