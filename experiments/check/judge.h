/* judge.h - Judges a variant on one case: a few steps against the oracle, a verdict per number.
 *
 * Before each step the oracle takes over the judged plan's decoded state and parameter.  After the
 * step the following is judged, with x the oracle's fresh state (before it is quantized) and e its
 * bound:
 *
 *   start                      the state that the backend gives back before the first step is, to
 *                              the bit, the one that it was given, or the rule's own first one
 *   parameter, float32 slots   EQUAL, or WITHIN_BOUND of oracle/bound/bound.h, or WRONG
 *   parameter of 16 or 8 bits  EQUAL, BOUNDARY, OFF_BY_ONE or WRONG as codes are, for the stored
 *                              numbers that [x - e, x + e] rounds to; its residual likewise
 *   stored scales              between the images of max(|x| - e) and max(|x| + e) over the group
 *   codes                      EQUAL       the exact decision on x / divisor
 *                              BOUNDARY    another code that some unit value within the bound gets
 *                              OFF_BY_ONE  a neighbour of an EQUAL or BOUNDARY code
 *                              WRONG       any other code
 *                              Under stochastic rounding both neighbours of x / divisor are EQUAL,
 *                              the draws are independent (draws.h), and the number of steps up is
 *                              within 5 standard deviations of its expectation.
 *   decoded state              value of the code times the scale, rounded once per operation
 *   NaN and Inf                the scale and the decoded values of a group are non-finite if and
 *                              only if an element of the group is (NaN does not count under
 *                              maxskip)
 *   buffers                    nothing is written before or behind them, every poisoned element is
 *                              written, gradients are not changed
 *   repetition                 a second plan, run with two threads, gives the same bits
 *
 * A number is counted as unbounded and not judged where float32 arithmetic may have overflowed (its
 * bound is infinite). */
#ifndef QM_EXPERIMENTS_CHECK_JUDGE_H
#define QM_EXPERIMENTS_CHECK_JUDGE_H

#include "core/recipe/backend.h"
#include "experiments/check/baseline.h"
#include "experiments/check/cases.h"
#include "experiments/check/coverage.h"
#include "oracle/bound/verdict.h"

/* The backend that is judged, and the recipe that it is judged as. */
struct qm_subject {
    const struct qm_backend *backend;
    struct qm_recipe recipe; /* the recipe that the backend claims to run */
    /* Changes the recipe that is run, after the case's settings were applied; or NULL. */
    void (*alter)(struct qm_recipe *r);
    struct qm_reorder reorder; /* freedoms beyond the rule's order of operations; 0: none */
    struct qm_decider decider[QM_MAX_SLOTS]; /* filled by qm_judge_begin */
};

/* The subject of a finding: one number, or the machinery around the numbers. */
enum qm_place {
    QM_PLACE_NONE,    /* anything else */
    QM_PLACE_OUTSIDE, /* the step wrote outside a buffer */
    QM_PLACE_MODE,    /* the step left the floating-point environment changed */
    QM_PLACE_REPEAT,  /* a second plan gives other bits */
    QM_PLACE_LAYER,   /* the CUDA emulator saw the kernel break a rule of CUDA */
    QM_PLACE_NUMBER,  /* a parameter, or an element of a float32 slot */
    QM_PLACE_SCALE,
    QM_PLACE_CODE
};

enum { QM_SLOT_PARAM = -1, QM_SLOT_NONE = -2, QM_SLOT_ANY = -3 };

/* The worst finding of one case. */
struct qm_finding {
    char name[QM_CASE_TEXT]; /* name of the case */
    char text[480];          /* place, got, want, inputs */
    int severity;            /* larger is worse; 0: none */
    enum qm_place place;
    int slot;           /* slot, QM_SLOT_PARAM or QM_SLOT_NONE */
    int64_t at;         /* index of the element or scale */
    double low, high;   /* allowed range of the number; NaN: it must not be finite */
    uint8_t takes[256]; /* of a code: 1 for each stored code that is allowed */
};

/* Findings of cases that are kept, and room for those that belong to no case. */
enum {
    QM_RATES = 2 * (QM_MAX_SLOTS + 1),
    QM_FINDINGS = 32,
    QM_GENERAL = 4 * QM_RATES,
    QM_RARE_BANDS = 5
};

struct qm_tally {
    int64_t cases, skipped, judged; /* numbers judged: parameters, values, scales, codes */
    int64_t verdict[QM_VERDICT_COUNT];
    int64_t deviations; /* codes of a published ladder that are not the nearest value's code */
    int64_t unbounded;  /* numbers not judged, because they may have overflowed */
    int64_t failed_cases;
    double worst_ratio; /* largest error / bound of a parameter, value or scale, for bounds > 0 */
    char worst_case[QM_CASE_TEXT];
    char worst_what[320]; /* the number of worst_ratio and its inputs in hex */
    /* The same of parameters and float32 states alone; number_at: the element. */
    double number_ratio;
    int64_t number_at;
    char number_what[320];
    /* Stochastic rounding.  Entry 2 i: values of slot i in the lower half of their cell, which
     * rounding to nearest never takes up; entry 2 i + 1: values in the upper half; slot
     * QM_MAX_SLOTS: the parameter. */
    double stoch_up[QM_RATES], stoch_expected[QM_RATES], stoch_variance[QM_RATES];
    /* Values that are numbers of the format, within bounds, and hardly ever leave them. */
    double still_n[QM_MAX_SLOTS + 1], still_left[QM_MAX_SLOTS + 1],
        still_expected[QM_MAX_SLOTS + 1];
    /* Of the values in cells their number; of those within 2^-12 of an end of their cell the
     * number, how many left it, and how many were expected to at most. */
    double stoch_n[QM_RATES], edge_n[QM_RATES], edge_left[QM_RATES], edge_expected[QM_RATES];
    /* Values that leave an end of their cell seldom, by a share known to an eighth: band b is that
     * of shares from 2^(b - 14) to 2^(b - 13).  How many, how many left, how many were to, and the
     * sum of the squares of the shares' errors, which are independent.  Negative values apart, for
     * a bias towards zero is up for them and down for others. */
    struct qm_rare_rounding {
        double n, left, expected, variance;
    } rare[QM_RATES][2][QM_RARE_BANDS];
    /* Errors of the cases with gradients of class normal; entry QM_MAX_SLOTS: the parameter. */
    struct qm_rmse rmse[QM_MAX_SLOTS + 1];
    float draw_error; /* draw error (draws.h) of the number judged last, or 0 */
    int is_planted;   /* qm_draws_are_planted in the case at hand: no statistic counts its draws */
    int n_findings;
    /* The first failing cases, in order, and what qm_judge_begin and qm_judge_end find. */
    struct qm_finding finding[QM_FINDINGS + QM_GENERAL];
};

/* Builds the deciders, zeroes t and judges the values of all codes.  QM_SKIPPED, with the reason,
 * where the recipe cannot be judged: its family has no oracle or no derived bound. */
qm_status qm_judge_begin(struct qm_subject *s, struct qm_tally *t);

/* Runs one case and adds its counts and its finding to t; a shape that a quantizer does not take
 * counts as skipped.  Not QM_OK: the backend refused, or memory ran out. */
qm_status qm_judge_case(const struct qm_subject *s, const struct qm_case *c, uint64_t seed,
                        struct qm_tally *t);

/* Counts a value of the slot at `share` of its cell (0 to 1), known within `off`, which went up (1)
 * or did not (0); negative: the value is below 0. */
void qm_tally_draw(struct qm_tally *t, int slot, double share, double off, int up, int negative);

/* Counts a value that is a number of the format within `off` of a cell, and left it (1) or not. */
void qm_tally_still(struct qm_tally *t, int slot, double off, int left);

/* The least bias of the probability of going up that would have been found in the draws of a slot;
 * NaN: nothing was drawn.  Of either sign and in both halves of cells: values at an end of their
 * cell find the smallest, as a bias b makes b n of n more leave it, or fewer. */
double qm_tally_detectable(const struct qm_tally *t, int slot);

struct qm_trial;

/* Runs a case of `steps` steps up to the first that fails.  Before step k its inputs are copied to
 * call min(k, trial->n_calls - 1) of the trial, which qm_trial_of_case made, and k + 1 to *begun.
 * Both outlive a step that does not return where they are shared memory. */
qm_status qm_judge_record(const struct qm_subject *s, const struct qm_case *c, int steps,
                          struct qm_trial *trial, volatile int *begun, struct qm_finding *f);

/* Judges the calls of a trial up to the first that fails.  slot: the only slot that is judged, or
 * QM_SLOT_PARAM: the parameter, QM_SLOT_NONE: the machinery, QM_SLOT_ANY: everything. */
qm_status qm_judge_trial(const struct qm_subject *s, const struct qm_trial *trial, int slot,
                         struct qm_finding *f);

/* Judges the calls of a trial, up to the first that fails, as a case of this name; adds its counts
 * and its finding to t. */
qm_status qm_judge_given(const struct qm_subject *s, const struct qm_trial *trial, const char *name,
                         struct qm_tally *t);

/* Adds the tally of cases that come after those of `into`. */
void qm_tally_merge(struct qm_tally *into, const struct qm_tally *from);

/* What a run of many cases tells its caller; all may be NULL. */
struct qm_judge_watch {
    void (*done)(void *user); /* called after each case, by one thread at a time */
    void *user;
    struct qm_coverage *coverage; /* takes the cases that were judged; `domain` goes with it */
    const struct qm_domain *domain;
};

/* Draws cases first, ..., first + n - 1 of the seed from the domain and runs them.  watch.domain is
 * d. */
qm_status qm_judge_drawn(const struct qm_subject *s, const struct qm_domain *d, int64_t first,
                         int n, uint64_t seed, struct qm_tally *t, struct qm_judge_watch watch);

/* Runs cases first, first + stride, ... of the core on all threads; the result equals a run in
 * order. */
qm_status qm_judge_list(const struct qm_subject *s, int first, int stride, uint64_t seed,
                        struct qm_tally *t, struct qm_judge_watch watch);

/* Judges the rates of stochastic rounding, after the last case; what it finds belongs to no case
 * and has this name. */
#define QM_RATES_NAME "stochastic"
void qm_judge_end(const struct qm_subject *s, struct qm_tally *t);

/* 1: no case failed, and at least one number was judged. */
int qm_tally_passed(const struct qm_tally *t);

#endif
