/* test_problems_quadratic.c - The problems quad, nqm and lowrank against closed forms. */
#include "tests/support/problem_bench.h"

#include <stdio.h>

/* ---- quad ------------------------------------------------------------------------------------ */

/* Losses of n = 1024, condition 1e4, lambda_max 1, from the recurrences of the eigenvalues. */
static const int64_t table_steps[] = {0, 1, 10, 100, 1000, 10000};
static const double table_gd[] = {55.78025343072,  18.50627425719,   2.639020106468,
                                  0.2708216536421, 0.02274085527294, 3.790891812017e-4};
static const double table_ball[] = {55.78025343072,   18.50627425719,    10.44994702260,
                                    0.02358875263167, 3.715024795827e-4, 5.156039279434e-13};

/* 13 printed digits; a loss that has fallen by 12 decades keeps one digit less. */
#define PRINTED 2e-12

static void check_quad_table(const char *args, double momentum, const double *want)
{
    struct bench b = opened("quad", args, 1);
    for (int64_t t = 0, k = 0; t <= 10000; t++) {
        if (t > 0)
            sgdm_step(&b, 1, momentum, t);
        if (t != table_steps[k])
            continue;
        check_close(args, loss(&b), want[k], 20 * PRINTED);
        check_close("expected", b.p->expected(b.self, "sgdm", 1, momentum, t), want[k], PRINTED);
        k++;
    }
    done(&b);
}

static void test_quad_descent(void **state)
{
    (void)state;
    check_quad_table("", 0, table_gd);
    check_quad_table("", 0.9, table_ball);
    check_quad_table("layout=shuffled", 0.9, table_ball);
    struct bench b = opened("quad", "", 1);
    assert_true(isnan(b.p->expected(b.self, "adamw", 1, 0.9, 3)));
    done(&b);
}

static void check_quad_adam(const char *args, int n, const int64_t *steps, const double *want)
{
    struct bench b = opened("quad", args, 1);
    for (int64_t t = 1, k = 0; k < n; t++) {
        adam_step(&b, 1e-2, t);
        if (t == steps[k])
            check_close(args, loss(&b), want[k++], PRINTED);
    }
    done(&b);
}

static void test_quad_adam(void **state)
{
    static const int64_t steps[] = {1, 10, 100, 1000};
    static const double plain[] = {54.67022648883, 45.21711980412, 2.809988973310};
    static const double rotated[] = {55.51145343284, 53.71520394944, 41.34105908191,
                                     8.920604098114};
    (void)state;
    check_quad_adam("", 3, steps, plain);
    check_quad_adam("layout=shuffled", 3, steps, plain);
    check_quad_adam("layout=dct", 4, steps, rotated);
}

static int64_t largest_prime_factor(int64_t n)
{
    int64_t largest = 1;
    for (int64_t d = 2; n > 1; d++)
        for (; n % d == 0; n /= d)
            largest = d;
    return largest;
}

/* Q and its transpose against their definition in long double.  The FFT's error grows like
 * log n for small prime factors of n, and like the factor for large ones, whose twiddles are
 * a recurrence. */
static void test_quad_dct(void **state)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 30, 31, 64, 100, 127, 256};
    static long double q[256][256];
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int64_t n = sizes[s];
        char args[64];
        snprintf(args, sizeof args, "n=%d,cond=50,layout=dct", (int)n);
        struct bench b = opened("quad", args, 1);
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < n; k++)
                q[j][k] = sqrtl((k ? 2.0L : 1.0L) / (long double)n) *
                          cosl(acosl(-1) * (long double)((2 * j + 1) * k) / (long double)(2 * n));
        for (int64_t j = 0; j < n; j++) {
            long double sum = 0;
            for (int64_t k = 0; k < n; k++)
                sum += q[j][k];
            assert_true(fabsl(sum - (long double)b.x[j]) < 1e-14L * sqrtl((long double)n) * 4);
        }
        long double worst = 0;
        qm_normals(6, QM_STREAM_dist, 0, 0, n, b.x);
        b.p->eval(b.self, b.x, 1, b.g);
        for (int64_t j = 0; j < n; j++) {
            long double want = 0;
            for (int64_t k = 0; k < n; k++) {
                long double z = 0;
                for (int64_t i = 0; i < n; i++)
                    z += q[i][k] * (long double)b.x[i];
                want += q[j][k] * z * powl(50, n > 1 ? -(long double)k / (long double)(n - 1) : 0);
            }
            worst = fmaxl(worst, fabsl(want - (long double)b.g[j]));
        }
        if (worst > 1e-15L * (long double)largest_prime_factor(n))
            fail_msg("n = %d: error %Lg", (int)n, worst);
        done(&b);
    }
}

/* The shuffle is a permutation of the sorted problem and moves nearly everything. */
static void test_quad_shuffle(void **state)
{
    struct bench sorted = opened("quad", "", 1), b = opened("quad", "layout=shuffled", 1);
    int found = 0, moved = 0;
    (void)state;
    sorted.p->eval(sorted.self, sorted.x, 1, sorted.g);
    b.p->eval(b.self, b.x, 1, b.g);
    for (int i = 0; i < 1024; i++) {
        moved += b.g[i] != sorted.g[i];
        for (int j = 0; j < 1024; j++)
            found += b.g[j] == sorted.g[i];
    }
    assert_int_equal(found, 1024);
    assert_true(moved > 1000);
    done(&sorted);
    done(&b);
}

/* ---- nqm ------------------------------------------------------------------------------------- */

static void test_nqm_table(void **state)
{
    static const int64_t steps[] = {0, 1, 10, 100, 1000, 10000, 100000000};
    static const double sgd[] = {3.742735430275,  3.077446816793,  2.022275889248,
                                 0.9345494160664, 0.1400606716594, 0.03122810702882,
                                 0.03122603972332};
    static const double ball[] = {3.742735430275,  3.662105488640,  2.438387569274,
                                  0.9533794947174, 0.1381620080901, 0.02932741526262,
                                  0.02932543823376};
    struct bench b = opened("nqm", "", 1);
    (void)state;
    for (int k = 0; k < 7; k++) {
        check_close("SGD", b.p->expected(b.self, "sgdm", 0.5, 0, steps[k]), sgd[k], 1e-12);
        check_close("heavy ball", b.p->expected(b.self, "sgdm", 0.05, 0.9, steps[k]), ball[k],
                    1e-12);
    }
    assert_true(isnan(b.p->expected(b.self, "lion", 0.05, 0.9, 1)));
    assert_true(isnan(b.p->expected(b.self, "sgdm", 0.05, 1, 1)));
    check_close("lr 0", b.p->expected(b.self, "sgdm", 0, 0.9, 50), sgd[0], 1e-12);
    done(&b);
}

/* The matrix powers against the recurrence of E x^2, E v^2, E x v, step by step. */
static void test_nqm_recurrence(void **state)
{
    static const double rates[][2] = {{0.05, 0.9}, {0.5, 0.5}, {1.9, 0.2}, {0.01, 0.99}, {2.5, 0.9},
                                      {1, 0},      {0.1, 0},   {1.99, 0},  {0.3, -0.4}};
    struct bench b = opened("nqm", "n=50,batch=4", 1);
    (void)state;
    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
        double lr = rates[r][0], m = rates[r][1], a2[50], v2[50], av[50];
        for (int i = 0; i < 50; i++) {
            a2[i] = 1;
            v2[i] = av[i] = 0;
        }
        for (int t = 0; t <= 300; t++) {
            double sum = 0;
            for (int i = 0; i < 50; i++) {
                double h = 1.0 / (i + 1), x = lr * h, noise = lr * lr * h / 4;
                double a = a2[i], v = v2[i], c = av[i];
                sum += 0.5 * h * a;
                a2[i] = (1 - x) * (1 - x) * a + m * m * v + 2 * (1 - x) * m * c + noise;
                v2[i] = x * x * a + m * m * v - 2 * x * m * c + noise;
                av[i] = -(1 - x) * x * a + m * m * v + (1 - 2 * x) * m * c + noise;
            }
            check_close("recurrence", b.p->expected(b.self, "sgdm", lr, m, t), sum, 1e-11);
        }
    }
    done(&b);
}

/* Mean loss over runs against the closed form, in standard errors. */
static void check_monte_carlo(const char *args, double lr, double momentum, int runs)
{
    static const int64_t steps[] = {0, 1, 3, 10, 30, 100};
    double sum[6] = {0}, sum2[6] = {0}, want[6] = {0};
    for (int run = 0; run < runs; run++) {
        struct bench b = opened("nqm", args, 1000 + (uint64_t)run);
        for (int64_t t = 0, k = 0; t <= 100; t++) {
            if (t > 0)
                sgdm_step(&b, lr, momentum, t);
            if (t != steps[k])
                continue;
            double f = loss(&b);
            sum[k] += f;
            sum2[k] += f * f;
            want[k] = b.p->expected(b.self, "sgdm", lr, momentum, t);
            k++;
        }
        done(&b);
    }
    for (int k = 0; k < 6; k++) {
        double mean = sum[k] / runs, var = sum2[k] / runs - mean * mean;
        double error = sqrt(fmax(var, 0) / (runs - 1)) + 1e-12 * want[k];
        if (!(fabs(mean - want[k]) <= 3.5 * error))
            fail_msg("nqm %s, step %d: mean loss %.6g, expected %.6g +- %.2g", args, (int)steps[k],
                     mean, want[k], error);
    }
}

static void test_nqm_monte_carlo(void **state)
{
    (void)state;
    check_monte_carlo("n=300", 0.5, 0, 400);
    check_monte_carlo("n=300", 0.05, 0.9, 400);
    check_monte_carlo("n=100,batch=1,start=one", 0.5, 0, 1000);
    check_monte_carlo("n=100,batch=1,start=one", 0.05, 0.9, 1000);
    check_monte_carlo("n=100,batch=1,start=one,nu=6", 0.1, 0.9, 1000);
}

/* The noise has variance h / batch and is white over steps and elements. */
static void test_nqm_noise(void **state)
{
    enum { STEPS = 20000, ELEMENTS = 3 };
    struct bench b = opened("nqm", "n=3,batch=8", 5);
    double square[ELEMENTS] = {0}, lag[ELEMENTS] = {0}, cross = 0, last[ELEMENTS] = {0};
    (void)state;
    memset(b.x, 0, ELEMENTS * sizeof *b.x);
    for (int t = 1; t <= STEPS; t++) {
        b.p->eval(b.self, b.x, t, b.g);
        for (int i = 0; i < ELEMENTS; i++) {
            double z = b.g[i] * sqrt(8.0 * (i + 1));
            square[i] += z * z / STEPS;
            lag[i] += z * last[i] / STEPS;
            last[i] = z;
        }
        cross += last[0] * last[1] / STEPS;
    }
    for (int i = 0; i < ELEMENTS; i++) {
        assert_true(fabs(square[i] - 1) < 4 * sqrt(2.0 / STEPS));
        assert_true(fabs(lag[i]) < 4 / sqrt(STEPS));
    }
    assert_true(fabs(cross) < 4 / sqrt(STEPS));
    done(&b);
}

/* ---- lowrank --------------------------------------------------------------------------------- */

static void test_lowrank_known(void **state)
{
    struct bench b = opened("lowrank", "init=0", 1);
    double row_lo = 1e300, row_hi = 0, column_lo = 1e300, column_hi = 0;
    (void)state;
    check_close("f(0)", b.p->eval(b.self, b.x, 1, b.g), 8.566898927855, 1e-12);
    check_close("floor", b.p->optimum(b.self), 1.457070888422267e-2, 1e-13);
    for (int i = 0; i < 64; i++) {
        double top = 0;
        for (int j = 0; j < 32; j++)
            top = fmax(top, fabs(b.g[32 * i + j]));
        row_lo = fmin(row_lo, top);
        row_hi = fmax(row_hi, top);
    }
    for (int j = 0; j < 32; j++) {
        double top = 0;
        for (int i = 0; i < 64; i++)
            top = fmax(top, fabs(b.g[32 * i + j]));
        column_lo = fmin(column_lo, top);
        column_hi = fmax(column_hi, top);
    }
    check_close("rows", row_hi / row_lo, 1.56e4, 0.005);
    check_close("columns", column_hi / column_lo, 2.12e2, 0.005);
    assert_true(isnan(b.p->expected(b.self, "sgdm", 0.1, 0.9, 1)));
    done(&b);
}

static void test_data_generator(void **state)
{
    static const double want[] = {0.2946161959, -0.2432457053, 1.0336144689, 1.1105366751};
    double z[5] = {0};
    void *data;
    (void)state;
    assert_int_equal(qm_data_open(12345, &data), QM_OK);
    qm_data_normals(data, 4, z);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(z[i] - want[i]) < 1e-10);
    qm_data_close(data);
    assert_int_equal(qm_data_open(12345, &data), QM_OK);
    z[1] = 7;
    qm_data_normals(data, 1, z); /* the next array must not begin with the dropped sine */
    assert_true(z[1] == 7);
    qm_data_normals(data, 1, z);
    assert_true(fabs(z[0] - want[2]) < 1e-10);
    qm_data_close(data);
}

/* The mean of minibatch gradients is the exact gradient. */
static void test_lowrank_minibatch(void **state)
{
    enum { STEPS = 4000, NUMEL = 20 };
    struct bench full = opened("lowrank", "n=30,p=5,q=4", 2);
    struct bench b = opened("lowrank", "n=30,p=5,q=4,batch=3", 2);
    double sum2[NUMEL] = {0};
    (void)state;
    full.p->eval(full.self, full.x, 1, full.g);
    assert_memory_equal(full.x, b.x, NUMEL * sizeof *b.x);
    for (int t = 1; t <= STEPS; t++) {
        b.p->eval(b.self, b.x, t, b.g);
        for (int i = 0; i < NUMEL; i++) {
            b.m[i] += b.g[i] / STEPS;
            sum2[i] += b.g[i] * b.g[i] / STEPS;
        }
    }
    for (int i = 0; i < NUMEL; i++) {
        double error = sqrt((sum2[i] - b.m[i] * b.m[i]) / STEPS);
        assert_true(error > 0 && fabs(b.m[i] - full.g[i]) < 4.5 * error);
    }
    done(&full);
    done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quad_descent),      cmocka_unit_test(test_quad_adam),
        cmocka_unit_test(test_quad_dct),          cmocka_unit_test(test_quad_shuffle),
        cmocka_unit_test(test_nqm_table),         cmocka_unit_test(test_nqm_recurrence),
        cmocka_unit_test(test_nqm_monte_carlo),   cmocka_unit_test(test_nqm_noise),
        cmocka_unit_test(test_lowrank_known),     cmocka_unit_test(test_data_generator),
        cmocka_unit_test(test_lowrank_minibatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
