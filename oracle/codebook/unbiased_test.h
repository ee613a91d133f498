/* unbiased_test.h - is a rounding that draws unbiased?  A sequential test with a stated power.
 *
 * Trial i goes up with probability p_i if the rounding is right (p_i known exactly).  Let L+ and L- be the
 * likelihood ratios of p_i + d and p_i - d against p_i.
 *   rejected  once (L+ + L-) / 2 >= 1 / alpha.  Under p_i it is a martingale from 1, so by Ville's
 *             inequality a right rounding is ever rejected with probability alpha at most.
 *   accepted  once L+ <= beta and L- <= beta.  Under p_i + d, 1 / L+ is such a martingale, so a bias
 *             of d (either sign) is ever accepted with probability beta at most: power 1 - beta.
 * One may look after every trial; nothing is approximated.  A. Wald, Sequential Analysis (1947);
 * J. Ville (1939). */
#ifndef QM_CODEBOOK_UNBIASED_TEST_H
#define QM_CODEBOOK_UNBIASED_TEST_H

#include <stdint.h>

enum qm_unbiased_verdict { QM_UNBIASED_OPEN, QM_UNBIASED_ACCEPTED, QM_UNBIASED_REJECTED };

struct qm_unbiased {
    double bias, alpha, beta; /* d: declared; in probability */
    double up, down;          /* log L+, log L- */
    int64_t trials, ups;
    double expected; /* sum of p_i */
    enum qm_unbiased_verdict verdict;
};

/* bias in (0, 1/4), alpha and beta in (0, 1/2). */
void qm_unbiased_start(struct qm_unbiased *u, double bias, double alpha, double beta);

/* One trial; p within [2 bias, 1 - 2 bias], others are not counted.  After a verdict: nothing. */
void qm_unbiased_add(struct qm_unbiased *u, double p, int went_up);

#endif
