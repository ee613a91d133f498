/* speed.h - Times a new and an old kernel in turn. */
#ifndef QM_EXPERIMENTS_KERNEL_SPEED_H
#define QM_EXPERIMENTS_KERNEL_SPEED_H

#include "experiments/kernel/kernel.h"

/* Sets r->speed where both can be timed; a kernel that fails cases is timed too. */
void qm_kernel_speed(struct qm_kernel_run *r, struct qm_kernel_file *now,
                     struct qm_kernel_file *old);

#endif
