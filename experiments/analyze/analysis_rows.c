/* analysis_rows.c - Results of `qualm analyze` as JSON, text and HDF5 tables. */
#include "experiments/analyze/analysis_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "experiments/cli/cli.h"
#include "experiments/store/columns.h"

static void row_free(struct qm_row *r)
{
    free((void *)r->file);
    free((void *)r->tensor);
    free((void *)r->variant);
    free((void *)r->quantizer);
    free((void *)r->skipped);
    free((void *)r->value);
    free((void *)r->decade);
}

static void *copy(const void *from, size_t size)
{
    void *to = from ? malloc(size + 1) : NULL;
    if (to)
        memcpy(to, from, size);
    return to;
}

qm_status qm_rows_add(struct qm_rows *rows, const struct qm_row *row)
{
    QM_TRY(qm_grow((void **)&rows->row, &rows->room, rows->n + 1, sizeof *rows->row));
    struct qm_row r = *row;
    r.file = strdup(row->file);
    r.tensor = strdup(row->tensor);
    r.variant = strdup(row->variant);
    r.quantizer = strdup(row->quantizer);
    r.skipped = strdup(row->skipped);
    r.value = copy(row->value, (size_t)rows->n_metrics * sizeof *r.value);
    r.decade = copy(row->decade, QM_DECADES * sizeof *r.decade);
    if (!r.file || !r.tensor || !r.variant || !r.quantizer || !r.skipped ||
        (row->value && !r.value) || (row->decade && !r.decade)) {
        row_free(&r);
        return qm_fail(QM_NO_MEMORY, "row of '%s'", row->tensor);
    }
    rows->row[rows->n++] = r;
    return QM_OK;
}

void qm_rows_free(struct qm_rows *rows)
{
    for (int i = 0; i < rows->n; i++)
        row_free(&rows->row[i]);
    free(rows->row);
    rows->row = NULL;
    rows->n = 0;
    rows->room = 0;
}

int qm_rows_analyzed(const struct qm_rows *rows)
{
    int n = 0;
    for (int i = 0; i < rows->n; i++)
        n += rows->row[i].value != NULL;
    return n;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static json_t *decades(const struct qm_decade *d)
{
    json_t *list = json_array();
    for (int k = 0; k < QM_DECADES; k++) {
        if (d[k].count == 0)
            continue;
        json_t *o = json_pack("{s:f, s:I}", "from", pow(10.0, QM_DECADE_LOW + k), "count",
                              (json_int_t)d[k].count);
        json_object_set_new(o, "mean_rel", qm_json_shown(d[k].mean_rel));
        json_object_set_new(o, "rms_rel", qm_json_shown(d[k].rms_rel));
        json_object_set_new(o, "zero_share", qm_json_number(d[k].zero_share));
        json_array_append_new(list, o);
    }
    return list;
}

static void set_text(json_t *o, const char *key, const char *text)
{
    json_object_set_new(o, key, text && *text ? json_string(text) : json_null());
}

static json_t *row_json(const struct qm_rows *rows, const struct qm_row *r, int full)
{
    json_t *o = json_object();
    if (full)
        set_text(o, "file", r->file);
    set_text(o, "tensor", r->tensor);
    if (full) {
        set_text(o, "shape", r->shape);
        set_text(o, "dtype", r->dtype);
        set_text(o, "slot", r->slot);
    }
    set_text(o, "variant", r->variant);
    set_text(o, "quantizer", r->quantizer);
    if (!r->value) {
        set_text(o, "reason", r->skipped);
        return o;
    }
    json_object_set_new(o, "n", json_integer(r->classes.n));
    json_object_set_new(o, "nan", json_integer(r->classes.nan));
    json_object_set_new(o, "inf", json_integer(r->classes.inf));
    if (full) {
        json_object_set_new(o, "negative", json_integer(r->classes.negative));
        json_object_set_new(o, "zero", json_integer(r->classes.zero));
        json_object_set_new(o, "largest", qm_json_shown(r->classes.max_abs));
    }
    for (int m = 0; m < rows->n_metrics; m++)
        json_object_set_new(o, rows->metric[m]->name, qm_json_shown(r->value[m]));
    if (full && r->decade)
        json_object_set_new(o, "decades", decades(r->decade));
    return o;
}

/* Drops a column of the text output that is null or 0 in every row. */
static void drop_empty(json_t *list, const char *key)
{
    size_t i;
    json_t *o;
    json_array_foreach (list, i, o) {
        json_t *v = json_object_get(o, key);
        if (v && !json_is_null(v) && !(json_is_integer(v) && json_integer_value(v) == 0))
            return;
    }
    json_array_foreach (list, i, o)
        json_object_del(o, key);
}

/* The analyzed rows, or the skipped ones. */
static json_t *rows_json(const struct qm_rows *rows, int analyzed, int full)
{
    json_t *list = json_array();
    for (int i = 0; i < rows->n; i++)
        if ((rows->row[i].value != NULL) == analyzed)
            json_array_append_new(list, row_json(rows, &rows->row[i], full));
    return list;
}

/* Prints every analyzed row as a block of its own, without null values. */
static void report_full(const struct qm_rows *rows)
{
    json_t *list = rows_json(rows, 1, 1), *o, *v;
    size_t i;
    const char *key;
    void *next;
    json_array_foreach (list, i, o) {
        json_object_foreach_safe(o, next, key, v) if (json_is_null(v)) json_object_del(o, key);
        if (i)
            putchar('\n');
        qm_report(json_incref(o));
    }
    json_decref(list);
}

/* Makes one row of those that differ in their tensor alone: "w/param and 2 more". */
static json_t *gather(json_t *list)
{
    static const char *const keys[] = {"reason", "variant", "quantizer"};
    json_t *all = json_array(), *by_key = json_object(), *o, *met;
    size_t i;
    json_array_foreach (list, i, o) {
        json_t *alike = json_array();
        for (int k = 0; k < 3; k++) {
            json_t *v = json_object_get(o, keys[k]);
            json_array_append(alike, v ? v : json_null());
        }
        char *key = json_dumps(alike, JSON_COMPACT);
        json_decref(alike);
        met = key ? json_object_get(by_key, key) : NULL;
        json_int_t more = json_integer_value(json_object_get(met, "more"));
        if (met)
            json_object_set_new(met, "more", json_integer(more + 1));
        else
            json_array_append(all, o);
        if (key && !met)
            json_object_set(by_key, key, o);
        free(key);
    }
    json_array_foreach (all, i, met) {
        json_int_t more = json_integer_value(json_object_get(met, "more"));
        if (more)
            json_object_set_new(met, "tensor",
                                json_sprintf("%s and %lld more",
                                             json_string_value(json_object_get(met, "tensor")),
                                             (long long)more));
        json_object_del(met, "more");
    }
    json_decref(by_key);
    json_decref(list);
    return all;
}

void qm_rows_report(const struct qm_rows *rows, int full, json_t *remarks)
{
    static const char *const optional[] = {"variant", "quantizer", "nan", "inf"};
    json_t *skipped = rows_json(rows, 0, qm_cli.json);
    if (qm_cli.json) {
        json_t *all = json_pack("{s:o, s:o}", "rows", rows_json(rows, 1, 1), "skipped", skipped);
        if (json_object_size(remarks))
            json_object_set(all, "remarks", remarks);
        qm_report(all);
        return;
    }
    if (full) {
        report_full(rows);
    } else {
        json_t *list = rows_json(rows, 1, 0);
        for (int k = 0; k < 4; k++)
            drop_empty(list, optional[k]);
        qm_report(list);
    }
    if (!qm_cli.verbose)
        skipped = gather(skipped);
    drop_empty(skipped, "variant");
    drop_empty(skipped, "quantizer");
    if (json_array_size(skipped)) {
        puts(qm_rows_analyzed(rows) ? "\nskipped" : "skipped");
        qm_report(skipped);
    } else {
        json_decref(skipped);
    }
}

/* ---- HDF5 ---------------------------------------------------------------------------------- */

static void texts(struct qm_columns *c, const struct qm_row *const *row, const char *name,
                  const char *text, const char *(*get)(const struct qm_row *))
{
    const char **data = qm_columns_text(c, name, text);
    for (int i = 0; data && i < c->rows; i++)
        data[i] = get(row[i]);
}

static const char *get_file(const struct qm_row *r) { return r->file; }
static const char *get_tensor(const struct qm_row *r) { return r->tensor; }
static const char *get_shape(const struct qm_row *r) { return r->shape; }
static const char *get_dtype(const struct qm_row *r) { return r->dtype; }
static const char *get_variant(const struct qm_row *r) { return r->variant; }
static const char *get_slot(const struct qm_row *r) { return r->slot ? r->slot : ""; }
static const char *get_quantizer(const struct qm_row *r) { return r->quantizer; }
static const char *get_skipped(const struct qm_row *r) { return r->skipped; }

static void labels(struct qm_columns *c, const struct qm_row *const *row)
{
    texts(c, row, "file", "the file that was read", get_file);
    texts(c, row, "tensor", "name in the file", get_tensor);
    texts(c, row, "shape", "sizes, row-major", get_shape);
    texts(c, row, "dtype", "element type in the file", get_dtype);
    texts(c, row, "variant", "variant or recipe that chose the quantizer, or empty", get_variant);
    texts(c, row, "slot", "its slot, or empty", get_slot);
    texts(c, row, "quantizer", "canonical string", get_quantizer);
}

static void counts(struct qm_columns *c, const struct qm_row *const *row)
{
    int64_t *n = qm_columns_whole(c, "n", "elements");
    int64_t *nan = qm_columns_whole(c, "nan", "NaN elements");
    int64_t *inf = qm_columns_whole(c, "inf", "infinite elements");
    int64_t *negative = qm_columns_whole(c, "negative", "elements below zero");
    int64_t *zero = qm_columns_whole(c, "zero", "elements equal to zero");
    double *largest = qm_columns_number(c, "largest", "1", "largest finite magnitude");
    for (int i = 0; !c->failed && i < c->rows; i++) {
        n[i] = row[i]->classes.n;
        nan[i] = row[i]->classes.nan;
        inf[i] = row[i]->classes.inf;
        negative[i] = row[i]->classes.negative;
        zero[i] = row[i]->classes.zero;
        largest[i] = row[i]->classes.max_abs;
    }
}

static qm_status store_rows(const struct qm_rows *rows, const struct qm_row *const *row, int n,
                            struct qm_store *s, int skipped)
{
    struct qm_columns of = {.rows = n}, *c = &of;
    labels(c, row);
    if (skipped) {
        texts(c, row, "reason", "why it was not analyzed", get_skipped);
        return qm_columns_store(c, s, "/analyze/skipped", "what was not analyzed");
    }
    counts(c, row);
    for (int m = 0; m < rows->n_metrics; m++) {
        const struct qm_metric *metric = rows->metric[m];
        double *data = qm_columns_number(c, metric->name, metric->unit, metric->text);
        for (int i = 0; data && i < n; i++)
            data[i] = row[i]->value[m];
    }
    return qm_columns_store(c, s, "/analyze/rows",
                            "quantization error, a row per tensor and quantizer");
}

/* count, mean_rel, rms_rel and zero_share of every decade, each (rows, QM_DECADES). */
static qm_status store_decades(const struct qm_row *const *row, int n, struct qm_store *s)
{
    static const char *const path[] = {"/analyze/decades/count", "/analyze/decades/mean_rel",
                                       "/analyze/decades/rms_rel", "/analyze/decades/zero_share"};
    static const char *const text[] = {"elements with |x| in this decade", "mean of |error| / |x|",
                                       "root mean square of |error| / |x|",
                                       "share decoded to zero"};
    static const char *const scales[] = {"", "/analyze/decades/from"};
    struct qm_shape line = {1, {QM_DECADES}}, shape = {2, {n, QM_DECADES}};
    double from[QM_DECADES], *data = malloc((size_t)n * QM_DECADES * sizeof *data);
    if (!data)
        return qm_fail(QM_NO_MEMORY, "decades of %d rows", n);
    for (int k = 0; k < QM_DECADES; k++)
        from[k] = pow(10.0, QM_DECADE_LOW + k);
    qm_status st = qm_store_array(s, scales[1], QM_DTYPE_f64, &line, from, "1",
                                  "lower end of the decade of |x|", NULL);
    for (int which = 0; st == QM_OK && which < 4; which++) {
        for (int i = 0; i < n; i++)
            for (int k = 0; k < QM_DECADES; k++) {
                const struct qm_decade *d = &row[i]->decade[k];
                const double value[] = {(double)d->count, d->mean_rel, d->rms_rel, d->zero_share};
                data[i * QM_DECADES + k] = value[which];
            }
        st = qm_store_array(s, path[which], QM_DTYPE_f64, &shape, data, "1", text[which], scales);
    }
    free(data);
    return st;
}

qm_status qm_rows_store(const struct qm_rows *rows, struct qm_store *s)
{
    const struct qm_row **good = calloc((size_t)rows->n + 1, sizeof *good);
    const struct qm_row **skipped = calloc((size_t)rows->n + 1, sizeof *skipped);
    int n_good = 0, n_skipped = 0;
    qm_status st = good && skipped ? QM_OK : qm_fail(QM_NO_MEMORY, "table of %d rows", rows->n);
    for (int i = 0; st == QM_OK && i < rows->n; i++) {
        if (rows->row[i].value)
            good[n_good++] = &rows->row[i];
        else
            skipped[n_skipped++] = &rows->row[i];
    }
    if (st == QM_OK)
        st = store_rows(rows, good, n_good, s, 0);
    if (st == QM_OK)
        st = store_rows(rows, skipped, n_skipped, s, 1);
    if (st == QM_OK && n_good && good[0]->decade)
        st = store_decades(good, n_good, s);
    free(good);
    free(skipped);
    return st;
}
