/* drift.h - how a quantized running average departs from the exact one, step after step.
 *
 * Takes at each step the exact state s (of the same inputs), the decoded state s^ and the codes of
 * the same n elements.  e = s^ - s.  Elements with a NaN or Inf in s or s^ sit that step out and
 * are counted.  One object belongs to one tensor (or fixed piece of one) and is filled by one
 * thread at a time; it holds 65 bytes an element. */
#ifndef QM_THEORY_DRIFT_H
#define QM_THEORY_DRIFT_H

#include "core/base/status.h"
#include <stdint.h>

struct qm_drift; /* opaque */

qm_status qm_drift_open(int64_t n, struct qm_drift **out); /* n >= 1 */
void qm_drift_close(struct qm_drift *d);                   /* accepts NULL */

/* One step; n elements each.
 *   code       NULL: no dead zone
 *   half_cell  by how much the state must leave the code's value to reach the next code: half the
 *              gap times the scale, of each element, now; NULL: no dead zone */
void qm_drift_add(struct qm_drift *d, const double *want, const float *got, const uint8_t *code,
                  const float *half_cell);

/* NaN where there is nothing to tell (no steps, no codes, no element with three steps). */
struct qm_drift_values {
    int64_t steps, nonfinite;
    double rel_error;     /* |s^ - s| / |s| at the last step (0/0 is 0) */
    double rel_error_max; /* its largest over the steps */
    double mean_error;    /* mean of e at the last step */
    double rel_bias;      /* sum e / sum |s| at the last step (0/0 is 0) */
    /* Share of elements whose code has not changed although the exact state has moved by more
     * than half a cell since the code last changed (or since the first step): now, and averaged
     * over the steps after the first. */
    double dead, dead_mean;
    /* Lag-1 correlation over steps of each element's error, Pearson's over the pairs
     * (e_(t-1), e_t): the mean over elements whose error varies, and sum of covariances over root
     * of the product of the sums of variances. */
    int64_t correlated; /* elements in the mean */
    double autocorrelation, autocorrelation_pooled;
};
struct qm_drift_values qm_drift_values(const struct qm_drift *d);

#endif
