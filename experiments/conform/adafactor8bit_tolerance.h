/* adafactor8bit_tolerance.h - How far a step of adafactor8bit may be from the recorded one.
 *
 * tests/golden/README.md says the same in words.  u is 2^-24.  Both sides compute a step
 * from the same recorded state, in float32 with sums of n terms in another order, so they differ by
 * the rounding errors of one step alone.
 *
 * VALUE  an average a + w (x - a) of a mean x: the mean of n squares in a tree of depth at most
 *        log2 n + 8 has (log2 n + 10) u of itself, the average 3 u of old and new number: 34 u of
 *        the larger of them for n = 2^21.
 * CONF   the mean of (g - M)^2 / V.  To 0.2.5 the source adds up three float32 products instead,
 *        whose sum of sizes is at most ((1 + r) / (1 - r))^2 the mean for M = r g: with r = 0.1,
 *        the first step of beta1 = 0.9, 1.5 times 3 (log2 n + 10) u; V adds 2 VALUE.  Where the
 *        sum of sizes, (|g| + |M|)^2 / V, is `cancels` times the largest confidence, of all of
 *        these as many times more.  Its sums are
 *        products with a vector, which add up one after the other: 4.5 n u more, and half of it for
 *        PARAM.
 *        From 0.2.6 on M averages clipped updates U, which have the error of a norm: NORM more, and
 *        all of it 2 |U (U - M)| / (U - M)^2 times.
 * SCALE  a maximum of averages, and its log2 (1 ulp) or its product with a constant: 16 u.
 * EXP2   the kernels of 0.2.6 form roots by exp2 of float32 logarithms up to 126 in size: 126 u
 *        absolute in the exponent, ln 2 times that relative, and the errors of V.
 * SPAN   2 ulp of logarithms up to 126, as their ends are rounded by two libraries.
 * APOLLO projects by sums of k products, whose order differs, too: adafactor8bit_channels.h.  A sum
 *        of a channel is off by its E, in a momentum by 1 - beta1 of it; a square or a mean of
 *        squares v by 2 E sqrt(v) + E^2; the log2 of the least or largest of a block by what these
 *        make of the least or largest of all its numbers.  The share of a step has 2 k u for each
 *        of two factors or moments.
 * REREAD APOLLO to 0.2.6 reads the second moments of its projection back as they are stored, from
 *        the second step on.  Where a code is off by one, which is counted, v is off by scale / 255
 *        in log2 and its number of the adapted gradient by half of that: 2^(scale / 510) - 1, at
 *        most 0.4 of it.  The factor of the channel is a norm of such numbers, so it is off by no
 *        more; the norm of the update by the channel's share of its square.
 *        Each channel has its own: 2 x / (1 - 2 x) of its steps for a scale that is off by x, and
 *        anything from x = 1/4 on; all have what those make of the norm, by their shares of its
 *        square. Where beta2 is 0 one number that cancels may make a whole channel, so x is that of
 *        the worst number.
 * MEAN   CAME's step has the root of the mean of rows, off by the errors of the rows' products over
 *        their sum. The norm of a clipped step is the same on both sides: where elements of which
 *        nothing is certain make the share s of its square, on the side where it is larger, all
 *        others are off by 1 / sqrt(1 - s) - 1.
 * PARAM  the update has VALUE for each factor, halved by the root, and CONF or the momentum's
 *        error; it is compared with the largest change of a parameter.  4 u of the parameter
 *        are added, for decay and step are rounded each.
 * NORM   torch adds up the squares of n numbers in eight lanes, one after the other: n / 8 u,
 *        halved by the root. A step has up to three: of clip, rate and limiter, and APOLLO two of
 *        the projection.  Squares below 2^-126 are counts of 2^-149: n additions are each off
 *        by up to one, and the norm N by n 2^-149 / N, or its root where N is less. So is the norm
 *        of APOLLO's adapted gradient, which over that of the projection and 1e-8 is the factor,
 *        and those of the gradient's channels.
 * COUNTS of squares below 2^-126: adafactor8bit_confidence.c.
 * SMALL  the products of a subnormal gradient and its factors are counts of 2^-149, each half of
 *        one off on either side: qm_match_subnormal of the largest update, with n = 1 where nothing
 *        is factored.  A momentum is off by that of what it takes in, and by nothing of what it
 *        keeps; the step along it by as much times the largest ratio of step and momentum.
 * Numbers below 2^-126 are rounded to counts of 2^-149: their errors are those of 2^-126.
 */
#ifndef QM_CONFORM_ADAFACTOR8BIT_TOLERANCE_H
#define QM_CONFORM_ADAFACTOR8BIT_TOLERANCE_H

#include "experiments/conform/adafactor8bit_channels.h"

#define QM_STEP_U                0x1p-24
#define QM_STEP_VALUE_LARGEST    (34.0 * QM_STEP_U)
#define QM_STEP_CONF_LARGEST     (4.5 * 31.0 * QM_STEP_U + 2.0 * QM_STEP_VALUE_LARGEST)
#define QM_STEP_SCALE_RELATIVE   (16.0 * QM_STEP_U)
#define QM_STEP_EXP2_RELATIVE    (126.0 * 0.7 * QM_STEP_U + QM_STEP_VALUE_LARGEST)
#define QM_STEP_SPAN_ABSOLUTE    (126.0 * 2.0 * QM_STEP_U)
#define QM_STEP_PARAM_SHARE      (2.0 * QM_STEP_VALUE_LARGEST + QM_STEP_CONF_LARGEST)
#define QM_STEP_NORM(n)          (((double)(n) / 16.0 + 8.0) * QM_STEP_U)
#define QM_STEP_NORM_ABSOLUTE(n) ((double)(n)*0x1p-149)
#define QM_STEP_PARAM_RELATIVE   (4.0 * QM_STEP_U)

/* The distance between the two sides' unrounded codes: adaptive log codes of a block with these two
 * numbers; log codes that divide [-126, -126 + span] by 255. more: a further error of log2. */
double qm_adafactor8_code_error(const float *numbers, double more, int levels);
double qm_adafactor8_fixed_code_error(float span, double more);

/* The error of log2 of the largest or, is_least, the least of n numbers x of slot i from number
 * `from` on: that of projections and of a confidence, and 0 of anything else. */
double qm_adafactor8_end_error(const struct qm_adafactor8_replay *r, int i, const float *x,
                               int64_t from, int64_t n, int is_least);

/* How many times larger, at least 1, the largest mean of a row or column of (|g| + |M|)^2 / V is
 * than the largest confidence it gives, from the states of a plan after step t and the momentum
 * m[n] before it, and the numbers x[slot] of coded slots before they were coded; of CAME from 0.2.6
 * on, that of 2 |U (U - M)|. 1 of others and of the CUDA path to 0.2.5. Sets r->off, mean_off,
 * mean_counts and is_lost. */
double qm_adafactor8_cancels(struct qm_conform *c, struct qm_adafactor8_replay *r, void *plan,
                             const float *m, float *const *x, int64_t t);

/* How far below and above number k of slot i, a confidence, that of the package may lie by counts
 * of 2^-149; 0 of other slots.  _log: what those make of log2 of the largest of n numbers. */
void qm_adafactor8_counts_of(const struct qm_adafactor8_replay *r, int i, int64_t k, double of[2]);
double qm_adafactor8_counts_log(const struct qm_adafactor8_replay *r, int i, int64_t from,
                                int64_t n);

/* The error of a confidence, of the largest one. */
double qm_adafactor8_conf_error(const struct qm_adafactor8_replay *r);

/* The relative error of an update, and of a momentum of updates or projections, without those of
 * r->channels, and without SMALL. */
double qm_adafactor8_share_of(const struct qm_adafactor8_replay *r);

/* Sets r->update_counts and r->small from the momentum before and after step t (NULL: none). */
void qm_adafactor8_find_small(struct qm_adafactor8_replay *r, int64_t t, const float *before,
                              const float *after);

/* The weight of the old momentum in the new one: beta1, and 0 of APOLLO before 0.2.6, which resets
 * it in every step. */
double qm_adafactor8_keeps(const struct qm_adafactor8_replay *r);

/* The relative error of element k of the update where its row or its column of the confidence
 * cancels (r->off[].step), or its channel has a code that is off (r->channel_off); HUGE_VAL
 * where nothing of that number is certain. */
double qm_adafactor8_element_off(const struct qm_adafactor8_replay *r, int64_t k);

/* Sets r->channel_off from the codes[] of the projected second moment after step t, for APOLLO to
 * 0.2.6 from its second step on, which reads them back. 0: no memory. */
int qm_adafactor8_channels_off(struct qm_conform *c, struct qm_adafactor8_replay *r,
                               const uint8_t *codes, int64_t t);

/* Row of the values after step t (from 1), or -1. */
int64_t qm_adafactor8_row_of(const struct qm_adafactor8_recorded *s, int64_t t);

/* The relative error of step t that comes of what it keeps of the momentum before it, which the
 * update may cancel; 0 where the momentum is codes. */
double qm_adafactor8_average_off(const struct qm_adafactor8_replay *r, int64_t t);

/* What each of the n float32 numbers of slot i may be off by after step t, which were recorded: by
 * its own old and new number, where the old ones were recorded; a norm by that of the replay. */
void qm_adafactor8_values_allowed(const struct qm_adafactor8_replay *r, int i, int64_t t,
                                  const float *got, double *allowed);

/* What the step of each parameter from before[] to p[] in step t may be off by: its own share, with
 * what the momentum, m_old before and m_new after it (NULL: none of this shape), may lose where its
 * terms cancel; at most, and of projections, the share of the largest; and SMALL. */
void qm_adafactor8_steps_allowed(const struct qm_adafactor8_replay *r, int64_t t, const float *p,
                                 const float *before, const float *m_old, const float *m_new,
                                 double *near);

/* How much a decay takes off a parameter of size 1, at most. */
double qm_adafactor8_decay_of(const struct qm_adafactor8_replay *r, const float *before);

/* Sets r->norm_off from what both sides made of before[] in step t: p[] and the recorded want[]. */
void qm_adafactor8_norm_off(struct qm_adafactor8_replay *r, const float *p, const float *want,
                            const float *before, int64_t t);

#endif
