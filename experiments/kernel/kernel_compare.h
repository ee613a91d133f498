/* kernel_compare.h - two kernels side by side, as one backend that can be judged.
 *
 * Each step starts both from the new kernel's state and parameter.  What the new one makes goes on
 * and is judged; what the old one makes is compared with it and with the oracle. */
#ifndef QM_KERNEL_KERNEL_COMPARE_H
#define QM_KERNEL_KERNEL_COMPARE_H

#include "core/user_kernel/backend_file.h"

/* Of one slot, or of the parameter (the last entry).  Errors are sums over steps of
 * sum (x - oracle)^2 / sum oracle^2; steps with anything that is not finite, or where the old kernel
 * has an error above 1 (all below a scale's floor, say), are left out. */
struct qm_kernel_compare_count {
    int64_t n, codes, scales, values; /* elements compared; how many codes, scales, floats differ */
    int64_t steps, better, worse;     /* that the errors are of; where the new one's is smaller */
    double error_new, error_old;
};

/* Both kernels, from now on; counts are zeroed. */
void qm_kernel_compare_use(struct qm_kernel_file *now, struct qm_kernel_file *old);

/* Call before each case: the first plan opened after it is the one that counts. */
void qm_kernel_compare_case(void);
const struct qm_kernel_compare_count *qm_kernel_compare_counts(void); /* [QM_MAX_SLOTS + 1] */

extern const struct qm_backend qm_backend_versus;

#endif
