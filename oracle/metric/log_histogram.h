/* log_histogram.h - mergeable log-spaced bins: quantiles, and distances between two distributions.
 *
 * Each octave from 2^-126 to 2^128 has 64 bins of equal width (213 a decade), read off the bits of
 * the double; a bin is at most 1/64 as wide as its lower end.  One bin below takes (0, 2^-126), one
 * above takes the rest; zeros, the minimum and the maximum are kept exactly.  Merging adds counts,
 * so it is exact and in any order the same. */
#ifndef QM_METRIC_LOG_HISTOGRAM_H
#define QM_METRIC_LOG_HISTOGRAM_H

#include <stdint.h>

enum { QM_LOG_HISTOGRAM_BINS = 254 * 64 + 2 };

/* Magnitudes x >= 0, Inf allowed.  Zeroed memory is an empty one. */
struct qm_log_histogram {
    int64_t n, zero;
    double min, max;
    int64_t count[QM_LOG_HISTOGRAM_BINS];
};

void qm_log_histogram_add(struct qm_log_histogram *h, const double *x, int64_t n);
void qm_log_histogram_merge(struct qm_log_histogram *into, const struct qm_log_histogram *from);

/* The p-quantile by rank: the smallest element x with at least p n elements <= x (p > 0; p = 0 is
 * the minimum).  What is returned is the middle of that element's bin, kept within [min, max]: off
 * by at most 1/128 of x inside [2^-126, 2^128).  Below it may be anything in (0, 2^-126); above it
 * is the maximum.  NaN when empty. */
double qm_log_histogram_quantile(const struct qm_log_histogram *h, double p);

/* Signed, finite values, with each bin's sum of distances from its end nearest to 0.  Zeroed
 * memory is an empty one; 0.5 MiB. */
struct qm_signed_log_histogram {
    int64_t n, zero;
    double max; /* of |x| */
    struct {
        int64_t count;
        double over;
    } bin[2][QM_LOG_HISTOGRAM_BINS]; /* [1]: negative */
};

void qm_signed_log_histogram_add(struct qm_signed_log_histogram *d, const double *x, int64_t n);
void qm_signed_log_histogram_merge(struct qm_signed_log_histogram *into,
                                   const struct qm_signed_log_histogram *from);

/* Distances of two samples of equal size, with what the bins leave open:
 *   ks <= KS <= ks_high        sup |F - G|: F and G are exact at the bins' ends and monotonic
 *                              within; exact when each bin is empty in one of the two
 *   w1 <= W1 <= w1_high        integral |F - G|: its integral without the bars is exact in each
 *                              bin (from the sums), so w1 is W1 where F - G keeps its sign in
 *                              every bin
 *   |w2 - W2| <= w2_error      each bin's elements moved to their mean; w2_error adds the two
 *                              samples' RMS moves, bounded per bin by (mean - low) (high - mean)
 * All up to the rounding of the sums (1e-12).  NaN when empty. */
struct qm_signed_log_histogram_gap {
    double ks, ks_high, w1, w1_high, w2, w2_error;
};
struct qm_signed_log_histogram_gap
qm_signed_log_histogram_compare(const struct qm_signed_log_histogram *f,
                                const struct qm_signed_log_histogram *g);

#endif
