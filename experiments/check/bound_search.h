/* bound_search.h - Searches for inputs at which a step errs most in relation to its derived bound.
 *
 * A hill climb.  It starts from steps of cases and changes single numbers of parameter, gradient
 * and state (bits, neighbours, copies of the worst element), the step's number, and the
 * hyper-parameters that the rule reads; it keeps what raises the largest error / bound of a
 * parameter or float32 state, and starts again where nothing does.  A ratio above 1 is a wrong
 * bound, or a wrong step; one far below 1/4 everywhere a bound that is loose.  Codes and parameters
 * of 16 bits have no ratio: of them only a wrong one is found. */
#ifndef QM_EXPERIMENTS_CHECK_BOUND_SEARCH_H
#define QM_EXPERIMENTS_CHECK_BOUND_SEARCH_H

#include "experiments/check/judge.h"

/* Formats of the states: all float32; with the variant's own fallbacks; without fallbacks. */
#define QM_BOUND_STATES_LIST(X) X(f32) X(own) X(forced)

enum qm_bound_states {
#define X(name) QM_BOUND_STATES_##name,
    QM_BOUND_STATES_LIST(X)
#undef X
        QM_BOUND_STATES_COUNT
};

extern const char *const qm_bound_states_names[QM_BOUND_STATES_COUNT];

struct qm_bound_search_found {
    double ratio;             /* largest error / bound; 0: no number had a bound above 0 */
    int64_t steps;            /* steps that were judged */
    char start[QM_CASE_TEXT]; /* the case that the climb of the largest ratio started from */
    char what[320];           /* the number and its inputs */
    char failure[480];        /* the first wrong code or number, or "" */
};

/* Climbs for about `seconds`, on this thread.  The subject's backend and freedoms are judged as its
 * recipe with these formats of its states.  QM_SKIPPED: the rule has no bound, or the recipe no
 * quantized state that they would change. */
qm_status qm_bound_search(const struct qm_subject *s, enum qm_bound_states states, double seconds,
                          uint64_t seed, struct qm_bound_search_found *out);

#endif
