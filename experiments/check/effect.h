/* effect.h - Finds the hyper-parameters on which the result of a case depends. */
#ifndef QM_EXPERIMENTS_CHECK_EFFECT_H
#define QM_EXPERIMENTS_CHECK_EFFECT_H

#include "experiments/check/domain.h"

/* Bit k is 1 where hyper-parameter k has an effect: the oracle's steps of the case, in a tensor of
 * the same rank and at most a few hundred elements, of which projections have rank 12 at most,
 * change an update or a state by 2 % or more somewhere once hyper-parameter k alone gets another
 * value.  That is the recipe's own where the case gives another, else the other value of a flag or
 * an ordinary one.  0 where the case cannot be stepped, for hyper-parameters that the rule does
 * not read, and where it refuses the other value or would draw more than 40 projections with it.
 * A kernel that takes a constant for such a hyper-parameter fails the case. */
uint64_t qm_case_effects(const struct qm_domain *d, const struct qm_case *c);

/* The same for the hyper-parameters among `of` where each alone becomes 0: a kernel that leaves
 * such a hyper-parameter out fails the case.  0 for those that are 0, or whose rule refuses 0. */
uint64_t qm_case_drops(const struct qm_domain *d, const struct qm_case *c, uint64_t of);

/* Whether the tail of the tensor has an effect on the update of what comes before it, as where a
 * norm, a sum or a maximum of the whole tensor counts: in a tensor of a few hundred elements the
 * tail (qm_case_tail) of the parameters (bit 0), of the gradients (bit 1) or of both (bit 2) is
 * set to 0, and an update of another element changes by 2 % or more. */
int qm_case_tail_effects(const struct qm_domain *d, const struct qm_case *c);

#endif
