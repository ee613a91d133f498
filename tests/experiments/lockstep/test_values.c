/* test_values.c - Compares the lists of metrics and outcomes with results/METRICS.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "experiments/lockstep/lockstep.h"
#include "experiments/report/compare.h"
#include "oracle/metric/metric.h"

enum { LINE = 4096, NAMES = 16 };

/* Takes the `names` in backticks out of a table cell, which ends at '|'; returns their number. */
static int names_of(char *cell, char *name[NAMES])
{
    int n = 0;
    for (char *at = cell; (at = strchr(at, '`')) != NULL && n < NAMES;) {
        name[n++] = ++at;
        at = strchr(at, '`');
        assert_non_null(at);
        *at++ = 0;
    }
    return n;
}

/* A row: | `name`, `name` **F** | unit, unit | definition |; one unit may stand for all names, and
 * **F** says that all of them are collected at the full level only. */
static void check_row(char *line)
{
    char *name[NAMES], *unit[NAMES], *rest = line + 1;
    char *cell = strsep(&rest, "|"), *units = strsep(&rest, "|");
    int is_full = strstr(cell, "**F**") != NULL, n = names_of(cell, name), n_units = 0;
    assert_non_null(units);
    units += strspn(units, " ");
    for (char *u; (u = strsep(&units, ",")) != NULL && n_units < NAMES;) {
        u += strspn(u, " ");
        u[strcspn(u, " ")] = 0;
        unit[n_units++] = u;
    }
    for (int i = 0; i < n; i++) {
        int v = qm_value_find(name[i]);
        if (v < 0)
            fail_msg("METRICS.md defines %s, which is no metric and no outcome", name[i]);
        if (n_units != 1 && n_units != n)
            fail_msg("METRICS.md: %d units for the %d values from %s on", n_units, n, name[0]);
        if (strcmp(unit[n_units == 1 ? 0 : i], qm_value_unit(v)) != 0)
            fail_msg("METRICS.md gives %s in %s, the list in %s", name[i],
                     unit[n_units == 1 ? 0 : i], qm_value_unit(v));
        const struct qm_metric *m = qm_metric_find(name[i]);
        if (m && (m->level == QM_METRICS_full) != is_full)
            fail_msg("METRICS.md and the list differ on the level of %s", name[i]);
    }
}

static void the_page_is_the_list(void **state)
{
    (void)state;
    FILE *f = fopen("results/METRICS.md", "r");
    assert_non_null(f);
    static char all[1 << 17], line[LINE];
    all[fread(all, 1, sizeof all - 1, f)] = 0;
    rewind(f);
    int rows = 0;
    while (fgets(line, LINE, f))
        if (strncmp(line, "| `", 3) == 0) {
            check_row(line);
            rows++;
        }
    fclose(f);
    assert_true(rows > 40);
    for (int v = 0; v < qm_value_count(); v++) {
        char word[64];
        snprintf(word, sizeof word, "`%s`", qm_value_name(v));
        if (!strstr(all, word))
            fail_msg("METRICS.md does not define %s", qm_value_name(v));
    }
}

/* Names are unique; comparisons judge a value as its list says, and nothing else. */
static void directions_come_from_the_list(void **state)
{
    (void)state;
    int judged = 0;
    for (int v = 0; v < qm_value_count(); v++) {
        assert_int_equal(qm_value_find(qm_value_name(v)), v);
        assert_int_equal(qm_compare_direction(qm_value_name(v)), qm_value_better(v));
        judged += qm_value_better(v) != QM_BETTER_none;
    }
    assert_true(judged > 0 && judged < qm_value_count());
    assert_int_equal(qm_compare_direction("sqnr"), 1);
    assert_int_equal(qm_compare_direction("loss_ratio"), -1);
    assert_int_equal(qm_compare_direction("count"), 0);
    assert_int_equal(qm_compare_direction("no_such"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_is_the_list),
        cmocka_unit_test(directions_come_from_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
