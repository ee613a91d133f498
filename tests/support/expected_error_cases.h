/* expected_error_cases.h - Codebooks and comparisons that the tests of expected errors share. */
#ifndef QM_TESTS_EXPECTED_ERROR_CASES_H
#define QM_TESTS_EXPECTED_ERROR_CASES_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "oracle/codebook/codebook.h"
#include "oracle/theory/expected_error.h"

static const struct qm_law normal = {QM_LAW_normal, 0.0};

/* Fails unless |got - want| <= relative |want| + absolute; what: named in the message. */
static inline void near_to(const char *what, double got, double want, double relative,
                           double absolute)
{
    if (!(fabs(got - want) <= relative * fabs(want) + absolute))
        fail_msg("%s: got %.12g, want %.12g", what, got, want);
}

/* A codebook with its decision boundaries. */
struct codebook {
    int n;
    double value[256], cut[255];
};

/* The codebook of +-half[n] / half[n - 1]. */
static inline void symmetric(struct codebook *b, const double *half, int n)
{
    b->n = 2 * n - 1; /* half[0] = 0 */
    for (int i = 0; i < n; i++) {
        b->value[n - 1 + i] = half[i] / half[n - 1];
        b->value[n - 1 - i] = -half[i] / half[n - 1];
    }
}

/* A map of the oracle, or e2m1 or e4m3 divided by its largest value; decisions half way. */
static inline struct codebook codebook_of(const char *name, int bits, int sign)
{
    static const double e2m1[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
    struct codebook b = {0};
    if (strcmp(name, "e2m1") == 0)
        symmetric(&b, e2m1, 8);
    else if (strcmp(name, "e4m3") == 0) {
        double half[127]; /* OCP FP8: bias 7, 3 mantissa bits, largest 1.75 * 2^8 */
        for (int i = 0; i < 127; i++)
            half[i] = i < 8 ? ldexp(i, -9) : ldexp(8 + i % 8, i / 8 - 10);
        assert_true(half[126] == 448.0);
        symmetric(&b, half, 127);
    } else
        b.n = qm_oracle_codebook(name, bits, sign, b.value);
    assert_true(b.n > 0);
    if (strcmp(name, "int") == 0)
        for (int k = 0; k < b.n; k++)
            b.value[k] /= (1 << (bits - 1)) - 1;
    qm_theory_midpoints(b.value, b.n, b.cut);
    return b;
}

/* The expected errors; fails the test where they cannot be computed. */
static inline struct qm_theory theory(const struct qm_law *law, const struct codebook *b,
                                      int64_t block)
{
    struct qm_theory t = {0};
    assert_int_equal(qm_theory_block(law, b->value, b->cut, b->n, block, &t), QM_OK);
    return t;
}

#endif
