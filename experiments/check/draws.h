/* draws.h - Tests whether the draws of stochastic rounding are unbiased and independent.
 *
 * The draw error of an element is 1 - p where its upper end was taken and -p where its lower end
 * was, with p the probability of the upper end (for parameters: of the end larger in magnitude).
 * It is 0 where nothing was drawn or p is not known.  Its mean is 0 and its variance p (1 - p) =
 * |error| (1 - |error|).  A sum of draw errors or of their products fails when it is more than 7
 * standard deviations from 0.  By Bernstein's bound the probability of that is below 1e-8 for sums
 * of variance 100 or more; sums of less variance are not judged. */
#ifndef QM_EXPERIMENTS_CHECK_DRAWS_H
#define QM_EXPERIMENTS_CHECK_DRAWS_H

#include <stdint.h>

/* 1: the upper end was taken more often, or less often, than p says. */
int qm_draws_biased(const float *error, int64_t n);

/* 1: draws i of a and b are not independent (they may share random numbers). */
int qm_draws_related(const float *a, const float *b, int64_t n);

/* The power of two d for which draws i and i + d are furthest from independent; 0: all are within
 * the limit. */
int64_t qm_draws_repeat(const float *error, int64_t n);

#endif
