/* gpt.h - The network of GPT-2, pre-norm, forward and backward, in double.
 *
 * Learned positions; per layer LN, causal attention, residual, LN, C x 4C, GELU (tanh), 4C x C,
 * residual; a final LN; logits = x wte' (tied) or x head' (untied).  Matrices act from the right
 * (x w + b) but for wte and head, which have a row per symbol; LN's epsilon is 1e-5.
 *
 * Parameters, one after the other: wte K x C, wpe T x C; per layer ln gain, bias, qkv C x 3C, bias,
 * projection C x C, bias, ln gain, bias, C x 4C, bias, 4C x C, bias; final gain, bias; untied:
 * head K x C. */
#ifndef QM_NETWORK_GPT_H
#define QM_NETWORK_GPT_H

#include "core/base/status.h"
#include "core/base/tensor.h"
#include "experiments/network/layers.h"

enum { QM_GPT_LAYERS = 6, QM_GPT_PER_LAYER = 12 };

/* Activations of one layer that backward needs. */
struct qm_gpt_layer {
    double *in, *norm1, *stat1, *qkv, *weight, *mixed, *middle, *norm2, *stat2, *up, *tanh_of, *act;
};

/* The caller sets the first members, zeroes the others, and calls qm_gpt_open. */
struct qm_gpt {
    int64_t symbols, layers;   /* K >= 2; 1 to QM_GPT_LAYERS */
    int64_t most;              /* sequences of the largest pass */
    int is_untied;             /* the head has a matrix of its own */
    struct qm_attention shape; /* length T, width C, heads: a divisor of C; batch: those of the last
                                  forward pass */
    int n_tensors;
    int64_t at[2 + QM_GPT_PER_LAYER * QM_GPT_LAYERS + 4]; /* offset of each tensor, then their
                                                             total */
    double *prob; /* [sequences x T x K]: the logits of the last forward pass; the caller turns them
                     into their gradient before qm_gpt_backward */
    double *slab;
    struct qm_gpt_layer layer[QM_GPT_LAYERS];
    double *out, *norm, *stat;                              /* after the last layer */
    double *transposed, *scratch, *dx, *dnorm, *dqkv, *dup; /* scratch of both passes */
};

/* Sets the shapes of all tensors and allocates activations.  The caller closes g, also after a
 * failure. */
qm_status qm_gpt_open(struct qm_gpt *g, struct qm_shape *shapes);
void qm_gpt_close(struct qm_gpt *g);

/* Sets p to the start: N(0, 0.02^2), projections back into the residual stream times
 * 1 / sqrt(2 L), gains 1, biases 0. */
void qm_gpt_start(const struct qm_gpt *g, uint64_t seed, double *p);

/* Logits of the next token after every position of `sequences` rows of T + 1 tokens, of which the
 * last is not read, into g->prob. */
void qm_gpt_forward(struct qm_gpt *g, const double *p, const int32_t *tokens, int64_t sequences);

/* Adds the gradient of the parameters to grad, from the gradient of the logits in g->prob. */
void qm_gpt_backward(struct qm_gpt *g, const double *p, const int32_t *tokens, double *grad);

/* The mean cross-entropy in nats of the last forward pass against the next tokens.  Turns g->prob
 * into its gradient where has_gradient is set, else into probabilities. */
double qm_gpt_cross_entropy(struct qm_gpt *g, const int32_t *tokens, int has_gradient);

/* Operations of a forward pass for one token: 2 per weight and 4 T C of attention.  Backward takes
 * twice as many. */
double qm_gpt_work(int64_t symbols, const struct qm_attention *shape, int64_t layers);

#endif
