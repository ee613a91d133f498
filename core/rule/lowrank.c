/* lowrank.c - projecting, channel norms, the limiter. */
#include "core/rule/lowrank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rule/whole.h"

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
    if (!l->right) {
        qm_product(p, 1, l->r, g, l->r, l->m, l->n, low);
        return QM_OK;
    }
    float *across = malloc(sizeof *across * (size_t)(l->r * l->n));
    if (!across)
        return qm_fail(QM_NO_MEMORY, "a projection of rank %lld", (long long)l->r);
    for (int64_t j = 0; j < l->n; j++)
        for (int64_t k = 0; k < l->r; k++)
            across[j * l->r + k] = p[k * l->n + j];
    qm_product(g, l->n, 1, across, l->m, l->n, l->r, low);
    free(across);
    return QM_OK;
}

void qm_lowrank_back(const struct qm_lowrank *l, const float *x, const float *p, double alpha,
                     float *out)
{
    if (l->right)
        qm_product(x, l->r, 1, p, l->m, l->r, l->n, out);
    else
        qm_product(p, l->r, 1, x, l->m, l->r, l->n, out);
    QM_CHUNKS(l->m * l->n, i, k)
    qm_whole_blocks()->multiply(k, (float)alpha, out + i);
}

void qm_lowrank_ratios(const struct qm_lowrank *l, int axis, const float *norm_grad,
                       const float *low, float *out)
{
    int64_t count = axis ? l->rows : l->cols, inner = axis ? l->cols : l->rows;
    int64_t step = axis ? 1 : l->cols, start = axis ? l->cols : 1;
    for (int64_t i = 0; i < count; i++) {
        double a = 0.0, b = 0.0;
        for (int64_t k = 0; k < inner; k++) {
            double x = (double)norm_grad[i * start + k * step];
            double y = (double)low[i * start + k * step];
            a += x * x;
            b += y * y;
        }
        out[i] = (float)sqrt(a) / ((float)sqrt(b) + 1e-8f);
    }
}

void qm_limit_growth(float *x, int64_t n, double margin, int64_t t, float *prev)
{
    float norm = qm_norm2(x, n), gamma = (float)(1.0 + margin);
    if (t == 1) {
        *prev = norm;
        return;
    }
    float ratio = norm / (*prev + 1e-8f);
    float limiter = gamma > ratio ? 1.0f : ratio / gamma;
    QM_CHUNKS(n, i, k)
    qm_whole_blocks()->divide(k, limiter, x + i);
    *prev = norm / limiter;
}
