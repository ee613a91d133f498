/* hitting_times.h - Hitting times, area and peak of the normalised gap of a run.
 *
 * The normalised gap is (f(x_t) - f*) / (f(x_0) - f*), 1 at the start by definition; gap[i] is the
 * gap after step[i] updates, where step[] rises from 0.  Level j >= 0 is the gap 10^(-j / 64): 64
 * levels per decade, so that targets may be chosen among them after a run.  The hitting time of a
 * level is the first step whose gap is at most the level (COCO records runs in this way:
 * arXiv:1603.08785, section 4). */
#ifndef QM_LOCKSTEP_HITTING_TIMES_H
#define QM_LOCKSTEP_HITTING_TIMES_H

#include "core/base/status.h"

#include <stdint.h>

enum { QM_LEVELS_PER_DECADE = 64 };

double qm_level_gap(int64_t level);

/* The hitting times of all levels of gap[n], as pairs (level, step): both numbers rise, and level
 * is the deepest level first reached at step.  A level counts as reached at step[i] where the
 * `persistence` gaps from gap[i] on are all at most the level; a gap that is not finite is above
 * every level.  *out holds *n_out numbers, 2 per pair; the caller frees it. */
qm_status qm_hitting_times_make(const double *gap, const int64_t *step, int64_t n, int persistence,
                                int64_t *n_out, double **out);

/* The first step at which the level is reached, from the n numbers of hits; -1: never. */
int64_t qm_hitting_times_step(const double *hits, int64_t n, int64_t level);

/* The deepest level reached; -1: none, not even level 0. */
int64_t qm_hitting_times_level(const double *hits, int64_t n);

/* Mean of log10(gap / twin) over log t by trapezoids, from gap[1], the first after the start, to
 * gap[n - 1]; n >= 2.  n = 2: log10(gap[1] / twin[1]).  twin NULL stands for 1 throughout. */
double qm_gap_area(const double *gap, const double *twin, const int64_t *step, int64_t n);

/* Mean of gap[i] over the losses after more than seven eighths of the last step; n >= 1. */
double qm_late_gap(const double *gap, const int64_t *step, int64_t n);

/* The peak max_i log10(gap[i] / twin[i]), n >= 1; it is at least 0, because the start has 0.
 * *recovery: the number of steps from the first i that attains the peak to the first i from there
 * on with gap[i] <= 1.05 twin[i], 0 where the peak itself is so low; infinite: never. */
double qm_gap_peak(const double *gap, const double *twin, const int64_t *step, int64_t n,
                   double *recovery);

#endif
