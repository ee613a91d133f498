/* extra_cases.h - Cases of a kernel check beyond those planned. */
#ifndef QM_EXPERIMENTS_KERNEL_EXTRA_CASES_H
#define QM_EXPERIMENTS_KERNEL_EXTRA_CASES_H

#include "experiments/kernel/kernel.h"

struct qm_extra_cases { /* starts as {0} */
    int rounds, has_replaced;
    int64_t drawn, left; /* left: of this round */
};

/* Draws a further case, after all others: about hyper-parameters that had an effect in too few
 * plain cases, and, where many cases were refused, as many without the values that are.  Their
 * number is known once the results of all before are there (is_idle).  Returns 1 and the case; 0:
 * none is wanted; -1: not yet.  d->subjects and d->refused follow r. */
int qm_extra_cases_next(struct qm_extra_cases *f, const struct qm_kernel_run *r,
                        struct qm_domain *d, int is_idle, struct qm_case *out);

#endif
