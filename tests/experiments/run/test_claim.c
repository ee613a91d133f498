/* test_claim.c - Claims: intervals in closed form and their coverage, verdicts, suites
 * with claims. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <glob.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "experiments/run/claim.h"
#include "experiments/run/summary.h"

static char path[] = "/tmp/qm_claim_XXXXXX";

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int drop_file(void **state)
{
    (void)state;
    return unlink(path);
}

static qm_status read_text(const char *text, struct qm_suite **s)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return qm_suite_read(path, s);
}

/* ---- statistics ------------------------------------------------------------------------------ */

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * (1.0 + fabs(want))))
        fail_msg("got %.15g, expected %.15g", got, want);
}

/* Student's quantiles have closed forms for one, two and four degrees of freedom:
 * t_1 = tan(pi (p - 1/2)); t_2 = a / sqrt(2 q), a = 2 p - 1, q = p (1 - p); and with
 * c = cos(acos(sqrt(4 q)) / 3) / sqrt(4 q), t_4 = 2 sqrt(c - 1). */
static void test_closed_forms(void **state)
{
    (void)state;
    struct qm_effect e;
    double p = 0.975, q = p * (1.0 - p), root = sqrt(4.0 * q);
    double t1 = tan(acos(-1.0) * (p - 0.5)), t2 = (2.0 * p - 1.0) / sqrt(2.0 * q);
    double t4 = 2.0 * sqrt(cos(acos(root) / 3.0) / root - 1.0);
    qm_mean_interval((const double[]){0, 2}, 2, 0.95, &e); /* s = sqrt 2, s / sqrt n = 1 */
    near(e.mean, 1.0);
    near(e.lo, 1.0 - t1);
    near(e.hi, 1.0 + t1);
    qm_mean_interval((const double[]){-1, 0, 1}, 3, 0.95, &e); /* s = 1 */
    near(e.hi, t2 / sqrt(3.0));
    near(e.lo, -e.hi);
    qm_mean_interval((const double[]){5, 3, 1, 2, 4}, 5, 0.95, &e); /* s^2 = 5 / 2 */
    near(e.mean, 3.0);
    near(e.hi, 3.0 + t4 * sqrt(0.5));
    assert_int_equal(e.n, 5);
    qm_mean_interval((const double[]){7, 7, 7}, 3, 0.95, &e);
    assert_true(e.lo == 7.0 && e.hi == 7.0);
    qm_mean_interval((const double[]){7}, 1, 0.95, &e);
    assert_true(e.mean == 7.0 && isinf(e.lo) && e.lo < 0 && isinf(e.hi) && e.hi > 0);
    qm_mean_interval(NULL, 0, 0.95, &e);
    assert_true(isnan(e.mean) && isnan(e.lo) && isnan(e.hi));
}

/* Of 4000 intervals for five normals, 95 % enclose the mean: 3800 +- 4 standard errors
 * (13.8 each). */
static void test_coverage(void **state)
{
    (void)state;
    int held = 0;
    for (int64_t k = 0; k < 4000; k++) {
        double x[5];
        struct qm_effect e;
        qm_normals(11, QM_STREAM_noise, k + 1, 0, 5, x);
        for (int i = 0; i < 5; i++)
            x[i] = 3.0 + 2.0 * x[i];
        qm_mean_interval(x, 5, 0.95, &e);
        held += e.lo <= 3.0 && 3.0 <= e.hi;
    }
    if (abs(held - 3800) > 55)
        fail_msg("%d of 4000", held);
}

static void test_verdicts(void **state)
{
    (void)state;
    static const struct {
        double lo, hi;
        enum qm_relation relation;
        double bound[2];
        enum qm_claim_verdict want;
    } cases[] = {
        {1, 2, QM_RELATION_above, {0, 0}, QM_CLAIM_VERDICT_holds},
        {-1, 2, QM_RELATION_above, {0, 0}, QM_CLAIM_VERDICT_undecided},
        {-2, -1, QM_RELATION_above, {0, 0}, QM_CLAIM_VERDICT_fails},
        {0, 0, QM_RELATION_above, {0, 0}, QM_CLAIM_VERDICT_fails}, /* no difference at all */
        {0, 0, QM_RELATION_below, {0, 0}, QM_CLAIM_VERDICT_fails},
        {1, 2, QM_RELATION_below, {0, 0}, QM_CLAIM_VERDICT_fails},
        {1, 2, QM_RELATION_below, {2.5, 0}, QM_CLAIM_VERDICT_holds},
        {1, 3, QM_RELATION_below, {2.5, 0}, QM_CLAIM_VERDICT_undecided},
        {1, 2, QM_RELATION_between, {0, 3}, QM_CLAIM_VERDICT_holds},
        {1, 4, QM_RELATION_between, {0, 3}, QM_CLAIM_VERDICT_undecided},
        {-1, 4, QM_RELATION_between, {0, 3}, QM_CLAIM_VERDICT_undecided},
        {3, 4, QM_RELATION_between, {0, 3}, QM_CLAIM_VERDICT_fails},
        {-2, -1, QM_RELATION_between, {0, 3}, QM_CLAIM_VERDICT_fails},
        {(double)-INFINITY,
         (double)INFINITY,
         QM_RELATION_above,
         {0, 0},
         QM_CLAIM_VERDICT_undecided},
        {(double)NAN, (double)NAN, QM_RELATION_above, {0, 0}, QM_CLAIM_VERDICT_undecided},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qm_effect e = {.lo = cases[i].lo, .hi = cases[i].hi};
        if (qm_claim_verdict_of(&e, cases[i].relation, cases[i].bound) != cases[i].want)
            fail_msg("case %zu", i);
    }
}

/* ---- suites ---------------------------------------------------------------------------------- */

#define VALID                                                             \
    "variant: ema4_uniform\nsource: dist:gauss\nseed: [1, 2]\nclaim: c\n" \
    "exp_avg: [a: \"nf4:4s/block:64\", b: \"int:4s/block:64/arith/even\"]\n"

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line, *word;
    } cases[] = {
        {VALID "expect: 3\n", ":6:", "list"},
        {VALID "expect:\n  - {value: sqnr}\n", ":7:", "needs 'value' and 'relation'"},
        {VALID "expect:\n  - {value: sqnr, relation: over 3}\n", ":7:", "above X"},
        {VALID "expect:\n  - {value: sqnr, relation: above}\n", ":7:", "above X"},
        {VALID "expect:\n  - {value: sqnr, relation: above 1 2}\n", ":7:", "above X"},
        {VALID "expect:\n  - {value: sqnr, relation: above 1 x}\n", ":7:", "above X"},
        {VALID "expect:\n  - {value: sqnr, relation: between 2 1}\n", ":7:", "X < Y"},
        {VALID "expect:\n  - {value: sqnr, relation: between 1 2 3}\n", ":7:", "X < Y"},
        {VALID "expect:\n  - {valeu: sqnr, relation: above 0}\n", ":7:", "no key 'valeu'"},
        {VALID "expect:\n  - {value: sqrn, relation: above 0}\n", ":7:", "'sqnr'"},
        {VALID "expect:\n  - {value: sqnr, of: {exp_avg: c}, relation: above 0}\n",
         ":7:", "no value 'c'"},
        {VALID "expect:\n  - {value: sqnr, versus: {exp_avg: c}, relation: above 0}\n",
         ":7:", "no value 'c'"},
        {VALID "expect:\n  - {value: sqnr, each: expavg, relation: above 0}\n",
         ":7:", "'each' is 'expavg', which is no axis"},
        {VALID "expect:\n  - {value: sqnr, unit: sead, relation: above 0}\n", ":7:", "'seed'"},
        {"variant: ema4_uniform\nsource: dist:gauss\nexpect:\n  - {value: sqnr, relation: above "
         "0}\n",
         ":4:", "without a 'claim'"},
        {VALID "claime: x\n", ":6:", "did you mean 'claim'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qm_suite *s = NULL;
        qm_status st = read_text(cases[i].text, &s);
        if (st == QM_OK)
            st = qm_claim_check(s, &s->expect[0]);
        if (st == QM_OK || !strstr(qm_message(), cases[i].line) ||
            !strstr(qm_message(), cases[i].word))
            fail_msg("case %zu: %d, '%s'", i, (int)st, qm_message());
        qm_suite_free(s);
    }
}

/* Reading the canonical text of a suite gives the same text, claims included. */
static void test_plan_reads_back(void **state)
{
    (void)state;
    struct qm_suite *s, *again;
    assert_int_equal(
        read_text(VALID "claim_source: \"a \\\"b\\\"\"\nexpect:\n"
                        "  - {value: sqnr, of: {exp_avg: a, seed: 1}, versus: {exp_avg: b},\n"
                        "     unit: seed, relation: between -1.5 2}\n"
                        "  - {value: collapse, relation: below 1}\n"
                        "  - {value: mse, of: {seed: 1}, each: exp_avg, relation: above 0}\n"
                        "  - {value: sqnr, relation: above 1}\n",
                  &s),
        QM_OK);
    assert_int_equal(s->n_expects, 5);
    for (int i = 0; i < 2; i++) { /* one for a, one for b, at the place of the original */
        const struct qm_expect *e = &s->expect[2 + i];
        assert_string_equal(e->value, "mse");
        assert_true(e->n_of == 2 && !e->each && e->line == 11);
        assert_string_equal(e->of_key[1], "exp_avg");
        assert_string_equal(e->of_label[1], i ? "b" : "a");
    }
    assert_string_equal(s->expect[4].value, "sqnr");
    assert_int_equal(s->expect[0].relation, QM_RELATION_between);
    assert_true(s->expect[0].bound[0] == -1.5 && s->expect[0].bound[1] == 2.0);
    assert_string_equal(s->expect[1].unit, "tensor");
    assert_int_equal(read_text(s->plan, &again), QM_OK);
    assert_string_equal(s->plan, again->plan);
    qm_suite_free(s);
    qm_suite_free(again);
}

/* Known values replace the metrics: sqnr = 10 * format + seed, collapse = seed^2, and the two block
 * sizes differ by 1.  Units are seeds, each the mean of its two cells. */
static void test_judge(void **state)
{
    (void)state;
    struct qm_results r = {0};
    struct qm_suite *s;
    struct qm_effect e[6];
    assert_int_equal(
        read_text("variant: ema4_uniform\nsource: dist:gauss\nseed: [1, 2, 3]\nclaim: c\n"
                  "exp_avg: [a: \"nf4:4s/block:64\", b: \"int:4s/block:64/arith/even\"]\n"
                  "exp_avg.norm: [\"block:64\", \"block:128\"]\nexpect:\n"
                  "  - {value: sqnr, of: {exp_avg: b}, versus: {exp_avg: a}, unit: seed, "
                  "relation: above 9}\n"
                  "  - {value: collapse, of: {exp_avg: a}, unit: seed, relation: below 4}\n"
                  "  - {value: sqnr, of: {exp_avg: a, exp_avg.norm: \"block:128\"}, "
                  "unit: exp_avg, relation: above 0}\n"
                  "  - {value: mse, unit: seed, relation: above 0}\n"
                  "  - {value: sqnr, each: exp_avg, unit: seed, relation: above 10}\n",
                  &s),
        QM_OK);
    assert_int_equal(qm_suite_cells(s, NULL, &r.cell, &r.n_cells), QM_OK);
    assert_int_equal(r.n_cells, 12);
    r.suite = s;
    r.outcome = calloc(12, sizeof *r.outcome);
    int format = qm_suite_axis(s, "exp_avg"), norm = qm_suite_axis(s, "exp_avg.norm");
    for (int i = 0; i < 12; i++) {
        const struct qm_cell *c = &r.cell[i];
        double seed = (double)c->seed;
        r.outcome[i].value = malloc((size_t)qm_value_count() * sizeof(double));
        for (int v = 0; v < qm_value_count(); v++)
            r.outcome[i].value[v] = nan("");
        r.outcome[i].value[qm_value_find("sqnr")] = 10.0 * qm_cell_value(s, c, format) + seed;
        r.outcome[i].value[qm_value_find("collapse")] = seed * seed + qm_cell_value(s, c, norm);
    }
    assert_int_equal(qm_claim_judge(&r, e), QM_OK);
    assert_true(e[0].mean == 10.0 && e[0].lo == 10.0 && e[0].hi == 10.0);
    assert_true(e[0].n == 3 && e[0].cells == 6 && e[0].verdict == QM_CLAIM_VERDICT_holds);
    near(e[1].mean, 14.0 / 3.0 + 0.5); /* 1.5, 4.5, 9.5 */
    near(e[1].hi - e[1].lo, 2.0 * 0.95 / sqrt(2.0 * 0.975 * 0.025) *
                                sqrt((1.0 / 6.0) * (pow(1.5, 2) + pow(4.5, 2) + pow(9.5, 2) -
                                                    3.0 * pow(14.0 / 3.0 + 0.5, 2))));
    assert_int_equal(e[1].verdict, QM_CLAIM_VERDICT_undecided);
    assert_true(e[2].n == 1 && e[2].mean == 2.0 && e[2].verdict == QM_CLAIM_VERDICT_undecided);
    assert_true(e[3].n == 0 && isnan(e[3].mean) && e[3].verdict == QM_CLAIM_VERDICT_undecided);
    assert_true(e[4].mean == 2.0 && e[4].n == 3 && e[4].verdict == QM_CLAIM_VERDICT_fails);
    assert_true(e[5].mean == 12.0 && e[5].n == 3 && e[5].verdict == QM_CLAIM_VERDICT_undecided);
    for (int i = 0; i < 12; i++)
        free(r.outcome[i].value);
    free(r.outcome);
    free(r.cell);
    qm_suite_free(s);
}

/* Of two cells the first has a control at a rate of its own: its gap there, 0.1, is set against the
 * twin's at the twin's rate, 1 and not 10, as the second's, which is 1. */
static void test_best_rates(void **state)
{
    (void)state;
    struct qm_results r = {0};
    struct qm_suite *s;
    struct qm_effect e;
    assert_int_equal(
        read_text("variant: [adamw_f32, adamw8_bnb]\nsource: \"problem:quad:n=4096\"\nsteps: 1\n"
                  "coupling: closed\nclaim: c\nexpect:\n  - {value: log_gap, unit: variant, of: "
                  "{variant: adamw_f32}, versus: {variant: adamw8_bnb}, relation: below 0}\n",
                  &s),
        QM_OK);
    struct qm_cell *cells;
    assert_int_equal(qm_suite_cells(s, NULL, &cells, &r.n_cells), QM_OK);
    assert_int_equal(r.n_cells, 2);
    r.cell = calloc(3, sizeof *r.cell);
    r.outcome = calloc(3, sizeof *r.outcome);
    r.suite = s;
    for (int i = 0; i < 3; i++) {
        r.cell[i] = cells[i % 2];
        r.cell[i].own = i ? 1 : 2;
        r.outcome[i].value = calloc((size_t)qm_value_count(), sizeof(double));
        r.outcome[i].value[qm_value_find("twin_gap")] = i == 2 ? 10.0 : 1.0;
        r.outcome[i].value[qm_value_find("log_gap")] = i == 2 ? -2.0 : 0.0;
    }
    r.cell[2].role = QM_CELL_own;
    r.n_cells = 3;
    assert_int_equal(qm_claim_judge(&r, &e), QM_OK);
    near(e.mean, -1.0);
    assert_true(e.n == 1 && e.cells == 1 && e.best == 1);
    r.cell[1].own = -1; /* nothing was tuned for one of them: both at the twin's rate */
    assert_int_equal(qm_claim_judge(&r, &e), QM_OK);
    assert_true(e.mean == 0.0 && e.best == 0);
    for (int i = 0; i < 3; i++)
        free(r.outcome[i].value);
    free(r.outcome);
    free(r.cell);
    free(cells);
    qm_suite_free(s);
}

/* The shipped claims can be read, name existing metrics and labels, and have a source. */
static void test_shipped_claims(void **state)
{
    (void)state;
    glob_t found;
    assert_int_equal(glob("experiments/suites/claims/*.yaml", 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= 10);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct qm_suite *s;
        if (qm_suite_read(found.gl_pathv[i], &s) != QM_OK)
            fail_msg("%s", qm_message());
        if (!s->title || !s->question || !s->claim || !s->claim_source || s->n_expects == 0)
            fail_msg("%s lacks title, question, claim, claim_source or expect", s->path);
        for (int k = 0; k < s->n_summaries; k++)
            if (qm_summary_check(s, &s->summary[k]) != QM_OK)
                fail_msg("%s", qm_message());
        for (int k = 0; k < s->n_expects; k++)
            if (qm_claim_check(s, &s->expect[k]) != QM_OK)
                fail_msg("%s", qm_message());
        qm_suite_free(s);
    }
    globfree(&found);
}

/* Of the formats of parameters, bfloat16 to nearest follows the twin worst, and bfloat16 with a
 * residual nearly as well as float32. */
static void test_stored_parameters_run(void **state)
{
    (void)state;
    struct qm_suite *s;
    struct qm_cell *cells;
    struct qm_results r = {0};
    int64_t n;
    assert_int_equal(read_text("variant: adamw_f32\nparam: [f32, bf16/near, bf16/kahan, "
                               "f16/ecc16, e4m3/near]\n"
                               "source: \"problem:quad:n=129\"\ncoupling: closed\nsteps: 50\n"
                               "lr: 0.01\n",
                               &s),
                     QM_OK);
    assert_int_equal(qm_suite_cells(s, NULL, &cells, &n), QM_OK);
    assert_int_equal(n, 5);
    assert_int_equal(qm_results_run(s, cells, n, 1, 0, NULL, &r), QM_OK);
    double db[5];
    for (int i = 0; i < 5; i++) {
        assert_null(r.outcome[i].reason);
        db[i] = r.outcome[i].value[qm_value_find("param_sqnr")];
    }
    if (!(db[4] < db[1] && db[1] < db[2] - 3.0 && db[2] < db[0] && db[1] < db[3] && db[3] < db[0]))
        fail_msg("movement: %.1f %.1f %.1f %.1f %.1f dB", db[0], db[1], db[2], db[3], db[4]);
    qm_results_free(&r);
    free(cells);
    qm_suite_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_forms),
        cmocka_unit_test(test_coverage),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_plan_reads_back),
        cmocka_unit_test(test_judge),
        cmocka_unit_test(test_best_rates),
        cmocka_unit_test(test_shipped_claims),
        cmocka_unit_test(test_stored_parameters_run),
    };
    return cmocka_run_group_tests(tests, make_file, drop_file);
}
