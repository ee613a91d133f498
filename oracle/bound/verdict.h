/* verdict.h - Judges a number or a code against the oracle's value, given the bound on the error.
 *
 *     EQUAL         a number: the float32 nearest to the oracle's value, or the same infinity;
 *                   a code: the code that exact arithmetic decides on
 *     WITHIN_BOUND  (numbers) another float32 whose distance from the oracle's value is at most the
 *                   bound; or both are NaN, or one is NaN and the other an infinity
 *     BOUNDARY      (codes) another code, which some value within the bound is encoded to
 *     OFF_BY_ONE    (codes) a neighbour of the codes that EQUAL and BOUNDARY allow
 *     WRONG         anything else; a NaN against a number is always WRONG */
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

/* bound >= 0, finite (a number that may overflow gets no verdict).  Where want is not finite the
 * bound is ignored: got must not be finite either, and infinities must have equal signs. */
enum qm_verdict qm_verdict_number(double got, double want, double bound);

/* k: the code's position in the ascending codebook; `at`: the position of the exact decision;
 * positions from .. to are allowed. */
enum qm_verdict qm_verdict_code(int k, int at, int from, int to);

#endif
