/* log_histogram.h - Histograms with log-spaced bins: quantiles, and distances of two distributions.
 *
 * Each octave from 2^-126 to 2^128 has 64 bins of equal width (213 per decade), read off the bits
 * of the double; the width of a bin is at most 1/64 of its lower end.  One bin below holds (0,
 * 2^-126), one above holds everything from 2^128 on; zeros, the minimum and the maximum are kept
 * exactly. Merging adds counts, so it is exact and does not depend on the order. */
#ifndef QM_METRIC_LOG_HISTOGRAM_H
#define QM_METRIC_LOG_HISTOGRAM_H

#include <stdint.h>

enum { QM_LOG_HISTOGRAM_BINS = 254 * 64 + 2 };

/* A histogram of magnitudes x >= 0, Inf allowed.  Zeroed memory is an empty histogram. */
struct qm_log_histogram {
    int64_t n, zero;
    double min, max;
    int64_t count[QM_LOG_HISTOGRAM_BINS];
};

void qm_log_histogram_add(struct qm_log_histogram *h, const double *x, int64_t n);
void qm_log_histogram_merge(struct qm_log_histogram *into, const struct qm_log_histogram *from);

/* The p-quantile by rank, 0 <= p <= 1: the smallest element x with at least p n elements <= x (for
 * p = 0 the smallest element).  Returns the middle of that element's bin, clamped to [min, max]:
 * off by at most x / 128 for x in [2^-126, 2^128), anything in (0, 2^-126) for x below, the maximum
 * for x above. NaN when empty. */
double qm_log_histogram_quantile(const struct qm_log_histogram *h, double p);

/* A histogram of signed, finite values with the sum of distances of each bin's values from the end
 * of the bin that is nearer to 0.  Zeroed memory is an empty histogram; it takes 0.5 MiB. */
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

/* Enclosures of the distances of two samples of equal size, F and G their distribution functions:
 *   ks <= KS <= ks_high        KS = sup |F - G|.  F and G are exact at the ends of the bins and
 *                              monotonic within; ks is exact if each bin is empty in F or in G
 *   w1 <= W1 <= w1_high        W1 = integral |F - G|.  The integral of F - G over a bin is exact
 *   (from
 *                              the sums), so w1 = W1 where F - G keeps its sign in every bin
 *   |w2 - W2| <= w2_error      w2 is the distance with every element moved to the mean of its bin;
 *                              w2_error adds the RMS moves of both samples, whose squares are at
 *                              most (mean - low) (high - mean) in a bin
 * All hold up to the rounding of the sums (1e-12).  NaN when empty. */
struct qm_signed_log_histogram_gap {
    double ks, ks_high, w1, w1_high, w2, w2_error;
};
struct qm_signed_log_histogram_gap
qm_signed_log_histogram_compare(const struct qm_signed_log_histogram *f,
                                const struct qm_signed_log_histogram *g);

#endif
