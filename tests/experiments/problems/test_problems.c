/* test_problems.c - problems against known answers, closed forms and finite differences. */
#include "tests/support/problem_bench.h"

#include "experiments/problems/problem_wrapper.h"

#include <stdio.h>

/* ---- all problems ---------------------------------------------------------------------------- */

static const char *const small[][2] = {
    {"quad", "n=1"},
    {"quad", "n=30,cond=100"},
    {"quad", "n=31,cond=100,layout=shuffled,lambda_max=7"},
    {"quad", "n=2,layout=dct"},
    {"quad", "n=33,cond=100,layout=dct"},
    {"quad", "n=64,cond=1e6,layout=dct,rows=8"},
    {"nqm", "n=40"},
    {"nqm", "n=1,batch=4,start=one"},
    {"nqm", "n=37,batch=0.1,nu=3"},
    {"lowrank", "n=20,p=7,q=3"},
    {"lowrank", "n=9,p=1,q=1,init=0"},
    {"lowrank", "n=12,p=5,q=4,data_seed=3"},
};
#define SMALL (sizeof small / sizeof small[0])

/* Loss at x + h d. */
static double loss_along(struct bench *b, const double *d, double h)
{
    for (int64_t i = 0; i < b->n; i++)
        b->v[i] = b->x[i] + h * d[i];
    return b->p->eval(b->self, b->v, 1, NULL);
}

/* All losses here are quadratic, where central differences are exact up to rounding: step 1e-2
 * leaves 4 ulp of the loss over 2e-2.  Noise is additive and taken off by the gradient at 0. */
static void check_derivative(struct bench *b, const double *noise, const double *d)
{
    double slope = 0, h = 1e-2, room = 0;
    double up = loss_along(b, d, h), down = loss_along(b, d, -h);
    for (int64_t i = 0; i < b->n; i++) {
        double term = (b->g[i] - noise[i]) * d[i];
        slope += term;
        room += 1e-13 * (fabs(term) + fabs(noise[i] * d[i]));
    }
    room += 4 * (double)b->n * 2.2e-16 * (fabs(up) + fabs(down)) / (2 * h);
    if (!(fabs((up - down) / (2 * h) - slope) <= room))
        fail_msg("%s: derivative %.15g, gradient %.15g, room %g", b->p->name, (up - down) / (2 * h),
                 slope, room);
}

static void check_gradient(const char *name, const char *args, int every_coordinate)
{
    struct bench b = opened(name, args, 4);
    double *noise = calloc((size_t)b.n, sizeof *noise);
    assert_non_null(noise);
    if (strcmp(name, "nqm") == 0)
        b.p->eval(b.self, noise, 3, b.m), memcpy(noise, b.m, (size_t)b.n * sizeof *noise);
    qm_normals(77, QM_STREAM_dist, 0, 0, b.n, b.x);
    double f = b.p->eval(b.self, b.x, 3, b.g);
    assert_true(f ==
                b.p->eval(b.self, b.x, 5, NULL)); /* the loss has no noise, here no minibatch */
    for (int64_t i = 0; every_coordinate && i < b.n; i++) {
        memset(b.m, 0, (size_t)b.n * sizeof *b.m);
        b.m[i] = 1;
        check_derivative(&b, noise, b.m);
    }
    qm_normals(78, QM_STREAM_dist, 0, 0, b.n, b.m);
    check_derivative(&b, noise, b.m);
    free(noise);
    done(&b);
}

static void test_gradients(void **state)
{
    (void)state;
    for (size_t k = 0; k < SMALL; k++)
        check_gradient(small[k][0], small[k][1], 1);
    check_gradient("quad", "", 0);
    check_gradient("nqm", "", 0);
    check_gradient("lowrank", "", 0);
    check_gradient("quad", "n=65536,layout=dct", 0);
}

/* The loss that a step returns, at x + h d. */
static double step_along(struct bench *b, const double *d, double h)
{
    for (int64_t i = 0; i < b->n; i++)
        b->m[i] = b->x[i] + h * d[i];
    return b->p->eval(b->self, b->m, 3, b->v);
}

/* At the default sizes: the gradient of a step against differences of sixth order of the loss that
 * the same step returns, near the start.  Additive noise is the gradient at the optimum, which else
 * is 0. */
static void check_direction(const char *name)
{
    static const double weight[] = {0, 45, -9, 1};
    struct bench b = opened(name, "", 4);
    double *d = malloc(2 * (size_t)b.n * sizeof *d), *noise = d + b.n, h = 1e-5;
    double slope = 0, size = 0, change = 0;
    assert_non_null(d);
    memset(noise, 0, (size_t)b.n * sizeof *noise);
    if (strcmp(name, "nqm") == 0 || strcmp(name, "heavy") == 0) {
        b.p->argmin ? b.p->argmin(b.self, b.m) : (void)memset(b.m, 0, (size_t)b.n * sizeof *b.m);
        b.p->eval(b.self, b.m, 3, noise);
    }
    qm_normals(78, QM_STREAM_dist, 0, 0, b.n, d);
    for (int64_t i = 0; i < b.n; i++)
        b.x[i] += 0.1 * d[i];
    qm_normals(79, QM_STREAM_dist, 0, 0, b.n, d);
    b.p->eval(b.self, b.x, 3, b.g);
    for (int64_t i = 0; i < b.n; i++) {
        slope += (b.g[i] - noise[i]) * d[i];
        size += fabs(b.g[i] * d[i]);
    }
    for (int k = 1; k <= 3; k++)
        change += weight[k] * (step_along(&b, d, k * h) - step_along(&b, d, -k * h));
    if (!(fabs(change / (60 * h) - slope) <= 1e-7 * size))
        fail_msg("%s: differences give %.12g, the gradient %.12g, terms %g", name,
                 change / (60 * h), slope, size);
    free(d);
    done(&b);
}

static void test_directions(void **state)
{
    (void)state;
    for (int k = 0; k < qm_problem_count(); k++)
        if (qm_problem_at(k)->optimum)
            check_direction(qm_problem_at(k)->name);
}

static void check_optimum(const char *name, const char *args)
{
    struct bench b = opened(name, args, 4);
    double start = 0, end = 0;
    if (!b.p->argmin || !b.p->optimum) {
        done(&b);
        return;
    }
    double floor_value = b.p->optimum(b.self);
    assert_true(loss(&b) > floor_value);
    b.p->eval(b.self, b.x, 1, b.g);
    for (int64_t i = 0; i < b.n; i++)
        start += b.g[i] * b.g[i];
    b.p->argmin(b.self, b.x);
    check_close("floor", loss(&b), floor_value, 5e-14);
    b.p->eval(b.self, b.x, 1, b.g);
    for (int64_t i = 0; i < b.n; i++)
        end += b.g[i] * b.g[i];
    if (!strstr("nqm logreg mlp", name)) /* whose gradients are noisy at the optimum too */
        assert_true(sqrt(end) <= 1e-14 * (double)b.n * sqrt(start));
    for (uint64_t seed = 0; seed < 20; seed++) {
        qm_normals(seed, QM_STREAM_dist, 0, 0, b.n, b.m);
        assert_true(loss_along(&b, b.m, 1e-3) > floor_value);
    }
    done(&b);
}

static void test_optima(void **state)
{
    (void)state;
    for (size_t k = 0; k < SMALL; k++)
        check_optimum(small[k][0], small[k][1]);
    for (int k = 0; k < qm_problem_count(); k++)
        check_optimum(qm_problem_at(k)->name, "");
}

/* Same arguments, same bytes, whatever was asked before; seeds matter where something is random. */
static void test_pure(void **state)
{
    static const char *const cases[][2] = {
        {"quad", "layout=shuffled"},
        {"quad", "layout=dct"},
        {"nqm", ""},
        {"nqm", "nu=4,start=one"},
        {"lowrank", "n=64,p=8,q=8"},
        {"lowrank", "batch=16"},
        {"rosen", ""},
        {"logreg", "n=100"},
        {"factor", ""},
        {"embed", ""},
        {"mlp", ""},
        {"mlp", "phi=relu"},
        {"digits", ""},
        {"mclm", ""},
        {"mclm", "order=2,K=8,L=2"},
        {"heavy", "base=rosen"},
        {"spike", "at=2,base=nqm"},
        {"ema", "case=gauss"},
        {"ema", "at=1"},
        {"quad", "start=normal"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct bench a = opened(cases[k][0], cases[k][1], 8),
                     b = opened(cases[k][0], cases[k][1], 8);
        struct bench c = opened(cases[k][0], cases[k][1], 9);
        size_t bytes = (size_t)a.n * sizeof *a.x;
        b.p->eval(b.self, b.g, 1, b.m);
        b.p->eval(b.self, b.m, 9, b.v);
        b.p->eval(b.self, b.v, 1, NULL);
        double fa = a.p->eval(a.self, a.x, 2, a.g), fb = b.p->eval(b.self, b.x, 2, b.g);
        c.p->eval(c.self, c.x, 2, c.g);
        assert_true(fa == fb);
        assert_memory_equal(a.x, b.x, bytes);
        assert_memory_equal(a.g, b.g, bytes);
        int fixed = strcmp(cases[k][0], "quad") == 0 && !strstr(cases[k][1], "start");
        fixed |= strcmp(cases[k][0], "ema") == 0 && !strstr(cases[k][1], "gauss");
        assert_int_equal(memcmp(a.g, c.g, bytes) == 0, fixed);
        done(&a);
        done(&b);
        done(&c);
    }
}

/* The suggested rates work: half the budget brings the loss nearer to its floor. */
static void test_suggestions(void **state)
{
    (void)state;
    for (int k = 0; k < qm_problem_count(); k++)
        for (int family = 0; family < 3 && qm_problem_at(k)->optimum; family++) {
            const struct qm_problem *p = qm_problem_at(k);
            struct bench b = opened(p->name, "", 1);
            double first = loss(&b), best = b.p->optimum(b.self);
            for (int64_t t = 1; t <= p->steps / 2; t++) {
                if (family == 0)
                    adam_step(&b, p->lr_adamw, t);
                else if (family == 1)
                    sgdm_step(&b, p->lr_sgdm, 0.9, t);
                else
                    lion_step(&b, p->lr_lion, t);
            }
            double gap = (loss(&b) - best) / (first - best);
            /* A spike stays in Adam's second moment for 11,513 steps: from its step on Adam stands. */
            int stands = family == 0 && strcmp(p->name, "spike") == 0;
            if (!(gap < (strcmp(p->name, "mclm") == 0 ? 0.5 : stands ? 0.7 : 0.2)))
                fail_msg("%s: gap %g after %d steps", p->name, gap, (int)p->steps / 2);
            done(&b);
        }
}

static void test_shapes(void **state)
{
    static const struct {
        const char *name, *args, *shape;
    } cases[] = {
        {"quad", "", "32x32"},          {"quad", "n=65536", "256x256"}, {"quad", "rows=1", "1024"},
        {"quad", "rows=4", "4x256"},    {"quad", "n=31", "31"},         {"nqm", "", "25x40"},
        {"nqm", "n=10000", "100x100"},  {"lowrank", "", "64x32"},       {"quad", "n=1", "1"},
        {"lowrank", "p=9,q=5", "9x5"},  {"rosen", "", "8x8"},           {"logreg", "", "20"},
        {"factor", "", "48x4"},         {"embed", "", "4096x16"},       {"mlp", "", "16x64"},
        {"digits", "", "64x32"},        {"mclm", "", "32x32"},          {"ema", "", "8x16"},
        {"spike", "base=mlp", "16x64"},
    };
    char text[64];
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct bench b = opened(cases[k].name, cases[k].args, 1);
        assert_string_equal(qm_shape_print(&b.shape[0], text, sizeof text), cases[k].shape);
        done(&b);
    }
}

static void test_names_and_arguments(void **state)
{
    static const struct {
        const char *name, *args, *message;
    } bad[] = {
        {"quad", "conf=3",
         "quad: no argument 'conf'; there are n, cond, lambda_max, layout, rows, start"},
        {"quad", "n=0", "n is 0, expected a whole number from 1"},
        {"quad", "n=10.5", "whole number"},
        {"quad", "layout=random", "expected one of sorted|shuffled|dct"},
        {"quad", "rows=7", "rows is 7, expected a divisor of n = 1024"},
        {"quad", "cond=inf", "expected a number"},
        {"nqm", "nu=0.01", "expected 0 (normal) or from 0.1"},
        {"nqm", "batch", "n is 'batch', expected a number"},
        {"nqm", "n=3,n=4", "n is given twice"},
        {"lowrank", "n=10", "p is 64, expected at most n = 10"},
        {"lowrank", "data_seed=0", "data_seed is 0"},
        {"lowrank", "1,1,1,0,0,1,1", "one value too many, it takes 6"},
        {"logreg", "lambda=0", "lambda is 0, expected above 0 for labels=noisy"},
        {"factor", "m=3", "m=3,n=32,r=4, expected m >= n >= r"},
        {"mlp", "student=7", "student is 7, expected at least teacher = 8"},
        {"mclm", "heads=3", "heads is 3, expected a divisor of C = 32"},
        {"mclm", "order=3", "order is 3"},
        {"spike", "base=quad:n=0", "quad: n is 0"},
        {"spike", "base=ema", "base is ema, expected a problem with a loss"},
        {"heavy", "base=nqn", "heavy: base: no problem 'nqn'; did you mean 'nqm'?"},
        {"heavy", "n=3,base=quad", "heavy: no argument 'n'"},
        {"heavy", "nu=0,base=quad", "nu is 0, expected a number from 0.1"},
    };
    const struct qm_problem *p = NULL;
    (void)state;
    assert_true(qm_problem_count() >= 13);
    for (int k = 0; k < qm_problem_count(); k++) {
        assert_int_equal(qm_problem_find(qm_problem_at(k)->name, &p), QM_OK);
        assert_ptr_equal(p, qm_problem_at(k));
        p->close(NULL);
    }
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        void *self = NULL;
        int n_tensors = -1;
        struct qm_shape shapes[QM_PROBLEM_TENSORS];
        assert_int_equal(qm_problem_find(bad[k].name, &p), QM_OK);
        assert_int_equal(p->open(bad[k].args, 1, &self, &n_tensors, shapes), QM_BAD_ARG);
        if (!strstr(qm_message(), bad[k].message))
            fail_msg("'%s' gave: %s", bad[k].args, qm_message());
        assert_null(self);
        assert_int_equal(n_tensors, -1);
    }
    p = NULL;
    assert_int_equal(qm_problem_find("nqn", &p), QM_NO_MATCH);
    assert_non_null(strstr(qm_message(), "did you mean 'nqm'?"));
    assert_int_equal(qm_problem_find("rastrigin", &p), QM_NO_MATCH);
    assert_null(p);
    assert_null(qm_problem_at(-1));
    assert_null(qm_problem_at(qm_problem_count()));
}

/* What is misspelt is told from what a problem does not do, before anything is opened. */
static void test_well_written(void **state)
{
    static const struct {
        const char *name, *args, *message; /* NULL: well written */
    } cases[] = {
        {"quad", "n=64,layout=dct", NULL},
        {"quad", "n=0,cond=1e99", NULL},
        {"quad", "64,10:5", NULL},
        {"quad", "n=64,nn=4", "quad: no argument 'nn'; there are n, cond"},
        {"quad", "layout=sortd", "layout is 'sortd', expected one of sorted|shuffled|dct"},
        {"quad", "n=4x", "n is '4x', expected a number"},
        {"quad", "base=quad", "no argument 'base'"},
        {"spike", "", NULL},
        {"spike", "at=3,base=heavy:nu=1.5,base=mclm:T=4,C=8", NULL},
        {"spike", "att=3,base=quad",
         "no argument 'att'; there are at, count, gap, times, zero, "
         "shift, by, clip, base"},
        {"spike", "at=3,base=heavy:nu=1.5,base=mclm:T=4,D=8", "mclm: no argument 'D'"},
        {"spike", "at=3,base=heavy:mu=1.5,base=mclm", "heavy: no argument 'mu'"},
        {"heavy", "base=nqn", "heavy: base: no problem 'nqn'; did you mean 'nqm'?"},
        {"heavy", "base=ema", "base is ema, expected a problem with a loss"},
        {"heavy", "3,0.1,quad", "heavy: base is 'quad', expected one of NAME:ARGS"},
    };
    const struct qm_problem *p = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(qm_problem_find(cases[i].name, &p), QM_OK);
        qm_status st = qm_problem_wrapper_check(p, cases[i].args);
        if (st != (cases[i].message ? QM_BAD_ARG : QM_OK) ||
            (cases[i].message && !strstr(qm_message(), cases[i].message)))
            fail_msg("%s:%s gave %d: %s", p->name, cases[i].args, (int)st, qm_message());
    }
    for (int k = 0; k < qm_problem_count(); k++) {
        p = qm_problem_at(k);
        assert_int_equal(qm_problem_wrapper_check(p, p->args), QM_OK);
        assert_int_equal(qm_problem_wrapper_check(p, NULL), QM_OK);
        assert_int_equal(qm_problem_wrapper_check(p, "nonsense=1"), QM_BAD_ARG);
        assert_non_null(strstr(qm_message(), "no argument 'nonsense'; there are "));
        for (int i = 0; i < p->n_args; i++)
            assert_non_null(strstr(qm_message(), p->arg[i].key));
    }
}

/* ---- quad ------------------------------------------------------------------------------------ */

/* n = 1024, condition 1e4, lambda_max 1; from the eigenvalue recurrences. */
static const int64_t table_steps[] = {0, 1, 10, 100, 1000, 10000};
static const double table_gd[] = {55.78025343072,  18.50627425719,   2.639020106468,
                                  0.2708216536421, 0.02274085527294, 3.790891812017e-4};
static const double table_ball[] = {55.78025343072,   18.50627425719,    10.44994702260,
                                    0.02358875263167, 3.715024795827e-4, 5.156039279434e-13};

/* 13 printed digits; a loss with 12 decades behind it keeps one digit less. */
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

/* Q and its transpose against their definition in long double.  The FFT's error grows like log n
 * for small factors and, its twiddles being a recurrence there, like the factor for large ones. */
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

/* The powers against the plain recurrence of E x^2, E v^2, E x v, step by step. */
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

/* Noise of variance h / batch, white over steps and elements. */
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
    qm_data_normals(data, 1, z); /* the sine is dropped, not kept for the next array */
    assert_true(z[1] == 7);
    qm_data_normals(data, 1, z);
    assert_true(fabs(z[0] - want[2]) < 1e-10);
    qm_data_close(data);
}

/* A minibatch gradient has the exact gradient as its mean. */
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
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_directions),
        cmocka_unit_test(test_optima),
        cmocka_unit_test(test_pure),
        cmocka_unit_test(test_suggestions),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_names_and_arguments),
        cmocka_unit_test(test_well_written),
        cmocka_unit_test(test_quad_descent),
        cmocka_unit_test(test_quad_adam),
        cmocka_unit_test(test_quad_dct),
        cmocka_unit_test(test_quad_shuffle),
        cmocka_unit_test(test_nqm_table),
        cmocka_unit_test(test_nqm_recurrence),
        cmocka_unit_test(test_nqm_monte_carlo),
        cmocka_unit_test(test_nqm_noise),
        cmocka_unit_test(test_lowrank_known),
        cmocka_unit_test(test_data_generator),
        cmocka_unit_test(test_lowrank_minibatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
