/* shrink_parts.h - what the parts of a shrinking share. */
#ifndef QM_EXPERIMENTS_KERNEL_SHRINK_PARTS_H
#define QM_EXPERIMENTS_KERNEL_SHRINK_PARTS_H

#include "experiments/kernel/shrink.h"

struct shrink {
    struct qm_forked_trial *lab;
    struct qm_shrunk *s; /* its trial fails, and its attempt says how */
    struct qm_attempt first;
    double found, until; /* when the case had failed; when to stop */
};

/* No more attempts: time is over, or the user interrupted. */
int qm_shrink_is_over(struct shrink *s);

/* Whether a trial fails in the same way; if so its attempt is kept. */
int qm_shrink_fails(struct shrink *s, const struct qm_trial *t);

/* Takes the candidate over where it fails, or closes it; 1: taken. */
int qm_shrink_take(struct shrink *s, struct qm_trial *candidate);

/* Shapes (shrink_shape.c): one dimension; a guess where it lies (1: it was right); runs of indices;
 * axes of one index. */
void qm_shrink_flatten(struct shrink *s);
int qm_shrink_guess(struct shrink *s);
void qm_shrink_elements(struct shrink *s);
void qm_shrink_axes(struct shrink *s);

/* Numbers (shrink_number.c): whole arrays to 0, scales to 1; then run by run (1: some changed); few
 * bits. */
void qm_shrink_zero_all(struct shrink *s);
int qm_shrink_zeroes(struct shrink *s);
void qm_shrink_floats(struct shrink *s);

#endif
