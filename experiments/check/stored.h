/* stored.h - the verdict on parameters that are stored in 16 or 8 bits, with their residuals.
 *
 * Formats from their definitions, in double; nothing of core/rule/param.h decides.  A stored number has a
 * rank: its magnitude's bits, negative below zero, so that neighbours differ by one. */
#ifndef QM_EXPERIMENTS_CHECK_STORED_H
#define QM_EXPERIMENTS_CHECK_STORED_H

#include "experiments/check/judge.h"
#include "oracle/bound/bound.h"

struct qm_stored {
    enum qm_param_write write;
    int bytes, residual_bytes;
    int mantissa, least; /* bits of fraction; exponent of the least normal number */
    int top, has_inf;    /* rank of the largest finite number; whether infinity is the next */
};

struct qm_stored qm_stored_of(const struct qm_param *p);

/* The format as oracle/bound/bound.h has it. */
struct qm_float_format qm_stored_grid(const struct qm_stored *f);

/* Rank of the number nearest to x (ties to even), or of the nearest below and above; NaN: none, gives
 * 0. */
int qm_stored_near(const struct qm_stored *f, double x);
int qm_stored_floor(const struct qm_stored *f, double x);
int qm_stored_ceil(const struct qm_stored *f, double x);

/* Element i of stored parameters as the rule sees it: with its residual, in float32. */
double qm_stored_seen(const struct qm_stored *f, const void *p, const void *residual, int64_t i);

/* Puts the number nearest to x there. */
void qm_stored_put(const struct qm_stored *f, void *p, int64_t i, double x);

/* Judges element i, which was to become `want` within `error` before it was stored: its number, and
 * its residual by what it adds.  Returns the worse verdict; *unbounded: it may have overflowed.  What
 * is wrong is said in text[size].  Stochastic rounding: steps up are counted in t. */
enum qm_verdict qm_stored_judge(const struct qm_stored *f, const void *p, const void *residual,
                                int64_t i, double want, double error, struct qm_tally *t,
                                int *unbounded, char *text, size_t size);

#endif
