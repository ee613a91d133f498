/* recipe_error_output.c - The next update under whole recipes as JSON, text and HDF5 tables. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/analyze/recipe_error.h"
#include "experiments/cli/cli.h"
#include "experiments/store/columns.h"

/* ---- JSON and text ------------------------------------------------------------------------- */

static json_t *row_json(const struct qm_recipe_errors *e, const struct qm_recipe_error *r)
{
    char name[QM_RECIPE_TEXT];
    json_t *o = json_object();
    if (qm_cli.json)
        json_object_set_new(o, "file", qm_json_text(r->file));
    json_object_set_new(o, "tensor", qm_json_text(r->tensor));
    json_object_set_new(o, "recipe",
                        json_string(qm_recipe_print(&e->recipes->recipe[r->recipe], name)));
    if (*r->skipped) {
        json_object_set_new(o, "reason", qm_json_text(r->skipped));
        return o;
    }
    json_object_set_new(o, "n", json_integer(r->n));
    if (qm_cli.json)
        json_object_set_new(o, "left_out", json_integer(r->left_out));
    json_object_set_new(o, "bits", qm_json_number(r->bits));
    json_object_set_new(o, "gradient", json_string(r->has_gradient ? "recorded" : "none"));
    if (qm_cli.json)
        json_object_set_new(o, "codes", json_string(r->is_coded ? "all" : "not quantized"));
    for (int k = 0; k < e->n_metrics; k++)
        json_object_set_new(o, e->metric[k]->name, qm_json_shown(r->value[k]));
    return o;
}

/* The rows that were measured, or those that were skipped.  As text, those that are not quantized
 * are left out: the summary counts them. */
static json_t *rows_json(const struct qm_recipe_errors *e, int skipped)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < e->n; i++)
        if ((*e->row[i].skipped != '\0') == skipped && (qm_cli.json || e->row[i].is_coded))
            json_array_append_new(list, row_json(e, &e->row[i]));
    return list;
}

/* Prints each reason for skipped rows once, with their number. */
static void print_reasons(const struct qm_recipe_errors *e)
{
    for (int64_t i = 0; i < e->n; i++) {
        int64_t same = 0, before = 0;
        for (int64_t k = 0; k < e->n; k++)
            if (strcmp(e->row[k].skipped, e->row[i].skipped) == 0) {
                same++;
                before += k < i;
            }
        if (*e->row[i].skipped && before == 0)
            qm_print("%lld rows skipped: %s\n", (long long)same, e->row[i].skipped);
    }
}

/* Says of which rows elements are left out. */
static void print_left_out(const struct qm_recipe_errors *e)
{
    char name[QM_RECIPE_TEXT];
    for (int64_t i = 0; i < e->n; i++) {
        const struct qm_recipe_error *r = &e->row[i];
        if (!*r->skipped && r->left_out > 0)
            qm_print(
                "left out: %lld of %lld elements of %s under %s, whose update is not finite (a "
                "second moment below 0, or a state that is not finite)\n",
                (long long)r->left_out, (long long)r->n, r->tensor,
                qm_recipe_print(&e->recipes->recipe[r->recipe], name));
    }
}

/* A number with its interval: three members with --json, else one text. */
static void set_interval(json_t *o, const char *key, const struct qm_paired *x)
{
    char text[96];
    if (qm_cli.json) {
        json_t *at = json_object();
        json_object_set_new(at, "location", qm_json_shown(x->mean));
        json_object_set_new(at, "low", qm_json_shown(x->lo95));
        json_object_set_new(at, "high", qm_json_shown(x->hi95));
        json_object_set_new(at, "n", json_integer(x->n));
        json_object_set_new(o, key, at);
        return;
    }
    if (x->n == 0)
        snprintf(text, sizeof text, "-");
    else if (!isfinite(x->lo95))
        snprintf(text, sizeof text, "%.2f", x->mean);
    else
        snprintf(text, sizeof text, "%.2f [%.2f, %.2f]", x->mean, x->lo95, x->hi95);
    json_object_set_new(o, key, json_string(text));
}

static qm_status summaries_json(const struct qm_recipe_errors *e, json_t *list)
{
    char name[QM_RECIPE_TEXT], better[64];
    for (int i = 0; i < e->recipes->n; i++) {
        struct qm_recipe_summary s;
        QM_TRY(qm_recipe_errors_summary(e, i, &s));
        json_t *o = json_object();
        json_object_set_new(o, "recipe",
                            json_string(qm_recipe_print(&e->recipes->recipe[i], name)));
        json_object_set_new(o, "bits", qm_json_number(s.bits));
        json_object_set_new(o, "tensors", json_integer(s.tensors));
        json_object_set_new(o, "models", json_integer(s.models));
        json_object_set_new(o, "not_quantized", json_integer(s.not_quantized));
        json_object_set_new(o, "skipped", json_integer(s.skipped));
        json_object_set_new(o, "not_finite", json_integer(s.not_finite));
        set_interval(o, "sqnr", &s.sqnr);
        if (i == 0)
            s.difference =
                (struct qm_paired){.n = 0, .mean = nan(""), .lo95 = nan(""), .hi95 = nan("")};
        set_interval(o, "minus_first", &s.difference);
        snprintf(better, sizeof better, i == 0 ? "-" : "%lld of %lld", (long long)s.better,
                 (long long)s.compared);
        json_object_set_new(o, "better",
                            qm_cli.json ? json_integer(s.better) : json_string(better));
        json_array_append_new(list, o);
    }
    return QM_OK;
}

qm_status qm_recipe_errors_report(const struct qm_recipe_errors *e, json_t *remarks)
{
    json_t *rows = rows_json(e, 0), *skipped = rows_json(e, 1), *summary = json_array();
    qm_status st = summaries_json(e, summary);
    if (st != QM_OK) {
        json_decref(rows);
        json_decref(skipped);
        json_decref(summary);
        return st;
    }
    if (qm_cli.json) {
        json_t *all =
            json_pack("{s:o, s:o, s:o}", "rows", rows, "skipped", skipped, "summary", summary);
        if (json_object_size(remarks))
            json_object_set(all, "remarks", remarks);
        qm_report(all);
        return QM_OK;
    }
    if (json_array_size(rows)) {
        qm_report(rows);
        qm_print("\n");
    } else {
        json_decref(rows);
    }
    json_decref(skipped);
    print_left_out(e);
    print_reasons(e);
    qm_print(
        "next update: SQNR in dB, the mean over models of the 20 %% trimmed mean over the tensors "
        "of each, with its 95 %% interval over models (over tensors where there is one), each "
        "recipe over its own tensors; minus first: the same of the differences of pairs, over the "
        "tensors that both recipes have\n");
    qm_report(summary);
    int coded = 0;
    for (int64_t i = 0; i < e->n; i++)
        coded += !*e->row[i].skipped && e->row[i].is_coded;
    if (!coded)
        qm_note("no tensor has codes: they are too small for these recipes; a recipe followed by "
                ",min_numel=0,whole_blocks=0 gives codes to all");
    return QM_OK;
}

/* ---- HDF5 ---------------------------------------------------------------------------------- */

static qm_status store_rows(const struct qm_recipe_errors *e, char *const *name, int skipped,
                            struct qm_store *s)
{
    int64_t rows = 0, at = 0;
    for (int64_t i = 0; i < e->n; i++)
        rows += (*e->row[i].skipped != '\0') == skipped;
    struct qm_columns t = {.rows = rows};
    const char **file = qm_columns_text(&t, "file", "the file that was read");
    const char **tensor = qm_columns_text(&t, "tensor", "name of the record");
    const char **recipe = qm_columns_text(&t, "recipe", "the recipe");
    const char **reason = skipped ? qm_columns_text(&t, "reason", "why it was skipped") : NULL;
    int64_t *n = skipped ? NULL : qm_columns_whole(&t, "n", "elements");
    int64_t *left = skipped ? NULL
                            : qm_columns_whole(&t, "left_out",
                                               "elements whose update is not finite: in no metric");
    double *bits = skipped ? NULL : qm_columns_number(&t, "bits", "bit", "of state per element");
    int64_t *gradient =
        skipped ? NULL
                : qm_columns_whole(&t, "gradient",
                                   "1: the recorded one was applied; 0: none is recorded");
    int64_t *coded =
        skipped ? NULL
                : qm_columns_whole(&t, "coded",
                                   "1: all elements that the recipe gives codes have them");
    double *value[256] = {NULL};
    for (int k = 0; !skipped && k < e->n_metrics; k++)
        value[k] =
            qm_columns_number(&t, e->metric[k]->name, e->metric[k]->unit, e->metric[k]->text);
    for (int64_t i = 0; !t.failed && i < e->n; i++) {
        const struct qm_recipe_error *r = &e->row[i];
        if ((*r->skipped != '\0') != skipped)
            continue;
        file[at] = r->file;
        tensor[at] = r->tensor;
        recipe[at] = name[r->recipe];
        if (skipped) {
            reason[at++] = r->skipped;
            continue;
        }
        n[at] = r->n;
        left[at] = r->left_out;
        bits[at] = r->bits;
        gradient[at] = r->has_gradient;
        coded[at] = r->is_coded;
        for (int k = 0; k < e->n_metrics; k++)
            value[k][at] = r->value[k];
        at++;
    }
    return qm_columns_store(&t, s, skipped ? "/next_update/skipped" : "/next_update/rows",
                            skipped ? "what was not measured"
                                    : "error of the next update, a row per tensor and recipe");
}

/* The columns of a location and its interval. */
struct interval_columns {
    double *location, *low, *high;
};

static void set(const struct interval_columns *c, int i, const struct qm_paired *x)
{
    c->location[i] = x->mean;
    c->low[i] = x->lo95;
    c->high[i] = x->hi95;
}

static qm_status store_summary(const struct qm_recipe_errors *e, char *const *name,
                               struct qm_store *s)
{
    struct qm_columns t = {.rows = e->recipes->n};
    const char **recipe = qm_columns_text(&t, "recipe", "the recipe");
    double *bits = qm_columns_number(&t, "bits", "bit", "of state per element, over tensors");
    int64_t *tensors = qm_columns_whole(&t, "tensors", "tensors that count");
    int64_t *models = qm_columns_whole(&t, "models", "models that these belong to");
    int64_t *plain = qm_columns_whole(&t, "not_quantized", "left out: not quantized");
    int64_t *skipped = qm_columns_whole(&t, "skipped", "tensors that were skipped");
    int64_t *not_finite = qm_columns_whole(&t, "not_finite", "left out: no finite SQNR");
    struct interval_columns sqnr = {
        qm_columns_number(&t, "sqnr", "dB", "SQNR of the next update"),
        qm_columns_number(&t, "sqnr_low", "dB", "lower end of its 95 % interval"),
        qm_columns_number(&t, "sqnr_high", "dB", "upper end of its 95 % interval")};
    struct interval_columns minus = {
        qm_columns_number(&t, "minus_first", "dB", "SQNR minus that of the first recipe"),
        qm_columns_number(&t, "minus_first_low", "dB", "lower end of its 95 % interval"),
        qm_columns_number(&t, "minus_first_high", "dB", "upper end of its 95 % interval")};
    int64_t *better = qm_columns_whole(&t, "better", "tensors with a higher SQNR");
    qm_status st = QM_OK;
    for (int i = 0; !t.failed && st == QM_OK && i < e->recipes->n; i++) {
        struct qm_recipe_summary x;
        st = qm_recipe_errors_summary(e, i, &x);
        recipe[i] = name[i];
        bits[i] = x.bits;
        tensors[i] = x.tensors;
        models[i] = x.models;
        plain[i] = x.not_quantized;
        skipped[i] = x.skipped;
        not_finite[i] = x.not_finite;
        set(&sqnr, i, &x.sqnr);
        set(&minus, i, &x.difference);
        better[i] = x.better;
    }
    t.failed |= st != QM_OK;
    return qm_columns_store(&t, s, "/next_update/summary",
                            "SQNR of the next update, a row per recipe");
}

qm_status qm_recipe_errors_store(const struct qm_recipe_errors *e, struct qm_store *s)
{
    int n = e->recipes->n;
    char **name = calloc((size_t)n + 1, sizeof *name);
    qm_status st = name ? QM_OK : qm_fail(QM_NO_MEMORY, "names");
    for (int i = 0; st == QM_OK && i < n; i++) {
        char text[QM_RECIPE_TEXT];
        name[i] = strdup(qm_recipe_print(&e->recipes->recipe[i], text));
        st = name[i] ? QM_OK : qm_fail(QM_NO_MEMORY, "names");
    }
    for (int skipped = 0; st == QM_OK && skipped < 2; skipped++)
        st = store_rows(e, name, skipped, s);
    if (st == QM_OK)
        st = store_summary(e, name, s);
    for (int i = 0; name && i < n; i++)
        free(name[i]);
    free(name);
    return st;
}
