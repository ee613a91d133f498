/* claim.c - Judges claims: effects, their intervals, and verdicts. */
#include "experiments/run/claim.h"

#include "experiments/cli/cli.h"
#include "experiments/run/summary.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const verdict_texts[] = {
#define X(name, text) text,
    QM_CLAIM_VERDICT_LIST(X)
#undef X
};

static const char *claim_verdict_text(enum qm_claim_verdict v) { return verdict_texts[v]; }

/* ---- statistics ------------------------------------------------------------------------------ */

void qm_mean_interval(const double *x, int64_t n, double level, struct qm_effect *out)
{
    double sum = 0.0, squares = 0.0;
    out->n = n;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    out->mean = n > 0 ? sum / (double)n : (double)NAN;
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - out->mean) * (x[i] - out->mean);
    double half = (double)INFINITY;
    if (n > 1)
        half = gsl_cdf_tdist_Pinv(0.5 + 0.5 * level, (double)(n - 1)) *
               sqrt(squares / (double)(n - 1) / (double)n);
    out->lo = out->mean - half;
    out->hi = out->mean + half;
}

enum qm_claim_verdict qm_claim_verdict_of(const struct qm_effect *e, enum qm_relation relation,
                                          const double bound[2])
{
    int holds = 0, fails = 0;
    switch (relation) {
    case QM_RELATION_above:
        holds = e->lo > bound[0];
        fails = e->hi <= bound[0];
        break;
    case QM_RELATION_below:
        holds = e->hi < bound[0];
        fails = e->lo >= bound[0];
        break;
    case QM_RELATION_between:
        holds = e->lo > bound[0] && e->hi < bound[1];
        fails = e->hi <= bound[0] || e->lo >= bound[1];
        break;
    case QM_RELATION_COUNT: break;
    }
    return holds   ? QM_CLAIM_VERDICT_holds
           : fails ? QM_CLAIM_VERDICT_fails
                   : QM_CLAIM_VERDICT_undecided;
}

/* ---- from the cells -------------------------------------------------------------------------- */

/* The summary whose rows are the units, each with the mean of its cells.  Borrows every text. */
static void units_plan(const struct qm_expect *e, struct qm_summary_plan *out)
{
    static char name[] = "expect", mean[] = "mean";
    *out = (struct qm_summary_plan){.name = name,
                                    .line = e->line,
                                    .n_by = 1,
                                    .n_values = 1,
                                    .n_stats = 1,
                                    .n_where = e->n_of,
                                    .at_best = 1,
                                    .counts_cells = 1,
                                    .by = {e->unit},
                                    .value = {e->value},
                                    .stat = {mean},
                                    .versus_key = e->versus_key,
                                    .versus_label = e->versus_label};
    for (int i = 0; i < e->n_of; i++) {
        out->where_key[i] = e->of_key[i];
        out->where_label[i] = e->of_label[i];
    }
}

qm_status qm_claim_check(const struct qm_suite *suite, const struct qm_expect *e)
{
    struct qm_summary_plan plan;
    units_plan(e, &plan);
    for (int i = 0; i < e->n_of; i++) { /* a misspelt label would match no cell, silently */
        int axis = qm_suite_axis(suite, e->of_key[i]), found = axis < 0;
        for (int v = 0; !found && v < suite->axis[axis].n; v++)
            found = strcmp(suite->axis[axis].value[v].label, e->of_label[i]) == 0;
        if (!found) {
            char where[512];
            snprintf(where, sizeof where, "%s:%d", suite->path, e->line);
            qm_fail(QM_BAD_ARG, "axis '%s' has no value '%s'", e->of_key[i], e->of_label[i]);
            return qm_fail_in(QM_BAD_ARG, where);
        }
    }
    return qm_summary_check(suite, &plan);
}

static qm_status judge(const struct qm_results *r, const struct qm_expect *e, struct qm_effect *out)
{
    struct qm_summary_plan plan;
    struct qm_summary *s;
    units_plan(e, &plan);
    QM_TRY(qm_summary_make(r, &plan, &s));
    int rows = qm_summary_rows(s), n = 0;
    double *x = calloc((size_t)rows + 1, sizeof *x);
    int not_finite = 0;
    for (int i = 0; x && i < rows; i++)
        if (qm_summary_n(s, i) > 0) {
            double value = qm_summary_value(s, i, 0, 0);
            not_finite += !isfinite(value);
            if (isfinite(value))
                x[n++] = value;
        }
    if (x) {
        qm_mean_interval(x, n, 0.95, out);
        out->cells = out->left_out = out->best = 0;
        out->not_finite = not_finite;
        for (int i = 0; i < rows; i++) {
            out->cells += qm_summary_n(s, i);
            out->left_out += qm_summary_left_out(s, i);
            out->best += qm_summary_best(s, i);
        }
        out->verdict = qm_claim_verdict_of(out, e->relation, e->bound);
    }
    qm_summary_free(s);
    free(x);
    return x ? QM_OK : qm_fail(QM_NO_MEMORY, "claim");
}

qm_status qm_claim_judge(const struct qm_results *r, struct qm_effect *effect)
{
    for (int i = 0; i < r->suite->n_expects; i++)
        QM_TRY(judge(r, &r->suite->expect[i], &effect[i]));
    return QM_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

/* "exp_avg=nf4, seed=1"; the caller frees it. */
static char *cells_text(const struct qm_expect *e)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    for (int i = 0; i < e->n_of; i++)
        fprintf(f, "%s%s=%s", i ? ", " : "", e->of_key[i], e->of_label[i]);
    fputs(e->n_of ? "" : "all cells", f);
    return fclose(f) == 0 ? text : NULL;
}

void qm_claim_print(const struct qm_suite *s, const struct qm_effect *effect)
{
    char *claim = qm_cli_shown(s->claim);
    char *source = s->claim_source ? qm_cli_shown(s->claim_source) : NULL;
    qm_print("\n%s: %s\n", s->stem, claim ? claim : "");
    if (source)
        qm_print("  said by %s\n", source);
    free(claim);
    free(source);
    for (int i = 0; i < s->n_expects; i++) {
        const struct qm_expect *e = &s->expect[i];
        const struct qm_effect *x = &effect[i];
        const char *unit = qm_value_unit(qm_value_find(e->value));
        char *of = cells_text(e);
        qm_print("  %s of %s", e->value, of ? of : "");
        if (e->versus_key)
            qm_print(" minus %s=%s", e->versus_key, e->versus_label);
        qm_print(": %.3g%s%s [%.3g, %.3g] over %lld x %s (%lld cells", x->mean,
                 strcmp(unit, "1") == 0 ? "" : " ", strcmp(unit, "1") == 0 ? "" : unit, x->lo,
                 x->hi, (long long)x->n, e->unit, (long long)x->cells);
        if (x->left_out)
            qm_print(", %lld not quantized left out", (long long)x->left_out);
        if (x->best)
            qm_print(", %lld at the rates tuned for them", (long long)x->best);
        if (x->not_finite)
            qm_print(", %d x %s not finite left out", x->not_finite, e->unit);
        qm_print("); expected %s: %s\n", e->relation_text, claim_verdict_text(x->verdict));
        free(of);
    }
}

json_t *qm_claim_json(const struct qm_suite *s, const struct qm_effect *effect)
{
    json_t *rows = json_array();
    for (int i = 0; i < s->n_expects; i++) {
        const struct qm_expect *e = &s->expect[i];
        json_t *of = json_object(), *versus = json_object();
        for (int k = 0; k < e->n_of; k++)
            json_object_set_new(of, e->of_key[k], json_string(e->of_label[k]));
        if (e->versus_key)
            json_object_set_new(versus, e->versus_key, json_string(e->versus_label));
        json_array_append_new(
            rows,
            json_pack("{s:s, s:s, s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:i, s:o, s:o, s:o, s:s, s:s}",
                      "value", e->value, "value_unit", qm_value_unit(qm_value_find(e->value)), "of",
                      of, "versus", versus, "unit", e->unit, "n", (json_int_t)effect[i].n, "cells",
                      (json_int_t)effect[i].cells, "not_quantized", (json_int_t)effect[i].left_out,
                      "best_rates", (json_int_t)effect[i].best, "not_finite", effect[i].not_finite,
                      "mean", qm_json_shown(effect[i].mean), "lo", qm_json_shown(effect[i].lo),
                      "hi", qm_json_shown(effect[i].hi), "relation", e->relation_text, "verdict",
                      claim_verdict_text(effect[i].verdict)));
    }
    return json_pack("{s:s, s:s, s:s, s:o}", "suite", s->stem, "claim", s->claim, "source",
                     s->claim_source ? s->claim_source : "", "expect", rows);
}

/* The columns of /claims. */
struct columns {
    const char **value, **versus, **unit, **relation, **verdict;
    char **of;
    int64_t *n, *cells, *left_out;
    double *mean, *lo, *hi;
};

static qm_status store_table(struct columns *c, int rows, struct qm_store *store)
{
    int64_t left_out = 0;
    for (int i = 0; i < rows; i++)
        left_out += c->left_out[i];
    const struct qm_column columns[] = {
        {"value", QM_COLUMN_text, "", "the column of /metrics", c->value},
        {"of", QM_COLUMN_text, "", "the cells", c->of},
        {"versus", QM_COLUMN_text, "", "what they are compared with; empty: nothing", c->versus},
        {"unit", QM_COLUMN_text, "", "what counts as independent", c->unit},
        {"n", QM_COLUMN_i64, "1", "units", c->n},
        {"cells", QM_COLUMN_i64, "1", "values that they were averaged from", c->cells},
        {"mean", QM_COLUMN_f64, "1", "mean over units, in the value's unit", c->mean},
        {"lo", QM_COLUMN_f64, "1", "lower end of its 95 % interval (Student's t)", c->lo},
        {"hi", QM_COLUMN_f64, "1", "upper end", c->hi},
        {"relation", QM_COLUMN_text, "", "what the claim says of it", c->relation},
        {"verdict", QM_COLUMN_text, "", "holds, does not hold, undecided", c->verdict},
        {"not_quantized", QM_COLUMN_i64, "1", "values left out: their states kept plain floats",
         c->left_out},
    };
    return qm_store_table(store, "/claims", "expectations of the suite's claim", rows,
                          (int)(sizeof columns / sizeof *columns) - (left_out == 0), columns);
}

qm_status qm_claim_store(const struct qm_suite *s, const struct qm_effect *effect,
                         struct qm_store *store)
{
    int rows = s->n_expects;
    if (!s->claim)
        return QM_OK;
    QM_TRY(qm_store_text(store, "/suite", "claim", s->claim));
    QM_TRY(qm_store_text(store, "/suite", "claim_source", s->claim_source ? s->claim_source : ""));
    size_t room = (size_t)rows + 1;
    const char **texts = calloc(5 * room, sizeof *texts);
    double *numbers = calloc(3 * room, sizeof *numbers);
    int64_t *n = calloc(3 * room, sizeof *n);
    char **of = calloc(room, sizeof *of);
    struct columns c = {
        .of = of, .n = n, .cells = n ? n + room : NULL, .left_out = n ? n + 2 * room : NULL};
    qm_status st =
        texts && numbers && n && of ? QM_OK : qm_fail(QM_NO_MEMORY, "claims of %s", s->stem);
    if (st == QM_OK) {
        c.value = texts, c.versus = texts + room, c.unit = texts + 2 * room;
        c.relation = texts + 3 * room, c.verdict = texts + 4 * room;
        c.mean = numbers, c.lo = numbers + room, c.hi = numbers + 2 * room;
    }
    for (int i = 0; st == QM_OK && i < rows; i++) {
        const struct qm_expect *e = &s->expect[i];
        c.value[i] = e->value, c.versus[i] = e->versus_label, c.unit[i] = e->unit;
        c.relation[i] = e->relation_text, c.verdict[i] = claim_verdict_text(effect[i].verdict);
        c.of[i] = cells_text(e);
        c.n[i] = effect[i].n, c.cells[i] = effect[i].cells;
        c.left_out[i] = effect[i].left_out;
        c.mean[i] = effect[i].mean, c.lo[i] = effect[i].lo, c.hi[i] = effect[i].hi;
    }
    if (st == QM_OK)
        st = store_table(&c, rows, store);
    for (int i = 0; of && i < rows; i++)
        free(of[i]);
    free(of);
    free(n);
    free(numbers);
    free(texts);
    return st;
}
