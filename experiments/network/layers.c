/* layers.c - The layers of a network, forward and backward, and the dense products of dense.h. */
#include "experiments/network/layers.h"

#include "experiments/network/dense.h"

#include <math.h>
#include <string.h>

/* ---- products -------------------------------------------------------------------------------- */

#define X(name)                                \
    extern qm_dense_fn *const qm_dense_##name; \
    extern qm_vector_exp_fn *const qm_vector_exp_##name;
QM_ISA_LIST(X)
#undef X

qm_dense_fn *qm_dense_of(void)
{
    static qm_dense_fn *const *const table[] = {
#define X(name) &qm_dense_##name,
        QM_ISA_LIST(X)
#undef X
    };
    return *table[qm_isa()];
}

qm_vector_exp_fn *qm_vector_exp_of(void)
{
    static qm_vector_exp_fn *const *const table[] = {
#define X(name) &qm_vector_exp_##name,
        QM_ISA_LIST(X)
#undef X
    };
    return *table[qm_isa()];
}

void qm_dense_add(const double *a, const double *b, double *c, int64_t m, int64_t depth, int64_t n)
{
    qm_dense_of()(&(struct qm_dense_product){m, depth, n, depth, 1, n, n}, a, b, c);
}

void qm_dense_add_left(const double *a, const double *b, double *c, int64_t m, int64_t depth,
                       int64_t n)
{
    qm_dense_of()(&(struct qm_dense_product){m, depth, n, 1, m, n, n}, a, b, c);
}

void qm_dense_transpose(const double *in, int64_t ld, int64_t rows, int64_t cols, double *out)
{
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < rows; i++)
            out[j * rows + i] = in[i * ld + j];
}

/* ---- linear ---------------------------------------------------------------------------------- */

void qm_linear(const double *x, const double *w, const double *bias, int64_t rows, int64_t in,
               int64_t out, double *y)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(y + i * out, bias, (size_t)out * sizeof *y);
    qm_dense_add(x, w, y, rows, in, out);
}

void qm_linear_back(const double *x, const double *w, const double *dy, int64_t rows, int64_t in,
                    int64_t out, double *scratch, const struct qm_layer_gradient *to)
{
    if (to->input) {
        qm_dense_transpose(w, out, in, out, scratch);
        memset(to->input, 0, (size_t)(rows * in) * sizeof *to->input);
        qm_dense_add(dy, scratch, to->input, rows, out, in);
    }
    qm_dense_add_left(x, dy, to->weight, in, rows, out);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < out; j++)
            to->bias[j] += dy[i * out + j];
}

/* ---- layer normalization --------------------------------------------------------------------- */

void qm_layernorm(const double *x, const double *gain, const double *bias, int64_t rows, int64_t n,
                  double *stat, double *y)
{
    for (int64_t r = 0; r < rows; r++, x += n, y += n, stat += 2) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < n; i++)
            mean += x[i];
        mean /= (double)n;
        for (int64_t i = 0; i < n; i++)
            square += (x[i] - mean) * (x[i] - mean);
        double scale = 1 / sqrt(square / (double)n + 1e-5);
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * scale * gain[i] + bias[i];
        stat[0] = mean;
        stat[1] = scale;
    }
}

/* With u = (x - mean) scale and du = dy gain: dx = scale (du - mean(du) - u mean(du u)). */
void qm_layernorm_back(const double *x, const double *gain, const double *stat, const double *dy,
                       int64_t rows, int64_t n, const struct qm_layer_gradient *to)
{
    double *dx = to->input, *dgain = to->weight, *dbias = to->bias;
    for (int64_t r = 0; r < rows; r++, x += n, dy += n, dx += n, stat += 2) {
        double mean = stat[0], scale = stat[1], along = 0, sum = 0;
        for (int64_t i = 0; i < n; i++) {
            double du = dy[i] * gain[i];
            sum += du;
            along += du * (x[i] - mean);
        }
        sum /= (double)n;
        along *= scale / (double)n;
        for (int64_t i = 0; i < n; i++) {
            double u = (x[i] - mean) * scale;
            dgain[i] += dy[i] * u;
            dbias[i] += dy[i];
            dx[i] += scale * (dy[i] * gain[i] - sum - u * along);
        }
    }
}

/* ---- GELU ------------------------------------------------------------------------------------ */

#define GELU_SCALE 0.7978845608028653559 /* sqrt(2 / pi) */
#define GELU_CUBIC 0.044715

void qm_gelu(const double *x, int64_t n, double *tanh_of, double *y)
{
    for (int64_t i = 0; i < n; i++)
        tanh_of[i] = 2 * GELU_SCALE * (x[i] + GELU_CUBIC * x[i] * x[i] * x[i]);
    qm_vector_exp_of()(tanh_of, n, tanh_of);
    for (int64_t i = 0; i < n; i++) {
        tanh_of[i] = 1 - 2 / (1 + tanh_of[i]); /* only 1 + tanh is used: 1e-16 absolute suffices */
        y[i] = 0.5 * x[i] * (1 + tanh_of[i]);
    }
}

void qm_gelu_back(const double *x, const double *tanh_of, const double *dy, int64_t n, double *dx)
{
    for (int64_t i = 0; i < n; i++) {
        double t = tanh_of[i], inner = GELU_SCALE * (1 + 3 * GELU_CUBIC * x[i] * x[i]);
        dx[i] = dy[i] * (0.5 * (1 + t) + 0.5 * x[i] * (1 - t * t) * inner);
    }
}

/* ---- softmax and attention ------------------------------------------------------------------- */

void qm_softmax(double *x, int64_t rows, int64_t n, double *log_sum)
{
    for (int64_t r = 0; r < rows; r++, x += n) {
        double top = x[0], sum = 0;
        for (int64_t i = 1; i < n; i++)
            top = x[i] > top ? x[i] : top;
        for (int64_t i = 0; i < n; i++)
            x[i] -= top;
        qm_vector_exp_of()(x, n, x);
        for (int64_t i = 0; i < n; i++)
            sum += x[i];
        for (int64_t i = 0; i < n; i++)
            x[i] /= sum;
        if (log_sum)
            log_sum[r] = top + log(sum);
    }
}

/* Offset of a head's query in qkv; its key and value follow `width` and 2 `width` later. */
static int64_t head_at(const struct qm_attention *a, int64_t b, int64_t h)
{
    return b * a->length * 3 * a->width + h * (a->width / a->heads);
}

void qm_attention(const struct qm_attention *a, const double *qkv, double *weight, double *scratch,
                  double *y)
{
    int64_t n = a->length, size = a->width / a->heads, ld = 3 * a->width;
    double scale = 1 / sqrt((double)size);
    qm_dense_fn *product = qm_dense_of();
    const struct qm_dense_product of_scores = {n, size, n, ld, 1, n, n};
    const struct qm_dense_product of_values = {n, n, size, n, 1, ld, a->width};
    memset(y, 0, (size_t)(a->batch * n * a->width) * sizeof *y);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++, weight += n * n) {
            const double *q = qkv + head_at(a, b, h);
            qm_dense_transpose(q + a->width, ld, n, size, scratch);
            memset(weight, 0, (size_t)(n * n) * sizeof *weight);
            product(&of_scores, q, scratch, weight);
            for (int64_t t = 0; t < n; t++) {
                for (int64_t s = 0; s <= t; s++)
                    weight[t * n + s] *= scale;
                qm_softmax(weight + t * n, 1, t + 1, NULL);
                for (int64_t s = t + 1; s < n; s++)
                    weight[t * n + s] = 0;
            }
            product(&of_values, weight, q + 2 * a->width, y + b * n * a->width + h * size);
        }
}

void qm_attention_back(const struct qm_attention *a, const double *qkv, const double *weight,
                       const double *dy, double *scratch, double *dqkv)
{
    int64_t n = a->length, size = a->width / a->heads, ld = 3 * a->width;
    double scale = 1 / sqrt((double)size), *score = scratch, *value = scratch + n * n;
    qm_dense_fn *product = qm_dense_of();
    const struct qm_dense_product of_dv = {n, n, size, 1, n, a->width, ld};
    const struct qm_dense_product of_dweight = {n, size, n, a->width, 1, n, n};
    const struct qm_dense_product of_dq = {n, n, size, n, 1, ld, ld};
    const struct qm_dense_product of_dk = {n, n, size, 1, n, ld, ld};
    memset(dqkv, 0, (size_t)(a->batch * n * ld) * sizeof *dqkv);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++, weight += n * n) {
            const double *q = qkv + head_at(a, b, h), *out = dy + b * n * a->width + h * size;
            double *dq = dqkv + head_at(a, b, h);
            product(&of_dv, weight, out, dq + 2 * a->width); /* dv = weight' dy */
            qm_dense_transpose(q + 2 * a->width, ld, n, size, value);
            memset(score, 0, (size_t)(n * n) * sizeof *score);
            product(&of_dweight, out, value, score); /* dweight = dy v' */
            for (int64_t t = 0; t < n; t++) {
                double *ds = score + t * n, sum = 0;
                for (int64_t s = 0; s <= t; s++)
                    sum += ds[s] * weight[t * n + s];
                for (int64_t s = 0; s < n; s++)
                    ds[s] = scale * weight[t * n + s] * (ds[s] - sum);
            }
            product(&of_dq, score, q + a->width, dq); /* dq = ds k */
            product(&of_dk, score, q, dq + a->width); /* dk = ds' q */
        }
}
