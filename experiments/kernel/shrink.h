/* shrink.h - from a failing case to the smallest inputs that still fail in the same way.
 *
 * In turn: steps, tensors' shapes (blocks, rows, columns, elements), numbers to 0, hyper-parameters
 * to 0, 1 or 1/2, bits of each float.  The same way: the same slot out of bounds (a number that must
 * not be finite stays one), the same signal, the same damage.  Deterministic while time lasts. */
#ifndef QM_EXPERIMENTS_KERNEL_SHRINK_H
#define QM_EXPERIMENTS_KERNEL_SHRINK_H

#include "experiments/kernel/forked_trial.h"

struct qm_shrunk {
    struct qm_trial trial; /* the caller closes it */
    struct qm_attempt attempt;
    int64_t elements_before, attempts;
    int steps_before, is_cut;     /* is_cut: time was over */
    double seconds, case_seconds; /* of everything, and of running the case until it failed */
};

/* Runs `steps` steps of the case and shrinks the first that fails, for so many seconds more.
 * QM_NO_MATCH: none fails. */
qm_status qm_shrink(struct qm_forked_trial *lab, const struct qm_case *c, uint64_t seed, int steps,
                    double seconds, struct qm_shrunk *out);

/* Blocks that the largest tensor has; 1 where scales have no blocks. */
int64_t qm_shrunk_blocks(const struct qm_shrunk *s);

#endif
