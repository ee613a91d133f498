/* factor_lpmm.c - lpmm/optim/adamw.py _single_quantized_factored_update. */
#include "core/rule/factor_lpmm.h"

#include <stdlib.h>

#include "core/rule/lpmm.h"
#include "core/rule/whole.h"

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

/* x <- x * c[3] + mean * c[4], fused: averages of R and C. */
static qm_status factors(const struct qm_whole *w, const struct qm_matrices *m)
{
    const float *c = w->s->c;
    float *row = w->slot[QM_FACTOR_ROW], *col = w->slot[QM_FACTOR_COL];
    int64_t rows = m->batch * m->rows, cols = m->batch * m->cols, most = rows > cols ? rows : cols;
    float *mean = malloc(sizeof *mean * (size_t)most);
    if (!mean)
        return qm_fail(QM_NO_MEMORY, "means of %lld rows or columns", (long long)most);
    qm_row_means(m, (struct qm_term){.is_square = 1}, w->g, mean);
    for (int64_t i = 0; i < rows; i++)
        row[i] = fmaf(mean[i], c[4], row[i] * c[3]);
    qm_col_means(m, (struct qm_term){.is_square = 1}, w->g, mean);
    for (int64_t j = 0; j < cols; j++)
        col[j] = fmaf(mean[j], c[4], col[j] * c[3]);
    free(mean);
    return QM_OK;
}

qm_status qm_factor_lpmm_states(const struct qm_whole *w)
{
    const float *c = w->s->c;
    float *m = w->slot[QM_FACTOR_M], *v = w->slot[QM_FACTOR_V];
    int64_t n = qm_shape_numel(w->shape);
    if (n == 0)
        return QM_OK;
    if (w->s->flag[2])
        m[0] = 0.0f;
    if (w->s->flag[3])
        v[0] = 0.0f;
    QM_CHUNKS(n, i, k)
    qm_whole_blocks()->lpmm_lerp(w->s, k, w->g + i, m + i);
    if (!is_factored(w->s->hyper, w->shape)) {
        for (int64_t i = 0; i < n; i++)
            qm_adamw_lpmm_second(c, w->g[i], &v[i]);
        return QM_OK;
    }
    struct qm_matrices k;
    qm_matrices_of(w->shape, &k);
    return factors(w, &k);
}

qm_status qm_factor_lpmm_apply(const struct qm_whole *w)
{
    const float *m = w->slot[QM_FACTOR_M];
    int64_t n = qm_shape_numel(w->shape);
    if (n == 0)
        return QM_OK;
    if (!is_factored(w->s->hyper, w->shape)) {
        for (int64_t i = 0; i < n; i++)
            qm_adamw_lpmm_apply(w->s->c, NULL, w->p + i, m[i], w->slot[QM_FACTOR_V][i]);
        return QM_OK;
    }
    struct qm_matrices k;
    qm_matrices_of(w->shape, &k);
    for (int64_t b = 0; b < k.batch; b++) {
        const float *row = w->slot[QM_FACTOR_ROW] + b * k.rows;
        const float *col = w->slot[QM_FACTOR_COL] + b * k.cols;
        const struct qm_matrices rows = {1, 1, k.rows};
        float mean = 0.0f;
        qm_row_means(&rows, (struct qm_term){0}, row, &mean);
        QM_PARALLEL(k.rows * k.cols >= QM_THREADS_FROM)
        for (int64_t i = 0; i < k.rows; i++) {
            int64_t at = (b * k.rows + i) * k.cols;
            qm_whole_blocks()->lpmm_apply(w->s, k.cols, row[i] / mean, col, m + at, w->p + at);
        }
    }
    return QM_OK;
}
