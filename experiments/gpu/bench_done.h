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

/* Whether all parameters of all tensors have had the steps.  QM_INTERNAL: where equal ones stay
 * equal, some differ from those of the first tensor that were given the same numbers, or more than
 * an eighth of those, in float32, are as they were given; elsewhere QM_BENCH_SAMPLE adjacent ones
 * are all as they were given. */
qm_status qm_gpu_work_all_done(const struct qm_gpu_bench *b, struct qm_gpu_work *w);

#endif
