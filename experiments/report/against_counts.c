/* against_counts.c - Counts the verdicts against each variant of an archive over problems. */
#include "experiments/report/against.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/protocol/stats.h"

#define PAIRS "/against/pairs"

/* The verdicts that are counted, in the order of the columns. */
static const enum qm_decision shown[] = {QM_DECISION_better,     QM_DECISION_worse,
                                         QM_DECISION_equivalent, QM_DECISION_undecided,
                                         QM_DECISION_few,        QM_DECISION_plain};
enum { SHOWN = sizeof shown / sizeof *shown };
static const char *const keys[SHOWN] = {"better",    "worse",   "equivalent",
                                        "undecided", "too_few", "not_quantized"};

/* The verdicts of one label here and one archived variant at one lr_scale. */
struct tally {
    const char *label, *archive, *recipe;
    double scale;
    int64_t place, problems, of[SHOWN], apart;
};

/* Those that are better more often than worse come first, else the order of the file. */
static int by_wins(const void *x, const void *y)
{
    const struct tally *a = x, *b = y;
    int64_t u = b->of[0] - b->of[1], v = a->of[0] - a->of[1];
    return u != v ? (u > v) - (u < v) : (a->place > b->place) - (a->place < b->place);
}

/* Counts the rows into tallies, a zeroed list with room for all; returns how many there are. */
static int64_t count(int64_t rows, char **text[4], const double *scale, const int64_t *apart,
                     struct tally *all)
{
    int64_t n = 0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t k = 0;
        while (k < n && (strcmp(all[k].label, text[0][i]) != 0 ||
                         strcmp(all[k].archive, text[1][i]) != 0 || all[k].scale != scale[i]))
            k++;
        all[k].label = text[0][i];
        all[k].archive = text[1][i];
        all[k].recipe = text[3][i];
        all[k].scale = scale[i];
        all[k].place = k;
        all[k].problems++;
        all[k].apart += apart[i];
        for (int v = 0; v < SHOWN; v++)
            all[k].of[v] += strcmp(text[2][i], qm_decision_text(shown[v])) == 0;
        n += k == n;
    }
    qsort(all, (size_t)n, sizeof *all, by_wins);
    return n;
}

static json_t *tally_json(const struct tally *t)
{
    json_t *o =
        json_pack("{s:o, s:o, s:o, s:o, s:I}", "label", qm_json_text(t->label), "archive",
                  qm_json_text(t->archive), "archive_recipe", qm_json_text(t->recipe), "lr_scale",
                  qm_json_number(t->scale), "problems", (json_int_t)t->problems);
    for (int v = 0; v < SHOWN; v++)
        json_object_set_new(o, keys[v], json_integer((json_int_t)t->of[v]));
    json_object_set_new(o, "float32_apart", json_integer((json_int_t)t->apart));
    return o;
}

qm_status qm_against_counts(struct qm_result *pairs, json_t **out)
{
    static const char *const names[] = {"label", "archive", "verdict", "archive_recipe"};
    char **text[4] = {NULL}, *rates = NULL, *advice = NULL;
    double *scale = NULL, archived;
    int64_t rows = 0, *apart = NULL;
    qm_status st = qm_result_f64(pairs, PAIRS, "lr_scale", &rows, &scale);
    if (st == QM_OK)
        st = qm_result_i64(pairs, PAIRS, "float32_apart", &rows, &apart);
    for (int k = 0; st == QM_OK && k < 4; k++)
        st = qm_result_texts(pairs, PAIRS, names[k], &rows, &text[k]);
    if (st == QM_OK)
        st = qm_result_text(pairs, "/against", "rates", &rates);
    if (st == QM_OK)
        st = qm_result_text(pairs, "/against", "advice", &advice);
    if (st == QM_OK)
        st = qm_result_number(pairs, "/against", "archived", &archived);
    struct tally *all = calloc((size_t)rows + 1, sizeof *all);
    if (st == QM_OK && !all)
        st = qm_fail(QM_NO_MEMORY, "counts");
    if (st == QM_OK) {
        json_t *list = json_array();
        int64_t n = count(rows, text, scale, apart, all);
        for (int64_t i = 0; i < n; i++)
            json_array_append_new(list, tally_json(&all[i]));
        *out = json_pack("{s:s, s:s, s:I, s:o}", "rates", rates, "advice", advice, "archived",
                         (json_int_t)archived, "counts", list);
    }
    for (int k = 0; k < 4; k++)
        free(text[k]);
    free(scale);
    free(apart);
    free(rates);
    free(advice);
    free(all);
    return st;
}

qm_status qm_against_table(struct qm_result *pairs, struct qm_text_grid *out)
{
    size_t i;
    json_t *told, *one;
    struct qm_text_grid g;
    char about[400];
    QM_TRY(qm_against_counts(pairs, &told));
    snprintf(about, sizeof about, "Problems by verdict of the variant here, at %s. %s",
             json_string_value(json_object_get(told, "rates")),
             json_string_value(json_object_get(told, "advice")));
    qm_grid_open(&g, "By archived variant", about);
    qm_grid_column(&g, "label", "", "the variant here", 0);
    qm_grid_column(&g, "archive", "", "the archived variant", 0);
    qm_grid_column(&g, "lr_scale", "", "times the problem's learning rate", 1);
    for (int v = 0; v < SHOWN; v++)
        qm_grid_column(&g, qm_decision_text(shown[v]), "", "problems", 1);
    qm_grid_column(&g, "of", "", "problems on which runs of both are paired", 1);
    qm_grid_column(&g, "float32 apart", "",
                   "of these, where float32 states are not equivalent to the twin either", 1);
    qm_grid_column(&g, "archive_recipe", "", "the recipe of the archived variant", 0);
    json_array_foreach (json_object_get(told, "counts"), i, one) {
        qm_grid_text(&g, json_string_value(json_object_get(one, "label")));
        qm_grid_text(&g, json_string_value(json_object_get(one, "archive")));
        qm_grid_number(&g, json_number_value(json_object_get(one, "lr_scale")), "%g");
        for (int v = 0; v < SHOWN; v++)
            qm_grid_number(&g, json_number_value(json_object_get(one, keys[v])), "%g");
        qm_grid_number(&g, json_number_value(json_object_get(one, "problems")), "%g");
        qm_grid_number(&g, json_number_value(json_object_get(one, "float32_apart")), "%g");
        qm_grid_text(&g, json_string_value(json_object_get(one, "archive_recipe")));
    }
    json_decref(told);
    qm_status st = qm_grid_check(&g);
    if (st == QM_OK)
        *out = g;
    else
        qm_grid_close(&g);
    return st;
}

void qm_against_print(const json_t *told, const char *archive)
{
    size_t i, n = 0;
    json_t *one, *counts = json_object_get(told, "counts");
    const char *heads[SHOWN + 6] = {"label", "archived"}, **head = heads + 2;
    for (int v = 0; v < SHOWN; v++)
        *head++ = qm_decision_text(shown[v]);
    *head++ = "of";
    *head++ = "float32 apart";
    *head++ = "lr_scale";
    *head = "archived recipe";
    struct qm_table *t = qm_table_open(SHOWN + 6, heads);
    json_array_foreach (counts, i, one) {
        qm_table_cell(t, "%s", json_string_value(json_object_get(one, "label")));
        qm_table_cell(t, "%s", json_string_value(json_object_get(one, "archive")));
        for (int v = 0; v < SHOWN; v++)
            qm_table_cell(t, "%lld", json_integer_value(json_object_get(one, keys[v])));
        qm_table_cell(t, "%lld", json_integer_value(json_object_get(one, "problems")));
        qm_table_cell(t, "%lld", json_integer_value(json_object_get(one, "float32_apart")));
        qm_table_cell(t, "%g", json_number_value(json_object_get(one, "lr_scale")));
        qm_table_cell(t, "%s", json_string_value(json_object_get(one, "archive_recipe")));
        size_t k = 0;
        const char *name = json_string_value(json_object_get(one, "archive"));
        while (k < i &&
               strcmp(json_string_value(json_object_get(json_array_get(counts, k), "archive")),
                      name) != 0)
            k++;
        n += k == i;
    }
    printf("\nagainst %s: problems by verdict, at %s\n", archive,
           json_string_value(json_object_get(told, "rates")));
    qm_table_close(t);
    printf("%zu of %lld archived variants have runs to pair with; the page says what the others "
           "lack\n%s\n",
           n, json_integer_value(json_object_get(told, "archived")),
           json_string_value(json_object_get(told, "advice")));
    fflush(stdout);
}
