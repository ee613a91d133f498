/* stored.h - Judges parameters that are stored in 16 or 8 bits, and their residuals.
 *
 * The formats are computed from their definitions, in double; no code of core/rule/param.h takes
 * part.  The rank of a stored number is the integer of its magnitude's bits, negated below zero, so
 * that neighbours differ by one. */
#ifndef QM_EXPERIMENTS_CHECK_STORED_H
#define QM_EXPERIMENTS_CHECK_STORED_H

#include "experiments/check/judge.h"
#include "oracle/bound/bound.h"

struct qm_stored {
    enum qm_param_write write;
    int bytes, residual_bytes;
    int mantissa, least; /* fraction bits; exponent of the least normal number */
    int top, has_inf;    /* rank of the largest finite number; 1: rank top + 1 is infinity */
};

/* Stored parameters: elements of one format, with their residuals (unused where it has none). */
struct qm_stored_array {
    const struct qm_stored *format;
    const void *p, *residual;
};

enum { QM_STORED_TEXT = 160 };

struct qm_stored qm_stored_of(const struct qm_param *p);

/* The format as oracle/bound/bound.h describes it. */
struct qm_float_format qm_stored_grid(const struct qm_stored *f);

/* The float32 value of element i as the rule sees it, with its residual. */
double qm_stored_seen(const struct qm_stored *f, const void *p, const void *residual, int64_t i);

/* Stores the number nearest to x (ties to even) as element i. */
void qm_stored_put(const struct qm_stored *f, void *p, int64_t i, double x);

/* Judges element i, whose value before it was stored is `want` within `error`: its stored number
 * and its residual.  Returns the worse verdict, and describes a failure in text.  *unbounded 1: the
 * value may have overflowed, and there is no verdict.  Draws of stochastic rounding are counted in
 * t. */
enum qm_verdict qm_stored_judge(const struct qm_stored_array *a, int64_t i, double want,
                                double error, struct qm_tally *t, int *unbounded,
                                char text[QM_STORED_TEXT]);

#endif
