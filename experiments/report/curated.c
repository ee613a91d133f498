/* curated.c - Makes the tables that a page starts with from the stored tables. */
#include "experiments/report/curated.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VERDICTS "/protocol/verdicts"

/* ---- verdicts ------------------------------------------------------------------------------ */

struct verdicts {
    int64_t rows;
    char **problem, **label, **verdict;
    char **late, **area, **rates, **same; /* NULL in older files, as same_mean */
    double *same_mean;
    double *lr_scale, *n, *diverged, *failed, *mean, *lo95, *hi95, *lo90, *hi90, *median, *q;
    double *null_lo, *null_hi;
    double *elsewhere, *detectable, *bits, *coded; /* NULL in files that have no such column */
};

static void verdicts_free(struct verdicts *v)
{
    void *all[] = {v->rates,    v->same,      v->same_mean,  v->late,     v->area,
                   v->problem,  v->label,     v->verdict,    v->lr_scale, v->n,
                   v->diverged, v->failed,    v->mean,       v->lo95,     v->hi95,
                   v->lo90,     v->hi90,      v->median,     v->q,        v->null_lo,
                   v->null_hi,  v->elsewhere, v->detectable, v->bits,     v->coded};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static qm_status verdicts_read(struct qm_result *r, struct verdicts *v)
{
    QM_TRY(qm_result_texts(r, VERDICTS, "problem", &v->rows, &v->problem));
    QM_TRY(qm_result_texts(r, VERDICTS, "label", &v->rows, &v->label));
    QM_TRY(qm_result_texts(r, VERDICTS, "verdict", &v->rows, &v->verdict));
#define NUMBER(name) QM_TRY(qm_result_f64(r, VERDICTS, #name, &v->rows, &v->name))
    NUMBER(lr_scale);
    NUMBER(n);
    NUMBER(diverged);
    NUMBER(failed);
    NUMBER(mean);
    NUMBER(lo95);
    NUMBER(hi95);
    NUMBER(lo90);
    NUMBER(hi90);
    NUMBER(median);
    NUMBER(q);
    NUMBER(null_lo);
    NUMBER(null_hi);
#undef NUMBER
    if (qm_result_texts(r, VERDICTS, "verdict_late", &v->rows, &v->late) != QM_OK)
        v->late = NULL;
    if (qm_result_texts(r, VERDICTS, "verdict_area", &v->rows, &v->area) != QM_OK)
        v->area = NULL;
    if (qm_result_texts(r, VERDICTS, "rates", &v->rows, &v->rates) != QM_OK)
        v->rates = NULL;
    if (qm_result_texts(r, VERDICTS, "same_verdict", &v->rows, &v->same) != QM_OK)
        v->same = NULL;
    if (qm_result_f64(r, VERDICTS, "same_mean", &v->rows, &v->same_mean) != QM_OK)
        v->same_mean = NULL;
    if (qm_result_f64(r, VERDICTS, "elsewhere", &v->rows, &v->elsewhere) != QM_OK)
        v->elsewhere = NULL;
    if (qm_result_f64(r, VERDICTS, "detectable", &v->rows, &v->detectable) != QM_OK)
        v->detectable = NULL;
    if (qm_result_f64(r, VERDICTS, "bits", &v->rows, &v->bits) != QM_OK)
        v->bits = NULL;
    if (qm_result_f64(r, VERDICTS, "coded", &v->rows, &v->coded) != QM_OK)
        v->coded = NULL;
    return QM_OK;
}

/* Adds a cell such as "[-0.01, 0.02]" that sorts by its lower end. */
static void interval(struct qm_text_grid *g, double lo, double hi)
{
    char text[80];
    snprintf(text, sizeof text, "[%.3g, %.3g]", lo, hi);
    qm_grid_keyed(g, isfinite(lo) ? lo : nan(""), isfinite(lo) && isfinite(hi) ? text : "-");
}

static void long_rows(const struct verdicts *v, struct qm_text_grid *g)
{
    for (int64_t i = 0; i < v->rows; i++) {
        qm_grid_text(g, v->problem[i]);
        qm_grid_text(g, v->label[i]);
        qm_grid_number(g, v->lr_scale[i], "%g");
        qm_grid_number(g, v->n[i], "%g");
        qm_grid_number(g, v->diverged[i] + v->failed[i], "%g");
        qm_grid_number(g, v->elsewhere ? v->elsewhere[i] : 0, "%g");
        qm_grid_number(g, v->mean[i], "%.3g");
        interval(g, v->lo95[i], v->hi95[i]);
        interval(g, v->lo90[i], v->hi90[i]);
        qm_grid_number(g, v->median[i], "%.3g");
        interval(g, v->null_lo[i], v->null_hi[i]);
        qm_grid_number(g, v->detectable ? v->detectable[i] : nan(""), "%.2g");
        qm_grid_number(g, v->q[i], "%.2g");
        qm_grid_number(g, v->bits ? v->bits[i] : nan(""), "%.4g");
        qm_grid_number(g, v->coded ? 100.0 * v->coded[i] : nan(""), "%.3g");
        qm_grid_text(g, v->verdict[i]);
        qm_grid_text(g, v->late ? v->late[i] : "-");
        qm_grid_text(g, v->area ? v->area[i] : "-");
        qm_grid_text(g, v->rates ? v->rates[i] : "-");
        qm_grid_number(g, v->same_mean ? v->same_mean[i] : nan(""), "%.3g");
        qm_grid_text(g, v->same ? v->same[i] : "-");
    }
}

qm_status qm_verdicts_long(struct qm_result *r, struct qm_text_grid *out)
{
    struct verdicts v = {0};
    struct qm_text_grid g = {0};
    qm_status st = verdicts_read(r, &v);
    if (st == QM_OK) {
        qm_grid_open(&g, "Verdicts",
                     "d: log10 of the variant's gap minus log10 of its double-precision twin's, "
                     "paired by seed; positive is worse.");
        qm_grid_column(&g, "problem", "", "", 0);
        qm_grid_column(&g, "variant", "", "", 0);
        qm_grid_column(&g, "lr", "", "multiple of the problem's learning rate", 1);
        qm_grid_column(&g, "n", "", "different pairs", 1);
        qm_grid_column(&g, "lost", "", "runs that diverged or failed", 1);
        qm_grid_column(&g, "elsewhere", "", "pairs in another basin, which do not count", 1);
        qm_grid_column(&g, "d", "log10", "trimmed mean over seeds", 1);
        qm_grid_column(&g, "95 %", "log10", "interval of the mean", 1);
        qm_grid_column(&g, "90 %", "log10", "interval that the test of equivalence uses", 1);
        qm_grid_column(&g, "median", "log10", "of d over seeds", 1);
        qm_grid_column(&g, "null", "log10",
                       "95 % interval of the rule with float32 states: rounding and chaos alone",
                       1);
        qm_grid_column(&g, "finds", "log10", "d that so many pairs would show with 80 % power", 1);
        qm_grid_column(&g, "q", "", "p after Benjamini and Hochberg", 1);
        qm_grid_column(&g, "bits", "", "of state per element, as used", 1);
        qm_grid_column(&g, "coded", "%",
                       "of elements that had codes, of those to which the recipe gives codes", 1);
        qm_grid_column(&g, "verdict", "", "after the last step", 0);
        qm_grid_column(&g, "late", "", "the verdict over the last eighth of the steps", 0);
        qm_grid_column(&g, "area", "", "the verdict over the logarithm of the step", 0);
        qm_grid_column(
            &g, "rates", "",
            "best against best: each at the rate tuned for it (a variant at the nearest to the "
            "twin's of those that tuning could not tell from the lowest); same rate: the twin's "
            "best; "
            "not tuned: the problem's, for other steps or another schedule, or the suite's lr",
            0);
        qm_grid_column(&g, "same rate", "log10", "d with both at the twin's rate", 1);
        qm_grid_column(&g, "verdict there", "", "the verdict at the same rate", 0);
        long_rows(&v, &g);
        st = qm_grid_check(&g);
    }
    verdicts_free(&v);
    if (st == QM_OK)
        *out = g;
    else
        qm_grid_close(&g);
    return st;
}

/* Sets out to the distinct ones of n texts in order of appearance, borrowed; returns
 * their number. */
static int64_t distinct(char **text, int64_t n, char **out)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = 0;
        while (k < found && strcmp(out[k], text[i]) != 0)
            k++;
        if (k == found)
            out[found++] = text[i];
    }
    return found;
}

/* Sets keep[rows] to whether the suite names the row's label: not those of null pairs and of the
 * error budget. */
static qm_status keep_named(struct qm_result *r, const struct verdicts *v, int *keep)
{
    int64_t runs, cells, *cell = NULL;
    char **label = NULL, **role = NULL;
    int known = qm_result_texts(r, "/cells", "role", &cells, &role) == QM_OK;
    for (int64_t i = 0; i < v->rows; i++)
        keep[i] = !known; /* files of versions without roles */
    if (!known)
        return QM_OK;
    qm_status st = qm_result_texts(r, "/protocol/runs", "label", &runs, &label);
    if (st == QM_OK)
        st = qm_result_i64(r, "/protocol/runs", "cell", &runs, &cell);
    for (int64_t k = 0, last = -1; st == QM_OK && k < runs; k++) {
        if (cell[k] < 0 || cell[k] >= cells) {
            st = qm_fail(QM_BAD_FILE, "/protocol/runs: row %lld has no cell", (long long)k);
        } else if (strcmp(role[cell[k]], "plain") == 0) {
            int again = last >= 0 && strcmp(label[last], label[k]) == 0;
            for (int64_t i = 0; !again && i < v->rows; i++)
                keep[i] |= strcmp(v->label[i], label[k]) == 0;
            last = k;
        }
    }
    free(label);
    free(role);
    free(cell);
    return st;
}

/* What the rows say of their learning rates, as the end of a sentence. */
static const char *rates_sentence(const struct verdicts *v)
{
    int64_t best = 0, untuned = 0;
    for (int64_t i = 0; v->rates && i < v->rows; i++) {
        best += strcmp(v->rates[i], "best against best") == 0;
        untuned += strcmp(v->rates[i], "not tuned") == 0;
    }
    if (!v->rates || untuned == v->rows)
        return "the problem's learning rate, or that which the suite sets (lr), which was not "
               "tuned for these steps and this schedule";
    return untuned ? "learning rates of which some were not tuned (column rates below)"
           : best  ? "the learning rates that were tuned for each (column rates below)"
                   : "the learning rate that was tuned for the twin";
}

/* The lr_scale at which variants are compared: 1, or the nearest to it. */
static double main_scale(const struct verdicts *v)
{
    double one = v->rows ? v->lr_scale[0] : 1;
    for (int64_t i = 1; i < v->rows; i++) {
        double nearer = fabs(log(v->lr_scale[i])) - fabs(log(one));
        if (nearer < 0 || (nearer == 0 && v->lr_scale[i] < one))
            one = v->lr_scale[i];
    }
    return one;
}

static void wide_cell(const struct verdicts *v, double one, const char *label, const char *problem,
                      struct qm_text_grid *g)
{
    char text[96];
    for (int64_t i = 0; i < v->rows; i++)
        if (v->lr_scale[i] == one && strcmp(v->label[i], label) == 0 &&
            strcmp(v->problem[i], problem) == 0) {
            snprintf(text, sizeof text, "%+.3g %s", v->mean[i], v->verdict[i]);
            qm_grid_keyed(g, v->mean[i], isnan(v->mean[i]) ? v->verdict[i] : text);
            return;
        }
    qm_grid_keyed(g, nan(""), "-");
}

qm_status qm_verdicts_wide(struct qm_result *r, struct qm_text_grid *out)
{
    struct verdicts v = {0};
    struct qm_text_grid g = {0};
    qm_status st = verdicts_read(r, &v);
    char **label = calloc((size_t)v.rows + 1, sizeof *label);
    char **problem = calloc((size_t)v.rows + 1, sizeof *problem);
    int *keep = calloc((size_t)v.rows + 1, sizeof *keep);
    if (st == QM_OK && (!label || !problem || !keep))
        st = qm_fail(QM_NO_MEMORY, "verdicts");
    if (st == QM_OK)
        st = keep_named(r, &v, keep);
    if (st == QM_OK) {
        int64_t labels = 0, problems = distinct(v.problem, v.rows, problem);
        for (int64_t i = 0; i < v.rows; i++)
            if (keep[i])
                label[labels++] = v.label[i];
        labels = distinct(label, labels, label);
        char text[256], times[32] = "";
        double one = main_scale(&v);
        if (one != 1)
            snprintf(times, sizeof times, "%g times ", one);
        snprintf(text, sizeof text,
                 "Trimmed mean of d, log10 of gap over the double-precision twin's, at %s%s; "
                 "and its verdict.",
                 times, rates_sentence(&v));
        qm_grid_open(&g, "d by variant and problem", text);
        qm_grid_column(&g, "variant", "", "", 0);
        for (int64_t k = 0; k < problems; k++)
            qm_grid_column(&g, problem[k], "", "", 1);
        for (int64_t i = 0; i < labels; i++) {
            qm_grid_text(&g, label[i]);
            for (int64_t k = 0; k < problems; k++)
                wide_cell(&v, one, label[i], problem[k], &g);
        }
        st = qm_grid_check(&g);
    }
    free(label);
    free(problem);
    free(keep);
    verdicts_free(&v);
    if (st == QM_OK)
        *out = g;
    else
        qm_grid_close(&g);
    return st;
}

/* ---- cells --------------------------------------------------------------------------------- */

struct outcomes {
    int64_t rows;
    char **status, **reason, **recipe, **source;
    int64_t *seed;
};

static void outcomes_free(struct outcomes *o)
{
    free(o->status);
    free(o->reason);
    free(o->recipe);
    free(o->source);
    free(o->seed);
}

static qm_status outcomes_read(struct qm_result *r, struct outcomes *o)
{
    QM_TRY(qm_result_texts(r, "/cells", "status", &o->rows, &o->status));
    QM_TRY(qm_result_texts(r, "/cells", "reason", &o->rows, &o->reason));
    QM_TRY(qm_result_texts(r, "/cells", "recipe", &o->rows, &o->recipe));
    QM_TRY(qm_result_texts(r, "/cells", "source", &o->rows, &o->source));
    return qm_result_i64(r, "/cells", "seed", &o->rows, &o->seed);
}

/* Orders rows by status and reason, then by their number. */
static int by_reason(const void *a, const void *b, void *context)
{
    const struct outcomes *o = context;
    int64_t i = *(const int64_t *)a, k = *(const int64_t *)b;
    int c = strcmp(o->status[i], o->status[k]);
    c = c ? c : strcmp(o->reason[i], o->reason[k]);
    return c ? c : (i > k) - (i < k);
}

static void group_row(const struct outcomes *o, const int64_t *row, int64_t n,
                      struct qm_text_grid *g)
{
    enum { SHOWN = 4 };
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to) {
        g->failed = 1;
        return;
    }
    for (int64_t i = 0; i < n && i < SHOWN; i++)
        fprintf(to, "%s%s on %s, seed %lld", i ? "; " : "", o->recipe[row[i]], o->source[row[i]],
                (long long)o->seed[row[i]]);
    if (n > SHOWN)
        fprintf(to, "; and %lld more", (long long)(n - SHOWN));
    fclose(to);
    qm_grid_text(g, o->status[row[0]]);
    qm_grid_text(g, o->reason[row[0]]);
    qm_grid_number(g, (double)n, "%.0f");
    qm_grid_number(g, (double)row[0], "%.0f");
    qm_grid_text(g, text);
    free(text);
}

qm_status qm_troubles(struct qm_result *r, struct qm_text_grid *out)
{
    struct outcomes o = {0};
    struct qm_text_grid g = {0};
    qm_status st = outcomes_read(r, &o);
    int64_t *row = st == QM_OK ? calloc((size_t)o.rows + 1, sizeof *row) : NULL, n = 0;
    if (st == QM_OK && !row)
        st = qm_fail(QM_NO_MEMORY, "cells");
    for (int64_t i = 0; st == QM_OK && i < o.rows; i++)
        if (strcmp(o.status[i], "ok") != 0)
            row[n++] = i;
    if (st == QM_OK) {
        qsort_r(row, (size_t)n, sizeof *row, by_reason, &o);
        qm_grid_open(&g, "Cells that are not ok", "");
        qm_grid_column(&g, "status", "", "", 0);
        qm_grid_column(&g, "reason", "", "", 0);
        qm_grid_column(&g, "cells", "", "how many", 1);
        qm_grid_column(&g, "first row", "", "of /cells", 1);
        qm_grid_column(&g, "which", "", "", 0);
        for (int64_t i = 0, end; i < n; i = end) {
            for (end = i + 1; end < n && strcmp(o.status[row[end]], o.status[row[i]]) == 0 &&
                              strcmp(o.reason[row[end]], o.reason[row[i]]) == 0;
                 end++)
                ;
            group_row(&o, row + i, end - i, &g);
        }
        st = qm_grid_check(&g);
    }
    free(row);
    outcomes_free(&o);
    if (st == QM_OK)
        *out = g;
    else
        qm_grid_close(&g);
    return st;
}

qm_status qm_status_counts(struct qm_result *r, char *out, size_t size)
{
    int64_t rows, kinds;
    char **status, **kind;
    QM_TRY(qm_result_texts(r, "/cells", "status", &rows, &status));
    kind = calloc((size_t)rows + 1, sizeof *kind);
    kinds = kind ? distinct(status, rows, kind) : 0;
    size_t at = 0;
    out[0] = 0;
    for (int64_t k = 0; k < kinds && at < size; k++) {
        int64_t n = 0;
        for (int64_t i = 0; i < rows; i++)
            n += strcmp(status[i], kind[k]) == 0;
        at += (size_t)snprintf(out + at, size - at, "%s%lld %s", k ? ", " : "", (long long)n,
                               kind[k]);
    }
    free(kind);
    free(status);
    return kind ? QM_OK : qm_fail(QM_NO_MEMORY, "cells");
}

qm_status qm_distinct(struct qm_result *r, const char *table, const char *column, int64_t *n,
                      char ***out)
{
    int64_t rows;
    char **text;
    QM_TRY(qm_result_texts(r, table, column, &rows, &text));
    *n = distinct(text, rows, text);
    *out = text;
    return QM_OK;
}
