/* markov_chain.c - A synthetic language: a Markov chain of order 1 or 2. */
#include "experiments/network/markov_chain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The phase of P(k | i, j); order 1 has k = j and no i. */
static int64_t phase(const struct qm_markov_chain *c, int64_t i, int64_t j, int64_t k)
{
    if (c->order == 1)
        return (j * j + 3 * j * k + 7 * k) % c->symbols;
    return (i * j + 5 * i * k + 3 * j * k + 2 * i + 7 * k) % c->symbols;
}

static void set_law(struct qm_markov_chain *c, double a)
{
    int64_t n = c->symbols, outer = c->order == 2 ? n : 1;
    double *p = c->law;
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < n; j++, p += n) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++)
                sum += p[k] = exp(a * (cos(2 * M_PI * (double)phase(c, i, j, k) / (double)n) - 1));
            for (int64_t k = 0; k < n; k++)
                p[k] /= sum;
        }
}

/* Power iteration for the stationary law of the last `order` tokens, into from[n^order]; to is
 * scratch of the same size.  One round shrinks the distance by the second eigenvalue. */
static void iterate(const struct qm_markov_chain *c, double *from, double *to)
{
    int64_t n = c->symbols, states = c->order == 2 ? n * n : n;
    for (int64_t s = 0; s < states; s++)
        from[s] = 1 / (double)states;
    for (int round = 0; round < 1000; round++) {
        double moved = 0, sum = 0;
        memset(to, 0, (size_t)states * sizeof *to);
        for (int64_t s = 0; s < states; s++)
            for (int64_t k = 0; k < n; k++)
                to[c->order == 2 ? s % n * n + k : k] += from[s] * c->law[s * n + k];
        for (int64_t s = 0; s < states; s++)
            sum += to[s];
        for (int64_t s = 0; s < states; s++) {
            moved += fabs(to[s] / sum - from[s]);
            from[s] = to[s] / sum;
        }
        if (moved < 1e-15)
            return;
    }
}

static double entropy_of(const double *p, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum -= p[k] > 0 ? p[k] * log(p[k]) : 0;
    return sum;
}

/* Sets the marginal laws and the entropies from pi[n^order], the stationary law of the last
 * `order` tokens. */
static void set_marginals(struct qm_markov_chain *c, const double *pi)
{
    int64_t n = c->symbols;
    for (int64_t j = 0; j < n; j++) {
        c->stationary[j] = c->order == 1 ? pi[j] : 0;
        for (int64_t k = 0; c->order == 2 && k < n; k++)
            c->stationary[j] += pi[j * n + k];
        for (int64_t k = 0; k < n; k++)
            c->bigram[j * n + k] =
                c->order == 1 ? c->law[j * n + k] : pi[j * n + k] / c->stationary[j];
    }
    c->unigram = entropy_of(c->stationary, n);
    c->entropy = c->entropy1 = 0;
    for (int64_t j = 0; j < n; j++)
        c->entropy1 += c->stationary[j] * entropy_of(c->bigram + j * n, n);
    for (int64_t s = 0; s < (c->order == 2 ? n * n : n); s++)
        c->entropy += pi[s] * entropy_of(c->law + s * n, n);
}

qm_status qm_markov_chain_open(int64_t symbols, int order, double a, struct qm_markov_chain *out)
{
    int64_t n = symbols, states = order == 2 ? n * n : n;
    out->symbols = n;
    out->order = order;
    out->stationary = malloc((size_t)(n + n * n + states * n) * sizeof *out->stationary);
    double *pi = malloc(2 * (size_t)states * sizeof *pi);
    if (!out->stationary || !pi) {
        free(pi);
        return qm_fail(QM_NO_MEMORY, "chain of %lld symbols", (long long)n);
    }
    out->bigram = out->stationary + n;
    out->law = out->bigram + n * n;
    set_law(out, a);
    iterate(out, pi, pi + states);
    set_marginals(out, pi);
    free(pi);
    return QM_OK;
}

void qm_markov_chain_close(struct qm_markov_chain *c) { free(c->stationary); }

const double *qm_markov_chain_next(const struct qm_markov_chain *c, int64_t before, int64_t last)
{
    int64_t n = c->symbols;
    if (c->order == 1 || before < 0)
        return c->bigram + last * n;
    return c->law + (before * n + last) * n;
}

double qm_markov_chain_floor(const struct qm_markov_chain *c, int64_t n)
{
    return (c->entropy1 + (double)(n - 1) * c->entropy) / (double)n;
}

static int32_t pick(const double *p, int64_t n, double u)
{
    double sum = p[0];
    int32_t k = 0;
    while (k + 1 < n && !(u < sum))
        sum += p[++k];
    return k;
}

void qm_markov_chain_draw(const struct qm_markov_chain *c, uint64_t seed, enum qm_stream stream,
                          int64_t step, int64_t count, int64_t length, int32_t *out)
{
    for (int64_t b = 0; b < count; b++)
        for (int64_t i = 0; i < length; i++) {
            int64_t at = b * length + i;
            double u = ((double)qm_pick(seed, stream, step, at, INT64_C(1) << 32) + 0.5) * 0x1p-32;
            const double *p = i == 0
                                  ? c->stationary
                                  : qm_markov_chain_next(c, i > 1 ? out[at - 2] : -1, out[at - 1]);
            out[at] = pick(p, c->symbols, u);
        }
}
