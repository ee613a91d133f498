/* test_problems.c - All problems: gradients, optima, purity, suggested rates, shapes, arguments. */
#include "tests/support/problem_bench.h"

#include "experiments/problems/problem_wrapper.h"

#include <stdio.h>

/* ---- all problems ---------------------------------------------------------------------------- */

static const char *const small[][2] = {
    {"quad", "n=1"},
    {"quad", "n=30,cond=100"},
    {"quad", "n=31,cond=100,layout=shuffled,lambda_max=7"},
    {"nqm", "n=31,layout=shuffled"},
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

/* The plotted loss at x + h d. */
static double loss_along(struct bench *b, const double *d, double h)
{
    for (int64_t i = 0; i < b->n; i++)
        b->v[i] = b->x[i] + h * d[i];
    return b->p->eval(b->self, b->v, 1, NULL);
}

/* All losses here are quadratic, so that central differences are exact up to rounding: a step of
 * 1e-2 leaves 4 ulp of the loss over 2e-2.  Noise is additive, and the gradient at 0
 * is subtracted. */
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

/* The loss that a step returns at x + h d. */
static double step_along(struct bench *b, const double *d, double h)
{
    for (int64_t i = 0; i < b->n; i++)
        b->m[i] = b->x[i] + h * d[i];
    return b->p->eval(b->self, b->m, 3, b->v);
}

/* At the default sizes and near the start, the gradient of a step against differences of sixth
 * order of the loss that the same step returns.  Additive noise is measured as the gradient at the
 * optimum, which is 0 without noise. */
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

static void check_pure(const char *name, const char *args)
{
    struct bench a = opened(name, args, 8), b = opened(name, args, 8), c = opened(name, args, 9);
    size_t bytes = (size_t)a.n * sizeof *a.x;
    b.p->eval(b.self, b.g, 1, b.m);
    b.p->eval(b.self, b.m, 9, b.v);
    b.p->eval(b.self, b.v, 1, NULL);
    double fa = a.p->eval(a.self, a.x, 2, a.g), fb = b.p->eval(b.self, b.x, 2, b.g);
    c.p->eval(c.self, c.x, 2, c.g);
    assert_true(fa == fb);
    assert_memory_equal(a.x, b.x, bytes);
    assert_memory_equal(a.g, b.g, bytes);
    int fixed = strcmp(name, "quad") == 0 && !strstr(args, "start");
    fixed |= strcmp(name, "spike") == 0 && !*args; /* its base is then quad */
    fixed |= strcmp(name, "ema") == 0 && !strstr(args, "gauss");
    assert_int_equal(memcmp(a.g, c.g, bytes) == 0, fixed);
    done(&a);
    done(&b);
    done(&c);
}

/* Equal arguments give equal bytes, whatever was evaluated before; the seed matters where something
 * is random. */
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
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        check_pure(cases[k][0], cases[k][1]);
    for (int k = 0; k < qm_problem_count(); k++)
        check_pure(qm_problem_at(k)->name, "");
}

/* The suggested rates work: half the budget brings the loss nearer to its floor. */
static void test_suggestions(void **state)
{
    (void)state;
    for (int k = 0; k < qm_problem_count(); k++)
        for (int family = 0; family < 3 && qm_problem_at(k)->optimum; family++) {
            const struct qm_problem *p = qm_problem_at(k);
            int is_text = strcmp(p->name, "gpt") == 0; /* a smaller one; its losses count from 0 */
            struct bench b = opened(p->name, is_text ? "T=16,C=32,L=1,batch=4,eval=4" : "", 1);
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
            /* A spike stays in Adam's second moment for 11,513 steps, in which Adam
             * hardly moves. */
            int stands = family == 0 && strcmp(p->name, "spike") == 0;
            int is_chain = strcmp(p->name, "mclm") == 0;
            if (!(gap < (is_text ? 0.8 : is_chain ? 0.5 : stands ? 0.7 : 0.2)))
                fail_msg("%s: gap %g after %d steps", p->name, gap, (int)p->steps / 2);
            done(&b);
        }
}

static void test_shapes(void **state)
{
    static const struct {
        const char *name, *args, *shape;
    } cases[] = {
        {"quad", "", "32x32"},          {"quad", "n=65536", "256x256"},
        {"quad", "rows=1", "1024"},     {"quad", "rows=4", "4x256"},
        {"quad", "n=31", "31"},         {"nqm", "", "25x40"},
        {"nqm", "n=10000", "100x100"},  {"lowrank", "", "64x32"},
        {"quad", "n=1", "1"},           {"lowrank", "p=9,q=5", "9x5"},
        {"rosen", "", "8x8"},           {"logreg", "", "20"},
        {"factor", "", "48x4"},         {"embed", "", "4096x16"},
        {"mlp", "", "16x64"},           {"digits", "", "64x32"},
        {"mclm", "", "32x32"},          {"gpt", "", "75x64"},
        {"cnn", "", "16x1x3x3"},        {"ema", "", "8x16"},
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
        {"gpt", "heads=3", "heads is 3, expected a divisor of C = 64"},
        {"gpt", "tied=2", "tied is 2"},
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

/* The check of arguments reports misspelt words before a problem is opened, but not values that
 * only open refuses. */
static void test_well_written(void **state)
{
    static const struct {
        const char *name, *args, *message; /* NULL: well written */
    } cases[] = {
        {"quad", "n=64,layout=dct", NULL},
        {"quad", "n=0,cond=1e99", "quad: n is 0, expected a whole number from 1"},
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
