/* decide.h - Decides exactly, in double, which code a unit value must get.
 *
 * The values come from oracle/codebook/codebook.h.  The thresholds are their mid-points or
 * published lists kept here; no code of core/quant takes part.  Around each threshold lies a zone
 * in which the documented float32 comparison of the search may go either way.  The zone is empty
 * where the comparison is exact. */
#ifndef QM_EXPERIMENTS_CHECK_DECIDE_H
#define QM_EXPERIMENTS_CHECK_DECIDE_H

#include "core/quant/quantizer.h"

struct qm_decider {
    struct qm_quantizer q;
    int n;                /* number of positions; e4m3 has NaN at position n in addition */
    double value[256];    /* unit value of each position, ascending */
    double slack[256];    /* bound on |table in use - value|; 0 without a curve */
    int position_of[256]; /* position of a stored code; -1: no such code */
    uint8_t code_of[256]; /* stored code of a position */
    int nan_position;     /* position of a unit value that is NaN */
    int n_negative;       /* number of values with a sign bit */
    double gain;          /* stored scale = maximum * gain */
    /* Threshold k lies between positions k and k + 1.  The exact decision goes up where y > at, or
     * y == at and `up`.  A float32 search may go up where y > low, or y == low and low_up; it must
     * go up where y > high, or y == high and high_up.  is_decided: a search that gets `at` itself
     * makes no rounding error there, so the exact decision is the only one. */
    struct qm_threshold {
        double at, low, high;
        int up, low_up, high_up, is_decided;
    } cut[255];
};

/* Builds the decider of quantizer q from the definitions.
 *   decoded  [2^bits]: the value that the judged backend decodes each stored code to at scale 1,
 *            or NULL.  Maps whose sources compute them in float32 leave the last bits open (at
 *            most 2 ulp, or 1.2e-7); there a decoded value within the slack is taken, so that
 *            the decisions are exact for the table in use.
 *   *wrong   the first code whose decoded value contradicts its definition, or -1
 * QM_BAD_ARG: the map has no definition for these bits and sign. */
qm_status qm_decider_init(struct qm_decider *d, const struct qm_quantizer *q, const float *decoded,
                          int *wrong);

/* 1: decoding at scale 1 gives the values of the table, because the quantizer has no curve, or has
 * expand and exponent and centre are 1, too. */
int qm_decider_is_plain(const struct qm_quantizer *q);

/* The position of y by the exact decision. */
int qm_decider_at(const struct qm_decider *d, double y);

/* The positions *from to *to that a float32 search may give to any unit value in [low, high]; for
 * stochastic rounds both neighbours of a value. */
void qm_decider_range(const struct qm_decider *d, double low, double high, int *from, int *to);

/* The position of the nearest value.  A ladder of published thresholds may deviate from it. */
int qm_decider_nearest(const struct qm_decider *d, double y);

#endif
