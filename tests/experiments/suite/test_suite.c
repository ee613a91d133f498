/* test_suite.c - Suites: errors with lines, products, skipped cells; summaries of known values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/run/summary.h"
#include "experiments/source/tensor_class.h"

#define VALID "variant: ema4_uniform\nsource: dist:gauss\n"

static char path[] = "/tmp/qm_suite_XXXXXX";

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

/* ---- reading --------------------------------------------------------------------------------- */

static void test_errors(void **state)
{
    static const struct {
        const char *text, *line, *word;
    } cases[] = {
        {VALID "sseed: 1\n", ":3:", "did you mean 'seed'"},
        {VALID "zzzzzzzz: 1\n", ":3:", "no key 'zzzzzzzz'"},
        {VALID "\nvariant: x\n", ":4:", "first on line 1"},
        {"variant: ema4_uniform\n", ":1:", "no 'source'"},
        {"source: dist:gauss\n", ":1:", "no 'variant'"},
        {VALID "every: 0\n", ":3:", "at least 1"},
        {VALID "contrast: none\nevery: 0\n", ":4:", "at least 1"},
        {VALID "contrast: {variant: {pairs: all}}\n", ":3:", "without 'protocol: paired'"},
        {VALID "protocol: paired\ncontrast: {seed: {pairs: all}}\n", ":4:", "no axis of variants"},
        {VALID "protocol: paired\ncontrast: {variant: {against: x}}\n",
         ":4:", "no value of variant 'x'"},
        {VALID "protocol: paired\ncontrast: {variant: {pairs: [[a]]}}\n", ":4:", "two values"},
        {VALID "protocol: paired\ncontrast: {variant: {pairs: some}}\n", ":4:", "expected {ag"},
        {VALID "protocol: paired\ncontrast: {variant: {with: x}}\n", ":4:", "no key 'with'"},
        {VALID "protocol: paired\ncontrast: [a]\n", ":4:", "not a map"},
        {VALID "min_numel: [1, 2]\n", ":3:", "one integer"},
        {"variant: lion_f32\nsource: \"problem:mlp\"\nmin_numel: 0\n", ":3:", "SLOT.min_numel"},
        {"variant: lion_f32\nmin_rank: 2\nsource: \"problem:mlp\"\n", ":2:", "'min_rank' leaves"},
        {"variant: lion_f32\nsource: \"problem:mlp\"\nmin_rank: 2\nmin_numel: 9\n",
         ":4:", "'min_numel' leaves"},
        {"variant: lion_f32\nsource: empty\nmin_rank: 1\n", ":3:", "'min_rank' leaves"},
        {VALID "title: [a, b]\n", ":3:", "one value"},
        {VALID "seed: []\n", ":3:", "empty"},
        {VALID "seed:\n  - 1\n  - 2\n  - 1\n", ":6:", "twice"},
        {VALID "seed: [[1]]\n", ":3:", "neither"},
        {VALID "lr: [0.1, {a: 1, b: 2}]\n", ":3:", "neither"},
        {VALID "summary: {by: seed}\n", ":3:", "list"},
        {VALID "summary:\n  - {by: seed}\n", ":4:", "needs 'value'"},
        {VALID "summary:\n  - {value: sqnr, colour: red}\n", ":4:", "colour"},
        {VALID "summary:\n  - {value: sqnr, value: mse}\n", ":4:", "twice"},
        {VALID "summary:\n  - {name: a, value: sqnr}\n  - {name: a, value: sqnr}\n", ":5:", "two"},
        {VALID "seed: [1, 2\n", ":", "not YAML"},
        {VALID "summary:\n  - {name: ., value: sqnr}\n", ":4:", "no name"},
        {VALID "exp_avg: [\"a\\nb\": nf4]\n", ":3:", "control character"},
        {VALID "exp_avg: [{\"a\\e[1m\": nf4}]\n", ":3:", "control character"},
        {VALID "...\n---\nseed: 1\n", ":5:", "second document"},
        {VALID "...\nseed: [1\n", ":4:", "not YAML"},
        {"", ":1:", "empty"},
        {"- a\n", ":1:", "not a map"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qm_suite *s = NULL;
        char place[64];
        assert_int_equal(read_text(cases[i].text, &s), QM_BAD_ARG);
        assert_null(s);
        snprintf(place, sizeof place, "%s%s", path, cases[i].line);
        if (!strstr(qm_message(), place) || !strstr(qm_message(), cases[i].word))
            fail_msg("case %zu: '%s' lacks '%s' or '%s'", i, qm_message(), place, cases[i].word);
    }
    struct qm_suite *s = NULL;
    assert_int_equal(qm_suite_read("/dev/null/x.yaml", &s), QM_BAD_FILE);
    assert_int_equal(qm_suite_read("/", &s), QM_BAD_FILE);
    assert_non_null(strstr(qm_message(), "/: Is a directory"));
}

static void test_plan_reads_back(void **state)
{
    struct qm_suite *s, *again;
    (void)state;
    assert_int_equal(
        read_text("title: a \"b\"\nquestion: >-\n  c\n  d\nvariant: [ema4_uniform]\n"
                  "source: [\"dist:student:3\", \"states:x*\"]\n"
                  "exp_avg: [x: \"nf4:4s/block:64\", \"dyn:4s/block:64\"]\n"
                  "seed: [1, 2]\nmin_numel: 7\nevery: 3\ndata: [\"a*.h5\"]\n"
                  "summary:\n"
                  "  - {by: [exp_avg, seed], across: source, value: sqnr,\n"
                  "     stat: [median, wins], versus: {exp_avg: x}, where: {seed: 1}}\n",
                  &s),
        QM_OK);
    assert_string_equal(s->title, "a \"b\"");
    assert_string_equal(s->question, "c d");
    assert_int_equal(s->n_axes, 4);
    assert_string_equal(s->axis[2].value[0].label, "x");
    assert_string_equal(s->axis[2].value[0].text, "nf4:4s/block:64");
    assert_string_equal(s->axis[2].value[1].label, "dyn:4s/block:64");
    assert_int_equal(s->axis[2].value[0].line, 7);
    assert_int_equal(s->min_numel, 7);
    assert_int_equal(s->every, 3);
    char *plan = strdup(s->plan);
    qm_suite_free(s);
    assert_int_equal(read_text(plan, &again), QM_OK);
    assert_string_equal(again->plan, plan);
    free(plan);
    qm_suite_free(again);
}

/* Workers and merge read the plan, so every text must read back from it unchanged. */
static void test_any_label_reads_back(void **state)
{
    static const char *const labels[] = {"a\xc2\x85z",
                                         "\xc2\x9f",
                                         "\xe2\x80\xa8z",
                                         "\xe2\x80\xa9",
                                         "\xef\xbf\xbe",
                                         "\xef\xbb\xbf",
                                         "\"\\'  ",
                                         "\xe2\x80\xa7",
                                         "\xc2\xa0",
                                         " ? ",
                                         ""};
    (void)state;
    for (size_t i = 0; i <= sizeof labels / sizeof *labels; i++) {
        char long_one[2000];
        const char *label = i < sizeof labels / sizeof *labels ? labels[i] : long_one;
        struct qm_suite *s, *again;
        memset(long_one, '"', sizeof long_one - 1);
        long_one[sizeof long_one - 1] = 0;
        assert_int_equal(read_text(VALID, &s), QM_OK);
        assert_int_equal(qm_suite_add_variant(s, label, "adamw4_ao"), QM_OK);
        assert_int_equal(read_text(s->plan, &again), QM_OK);
        assert_string_equal(again->axis[0].value[1].label, label);
        assert_string_equal(again->axis[0].value[1].text, "adamw4_ao");
        assert_string_equal(again->plan, s->plan);
        qm_suite_free(s);
        qm_suite_free(again);
    }
    struct qm_suite *s, *again;
    assert_int_equal(read_text(VALID "title: \"a\\rb\\e[31m \\x01\\x7f \\n\\n  x \\t\"\n", &s),
                     QM_OK);
    assert_int_equal(read_text(s->plan, &again), QM_OK);
    assert_string_equal(again->title, "a\rb\x1b[31m \x01\x7f \n\n  x \t");
    assert_string_equal(again->plan, s->plan);
    qm_suite_free(s);
    qm_suite_free(again);
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void cells_of(const char *text, struct qm_suite **s, struct qm_cell **cells, int64_t *n)
{
    if (read_text(text, s) != QM_OK || qm_suite_cells(*s, NULL, cells, n) != QM_OK)
        fail_msg("%s", qm_message());
}

static void test_product(void **state)
{
    struct qm_suite *s;
    struct qm_cell *c;
    int64_t n;
    (void)state;
    cells_of(
        "variant: ema4_uniform\nsource: [dist:gauss, dist:laplace]\n"
        "exp_avg.norm: [\"block:64\", \"block:256\"]\n" /* stands before the slot, acts after */
        "exp_avg: [{a: \"nf4:4s/block:128\"}, {b: \"dyn:4s/block:128\"}, "
        "{c: \"lin:4u/block:128\"}]\n"
        "seed: [5, 6]\n",
        &s, &c, &n);
    assert_int_equal(n, 24);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(c[i].index, i);
        assert_int_equal(c[i].seed, 5 + i % 2);
        assert_int_equal(c[i].recipe->slot[0].block, i / 6 % 2 ? 256 : 64);
        assert_string_equal(c[i].source_text, i < 12 ? "dist:gauss" : "dist:laplace");
        if (i / 2 % 3 == 2) /* an unsigned map on a state of both signs */
            assert_non_null(strstr(c[i].reason, "both signs"));
        else
            assert_null(c[i].reason);
        assert_int_equal(c[i].recipe->slot[0].map, i / 2 % 3 == 0   ? QM_MAP_nf4
                                                   : i / 2 % 3 == 1 ? QM_MAP_dyn
                                                                    : QM_MAP_lin);
    }
    free(c);
    qm_suite_free(s);
}

static void test_skips(void **state)
{
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"variant: ema4_uniform\nsource: dist:gauss\ncoupling: closed\n", "needs a problem"},
        {"variant: ema4_uniform\nsource: problem:quad\n", "oneshot needs"},
        {"variant: ema4_uniform\nsource: problem:quad\ncoupling: closed\n", "never moves"},
        {"variant: ema4_uniform\nsource: dist:gauss\nslot: exp_avg_sq\n", "has no state"},
        {"variant: ema4_uniform\nsource: dist:gauss\nexp_avg_sq: \"dyn:8u/block:64\"\n",
         "has no state"},
        {"variant: adamw4_ao\nsource: dist:gauss\nslot: exp_avg_sq\n", "never negative"},
        {"variant: ema4_uniform\nsource: \"states:*\"\n", "no recorded state matches"},
        {"variant: ema4_nf4\nsource: dist:gauss\nexp_avg.search: arith\n", "evenly spaced"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qm_suite *s;
        struct qm_cell *c;
        int64_t n;
        cells_of(cases[i].text, &s, &c, &n);
        assert_int_equal(n, 1);
        if (!c[0].reason || !strstr(c[0].reason, cases[i].word))
            fail_msg("case %zu: '%s' lacks '%s'", i, c[0].reason ? c[0].reason : "(ran)",
                     cases[i].word);
        free(c);
        qm_suite_free(s);
    }
}

static void test_misspelt_words(void **state)
{
    static const struct {
        const char *text, *place;
    } cases[] = {
        {"variant: ema4_unifrom\nsource: dist:gauss\n", ":1:"},
        {"variant: ema4_uniform\nsource: dist:gaus\n", ":2:"},
        {"variant: ema4_uniform\nsource: gauss\n", ":2:"},
        {"variant: ema4_uniform\nsource: problem:quadd\n", ":2:"},
        {VALID "coupling: globall\n", ":3:"},
        {VALID "slot: exp_avgg\n", ":3:"},
        {VALID "exp_avg.map: [nf4, nf5]\n", ":3:"},
        {VALID "seed: [1, x]\n", ":3:"},
        {VALID "steps: 0\n", ":3:"},
        {VALID "lr: inf\n", ":3: lr: expected a finite number"},
        {VALID "lr: [0.1, nan]\n", ":3: lr: expected a finite number"},
        {VALID "beta2: -inf\n", ":3: beta2: expected a finite number"},
        {"variant: \"ema4_uniform,lr=inf\"\nsource: dist:gauss\n",
         ":1: lr: expected a finite number"},
        {"variant: adamw_f32\nsource: \"problem:quad:nn=4\"\n",
         ":2: quad: no argument 'nn'; there are n, cond, lambda_max, layout, rows, start"},
        {"variant: adamw_f32\nsource: \"problem:spike:base=quad:nn=4\"\n", ":2: quad: no argument"},
        {"variant: adamw_f32\nsource: problem:quad:n=0\n", ":2: quad: n is 0, expected a whole"},
        {VALID "exp_avg.norm: [\"block:0\"]\n", ":3: exp_avg.norm: 'block:0': 'block' wants"},
        {VALID "start: wrong\n", "no start 'wrong'; there are problem, ulp"},
        {VALID "coupling: wrong\n",
         "no coupling 'wrong'; there are oneshot, local, global, closed"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qm_suite *s;
        struct qm_cell *c = NULL;
        int64_t n = 0;
        assert_int_equal(read_text(cases[i].text, &s), QM_OK);
        qm_status st = qm_suite_cells(s, NULL, &c, &n);
        if (st != QM_BAD_ARG || !strstr(qm_message(), cases[i].place))
            fail_msg("case %zu: %d, '%s'", i, (int)st, qm_message());
        assert_null(c);
        qm_suite_free(s);
    }
}

static void test_classes(void **state)
{
    static const struct {
        const char *tensor, *class;
        int rank;
    } cases[] = {{"tok_emb.weight", "embedding", 2},
                 {"pos_emb.weight", "position", 2},
                 {"transformer.wpe.weight", "position", 2},
                 {"head.weight", "head", 2},
                 {"lm_head.weight", "head", 2},
                 {"h.1.qkv.weight", "attention", 2},
                 {"h.1.proj.weight", "attention", 2},
                 {"h.1.mlp_out.weight", "mlp", 2},
                 {"conv1.weight", "conv", 4},
                 {"fc.0.weight", "fc", 2},
                 {"h.1.qkv.bias", "norm/bias", 1},
                 {"ln_f.weight", "norm/bias", 1},
                 {"logit_scale", "norm/bias", 0},
                 {"w", "other", 2}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qm_shape shape = {.rank = cases[i].rank, .dim = {4, 4, 1, 1}};
        assert_string_equal(qm_tensor_class(cases[i].tensor, &shape), cases[i].class);
    }
}

/* ---- summaries ------------------------------------------------------------------------------- */

/* Two formats, and a third that is skipped, times four seeds; sqnr = 10 * format + seed^2, the
 * first one NaN. */
static const char summary_suite[] =
    "variant: ema4_uniform\nsource: dist:gauss\nseed: [1, 2, 3, 4]\n"
    "exp_avg: [b: \"nf4:4s/block:64\", a: \"dyn:4s/block:64\", u: \"lin:4u/block:64\"]\n"
    "summary:\n"
    "  - {name: stats, by: exp_avg, value: sqnr, stat: [median, mean, min, max, sum, std, p05]}\n"
    "  - {name: gain, by: exp_avg, value: sqnr, stat: [wins, median], versus: {exp_avg: b}}\n"
    "  - {name: one, by: [seed, exp_avg], value: sqnr, where: {seed: 3, exp_avg: a}}\n";

static void test_summary(void **state)
{
    struct qm_results r = {0};
    struct qm_suite *s;
    struct qm_summary *t;
    int64_t n;
    (void)state;
    cells_of(summary_suite, &s, &r.cell, &n);
    r.suite = s;
    r.n_cells = n;
    r.outcome = calloc((size_t)n, sizeof *r.outcome);
    assert_non_null(r.outcome);
    int sqnr = qm_value_find("sqnr");
    assert_true(sqnr >= 0);
    for (int64_t i = 0; i < n; i++) {
        double seed = (double)r.cell[i].seed, format = (double)qm_cell_value(s, &r.cell[i], 3);
        r.outcome[i].value = calloc((size_t)qm_value_count(), sizeof(double));
        r.outcome[i].value[sqnr] = seed == 1 && format == 0 ? nan("") : 10 * format + seed * seed;
        if (r.cell[i].reason)
            r.outcome[i].reason = strdup(r.cell[i].reason);
    }
    assert_int_equal(qm_summary_make(&r, &s->summary[0], &t), QM_OK);
    assert_int_equal(qm_summary_rows(t), 2);
    assert_string_equal(qm_summary_key(t, 0, 0), "b"); /* the suite's order, not the alphabet's */
    assert_int_equal(qm_summary_n(t, 0), 3);           /* 4, 9, 16 */
    assert_int_equal(qm_summary_n(t, 1), 4);           /* 11, 14, 19, 26 */
    static const double want[2][7] = {{9, 29.0 / 3, 4, 16, 29, 0, 4.5},
                                      {16.5, 17.5, 11, 26, 70, 0, 11.45}};
    for (int row = 0; row < 2; row++)
        for (int k = 0; k < 7; k++)
            if (k != 5)
                assert_true(fabs(qm_summary_value(t, row, 0, k) - want[row][k]) < 1e-12);
    assert_true(fabs(qm_summary_value(t, 1, 0, 5) - sqrt((42.25 + 12.25 + 2.25 + 72.25) / 3)) <
                1e-12);
    qm_summary_free(t);

    assert_int_equal(qm_summary_make(&r, &s->summary[1], &t), QM_OK);
    assert_int_equal(qm_summary_rows(t), 1); /* b is the base, u was skipped */
    assert_string_equal(qm_summary_key(t, 0, 0), "a");
    assert_int_equal(qm_summary_n(t, 0), 3);
    assert_true(qm_summary_value(t, 0, 0, 0) == 3.0 && qm_summary_value(t, 0, 0, 1) == 10.0);
    qm_summary_free(t);

    assert_int_equal(qm_summary_make(&r, &s->summary[2], &t), QM_OK);
    assert_int_equal(qm_summary_rows(t), 1);
    assert_true(qm_summary_value(t, 0, 0, 0) == 19.0);
    qm_summary_free(t);

    free(r.cell);
    for (int64_t i = 0; i < n; i++)
        qm_outcome_free(&r.outcome[i]);
    free(r.outcome);
    qm_suite_free(s);
}

static void test_summary_words(void **state)
{
    static const char *const lines[] = {"{value: sqnrr}",
                                        "{by: sead, value: sqnr}",
                                        "{value: sqnr, stat: avg}",
                                        "{value: sqnr, stat: wins}",
                                        "{value: sqnr, across: x}",
                                        "{value: sqnr, versus: {tensor: a}}",
                                        "{value: sqnr, versus: {seed: 9}}",
                                        "{value: sqnr, where: {sead: 1}}"};
    char text[256];
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct qm_suite *s;
        snprintf(text, sizeof text, VALID "seed: [1, 2]\nsummary:\n  - %s\n", lines[i]);
        assert_int_equal(read_text(text, &s), QM_OK);
        qm_status st = qm_summary_check(s, &s->summary[0]);
        if (st == QM_OK || !strstr(qm_message(), ":5:"))
            fail_msg("%s: %d '%s'", lines[i], (int)st, qm_message());
        qm_suite_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_plan_reads_back),
                                       cmocka_unit_test(test_any_label_reads_back),
                                       cmocka_unit_test(test_product),
                                       cmocka_unit_test(test_skips),
                                       cmocka_unit_test(test_misspelt_words),
                                       cmocka_unit_test(test_classes),
                                       cmocka_unit_test(test_summary),
                                       cmocka_unit_test(test_summary_words)};
    return cmocka_run_group_tests(tests, make_file, drop_file);
}
