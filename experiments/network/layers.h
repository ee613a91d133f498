/* layers.h - The layers of a network, forward and backward, in double.
 *
 * There is one backward routine per forward routine.  All arrays are row-major without gaps and
 * owned by the caller.  Backward routines add to the gradients of parameters; each declaration says
 * whether they overwrite or add to the gradient of the input.  The layout and the division into
 * routines follow the usual hand-written GPT-2 (pre-norm); the formulas are the definitions. */
#ifndef QM_NETWORK_LAYERS_H
#define QM_NETWORK_LAYERS_H

#include <stdint.h>

/* Where a backward routine leaves the gradients of its layer; weight is the gain of a layernorm. */
struct qm_layer_gradient {
    double *input, *weight, *bias;
};

/* y[rows x out] = x[rows x in] w[in x out] + bias[out]. */
void qm_linear(const double *x, const double *w, const double *bias, int64_t rows, int64_t in,
               int64_t out, double *y);
/* to->input = dy w' (NULL: not wanted); to->weight += x' dy; to->bias += column sums of dy.
 * scratch[in * out]. */
void qm_linear_back(const double *x, const double *w, const double *dy, int64_t rows, int64_t in,
                    int64_t out, double *scratch, const struct qm_layer_gradient *to);

/* y = (x - mean) / sqrt(variance + 1e-5) gain + bias over each row of n; stores the mean and the
 * reciprocal deviation of every row in stat[rows x 2] for the backward routine. */
void qm_layernorm(const double *x, const double *gain, const double *bias, int64_t rows, int64_t n,
                  double *stat, double *y);
/* Adds to all three gradients: to->input[rows x n], to->weight[n] and to->bias[n]. */
void qm_layernorm_back(const double *x, const double *gain, const double *stat, const double *dy,
                       int64_t rows, int64_t n, const struct qm_layer_gradient *to);

/* y = gelu(x) in the tanh form; stores the tanh in tanh_of[n] for the backward routine. */
void qm_gelu(const double *x, int64_t n, double *tanh_of, double *y);
/* dx = dy gelu'(x); dx may be dy. */
void qm_gelu_back(const double *x, const double *tanh_of, const double *dy, int64_t n, double *dx);

/* Causal attention of `batch` sequences of `length` tokens: qkv[batch * length x 3 width] holds
 * query, key and value one after the other, each with its heads one after the other;
 * y[batch * length x width].  weight[batch x heads x length x length] is stored for the backward
 * routine; scratch[length * width / heads]. */
struct qm_attention {
    int64_t batch, length, width, heads;
};
void qm_attention(const struct qm_attention *a, const double *qkv, double *weight, double *scratch,
                  double *y);
/* Overwrites dqkv, shaped as qkv; scratch[length * (length + width / heads)]. */
void qm_attention_back(const struct qm_attention *a, const double *qkv, const double *weight,
                       const double *dy, double *scratch, double *dqkv);

/* Turns each row of n logits into probabilities, in place.  log_sum[rows], unless NULL, receives
 * log sum_i exp(x_i) of the logits. */
void qm_softmax(double *x, int64_t rows, int64_t n, double *log_sum);

#endif
