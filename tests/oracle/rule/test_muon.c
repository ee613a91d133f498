/* test_muon.c - The oracle of Muon on closed forms: momentum, decay, rates, batches, the
 * factor. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "oracle/oracle.h"

enum { MOST = 12 * 20 };
static const char *const families[] = {"muon_lin", "muon_bnb"};

static double draw(uint64_t stream, int i)
{
    return (double)(float)((double)qm_philox_stream(11, stream, (uint64_t)i) * 0x1p-31 - 1.0);
}

/* One step from zero parameters and zero momentum, with lr 1 and no decay: p = -ratio O. */
static void step(const char *family, const struct qm_shape *shape, const double *g,
                 struct qm_oracle_hyper h, double *p, double *m)
{
    double *slot[] = {m};
    memset(p, 0, MOST * sizeof *p);
    memset(m, 0, MOST * sizeof *m);
    h.lr = 1.0;
    h.eps = 1e-8;
    assert_int_equal(qm_oracle_step(qm_oracle_find(family), p, slot, g, shape, 0, &h, 1), QM_OK);
}

/* The five polynomials at s, as the papers print them. */
static double composed(int is_lin, double s)
{
    static const double lin[5][3] = {{4.0848, -6.8946, 2.9270},
                                     {3.9505, -6.3029, 2.6377},
                                     {3.7418, -5.5913, 2.3037},
                                     {2.8769, -3.1427, 1.2046},
                                     {2.8366, -3.0525, 1.2012}};
    static const double polar[5][3] = {
        {8.28721201814563, -23.595886519098837, 17.300387312530933},
        {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
        {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
        {3.3184196573706015, -2.488488024314874, 0.51004894012372},
        {2.300652019954817, -1.6689039845747493, 0.4188073119525673}};
    for (int t = 0; t < 5; t++) {
        const double *c = is_lin ? lin[t] : polar[t];
        double z = is_lin ? s : s / 1.05;
        s = z * (c[0] + z * z * (c[1] + z * z * c[2]));
    }
    return s;
}

/* Diagonal matrices: the factor has the polynomials of the normalized diagonal, but for roundings
 * to bfloat16 of the start and of five iterations.  Polar Express is steep where its polynomials
 * leave 1: there the rounding of the start alone, 2^-9, moves the result by 0.08. */
static void test_diagonal(void **state)
{
    (void)state;
    static const double diagonal[][3] = {{3, 0, 0}, {2, -2, 0}, {1, 1, 1}, {4, -2, 1}, {-1, 3, 2}};
    struct qm_shape shape = {2, {3, 4}};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof diagonal / sizeof *diagonal; i++) {
            double g[MOST] = {0}, p[MOST], m[MOST], norm = 0.0;
            for (int j = 0; j < 3; j++) {
                g[j * 4 + j] = diagonal[i][j];
                norm += diagonal[i][j] * diagonal[i][j];
            }
            step(families[k], &shape, g, (struct qm_oracle_hyper){0}, p, m);
            for (int j = 0; j < 12; j++) {
                double want = j % 5 ? 0.0 : composed(k == 0, g[j] / sqrt(norm));
                if (!(fabs(-p[j] - want) <= (j % 5 ? 0.0 : k ? 0.25 : 0.08)))
                    fail_msg("%s, diagonal %d: entry %d is %g, want %g", families[k], (int)i, j,
                             -p[j], want);
            }
        }
}

/* The factor of the transpose is the transpose; a power of two changes nothing; rows are nearly
 * orthonormal. */
static void test_symmetries(void **state)
{
    (void)state;
    struct qm_shape wide = {2, {12, 20}}, tall = {2, {20, 12}};
    for (int k = 0; k < 2; k++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            double g[MOST], turned[MOST], p[MOST], q[MOST], m[MOST];
            for (int i = 0; i < MOST; i++)
                turned[i % 20 * 12 + i / 20] = g[i] = draw(seed, i);
            step(families[k], &wide, g, (struct qm_oracle_hyper){0}, p, m);
            step(families[k], &tall, turned, (struct qm_oracle_hyper){0}, q, m);
            for (int i = 0; i < MOST; i++)
                assert_true(p[i] == q[i % 20 * 12 + i / 20]);
            for (int i = 0; i < MOST; i++)
                g[i] *= 1024.0;
            step(families[k], &wide, g, (struct qm_oracle_hyper){0}, q, m);
            for (int i = 0; i < MOST; i++)
                assert_true(p[i] == q[i]);
            for (int a = 0; a < 12; a++)
                for (int b = 0; b < 12; b++) {
                    double sum = 0.0;
                    for (int j = 0; j < 20; j++)
                        sum += p[a * 20 + j] * p[b * 20 + j];
                    assert_true(fabs(sum - (a == b)) < 0.5);
                }
        }
}

/* Momentum is a sum; Nesterov's form adds the gradient again; the decay precedes the step. */
static void test_step(void **state)
{
    (void)state;
    struct qm_shape shape = {2, {1, 2}};
    struct qm_oracle_hyper h = {
        .lr = 0.5, .momentum = 0.75, .weight_decay = 0.25, .eps = 1e-8, .nesterov = 1};
    for (int k = 0; k < 2; k++) {
        double p[2] = {8.0, 8.0}, m[2] = {4.0, -8.0}, g[2] = {1.0, 4.5}, *slot[] = {m};
        const struct qm_oracle *o = qm_oracle_find(families[k]);
        assert_int_equal(qm_oracle_step(o, p, slot, g, &shape, 0, &h, 7), QM_OK);
        assert_true(m[0] == 4.0 && m[1] == -1.5); /* U = 4, 3.375 */
        double s = composed(k == 0, 1.0), norm = sqrt(16.0 + 3.375 * 3.375);
        assert_true(fabs(p[0] - (7.0 - 0.5 * s * 4.0 / norm)) < 0.06);
        assert_true(fabs(p[1] - (7.0 - 0.5 * s * 3.375 / norm)) < 0.06);
    }
}

/* Rates by the sides, batches, one matrix of all but the first dim; vectors are refused. */
static void test_shapes(void **state)
{
    (void)state;
    struct qm_shape one = {2, {3, 20}}, three = {3, {4, 3, 20}}, flat = {2, {4, 60}};
    struct qm_shape four = {4, {4, 3, 4, 5}}, pairs = {3, {12, 4, 5}}, vector = {1, {20}};
    double g[MOST], p[MOST], q[MOST], m[MOST], *slot[] = {m};
    for (int i = 0; i < MOST; i++)
        g[i] = draw(99, i);
    for (int k = 0; k < 2; k++) {
        struct qm_oracle_hyper h = {.eps = 1e-8};
        step(families[k], &three, g, h, p, m);
        for (int b = 0; b < 4; b++) {
            step(families[k], &one, g + 60 * b, h, q, m);
            assert_memory_equal(q, p + 60 * b, 60 * sizeof *q);
        }
        step(families[k], &four, g, h, p, m);
        step(families[k], k ? &flat : &pairs, g, h, q, m);
        assert_memory_equal(p, q, sizeof p);
        h.flatten = 1;
        step(families[k], &three, g, h, p, m);
        step(families[k], k ? &three : &flat, g, h, q, m);
        assert_memory_equal(p, q, sizeof p);
        step(families[k], &flat, g, h, p, m);
        for (int adjust = 1; adjust < 3; adjust++) {
            double by = adjust == 1 ? sqrt(4.0 / 60.0) : 0.2 * sqrt(60.0);
            h.adjust = adjust;
            step(families[k], &flat, g, h, q, m);
            for (int i = 0; i < MOST; i++) /* muon_lin rounds the product to bfloat16 */
                assert_true(fabs(q[i] - by * p[i]) <= (k ? 0x1p-50 : 0x1p-8) * fabs(q[i]));
        }
        assert_int_equal(qm_oracle_step(qm_oracle_find(families[k]), p, slot, g, &vector, 0, &h, 1),
                         QM_BAD_ARG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_diagonal),
        cmocka_unit_test(test_symmetries),
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
