/* shrink_parts.h - Internal functions of the files shrink*.c. */
#ifndef QM_EXPERIMENTS_KERNEL_SHRINK_PARTS_H
#define QM_EXPERIMENTS_KERNEL_SHRINK_PARTS_H

#include "experiments/kernel/shrink.h"

struct shrink {
    struct qm_attempts *attempts;
    struct qm_shrunk *out; /* the smallest failing trial so far, and its attempt */
    struct qm_kernel_verdict first;
    double found, until; /* times: the case had failed; the end */
};

/* 1: no more attempts, because time is over or the user interrupted. */
int qm_shrink_is_over(struct shrink *s);

/* 1: the trial fails as the first attempt did; its attempt is kept. */
int qm_shrink_fails(struct shrink *s, const struct qm_trial *t);

/* Replaces the trial by a candidate that fails (returns 1), or closes the candidate. */
int qm_shrink_take(struct shrink *s, struct qm_trial *candidate);

/* shrink_shape.c: one dimension; the elements that the finding points at (1: they fail alone);
 * fewer indices per axis; no axes of one index. */
void qm_shrink_flatten(struct shrink *s);
int qm_shrink_guess(struct shrink *s);
void qm_shrink_elements(struct shrink *s);
void qm_shrink_axes(struct shrink *s);

/* shrink_number.c: whole arrays to 0 and scales to 1; then run by run (1: some changed); few
 * bits. */
void qm_shrink_zero_all(struct shrink *s);
int qm_shrink_zeroes(struct shrink *s);
void qm_shrink_floats(struct shrink *s);

#endif
