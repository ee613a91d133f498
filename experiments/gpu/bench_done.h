/* bench_done.h - Whether timed work on a GPU was done, by the parameters that it leaves.
 *
 * A rule that leaves the parameters as they are (an average of gradients) is looked at by its
 * state. */
#ifndef QM_EXPERIMENTS_GPU_BENCH_DONE_H
#define QM_EXPERIMENTS_GPU_BENCH_DONE_H

#include "experiments/gpu/bench.h"

/* Keeps the parameters of QM_BENCH_PLACES places of each turn. */
qm_status qm_gpu_work_mark(struct qm_gpu_work *w);

/* QM_INTERNAL: the parameters of a place are as they were when they were kept last; else keeps
 * them.  An average, which of a gradient that stays comes to rest, is not looked at. */
qm_status qm_gpu_work_changed(struct qm_gpu_work *w);

/* Whether all parameters of all tensors have had the steps, of which both turns have made equally
 * many.  QM_INTERNAL: as qm_gpu_expected_compare (bench_expected.h); more than an eighth of the
 * first tensor's first ones, in float32, are as they were given; where equal ones stay equal, some
 * differ from what those that were given the same numbers must be; elsewhere QM_BENCH_SAMPLE
 * adjacent ones are all as they were given, or the two turns differ. */
qm_status qm_gpu_work_all_done(const struct qm_gpu_bench *b, struct qm_gpu_work *w);

#endif
