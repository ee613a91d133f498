/* markov_chain.h - A synthetic language: a Markov chain of order 1 or 2 whose entropy is known.
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
    double *bigram;     /* K x K: P(next | last) where only the last token is known */
    double *law;        /* K^order x K: P(next | context), context i K + j for order 2 */
    double unigram;     /* entropies in nats: of a token */
    double entropy1;    /* of the next token given one token */
    double entropy;     /* of the next token given `order` tokens: the entropy rate */
};

/* symbols K >= 2, order 1 or 2.  The caller zeroes *out first and closes it on failure too. */
qm_status qm_markov_chain_open(int64_t symbols, int order, double a, struct qm_markov_chain *out);
void qm_markov_chain_close(struct qm_markov_chain *c);

/* P(next | last), or P(next | before, last) unless before is negative (order 1 ignores it): K
 * numbers, owned by c. */
const double *qm_markov_chain_next(const struct qm_markov_chain *c, int64_t before, int64_t last);

/* Mean entropy of n targets after the first token of a sequence. */
double qm_markov_chain_floor(const struct qm_markov_chain *c, int64_t n);

/* Draws `count` sequences of `length` tokens each into out[count x length].  Token i of sequence b
 * is the first whose cumulative probability exceeds u, the uniform of draw number b length + i of
 * the stream at this step. */
void qm_markov_chain_draw(const struct qm_markov_chain *c, uint64_t seed, enum qm_stream stream,
                          int64_t step, int64_t count, int64_t length, int32_t *out);

#endif
