/* backend_replay.h - the verdict on one step that somebody else has made: buffers before and after.
 *
 * judge.h runs a backend; here the step was made elsewhere (a program that does not link us) and its
 * inputs and results are at hand.  A backend that copies the results instead of computing them lets the
 * same judge decide.  Memory beside the buffers and repetition cannot be judged. */
#ifndef QM_CHECK_BACKEND_REPLAY_H
#define QM_CHECK_BACKEND_REPLAY_H

#include "experiments/check/trial.h"

/* Adds to t what it finds; a step out of bounds is a failing case of this name ("t0/out/1").  s: after
 * qm_judge_begin, of the backend on the CPU.  before, after: one call each, one side, of one recipe and
 * shape; of the results t and g are not looked at.  QM_NO_MEMORY, or what the oracle refuses. */
qm_status qm_answer_judge(const struct qm_subject *s, const struct qm_trial *before,
                          const struct qm_trial *after, const char *name, struct qm_tally *t);

#endif
