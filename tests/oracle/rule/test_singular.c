/* test_singular.c - Tests the verdict on singular vectors: known vectors, planted faults, free
 * signs.
 *
 * Correct vectors may differ in sign, and in basis where singular values are equal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "oracle/bound/verdict.h"
#include "oracle/rule/projection.h"

enum { M = 9, N = 6, R = 3, MOST = 400 };

/* A step with gradient G (m x n) and the projection p that the judged side computed. */
struct judged {
    struct qm_oracle_hyper h;
    struct qm_projection q;
    double g[MOST], p[MOST], want[MOST], e[MOST];
    int tree;
};

/* The worst verdict on an entry; *share: the largest ratio of an error to its bound. */
static enum qm_verdict judge(struct judged *j, double *share)
{
    double *want[QM_ORACLE_SLOTS] = {NULL, NULL, j->want}, *e[QM_ORACLE_SLOTS] = {NULL, NULL, j->e};
    const double *stored[QM_ORACLE_SLOTS] = {NULL, NULL, j->p};
    struct qm_bound_step b = {.h = &j->h,
                              .t = 1,
                              .n = j->q.m * j->q.n,
                              .reorder = {.tree = j->tree},
                              .g = j->g,
                              .want = want,
                              .stored = stored,
                              .e_slot = e};
    enum qm_verdict worst = QM_VERDICT_EQUAL;
    *share = 0.0;
    assert_int_equal(qm_ball_project_singular(&b, &j->q, 2), QM_OK);
    for (int64_t i = 0; i < j->q.r * (j->q.right ? j->q.n : j->q.m); i++) {
        enum qm_verdict is = qm_verdict_number(j->p[i], j->want[i], j->e[i]);
        worst = is > worst ? is : worst;
        if (j->e[i] > 0.0)
            *share = fmax(*share, fabs(j->p[i] - j->want[i]) / j->e[i]);
    }
    return worst;
}

static void takes(struct judged *j)
{
    double share;
    assert_true(judge(j, &share) <= QM_VERDICT_WITHIN_BOUND);
}

static void refuses(struct judged *j)
{
    double share;
    assert_int_equal(judge(j, &share), QM_VERDICT_WRONG);
}

static double noise(uint64_t stream, uint64_t i)
{
    return (double)qm_philox_stream(11, stream, i) * 0x1p-32 - 0.5;
}

/* Entry (i, j) of the Householder reflection I - 2 v v' / v'v of order n, v pseudo-random. */
static double mirror(uint64_t stream, int64_t n, int64_t i, int64_t j)
{
    double square = 0.0;
    for (int64_t k = 0; k < n; k++)
        square += noise(stream, (uint64_t)k) * noise(stream, (uint64_t)k);
    return (i == j ? 1.0 : 0.0) -
           2.0 * noise(stream, (uint64_t)i) * noise(stream, (uint64_t)j) / square;
}

/* G = A diag(s) B with reflections A and B: the rows of B are its right singular vectors, the
 * columns of A the left ones. */
static void start(struct judged *j, int right, const double *s)
{
    *j = (struct judged){.q = {right, M, N, R, right ? M : R, right ? R : N}};
    for (int i = 0; i < M; i++)
        for (int c = 0; c < N; c++)
            for (int k = 0; k < N; k++)
                j->g[i * N + c] += mirror(1, M, i, k) * s[k] * mirror(2, N, k, c);
    for (int k = 0; k < R; k++)
        for (int i = 0; i < (right ? N : M); i++)
            j->p[right ? k * N + i : i * R + k] =
                qm_round_float32(right ? mirror(2, N, k, i) : mirror(1, M, i, k));
}

/* Entry i of vector k. */
static double *entry(struct judged *j, int k, int i)
{
    return &j->p[j->q.right ? k * N + i : i * R + k];
}

/* Rotates vectors k and l in their plane by an angle. */
static void turn(struct judged *j, int k, int l, double angle)
{
    for (int i = 0; i < (j->q.right ? N : M); i++) {
        double x = *entry(j, k, i), y = *entry(j, l, i);
        *entry(j, k, i) = qm_round_float32(cos(angle) * x - sin(angle) * y);
        *entry(j, l, i) = qm_round_float32(sin(angle) * x + cos(angle) * y);
    }
}

static const double apart[N] = {5.0, 3.0, 2.0, 1.0, 0.5, 0.1}, tied[N] = {5.0, 5.0, 2.0, 1.0},
                    zero[N] = {0.0};

static void known_vectors(void **state)
{
    struct judged j;
    (void)state;
    for (int right = 0; right < 2; right++) {
        start(&j, right, apart);
        takes(&j);
        for (int i = 0; i < (right ? N : M); i++) /* another sign is accepted */
            *entry(&j, 1, i) = -*entry(&j, 1, i);
        takes(&j);
        start(&j, right, tied);
        turn(&j, 0, 1, 1.0); /* another basis of equal singular values is accepted */
        takes(&j);
        turn(&j, 1, 2, 1e-6); /* values 1 and 2 differ */
        refuses(&j);
        start(&j, right, zero);
        takes(&j);
        *entry(&j, 0, 0) += 1e-3;
        refuses(&j);
    }
}

static void planted(void **state)
{
    struct judged j;
    (void)state;
    for (int right = 0; right < 2; right++) {
        int k = right ? N : M;
        start(&j, right, apart);
        turn(&j, 0, 1, 1e-6);
        refuses(&j);
        start(&j, right, apart);
        turn(&j, 0, 1, 1.5707963267948966); /* unsorted */
        refuses(&j);
        start(&j, right, apart);
        for (int i = 0; i < k; i++) /* not normalized */
            *entry(&j, 2, i) = qm_round_float32(*entry(&j, 2, i) * (1.0 + 1e-6));
        refuses(&j);
        start(&j, right, apart);
        for (int i = 0; i < k; i++) /* one of them twice */
            *entry(&j, 1, i) = *entry(&j, 0, i);
        refuses(&j);
        start(&j, right, tied);
        for (int i = 0; i < k; i++) /* where values are equal only orthonormality detects it */
            *entry(&j, 1, i) = *entry(&j, 0, i);
        refuses(&j);
        start(&j, right, apart);
        for (int i = 0; i < k; i++) /* a later one in place of the third */
            *entry(&j, 2, i) = qm_round_float32(right ? mirror(2, N, 3, i) : mirror(1, M, i, 3));
        refuses(&j);
        start(&j, right, apart);
        *entry(&j, 0, 0) = (double)NAN;
        refuses(&j);
    }
}

/* The ratio to the bound grows with the angle as derived; the bound of float32 sums is larger. */
static void how_near(void **state)
{
    struct judged j;
    double share, narrow;
    (void)state;
    start(&j, 1, apart);
    turn(&j, 0, 1, 1e-5);
    assert_int_equal(judge(&j, &share), QM_VERDICT_WRONG);
    /* residual 1e-5 (25 - 9) / 25, bound u and the rounding of G'G in double */
    assert_true(share > 0.9 * 6.4e-6 / QM_U / 1.01 && share < 1.1 * 6.4e-6 / QM_U);
    j.tree = 1;
    (void)judge(&j, &narrow);
    assert_true(narrow < share / 20.0 && narrow > 1.0); /* 4 h + h + u, h = 9 u: 46 times */
    turn(&j, 0, 1, -9e-6);
    takes(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_vectors),
        cmocka_unit_test(planted),
        cmocka_unit_test(how_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
