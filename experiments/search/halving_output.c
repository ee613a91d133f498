/* halving_output.c - The results of a search as a table, JSON and HDF5 tables. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/search/halving.h"
#include "experiments/store/columns.h"

/* The summaries of these entries on one half; out[n]. */
static qm_status halving_summaries(const struct qm_halving *s, int half, const int *entry, int n,
                                   struct qm_recipe_summary *out)
{
    const struct qm_halves *h = &s->halves;
    const struct qm_recipes recipes = {.n = n};
    struct qm_recipe_errors e = {.recipes = &recipes};
    static char nothing[] = "";
    e.row = calloc((size_t)h->n * (size_t)n + 1, sizeof *e.row);
    if (!e.row)
        return qm_fail(QM_NO_MEMORY, "summaries");
    for (int t = 0; t < h->n; t++)
        for (int i = 0; i < n && h->tensor[t].half == half; i++) {
            const struct qm_halving_entry *x = &s->entry[entry[i]];
            e.row[e.n++] = (struct qm_recipe_error){.skipped = nothing,
                                                    .recipe = i,
                                                    .model = h->tensor[t].model,
                                                    .is_coded = isfinite(x->sqnr[t]),
                                                    .n = h->tensor[t].numel,
                                                    .bits = x->bits,
                                                    .sqnr = x->sqnr[t]};
        }
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < n; i++)
        st = qm_recipe_errors_summary(&e, i, &out[i]);
    free(e.row);
    return st;
}

/* ---- text and JSON --------------------------------------------------------------------------- */

/* What is printed and stored of the entries of round report. */
struct final {
    int *entry, n;
    struct qm_recipe_summary *of[QM_HALF_COUNT];
};

static void final_free(struct final *f)
{
    free(f->entry);
    free(f->of[0]);
    free(f->of[1]);
}

static qm_status final_make(const struct qm_halving *s, struct final *f)
{
    *f = (struct final){0};
    qm_status st = qm_halving_final(s, &f->entry, &f->n);
    for (int half = 0; st == QM_OK && half < QM_HALF_COUNT; half++) {
        f->of[half] = calloc((size_t)f->n + 1, sizeof *f->of[half]);
        st = f->of[half] ? halving_summaries(s, half, f->entry, f->n, f->of[half])
                         : qm_fail(QM_NO_MEMORY, "summaries");
    }
    return st;
}

static const char *kind(const struct qm_halving_entry *e)
{
    return e->is_reference ? "variant" : e->is_frontier ? "frontier" : "searched";
}

static json_t *interval_json(const struct qm_paired *x)
{
    json_t *o = json_object();
    json_object_set_new(o, "location", qm_json_shown(x->mean));
    json_object_set_new(o, "low", qm_json_shown(x->lo95));
    json_object_set_new(o, "high", qm_json_shown(x->hi95));
    json_object_set_new(o, "tensors", json_integer(x->n));
    return o;
}

static void set_text(json_t *o, const char *key, const struct qm_paired *x)
{
    char text[96];
    if (x->n == 0)
        snprintf(text, sizeof text, "-");
    else if (!isfinite(x->lo95))
        snprintf(text, sizeof text, "%.2f", x->mean);
    else
        snprintf(text, sizeof text, "%.2f [%.2f, %.2f]", x->mean, x->lo95, x->hi95);
    json_object_set_new(o, key, json_string(text));
}

/* The row of entry i of the final ones. */
static json_t *row_json(const struct qm_halving *s, const struct final *f, int i)
{
    const struct qm_halving_entry *e = &s->entry[f->entry[i]];
    const struct qm_recipe_summary *report = &f->of[QM_HALF_report][i];
    json_t *o = json_object();
    char bits[32], better[64];
    if (qm_cli.json) {
        json_object_set_new(o, "bits", qm_json_number(e->bits));
        json_object_set_new(o, "kind", json_string(kind(e)));
        json_object_set_new(o, "recipe", json_string(e->recipe));
        json_object_set_new(o, "search", interval_json(&f->of[QM_HALF_search][i].sqnr));
        json_object_set_new(o, "report", interval_json(&report->sqnr));
        json_object_set_new(o, "minus", interval_json(&report->difference));
        json_object_set_new(o, "better", json_integer(report->better));
        return o;
    }
    snprintf(bits, sizeof bits, "%.4g", e->bits);
    snprintf(better, sizeof better, i == 0 ? "-" : "%lld of %lld", (long long)report->better,
             (long long)report->difference.n);
    json_object_set_new(o, "bits", json_string(bits));
    json_object_set_new(o, "composition", json_string(e->label));
    set_text(o, "search", &f->of[QM_HALF_search][i].sqnr);
    set_text(o, "report", &report->sqnr);
    struct qm_paired none = {.n = 0};
    set_text(o, "report minus first", i == 0 ? &none : &report->difference);
    json_object_set_new(o, "better", json_string(better));
    return o;
}

static json_t *rows_of(const struct qm_halving *s, const struct final *f, int references)
{
    json_t *list = json_array();
    for (int i = 0; i < f->n; i++) {
        const struct qm_halving_entry *e = &s->entry[f->entry[i]];
        if (e->is_reference == references && (e->is_reference || e->is_frontier || qm_cli.json))
            json_array_append_new(list, row_json(s, f, i));
    }
    return list;
}

static int64_t count_pairs(const struct qm_halving *s)
{
    int64_t n = 0;
    for (int i = 0; i < s->n; i++)
        n += s->entry[i].format[0] >= 0 && s->entry[i].format[1] >= 0;
    return n;
}

static json_t *next_json(const char *const *next, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_string(next[i]));
    return list;
}

qm_status qm_halving_print(const struct qm_halving *s, const char *path, const char *const *next,
                           int n_next)
{
    struct final f;
    const struct qm_halves *h = &s->halves;
    qm_status st = final_make(s, &f);
    if (st == QM_OK && qm_cli.json) {
        json_t *o = json_pack("{s:s, s:I, s:f, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "file", path,
                              "seed", (json_int_t)s->files.seed, "bits", s->most_bits,
                              "compositions", (json_int_t)s->composed, "legal",
                              (json_int_t)s->legal, "evaluated", (json_int_t)count_pairs(s),
                              "singles", (json_int_t)(s->space.n[0] + s->space.n[1]),
                              "prediction_error", qm_json_number(s->prediction_error), "rows",
                              rows_of(s, &f, 0), "next", next_json(next, n_next));
        json_object_set_new(o, "references", rows_of(s, &f, 1));
        json_object_set_new(o, "search_tensors", json_integer(h->count[QM_HALF_search]));
        json_object_set_new(o, "report_tensors", json_integer(h->count[QM_HALF_report]));
        qm_json_print(o);
    } else if (st == QM_OK) {
        qm_print("next update: SQNR in dB with its 95 %% interval over models (over tensors where "
                 "there is one); frontier of the searched half, %d tensors, beside the other, %d\n",
                 h->count[QM_HALF_search], h->count[QM_HALF_report]);
        qm_report(rows_of(s, &f, 0));
        qm_print("\nregistered variants; the first has the highest SQNR on the searched half\n");
        json_t *references = rows_of(s, &f, 1);
        if (json_array_size(references))
            qm_report(references);
        else
            json_decref(references);
        for (int i = 0; i < n_next; i++)
            qm_note("%s", next[i]);
    }
    final_free(&f);
    return st;
}

/* ---- HDF5 ------------------------------------------------------------------------------------ */

static qm_status store_tensors(const struct qm_halves *h, struct qm_store *store)
{
    struct qm_columns t = {.rows = h->n};
    const char **file = qm_columns_text(&t, "file", "the file");
    const char **name = qm_columns_text(&t, "tensor", "name of the record");
    const char **half = qm_columns_text(&t, "half", "search or report");
    int64_t *model = qm_columns_whole(&t, "model", "number of the run");
    int64_t *n = qm_columns_whole(&t, "n", "elements");
    for (int i = 0; !t.failed && i < h->n; i++) {
        file[i] = h->tensor[i].file;
        name[i] = h->tensor[i].name;
        half[i] = h->tensor[i].half == QM_HALF_search ? "search" : "report";
        model[i] = h->tensor[i].model;
        n[i] = h->tensor[i].numel;
    }
    return qm_columns_store(&t, store, "/search/tensors",
                            "the states, each half in the order in which rounds take them");
}

static qm_status store_values(const struct qm_halving *s, struct qm_store *store)
{
    int64_t rows = 0, at = 0;
    for (int i = 0; i < s->n; i++)
        for (int t = 0; t < s->halves.n; t++)
            rows += !isnan(s->entry[i].sqnr[t]);
    struct qm_columns c = {.rows = rows};
    int64_t *entry = qm_columns_whole(&c, "composition", "row of /search/compositions");
    int64_t *tensor = qm_columns_whole(&c, "tensor", "row of /search/tensors");
    double *sqnr = qm_columns_number(&c, "sqnr", "dB", "SQNR of the next update");
    for (int i = 0; !c.failed && i < s->n; i++)
        for (int t = 0; t < s->halves.n; t++)
            if (!isnan(s->entry[i].sqnr[t])) {
                entry[at] = i;
                tensor[at] = t;
                sqnr[at++] = s->entry[i].sqnr[t];
            }
    return qm_columns_store(&c, store, "/search/values", "every value that was measured");
}

static qm_status store_entries(const struct qm_halving *s, const struct final *f,
                               struct qm_store *store)
{
    struct qm_columns t = {.rows = s->n};
    const char **label = qm_columns_text(&t, "label", "exp_avg + exp_avg_sq, or a variant's name");
    const char **recipe = qm_columns_text(&t, "recipe", "the recipe that was measured");
    const char **what = qm_columns_text(&t, "kind", "single, searched, frontier or variant");
    const char **round = qm_columns_text(&t, "round", "the last that it was in");
    int64_t *undefined = qm_columns_whole(&t, "undefined", "1: no finite SQNR on some tensor");
    double *bits = qm_columns_number(&t, "bits", "bit", "of state per element at 1024 x 1024");
    double *predicted = qm_columns_number(&t, "predicted", "dB", "from the moments alone");
    double *measured =
        qm_columns_number(&t, "measured", "dB", "on the tensors of its rounds before report");
    double *at[3][3];
    static const char *const of[] = {"search", "report", "minus_best_variant"};
    static const char *const end[] = {"", "_low", "_high"};
    static const char *const text[] = {"location over models", "lower end of its 95 % interval",
                                       "upper end of its 95 % interval"};
    char name[9][40];
    for (int i = 0; i < 9; i++) {
        snprintf(name[i], sizeof name[i], "%s%s", of[i / 3], end[i % 3]);
        at[i / 3][i % 3] = qm_columns_number(&t, name[i], "dB", text[i % 3]);
    }
    for (int i = 0; !t.failed && i < s->n; i++) {
        const struct qm_halving_entry *e = &s->entry[i];
        label[i] = e->label;
        recipe[i] = e->recipe;
        what[i] = !e->is_reference && (e->format[0] < 0 || e->format[1] < 0) ? "single" : kind(e);
        round[i] = qm_halving_round_name(e->round);
        undefined[i] = e->is_undefined;
        bits[i] = e->bits;
        predicted[i] = e->predicted;
        measured[i] = e->measured;
        for (int k = 0; k < 9; k++)
            at[k / 3][k % 3][i] = nan("");
    }
    for (int i = 0; !t.failed && i < f->n; i++) {
        const struct qm_paired *x[] = {&f->of[0][i].sqnr, &f->of[1][i].sqnr,
                                       &f->of[1][i].difference};
        for (int k = 0; k < 3; k++) {
            at[k][0][f->entry[i]] = x[k]->mean;
            at[k][1][f->entry[i]] = x[k]->lo95;
            at[k][2][f->entry[i]] = x[k]->hi95;
        }
    }
    return qm_columns_store(&t, store, "/search/compositions",
                            "references, single formats and pairs, in the order of the rounds");
}

qm_status qm_halving_store(const struct qm_halving *s, struct qm_store *store)
{
    struct final f;
    const struct {
        const char *name;
        double value;
    } number[] = {{"seed", (double)s->files.seed},
                  {"most_bits", s->most_bits},
                  {"first", s->first},
                  {"compositions", (double)s->composed},
                  {"legal", (double)s->legal},
                  {"evaluated", (double)count_pairs(s)},
                  {"prediction_error", s->prediction_error}};
    qm_status st = final_make(s, &f);
    if (st == QM_OK)
        st = qm_results_store(&s->report, store);
    if (st == QM_OK)
        st = store_entries(s, &f, store);
    if (st == QM_OK)
        st = store_tensors(&s->halves, store);
    if (st == QM_OK)
        st = store_values(s, store);
    for (size_t i = 0; st == QM_OK && i < sizeof number / sizeof *number; i++)
        st = qm_store_number(store, "/search", number[i].name, number[i].value);
    if (st == QM_OK)
        st = qm_store_text(store, "/search", "halves",
                           s->files.n_files[QM_HALF_report] ? "given"
                           : s->halves.by_tensor            ? "drawn, of tensors of one run"
                                                            : "drawn, of models");
    final_free(&f);
    return st;
}
