/* family_came.c - CAME, full precision: Adafactor's factors, a first moment, and a second pair of
 * factors that measures how far update and moment are apart. */
#include "core/rule/rule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "core/rule/whole.h"

enum { AVG, SQ_ROW, SQ_COL, SQ, RES_ROW, RES_COL };

static void prepare(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    memset(s, 0, sizeof *s);
    s->hyper = h;
    s->t = t;
}

static void slot_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                       struct qm_shape *out)
{
    (void)h;
    *out = *param;
    if (i == SQ_ROW || i == RES_ROW)
        qm_shape_of_rows(param, out);
    else if (i == SQ_COL || i == RES_COL)
        qm_shape_of_cols(param, out);
    else if (i == SQ && param->rank >= 2)
        *out = qm_shape_none();
}

/* Row and column averages of x, with room for the means. */
static void average_factors(const struct qm_matrices *m, const float *x, double beta, float *row,
                            float *col, float *mean)
{
    qm_row_means(m, x, mean);
    qm_average(row, mean, m->batch * m->rows, beta, 1.0 - beta);
    qm_col_means(m, x, mean);
    qm_average(col, mean, m->batch * m->cols, beta, 1.0 - beta);
}

static qm_status states(const struct qm_whole *w)
{
    const struct qm_hyper *h = w->s->hyper;
    struct qm_matrices m;
    int64_t n = qm_shape_numel(w->shape);
    int factored = qm_matrices_of(w->shape, &m);
    float *u = malloc(sizeof(float) * (size_t)(2 * n + 1)), *mean = u + n;
    float eps1 = (float)h->eps1, eps2 = (float)h->eps2, *avg = w->slot[AVG];
    if (!u)
        return qm_fail(QM_NO_MEMORY, "update of %lld elements", (long long)n);
    for (int64_t i = 0; i < n; i++)
        u[i] = w->g[i] * w->g[i] + eps1;
    if (factored && n > 0) {
        average_factors(&m, u, h->beta2, w->slot[SQ_ROW], w->slot[SQ_COL], mean);
        qm_factor_rsqrt(&m, w->slot[SQ_ROW], w->slot[SQ_COL], u);
    } else if (n > 0) {
        qm_average(w->slot[SQ], u, n, h->beta2, 1.0 - h->beta2);
        for (int64_t i = 0; i < n; i++)
            u[i] = 1.0f / sqrtf(w->slot[SQ][i]);
    }
    for (int64_t i = 0; i < n; i++)
        u[i] = u[i] * w->g[i];
    qm_clip_rms(u, n, h->clip);
    qm_average(avg, u, n, h->beta1, 1.0 - h->beta1);
    for (int64_t i = 0; i < n; i++)
        u[i] = (u[i] - avg[i]) * (u[i] - avg[i]) + eps2;
    if (factored && n > 0)
        average_factors(&m, u, h->beta3, w->slot[RES_ROW], w->slot[RES_COL], mean);
    free(u);
    return QM_OK;
}

/* The source decays a 16-bit parameter in its own type: alpha, the product and the sum round. */
static float decayed(float p, float alpha, enum qm_dtype type)
{
    if (type == QM_DTYPE_bf16)
        return qm_bf16_to_float(qm_float_to_bf16(fmaf(p, alpha, p)));
    if (type == QM_DTYPE_f16)
        return qm_f16_to_float(qm_float_to_f16(fmaf(p, alpha, p)));
    return fmaf(p, alpha, p);
}

static qm_status apply(const struct qm_whole *w)
{
    const struct qm_hyper *h = w->s->hyper;
    struct qm_matrices m;
    int64_t n = qm_shape_numel(w->shape);
    float *u = malloc(sizeof(float) * (size_t)(n + 1)), lr = (float)h->lr;
    float alpha = (float)(-h->weight_decay * h->lr);
    if (!u)
        return qm_fail(QM_NO_MEMORY, "update of %lld elements", (long long)n);
    if (n > 0)
        memcpy(u, w->slot[AVG], sizeof(float) * (size_t)n);
    if (qm_matrices_of(w->shape, &m) && n > 0) {
        qm_factor_rsqrt(&m, w->slot[RES_ROW], w->slot[RES_COL], u);
        for (int64_t i = 0; i < n; i++)
            u[i] = u[i] * w->slot[AVG][i];
    }
    for (int64_t i = 0; i < n && h->weight_decay != 0.0; i++)
        w->p[i] = decayed(w->p[i], alpha, w->param);
    for (int64_t i = 0; i < n; i++)
        w->p[i] = w->p[i] - u[i] * lr;
    free(u);
    return QM_OK;
}

static const struct qm_rule rules[] = {
    {.name = "came",
     .family = "came",
     .order = QM_ORDER_rounds,
     .summary = "CAME: factored second moment, momentum, factored confidence",
     .source = "arXiv:2307.02047; came_pytorch/CAME.py CAME.step",
     .n_slots = 6,
     .slot = {"exp_avg", "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq", "exp_avg_res_row",
              "exp_avg_res_col"},
     .slot_sign = {1, 0, 0, 0, 0, 0},
     .prepare = prepare,
     .states = states,
     .apply = apply,
     .slot_shape = slot_shape},
};

const struct qm_rule_family qm_family_came = {sizeof rules / sizeof *rules, rules};
