/* summary.c - Computes group-by tables. */
#include "experiments/run/summary_table.h"

#include "core/base/name.h"
#include "experiments/lockstep/coded_share.h"
#include "experiments/protocol/protocol.h"
#include "experiments/protocol/stats.h"
#include "experiments/source/tensor_class.h"
#include "experiments/suite/cell_items.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const stat_names[] = {
#define X(name) #name,
    QM_SUMMARY_STAT_LIST(X)
#undef X
};
static const char *const cell_key_names[] = {
#define X(name) #name,
    QM_SUMMARY_CELL_KEY_LIST(X)
#undef X
};

/* ---- keys ------------------------------------------------------------------------------------ */

static qm_status fail_in_plan(const struct qm_suite *s, const struct qm_summary_plan *p,
                              qm_status st)
{
    char where[256];
    snprintf(where, sizeof where, "summary %.200s", p->name);
    return qm_suite_fail_at(s, p->line, qm_fail_in(st, where));
}

static qm_status find_key(const struct qm_suite *s, const struct qm_summary_plan *p,
                          const char *name, struct qm_summary_key *k)
{
    const char *all[QM_SUITE_AXES + QM_SUMMARY_CELL_KEY_COUNT];
    int n = 0, of_cell = qm_name_find(name, cell_key_names, QM_SUMMARY_CELL_KEY_COUNT);
    k->name = name;
    k->axis = qm_suite_axis(s, name);
    k->of_cell = of_cell >= 0 ? (enum qm_cell_key)of_cell : QM_SUMMARY_CELL_KEY_COUNT;
    if (k->axis >= 0 || of_cell >= 0)
        return QM_OK;
    for (int i = 0; i < s->n_axes; i++)
        all[n++] = s->axis[i].key;
    for (int i = 0; i < QM_SUMMARY_CELL_KEY_COUNT; i++)
        if (qm_suite_axis(s, cell_key_names[i]) < 0)
            all[n++] = cell_key_names[i];
    const char *nearest = qm_name_nearest(name, all, n);
    return fail_in_plan(
        s, p,
        nearest ? qm_fail(QM_BAD_ARG, "no axis or column '%s'; did you mean '%s'?", name, nearest)
                : qm_name_none_of("axis or column", name, all, n));
}

/* The text of a cell under a key; buffer holds QM_RECIPE_TEXT bytes. */
static const char *text_of(const struct qm_results *r, int64_t i, const struct qm_summary_key *k,
                           char *buffer)
{
    const struct qm_cell *c = &r->cell[i];
    if (k->axis >= 0)
        return qm_cell_choice(r->suite, c, k->axis);
    switch (k->of_cell) {
    case QM_CELL_KEY_class: return c->class_name;
    case QM_CELL_KEY_tensor: return c->tensor;
    case QM_CELL_KEY_from: return c->source_text;
    case QM_CELL_KEY_quantizer: return qm_quantizer_print(&c->recipe->slot[c->slot], buffer);
    case QM_CELL_KEY_recipe: return qm_recipe_print(c->recipe, buffer);
    case QM_CELL_KEY_coupling: return qm_coupling_name(c->coupling);
    default: return qm_outcome_status(&r->outcome[i]);
    }
}

/* The index of a text among the key's texts, to which a new text is added; -1 without memory. */
static int index_of(struct qm_summary_key *k, const char *text)
{
    for (int i = 0; i < k->n; i++)
        if (strcmp(k->text[i], text) == 0)
            return i;
    if (k->n == k->room) {
        int room = k->room ? 2 * k->room : 16;
        char **more = realloc(k->text, (size_t)room * sizeof *more);
        if (!more)
            return -1;
        k->text = more;
        k->room = room;
    }
    if (!(k->text[k->n] = strdup(text)))
        return -1;
    return k->n++;
}

static qm_status open_key(const struct qm_summary *s, const char *name, struct qm_summary_key *k)
{
    const struct qm_suite *suite = s->results->suite;
    int ok = 1;
    QM_TRY(find_key(suite, s->plan, name, k));
    for (int i = 0; k->axis >= 0 && i < suite->axis[k->axis].n; i++)
        ok = index_of(k, suite->axis[k->axis].value[i].label) >= 0 && ok;
    for (int i = 0; k->axis < 0 && k->of_cell == QM_CELL_KEY_class && i < qm_tensor_class_count();
         i++)
        ok = index_of(k, qm_tensor_class_at(i)) >= 0 && ok;
    return ok ? QM_OK : qm_fail(QM_NO_MEMORY, "summary");
}

qm_status qm_summary_check(const struct qm_suite *suite, const struct qm_summary_plan *p)
{
    struct qm_summary_key k = {0};
    const char *names[512];
    int n = qm_value_count() < 512 ? qm_value_count() : 512;
    for (int i = 0; i < n; i++)
        names[i] = qm_value_name(i);
    for (int i = 0; i < p->n_by; i++)
        QM_TRY(find_key(suite, p, p->by[i], &k));
    for (int i = 0; i < p->n_where; i++) {
        QM_TRY(find_key(suite, p, p->where_key[i], &k));
        if (k.axis >= 0 && strcmp(p->where_key[i], "source") != 0 &&
            qm_axis_find(&suite->axis[k.axis], p->where_label[i]) < 0)
            return fail_in_plan(suite, p,
                                qm_fail(QM_BAD_ARG, "where: axis '%s' has no value '%s'",
                                        p->where_key[i], p->where_label[i]));
    }
    if (p->across)
        QM_TRY(find_key(suite, p, p->across, &k));
    for (int i = 0; i < p->n_values; i++)
        if (qm_value_find(p->value[i]) < 0)
            return fail_in_plan(suite, p, qm_name_unknown("metric", p->value[i], names, n));
    for (int i = 0; i < p->n_stats; i++) {
        if (qm_name_find(p->stat[i], stat_names, QM_SUMMARY_STAT_COUNT) < 0)
            return fail_in_plan(suite, p,
                                qm_fail(QM_BAD_ARG,
                                        "no stat '%s'; there are median, mean, min, "
                                        "max, std, p05, p95, sum and wins",
                                        p->stat[i]));
        if (strcmp(p->stat[i], "wins") == 0 && !p->versus_key)
            return fail_in_plan(suite, p, qm_fail(QM_BAD_ARG, "wins needs versus"));
    }
    if (!p->versus_key)
        return QM_OK;
    int a = qm_suite_axis(suite, p->versus_key);
    if (a < 0 || strcmp(p->versus_key, "source") == 0)
        return fail_in_plan(suite, p,
                            qm_fail(QM_BAD_ARG, "versus needs an axis, not '%s'", p->versus_key));
    if (qm_axis_find(&suite->axis[a], p->versus_label) < 0)
        return fail_in_plan(
            suite, p,
            qm_fail(QM_BAD_ARG, "axis '%s' has no value '%s'", p->versus_key, p->versus_label));
    return QM_OK;
}

/* ---- members --------------------------------------------------------------------------------- */

/* The cell that differs from cell i on the versus axis only and has the versus value there; i
 * itself where it has that value. */
static int64_t partner(const struct qm_summary *s, int64_t i)
{
    const struct qm_suite *suite = s->results->suite;
    int axis = qm_suite_axis(suite, s->plan->versus_key), source = qm_suite_axis(suite, "source");
    int base = qm_axis_find(&suite->axis[axis], s->plan->versus_label);
    int64_t others = 1, stride = 1;
    int64_t own = qm_plain_cell_count(s->results->cell, s->results->n_cells);
    for (int a = 0; a < suite->n_axes; a++)
        others *= a == source ? 1 : suite->axis[a].n;
    for (int a = suite->n_axes - 1; a > axis; a--)
        stride *= a == source ? own / others : suite->axis[a].n;
    return i + (base - qm_cell_value(suite, &s->results->cell[i], axis)) * stride;
}

/* The outcomes that compare with the twin, and what the twin has in each. */
static const struct {
    enum qm_extra of, twin;
    int is_gap; /* the outcome is log10 of a gap over the twin's; else a difference */
} against_twin[] = {
    {QM_EXTRA_log_gap, QM_EXTRA_twin_gap, 1},
    {QM_EXTRA_late, QM_EXTRA_twin_late_gap, 1},
    {QM_EXTRA_area, QM_EXTRA_twin_area, 0},
};

/* A value of cell i; is_best: of the run at the rate that was tuned for it, against the twin at the
 * twin's rate. */
static double value_of(const struct qm_results *r, int64_t i, int value, int is_best)
{
    int64_t own = is_best ? r->cell[i].own : i;
    const double *x = r->outcome[own].value, *plain = r->outcome[i].value;
    if (own == i)
        return plain[value];
    if (r->outcome[own].reason || !x)
        return nan("");
    for (size_t k = 0; k < sizeof against_twin / sizeof *against_twin; k++)
        if (value == qm_metric_count() + (int)against_twin[k].of) {
            int twin = qm_metric_count() + (int)against_twin[k].twin;
            return x[value] +
                   (against_twin[k].is_gap ? log10(x[twin] / plain[twin]) : x[twin] - plain[twin]);
        }
    return x[value];
}

/* Whether the run diverged that value_of is of. */
static int has_diverged(const struct qm_results *r, int64_t i, int is_best)
{
    return r->outcome[is_best ? r->cell[i].own : i].diverged;
}

/* Sets the values and keys of cell i; returns whether it counts, -1 without memory. */
static int member_of(struct qm_summary *s, int64_t i, struct qm_summary_key *where,
                     struct qm_summary_member *m)
{
    const struct qm_results *r = s->results;
    char buffer[QM_RECIPE_TEXT];
    int64_t base = s->plan->versus_key ? partner(s, i) : -1;
    if (r->outcome[i].reason || !r->outcome[i].value || base == i ||
        (base >= 0 && (r->outcome[base].reason || !r->outcome[base].value)))
        return 0;
    for (int w = 0; w < s->plan->n_where; w++)
        if (strcmp(text_of(r, i, &where[w], buffer), s->plan->where_label[w]) != 0)
            return 0;
    int any = 0;
    m->is_best = s->plan->at_best && r->cell[i].own >= 0 && (base < 0 || r->cell[base].own >= 0);
    m->is_diverged =
        has_diverged(r, i, m->is_best) || (base >= 0 && has_diverged(r, base, m->is_best));
    m->is_plain = qm_is_unquantized(r, i) || (base >= 0 && qm_is_unquantized(r, base));
    for (int v = 0; v < s->plan->n_values; v++) {
        m->value[v] = value_of(r, i, s->value[v], m->is_best);
        if (base >= 0)
            m->value[v] -= value_of(r, base, s->value[v], m->is_best);
        any |= !isnan(m->value[v]) || m->is_diverged;
        if (m->is_diverged && !qm_summary_is_of_gap(s->value[v]))
            m->value[v] = nan("");
    }
    m->n_keys = s->n_keys;
    m->order = i;
    m->base = base;
    m->unit = qm_summary_unit(r, i, base);
    m->draw = i;
    if (!s->plan->counts_cells) {
        m->unit = qm_summary_draw(r, i, m->unit);
        m->draw = qm_summary_draw(r, i, i);
    }
    m->theory = fabs(r->outcome[i].value[qm_metric_count() + QM_EXTRA_theory_z]);
    for (int k = 0; any && k < s->n_keys; k++)
        if ((m->at[k] = index_of(&s->key[k], text_of(r, i, &s->key[k], buffer))) < 0)
            return -1;
    return any;
}

static int by_keys(const void *a, const void *b)
{
    const struct qm_summary_member *x = a, *y = b;
    for (int k = 0; k < x->n_keys; k++)
        if (x->at[k] != y->at[k])
            return x->at[k] < y->at[k] ? -1 : 1;
    if (x->unit != y->unit)
        return x->unit < y->unit ? -1 : 1;
    if (x->draw != y->draw)
        return x->draw < y->draw ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static int same_row(const struct qm_summary_member *x, const struct qm_summary_member *y)
{
    return memcmp(x->at, y->at, (size_t)x->n_keys * sizeof *x->at) == 0;
}

/* ---- statistics ------------------------------------------------------------------------------ */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The quantile q of ascending x[n], n >= 1, linear between order statistics. */
static double quantile(const double *x, int64_t n, double q)
{
    double at = q * (double)(n - 1);
    int64_t i = (int64_t)at;
    double f = at - (double)i;
    return f > 0.0 ? x[i] + f * (x[i + 1] - x[i]) : x[i];
}

static double statistic(enum qm_summary_stat which, const double *x, int64_t n)
{
    double sum = 0.0, squares = 0.0;
    int64_t wins = 0;
    if (n == 0)
        return nan("");
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
        wins += x[i] > 0.0;
    }
    double mean = sum / (double)n;
    switch (which) {
    case QM_STAT_mean: return mean;
    case QM_STAT_min: return x[0];
    case QM_STAT_max: return x[n - 1];
    case QM_STAT_sum: return sum;
    case QM_STAT_wins: return (double)wins;
    case QM_STAT_p05: return quantile(x, n, 0.05);
    case QM_STAT_p95: return quantile(x, n, 0.95);
    case QM_STAT_std:
        for (int64_t i = 0; i < n; i++)
            squares += (x[i] - mean) * (x[i] - mean);
        return n > 1 ? sqrt(squares / (double)(n - 1)) : nan("");
    default: return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
    }
}

/* The interval of the median of ascending x[n] between two order statistics; NaN below six values,
 * where no two of them hold the median with 95 %. */
static void median_interval(const double *x, int64_t n, double *low, double *high)
{
    int64_t rank = n > 0 ? qm_median_rank(n, 0.95) : 0;
    *low = rank > 0 ? x[rank - 1] : nan("");
    *high = rank > 0 ? x[n - rank] : nan("");
}

static void fill_row(struct qm_summary *s, struct qm_summary_member *m, int64_t n, double *scratch,
                     struct qm_summary_row *row)
{
    const struct qm_summary_plan *p = s->plan;
    memcpy(row->at, m->at, sizeof row->at);
    for (int64_t i = 0; i < n; i++)
        row->n_diverged += m[i].is_diverged;
    row->n_cells = n;
    n = qm_summary_fold(s, m, n, scratch);
    row->n_units = n;
    for (int v = 0; v < p->n_values; v++) {
        int64_t count = 0;
        for (int64_t i = 0; i < n; i++)
            if (!isnan(m[i].value[v]) && !m[i].is_plain)
                scratch[count++] = m[i].value[v];
        qsort(scratch, (size_t)count, sizeof *scratch, ascending);
        for (int k = 0; k < p->n_stats; k++) {
            int at = v * p->n_stats + k;
            row->number[at] = statistic(s->stat[k], scratch, count);
            median_interval(scratch, s->stat[k] == QM_STAT_median ? count : 0, &row->low[at],
                            &row->high[at]);
        }
        row->n = count > row->n ? count : row->n;
    }
    row->theory = nan("");
    for (int64_t i = 0; i < n; i++) {
        row->n_plain += m[i].is_plain;
        row->n_best += m[i].is_best && !m[i].is_plain;
        row->n_theory += !isnan(m[i].theory);
        row->theory = fmax(row->theory, m[i].theory);
    }
}

/* Whether the plan shows the error of one quantization, which theory_z judges. */
static int shows_errors(const struct qm_summary_plan *p)
{
    int yes = 0;
    for (int v = 0; v < p->n_values; v++)
        yes |= strcmp(p->value[v], "sqnr") == 0 || strcmp(p->value[v], "nmse") == 0;
    return yes && !p->versus_key;
}

static qm_status make_rows(struct qm_summary *s, struct qm_summary_key *where)
{
    int64_t n_cells = qm_plain_cell_count(s->results->cell, s->results->n_cells), n = 0;
    size_t room = (size_t)(n_cells > 0 ? n_cells : 1);
    struct qm_summary_member *m = calloc(room, sizeof *m);
    double *scratch = malloc(room * sizeof *scratch);
    int ok = m && scratch;
    for (int64_t i = 0; ok && i < n_cells; i++) {
        int counts = member_of(s, i, where, &m[n]);
        ok = counts >= 0;
        n += counts > 0;
    }
    if (ok)
        qsort(m, (size_t)n, sizeof *m, by_keys);
    int rows = 0;
    for (int64_t i = 0; ok && i < n; i++)
        rows += i == 0 || !same_row(&m[i - 1], &m[i]);
    if (ok)
        ok = (s->row = calloc((size_t)(rows > 0 ? rows : 1), sizeof *s->row)) != NULL;
    for (int64_t i = 0, end; ok && i < n; i = end) {
        for (end = i + 1; end < n && same_row(&m[i], &m[end]); end++)
            ;
        fill_row(s, &m[i], end - i, scratch, &s->row[s->n_rows]);
        s->has_plain |= s->row[s->n_rows].n_plain > 0;
        s->has_diverged |= s->row[s->n_rows].n_diverged > 0;
        s->has_theory |= shows_errors(s->plan) && s->row[s->n_rows].n_theory > 0;
        s->n_rows++;
    }
    free(scratch);
    free(m);
    return ok ? QM_OK : qm_fail(QM_NO_MEMORY, "summary %s", s->plan->name);
}

qm_status qm_summary_make(const struct qm_results *r, const struct qm_summary_plan *plan,
                          struct qm_summary **out)
{
    struct qm_summary_key where[QM_SUITE_BY] = {{0}};
    QM_TRY(qm_summary_check(r->suite, plan));
    struct qm_summary *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "summary %s", plan->name);
    s->results = r;
    s->plan = plan;
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < plan->n_by + (plan->across ? 1 : 0); i++)
        st = open_key(s, i < plan->n_by ? plan->by[i] : plan->across, &s->key[s->n_keys++]);
    for (int i = 0; st == QM_OK && i < plan->n_where; i++)
        st = find_key(r->suite, plan, plan->where_key[i], &where[i]);
    for (int i = 0; i < plan->n_values; i++)
        s->value[i] = qm_value_find(plan->value[i]);
    for (int i = 0; i < plan->n_stats; i++)
        s->stat[i] =
            (enum qm_summary_stat)qm_name_find(plan->stat[i], stat_names, QM_SUMMARY_STAT_COUNT);
    if (st == QM_OK)
        st = make_rows(s, where);
    if (st == QM_OK)
        *out = s;
    else
        qm_summary_free(s);
    return st;
}

void qm_summary_free(struct qm_summary *s)
{
    if (!s)
        return;
    for (int k = 0; k < s->n_keys; k++) {
        for (int i = 0; i < s->key[k].n; i++)
            free(s->key[k].text[i]);
        free(s->key[k].text);
    }
    free(s->row);
    free(s);
}

/* ---- reading --------------------------------------------------------------------------------- */

int qm_summary_rows(const struct qm_summary *s) { return s->n_rows; }
int64_t qm_summary_n(const struct qm_summary *s, int row) { return s->row[row].n; }
int64_t qm_summary_left_out(const struct qm_summary *s, int row) { return s->row[row].n_plain; }
int64_t qm_summary_best(const struct qm_summary *s, int row) { return s->row[row].n_best; }

const char *qm_summary_key(const struct qm_summary *s, int row, int key)
{
    return s->key[key].text[s->row[row].at[key]];
}

double qm_summary_value(const struct qm_summary *s, int row, int value, int stat)
{
    return s->row[row].number[value * s->plan->n_stats + stat];
}
