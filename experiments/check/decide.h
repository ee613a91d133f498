/* decide.h - which code a unit value must get, decided exactly in double.
 *
 * The values come from oracle/codebook/codebook.h, the thresholds from their mid-points or from published
 * lists kept here; nothing of core/quant decides.  Around each threshold lies the zone in which the
 * documented float32 comparison of the search may fall either way; it is empty where that
 * comparison is exact. */
#ifndef QM_EXPERIMENTS_CHECK_DECIDE_H
#define QM_EXPERIMENTS_CHECK_DECIDE_H

#include "core/quant/quantizer.h"

struct qm_decider {
    struct qm_quantizer q;
    int n;                /* positions; e4m3 has NaN at n besides */
    double value[256];    /* unit value of each, ascending */
    double slack[256];    /* how far the table in use may be from it; 0 but under a curve */
    int position_of[256]; /* of a stored code; -1: no such code */
    uint8_t code_of[256]; /* of a position */
    int nan_position;     /* of a unit value that is NaN */
    int n_negative;       /* values with a sign bit */
    double gain;          /* stored scale = maximum * gain */
    /* Threshold k lies between positions k and k + 1.  y goes up where y > at, or y == at and
     * `up`; it may go up where y > low (y == low and low_up), it must where y > high (y == high and
     * high_up). */
    struct qm_threshold {
        double at, low, high;
        int up, low_up, high_up;
    } cut[255];
};

/* Builds it from definitions.  decoded[2^bits]: what the judged side decodes each stored code to at
 * scale 1, or NULL; where a definition leaves the last bits open (maps whose sources compute them
 * in float32: at most 2 ulp, or 1.2e-7) the decoded value is taken if it lies within, so that the
 * decisions are exact for the table in use.  *wrong: the first code whose decoded value is not its
 * definition, or -1. */
qm_status qm_decider_init(struct qm_decider *d, const struct qm_quantizer *q, const float *decoded,
                          int *wrong);

/* Whether decoding at scale 1 shows the table (no curve lies in between). */
int qm_decider_is_plain(const struct qm_quantizer *q);

/* The decision on y, and the positions that any unit value in [low, high] may get (the two
 * neighbours for round = stoch). */
int qm_decider_at(const struct qm_decider *d, double y);
void qm_decider_range(const struct qm_decider *d, double low, double high, int *from, int *to);

/* The exact nearest position by mid-points of the values: what a ladder may deviate from. */
int qm_decider_nearest(const struct qm_decider *d, double y);

#endif
