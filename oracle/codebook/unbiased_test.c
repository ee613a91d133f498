/* unbiased_test.c - The sequential test of stochastic rounding. */
#include "oracle/codebook/unbiased_test.h"

#include <math.h>
#include <string.h>

void qm_unbiased_start(struct qm_unbiased *u, double bias, double alpha, double beta)
{
    memset(u, 0, sizeof *u);
    u->bias = bias;
    u->alpha = alpha;
    u->beta = beta;
}

void qm_unbiased_add(struct qm_unbiased *u, double p, int went_up)
{
    double d = u->bias, q = went_up ? p : 1.0 - p, sign = went_up ? 1.0 : -1.0;
    if (u->verdict != QM_UNBIASED_OPEN || !(p >= 2.0 * d && p <= 1.0 - 2.0 * d))
        return;
    u->up += log1p(sign * d / q);
    u->down += log1p(-sign * d / q);
    u->trials++;
    u->ups += went_up != 0;
    u->expected += p;
    double most = fmax(u->up, u->down), least = fmin(u->up, u->down);
    if (most + log1p(exp(least - most)) - log(2.0) >= -log(u->alpha))
        u->verdict = QM_UNBIASED_REJECTED;
    else if (most <= log(u->beta))
        u->verdict = QM_UNBIASED_ACCEPTED;
}
