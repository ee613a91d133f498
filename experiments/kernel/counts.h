/* counts.h - Counts failing or refused cases by their coordinates. */
#ifndef QM_EXPERIMENTS_KERNEL_COUNTS_H
#define QM_EXPERIMENTS_KERNEL_COUNTS_H

#include "experiments/kernel/kernel.h"

/* {"class": [{"name": "exact", "cases": 9, "of": 20}, ...], "setting": ..., ...}: the refused cases
 * where refused is 1, else the failing ones; the most first.  "of": all cases with this part,
 * unknown under --forever.  Failing cases are counted by "tensor" and by the "step" that their text
 * names, too. */
json_t *qm_kernel_counts(const struct qm_kernel_run *r, int refused);

#endif
