/* backend_replay.h - Judges a step that another program made, from its recorded inputs and results.
 *
 * judge.h runs a backend.  Here a program that does not link Qualm made the step, and its buffers
 * before and after the step are known.  A backend that copies the results instead of computing them
 * lets judge.h decide.  Writes outside the buffers and repetition cannot be judged. */
#ifndef QM_CHECK_BACKEND_REPLAY_H
#define QM_CHECK_BACKEND_REPLAY_H

#include "experiments/check/trial.h"

/* Adds the counts and findings of the step to t; a step out of bounds is a failing case called
 * `name` ("t0/out/1").
 *   s              a subject of the CPU backend, after qm_judge_begin
 *   before, after  trials of one call and one plan each, with equal recipes and shapes; the step
 *                  number and the gradient are read from `before` alone
 * QM_NO_MEMORY, or the status with which the oracle refuses the step. */
qm_status qm_backend_replay_judge(const struct qm_subject *s, const struct qm_trial *before,
                                  const struct qm_trial *after, const char *name,
                                  struct qm_tally *t);

#endif
