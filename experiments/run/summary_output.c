/* summary_output.c - Prints tables, turns them into JSON and stores them in the result file. */
#include "experiments/run/summary_table.h"

#include "experiments/cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void number_name(const struct qm_summary *s, int value, int stat, char *name, size_t size)
{
    snprintf(name, size, "%s_%s", s->plan->value[value], s->plan->stat[stat]);
}

/* A statistic as text: "20.37", a median with its interval "20.37 [19.8, 20.7]". */
static int number_text(const struct qm_summary_row *r, int i, char *text, size_t size)
{
    if (isnan(r->low[i]))
        return snprintf(text, size, "%.4g", r->number[i]);
    return snprintf(text, size, "%.4g [%.3g, %.3g]", r->number[i], r->low[i], r->high[i]);
}

/* All statistics of a row as one text: "20.37 [19.8, 20.7] / 10.2". */
static void row_text(const struct qm_summary *s, int row, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < s->plan->n_values * s->plan->n_stats && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s", i ? " / " : "");
        if (used < size)
            used += (size_t)number_text(&s->row[row], i, text + used, size - used);
    }
    if (s->row[row].n_plain && used < size)
        used += (size_t)snprintf(text + used, size - used, ", %lld not quantized",
                                 (long long)s->row[row].n_plain);
    if (s->row[row].n_diverged && used < size)
        snprintf(text + used, size - used, ", %lld of %lld diverged",
                 (long long)s->row[row].n_diverged, (long long)s->row[row].n_cells);
}

static const char *const theory_head = "within SE of theory";

/* Prints the theory column of rows [from, to): "1.8", "1.8 (5 of 6)" where some cells have no
 * theory, or "-" where none has. */
static void theory_cell(const struct qm_summary *s, struct qm_table *t, int from, int to)
{
    int64_t n = 0, of = 0;
    double most = nan("");
    for (int r = from; r < to; r++) {
        most = fmax(most, s->row[r].theory);
        n += s->row[r].n_theory;
        of += s->row[r].n;
    }
    if (n == of || n == 0)
        qm_table_cell(t, n ? "%.2g" : "-", most);
    else
        qm_table_cell(t, "%.2g (%lld of %lld)", most, (long long)n, (long long)of);
}

/* The cell "n" of a line: "6", "2, 4 not quantized", or "6, 2 of 6 diverged". */
static void count_cell(struct qm_table *t, const struct qm_summary_row *row)
{
    char plain[48] = "", diverged[64] = "";
    if (row->n_plain)
        snprintf(plain, sizeof plain, ", %lld not quantized", (long long)row->n_plain);
    if (row->n_diverged)
        snprintf(diverged, sizeof diverged, ", %lld of %lld diverged", (long long)row->n_diverged,
                 (long long)row->n_cells);
    qm_table_cell(t, "%lld%s%s", (long long)row->n, plain, diverged);
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_long(const struct qm_summary *s)
{
    const char *heads[QM_SUMMARY_MAX_KEYS + 2 + QM_SUMMARY_MAX_NUMBERS];
    char names[QM_SUMMARY_MAX_NUMBERS][96];
    int n = 0, numbers = s->plan->n_values * s->plan->n_stats;
    for (int k = 0; k < s->n_keys; k++)
        heads[n++] = s->key[k].name;
    heads[n++] = "n";
    for (int i = 0; i < numbers; i++) {
        number_name(s, i / s->plan->n_stats, i % s->plan->n_stats, names[i], sizeof names[i]);
        heads[n++] = names[i];
    }
    if (s->has_theory)
        heads[n++] = theory_head;
    struct qm_table *t = qm_table_open(n, heads);
    for (int r = 0; r < s->n_rows; r++) {
        for (int k = 0; k < s->n_keys; k++)
            qm_table_cell(t, "%s", qm_summary_key(s, r, k));
        count_cell(t, &s->row[r]);
        for (int i = 0; i < numbers; i++) {
            char text[96];
            number_text(&s->row[r], i, text, sizeof text);
            qm_table_cell(t, "%s", text);
        }
        if (s->has_theory)
            theory_cell(s, t, r, r + 1);
    }
    qm_table_close(t);
}

/* The length of the longer text. */
static size_t longer(size_t length, const char *text)
{
    return strlen(text) > length ? strlen(text) : length;
}

/* Whether the values of the last key fit as columns into lines of 120. */
static int fits_wide(const struct qm_summary *s)
{
    size_t total = 10, widest = 0;
    char text[1024];
    int last = s->n_keys - 1;
    for (int r = 0; r < s->n_rows; r++) {
        row_text(s, r, text, sizeof text);
        widest = longer(widest, text);
    }
    for (int k = 0; k < last; k++) {
        size_t width = strlen(s->key[k].name);
        for (int i = 0; i < s->key[k].n; i++)
            width = longer(width, s->key[k].text[i]);
        total += 2 + width;
    }
    for (int c = 0; c < s->key[last].n; c++)
        total += 2 + longer(widest, s->key[last].text[c]);
    return total + (s->has_theory ? 2 + strlen(theory_head) : 0) <= 120;
}

/* Prints the values of the last key as columns: rows whose other keys are equal become one line. */
static void print_wide(const struct qm_summary *s)
{
    int last = s->n_keys - 1, columns = s->key[last].n;
    const char **heads = calloc((size_t)(last + 2 + columns), sizeof *heads);
    char text[1024];
    if (!heads)
        return;
    for (int k = 0; k < last; k++)
        heads[k] = s->key[k].name;
    heads[last] = "n";
    for (int c = 0; c < columns; c++)
        heads[last + 1 + c] = s->key[last].text[c];
    heads[last + 1 + columns] = theory_head;
    struct qm_table *t = qm_table_open(last + 1 + columns + s->has_theory, heads);
    for (int r = 0; r < s->n_rows;) {
        int end = r, most = r, first = r;
        while (end < s->n_rows &&
               memcmp(s->row[end].at, s->row[r].at, (size_t)last * sizeof(int)) == 0)
            end++;
        for (int k = 0; k < last; k++)
            qm_table_cell(t, "%s", qm_summary_key(s, r, k));
        for (int i = r; i < end; i++)
            most =
                s->row[i].n + s->row[i].n_plain > s->row[most].n + s->row[most].n_plain ? i : most;
        qm_table_cell(t, "%lld", (long long)(s->row[most].n + s->row[most].n_plain));
        for (int c = 0; c < columns; c++) {
            snprintf(text, sizeof text, "-");
            if (r < end && s->row[r].at[last] == c)
                row_text(s, r++, text, sizeof text);
            qm_table_cell(t, "%s", text);
        }
        if (s->has_theory)
            theory_cell(s, t, first, end);
        r = end;
    }
    qm_table_close(t);
    free(heads);
}

static int has_intervals(const struct qm_summary *s)
{
    int yes = 0;
    for (int r = 0; r < s->n_rows; r++)
        for (int i = 0; i < s->plan->n_values * s->plan->n_stats; i++)
            yes |= !isnan(s->row[r].low[i]);
    return yes;
}

/* Says what the value of a tensor is the median over, where it has several cells. */
static void print_united(const struct qm_summary *s)
{
    const struct qm_suite *suite = s->results->suite;
    int seeds = 0, others = 0;
    for (int a = 0; a < suite->n_axes; a++) {
        int is_seed = strcmp(suite->axis[a].key, "seed") == 0 ||
                      strcmp(suite->axis[a].key, "rounding_seed") == 0;
        seeds |= s->is_united[a] && is_seed;
        others |= s->is_united[a] && !is_seed;
    }
    if (!seeds && !others)
        return;
    qm_print("n counts a tensor once%s: its value is the median over ",
             others ? ", and a run that trains once for each seed" : "");
    for (int a = 0, n = 0; others && a < suite->n_axes; a++)
        if (s->is_united[a] && strstr(suite->axis[a].key, "seed") == NULL)
            qm_print("%s%s", n++ ? ", " : "values of ", suite->axis[a].key);
    if (seeds)
        qm_print("%sseeds that draw nothing but its rounding, and seeds of equal results are one",
                 others ? " and " : "");
    qm_print("\n");
}

void qm_summary_print(const struct qm_summary *s)
{
    const struct qm_summary_plan *p = s->plan;
    if (p->headline)
        qm_print("\n%s", p->headline);
    qm_print("\n%s:", p->name);
    for (int v = 0; v < p->n_values; v++)
        for (int k = 0; k < p->n_stats; k++)
            qm_print("%s %s of %s", v + k ? "," : "", p->stat[k], p->value[v]);
    if (p->versus_key)
        qm_print(", minus that of %s", p->versus_label);
    qm_print("%s\n", has_intervals(s) ? " [95 % interval of a median]" : "");
    if (p->across && fits_wide(s))
        print_wide(s);
    else
        print_long(s);
    print_united(s);
    if (s->has_diverged)
        qm_print("a run that diverged counts with the gap 1000 in values of gaps, in no other\n");
    fflush(stdout); /* keeps the order with notes on stderr */
}

/* The members NAME_lo95 and NAME_hi95 of a median; null below six values. */
static void json_set_interval(json_t *row, const char *name, const struct qm_summary_row *r, int i)
{
    char end[112];
    snprintf(end, sizeof end, "%s_lo95", name);
    json_object_set_new(row, end, qm_json_shown(r->low[i]));
    snprintf(end, sizeof end, "%s_hi95", name);
    json_object_set_new(row, end, qm_json_shown(r->high[i]));
}

json_t *qm_summary_json(const struct qm_summary *s)
{
    char name[96];
    json_t *rows = json_array();
    for (int r = 0; r < s->n_rows; r++) {
        json_t *row = json_object();
        for (int k = 0; k < s->n_keys; k++)
            json_object_set_new(row, s->key[k].name, json_string(qm_summary_key(s, r, k)));
        json_object_set_new(row, "n", json_integer(s->row[r].n));
        if (s->has_plain)
            json_object_set_new(row, "not_quantized", json_integer(s->row[r].n_plain));
        if (s->has_diverged)
            json_object_set_new(row, "diverged", json_integer(s->row[r].n_diverged));
        for (int v = 0; v < s->plan->n_values; v++)
            for (int k = 0; k < s->plan->n_stats; k++) {
                number_name(s, v, k, name, sizeof name);
                json_object_set_new(row, name, qm_json_shown(qm_summary_value(s, r, v, k)));
                if (s->stat[k] == QM_STAT_median)
                    json_set_interval(row, name, &s->row[r], v * s->plan->n_stats + k);
            }
        if (s->has_theory) {
            json_object_set_new(row, "theory_se", qm_json_number(s->row[r].theory));
            json_object_set_new(row, "theory_n", json_integer(s->row[r].n_theory));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

/* ---- storing --------------------------------------------------------------------------------- */

static const char *stat_unit(const struct qm_summary *s, int value, int stat)
{
    return s->stat[stat] == QM_STAT_wins ? "1" : qm_value_unit(s->value[value]);
}

/* Adds the columns of a statistic: its numbers, and both ends of a median's interval.  name holds
 * three texts, number three arrays of `rows` doubles. */
static int add_number(const struct qm_summary *s, int i, size_t rows, char (*name)[112],
                      double *number, struct qm_column *column)
{
    int v = i / s->plan->n_stats, k = i % s->plan->n_stats;
    int n = s->stat[k] == QM_STAT_median ? 3 : 1;
    number_name(s, v, k, name[0], sizeof *name);
    snprintf(name[1], sizeof *name, "%.100s_lo95", name[0]);
    snprintf(name[2], sizeof *name, "%.100s_hi95", name[0]);
    for (int r = 0; r < s->n_rows; r++) {
        number[r] = s->row[r].number[i];
        number[rows + (size_t)r] = s->row[r].low[i];
        number[2 * rows + (size_t)r] = s->row[r].high[i];
    }
    for (int j = 0; j < n; j++)
        column[j] =
            (struct qm_column){name[j], QM_COLUMN_f64, stat_unit(s, v, k),
                               j ? "end of the median's 95 % interval" : qm_value_text(s->value[v]),
                               number + (size_t)j * rows};
    return n;
}

qm_status qm_summary_store(const struct qm_summary *s, struct qm_store *store)
{
    struct qm_column column[QM_SUMMARY_MAX_KEYS + 5 + 3 * QM_SUMMARY_MAX_NUMBERS];
    char names[QM_SUMMARY_MAX_NUMBERS][3][112], path[256], text[512];
    int n_numbers = s->plan->n_values * s->plan->n_stats, n = 0;
    size_t rows = (size_t)(s->n_rows > 0 ? s->n_rows : 1);
    const char **keys = calloc(rows * QM_SUMMARY_MAX_KEYS, sizeof *keys);
    double *numbers = calloc(rows * (3 * QM_SUMMARY_MAX_NUMBERS + 1), sizeof *numbers);
    int64_t *counts = calloc(4 * rows, sizeof *counts);
    double *theory = numbers ? numbers + 3 * rows * QM_SUMMARY_MAX_NUMBERS : NULL;
    qm_status st = keys && numbers && counts ? QM_OK : qm_fail(QM_NO_MEMORY, "summary");
    for (int r = 0; st == QM_OK && r < s->n_rows; r++) {
        for (int k = 0; k < s->n_keys; k++)
            keys[(size_t)k * rows + (size_t)r] = qm_summary_key(s, r, k);
        counts[r] = s->row[r].n;
        counts[rows + (size_t)r] = s->row[r].n_theory;
        counts[2 * rows + (size_t)r] = s->row[r].n_plain;
        counts[3 * rows + (size_t)r] = s->row[r].n_diverged;
        theory[r] = s->row[r].theory;
    }
    for (int k = 0; st == QM_OK && k < s->n_keys; k++)
        column[n++] = (struct qm_column){s->key[k].name, QM_COLUMN_text, "", "key of the group",
                                         keys + (size_t)k * rows};
    column[n++] = (struct qm_column){"n", QM_COLUMN_i64, "1", "number of values", counts};
    for (int i = 0; st == QM_OK && i < n_numbers; i++)
        n += add_number(s, i, rows, names[i], numbers + 3 * (size_t)i * rows, &column[n]);
    if (s->has_theory) {
        column[n++] = (struct qm_column){"theory_se", QM_COLUMN_f64, "1",
                                         "largest theory_z of the group, by magnitude", theory};
        column[n++] = (struct qm_column){"theory_n", QM_COLUMN_i64, "1",
                                         "number of values with a theory", counts + rows};
    }
    if (s->has_plain)
        column[n++] = (struct qm_column){"not_quantized", QM_COLUMN_i64, "1",
                                         "values left out: their states kept plain floats",
                                         counts + 2 * rows};
    if (s->has_diverged)
        column[n++] =
            (struct qm_column){"diverged", QM_COLUMN_i64, "1",
                               "cells that diverged: gap 1000, no other value", counts + 3 * rows};
    snprintf(path, sizeof path, "/summary/%s", s->plan->name);
    snprintf(text, sizeof text, "statistics over groups of cells%s%s",
             s->plan->versus_key ? ", differences to " : "",
             s->plan->versus_key ? s->plan->versus_label : "");
    if (st == QM_OK)
        st = qm_store_table(store, path, text, s->n_rows, n, column);
    free(counts);
    free(numbers);
    free(keys);
    return st;
}
