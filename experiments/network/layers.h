/* layers.h - the layers of a network, forward and backward, in double.
 *
 * One backward routine per forward routine.  All arrays are row-major without gaps and owned by the
 * caller; backward routines add to the gradients of parameters and overwrite those of inputs, as
 * each declaration says.  The layout and the division into routines follow the usual hand-written
 * GPT-2 (pre-norm); the formulas are the definitions. */
#ifndef QM_NETWORK_LAYERS_H
#define QM_NETWORK_LAYERS_H

#include <stdint.h>

/* y[rows x out] = x[rows x in] w[in x out] + bias[out]. */
void qm_linear(const double *x, const double *w, const double *bias, int64_t rows, int64_t in,
               int64_t out, double *y);
/* dx = dy w' (dx NULL: not wanted); dw += x' dy; dbias += column sums of dy.  scratch[in * out]. */
void qm_linear_back(const double *x, const double *w, const double *dy, int64_t rows, int64_t in,
                    int64_t out, double *scratch, double *dx, double *dw, double *dbias);

/* y = (x - mean) / sqrt(variance + 1e-5) gain + bias over each row of n; keeps mean and
 * reciprocal deviation of every row in stat[rows x 2]. */
void qm_layernorm(const double *x, const double *gain, const double *bias, int64_t rows, int64_t n,
                  double *stat, double *y);
/* dx += ..., dgain += ..., dbias += ... */
void qm_layernorm_back(const double *x, const double *gain, const double *stat, const double *dy,
                       int64_t rows, int64_t n, double *dx, double *dgain, double *dbias);

/* y = gelu(x), the tanh form; dx = dy gelu'(x).  tanh_of[n] is kept between the two. */
void qm_gelu(const double *x, int64_t n, double *tanh_of, double *y);
void qm_gelu_back(const double *x, const double *tanh_of, const double *dy, int64_t n, double *dx);

/* Causal attention of `batch` sequences of `length` tokens: qkv[batch * length x 3 width] holds
 * query, key, value one after the other, `heads` heads side by side in each; y[.. x width].
 * weight[batch x heads x length x length] is kept; scratch[length * width / heads]. */
struct qm_attention {
    int64_t batch, length, width, heads;
};
void qm_attention(const struct qm_attention *a, const double *qkv, double *weight, double *scratch,
                  double *y);
/* dqkv = ...; scratch[length * (length + width / heads)]. */
void qm_attention_back(const struct qm_attention *a, const double *qkv, const double *weight,
                       const double *dy, double *scratch, double *dqkv);

/* In place: each row of n logits becomes probabilities.  log_sum[rows], unless NULL: the logarithm
 * of the sum of exponentials, of the logits as they came. */
void qm_softmax(double *x, int64_t rows, int64_t n, double *log_sum);

#endif
