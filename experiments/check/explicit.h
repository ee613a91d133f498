/* explicit.h - the verdict on one step that somebody else has made: buffers before and after.
 *
 * judge.h runs a backend itself; here the step was made elsewhere (a program that does not link us)
 * and its inputs and outputs are at hand.  The judgement is the same: parameter and float32 slots
 * within the bound of the oracle's value, scales between the images of their groups' maxima, codes
 * EQUAL, BOUNDARY, OFF_BY_ONE or WRONG.  Memory and repetition cannot be judged.  Rules that work
 * element by element, with parameters in float32. */
#ifndef QM_EXPERIMENTS_CHECK_EXPLICIT_H
#define QM_EXPERIMENTS_CHECK_EXPLICIT_H

#include "experiments/check/judge.h"

/* n elements each, unless said otherwise; all are read only. */
struct qm_explicit {
    const struct qm_subject *subject; /* after qm_explicit_begin */
    const struct qm_recipe *recipe;   /* as the case applies it */
    const struct qm_shape *shape;
    int64_t t;                           /* number of the step, from 1 */
    const char *name;                    /* of a finding: "t0/out/1" */
    const double *g;                     /* the gradient, widened */
    const float *p, *slot[QM_MAX_SLOTS]; /* before: parameter, decoded slots */
    const float *new_p;                  /* after */
    const float *new_slot[QM_MAX_SLOTS]; /* values, or what codes and scales decode to */
    const uint8_t *codes[QM_MAX_SLOTS];  /* unpacked; NULL for a slot without codes */
    const float *scales[QM_MAX_SLOTS];   /* qm_groups_count */
};

/* qm_judge_begin; QM_SKIPPED also for what is judged only where a backend runs it: rules with sums over
 * a tensor, other parameters. */
qm_status qm_explicit_begin(struct qm_subject *s, struct qm_tally *t);

/* Adds what it finds to t; a step out of bounds is a failing case of that name.  QM_NO_MEMORY, or
 * what the bound or the oracle refuses. */
qm_status qm_explicit_judge(const struct qm_explicit *e, struct qm_tally *t);

#endif
