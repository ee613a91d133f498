/* judge.h - one variant, one case: a few steps beside the oracle, and a verdict on every number.
 *
 * Before each step the oracle takes over the judged side's decoded state and parameter.  After it:
 *
 *   parameter, float32 slots   EQUAL, or WITHIN_BOUND of oracle/bound/bound.h, or WRONG
 *   parameter of 16 or 8 bits  the numbers that its range allows before it is stored, EQUAL,
 *                              BOUNDARY, OFF_BY_ONE or WRONG as codes are; so its residual
 *   stored scales              between the images of max(|x| - e) and max(|x| + e) over the group,
 *                              x the oracle's fresh state and e its bound
 *   codes                      EQUAL       the exact decision on x / divisor
 *                              BOUNDARY    another one that some unit value within the bound gets
 *                              OFF_BY_ONE  next to one of those
 *                              WRONG       none of those
 *                              of stochastic rounding both neighbours are EQUAL, the choices are
 *                              independent (draws.h), and the number of
 *                              steps up is within 5 standard deviations of its expectation
 *   decoded state              value of the code times the scale, rounded once per operation
 *   NaN and Inf                a group is non-finite if and only if an element of it is (NaN does not
 *                              count under maxskip), and so is everything it decodes to
 *   buffers                    nothing written before or behind; everything poisoned is written;
 *                              gradients untouched
 *   repetition                 a second plan, run with two threads, gives the same bits
 *
 * Where the float32 side may have overflowed (infinite bound) a number is counted, not judged. */
#ifndef QM_EXPERIMENTS_CHECK_JUDGE_H
#define QM_EXPERIMENTS_CHECK_JUDGE_H

#include "core/recipe/backend.h"
#include "experiments/check/baseline.h"
#include "experiments/check/cases.h"
#include "oracle/bound/verdict.h"

/* Who is judged, as what. */
struct qm_subject {
    const struct qm_backend *backend;
    struct qm_recipe recipe;            /* what it claims to be */
    void (*alter)(struct qm_recipe *r); /* what it is run as, after the case was applied; or NULL */
    struct qm_reorder reorder;          /* what it may do beside its rule's order; 0: nothing */
    struct qm_decider decider[QM_MAX_SLOTS]; /* filled by qm_judge_begin */
};

/* What a finding is about: one number, or the machinery around them. */
enum qm_place {
    QM_PLACE_NONE,    /* something else */
    QM_PLACE_OUTSIDE, /* the step wrote outside a buffer */
    QM_PLACE_MODE,    /* it left the floating-point environment changed */
    QM_PLACE_REPEAT,  /* a second run differs */
    QM_PLACE_LAYER,   /* backend emu saw it break a rule of CUDA's */
    QM_PLACE_NUMBER,  /* a parameter, or an element of a float32 slot */
    QM_PLACE_SCALE,
    QM_PLACE_CODE
};

enum { QM_SLOT_PARAM = -1, QM_SLOT_NONE = -2, QM_SLOT_ANY = -3 };

/* The worst thing found in one case. */
struct qm_finding {
    char name[QM_CASE_TEXT]; /* of the case */
    char text[480];          /* where, inputs, got, want */
    int severity;            /* larger is worse; 0: none */
    enum qm_place place;
    int slot;           /* or QM_SLOT_PARAM, QM_SLOT_NONE */
    int64_t at;         /* element, or scale */
    double low, high;   /* what the number may be; NaN: it must not be finite */
    uint8_t takes[256]; /* of a code: the stored codes that are allowed are 1 */
};

enum { QM_FINDINGS = 32, QM_RATES = 2 * (QM_MAX_SLOTS + 1) };

struct qm_tally {
    int64_t cases, skipped, judged; /* numbers judged: parameters, values, scales, codes */
    int64_t verdict[QM_VERDICT_COUNT];
    int64_t deviations; /* codes of a published ladder where the nearest value is another one */
    int64_t unbounded;  /* not judged: may have overflowed */
    int64_t failed_cases;
    double worst_ratio; /* largest error of a parameter or value over its bound, among those > 0 */
    char worst_case[QM_CASE_TEXT];
    char worst_what
        [320]; /* that number, where it is one of a float32 array, and its inputs in hex */
    /* Stochastic rounding: 2 i of values of slot i in the lower half of their cell, which rounding to
     * nearest never takes up, 2 i + 1 in the upper half; slot QM_MAX_SLOTS is the parameter. */
    double stoch_up[QM_RATES], stoch_expected[QM_RATES], stoch_variance[QM_RATES];
    /* Of the cases with gradients of class normal, whose errors are of one kind; QM_MAX_SLOTS: of the
     * parameter. */
    struct qm_rmse rmse[QM_MAX_SLOTS + 1];
    float left; /* of the number judged last: its choice in stochastic rounding (draws.h), or 0 */
    int n_findings;
    struct qm_finding finding[QM_FINDINGS]; /* the first failing cases, in order */
};

/* Builds the deciders and judges the values of all codes.  t is zeroed.  QM_SKIPPED, with the
 * reason, where nothing can be judged: a family without a derived bound or oracle. */
qm_status qm_judge_begin(struct qm_subject *s, struct qm_tally *t);

/* Runs one case and adds what it finds.  Not QM_OK where a backend refused, or out of memory. */
qm_status qm_judge_case(const struct qm_subject *s, const struct qm_case *c, uint64_t seed,
                        struct qm_tally *t);

/* A value of the slot at `share` of its cell went up, or did not. */
void qm_tally_draw(struct qm_tally *t, int slot, double share, int up);

/* One case of `steps` steps that ends with the first that fails.  Before each step its inputs go into
 * call min(k, trial->n_calls - 1) of the trial, which qm_trial_of_case made, and k + 1 into *begun:
 * where they are shared memory, they outlive a step that does not return. */
struct qm_trial;
qm_status qm_judge_record(const struct qm_subject *s, const struct qm_case *c, int steps,
                          struct qm_trial *trial, volatile int *begun, struct qm_finding *f);

/* The calls of a trial up to the first that fails.  slot: only this slot, QM_SLOT_PARAM the parameter,
 * QM_SLOT_NONE the machinery, QM_SLOT_ANY everything. */
qm_status qm_judge_trial(const struct qm_subject *s, const struct qm_trial *trial, int slot,
                         struct qm_finding *f);

/* All calls of a trial, as a case of this name: adds what it finds to t. */
qm_status qm_judge_given(const struct qm_subject *s, const struct qm_trial *trial, const char *name,
                         struct qm_tally *t);

/* Adds what `from` found, as if its cases had been run after those of `into`. */
void qm_tally_merge(struct qm_tally *into, const struct qm_tally *from);

/* Cases first, first + stride, ... of the list on as many threads as there are; the result is that of
 * running them in order.  done, where not NULL, is called after each, by one thread at a time. */
qm_status qm_judge_list(const struct qm_subject *s, int first, int stride, uint64_t seed,
                        struct qm_tally *t, void (*done)(void *user), void *user);

/* After the last case: the rate of stochastic rounding. */
void qm_judge_end(const struct qm_subject *s, struct qm_tally *t);

/* 1: everything judged was within bounds, and something was judged. */
int qm_tally_passed(const struct qm_tally *t);

#endif
