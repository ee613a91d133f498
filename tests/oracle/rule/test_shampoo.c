/* test_shampoo.c - The oracle of Shampoo on closed forms: diagonal gradients, schedules, tiles. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "oracle/rule/shampoo.h"

enum { N = 3, NN = N * N };

static struct qm_oracle_hyper hyper(void)
{
    return (struct qm_oracle_hyper){.lr = 0.1,
                                    .momentum = 0.9,
                                    .beta1 = 0.9,
                                    .beta2 = 0.99,
                                    .eps = 1e-8,
                                    .stat_decay = 0.95,
                                    .matrix_eps = 1e-3,
                                    .stat_gap = 1,
                                    .root_gap = 1,
                                    .start = 1,
                                    .rect_stat = 1,
                                    .rect_root = 4,
                                    .max_order = 1200};
}

/* The slots of a 3 x 3 tensor under SGD. */
struct state {
    double momentum[NN], left[NN], right[NN], ev[2 * N], left_root[NN], right_root[NN], none[1];
};

static void step(struct state *s, double *p, const double *g, const struct qm_oracle_hyper *h,
                 int64_t t)
{
    double *slot[] = {s->momentum, s->left, s->right, s->ev, s->left_root, s->right_root, s->none};
    const struct qm_shape shape = {2, {N, N}};
    assert_int_equal(qm_oracle_step(qm_oracle_find("shampoo_sgd"), p, slot, g, &shape, 0, h, t),
                     QM_OK);
}

/* Of diagonal gradients everything stays diagonal: both factors have the eigenvalues b of running
 * averages of squares, and P = a (b + eps max b)^(-1/2), scaled to |a|. */
static void test_diagonal(void **state)
{
    (void)state;
    static const double a[2][N] = {{3.0, -2.0, 0.5}, {-1.0, 4.0, 1.5}};
    struct qm_oracle_hyper h = hyper();
    struct state s;
    double p[NN] = {0}, b[N], m[N] = {0}, want[N] = {0};
    memset(&s, 0, sizeof s);
    for (int i = 0; i < N; i++)
        b[i] = (double)(float)h.matrix_eps;
    for (int t = 1; t <= 2; t++) {
        double g[NN] = {0}, most = 0.0, of_a = 0.0, of_u = 0.0, u[N];
        for (int i = 0; i < N; i++) {
            g[i * (N + 1)] = a[t - 1][i];
            b[i] = 0.95 * b[i] + 0.05 * a[t - 1][i] * a[t - 1][i];
            most = fmax(most, b[i]);
        }
        for (int i = 0; i < N; i++) {
            u[i] = a[t - 1][i] / sqrt(b[i] + h.matrix_eps * most);
            of_a += a[t - 1][i] * a[t - 1][i];
            of_u += u[i] * u[i];
        }
        for (int i = 0; i < N; i++) {
            m[i] = 0.9 * m[i] + u[i] * sqrt(of_a) / (sqrt(of_u) + 1e-12);
            want[i] -= 0.1 * m[i];
        }
        step(&s, p, g, &h, t);
        for (int i = 0; i < N; i++) {
            assert_true(fabs(s.ev[i] - b[i]) < 1e-14 && fabs(s.ev[N + i] - b[i]) < 1e-14);
            for (int j = 0; j < N; j++) {
                assert_true(s.left[i * N + j] == (i == j));
                assert_true(fabs(p[i * N + j] - (i == j ? want[i] : 0.0)) < 1e-13);
            }
        }
    }
}

/* A step that neither gap divides keeps statistics and roots; before `start` the gradient itself is
 * the direction, and while roots are zero they stand for the identity. */
static void test_schedule(void **state)
{
    (void)state;
    struct qm_oracle_hyper h = hyper();
    struct state s, before;
    double p[NN] = {0}, g[NN];
    memset(&s, 0, sizeof s);
    h.stat_gap = 2;
    h.root_gap = 3;
    h.start = 4;
    for (int i = 0; i < NN; i++)
        g[i] = 0.25 * i - 1.0;
    for (int t = 1; t <= 6; t++) {
        double old[NN], m[NN];
        before = s;
        memcpy(old, p, sizeof old);
        memcpy(m, s.momentum, sizeof m);
        step(&s, p, g, &h, t);
        assert_int_equal(memcmp(before.left, s.left, sizeof s.left) == 0, t % 2 != 0);
        assert_int_equal(memcmp(before.ev, s.ev, sizeof s.ev) == 0, t % 2 != 0);
        assert_int_equal(memcmp(before.left_root, s.left_root, sizeof s.left_root) == 0,
                         t % 3 != 0);
        for (int i = 0; i < NN && t < 4; i++)
            assert_true(fabs(p[i] - (old[i] - 0.1 * (0.9 * m[i] + g[i]))) < 1e-15);
    }
}

/* The eigenvectors of a covariance are found by iterating, whatever it is: V diag(ev) V^T is A at
 * every step, for one step of the iteration changes the basis alone. */
static void test_converges(void **state)
{
    (void)state;
    enum { K = 5, COLS = 7 };
    struct qm_oracle_hyper h = hyper();
    double g[K * COLS], a[K * K] = {0}, vt[K * K] = {0}, ev[K] = {0}, e_vt[K], e_ev[K];
    for (int i = 0; i < K * COLS; i++)
        g[i] = (double)qm_philox_stream(3, 1, (uint64_t)i) * 0x1p-31 - 1.0;
    const struct qm_eigenbasis to = {vt, ev, e_vt, e_ev};
    h.stat_decay = 0.0; /* A = G G^T */
    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++)
            for (int k = 0; k < COLS; k++)
                a[i * K + j] += g[i * COLS + k] * g[j * COLS + k];
    for (int t = 0; t < 400; t++)
        assert_int_equal(qm_kronecker_statistic(&h, K, COLS, g, 0x1p-53, &to), QM_OK);
    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++) {
            double sum = 0.0;
            for (int k = 0; k < K; k++)
                sum += vt[k * K + i] * ev[k] * vt[k * K + j];
            assert_true(fabs(sum - a[i * K + j]) < 1e-8);
        }
    for (int k = 0; k < K; k++) {
        assert_true(e_vt[k] < 1e-9 && e_ev[k] < 1e-9);
        assert_true(k == 0 || ev[k] <= ev[k - 1]);
    }
}

/* A direction without eigenvalue has no eigenvector, and the bound says so. */
static void test_singular(void **state)
{
    (void)state;
    struct qm_oracle_hyper h = hyper();
    double g[N * 2] = {1, 2, 2, 4, 3, 6}, vt[NN] = {0}, ev[N] = {0}, e_vt[N], e_ev[N];
    const struct qm_eigenbasis to = {vt, ev, e_vt, e_ev};
    h.matrix_eps = 0.0; /* A has rank 1 */
    assert_int_equal(qm_kronecker_statistic(&h, N, 2, g, 0x1p-53, &to), QM_OK);
    assert_true(e_vt[0] < 1e-13);
    assert_true(isinf(e_vt[1]) && isinf(e_vt[2]));
}

static void test_tiles(void **state)
{
    (void)state;
    struct qm_oracle_hyper h = hyper();
    struct qm_kronecker k;
    h.max_order = 4;
    assert_int_equal(qm_kronecker_of(&h, &(struct qm_shape){3, {1, 8, 6}}, &k), QM_BAD_ARG);
    assert_int_equal(qm_kronecker_of(&h, &(struct qm_shape){4, {3, 1, 2, 4}}, &k), QM_OK);
    assert_true(k.rows == 3 && k.cols == 8 && k.m == 3 && k.n == 4 && k.down == 1 && k.across == 2);
    assert_false(qm_kronecker_has(&h, &(struct qm_shape){3, {1, 8, 1}}));
    assert_false(qm_kronecker_has(&h, &(struct qm_shape){2, {0, 8}}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_diagonal),  cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_converges), cmocka_unit_test(test_singular),
        cmocka_unit_test(test_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
