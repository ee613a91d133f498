/* shrink.h - Reduces a failing case to the smallest inputs that fail in an equal way.
 *
 * The reductions, some of which are repeated, are: fewer steps; one plan in place of two; smaller
 * shapes (blocks, rows, columns, elements); numbers to 0; hyper-parameters to 0, 1 or 1/2; fewer
 * bits of each float.  Two failures are equal
 * where the slot out of bounds is equal (a number that must not be finite stays one), or the
 * signal, or the kind of damage.  The result is deterministic unless time runs out. */
#ifndef QM_EXPERIMENTS_KERNEL_SHRINK_H
#define QM_EXPERIMENTS_KERNEL_SHRINK_H

#include "experiments/kernel/forked_trial.h"

struct qm_shrunk {
    struct qm_trial trial; /* the caller closes it */
    struct qm_attempt attempt;
    int64_t elements_before, attempts;
    int steps_before, is_cut;     /* is_cut: time ran out */
    double seconds, case_seconds; /* in all; until the case had failed */
};

/* Runs `steps` steps of the case and shrinks the first that fails, for `seconds` more.
 * QM_NO_MATCH: no step fails; QM_SKIPPED: the case is refused. */
qm_status qm_shrink(struct qm_forked_trial *forked, const struct qm_case *c, uint64_t seed,
                    int steps, double seconds, struct qm_shrunk *out);

/* Number of blocks of the tensor; 1 where scales have no blocks. */
int64_t qm_shrunk_blocks(const struct qm_shrunk *s);

#endif
