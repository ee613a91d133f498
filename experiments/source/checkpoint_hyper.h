/* checkpoint_hyper.h - The hyper-parameters of a checkpoint's parameter. */
#ifndef QM_SOURCE_CHECKPOINT_HYPER_H
#define QM_SOURCE_CHECKPOINT_HYPER_H

#include "experiments/readers/reader.h"
#include "experiments/source/replay.h"

/* Reads those of p->tensor as the optimizer's param_groups give them into p->hyper, and sets
 * p->unknown to the first of beta1, beta2 and eps that the file does not say as a number.  step:
 * how often the tensor was updated.  QM_BAD_FILE: a number, or step, is out of its range; the
 * message names path. */
qm_status qm_checkpoint_hyper(const char *path, struct qm_file *f, double step,
                              struct qm_recorded *p);

#endif
