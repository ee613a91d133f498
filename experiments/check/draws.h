/* draws.h - whether the random choices of stochastic rounding are what they should be: unbiased, and
 * independent of each other.
 *
 * left[i]: 1 or 0 for the upper or the lower end, less the probability p of the upper one (for
 * parameters: in magnitude); 0 where
 * nothing was drawn or p is not known.  Its mean is 0, its variance p (1 - p) = |left| (1 - |left|).
 * Sums further from 0 than 7 standard deviations are said to be none: below 1e-8 by Bernstein's
 * bound, for variances of at least 100; below that nothing is said. */
#ifndef QM_EXPERIMENTS_CHECK_DRAWS_H
#define QM_EXPERIMENTS_CHECK_DRAWS_H

#include <stdint.h>

/* 1: the upper end is taken more often, or less often, than p says. */
int qm_draws_biased(const float *left, int64_t n);

/* 1: choices i of a and b are not independent (the same draws, say). */
int qm_draws_related(const float *a, const float *b, int64_t n);

/* The power of two d for which choices i and i + d are furthest from independent; 0: none is. */
int64_t qm_draws_repeat(const float *left, int64_t n);

#endif
