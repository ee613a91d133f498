/* shrink_parts.h - Internal functions of the files shrink*.c. */
#ifndef QM_EXPERIMENTS_KERNEL_SHRINK_PARTS_H
#define QM_EXPERIMENTS_KERNEL_SHRINK_PARTS_H

#include "experiments/kernel/shrink.h"

struct qm_shrink {
    struct qm_attempts *attempts;
    struct qm_shrunk *out; /* the smallest failing trial so far, and its attempt */
    struct qm_kernel_verdict first;
    double found; /* the time at which the case had failed */
    double until; /* the time at which shrinking ends */
};

/* 1: no more attempts, because time is over or the user interrupted. */
int qm_shrink_is_over(struct qm_shrink *s);

/* 1: the trial fails as the first attempt did; its attempt is kept. */
int qm_shrink_fails(struct qm_shrink *s, const struct qm_trial *t);

/* Replaces the trial by a candidate that fails (returns 1), or closes the candidate. */
int qm_shrink_take(struct qm_shrink *s, struct qm_trial *candidate);

/* ---- shrink_shape.c ---- */

/* Tries the tensor as one dimension. */
void qm_shrink_flatten(struct qm_shrink *s);
/* Tries the elements that the finding points at alone; 1: they fail. */
int qm_shrink_guess(struct qm_shrink *s);
/* Tries fewer indices on each axis. */
void qm_shrink_elements(struct qm_shrink *s);
/* Leaves out axes of one index. */
void qm_shrink_axes(struct qm_shrink *s);

/* ---- shrink_number.c ---- */

/* Tries whole arrays as 0 and scales as 1. */
void qm_shrink_zero_all(struct qm_shrink *s);
/* Tries the same for one run of elements after the other; 1: some changed. */
int qm_shrink_zeroes(struct qm_shrink *s);
/* Tries numbers of fewer bits. */
void qm_shrink_floats(struct qm_shrink *s);

#endif
