/* adafactor8bit_channels.h - How far the channels of a step of APOLLO of adafactor8bit may be off.
 *
 * u is 2^-24, q is 2^-149, k the terms of a sum of the projection, r the rank.  A channel of the
 * gradient, a row or a column of norm |g|, is projected by itself: each of its r numbers is one
 * sum of products of its own elements, whatever the other channels hold.  So each error is one of
 * the channel's own numbers, and a channel of zeros has none:
 *
 * SUM    k u times the sum of the sizes of the terms, which is at most |g| times the largest norm
 *        of a vector of the projection: E.  0 where |g| is 0.
 * SHARE  of its factor |adapted| / (|projected| + 1e-8): k u times sizes of terms over sums, in a
 *        factor once for the norm below the line.  The norm above it is that of the adapted numbers
 *        w = m / (sqrt(v) + eps), each the least and the most that it is for a projected number
 *        within k u of the sizes of its terms; as m and v take the same number in, w may depend on
 *        its sign alone, but not where v is read back as it is stored.  Factored second moments
 *        are off by their means of the errors of the squares, whichever channels those are of.  0
 *        where all sums are 0.
 * COUNTS of its factor, absolute: squares of the adapted channel below 2^-126 are r counts, so the
 *        norm above the line is off by sqrt(r q), and the factor by that over |projected| + 1e-8.
 *        What it scales is off by that times |g|.
 *
 * The norm N of the scaled gradient is the root of the sum of (factor |g|)^2, and w the share of a
 * channel's step in the square of the whole step, which is its share in N^2, too, for limiter,
 * clip and rate are one for all.  N is off
 *
 * - by the sum of w min(2 SHARE, 1), at most the largest of them, relative;
 * - by the root of the sum of w c^2, relative, where c is what k counts among the squares of the
 *   channel make of |g|, min(k q / |g|^2, sqrt(k q) / |g|): a tiny channel may have a c of 1e8,
 *   but then its w is as tiny;
 * - by the root of the sum of (COUNTS |g|)^2, absolute, to which sqrt(q) is added for a factor
 *   below 2^-63, whose own square is one of counts.
 *
 * Only the first of these reaches the step: the limiter acts from an N of 1e-8 on, the clip from
 * sqrt(n) d, of which channels of counts, of norms below 2^-63 and factors of at most some 1e8,
 * are no part.
 *
 * tensor_scale has one factor for all, so SHARE and COUNTS are those of all sums together, and N
 * is factor times the norm of the gradient, which n counts make be off.  A step of zeros, as at
 * rate 0, tells no w: each is taken for 1. */
#ifndef QM_CONFORM_ADAFACTOR8BIT_CHANNELS_H
#define QM_CONFORM_ADAFACTOR8BIT_CHANNELS_H

#include "experiments/conform/adafactor8bit_steps.h"

/* The projected moments of a step: before it as they are stored, and after it before they are
 * coded; row, col: second moments that are factored.  Each may be NULL. */
struct qm_adafactor8_moments {
    const float *old_first, *old_second, *first, *second, *row, *col;
};

struct qm_adafactor8_channel {
    double sum;    /* E */
    double share;  /* SHARE of one norm, relative */
    double factor; /* COUNTS of its factor */
};

/* Sets r->channels of step t, whose array is `channel`, with room for as many as there are rows or
 * columns; before: the parameters before the step; step: what it takes off them, without a decay;
 * r->channels.of is NULL where nothing is projected.  QM_NO_MEMORY. */
qm_status qm_adafactor8_channels_of(struct qm_adafactor8_replay *r, int64_t t, const float *before,
                                    const float *step, const struct qm_adafactor8_moments *moments,
                                    struct qm_adafactor8_channel *channel);

/* Whether step t reads the second moments of the projection back as they are stored.  0.4.3 and
 * later do not, nor does a step that begins them. */
int qm_adafactor8_reads_back(const struct qm_adafactor8_replay *r, int64_t t);

/* The channel of element k of the gradient, or of number k of its projection. */
int64_t qm_adafactor8_channel_of(const struct qm_adafactor8_replay *r, int64_t k);
int64_t qm_adafactor8_projected_channel(const struct qm_adafactor8_replay *r, int64_t k);

/* E of number k of slot i: of a moment that of its channel, of a mean over channels their root mean
 * square; 0 of other slots and where nothing is projected. */
double qm_adafactor8_projected_off(const struct qm_adafactor8_replay *r, int i, int64_t k);

/* By how much E may move the largest or, is_least, the least positive of n second moments from
 * number `from` of the slot x on, in log2; the largest size of as many first moments, in its own
 * unit. */
double qm_adafactor8_squares_end_off(const struct qm_adafactor8_replay *r, const float *x,
                                     int64_t from, int64_t n, int is_least);
double qm_adafactor8_moments_end_off(const struct qm_adafactor8_replay *r, const float *x,
                                     int64_t from, int64_t n);

/* The rate of a step, at most. */
double qm_adafactor8_rate_of(const struct qm_adafactor8_replay *r, const float *before,
                             int is_scaled);

#endif
