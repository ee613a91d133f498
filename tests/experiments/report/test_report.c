/* test_report.c - Escapes, grids, curated tables, comparisons and archives of reports.
 *
 *     test_report sample FILE [evil|seeds]   writes the made-up campaign of report_sample.h, for
 *                                            bats */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <unistd.h>

#include "experiments/report/against.h"
#include "experiments/report/archive.h"
#include "experiments/report/curated.h"
#include "experiments/report/escape.h"
#include "experiments/report/listing.h"
#include "tests/support/report_sample.h"

static char sample[64];

static int setup(void **state)
{
    (void)state;
    snprintf(sample, sizeof sample, "/tmp/qm_report_%ld.h5", (long)getpid());
    return s_write(sample, (struct s_change){.evil = 1}) == QM_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(sample);
}

static char *printed(void (*print)(FILE *to, const char *text), const char *text)
{
    static char out[512];
    FILE *f = fmemopen(out, sizeof out, "w");
    print(f, text);
    fclose(f);
    return out;
}

static void escapes(void **state)
{
    (void)state;
    assert_string_equal(printed(qm_escape_html, "<a href=\"x\">&'\x01"),
                        "&lt;a href=&quot;x&quot;&gt;&amp;&#39;&#xfffd;");
    assert_string_equal(printed(qm_escape_html, "\xce\xb2\n"), "\xce\xb2\n");
    assert_string_equal(printed(qm_escape_markdown, "a|b\n<i>*_`[x]~$"),
                        "a\\|b &lt;i\\>\\*\\_\\`\\[x\\]\\~\\$");
    assert_string_equal(printed(qm_escape_latex, "50% of $5 & {a_b} #1 ~^\\"),
                        "50\\% of \\$5 \\& \\{a\\_b\\} \\#1 "
                        "\\textasciitilde{}\\textasciicircum{}\\textbackslash{}");
    assert_string_equal(printed(qm_escape_latex, "-[1] <x>"), "{-}{[}1{]} $<$x$>$");
    /* a byte that is no UTF-8, U+009B, an override of the direction */
    const char *hostile = "\x9bJ\xc2\x9bK\xe2\x80\xaeL";
    assert_string_equal(printed(qm_escape_html, hostile), "&#xfffd;J&#xfffd;K&#xfffd;L");
    assert_string_equal(printed(qm_escape_markdown, hostile), " J K L");
    assert_string_equal(printed(qm_escape_latex, hostile), " J K L");
}

/* The text of a cell of a grid. */
static const char *cell(const struct qm_text_grid *g, int64_t row, int column)
{
    return g->cell[row * g->n_cols + column].text;
}

static void grids(void **state)
{
    (void)state;
    struct qm_result *r;
    struct qm_text_grid g;
    assert_int_equal(qm_result_open(sample, &r), QM_OK);
    assert_int_equal(qm_grid_read(r, "/protocol/runs", 10, &g), QM_OK);
    assert_int_equal(qm_grid_rows(&g), 10);
    assert_int_equal(g.rows_left_out, S_RUNS - 10);
    assert_string_equal(g.head[3].name, "label");
    assert_string_equal(cell(&g, 0, 3), "adamw_f32");
    assert_true(g.head[5].number && !g.head[3].number);
    qm_grid_close(&g);
    assert_int_equal(qm_grid_read(r, "/nothing", 10, &g), QM_NO_MATCH);
    qm_result_close(r);
}

/* The curated tables have the numbers of the file's rows. */
static void verdicts(void **state)
{
    (void)state;
    struct qm_result *r;
    struct qm_text_grid all, wide;
    char text[64];
    assert_int_equal(qm_result_open(sample, &r), QM_OK);
    assert_int_equal(qm_verdicts_long(r, &all), QM_OK);
    assert_int_equal(qm_grid_rows(&all), S_LABELS * S_PROBLEMS * S_SCALES);
    assert_int_equal(qm_verdicts_wide(r, &wide), QM_OK);
    assert_int_equal(qm_grid_rows(&wide), S_LABELS - 1); /* without the part of the budget */
    assert_int_equal(wide.n_cols, 1 + S_PROBLEMS);
    for (int j = 0; j < S_LABELS - 1; j++)
        for (int p = 0; p < S_PROBLEMS; p++) {
            snprintf(text, sizeof text, "%+.3g ", s_effect(j, p));
            if (j == 9 && p == 7)
                assert_string_equal(cell(&wide, j, 1 + p), "too few");
            else
                assert_memory_equal(cell(&wide, j, 1 + p), text, strlen(text));
        }
    qm_grid_close(&all);
    qm_grid_close(&wide);
    qm_result_close(r);
}

static void troubles(void **state)
{
    (void)state;
    struct qm_result *r;
    struct qm_text_grid g;
    char counts[128];
    assert_int_equal(qm_result_open(sample, &r), QM_OK);
    assert_int_equal(qm_troubles(r, &g), QM_OK);
    assert_int_equal(qm_grid_rows(&g), 4); /* one kind of divergence, three reasons of failure */
    double cells = 0;
    for (int64_t i = 0; i < 4; i++)
        cells += g.cell[i * g.n_cols + 2].key;
    assert_true(cells == S_SEEDS + S_SEEDS * S_SCALES);
    assert_string_equal(cell(&g, 0, 0), "diverged");
    assert_non_null(strstr(cell(&g, 0, 4), "; and 4 more"));
    assert_int_equal(qm_status_counts(r, counts, sizeof counts), QM_OK);
    assert_string_equal(counts, "3792 ok, 40 failed, 8 diverged");
    qm_grid_close(&g);
    qm_result_close(r);
}

static void listing(void **state)
{
    (void)state;
    struct qm_listing l;
    int tables = 0;
    assert_int_equal(qm_listing_read(sample, &l), QM_OK);
    for (int i = 0; i < l.n; i++)
        tables += l.set[i].kind == QM_LISTED_table;
    assert_int_equal(tables, 8);
    assert_string_equal(l.set[0].path, "/cells");
    assert_string_equal(l.set[0].shape, "3840 rows");
    assert_string_equal(l.fact[l.n_facts - 1].name, "argv");
    assert_string_equal(l.fact[l.n_facts - 1].value, "run sample");
    qm_listing_free(&l);
}

/* ---- beside an archive --------------------------------------------------------------------- */

static char archive[64], mine[64], pairs[64];

/* Writes an archive, a file with a change, and their comparison, which it opens. */
static struct qm_result *compared(struct s_change how)
{
    struct qm_result *a, *b, *out;
    snprintf(archive, sizeof archive, "/tmp/qm_archive_%ld.h5", (long)getpid());
    snprintf(mine, sizeof mine, "/tmp/qm_mine_%ld.h5", (long)getpid());
    snprintf(pairs, sizeof pairs, "/tmp/qm_pairs_%ld.h5", (long)getpid());
    assert_int_equal(s_write(archive, (struct s_change){.limits = how.limits}), QM_OK);
    assert_int_equal(s_write(mine, how), QM_OK);
    assert_int_equal(qm_result_open(mine, &a), QM_OK);
    assert_int_equal(qm_result_open(archive, &b), QM_OK);
    assert_int_equal(qm_against_write(a, b, pairs), QM_OK);
    assert_int_equal(qm_result_open(pairs, &out), QM_OK);
    qm_result_close(a);
    qm_result_close(b);
    unlink(archive);
    unlink(mine);
    unlink(pairs);
    return out;
}

/* The number of runs in /against/apart of a label and an archived variant, by reason; they are on
 * the problems that the text names. */
static int64_t apart(struct qm_result *r, const char *label, const char *other, const char *reason,
                     const char *problems)
{
    int64_t rows, *runs, sum = 0;
    char **l, **b, **why, **on;
    assert_int_equal(qm_result_texts(r, "/against/apart", "label", &rows, &l), QM_OK);
    assert_int_equal(qm_result_texts(r, "/against/apart", "archive", &rows, &b), QM_OK);
    assert_int_equal(qm_result_texts(r, "/against/apart", "problems", &rows, &on), QM_OK);
    assert_int_equal(qm_result_texts(r, "/against/apart", "reason", &rows, &why), QM_OK);
    assert_int_equal(qm_result_i64(r, "/against/apart", "runs", &rows, &runs), QM_OK);
    for (int64_t i = 0; i < rows; i++)
        if (strcmp(l[i], label) == 0 && strcmp(b[i], other) == 0 && strstr(why[i], reason)) {
            assert_string_equal(on[i], problems);
            sum += runs[i];
        }
    free(l);
    free(b);
    free(why);
    free(on);
    free(runs);
    return sum;
}

/* The mean of d[label] - d[other] at the problem's learning rate in the sample, without the least
 * and the largest of the eight. */
static double expected(int64_t label, int64_t other, int64_t problem)
{
    double sum = 0, least = HUGE_VAL, most = -HUGE_VAL;
    for (int64_t seed = 0; seed < S_SEEDS; seed++) {
        int64_t at = (problem * S_SEEDS + seed) * S_SCALES + 2;
        int64_t runs = S_PROBLEMS * S_SEEDS * S_SCALES;
        double d = s_run_of(label * runs + at, 0).d - s_run_of(other * runs + at, 0).d;
        sum += d;
        least = fmin(least, d);
        most = fmax(most, d);
    }
    return (sum - least - most) / (S_SEEDS - 2);
}

/* The counts of verdicts are those of the rows, the file says of which rates, and the order is
 * that of better less worse. */
static void counts(struct qm_result *r)
{
    int64_t rows;
    char **label, **other, **verdict, **rates;
    double *scale;
    size_t i;
    json_t *told, *one;
    json_int_t last = INT64_MAX, all = 0;
    assert_int_equal(qm_result_texts(r, "/against/pairs", "label", &rows, &label), QM_OK);
    assert_int_equal(qm_result_texts(r, "/against/pairs", "archive", &rows, &other), QM_OK);
    assert_int_equal(qm_result_texts(r, "/against/pairs", "verdict", &rows, &verdict), QM_OK);
    assert_int_equal(qm_result_texts(r, "/against/pairs", "rates", &rows, &rates), QM_OK);
    assert_int_equal(qm_result_f64(r, "/against/pairs", "lr_scale", &rows, &scale), QM_OK);
    assert_int_equal(qm_against_counts(r, &told), QM_OK);
    assert_non_null(
        strstr(json_string_value(json_object_get(told, "rates")), "which are not tuned"));
    assert_int_equal(json_integer_value(json_object_get(told, "archived")), S_LABELS - 1);
    json_array_foreach (json_object_get(told, "counts"), i, one) {
        json_int_t worse = 0, better = json_integer_value(json_object_get(one, "better"));
        for (int64_t k = 0; k < rows; k++)
            worse += strcmp(label[k], json_string_value(json_object_get(one, "label"))) == 0 &&
                     strcmp(other[k], json_string_value(json_object_get(one, "archive"))) == 0 &&
                     scale[k] == json_number_value(json_object_get(one, "lr_scale")) &&
                     strcmp(verdict[k], "worse") == 0;
        assert_int_equal(worse, json_integer_value(json_object_get(one, "worse")));
        assert_true(better - worse <= last);
        last = better - worse;
        all += json_integer_value(json_object_get(one, "problems"));
    }
    assert_int_equal(all, rows);
    for (int64_t k = 0; k < rows; k++)
        assert_string_equal(rates[k], "not tuned");
    json_decref(told);
    free(label);
    free(other);
    free(verdict);
    free(rates);
    free(scale);
}

/* Every pair of labels with the same twin is compared, and no other; the means are those of the
 * runs that were written. */
static void against_itself(void **state)
{
    (void)state;
    struct qm_result *r = compared((struct s_change){0});
    int64_t rows, *n;
    char **label, **other, **problem, **verdict;
    double *mean, *scale, *q;
    int seen = 0;
    assert_int_equal(qm_result_texts(r, "/against/pairs", "label", &rows, &label), QM_OK);
    assert_int_equal(qm_result_texts(r, "/against/pairs", "archive", &rows, &other), QM_OK);
    assert_int_equal(qm_result_texts(r, "/against/pairs", "problem", &rows, &problem), QM_OK);
    assert_int_equal(qm_result_texts(r, "/against/pairs", "verdict", &rows, &verdict), QM_OK);
    assert_int_equal(qm_result_f64(r, "/against/pairs", "mean", &rows, &mean), QM_OK);
    assert_int_equal(qm_result_f64(r, "/against/pairs", "lr_scale", &rows, &scale), QM_OK);
    assert_int_equal(qm_result_f64(r, "/against/pairs", "q", &rows, &q), QM_OK);
    assert_int_equal(qm_result_i64(r, "/against/pairs", "n", &rows, &n), QM_OK);
    for (int64_t i = 0; i < rows; i++) {
        assert_string_not_equal(label[i], "adamw4_ao without scales");
        assert_string_not_equal(other[i], "adamw4_ao without scales");
        if (strcmp(label[i], other[i]) == 0) {
            assert_true(mean[i] == 0);
            assert_string_equal(verdict[i], "equivalent");
        }
        if (strcmp(label[i], "adamw4_lpmm") == 0 && strcmp(other[i], "adamw8_bnb") == 0 &&
            scale[i] == 1 && strcmp(problem[i], s_problem[6]) == 0) {
            assert_true(fabs(mean[i] - expected(5, 1, 6)) < 1e-13);
            assert_int_equal(n[i], S_SEEDS);
            assert_string_equal(verdict[i], "worse");
            seen++;
        }
    }
    assert_int_equal(seen, 1);
    /* Eleven labels of one twin against each other; one fails on one problem, one's gaps are not
     * finite on one problem at one rate. */
    assert_int_equal(rows, S_SCALES * (S_PROBLEMS * 11 * 11 - (2 * 11 - 1)) - (2 * 11 - 1));
    assert_int_equal(apart(r, s_label[9], s_label[0], "failed", s_problem[7]), S_SEEDS * S_SCALES);
    assert_int_equal(apart(r, s_label[0], "adamw4_ao without scales", "", ""), 0);
    counts(r);
    free(label);
    free(other);
    free(problem);
    free(verdict);
    free(mean);
    free(scale);
    free(q);
    free(n);
    qm_result_close(r);
}

/* Runs that do not agree are left out, with a reason. */
static void against_others(void **state)
{
    (void)state;
    int64_t rows, *n;
    struct qm_result *r = compared((struct s_change){.seeds = 3});
    assert_int_equal(
        apart(r, "adamw8_ao", "every one", "no such seed of this instance there: seeds ", "all"),
        3 * S_PROBLEMS * S_SCALES);
    assert_int_equal(qm_result_i64(r, "/against/pairs", "n", &rows, &n), QM_OK);
    for (int64_t i = 0; i < rows; i++)
        assert_true(n[i] == S_SEEDS - 3 || n[i] == 1); /* 1: all equal to the bit */
    free(n);
    qm_result_close(r);

    r = compared((struct s_change){.twin = 0.01});
    assert_int_equal(qm_result_i64(r, "/against/pairs", "n", &rows, &n), QM_OK);
    assert_int_equal(rows, 0);
    assert_int_equal(apart(r, "adamw8_ao", "adamw8_bnb", "twins differ", "all"),
                     S_PROBLEMS * S_SEEDS * S_SCALES);
    free(n);
    qm_result_close(r);

    r = compared((struct s_change){.twin = 0.01, .steps = 100});
    assert_int_equal(apart(r, "adamw8_ao", "adamw8_bnb", "number of steps there: ", "all"),
                     S_PROBLEMS * S_SEEDS * S_SCALES);
    assert_int_equal(apart(r, "adamw8_ao", "adamw8_bnb", ", here 100", "all"),
                     S_PROBLEMS * S_SEEDS * S_SCALES);
    qm_result_close(r);
}

/* Pairs that both diverge are not compared; seeds that all reach the floor are
 * several observations. */
static void against_limits(void **state)
{
    (void)state;
    struct qm_result *r = compared((struct s_change){.limits = 1});
    int64_t rows, *n;
    char **label, **other, **problem, **verdict;
    int floor = 0, worse = 0;
    assert_int_equal(qm_result_texts(r, "/against/pairs", "label", &rows, &label), QM_OK);
    assert_int_equal(qm_result_texts(r, "/against/pairs", "archive", &rows, &other), QM_OK);
    assert_int_equal(qm_result_texts(r, "/against/pairs", "problem", &rows, &problem), QM_OK);
    assert_int_equal(qm_result_texts(r, "/against/pairs", "verdict", &rows, &verdict), QM_OK);
    assert_int_equal(qm_result_i64(r, "/against/pairs", "n", &rows, &n), QM_OK);
    for (int64_t i = 0; i < rows; i++) {
        if (strcmp(problem[i], s_problem[0]) != 0)
            continue;
        if (strcmp(label[i], s_label[2]) == 0) {
            assert_string_not_equal(other[i], s_label[2]);
            assert_string_equal(verdict[i], "worse");
            worse++;
        } else if (strcmp(label[i], s_label[3]) == 0) { /* its twin is its own */
            assert_string_equal(other[i], s_label[3]);
            assert_int_equal(n[i], S_SEEDS);
            assert_string_equal(verdict[i], "equivalent");
            floor++;
        }
    }
    assert_int_equal(floor, S_SCALES);
    assert_int_equal(worse, S_SCALES * (11 - 2));
    assert_int_equal(apart(r, s_label[0], s_label[3], "s differ", s_problem[0]),
                     S_SEEDS * S_SCALES);
    free(label);
    free(other);
    free(problem);
    free(verdict);
    free(n);
    qm_result_close(r);
}

/* An archive has the runs and verdicts of its file, and the same curves. */
static void archives(void **state)
{
    (void)state;
    struct qm_result *r, *a;
    struct qm_result_curves whole, kept;
    static const char *const tables[] = {"/protocol/runs", "/protocol/verdicts"};
    snprintf(archive, sizeof archive, "/tmp/qm_archive_%ld.h5", (long)getpid());
    assert_int_equal(qm_result_open(sample, &r), QM_OK);
    assert_int_equal(qm_archive_write(r, sample, archive), QM_OK);
    assert_int_equal(qm_result_open(archive, &a), QM_OK);
    for (int t = 0; t < 2; t++) {
        struct qm_text_grid x, y;
        assert_int_equal(qm_grid_read(r, tables[t], INT64_MAX, &x), QM_OK);
        assert_int_equal(qm_grid_read(a, tables[t], INT64_MAX, &y), QM_OK);
        assert_int_equal(x.n_cells, y.n_cells);
        for (int64_t i = 0; i < x.n_cells; i++)
            assert_string_equal(x.cell[i].text, y.cell[i].text);
        qm_grid_close(&x);
        qm_grid_close(&y);
    }
    assert_int_equal(qm_result_ragged(r, "/curves/loss", &whole), QM_OK);
    assert_int_equal(qm_result_ragged(a, "/curves/loss", &kept), QM_OK);
    assert_int_equal(kept.n, S_RUNS - S_RUNS / S_LABELS); /* of the suite's own cells */
    for (int64_t i = 0; i < kept.n; i++)
        for (int64_t k = 0; k < kept.length[i]; k++) {
            double x = whole.value[whole.offset[i] + k], y = kept.value[kept.offset[i] + k];
            assert_true(fabs(x - y) <= 0.5001e-3 * x);
        }
    assert_int_equal(qm_result_has(a, "/protocol/hits"), 0);
    qm_result_curves_free(&whole);
    qm_result_curves_free(&kept);
    qm_result_close(a);
    qm_result_close(r);
    unlink(archive);
}

int main(int argc, char **argv)
{
    struct s_change how = {.evil = argc > 3 && strcmp(argv[3], "evil") == 0,
                           .seeds = argc > 3 && strcmp(argv[3], "seeds") == 0 ? 4 : 0};
    if (argc > 2 && strcmp(argv[1], "sample") == 0) {
        if (s_write(argv[2], how) == QM_OK)
            return 0;
        fprintf(stderr, "test_report: %s\n", qm_message());
        return 3;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes),        cmocka_unit_test(grids),
        cmocka_unit_test(verdicts),       cmocka_unit_test(troubles),
        cmocka_unit_test(listing),        cmocka_unit_test(against_itself),
        cmocka_unit_test(against_others), cmocka_unit_test(against_limits),
        cmocka_unit_test(archives),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
