/* lowrank.c - projecting, channel norms, the limiter. */
#include "core/rule/lowrank.h"

#include <math.h>
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

enum { WIDTH = 16 };

/* out[a][c] = sum over k of x[a * step_a + k * step_k] y[k][c], a few columns at a time. */
static void multiply(const float *x, int64_t step_a, int64_t step_k, const float *y, int64_t rows,
                     int64_t inner, int64_t cols, float *out)
{
    for (int64_t a = 0; a < rows; a++)
        for (int64_t from = 0; from < cols; from += WIDTH) {
            double sum[WIDTH] = {0.0};
            int64_t n = cols - from < WIDTH ? cols - from : WIDTH;
            for (int64_t k = 0; k < inner; k++) {
                double f = (double)x[a * step_a + k * step_k];
                for (int64_t c = 0; c < n; c++)
                    sum[c] += f * (double)y[k * cols + from + c];
            }
            for (int64_t c = 0; c < n; c++)
                out[a * cols + from + c] = (float)sum[c];
        }
}

void qm_lowrank_project(const struct qm_lowrank *l, const float *g, const float *p, float *low)
{
    if (!l->right) {
        multiply(p, 1, l->r, g, l->r, l->m, l->n, low);
        return;
    }
    for (int64_t i = 0; i < l->m; i++)
        for (int64_t k = 0; k < l->r; k++) {
            double sum = 0.0;
            for (int64_t j = 0; j < l->n; j++)
                sum += (double)g[i * l->n + j] * (double)p[k * l->n + j];
            low[i * l->r + k] = (float)sum;
        }
}

void qm_lowrank_back(const struct qm_lowrank *l, const float *x, const float *p, double alpha,
                     float *out)
{
    if (l->right)
        multiply(x, l->r, 1, p, l->m, l->r, l->n, out);
    else
        multiply(p, l->r, 1, x, l->m, l->r, l->n, out);
    for (int64_t i = 0; i < l->m * l->n; i++)
        out[i] = out[i] * (float)alpha;
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
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] / limiter;
    *prev = norm / limiter;
}
