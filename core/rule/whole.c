/* whole.c - matrices of a shape, sums, factored moments. */
#include "core/rule/whole.h"

#include <math.h>

int qm_matrices_of(const struct qm_shape *s, struct qm_matrices *out)
{
    if (s->rank < 2)
        return 0;
    *out = (struct qm_matrices){1, s->dim[s->rank - 2], s->dim[s->rank - 1]};
    for (int i = 0; i + 2 < s->rank; i++)
        out->batch *= s->dim[i];
    return 1;
}

/* The shape without one of its dims. */
static void drop_dim(const struct qm_shape *s, int which, struct qm_shape *out)
{
    struct qm_shape r = {.rank = s->rank - 1};
    if (s->rank < 2 || qm_shape_numel(s) == 0) {
        *out = qm_shape_none();
        return;
    }
    for (int i = 0, k = 0; i < s->rank; i++)
        if (i != which)
            r.dim[k++] = s->dim[i];
    *out = r;
}

void qm_shape_of_rows(const struct qm_shape *s, struct qm_shape *out)
{
    drop_dim(s, s->rank - 1, out);
}

void qm_shape_of_cols(const struct qm_shape *s, struct qm_shape *out)
{
    drop_dim(s, s->rank - 2, out);
}

void qm_row_means(const struct qm_matrices *m, const float *x, float *row)
{
    for (int64_t i = 0; i < m->batch * m->rows; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < m->cols; j++)
            sum += (double)x[i * m->cols + j];
        row[i] = (float)(sum / (double)m->cols);
    }
}

/* A few columns at a time, so that rows are read in their order. */
void qm_col_means(const struct qm_matrices *m, const float *x, float *col)
{
    enum { WIDTH = 16 };
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t from = 0; from < m->cols; from += WIDTH) {
            double sum[WIDTH] = {0.0};
            int64_t n = m->cols - from < WIDTH ? m->cols - from : WIDTH;
            for (int64_t i = 0; i < m->rows; i++)
                for (int64_t j = 0; j < n; j++)
                    sum[j] += (double)x[(b * m->rows + i) * m->cols + from + j];
            for (int64_t j = 0; j < n; j++)
                col[b * m->cols + from + j] = (float)(sum[j] / (double)m->rows);
        }
}

float qm_norm2(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return (float)sqrt(sum);
}

float qm_rms(const float *x, int64_t n) { return qm_norm2(x, n) / (float)sqrt((double)n); }

void qm_average(float *old, const float *x, int64_t n, double decay, double weight)
{
    float d = (float)decay, w = (float)weight;
    for (int64_t i = 0; i < n; i++)
        old[i] = fmaf(x[i], w, old[i] * d);
}

void qm_factor_rsqrt(const struct qm_matrices *m, const float *row, const float *col, float *x)
{
    for (int64_t b = 0; b < m->batch; b++) {
        const float *r = row + b * m->rows, *c = col + b * m->cols;
        const struct qm_matrices rows = {1, 1, m->rows};
        float mean = 0.0f;
        qm_row_means(&rows, r, &mean);
        for (int64_t i = 0; i < m->rows; i++) {
            float *out = x + (b * m->rows + i) * m->cols;
            float r_factor = 1.0f / sqrtf(r[i] / mean);
            for (int64_t j = 0; j < m->cols; j++)
                out[j] = r_factor * (1.0f / sqrtf(c[j]));
        }
    }
}

void qm_clip_rms(float *x, int64_t n, double clip)
{
    float den = qm_rms(x, n) / (float)clip;
    den = den < 1.0f ? 1.0f : den;
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] / den;
}
