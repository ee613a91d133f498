/* factor_lpmm.c - The AdamW of lpmm with a factored second moment.
 *
 * lpmm/optim/adamw.py _single_quantized_factored_update. */
#include "core/rule/factor_lpmm.h"

#include <string.h>

#include "core/rule/lpmm.h"
#include "core/rule/tensor_rule.h"

static int is_factored(const struct qm_hyper *h, const struct qm_shape *param)
{
    return h->factored && param->rank >= 2;
}

void qm_factor_lpmm_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                          struct qm_shape *out)
{
    *out = *param;
    if (i == QM_FACTOR_M || qm_shape_numel(param) == 0)
        return;
    if (is_factored(h, param) == (i == QM_FACTOR_V)) {
        *out = (struct qm_shape){1, {0}};
    } else if (i != QM_FACTOR_V) {
        out->rank = param->rank - 1;
        out->dim[param->rank - 1] = 0;
        if (i == QM_FACTOR_COL)
            out->dim[param->rank - 2] = param->dim[param->rank - 1];
    }
}

/* The row and column averages take in the means of the squared gradient, fused. */
static qm_status factors(const struct qm_tensor_rule_args *w, const struct qm_matrices *m)
{
    const struct qm_term square = {.is_square = 1};
    double keep = (double)w->s->c[QM_LPMM_BETA2], weight = (double)w->s->c[QM_LPMM_ONE_MINUS_BETA2];
    int64_t rows = m->batch * m->rows, cols = m->batch * m->cols, most = rows > cols ? rows : cols;
    void *mean = NULL;
    QM_TRY(qm_tensor_rule_alloc(sizeof(float) * (size_t)most, &mean));
    qm_row_means(m, square, w->g, mean);
    qm_average(w->slot[QM_FACTOR_ROW], mean, rows, keep, weight);
    qm_col_means(m, square, w->g, mean);
    qm_average(w->slot[QM_FACTOR_COL], mean, cols, keep, weight);
    qm_tensor_rule_free(mean);
    return QM_OK;
}

static void run(enum qm_sweep_kind kind, const struct qm_tensor_rule_args *w, float *x0,
                const float *x1, const float *x2)
{
    struct qm_sweep a = {.n = qm_shape_numel(w->shape), .x = {x0, QM_AT(x1), QM_AT(x2)}};
    memcpy(a.c, w->s->c, sizeof a.c);
    qm_sweep_run(kind, &a);
}

qm_status qm_factor_lpmm_states(const struct qm_tensor_rule_args *w)
{
    float *m = w->slot[QM_FACTOR_M], *v = w->slot[QM_FACTOR_V];
    int64_t n = qm_shape_numel(w->shape);
    if (n == 0)
        return QM_OK;
    if (w->s->flag[QM_FLAG_ABSENT])
        qm_sweep_run(QM_SWEEP_fill, &(struct qm_sweep){.n = 1, .x = {m}});
    if (w->s->flag[QM_FLAG_ABSENT + 1])
        qm_sweep_run(QM_SWEEP_fill, &(struct qm_sweep){.n = 1, .x = {v}});
    QM_CHUNKS(n, i)
    qm_tensor_rule_loops()->lpmm_lerp(w->s, qm_chunk_n(n, i), w->g + i, m + i);
    if (!is_factored(w->s->hyper, w->shape)) {
        run(QM_SWEEP_lpmm_second, w, v, w->g, NULL);
        return QM_OK;
    }
    struct qm_matrices k;
    qm_matrices_of(w->shape, &k);
    return factors(w, &k);
}

/* All elements of all matrices in one launch. */
static qm_status apply_there(const struct qm_tensor_rule_args *w, const struct qm_matrices *k)
{
    const float *row = w->slot[QM_FACTOR_ROW];
    struct qm_sweep a = {.n = k->batch * k->rows * k->cols,
                         .rows = k->rows,
                         .cols = k->cols,
                         .x = {w->p, w->slot[QM_FACTOR_M], QM_AT(row), w->slot[QM_FACTOR_COL]}};
    QM_TRY(qm_batch_means(k, row, &a.x[4]));
    memcpy(a.c, w->s->c, sizeof a.c);
    qm_sweep_run(QM_SWEEP_lpmm_factor, &a);
    qm_tensor_rule_free(a.x[4]);
    return QM_OK;
}

qm_status qm_factor_lpmm_apply(const struct qm_tensor_rule_args *w)
{
    const float *m = w->slot[QM_FACTOR_M];
    int64_t n = qm_shape_numel(w->shape);
    if (n == 0)
        return QM_OK;
    if (!is_factored(w->s->hyper, w->shape)) {
        run(QM_SWEEP_lpmm_apply, w, w->p, m, w->slot[QM_FACTOR_V]);
        return QM_OK;
    }
    struct qm_matrices k;
    qm_matrices_of(w->shape, &k);
    if (qm_tensor_rule_device())
        return apply_there(w, &k);
    for (int64_t b = 0; b < k.batch; b++) {
        const float *row = w->slot[QM_FACTOR_ROW] + b * k.rows;
        const float *col = w->slot[QM_FACTOR_COL] + b * k.cols;
        const struct qm_matrices rows = {1, 1, k.rows};
        float mean = 0.0f;
        qm_row_means(&rows, (struct qm_term){0}, row, &mean);
        QM_PARALLEL(k.rows * k.cols >= QM_THREADS_FROM)
        for (int64_t i = 0; i < k.rows; i++) {
            int64_t at = (b * k.rows + i) * k.cols;
            qm_tensor_rule_loops()->lpmm_apply(w->s, k.cols, row[i] / mean, col, m + at, w->p + at);
        }
    }
    return QM_OK;
}
