/* family_came.c - CAME, full precision.
 *
 * CAME has the factors of Adafactor, a first moment, and a second pair of factors, which measures
 * how far update and moment are apart. */
#include "core/rule/rule.h"

#include <math.h>
#include <string.h>

#include "core/rule/tensor_rule.h"

/* Elements of 16 bits that torch's add takes at once on x86; the rest of n is scalar code. */
enum { VECTOR = 32 };

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

/* The averages row and col take in the row means and the column means of the terms of x. */
static qm_status average_factors(const struct qm_matrices *m, struct qm_term t, const float *x,
                                 double beta, float *row, float *col)
{
    int64_t rows = m->batch * m->rows, cols = m->batch * m->cols, most = rows > cols ? rows : cols;
    void *mean = NULL;
    QM_TRY(qm_tensor_rule_alloc(sizeof(float) * (size_t)most, &mean));
    qm_row_means(m, t, x, mean);
    qm_average(row, mean, rows, beta, 1.0 - beta);
    qm_col_means(m, t, x, mean);
    qm_average(col, mean, cols, beta, 1.0 - beta);
    qm_tensor_rule_free(mean);
    return QM_OK;
}

static qm_status states(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    struct qm_matrices m;
    int64_t n = qm_shape_numel(w->shape);
    int factored = qm_matrices_of(w->shape, &m);
    float *u = w->room, eps1 = (float)h->eps1, eps2 = (float)h->eps2, *avg = w->slot[AVG];
    if (factored && n > 0) {
        QM_TRY(average_factors(&m, (struct qm_term){1, eps1, 1}, w->g, h->beta2, w->slot[SQ_ROW],
                               w->slot[SQ_COL]));
        QM_TRY(qm_factor_rsqrt(&m, w->slot[SQ_ROW], w->slot[SQ_COL], w->g, u));
    } else if (n > 0) {
        qm_sweep_run(
            QM_SWEEP_add_square,
            &(struct qm_sweep){.n = n, .c = {[QM_ADD_SQUARE_EPS] = eps1}, .x = {u, QM_AT(w->g)}});
        qm_average(w->slot[SQ], u, n, h->beta2, 1.0 - h->beta2);
        qm_sweep_run(QM_SWEEP_over_sqrt,
                     &(struct qm_sweep){.n = n, .x = {u, w->slot[SQ], QM_AT(w->g)}});
    }
    qm_clip_rms(u, n, h->clip);
    qm_average(avg, u, n, h->beta1, 1.0 - h->beta1);
    QM_CHUNKS(n, i)
    qm_tensor_rule_loops()->residual(qm_chunk_n(n, i), eps2, avg + i, u + i);
    if (factored && n > 0)
        QM_TRY(average_factors(&m, (struct qm_term){.is_single = 1}, u, h->beta3, w->slot[RES_ROW],
                               w->slot[RES_COL]));
    return QM_OK;
}

static qm_status apply(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    struct qm_matrices m;
    int64_t n = qm_shape_numel(w->shape);
    const float *u = w->slot[AVG];
    float lr = (float)h->lr;
    float alpha = (float)(-h->weight_decay * h->lr);
    int is_bf16 = w->param == QM_DTYPE_bf16, is_f16 = w->param == QM_DTYPE_f16;
    if (qm_matrices_of(w->shape, &m) && n > 0) {
        QM_TRY(qm_factor_rsqrt(&m, w->slot[RES_ROW], w->slot[RES_COL], u, w->room));
        u = w->room;
    }
    alpha = is_bf16  ? qm_bf16_to_float(qm_float_to_bf16(alpha))
            : is_f16 ? qm_f16_to_float(qm_float_to_f16(alpha))
                     : alpha;
    if (h->weight_decay != 0.0)
        qm_sweep_run(
            QM_SWEEP_came_decay,
            &(struct qm_sweep){.n = n,
                               .inner = n / VECTOR * VECTOR,
                               .c = {[QM_CAME_DECAY_BY] = alpha},
                               .flag = {[QM_STORED_BF16] = is_bf16, [QM_STORED_F16] = is_f16},
                               .x = {w->p}});
    QM_CHUNKS(n, i)
    qm_tensor_rule_loops()->decay_step(qm_chunk_n(n, i), 1.0f, lr, u + i, w->p + i);
    return QM_OK;
}

static const struct qm_rule rules[] = {
    {.name = "came",
     .family = "came",
     .reads = "lr beta1 beta2 beta3 eps1 eps2 weight_decay clip",
     .order = QM_ORDER_rounds,
     .summary = "CAME: factored second moment, momentum, factored confidence",
     .source = "arXiv:2307.02047; came_pytorch/CAME.py CAME.step",
     .n_slots = 6,
     .slot = {"exp_avg", "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq", "exp_avg_res_row",
              "exp_avg_res_col"},
     .slot_sign = {1, 0, 0, 0, 0, 0},
     .prepare = prepare,
     .tensor =
         &(const struct qm_tensor_ops){
             .states = states, .apply = apply, .on_device = 1, .extra_passes = 3},
     .slot_shape = slot_shape},
};

const struct qm_rule_family qm_family_came = {sizeof rules / sizeof *rules, rules};
