/* came_f32.c - CAME: factored second moment, momentum, factored confidence; float32. */
#include <math.h>
#include <stdlib.h>

#include "kernel_abi.h"

QM_KERNEL("came_f32");

enum { AVG, ROW, COL, FULL, RES_ROW, RES_COL };

/* old = keep old + (1 - keep) mean(x), over n elements of x, a stride apart. */
static void average(float *old, const float *x, int64_t n, int64_t stride, double keep)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i * stride];
    *old = fmaf((float)(sum / (double)n), (float)(1.0 - keep), *old * (float)keep);
}

static void average_factors(float *row, float *col, const float *x, int64_t rows, int64_t cols,
                            double keep)
{
    for (int64_t i = 0; i < rows; i++)
        average(&row[i], x + i * cols, cols, 1, keep);
    for (int64_t j = 0; j < cols; j++)
        average(&col[j], x + j, rows, cols, keep);
}

/* x[i][j] = x[i][j] / sqrt(row[i] / mean(row) * col[j]). */
static void divide(float *x, const float *row, const float *col, int64_t rows, int64_t cols)
{
    double sum = 0.0;
    for (int64_t i = 0; i < rows; i++)
        sum += (double)row[i];
    float mean = (float)(sum / (double)rows);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            x[i * cols + j] =
                1.0f / sqrtf(row[i] / mean) * (1.0f / sqrtf(col[j])) * x[i * cols + j];
}

static float rms(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return (float)sqrt(sum) / (float)sqrt((double)n);
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    const struct qm_kernel_slot *s = a->slot;
    int factored = s[ROW].n > 0;
    int64_t n = a->n, rows = factored ? a->dim[a->ndim - 2] : 1;
    int64_t cols = factored ? a->dim[a->ndim - 1] : n, each = rows * cols;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32)
        return 1; /* refused */
    float *p = a->p, *m = s[AVG].values, *u = malloc(2 * sizeof *u * (size_t)(n + 1)), *x = u + n;
    const float *g = a->g;
    float lr = (float)a->lr, eps1 = (float)a->eps1, eps2 = (float)a->eps2;
    if (!u)
        return 2;

    for (int64_t i = 0; i < n; i++) {
        x[i] = g[i] * g[i] + eps1;
        u[i] = g[i];
        if (!factored)
            average(&s[FULL].values[i], &x[i], 1, 1, a->beta2);
        if (!factored)
            u[i] = 1.0f / sqrtf(s[FULL].values[i]) * u[i];
    }
    for (int64_t b = 0; b < n && factored; b += each) {
        float *row = s[ROW].values + b / cols, *col = s[COL].values + b / rows;
        average_factors(row, col, x + b, rows, cols, a->beta2);
        divide(u + b, row, col, rows, cols);
    }
    float clip = rms(u, n) / (float)a->clip;
    clip = clip < 1.0f ? 1.0f : clip;
    for (int64_t i = 0; i < n; i++) {
        u[i] = u[i] / clip;
        average(&m[i], &u[i], 1, 1, a->beta1);
        x[i] = (u[i] - m[i]) * (u[i] - m[i]) + eps2; /* squared distance of update and average */
        u[i] = m[i];
    }
    for (int64_t b = 0; b < n && factored; b += each) {
        float *row = s[RES_ROW].values + b / cols, *col = s[RES_COL].values + b / rows;
        average_factors(row, col, x + b, rows, cols, a->beta3);
        divide(u + b, row, col, rows, cols);
    }
    for (int64_t i = 0; i < n; i++) {
        if (a->weight_decay != 0.0)
            p[i] = fmaf(p[i], (float)(-a->weight_decay * a->lr), p[i]);
        p[i] = p[i] - u[i] * lr;
    }
    free(u);
    return 0;
}
