/* special.h - Measures a variant on NaN, Inf, zeros, denormals and squares that overflow. */
#ifndef QM_EXPERIMENTS_CHECK_SPECIAL_H
#define QM_EXPERIMENTS_CHECK_SPECIAL_H

#include "experiments/check/judge.h"

/* clang-format off */
#define QM_SPECIAL_LIST(X) /* class of gradients, what */              \
    X(nan,       "one NaN in the gradient")                            \
    X(inf,       "one Inf in the gradient")                            \
    X(zeros,     "all gradients 0: blocks of zeros")                   \
    X(denormal,  "all gradients below the normal range")               \
    X(huge,      "gradients whose squares pass the largest float")
/* clang-format on */

enum {
#define X(kind, text) QM_SPECIAL_##kind,
    QM_SPECIAL_LIST(X)
#undef X
        QM_SPECIAL_COUNT
};

/* Counts after the first step of 8 x 128 elements from zero states, and the verdict on three steps;
 * the oracle's IEEE outcome is expected. */
struct qm_special {
    const char *kind, *text;
    int64_t n, p_bad, p_still;              /* parameters: all, not finite, unchanged */
    int64_t state_n, state_bad, state_zero; /* decoded states: all, not finite, 0 */
    int64_t judged, unbounded, wrong;       /* verdicts: judged, may overflow, failed */
    int passed;
};

/* Runs row `which` of QM_SPECIAL_LIST; s: after qm_judge_begin. */
qm_status qm_special_run(const struct qm_subject *s, int which, uint64_t seed,
                         struct qm_special *out);

#endif
