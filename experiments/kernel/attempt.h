/* attempt.h - Runs trials on fresh processes of a kernel, so that a crash can be tried again.
 *
 * Each attempt starts the kernel anew (host.h), so that no static variable and no damaged memory is
 * carried over. */
#ifndef QM_EXPERIMENTS_KERNEL_ATTEMPT_H
#define QM_EXPERIMENTS_KERNEL_ATTEMPT_H

#include "experiments/check/trial.h"
#include "experiments/cli/cli.h"
#include "experiments/kernel/kernel_case.h"

struct qm_attempts {
    struct qm_subject *subject;    /* after qm_judge_begin, with its backend */
    struct qm_kernel_file *kernel; /* NULL: a registered variant, in this process */
    const volatile int *stop;      /* not 0: attempts end as refused; may be NULL */
    struct qm_progress *progress;  /* counts attempts; may be NULL */
    int64_t n;                     /* number so far */
    int begun;                     /* steps that the last recording has begun */
    struct qm_kernel_verdict out;  /* of the last attempt; refused: not judged, for the reason in
                                    * its text */
};

/* Run qm_judge_trial and qm_judge_record for at most `seconds` of the kernel's time; return
 * &a->out. */
const struct qm_kernel_verdict *qm_attempt_judge(struct qm_attempts *a, const struct qm_trial *t,
                                                 int slot, double seconds);
const struct qm_kernel_verdict *qm_attempt_record(struct qm_attempts *a, const struct qm_case *c,
                                                  int steps, struct qm_trial *t, double seconds);

#endif
