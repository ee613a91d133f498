/* block_error.h - the distribution of error over blocks, rows or columns.
 *
 * Per block j: NMSE_j = sum e^2 / sum x^2 (0/0 is 0; an error on an all-zero block is Inf and
 * counted) and the crest factor max |x| / RMS x.  Blocks, not elements, are the independent unit
 * (elements of a block share a scale), so the standard error of the total NMSE comes from here.
 * Non-finite elements are left out of their block and counted; a block without a finite element
 * is not counted.  Merging in index order gives the same bits for the same pieces. */
#ifndef QM_METRIC_BLOCK_ERROR_H
#define QM_METRIC_BLOCK_ERROR_H

#include "oracle/metric/compensated_sum.h"
#include "oracle/metric/log_histogram.h"
#include <stdint.h>

enum { QM_BLOCK_WORST = 10, QM_BLOCK_CRESTS = 16 };

/* Where the blocks of a piece lie: element k of block j is at j * step + k * stride.
 * Consecutive blocks of B: size B, step B, stride 1; columns of (rows, cols): count cols, size
 * rows, step 1, stride cols.  A shorter last block is a call of its own. */
struct qm_block_view {
    int64_t first; /* index of the first block in the whole tensor */
    int64_t count, size, step, stride;
};

struct qm_block_worst {
    int64_t index;
    double nmse, crest;
};

/* Zeroed memory is an empty one; about 130 KiB, so not for the stack. */
struct qm_block_stats {
    int64_t n, infinite, nonfinite;
    struct qm_log_histogram nmse; /* of NMSE_j */
    /* moments over blocks of MSE_j and P_j = mean x^2: means by their sums, second moments by
     * Welford's update and Chan's merge */
    struct qm_sum mse, power;
    double mse_spread, power_spread, joint_spread;
    /* worst by NMSE_j, then by lower index; n_worst of them, in that order */
    int n_worst;
    struct qm_block_worst worst[QM_BLOCK_WORST];
    /* bin k: crest factors in [2^(k/2), 2^((k+1)/2)); the last takes the rest.  Finite NMSE_j of
     * blocks that are not all zero. */
    struct {
        int64_t count;
        struct qm_sum nmse;
    } crest[QM_BLOCK_CRESTS];
};

void qm_block_stats_add(struct qm_block_stats *b, const struct qm_block_view *at,
                        const double *want, const float *got);
void qm_block_stats_merge(struct qm_block_stats *into, const struct qm_block_stats *from);

/* The p-quantile of NMSE_j, as log_histogram.h says; NaN without blocks. */
double qm_block_stats_quantile(const struct qm_block_stats *b, double p);

/* mean MSE_j / mean P_j (the NMSE of the whole when all blocks have one size), and its standard
 * error as that of a ratio of means: sd(MSE_j - NMSE P_j) / (sqrt(n) mean P).  NaN for n < 2. */
double qm_block_stats_nmse(const struct qm_block_stats *b);
double qm_block_stats_nmse_se(const struct qm_block_stats *b);

#endif
