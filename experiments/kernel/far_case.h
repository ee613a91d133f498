/* far_case.h - Cases of a kernel check with large indices (core/user_kernel/large_index.h). */
#ifndef QM_EXPERIMENTS_KERNEL_FAR_CASE_H
#define QM_EXPERIMENTS_KERNEL_FAR_CASE_H

#include "experiments/kernel/kernel.h"
#include "experiments/kernel/kernel_case.h"

/* Elements of a case with large indices: N of the name N/far, where N is 2^k + 1 to 2^k + 7,
 * at most QM_FAR_N; 0: another case. */
int64_t qm_far_case(const char *name);

/* Elements of the one that this check has by default. */
int64_t qm_far_elements(const struct qm_kernel_run *r);

/* Runs the case c.  not_far[400], "" before: why no such tensor was judged, if so.  A .cu
 * file whose 2^31 + 7 elements the emulator leaves is judged with 2^20 + 7, which not_far says. */
qm_status qm_far_case_run(const struct qm_kernel_run *r, struct qm_kernel_file *kernel,
                          const struct qm_kernel_case *c, struct qm_tally *tally, char *not_far,
                          struct qm_kernel_verdict *v);

#endif
