/* family_fira.c - Fira with Adam and with RMSProp, full precision.
 *
 * A projected step is projected back; the residual of the gradient, scaled by the same channel
 * norms and limited in growth, is added.  The source cannot switch the limiter off; limiter = 0
 * leaves it out. */
#include "core/rule/rule.h"

#include <math.h>
#include <string.h>

#include "core/rule/lowrank.h"
#include "core/rule/tensor_rule.h"

static void prepare(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    memset(s, 0, sizeof *s);
    s->hyper = h;
    s->t = t;
}

/* The shape of a state of the projected gradient, of the projection, or of the norm that the
 * limiter keeps. */
enum kind { STATE, PROJ, NORM };

static void shape_of(const struct qm_hyper *h, enum kind kind, const struct qm_shape *param,
                     struct qm_shape *out)
{
    struct qm_lowrank l;
    int projected = qm_lowrank_of(h, 1, param, &l);
    *out = kind == STATE ? *param : qm_shape_none();
    if (projected && kind == PROJ)
        *out = qm_lowrank_proj(&l);
    else if (projected && kind == STATE)
        *out = qm_lowrank_state(&l);
    else if (projected && h->limiter)
        *out = (struct qm_shape){1, {1}};
}

/* u = back(norm_grad) + limited((G - back(low)) ratio).  The shape of R decides the axis. */
static qm_status full_rank(const struct qm_tensor_rule_args *w, const struct qm_lowrank *l,
                           const float *p, const float *low, const float *norm_grad, float *norm,
                           float *u)
{
    const struct qm_hyper *h = w->s->hyper;
    int axis = l->rows < l->cols ? 0 : 1;
    int64_t n = l->m * l->n, count = axis ? l->rows : l->cols;
    void *room = NULL;
    if (count != 1 && count != (axis ? l->m : l->n))
        return qm_fail(QM_BAD_ARG,
                       "Fira: %lld channel scales do not fit a %lld x %lld gradient projected on "
                       "this side",
                       (long long)count, (long long)l->m, (long long)l->n);
    QM_TRY(qm_tensor_rule_alloc(2 * sizeof(double) * (size_t)count + sizeof(float) * (size_t)n,
                                &room));
    double *ratio = room;
    float *rest = (float *)(ratio + 2 * count);
    qm_lowrank_back(l, low, p, h->scale, rest);
    qm_lowrank_ratios(l, axis, norm_grad, low, ratio);
    qm_sweep_run(QM_SWEEP_less, &(struct qm_sweep){.n = n, .x = {rest, QM_AT(w->g)}});
    qm_lowrank_channels(l, axis, count == 1, ratio, rest, rest);
    if (h->limiter)
        qm_limit_growth(rest, n, h->margin, w->s->t, norm);
    qm_lowrank_back(l, norm_grad, p, h->scale, u);
    QM_CHUNKS(n, i)
    qm_tensor_rule_loops()->add_scaled(qm_chunk_n(n, i), 1.0f, rest + i, u + i);
    qm_tensor_rule_free(room);
    return QM_OK;
}

/* One step of the parameter by norm_grad, which has the shape of R where there is a projection p;
 * low is R. */
static qm_status take_step(const struct qm_tensor_rule_args *w, const float *p, const float *low,
                           const float *norm_grad, float *norm, double step)
{
    struct qm_lowrank l;
    int64_t n = qm_shape_numel(w->shape);
    float *u = w->room;
    qm_status st = QM_OK;
    if (qm_lowrank_of(w->s->hyper, 1, w->shape, &l))
        st = full_rank(w, &l, p, low, norm_grad, norm, u);
    else
        qm_sweep_run(QM_SWEEP_copy, &(struct qm_sweep){.n = n, .x = {u, QM_AT(norm_grad)}});
    if (st == QM_OK) {
        QM_CHUNKS(n, i)
        qm_tensor_rule_loops()->add_scaled(qm_chunk_n(n, i), (float)-step, u + i, w->p + i);
    }
    return st;
}

/* The gradient as the moments take it in, projected where there is a projection: *n numbers, and
 * room for as many behind them.  The caller frees the array. */
static qm_status seen(const struct qm_tensor_rule_args *w, const float *p, int64_t *n, float **out)
{
    struct qm_lowrank l;
    int projected = qm_lowrank_of(w->s->hyper, 1, w->shape, &l);
    void *x = NULL;
    *n = projected ? l.rows * l.cols : qm_shape_numel(w->shape);
    QM_TRY(qm_tensor_rule_alloc(2 * sizeof(float) * (size_t)*n, &x));
    qm_status st = QM_OK;
    if (projected)
        st = qm_lowrank_project(&l, w->g, p, x);
    else
        qm_sweep_run(QM_SWEEP_copy, &(struct qm_sweep){.n = *n, .x = {x, QM_AT(w->g)}});
    if (st == QM_OK)
        *out = x;
    else
        qm_tensor_rule_free(x);
    return st;
}

static qm_status renew(const struct qm_tensor_rule_args *w, float *p)
{
    struct qm_lowrank l;
    if (!qm_lowrank_of(w->s->hyper, 1, w->shape, &l))
        return QM_OK;
    return qm_lowrank_renew(w->s->hyper, 1, &l, w->g, w->tensor, w->s->t, p);
}

/* ---- Adam ------------------------------------------------------------------------------------ */

enum { ADAM_AVG, ADAM_SQ, ADAM_PROJ, ADAM_NORM };

static void adam_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                       struct qm_shape *out)
{
    shape_of(h, i == ADAM_PROJ ? PROJ : i == ADAM_NORM ? NORM : STATE, param, out);
}

static qm_status adam_states(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    int64_t n;
    float *x = NULL;
    QM_TRY(renew(w, w->slot[ADAM_PROJ]));
    QM_TRY(seen(w, w->slot[ADAM_PROJ], &n, &x));
    qm_average(w->slot[ADAM_AVG], x, n, h->beta1, 1.0 - h->beta1);
    qm_lowrank_average_squares(w->slot[ADAM_SQ], x, n, h->beta2);
    qm_tensor_rule_free(x);
    return QM_OK;
}

static qm_status adam_apply(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    double t = (double)w->s->t, step = h->lr;
    float decay = (float)(-h->lr * h->weight_decay), *x = NULL;
    int64_t n;
    QM_TRY(seen(w, w->slot[ADAM_PROJ], &n, &x));
    if (h->correct_bias)
        step = step * sqrt(1.0 - pow(h->beta2, t)) / (1.0 - pow(h->beta1, t));
    qm_lowrank_adapt(w->slot[ADAM_AVG], w->slot[ADAM_SQ], NULL, h->eps, n, x + n);
    qm_status st = take_step(w, w->slot[ADAM_PROJ], x, x + n, w->slot[ADAM_NORM], step);
    if (st == QM_OK && h->weight_decay > 0.0) {
        QM_CHUNKS(qm_shape_numel(w->shape), i)
        qm_tensor_rule_loops()->decay(qm_chunk_n(qm_shape_numel(w->shape), i), decay, w->p + i);
    }
    qm_tensor_rule_free(x);
    return st;
}

/* ---- RMSProp --------------------------------------------------------------------------------- */

enum { RMS_SQ, RMS_MOMENTUM, RMS_AVG, RMS_PROJ, RMS_NORM };

static void rms_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                      struct qm_shape *out)
{
    shape_of(h, i == RMS_PROJ ? PROJ : i == RMS_NORM ? NORM : STATE, param, out);
    if ((i == RMS_MOMENTUM && !(h->momentum > 0.0)) || (i == RMS_AVG && !h->centered))
        *out = qm_shape_none();
}

/* out = x over its root mean square; where centered, about the mean gradient. */
static void rms_normalize(const struct qm_tensor_rule_args *w, const float *x, int64_t n,
                          float *out)
{
    const struct qm_hyper *h = w->s->hyper;
    qm_lowrank_adapt(x, w->slot[RMS_SQ], h->centered ? w->slot[RMS_AVG] : NULL, h->eps, n, out);
}

static qm_status rms_states(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    const struct qm_moment momentum = {.keep = (float)h->momentum, .weight = 1.0f};
    int64_t n;
    float *x = NULL, *m = w->slot[RMS_MOMENTUM];
    QM_TRY(renew(w, w->slot[RMS_PROJ]));
    QM_TRY(seen(w, w->slot[RMS_PROJ], &n, &x));
    qm_lowrank_average_squares(w->slot[RMS_SQ], x, n, h->beta2);
    if (h->centered)
        qm_average(w->slot[RMS_AVG], x, n, h->beta2, 1.0 - h->beta2);
    rms_normalize(w, x, n, x);
    if (h->momentum > 0.0) {
        QM_CHUNKS(n, i)
        qm_tensor_rule_loops()->moment(&momentum, qm_chunk_n(n, i), x + i, m + i);
    }
    qm_tensor_rule_free(x);
    return QM_OK;
}

/* The source takes weight_decay and does nothing with it. */
static qm_status rms_apply(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    int64_t n;
    float *x = NULL;
    QM_TRY(seen(w, w->slot[RMS_PROJ], &n, &x));
    const float *norm_grad = h->momentum > 0.0 ? w->slot[RMS_MOMENTUM] : x + n;
    if (!(h->momentum > 0.0))
        rms_normalize(w, x, n, x + n);
    qm_status st = take_step(w, w->slot[RMS_PROJ], x, norm_grad, w->slot[RMS_NORM], h->lr);
    qm_tensor_rule_free(x);
    return st;
}

static const struct qm_rule rules[] = {
    {.name = "fira",
     .family = "fira",
     .reads = "lr beta1 beta2 eps weight_decay rank side gap scale margin limiter correct_bias",
     .summary = "Fira with Adam: projected step plus the scaled, limited residual",
     .source = "arXiv:2410.01623; optimizer_torch/fira_adamw.py AdamW.step",
     .n_slots = 4,
     .slot = {"exp_avg", "exp_avg_sq", "proj", "scaling_grad"},
     .slot_sign = {1, 0, 1, 0},
     .prepare = prepare,
     .tensor =
         &(const struct qm_tensor_ops){
             .states = adam_states, .apply = adam_apply, .on_device = 1, .extra_passes = 2},
     .slot_shape = adam_shape},
    {.name = "fira_rms",
     .family = "fira_rms",
     .reads = "lr beta2 eps momentum rank side gap scale margin limiter centered",
     .summary = "Fira with RMSProp (beta2 is its beta), optionally centered, with momentum",
     .source = "arXiv:2410.01623; optimizer_torch/fira_rmsprop.py RMSProp.step",
     .n_slots = 5,
     .slot = {"square_avg", "momentum_buffer", "grad_avg", "proj", "scaling_grad"},
     .slot_sign = {0, 1, 1, 1, 0},
     .prepare = prepare,
     .tensor =
         &(const struct qm_tensor_ops){
             .states = rms_states, .apply = rms_apply, .on_device = 1, .extra_passes = 2},
     .slot_shape = rms_shape},
};

const struct qm_rule_family qm_family_fira = {sizeof rules / sizeof *rules, rules};
