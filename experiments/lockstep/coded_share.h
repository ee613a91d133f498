/* coded_share.h - Which elements of a run's states had codes, and which states a suite varies.
 *
 * Published variants keep small tensors, and tensors that are no multiple of the block, in plain
 * floats.  A run then says nothing of the format that its recipe names. */
#ifndef QM_LOCKSTEP_CODED_SHARE_H
#define QM_LOCKSTEP_CODED_SHARE_H

#include "experiments/lockstep/lockstep_pair.h"
#include "experiments/lockstep/results.h"

/* Bit s stands for slot s of the rule. */
enum { QM_ALL_SLOTS = (1 << QM_MAX_SLOTS) - 1 };

/* Counts the elements of every slot to which the pair's recipe gives codes, and those of them that
 * are plain floats because of the shape of their tensor: o->wanted[] and o->uncoded[]. */
void qm_coded_count(const struct qm_lockstep_pair *a, struct qm_outcome *o);

/* The share of elements with codes, of those to which the recipe gives codes, over the slots of the
 * mask; NaN where the recipe gives codes to none. */
double qm_coded_share(const struct qm_outcome *o, int slots);

/* The slots in which the plain cells of the cell's rule differ from this cell; QM_ALL_SLOTS where
 * they differ in none. */
int qm_varied_slots(const struct qm_results *r, const struct qm_cell *c);

/* The share of elements with codes in what cell i is asked about: the slots that the suite varies
 * (couplings closed and update), or the measured slot.  NaN where the recipe gives codes to none,
 * the cell did not run, or its coupling is oneshot, which quantizes whatever the shape. */
double qm_asked_share(const struct qm_results *r, int64_t i);

/* Whether cell i has no code in what it is asked about. */
int qm_is_unquantized(const struct qm_results *r, int64_t i);

/* Cells of coupling oneshot that ran and whose recipe keeps tensors of such a shape in float32. */
int64_t qm_oneshot_beyond(const struct qm_results *r);

#endif
