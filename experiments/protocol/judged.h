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
 * outcome; null[] is the same pair's number with float32 states instead, NaN without one; alone[]
 * is log10 of the run's gap itself. */
struct qm_observed {
    double start, gap, twin;
    int instance;
    double x[QM_OUTCOME_COUNT], null[QM_OUTCOME_COUNT], alone[QM_OUTCOME_COUNT];
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

/* What one row of a table of judgements has to be decided: by[QM_OUTCOME_COUNT] at the rates of the
 * row and same[QM_OUTCOME_COUNT] at the same rate as the twin. */
struct qm_judged_row {
    struct qm_judged *by, *same;
    double delta;   /* margin of equivalence, log10 */
    double varied;  /* share of elements with codes in what the suite varies; NaN: no codes asked */
    int in_family;  /* 0: decided by its intervals alone */
    int is_same[2]; /* by, same: every pair of runs has equal outcomes, to the bit */
    int is_uneven;  /* the learning rate of one side alone was tuned */
    int is_own;     /* by is at rates of its own; else same is by */
    int is_control; /* float32 states, or the twin an ulp off: no float32 states beside */
};

/* Decides n rows.  Each outcome at each of the two rates is a family of its own: Benjamini-Hochberg
 * over the rows with in_family, of max(p, p of beyond).  `better` and `worse` also ask that the
 * 95 % interval of `beyond` leaves out 0; `equivalent` asks for no more runs far off than float32
 * states have (none where there are none of these), but of a control, which shows how far off equal
 * things end.  Where varied is 0 the verdict is QM_DECISION_plain; so it is where less than half
 * has codes and the verdict would be `equivalent`.  Else, where is_same, it is QM_DECISION_same,
 * and else, where is_uneven and there are pairs enough, QM_DECISION_uneven; such rows are not in
 * the family.  Where is_own is 0 the runs of by and same are the same, and same becomes by. */
qm_status qm_decide_rows(const struct qm_judged_row *row, int64_t n);

/* Whether d leaves out 0 and beyond does not: float32 states are as far from the twin. */
int qm_is_as_null(const struct qm_judged *j);

/* Whether the outcomes by[QM_OUTCOME_COUNT] have different verdicts. */
int qm_hangs_on_outcome(const struct qm_judged *by);

#endif
