/* markov_chain.h - a synthetic language: a Markov chain of order 1 or 2 whose entropy is known.
 *
 * order 1: P(j | i) = softmax_j(a cos(2 pi ((i^2 + 3 i j + 7 j) mod K) / K)); order 2:
 * P(k | i, j) = softmax_k(a cos(2 pi ((i j + 5 i k + 3 j k + 2 i + 7 k) mod K) / K)).
 * Sequences start from the stationary law, so the first target of a sequence, which has one token
 * of context, follows the bigram law that order 2 implies. */
#ifndef QM_NETWORK_MARKOV_CHAIN_H
#define QM_NETWORK_MARKOV_CHAIN_H

#include "core/base/status.h"
#include "experiments/source/distribution.h"

struct qm_markov_chain {
    int64_t symbols;
    int order;
    double *stationary; /* K */
    double *bigram;     /* K x K: P(next | last) where only the last token is seen */
    double *law;        /* K^order x K: P(next | context), context i K + j for order 2 */
    /* Entropies in nats: of a token; of the next one given one token; given all of them. */
    double unigram, entropy1, entropy;
};

/* symbols K from 2 on, order 1 or 2.  Close it with qm_markov_chain_close whatever comes out; zeroed
 * first. */
qm_status qm_markov_chain_open(int64_t symbols, int order, double a, struct qm_markov_chain *out);
void qm_markov_chain_close(struct qm_markov_chain *c);

/* The law of the token after last (and, unless before is negative, before it): K numbers. */
const double *qm_markov_chain_next(const struct qm_markov_chain *c, int64_t before, int64_t last);

/* Mean entropy of n targets after the first token of a sequence. */
double qm_markov_chain_floor(const struct qm_markov_chain *c, int64_t n);

/* Sequences [0, count) of `length` tokens each; token i of sequence b is drawn with draw number b
 * length + i of the stream at this step: the first one whose cumulative probability exceeds u. */
void qm_markov_chain_draw(const struct qm_markov_chain *c, uint64_t seed, enum qm_stream stream,
                          int64_t step, int64_t count, int64_t length, int32_t *out);

#endif
