/* family_apollo.c - APOLLO and APOLLO-Mini, full precision.
 *
 * Adam's moments of a projected gradient give the scale of each channel, or of the tensor; the step
 * is the raw gradient times that scale. */
#include "core/rule/rule.h"

#include <math.h>
#include <string.h>

#include "core/rule/lowrank.h"
#include "core/rule/tensor_rule.h"

enum { AVG, SQ, PROJ, NORM };

static void prepare(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    memset(s, 0, sizeof *s);
    s->hyper = h;
    s->t = t;
}

static void slot_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                       struct qm_shape *out)
{
    struct qm_lowrank l;
    int projected = qm_lowrank_of(h, h->svd, param, &l);
    *out = i < PROJ ? *param : qm_shape_none();
    if (projected && i == PROJ)
        *out = qm_lowrank_proj(&l);
    else if (projected && i < PROJ)
        *out = qm_lowrank_state(&l);
    else if (projected && h->limiter)
        *out = (struct qm_shape){1, {1}};
}

/* Adam's moments of x[n]. */
static void moments(const struct qm_tensor_rule_args *w, const float *x, int64_t n)
{
    const struct qm_hyper *h = w->s->hyper;
    qm_average(w->slot[AVG], x, n, h->beta1, 1.0 - h->beta1);
    qm_lowrank_average_squares(w->slot[SQ], x, n, h->beta2);
}

/* m / (sqrt(v) + eps). */
static void normalized(const struct qm_tensor_rule_args *w, int64_t n, float *out)
{
    qm_lowrank_adapt(w->slot[AVG], w->slot[SQ], NULL, w->s->hyper->eps, n, out);
}

static qm_status states(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    struct qm_lowrank l;
    void *low = NULL;
    if (!qm_lowrank_of(h, h->svd, w->shape, &l)) {
        moments(w, w->g, qm_shape_numel(w->shape));
        return QM_OK;
    }
    QM_TRY(qm_lowrank_renew(h, h->svd, &l, w->g, w->tensor, w->s->t, w->slot[PROJ]));
    QM_TRY(qm_tensor_rule_alloc(sizeof(float) * (size_t)(l.rows * l.cols), &low));
    qm_status st = qm_lowrank_project(&l, w->g, w->slot[PROJ], low);
    if (st == QM_OK)
        moments(w, low, l.rows * l.cols);
    qm_tensor_rule_free(low);
    return st;
}

/* u = G times the scale of the tensor. */
static void scaled_as_one(const struct qm_tensor_rule_args *w, const struct qm_lowrank *l,
                          const float *low, const float *norm_grad, float *u)
{
    int64_t k = l->rows * l->cols, n = l->m * l->n;
    float s = qm_norm2(norm_grad, k) / (qm_norm2(low, k) + 1e-8f);
    qm_sweep_run(QM_SWEEP_copy, &(struct qm_sweep){.n = n, .x = {u, QM_AT(w->g)}});
    QM_CHUNKS(n, i)
    qm_tensor_rule_loops()->multiply(qm_chunk_n(n, i), s, u + i);
}

/* u = G times the scales of its channels.  As in the source, the shape of G decides the axis:
 * with a side that does not fit it, scales and channels differ in number, and the source raises
 * an error. */
static qm_status scaled_by_channel(const struct qm_tensor_rule_args *w, const struct qm_lowrank *l,
                                   const float *low, const float *norm_grad, float *u)
{
    int axis = l->m < l->n ? 0 : 1;
    int64_t count = axis ? l->rows : l->cols;
    void *ratio = NULL;
    if (count != 1 && count != (axis ? l->m : l->n))
        return qm_fail(QM_BAD_ARG,
                       "APOLLO: %lld channel scales do not fit a %lld x %lld gradient projected "
                       "on this side",
                       (long long)count, (long long)l->m, (long long)l->n);
    QM_TRY(qm_tensor_rule_alloc(2 * sizeof(double) * (size_t)count, &ratio));
    qm_lowrank_ratios(l, axis, norm_grad, low, ratio);
    qm_lowrank_channels(l, axis, count == 1, ratio, w->g, u);
    qm_tensor_rule_free(ratio);
    return QM_OK;
}

/* u = G times its scales.  low has room for R and for the step of its moments. */
static qm_status scaled(const struct qm_tensor_rule_args *w, const struct qm_lowrank *l, float *low,
                        float *u)
{
    float *norm_grad = low + l->rows * l->cols;
    QM_TRY(qm_lowrank_project(l, w->g, w->slot[PROJ], low));
    normalized(w, l->rows * l->cols, norm_grad);
    if (!w->s->hyper->tensor_scale)
        return scaled_by_channel(w, l, low, norm_grad, u);
    scaled_as_one(w, l, low, norm_grad, u);
    return QM_OK;
}

/* The full-rank update of a projected tensor, limited and scaled. */
static qm_status update(const struct qm_tensor_rule_args *w, const struct qm_lowrank *l, float *u)
{
    const struct qm_hyper *h = w->s->hyper;
    int64_t n = l->m * l->n;
    float root = (float)sqrt(h->scale);
    void *low = NULL;
    QM_TRY(qm_tensor_rule_alloc(2 * sizeof(float) * (size_t)(l->rows * l->cols), &low));
    qm_status st = scaled(w, l, low, u);
    qm_tensor_rule_free(low);
    QM_TRY(st);
    if (h->scale_front) {
        QM_CHUNKS(n, i)
        qm_tensor_rule_loops()->multiply(qm_chunk_n(n, i), root, u + i);
    }
    if (h->limiter)
        qm_limit_growth(u, n, h->margin, w->s->t, w->slot[NORM]);
    if (!h->scale_front) {
        QM_CHUNKS(n, i)
        qm_tensor_rule_loops()->multiply(qm_chunk_n(n, i), root, u + i);
    }
    return QM_OK;
}

static qm_status apply(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    struct qm_lowrank l;
    int64_t n = qm_shape_numel(w->shape);
    double t = (double)w->s->t, step = h->lr;
    float decay = (float)(-h->lr * h->weight_decay), *u = w->room;
    qm_status st = QM_OK;
    if (h->correct_bias)
        step = step * sqrt(1.0 - pow(h->beta2, t)) / (1.0 - pow(h->beta1, t));
    if (qm_lowrank_of(h, h->svd, w->shape, &l))
        st = update(w, &l, u);
    else
        normalized(w, n, u);
    if (st != QM_OK)
        return st;
    QM_CHUNKS(n, i)
    {
        int64_t m = qm_chunk_n(n, i);
        qm_tensor_rule_loops()->add_scaled(m, (float)-step, u + i, w->p + i);
        if (h->weight_decay > 0.0)
            qm_tensor_rule_loops()->decay(m, decay, w->p + i);
    }
    return QM_OK;
}

static const struct qm_rule rules[] = {
    {.name = "apollo",
     .family = "apollo",
     .reads = "lr beta1 beta2 eps weight_decay rank side "
              "gap scale margin limiter tensor_scale scale_front correct_bias svd",
     .summary = "APOLLO: gradient times channel or tensor scales from projected moments",
     .source = "arXiv:2412.05270; apollo_torch/apollo.py AdamW.step",
     .n_slots = 4,
     .slot = {"exp_avg", "exp_avg_sq", "proj", "scaled_grad"},
     .slot_sign = {1, 0, 1, 0},
     .prepare = prepare,
     .tensor =
         &(const struct qm_tensor_ops){
             .states = states, .apply = apply, .on_device = 1, .extra_passes = 2},
     .slot_shape = slot_shape},
};

const struct qm_rule_family qm_family_apollo = {sizeof rules / sizeof *rules, rules};
