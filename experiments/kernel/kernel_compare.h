/* kernel_compare.h - A backend that runs a new and an old kernel and compares their results.
 *
 * Each step starts both kernels from the new kernel's state and parameter.  The new kernel's
 * results are judged and carried to the next step.  The old kernel's results are compared with them
 * and with the oracle's. */
#ifndef QM_EXPERIMENTS_KERNEL_KERNEL_COMPARE_H
#define QM_EXPERIMENTS_KERNEL_KERNEL_COMPARE_H

#include "core/user_kernel/backend_file.h"

/* The comparison of one slot, or of the parameter (the last entry).  Errors are sums over steps of
 * sum (x - oracle)^2 / sum oracle^2.  Steps with a number that is not finite, and steps where the
 * old kernel's error is above 1 (all values below a scale's floor, for example), are left out. */
struct qm_kernel_compare_count {
    int64_t n, codes, scales, values; /* elements compared; codes, scales, floats that differ */
    int64_t steps, better, worse;     /* steps in the errors; with a smaller, a larger new error */
    double error_new, error_old;
};

/* Before a case of this thread: sets both kernels and zeroes its counts; the plan that is opened
 * next is compared. */
void qm_kernel_compare_begin(struct qm_kernel_file *now, struct qm_kernel_file *old);
const struct qm_kernel_compare_count *qm_kernel_compare_counts(void); /* [QM_MAX_SLOTS + 1] */

extern const struct qm_backend qm_backend_compare;

#endif
