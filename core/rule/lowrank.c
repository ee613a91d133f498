/* lowrank.c - Projections of a matrix, channel norms and the limiter of APOLLO and Fira. */
#include "core/rule/lowrank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rule/tensor_rule.h"

enum { STD, REVERSE, RIGHT, LEFT };
#define MOST_RANK 0x1p20 /* what a recipe may ask for; files may hold anything */

int qm_lowrank_of(const struct qm_hyper *h, int cut, const struct qm_shape *param,
                  struct qm_lowrank *out)
{
    if (param->rank != 2 || !(h->rank > 0.0) || param->dim[0] < 1 || param->dim[1] < 1)
        return 0;
    struct qm_lowrank l = {.m = param->dim[0], .n = param->dim[1]};
    int64_t least = l.m < l.n ? l.m : l.n;
    int tall = l.m >= l.n, side = (int)h->side;
    l.right = side == RIGHT || (side == STD && tall) || (side == REVERSE && !tall);
    l.r = h->rank >= 1.0 ? (int64_t)fmin(h->rank, MOST_RANK) : (int64_t)(h->rank * (double)least);
    l.r = l.r < 1 ? 1 : cut && l.r > least ? least : l.r;
    l.rows = l.right ? l.m : l.r;
    l.cols = l.right ? l.r : l.n;
    *out = l;
    return 1;
}

struct qm_shape qm_lowrank_state(const struct qm_lowrank *l)
{
    return (struct qm_shape){2, {l->rows, l->cols}};
}

struct qm_shape qm_lowrank_proj(const struct qm_lowrank *l)
{
    if (l->right)
        return (struct qm_shape){2, {l->r, l->n}};
    return (struct qm_shape){2, {l->m, l->r}};
}

qm_status qm_lowrank_project(const struct qm_lowrank *l, const float *g, const float *p, float *low)
{
    void *across = NULL;
    if (!l->right) {
        qm_product(p, 1, l->r, g, l->r, l->m, l->n, low);
        return QM_OK;
    }
    QM_TRY(qm_tensor_rule_alloc(sizeof(float) * (size_t)(l->r * l->n), &across));
    qm_sweep_run(
        QM_SWEEP_transpose,
        &(struct qm_sweep){.n = l->r * l->n, .rows = l->r, .cols = l->n, .x = {across, QM_AT(p)}});
    qm_product(g, l->n, 1, across, l->m, l->n, l->r, low);
    qm_tensor_rule_free(across);
    return QM_OK;
}

void qm_lowrank_back(const struct qm_lowrank *l, const float *x, const float *p, double alpha,
                     float *out)
{
    if (l->right)
        qm_product(x, l->r, 1, p, l->m, l->r, l->n, out);
    else
        qm_product(p, l->r, 1, x, l->m, l->r, l->n, out);
    QM_CHUNKS(l->m * l->n, i)
    qm_tensor_rule_loops()->multiply(qm_chunk_n(l->m * l->n, i), (float)alpha, out + i);
}

void qm_lowrank_average_squares(float *old, const float *x, int64_t n, double beta)
{
    qm_sweep_run(QM_SWEEP_average_square,
                 &(struct qm_sweep){.n = n,
                                    .c = {[QM_AVERAGE_SQUARE_KEEP] = (float)beta,
                                          [QM_AVERAGE_SQUARE_WEIGHT] = (float)(1.0 - beta)},
                                    .x = {old, QM_AT(x)}});
}

void qm_lowrank_adapt(const float *x, const float *sq, const float *avg, double eps, int64_t n,
                      float *out)
{
    qm_sweep_run(QM_SWEEP_adapted, &(struct qm_sweep){.n = n,
                                                      .c = {[QM_ADAPTED_EPS] = (float)eps},
                                                      .flag = {[QM_ADAPTED_CENTERED] = avg != NULL},
                                                      .x = {out, QM_AT(x), QM_AT(sq), QM_AT(avg)}});
}

struct qm_sweep qm_lowrank_sweep(const struct qm_lowrank *l, int axis)
{
    return (struct qm_sweep){.n = axis ? l->rows : l->cols,
                             .cols = l->cols,
                             .inner = axis ? l->cols : l->rows,
                             .step_a = axis ? l->cols : 1,
                             .step_k = axis ? 1 : l->cols};
}

void qm_lowrank_squares(const struct qm_lowrank *l, int axis, const float *x, double *out)
{
    struct qm_sweep a = qm_lowrank_sweep(l, axis);
    a.x[1] = QM_AT(x);
    a.y[0] = out;
    qm_sweep_run(QM_SWEEP_channel_squares, &a);
}

void qm_lowrank_ratios(const struct qm_lowrank *l, int axis, const float *norm_grad,
                       const float *low, double *out)
{
    int64_t n = axis ? l->rows : l->cols;
    qm_lowrank_squares(l, axis, norm_grad, out);
    qm_lowrank_squares(l, axis, low, out + n);
    qm_sweep_run(QM_SWEEP_channel_ratio, &(struct qm_sweep){.n = n, .y = {out, out + n}});
}

void qm_lowrank_channels(const struct qm_lowrank *l, int axis, int is_one, double *factor,
                         const float *x, float *out)
{
    if (qm_tensor_rule_device()) {
        qm_sweep_run(
            QM_SWEEP_channels,
            &(struct qm_sweep){.n = l->m * l->n,
                               .cols = l->n,
                               .flag = {[QM_CHANNELS_ROWS] = axis, [QM_CHANNELS_ONE] = is_one},
                               .x = {out, QM_AT(x)},
                               .y = {factor}});
        return;
    }
    QM_PARALLEL(l->m * l->n >= QM_THREADS_FROM)
    for (int64_t i = 0; i < l->m; i++) /* without a division for each element */
        for (int64_t j = 0; j < l->n; j++)
            out[i * l->n + j] = qm_channel(factor[is_one ? 0 : axis ? i : j], x[i * l->n + j]);
}

void qm_limit_growth(float *x, int64_t n, double margin, int64_t t, float *prev)
{
    float norm = qm_norm2(x, n), gamma = (float)(1.0 + margin), before;
    if (t > 1) {
        qm_tensor_rule_read(&before, prev, sizeof before);
        float ratio = norm / (before + 1e-8f);
        float limiter = gamma > ratio ? 1.0f : ratio / gamma;
        QM_CHUNKS(n, i)
        qm_tensor_rule_loops()->divide(qm_chunk_n(n, i), limiter, x + i);
        norm = norm / limiter;
    }
    qm_tensor_rule_write(prev, &norm, sizeof norm);
}
