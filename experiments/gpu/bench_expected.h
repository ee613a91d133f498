/* bench_expected.h - What timed steps must leave on a GPU: the CPU makes as many steps, of the same
 * numbers t, from the same numbers.
 *
 * The parameters and gradients of timed work come again after QM_BENCH_COLUMNS elements
 * (qm_gpu_bench_inputs), so that few rows of a large tensor say what all others must have.  Mode
 * fast has not the CPU's bits: there the device makes the same steps once more, one at a time, and
 * the CPU says what these must be near to. */
#ifndef QM_EXPERIMENTS_GPU_BENCH_EXPECTED_H
#define QM_EXPERIMENTS_GPU_BENCH_EXPECTED_H

#include "experiments/gpu/bench.h"

/* 1: equal parameters with equal gradients and states stay equal, wherever they lie: nothing is
 * drawn by an element's number, and no block or row of a scale reaches over the end of
 * QM_BENCH_COLUMNS elements. */
int qm_gpu_stays_alike(const struct qm_gpu_work *w);

/* Prepares this for the work at its first steps, *w->expected; it stays NULL where the CPU cannot
 * say it of a part: a rule over a whole tensor of more than 32,768 elements, and drawn codes of a
 * quantizer whose scales reach over more than QM_GPU_EXPECTED_ROWS rows. */
enum { QM_GPU_EXPECTED_ROWS = 8 };
qm_status qm_gpu_expected_open(const struct qm_gpu_bench *b, struct qm_gpu_work *w);
void qm_gpu_expected_close(struct qm_gpu_expected *x); /* accepts NULL */

/* Makes the steps that the turns of the work have made since the last call, and compares
 * parameters, residuals, codes, scales and values bit for bit: where equal ones stay equal, all;
 * else of one tensor its first rows, of several the first, the middle and the last tensor.  The
 * turns have made equally many.  QM_INTERNAL: "implausible: ...". */
qm_status qm_gpu_expected_compare(const struct qm_gpu_bench *b, struct qm_gpu_work *w);

/* After that: the first parameters of the first tensor, as they are stored; NULL where w->expected
 * is. */
const void *qm_gpu_expected_parameters(const struct qm_gpu_work *w);

#endif
