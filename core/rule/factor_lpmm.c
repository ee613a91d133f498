/* factor_lpmm.c - lpmm/optim/adamw.py _single_quantized_factored_update. */
#include "core/rule/factor_lpmm.h"

#include <stdlib.h>

#include "core/rule/lpmm.h"

/* The tensor as `batch` matrices. */
struct matrices {
    int64_t batch, rows, cols;
};

static struct matrices matrices_of(const struct qm_shape *s)
{
    struct matrices m = {1, s->dim[s->rank - 2], s->dim[s->rank - 1]};
    for (int i = 0; i + 2 < s->rank; i++)
        m.batch *= s->dim[i];
    return m;
}

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

/* R and C of one matrix: an average of the mean squares over the other dimension. */
static void factors(const float *c, const struct matrices *m, const float *g, float *row,
                    float *col, double *sum)
{
    for (int64_t j = 0; j < m->cols; j++)
        sum[j] = 0.0;
    for (int64_t i = 0; i < m->rows; i++) {
        double across = 0.0;
        for (int64_t j = 0; j < m->cols; j++) {
            double square = (double)(g[i * m->cols + j] * g[i * m->cols + j]);
            across += square;
            sum[j] += square;
        }
        row[i] = fmaf((float)(across / (double)m->cols), c[4], row[i] * c[3]);
    }
    for (int64_t j = 0; j < m->cols; j++)
        col[j] = fmaf((float)(sum[j] / (double)m->rows), c[4], col[j] * c[3]);
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
    for (int64_t i = 0; i < n; i++)
        m[i] = qm_lerp(m[i], w->s->flag[1] ? -w->g[i] : w->g[i], c[1], c[2]);
    if (!is_factored(w->s->hyper, w->shape)) {
        for (int64_t i = 0; i < n; i++)
            qm_adamw_lpmm_second(c, w->g[i], &v[i]);
        return QM_OK;
    }
    struct matrices k = matrices_of(w->shape);
    double *sum = malloc(sizeof *sum * (size_t)k.cols);
    if (!sum)
        return qm_fail(QM_NO_MEMORY, "sums of %lld columns", (long long)k.cols);
    for (int64_t b = 0; b < k.batch; b++)
        factors(c, &k, w->g + b * k.rows * k.cols, w->slot[QM_FACTOR_ROW] + b * k.rows,
                w->slot[QM_FACTOR_COL] + b * k.cols, sum);
    free(sum);
    return QM_OK;
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
    struct matrices k = matrices_of(w->shape);
    for (int64_t b = 0; b < k.batch; b++) {
        const float *row = w->slot[QM_FACTOR_ROW] + b * k.rows;
        const float *col = w->slot[QM_FACTOR_COL] + b * k.cols;
        double sum = 0.0;
        for (int64_t i = 0; i < k.rows; i++)
            sum += (double)row[i];
        float mean = (float)(sum / (double)k.rows);
        for (int64_t i = 0; i < k.rows; i++)
            for (int64_t j = 0, at = (b * k.rows + i) * k.cols; j < k.cols; j++, at++)
                qm_adamw_lpmm_apply(w->s->c, NULL, w->p + at, m[at], (row[i] / mean) * col[j]);
    }
    return QM_OK;
}
