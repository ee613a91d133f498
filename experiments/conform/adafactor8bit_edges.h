/* adafactor8bit_edges.h - Which codes of adafactor8bit the error of a number allows. */
#ifndef QM_CONFORM_ADAFACTOR8BIT_EDGES_H
#define QM_CONFORM_ADAFACTOR8BIT_EDGES_H

#include "experiments/conform/adafactor8bit_steps.h"

/* Makes in out, with operations in ops, a rule that writes the numbers of each slot with x[slot],
 * which has room for them, there before they are encoded, and what a step of APOLLO takes off the
 * parameters into step, unless that is NULL.  One such rule at a time. */
void qm_adafactor8_see(const struct qm_rule *rule, float *const *x, float *step,
                       struct qm_rule *out, struct qm_tensor_ops *ops);

/* 1 where the recorded code `want` of number k of slot i after step t is that of a number within
 * the error of x, by the recorded numbers of its block; not where x or these are not finite, whose
 * codes are the same on both sides.
 * _log: 8-bit codes of log2 in 255 parts of span; _adaptive: span and least logarithm; _moment: the
 * first moment, off by its share of its own old and new number (adafactor8bit_tolerance.h); old:
 * what it was before the step. */
int qm_adafactor8_log_explains(const struct qm_adafactor8_replay *r, int i, int64_t k, float x,
                               float span, int64_t want);
int qm_adafactor8_adaptive_explains(const struct qm_adafactor8_replay *r, int i, int64_t k, float x,
                                    const float *numbers, int levels, int64_t want);
int qm_adafactor8_moment_explains(const struct qm_adafactor8_replay *r,
                                  const struct qm_codec *codec, int64_t t, int64_t k, float x,
                                  float old, int64_t block, int64_t want);

/* Whether number k of the momentum is 0 after step t to the bit, however far off the factors of the
 * update are: its gradient is 0, or all of its channel's where that is projected, and so is `old`,
 * what it was before.  The update is 0 times a factor then, and the average b 0 + (1 - b) 0. */
int qm_adafactor8_moment_is_zero(const struct qm_adafactor8_replay *r, int64_t t, int64_t k,
                                 float old);

/* A code that is not explained makes the case differ. */
void qm_adafactor8_judge_explained(struct qm_conform *c, const char *what, int is_explained,
                                   int64_t k, int64_t got, int64_t want);

/* How many codes apart a pair of codes of number k of slot i may be that is explained: one; where a
 * number of the confidence cancels, what its error reaches besides; and two across the code of zero
 * where the search gives that to no other number, so that a number of either sign skips it. */
double qm_adafactor8_most_apart(const struct qm_adafactor8_replay *r, const struct qm_codec *codec,
                                int i, float span, int64_t k, const int64_t pair[2]);

#endif
