/* trial.h - one kernel of the registry compiled, and judged in a process of its own. */
#ifndef QM_EXPERIMENTS_MUTANTS_TRIAL_H
#define QM_EXPERIMENTS_MUTANTS_TRIAL_H

#include "experiments/mutants/matrix.h"

/* Runs every regime with seeds seed, seed + 1, ... and fills t, whose cells keep what the first seed
 * gave.  folder: an existing one, for its files, which are removed again.  stop: not 0: give up.
 * Whatever the kernel does is a result, in t; not QM_OK: interrupted, or no room. */
qm_status qm_trial_run(struct qm_mutant_trial *t, const char *folder, uint64_t seed, int seeds,
                       const volatile int *stop);

/* Runs t's regime once more beside the template, each step of both from t's state, and fills the
 * cell's `apart`.  folder as above, another one. */
qm_status qm_trial_compare(struct qm_mutant_trial *t, const struct qm_mutant_entry *template,
                           int regime, const char *folder, uint64_t seed, const volatile int *stop);

void qm_trial_free(struct qm_mutant_trial *t);

#endif
