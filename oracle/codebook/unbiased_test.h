/* unbiased_test.h - A sequential test, of stated power, of whether stochastic rounding is unbiased.
 *
 * Trial i goes up with probability p_i if the rounding is correct (p_i is known exactly).  Let L+
 * and L- be the likelihood ratios of p_i + d and of p_i - d against p_i.
 *   rejected  as soon as (L+ + L-) / 2 >= 1 / alpha.  Under p_i this mean is a martingale that
 *   starts at
 *             1, so by Ville's inequality a correct rounding is ever rejected with probability at
 *             most alpha.
 *   accepted  as soon as L+ <= beta and L- <= beta.  Under p_i + d, 1 / L+ is such a martingale, so
 *   a
 *             bias of d (of either sign) is ever accepted with probability at most beta: power 1 -
 *             beta.
 * The test may stop after any trial; no approximation is made.  A. Wald, Sequential Analysis
 * (1947); J. Ville (1939). */
#ifndef QM_CODEBOOK_UNBIASED_TEST_H
#define QM_CODEBOOK_UNBIASED_TEST_H

#include <stdint.h>

enum qm_unbiased_verdict { QM_UNBIASED_OPEN, QM_UNBIASED_ACCEPTED, QM_UNBIASED_REJECTED };

/* A running test. */
struct qm_unbiased {
    double bias, alpha, beta; /* bias: d, a probability */
    double up, down;          /* log L+, log L- */
    int64_t trials, ups;
    double expected; /* sum of p_i */
    enum qm_unbiased_verdict verdict;
};

/* Starts a test; bias in (0, 1/4), alpha and beta in (0, 1/2). */
void qm_unbiased_start(struct qm_unbiased *u, double bias, double alpha, double beta);

/* Adds a trial.  Trials with p outside [2 bias, 1 - 2 bias] and trials after a verdict
 * are ignored. */
void qm_unbiased_add(struct qm_unbiased *u, double p, int went_up);

#endif
