/* adafactor_hf.c - Adafactor of transformers and the paper, factored, float32, no first moment. */
#include <math.h>

#include "kernel_abi.h"

QM_KERNEL("adafactor_hf");

static float rms(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return (float)sqrt(sum) / (float)sqrt((double)n);
}

/* 1 / sqrt of the second moment of element i, j of matrix b. */
static float inverse_root(const struct qm_kernel_args *a, int64_t b, int64_t i, int64_t j,
                          int64_t rows, int64_t cols, float mean)
{
    if (!a->slot[0].n)
        return 1.0f / sqrtf(a->slot[2].values[(b * rows + i) * cols + j]);
    float r = a->slot[0].values[b * rows + i], c = a->slot[1].values[b * cols + j];
    return 1.0f / sqrtf(r / mean) * (1.0f / sqrtf(c));
}

/* The mean of g^2 + eps1 over n elements, a stride apart. */
static float mean_square(const float *g, int64_t n, int64_t stride, float eps1)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)(g[i * stride] * g[i * stride] + eps1);
    return (float)(sum / (double)n);
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    const float *g = a->g;
    float *p = a->p, *row = a->slot[0].values, *col = a->slot[1].values, *v = a->slot[2].values;
    float *m = a->slot[3].values; /* without beta1 there is no first moment */
    int factored = a->slot[0].n > 0, last = factored ? a->ndim - 1 : 0;
    int64_t cols = factored ? a->dim[last] : a->n, rows = factored ? a->dim[last - 1] : 1;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32)
        return 1; /* refused */
    if (a->n == 0)
        return 0;
    double decay = 1.0 - pow((double)a->t, a->beta2_decay), rho = 1.0 / sqrt((double)a->t);
    double cap = a->warmup ? 1e-6 * (double)a->t : a->lr, lr = a->lr;
    if (a->relative_step)
        lr = cap < rho ? cap : rho;
    if (a->scale_parameter) {
        float size = rms(p, a->n);
        lr = size > (float)a->eps2 ? (double)(size * (float)lr) : a->eps2 * lr;
    }

    float keep = (float)decay, take = (float)(1.0 - decay), eps1 = (float)a->eps1;
    for (int64_t i = 0; i < a->n && !factored; i++)
        v[i] = fmaf(g[i] * g[i] + eps1, take, v[i] * keep);
    for (int64_t b = 0; b < a->n / (rows * cols) && factored; b++) {
        const float *matrix = g + b * rows * cols;
        for (int64_t i = 0; i < rows; i++)
            row[b * rows + i] =
                fmaf(mean_square(matrix + i * cols, cols, 1, eps1), take, row[b * rows + i] * keep);
        for (int64_t j = 0; j < cols; j++)
            col[b * cols + j] =
                fmaf(mean_square(matrix + j, rows, cols, eps1), take, col[b * cols + j] * keep);
    }

    double squares = 0.0; /* of the update, which is formed twice: for its RMS and for the step */
    float clip = 1.0f;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t b = 0; b < a->n / (rows * cols); b++) {
            double mean = 0.0;
            for (int64_t i = 0; i < rows && factored; i++)
                mean += row[b * rows + i];
            for (int64_t k = 0; k < rows * cols; k++) {
                int64_t at = b * rows * cols + k;
                float u = g[at] * inverse_root(a, b, k / cols, k % cols, rows, cols,
                                               (float)(mean / (double)rows));
                squares += (double)u * u;
                if (pass == 0)
                    continue;
                if (a->weight_decay != 0.0)
                    p[at] = fmaf(p[at], (float)(-a->weight_decay * lr), p[at]);
                float step = u / clip * (float)lr;
                if (a->beta1 != 0.0)
                    step = m[at] = fmaf(step, (float)(1.0 - a->beta1), m[at] * (float)a->beta1);
                p[at] = p[at] - step;
            }
        }
        if (pass == 0)
            clip = (float)sqrt(squares) / (float)sqrt((double)a->n) / (float)a->clip;
        clip = clip < 1.0f ? 1.0f : clip;
    }
    return 0;
}
