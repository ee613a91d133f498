/* ema.c - the exponential moving average alone, in double: m <- beta1 m + (1 - beta1) g, or
 * with -g when the objective is maximized.
 *
 * The parameter is not touched: what a quantized state does to an average is seen without an
 * optimizer around it. */
#include "oracle/oracle.h"

static void step(double *theta, double *const *slot, const double *g, int64_t rows, int64_t cols,
                 const struct qm_oracle_hyper *h, int64_t t)
{
    (void)theta;
    (void)t;
    double *m = slot[0];
    for (int64_t i = 0; i < rows * cols; i++)
        m[i] = h->beta1 * m[i] + (1.0 - h->beta1) * (h->maximize ? -g[i] : g[i]);
}

extern const struct qm_oracle qm_oracle_ema;
const struct qm_oracle qm_oracle_ema = {
    .family = "ema",
    .source = "arXiv:1412.6980, algorithm 1, first moment",
    .n_slots = 1,
    .slot = {"exp_avg"},
    .step = step,
};
