/* stats.h - The bootstrap: intervals, verdicts and false discovery rates of paired comparisons.
 *
 * d[n] are differences of independent pairs: log10 gap of a variant minus log10 gap of its twin,
 * one per seed.  Sources: B. Efron, R. Tibshirani, An Introduction to the Bootstrap (1993), 12.5
 * (bootstrap-t); D. Schuirmann, J. Pharmacokin. Biopharm. 15 (1987) 657 (two one-sided tests); Y.
 * Benjamini, Y. Hochberg, J. R. Stat. Soc. B 57 (1995) 289. */
#ifndef QM_EXPERIMENTS_PROTOCOL_STATS_H
#define QM_EXPERIMENTS_PROTOCOL_STATS_H

#include "core/base/status.h"

#include <stdint.h>

enum { QM_RESAMPLES = 10000, QM_LEAST_PAIRS = 6 };

/* Mean and median of n differences with their intervals: infinite for n = 1, NaN for n = 0. */
struct qm_paired {
    int64_t n;
    double mean, sd;
    double lo95, hi95, lo90, hi90;       /* of the mean: bootstrap-t */
    double median, median_lo, median_hi; /* order statistics that enclose it with at least 95 % */
    double p;                            /* two-sided, of mean 0, by the same resamples */
};

/* Scratch memory; keeps the resamples of one n for the next call. */
struct qm_bootstrap;
qm_status qm_bootstrap_open(struct qm_bootstrap **out);
void qm_bootstrap_close(struct qm_bootstrap *b); /* accepts NULL */

/* The bootstrap-t: resamples pairs, never the members of a pair.  Philox words (r, i) choose the
 * pairs of resample r, the same ones for every set of n numbers, so that the result is a function
 * of d alone.  A resample whose standard deviation is 0 has t = 0 or +-Inf.  The interval at level
 * 1 - a is [mean - t(1 - a/2) s, mean - t(a/2) s], where s is the standard error and t(.) are the
 * quantiles over resamples.  d must be finite and is not changed. */
qm_status qm_paired_make(struct qm_bootstrap *b, const double *d, int64_t n, struct qm_paired *out);

/* The largest rank r (from 1) such that the r-th smallest and the r-th largest of n numbers enclose
 * the median with at least this probability, for every distribution; 0: no rank does. */
int64_t qm_median_rank(int64_t n, double level);
double qm_median_coverage(int64_t n, int64_t rank); /* 1 - 2 P(Bin(n, 1/2) < rank) */

/* The mean of d, in standard deviations of d, that a two-sided t test at level alpha detects with
 * this power in n >= 2 pairs. */
double qm_detectable(int64_t n, double alpha, double power);

/* Benjamini-Hochberg: rejecting all q[i] <= rate keeps the false discovery rate at `rate`.  Tests
 * with p NaN are not part of the family; their q is NaN. */
qm_status qm_false_discovery(const double *p, int64_t n, double *q);

/* clang-format off */
#define QM_DECISION_LIST(X) /* name, words, text */                                               \
    X(equivalent, "equivalent", "the 90 % interval lies within +- delta")                         \
    X(better,     "better",     "the 95 % interval lies below 0, and q <= 0.05")                  \
    X(worse,      "worse",      "the 95 % interval lies above 0, and q <= 0.05")                  \
    X(undecided,  "undecided",  "none of these")                                                  \
    X(few,        "too few",    "fewer than six different pairs: nothing is said")
/* clang-format on */

enum qm_decision {
#define X(name, words, text) QM_DECISION_##name,
    QM_DECISION_LIST(X)
#undef X
        QM_DECISION_COUNT
};
const char *qm_decision_text(enum qm_decision d);

/* Decides `few` first, then in the order of the list.  q NaN: the row is not part of a family, and
 * the interval decides alone. */
enum qm_decision qm_decide(const struct qm_paired *x, double delta, double q);

/* The quantile q in [0, 1] of ascending x[n], linear between order statistics; NaN for n = 0. */
double qm_quantile(const double *x, int64_t n, double q);

#endif
