/* hitting_times.h - what the losses of every step leave behind: when each level was reached, and an area.
 *
 * Level j >= 0 is the normalised gap 10^(-j / 64): 64 levels per decade, so targets may be chosen
 * among them after a run.  A gap is (f(x_t) - f*) / (f(x_0) - f*), that of the start 1 by definition; gap[i]
 * was seen after step[i] updates, step[] rising from 0.  (COCO's way of recording: arXiv:1603.08785, section 4.) */
#ifndef QM_LOCKSTEP_HITTING_TIMES_H
#define QM_LOCKSTEP_HITTING_TIMES_H

#include "core/base/status.h"

#include <stdint.h>

enum { QM_LEVELS_PER_DECADE = 64 };

double qm_level_gap(int64_t level);

/* When gap[n] passes each level and stays there for `persistence` looks, the first of which counts: pairs (level, step), both rising, the deepest level first reached at that step.
 * Not finite counts as never.  *out: 2 numbers a pair, *n_out of them; the caller frees it. */
qm_status qm_stairs_make(const double *gap, const int64_t *step, int64_t n, int persistence,
                         int64_t *n_out, double **out);

/* The first step at which the level is reached; -1: never. */
int64_t qm_stairs_step(const double *stair, int64_t n, int64_t level);

/* The deepest level reached; -1: none, not even level 0. */
int64_t qm_stairs_level(const double *stair, int64_t n);

/* Mean of log10(gap / twin) over log t, from the first look after the start to the last
 * (trapezoids); n >= 2.  One look: its value. */
double qm_gap_area(const double *gap, const double *twin, const int64_t *step, int64_t n);

/* The largest log10(gap / twin) of any look (n >= 1), that of the start being 0: at least 0.
 * *recovery: how many steps after the first look that has it gap is first at most 1.05 twin, 0 where
 * it is so there; infinite: never. */
double qm_gap_peak(const double *gap, const double *twin, const int64_t *step, int64_t n,
                   double *recovery);

#endif
