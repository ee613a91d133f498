/* judge_entry.h - Compiles one kernel of the registry and judges it in its own process. */
#ifndef QM_EXPERIMENTS_MUTANTS_JUDGE_ENTRY_H
#define QM_EXPERIMENTS_MUTANTS_JUDGE_ENTRY_H

#include "experiments/mutants/matrix.h"

/* Runs every regime with seeds seed, seed + 1, ... and the first count[k] cases of each set k with
 * seed, and fills t, whose cells keep the first finding, or the first seed's result; the results of
 * an earlier run of t are freed.  folder: an existing one for the files, which are removed again.
 * stop: not 0: stop.  A crash of the kernel is a result in t.  Not QM_OK: interrupted, or out of
 * memory. */
qm_status qm_mutant_judge(struct qm_mutant_result *t, const char *folder, uint64_t seed, int seeds,
                          const int64_t count[QM_CASE_SET_COUNT], const volatile int *stop);

/* Runs t's kernel in one regime once more together with the template, each step of both from t's
 * state, and fills the cell's `difference`.  folder: another one, as above. */
qm_status qm_mutant_compare(struct qm_mutant_result *t, const struct qm_mutant_entry *template,
                            int regime, const char *folder, uint64_t seed,
                            const volatile int *stop);

/* Number of regimes and sets of cases that kill the entry. */
int qm_mutant_kills(const struct qm_mutant_result *t);

void qm_mutant_result_free(struct qm_mutant_result *t);

#endif
