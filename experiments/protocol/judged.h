/* judged.h - Judges paired numbers by outcome, and families of such judgements; for the files of
 * experiments/protocol only. */
#ifndef QM_EXPERIMENTS_PROTOCOL_JUDGED_H
#define QM_EXPERIMENTS_PROTOCOL_JUDGED_H

#include "experiments/protocol/stats.h"

/* clang-format off */
/* The differences of log10 gap that are judged.  The first one gives the verdict. */
#define QM_OUTCOME_LIST(X) /* name, text */                                                       \
    X(last, "after the last step")                                                                \
    X(late, "of the mean gap over the last eighth of the steps")                                  \
    X(area, "mean over the logarithm of the step")
/* clang-format on */

enum qm_outcome_kind {
#define X(name, text) QM_OUTCOME_##name,
    QM_OUTCOME_LIST(X)
#undef X
        QM_OUTCOME_COUNT
};
const char *qm_outcome_name(int kind);

/* One pair: the losses by which repeated runs are recognised, its instance and its number for each
 * outcome; null[] is the same pair's number with float32 states instead, NaN without one. */
struct qm_observed {
    double start, gap, twin;
    int instance;
    double x[QM_OUTCOME_COUNT], null[QM_OUTCOME_COUNT];
};

struct qm_judged {
    struct qm_paired d;
    struct qm_paired beyond; /* of d minus that of float32 states, same seeds; n 0: no null */
    int64_t null_far;        /* runs of float32 states that are far off */
    double q;                /* NaN: no part of the family */
    enum qm_decision verdict;
};

/* Judges o[n] by every outcome: sets d, beyond and null_far of out[QM_OUTCOME_COUNT].  Pairs that
 * are equal in start and both gaps are one observation, because their seed changes nothing; pairs
 * from different starts that all reach the floor are several.  o is sorted.  Intervals are cut to
 * +- most. */
qm_status qm_judge(struct qm_observed *o, int64_t n, double most, struct qm_judged *out);

/* Decides a family of n judgements: Benjamini-Hochberg over those with in_family[i], of max(p,
 * p of beyond).  `better` and `worse` also ask that the 95 % interval of `beyond` leaves out 0;
 * `equivalent` asks for no more runs far off than float32 states have. */
qm_status qm_decide_family(struct qm_judged *const *row, const double *delta, const int *in_family,
                           int64_t n);

/* Whether d leaves out 0 and beyond does not: float32 states are as far from the twin. */
int qm_is_as_null(const struct qm_judged *j);

/* Whether the outcomes by[QM_OUTCOME_COUNT] have different verdicts. */
int qm_hangs_on_outcome(const struct qm_judged *by);

#endif
