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
    double momentum[NN], left[NN], right[NN], ev[2 * N], left_root[NN], right_root[NN], none[5];
};

static void step(struct state *s, double *p, const double *g, const struct qm_oracle_hyper *h,
                 int64_t t)
{
    double *slot[] = {s->momentum,  s->left,       s->right,   s->ev,
                      s->left_root, s->right_root, s->none,    s->none + 1,
                      s->none + 2,  s->none + 3,   s->none + 4};
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
    const struct qm_eigenbasis to = {vt, ev, e_vt, e_ev, NULL, 0};
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
    const struct qm_eigenbasis to = {vt, ev, e_vt, e_ev, NULL, 0};
    h.matrix_eps = 0.0; /* A has rank 1 */
    assert_int_equal(qm_kronecker_statistic(&h, N, 2, g, 0x1p-53, &to), QM_OK);
    assert_true(e_vt[0] < 1e-13);
    assert_true(isinf(e_vt[1]) && isinf(e_vt[2]));
}

static void test_tiles(void **state)
{
    (void)state;
    struct qm_oracle_hyper h = hyper();
    h.max_order = 4;
    struct qm_kronecker k = qm_kronecker_of(&h, &(struct qm_shape){3, {1, 8, 6}});
    assert_true(k.rows == 8 && k.cols == 6 && k.m == 4 && k.n == 4 && k.down == 2 && k.across == 2);
    k = qm_kronecker_of(&h, &(struct qm_shape){4, {3, 1, 2, 4}});
    assert_true(k.rows == 3 && k.cols == 8 && k.m == 3 && k.n == 4 && k.down == 1 && k.across == 2);
    assert_false(qm_kronecker_has(&(struct qm_shape){3, {1, 8, 1}}));
    assert_false(qm_kronecker_has(&(struct qm_shape){2, {0, 8}}));
}

/* ---- pieces of drawn sizes ------------------------------------------------------------------- */

enum { SIDE = 12, MOST = SIDE * SIDE * SIDE, SLOTS = 11 };

static uint64_t drawn;
static int64_t below(int64_t n)
{
    return (int64_t)(qm_philox_stream(11, 2, drawn++) % (uint64_t)n);
}

/* The numbers of the slots under SGD: momentum; vectors and roots of full pieces, left and right,
 * at 1 and 4, of last ones at 7 and 9; eigenvalues and diagonals at 3 and 6. */
struct numbers {
    double slot[SLOTS][MOST];
    int64_t at[SLOTS];
};

static double *next(struct numbers *s, int slot, int64_t n)
{
    s->at[slot] += n;
    return s->slot[slot] + s->at[slot] - n;
}

static void is_near(const double *got, const double *want, int64_t n, double size)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-12 * size))
            fail_msg("number %lld is %.17g, want %.17g", (long long)i, got[i], want[i]);
}

/* Checks one factor of order n of a tile x[n][inner], and gives its root with its diagonal. */
static void factor(struct numbers *s, const struct qm_oracle_hyper *h, int right, int last,
                   int64_t n, int64_t inner, const double *x, double *root)
{
    double vt[SIDE * SIDE] = {0}, ev[SIDE] = {0}, e_vt[SIDE], e_ev[SIDE], error;
    const struct qm_eigenbasis to = {vt, ev, e_vt, e_ev, NULL, 0};
    assert_int_equal(qm_kronecker_statistic(h, n, inner, x, 0x1p-53, &to), QM_OK);
    assert_int_equal(qm_kronecker_root(h, n, vt, ev, 0x1p-53, root, &error), QM_OK);
    is_near(next(s, (last ? 7 : 1) + right, n * n), vt, n * n, 1.0);
    is_near(next(s, 3, n), ev, n, ev[0] + 1.0);
    double whole[SIDE * SIDE];
    memcpy(whole, next(s, (last ? 9 : 4) + right, n * n), sizeof *whole * (size_t)(n * n));
    for (int64_t i = 0; i < n && h->min_lowbit > 0 && (double)(n * n) >= h->min_lowbit; i++) {
        assert_true(whole[i * n + i] == 0.0);
        whole[i * n + i] = *next(s, 6, 1);
    }
    is_near(whole, root, n * n, fabs(root[0]) + 100.0);
}

/* The factors of one side of tile (i, j); where `u` is not NULL, multiplies the tile by its root,
 * which was found before. */
static void side_of_tile(struct numbers *s, const struct qm_oracle_hyper *h,
                         const struct qm_shape *shape, const double *g, int64_t i, int64_t j,
                         int right, double *u)
{
    int64_t order = (int64_t)h->max_order, rows = shape->dim[0], cols = shape->dim[1];
    int64_t m = rows - i < order ? rows - i : order, n = cols - j < order ? cols - j : order;
    int64_t own = right ? n : m, inner = right ? m : n, side = right ? cols : rows;
    double x[SIDE * SIDE], root[SIDE * SIDE], old[SIDE * SIDE];
    for (int64_t a = 0; a < own; a++)
        for (int64_t b = 0; b < inner; b++) {
            int64_t at = (i + (right ? b : a)) * cols + j + (right ? a : b);
            x[a * inner + b] = g[at];
            old[a * inner + b] = u[at];
        }
    factor(s, h, right, own < order && own < side, own, inner, x, root);
    for (int64_t a = 0; a < own; a++)
        for (int64_t b = 0; b < inner; b++) {
            double sum = 0.0;
            for (int64_t k = 0; k < own; k++)
                sum += root[a * own + k] * old[k * inner + b];
            u[(i + (right ? b : a)) * cols + j + (right ? a : b)] = sum;
        }
}

/* Of a first step with both due, whatever the pieces: each factor is that of its tile alone, and
 * the momentum is the product of all tiles, grafted over the tensor. */
static void test_pieces(void **state)
{
    (void)state;
    struct numbers *s = malloc(sizeof *s);
    assert_non_null(s);
    for (int c = 0; c < 80; c++) {
        struct qm_oracle_hyper h = hyper();
        struct qm_shape shape = {2, {2 + below(SIDE - 1), 2 + below(SIDE - 1)}};
        int64_t n = qm_shape_numel(&shape), rows = shape.dim[0], cols = shape.dim[1];
        double p[SIDE * SIDE] = {0}, g[SIDE * SIDE], u[SIDE * SIDE], of_g = 0.0, of_u = 0.0;
        double *slot[SLOTS];
        h.max_order = (double)(1 + below(8));
        h.min_lowbit = (double)below(30);
        for (int64_t i = 0; i < n; i++) {
            u[i] = g[i] = (double)below(2001) * 1e-3 - 1.0;
            of_g += g[i] * g[i];
        }
        memset(s, 0, sizeof *s);
        for (int i = 0; i < SLOTS; i++)
            slot[i] = s->slot[i];
        assert_int_equal(
            qm_oracle_step(qm_oracle_find("shampoo_sgd"), p, slot, g, &shape, 0, &h, 1), QM_OK);
        for (int right = 0; right < 2; right++)
            for (int64_t i = 0; i < rows; i += (int64_t)h.max_order)
                for (int64_t j = 0; j < cols; j += (int64_t)h.max_order)
                    side_of_tile(s, &h, &shape, g, i, j, right, u);
        for (int64_t i = 0; i < n; i++)
            of_u += u[i] * u[i];
        for (int64_t i = 0; i < n; i++)
            u[i] *= sqrt(of_g) / (sqrt(of_u) + 1e-12);
        is_near(s->slot[0], u, n, 100.0 * sqrt(of_g));
    }
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_diagonal),  cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_converges), cmocka_unit_test(test_singular),
        cmocka_unit_test(test_tiles),     cmocka_unit_test(test_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
