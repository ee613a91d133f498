/* verdict.h - one number against the oracle's, given the bound on their difference.
 *
 *     EQUAL         the float32 nearest to the oracle's value; the same infinity
 *     WITHIN_BOUND  another one, no further from it than the bound; both NaN, or NaN and an infinity
 *     BOUNDARY      (codes) another one than decided exactly, that some value within the bound gets
 *     OFF_BY_ONE    (codes) next to one of those
 *     WRONG         anything else; NaN never equals a number */
#ifndef QM_BOUND_VERDICT_H
#define QM_BOUND_VERDICT_H

/* clang-format off */
#define QM_VERDICT_LIST(X) X(EQUAL) X(WITHIN_BOUND) X(BOUNDARY) X(OFF_BY_ONE) X(WRONG)
/* clang-format on */

enum qm_verdict {
#define X(name) QM_VERDICT_##name,
    QM_VERDICT_LIST(X)
#undef X
        QM_VERDICT_COUNT
};

/* bound >= 0, not infinite (a number that may overflow has no verdict).  Where want is not finite the
 * bound counts for nothing: got must not be finite either, and an infinity not the other one. */
enum qm_verdict qm_verdict_number(double got, double want, double bound);

/* Position k where the exact decision is `at` and [from, to] are allowed. */
enum qm_verdict qm_verdict_code(int k, int at, int from, int to);

#endif
