/* test_report.c - escapes, grids and curated tables of reports.
 *
 *     test_report sample FILE [evil]   writes the made-up campaign of report_sample.h, for bats */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <unistd.h>

#include "experiments/report/curated.h"
#include "experiments/report/escape.h"
#include "experiments/report/listing.h"
#include "tests/report_sample.h"

static char sample[64];

static int setup(void **state)
{
    (void)state;
    snprintf(sample, sizeof sample, "/tmp/qm_report_%ld.h5", (long)getpid());
    return s_write(sample, 1) == QM_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(sample);
}

static char *printed(void (*put)(FILE *to, const char *text), const char *text)
{
    static char out[512];
    FILE *f = fmemopen(out, sizeof out, "w");
    put(f, text);
    fclose(f);
    return out;
}

static void escapes(void **state)
{
    (void)state;
    assert_string_equal(printed(qm_put_html, "<a href=\"x\">&'\x01"),
                        "&lt;a href=&quot;x&quot;&gt;&amp;&#39;&#xfffd;");
    assert_string_equal(printed(qm_put_html, "\xce\xb2\n"), "\xce\xb2\n");
    assert_string_equal(printed(qm_put_markdown, "a|b\n<i>*_`[x]~$"),
                        "a\\|b &lt;i\\>\\*\\_\\`\\[x\\]\\~\\$");
    assert_string_equal(printed(qm_put_latex, "50% of $5 & {a_b} #1 ~^\\"),
                        "50\\% of \\$5 \\& \\{a\\_b\\} \\#1 "
                        "\\textasciitilde{}\\textasciicircum{}\\textbackslash{}");
    assert_string_equal(printed(qm_put_latex, "-[1] <x>"), "{-}{[}1{]} $<$x$>$");
}

/* Rows of a grid, as text between tabs. */
static const char *cell(const struct qm_grid *g, int64_t row, int column)
{
    return g->cell[row * g->n_cols + column];
}

static void grids(void **state)
{
    (void)state;
    struct qm_result *r;
    struct qm_grid g;
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

/* The same numbers as the file's own rows. */
static void verdicts(void **state)
{
    (void)state;
    struct qm_result *r;
    struct qm_grid all, wide;
    char text[64];
    assert_int_equal(qm_result_open(sample, &r), QM_OK);
    assert_int_equal(qm_verdicts_long(r, &all), QM_OK);
    assert_int_equal(qm_grid_rows(&all), S_LABELS * S_PROBLEMS * S_SCALES);
    assert_int_equal(qm_verdicts_wide(r, &wide), QM_OK);
    assert_int_equal(qm_grid_rows(&wide), S_LABELS - 1); /* a part of the budget is no variant */
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
    struct qm_grid g;
    char counts[128];
    assert_int_equal(qm_result_open(sample, &r), QM_OK);
    assert_int_equal(qm_troubles(r, &g), QM_OK);
    assert_int_equal(qm_grid_rows(&g), 4); /* one kind of divergence, three reasons of failure */
    double cells = 0;
    for (int64_t i = 0; i < 4; i++)
        cells += g.key[i * g.n_cols + 2];
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

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "sample") == 0) {
        if (s_write(argv[2], argc > 3) == QM_OK)
            return 0;
        fprintf(stderr, "test_report: %s\n", qm_message());
        return 3;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes),  cmocka_unit_test(grids),   cmocka_unit_test(verdicts),
        cmocka_unit_test(troubles), cmocka_unit_test(listing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
