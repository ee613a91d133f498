/* stats.h - intervals, verdicts and error rates of paired comparisons.
 *
 * d[n] are differences of independent pairs: log10 gap of a variant minus log10 gap of its twin, one
 * per seed.  Sources: B. Efron, R. Tibshirani, An Introduction to the Bootstrap (1993), 12.5
 * (bootstrap-t); D. Schuirmann, J. Pharmacokin. Biopharm. 15 (1987) 657 (two one-sided tests);
 * Y. Benjamini, Y. Hochberg, J. R. Stat. Soc. B 57 (1995) 289. */
#ifndef QM_EXPERIMENTS_PROTOCOL_STATS_H
#define QM_EXPERIMENTS_PROTOCOL_STATS_H

#include "core/base/status.h"

#include <stdint.h>

enum { QM_RESAMPLES = 10000, QM_LEAST_PAIRS = 6 };

/* What a mean and a median are known to within.  Intervals of n < 2 are infinite, of n = 0 NaN. */
struct qm_paired {
    int64_t n;
    double mean, sd;
    double lo95, hi95, lo90, hi90;       /* of the mean: bootstrap-t */
    double median, median_lo, median_hi; /* order statistics that hold it with at least 95 % */
    double p;                            /* two-sided, of mean 0, by the same resamples */
};

/* Scratch; the resamples of one n are kept for the next call. */
struct qm_bootstrap;
qm_status qm_bootstrap_open(struct qm_bootstrap **out);
void qm_bootstrap_close(struct qm_bootstrap *b); /* accepts NULL */

/* Pairs are resampled, never their members.  Resample r takes the pairs that Philox words (r, i)
 * choose, the same for every set of n: a function of d alone.  A resample whose standard deviation
 * is 0 has t = 0 or +-Inf.  The interval at level 1 - a is mean - t(1 - a/2) s to mean - t(a/2) s,
 * s the standard error, t(.) quantiles over resamples.  d is finite and not changed. */
qm_status qm_paired_make(struct qm_bootstrap *b, const double *d, int64_t n, struct qm_paired *out);

/* The largest rank r (from 1) such that the r-th smallest and r-th largest of n hold the median with
 * at least this probability, whatever the distribution; 0: none does. */
int64_t qm_median_rank(int64_t n, double level);
double qm_median_coverage(int64_t n, int64_t rank); /* 1 - 2 P(Bin(n, 1/2) < rank) */

/* The effect, in standard deviations of d, that a two-sided t test at level alpha finds with this
 * power in n >= 2 pairs. */
double qm_detectable(int64_t n, double alpha, double power);

/* Benjamini-Hochberg: q[i] <= rate is rejected at that false discovery rate.  NaN p are no part of
 * the family and stay NaN. */
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

/* In the order of the list.  q NaN: not part of a family, the interval decides alone. */
enum qm_decision qm_decide(const struct qm_paired *x, double delta, double q);

/* Ascending x[n]; q in [0, 1]; linear between order statistics; NaN for n = 0. */
double qm_quantile(const double *x, int64_t n, double q);

#endif
