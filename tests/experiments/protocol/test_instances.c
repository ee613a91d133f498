/* test_instances.c - Instances of problems: other data, and intervals over instances and seeds.
 *
 * `test_instances all` makes 20,000 comparisons per rate. */
#include "tests/support/paired_cells.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>

#include "experiments/problems/problem_wrapper.h"
#include "experiments/protocol/tables.h"

static int everything;

/* The plotted loss at one drawn point of an instance, whose start and noise have seed 3. */
static double loss_at(const struct qm_problem *p, const char *args, int64_t instance, int *has_data)
{
    struct qm_shape shape[QM_PROBLEM_TENSORS];
    char *text;
    void *self;
    int n = 0;
    int64_t total = 0;
    if (qm_problem_instance(p, args, instance, &text, has_data) != QM_OK ||
        p->open(text, 3, &self, &n, shape) != QM_OK)
        fail_msg("%s %s: %s", p->name, args, qm_message());
    for (int i = 0; i < n; i++)
        total += qm_shape_numel(&shape[i]);
    double *x = calloc((size_t)total, sizeof *x);
    for (int64_t i = 0; i < total; i++)
        x[i] = 0.1 * sin(1 + (double)i);
    double loss = p->eval(self, x, 1, NULL);
    free(x);
    free(text);
    p->close(self);
    return loss;
}

/* Instance 1 is the problem as its arguments say; other instances have other data where the problem
 * or its innermost base has a data_seed, and the same loss where it has none. */
static void test_data(void **state)
{
    static const char *const wrapped[][2] = {{"heavy", "base=embed:rows=64,d=4"},
                                             {"spike", "at=3,base=lowrank"},
                                             {"heavy", "nu=3,base=spike:at=4,base=factor:r=2"},
                                             {"logreg", "data_seed=7,n=100"},
                                             {"logreg", "n=100,data_seed=7,d=10"},
                                             {"heavy", "base=nqm:n=64"},
                                             {"heavy", ""}};
    int with_data = 0, n = qm_problem_count(), more = sizeof wrapped / sizeof *wrapped;
    (void)state;
    for (int i = 0; i < n + more; i++) {
        const struct qm_problem *p = qm_problem_at(i);
        const char *args = i < n ? "" : wrapped[i - n][1];
        if (i >= n)
            assert_int_equal(qm_problem_find(wrapped[i - n][0], &p), QM_OK);
        if (!p->optimum || strcmp(p->name, "mclm") == 0 ||
            strcmp(p->name, "gpt") == 0) /* networks: a loss takes seconds */
            continue;
        char *text;
        int has_data, has_two;
        assert_int_equal(qm_problem_instance(p, args, 1, &text, &has_data), QM_OK);
        assert_string_equal(text, args);
        free(text);
        double one = loss_at(p, args, 1, &has_data), two = loss_at(p, args, 2, &has_two);
        if (has_data != has_two || (one == two) == has_data)
            fail_msg("%s:%s: %s data, losses %.17g and %.17g", p->name, args,
                     has_data ? "has" : "has no", one, two);
        with_data += has_data;
        int named = strstr(args, "data_seed") || strstr(p->args, "data_seed");
        assert_true(!named || has_data);
    }
    assert_true(with_data >= 10);
}

static void plant(struct paired_cells *a, const double shift[5])
{
    a->r.outcome = calloc((size_t)a->r.n_cells, sizeof *a->r.outcome);
    for (int64_t i = 0; i < a->r.n_cells; i++) {
        const struct qm_cell *c = &a->r.cell[i];
        struct qm_outcome *o = &a->r.outcome[i];
        double d = c->role == QM_CELL_plain
                       ? shift[c->instance] + 1e-3 * sin(5 * (double)qm_cell_seed(c))
                       : 0;
        o->value = calloc((size_t)qm_value_count(), sizeof *o->value);
        o->done = 1;
        double *x = o->value + qm_metric_count();
        x[QM_EXTRA_start_gap] = 1;
        x[QM_EXTRA_twin_gap] = 0.1 + 1e-9 * (double)qm_cell_seed(c);
        x[QM_EXTRA_gap] = x[QM_EXTRA_twin_gap] * pow(10, d);
        x[QM_EXTRA_log_gap] = x[QM_EXTRA_late] = x[QM_EXTRA_area] = d;
    }
}

/* Instances that differ widen the interval of a problem with data; a problem without data has more
 * seeds instead.  The ids of cells of instance 1 are those of the suite without the axis. */
static void test_levels(void **state)
{
    static const double shift[] = {0, 0.01, 0.13, 0.04, 0.1};
    struct paired_cells a;
    struct qm_protocol *p;
    (void)state;
    cells_of("variant: adamw4_ao\nsource: [\"problem:logreg\", \"problem:nqm:n=64\"]\n"
             "seed: 1..8\ninstance: 1..4\n" PAIRED,
             &a);
    assert_int_equal(qm_plain_cell_count(a.r.cell, a.r.n_cells), 64);
    assert_int_equal(a.r.n_cells, 64 * 3);
    plant(&a, shift);
    assert_int_equal(qm_protocol_make(&a.r, &p), QM_OK);
    for (int64_t i = 0; i < p->n_verdicts; i++) {
        const struct qm_verdict_row *v = &p->verdict[i];
        const struct qm_paired *d = &v->by[0].d;
        if (qm_run_cell(p, qm_group_run(p, &v->of, 0))->role != QM_CELL_plain)
            continue;
        int has_data = strcmp(p->problem.word[v->of.problem], "logreg") == 0;
        assert_int_equal(d->n, 32);
        assert_int_equal(d->instances, has_data ? 4 : 1);
        near_to(d->df, has_data ? 3 : 19, 0);
        if (!has_data)
            continue;
        near_to(d->mean, 0.07, 1e-3); /* t of 3 degrees of freedom at 97.5 % is 3.1824 */
        near_to(d->hi95 - d->mean, 3.1824 * 0.0548 / 2, 2e-3);
        assert_int_equal(v->by[0].verdict, QM_DECISION_undecided);
    }
    qm_protocol_free(p);
    release(&a);
}

/* Runs of instances differ in start, data and noise, and sources without a problem have none. */
static void test_cells(void **state)
{
    struct paired_cells a;
    (void)state;
    cells_of("variant: adamw_f32\nsource: [\"problem:logreg:batch=8\", \"dist:gauss\"]\n"
             "instance: [1, 2]\ncoupling: closed\nsteps: 3\n",
             &a);
    assert_non_null(strstr(a.r.cell[3].reason, "instance needs a problem"));
    struct qm_results r;
    assert_int_equal(qm_results_run(a.s, a.r.cell, 2, 1, 0, NULL, &r), QM_OK);
    a.r.outcome = r.outcome;
    a.r.seconds = r.seconds;
    a.r.n_cells = 4;
    const double *one = r.outcome[0].value + qm_metric_count(),
                 *two = r.outcome[1].value + qm_metric_count();
    assert_true(one[QM_EXTRA_start_gap] != two[QM_EXTRA_start_gap]);
    assert_true(one[QM_EXTRA_twin_gap] != two[QM_EXTRA_twin_gap]);
    struct qm_cell *cells = a.r.cell;
    for (int i = 0; i < 2; i++)
        qm_outcome_free(&r.outcome[i]);
    free(r.outcome);
    free(r.seconds);
    free(cells);
    qm_suite_free(a.s);
}

/* Comparisons of 4 instances x n seeds, sd of seeds 1 and of instances tau, with a true effect;
 * returns the share whose 95 % interval leaves out 0. */
static double found(gsl_rng *rng, int trials, int n, double tau, double effect)
{
    double d[64];
    int at[64], hits = 0;
    for (int t = 0; t < trials; t++) {
        struct qm_paired x;
        for (int i = 0; i < 4; i++) {
            double shift = effect + tau * gsl_ran_ugaussian(rng);
            for (int k = 0; k < n; k++) {
                d[n * i + k] = shift + gsl_ran_ugaussian(rng);
                at[n * i + k] = i;
            }
        }
        assert_int_equal(qm_paired_levels(d, at, 4 * n, &x), QM_OK);
        hits += x.lo95 > 0 || x.hi95 < 0;
    }
    return (double)hits / trials;
}

/* Nulls over instances and seeds differ in 5 % of cases, and effects of the size that `detectable`
 * states at the true spread are found in 80 %. */
static void test_power(void **state)
{
    int trials = everything ? 20000 : 2000;
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    (void)state;
    for (int k = 0; k < 3; k++) {
        double tau = 0.3 * k, error = sqrt((tau * tau + 1.09 / 16) / 4); /* trimming costs 9 % */
        double none = found(rng, trials, 16, tau, 0);
        double power = found(rng, trials, 16, tau, error * qm_detectable(3, 0.05, 0.8));
        printf("sd of instances %.1f: %.3f of nulls differ, %.3f of effects found\n", tau, none,
               power);
        near_to(none, 0.05, 4 * sqrt(0.05 * 0.95 / trials));
        near_to(power, 0.8, 4 * sqrt(0.8 * 0.2 / trials) + 0.02);
    }
    gsl_rng_free(rng);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_data), cmocka_unit_test(test_levels),
                                       cmocka_unit_test(test_cells), cmocka_unit_test(test_power)};
    everything = argc > 1 && strcmp(argv[1], "all") == 0;
    return cmocka_run_group_tests(tests, make_suite_file, remove_suite_file);
}
