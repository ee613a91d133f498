/* verdicts.c - Verdicts over seeds, sensitivity to the learning rate, the error budget. */
#include "experiments/lockstep/coded_share.h"
#include "experiments/lockstep/lockstep.h"
#include "experiments/protocol/tables.h"

#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const rates_words[] = {
#define X(name, words, text) words,
    QM_RATES_LIST(X)
#undef X
};

const char *qm_rates_text(enum qm_rates r) { return rates_words[r]; }

/* Whether a pair of gaps counts in verdicts: not where both runs diverged, one failed or
 * ended elsewhere. */
static int is_informative(const struct qm_run_row *run, double twin_gap)
{
    return run->ok && !run->elsewhere &&
           !(run->gap >= QM_DIVERGED_GAP && twin_gap >= QM_DIVERGED_GAP);
}

/* Gaps lie between 2^-52 and QM_DIVERGED_GAP, so that no d exceeds this. */
double qm_most_d(void) { return log10(QM_DIVERGED_GAP * 0x1p52); }

/* The row of a cell's run with float32 states; NULL: it has none, or none that counts. */
static const struct qm_run_row *null_run(const struct qm_protocol *p, const struct qm_cell *c)
{
    const struct qm_run_row *run =
        c->float32 >= 0 && p->row_of[c->float32] >= 0 ? &p->run[p->row_of[c->float32]] : NULL;
    return run && run->ok && !run->elsewhere ? run : NULL;
}

/* The run at the rate that was tuned for its own recipe, or NULL. */
static const struct qm_run_row *own_run(const struct qm_protocol *p, const struct qm_cell *c)
{
    return c->own >= 0 && p->row_of[c->own] >= 0 ? &p->run[p->row_of[c->own]] : NULL;
}

enum qm_rates qm_rates_of(const struct qm_protocol *p, const struct qm_comparison_group *g)
{
    enum qm_rates rates = QM_RATES_best;
    for (int64_t i = 0; i < g->n; i++) {
        const struct qm_cell *c = qm_run_cell(p, qm_group_run(p, g, i));
        enum qm_rates own = own_run(p, c) ? QM_RATES_best
                            : c->is_tuned ? QM_RATES_same
                                          : QM_RATES_untuned;
        rates = own < rates ? own : rates;
    }
    return rates;
}

int qm_observe(const struct qm_protocol *p, const struct qm_run_row *run, int is_best,
               struct qm_observed *out)
{
    const struct qm_cell *c = qm_run_cell(p, run);
    const struct qm_run_row *null = null_run(p, c), *own = is_best ? own_run(p, c) : run;
    if (!run->ok || run->elsewhere || !is_informative(own, run->twin_gap))
        return 0;
    *out = (struct qm_observed){.start = run->start_gap,
                                .gap = own->gap,
                                .twin = run->twin_gap,
                                .instance = c->has_data ? (int)c->instance : 0};
    for (int k = 0; k < QM_OUTCOME_COUNT; k++) {
        out->x[k] = own->d_of[k];
        out->null[k] = null ? null->d_of[k] : nan("");
    }
    out->alone[QM_OUTCOME_last] = log10(own->gap);
    out->alone[QM_OUTCOME_late] = log10(own->late_gap);
    out->alone[QM_OUTCOME_area] = own->d_of[QM_OUTCOME_area] + own->twin_area;
    if (own == run)
        return 1;
    out->x[QM_OUTCOME_last] = log10(own->gap / run->twin_gap);
    out->x[QM_OUTCOME_late] = log10(own->late_gap / run->twin_late_gap);
    out->x[QM_OUTCOME_area] = own->d_of[QM_OUTCOME_area] + own->twin_area - run->twin_area;
    return 1;
}

/* Scratch for the largest group. */
struct scratch {
    struct qm_observed *pair;
    double *x;
};

/* Judges a group by every outcome. */
static qm_status judge_group(const struct qm_protocol *p, const struct qm_comparison_group *g,
                             int is_best, struct scratch *s, struct qm_judged *out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < g->n; i++)
        n += qm_observe(p, qm_group_run(p, g, i), is_best, &s->pair[n]);
    return qm_judge(s->pair, n, qm_most_d(), out);
}

double qm_margin(const struct qm_protocol *p, const struct qm_cell *c)
{
    return p->r->suite->delta > 0.0  ? p->r->suite->delta
           : c->problem->delta > 0.0 ? c->problem->delta
                                     : QM_USUAL_DELTA;
}

double qm_detectable_of(const struct qm_paired *d)
{
    return d->n > 1 ? d->error * qm_detectable(d->df, 0.05, 0.8) : nan("");
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* Sets bits and shares of codes, which are equal for all seeds. */
static void set_coded(const struct qm_protocol *p, const struct qm_run_row *run,
                      struct qm_verdict_row *row)
{
    const struct qm_outcome *o = &p->r->outcome[run->cell];
    row->bits = o->bits;
    row->coded = row->varied = qm_coded_share(o, QM_ALL_SLOTS);
    if (row->coded < 1.0)
        row->varied = qm_coded_share(o, qm_varied_slots(p->r, qm_run_cell(p, run)));
}

/* The cell that a verdict at these rates is of. */
static int64_t judged_cell(const struct qm_protocol *p, const struct qm_run_row *run,
                           enum qm_rates rates)
{
    int64_t own = qm_run_cell(p, run)->own;
    return rates == QM_RATES_best && own >= 0 ? own : run->cell;
}

static qm_status verdict(const struct qm_protocol *p, const struct qm_comparison_group *g,
                         struct scratch *s, struct qm_verdict_row *row)
{
    const struct qm_run_row *first = qm_group_run(p, g, 0);
    const struct qm_cell *c = qm_run_cell(p, first);
    const struct qm_comparison_group *null = NULL;
    row->of = *g;
    row->bits = row->coded = row->varied = nan("");
    enum qm_rates rates = row->rates = qm_rates_of(p, g);
    for (int64_t i = 0; i < g->n; i++) {
        const struct qm_run_row *run = qm_group_run(p, g, i);
        row->failed += !run->ok;
        row->elsewhere += run->elsewhere;
        row->diverged += p->r->outcome[judged_cell(p, run, rates)].diverged;
        row->twin_diverged += run->ok && run->twin_gap >= QM_DIVERGED_GAP;
        if (run->ok)
            set_coded(p, run, row);
    }
    QM_TRY(judge_group(p, g, 0, s, row->same));
    QM_TRY(judge_group(p, g, row->rates == QM_RATES_best, s, row->by));
    if (c->float32 >= 0 && p->row_of[c->float32] >= 0) {
        const struct qm_run_row *run = &p->run[p->row_of[c->float32]];
        null = qm_group_find(p, run->problem, run->label, run->scale);
    }
    QM_TRY(qm_paired_make(NULL, 0, &row->null));
    if (null) {
        struct qm_judged of_null[QM_OUTCOME_COUNT];
        QM_TRY(judge_group(p, null, 0, s, of_null));
        row->null = of_null[0].d;
    }
    row->delta = qm_margin(p, c);
    row->detectable = qm_detectable_of(&row->by[0].d);
    return QM_OK;
}

/* The family of tests is the plain cells with enough pairs of which what the suite varies has
 * codes. */
static qm_status decide(struct qm_protocol *p)
{
    struct qm_judged_row *row = calloc((size_t)p->n_verdicts + 1, sizeof *row);
    for (int64_t i = 0; row && i < p->n_verdicts; i++) {
        struct qm_verdict_row *v = &p->verdict[i];
        int role = qm_run_cell(p, qm_group_run(p, &v->of, 0))->role;
        row[i] = (struct qm_judged_row){.by = v->by, .same = v->same, .delta = v->delta};
        row[i].varied = v->varied;
        row[i].in_family = role == QM_CELL_plain && v->varied != 0.0;
        row[i].is_own = v->rates == QM_RATES_best;
        row[i].is_control = role == QM_CELL_float32 || role == QM_CELL_ulp;
    }
    qm_status st = row ? qm_decide_rows(row, p->n_verdicts) : qm_fail(QM_NO_MEMORY, "verdicts");
    free(row);
    return st;
}

/* ---- sensitivity ----------------------------------------------------------------------------- */

static void sensitivity(const struct qm_protocol *p, const struct qm_comparison_group *g,
                        struct scratch *s, struct qm_sensitivity_row *row)
{
    row->of = *g;
    for (int twin = 0; twin < 2; twin++) {
        double *to = twin ? row->twin : row->gap;
        int64_t n = 0;
        for (int64_t i = 0; i < g->n; i++) {
            const struct qm_run_row *run = qm_group_run(p, g, i);
            if (run->ok && !run->elsewhere)
                s->x[n++] = twin ? run->twin_gap : run->gap;
        }
        gsl_sort(s->x, 1, (size_t)n);
        for (int k = 0; k < 3; k++)
            to[k] = qm_quantile(s->x, n, 0.25 * (k + 1));
    }
}

/* Marks, in rows of one problem and label, the scale at which the twin's median gap is smallest. */
static void mark_best(struct qm_protocol *p)
{
    struct qm_sensitivity_row *row = p->sensitivity;
    for (int64_t i = 0, end; i < p->n_sensitivity; i = end) {
        int64_t best = i;
        for (end = i; end < p->n_sensitivity && row[end].of.problem == row[i].of.problem &&
                      row[end].of.label == row[i].of.label;
             end++)
            best = row[end].twin[1] < row[best].twin[1] || isnan(row[best].twin[1]) ? end : best;
        row[best].twin_best = !isnan(row[best].twin[1]);
    }
}

/* ---- budget ---------------------------------------------------------------------------------- */

static const char *const part_names[] = {
#define X(name, label, text) label,
    QM_BUDGET_LIST(X)
#undef X
};

/* Sets d[] to d of every run of a group without a part, NaN where that run failed or ended in
 * another basin.  Returns 0 where the variant has no such part or no such cell ran. */
static int without(const struct qm_protocol *p, const struct qm_comparison_group *g, int part,
                   double *d)
{
    int found = 0;
    for (int64_t i = 0; i < g->n; i++) {
        int64_t cell = qm_run_cell(p, qm_group_run(p, g, i))->without[part];
        const struct qm_run_row *less =
            cell >= 0 && p->row_of[cell] >= 0 ? &p->run[p->row_of[cell]] : NULL;
        d[i] = less && less->ok && !less->elsewhere ? less->d : nan("");
        found |= less != NULL;
    }
    return found;
}

static qm_status budget_row(struct qm_protocol *p, const struct qm_comparison_group *g,
                            struct scratch *s, const char *part, const double *share)
{
    int64_t n = 0;
    struct qm_budget_row *row = &p->budget[p->n_budget++];
    for (int64_t i = 0; i < g->n; i++) {
        const struct qm_run_row *run = qm_group_run(p, g, i);
        if (isnan(share[i]))
            continue;
        const struct qm_cell *c = qm_run_cell(p, run);
        s->pair[n] = (struct qm_observed){.instance = c->has_data ? (int)c->instance : 0,
                                          .start = run->start_gap,
                                          .gap = run->gap,
                                          .twin = run->twin_gap,
                                          .x = {share[i], nan(""), nan("")}};
        n++;
    }
    *row = (struct qm_budget_row){.problem = g->problem, .label = g->label, .part = part};
    struct qm_judged by[QM_OUTCOME_COUNT];
    QM_TRY(qm_judge(s->pair, n, HUGE_VAL, by));
    row->share = by[0].d;
    return QM_OK;
}

/* Adds the budget rows of a group.  All rows use the same runs, those of which every part is known:
 * parts and rest sum to all run by run, their trimmed means need not. */
static qm_status budget(struct qm_protocol *p, const struct qm_comparison_group *g,
                        struct scratch *s)
{
    size_t n = (size_t)g->n;
    double *share = calloc((QM_BUDGET_COUNT + 2) * n, sizeof *share);
    double *rest = share + QM_BUDGET_COUNT * n, *all = rest + n;
    int taken[QM_BUDGET_COUNT] = {0}, parts = 0;
    qm_status st = share ? QM_OK : qm_fail(QM_NO_MEMORY, "budget");
    for (int part = 0; share && part < QM_BUDGET_COUNT; part++)
        parts += taken[part] = without(p, g, part, share + part * n);
    for (size_t i = 0; share && i < n; i++) {
        const struct qm_run_row *run = qm_group_run(p, g, (int64_t)i);
        all[i] = is_informative(run, run->twin_gap) ? run->d : nan("");
        for (int part = 0; part < QM_BUDGET_COUNT; part++)
            if (taken[part] && isnan(share[part * n + i]))
                all[i] = nan("");
        rest[i] = all[i];
        for (int part = 0; part < QM_BUDGET_COUNT; part++) {
            share[part * n + i] = all[i] - share[part * n + i];
            rest[i] -= taken[part] ? share[part * n + i] : 0.0;
        }
    }
    for (int part = 0; st == QM_OK && part < QM_BUDGET_COUNT; part++)
        if (taken[part])
            st = budget_row(p, g, s, part_names[part], share + part * n);
    if (st == QM_OK && parts)
        st = budget_row(p, g, s, "rest", rest);
    if (st == QM_OK && parts)
        st = budget_row(p, g, s, "all", all);
    free(share);
    return st;
}

qm_status qm_protocol_verdicts(struct qm_protocol *p)
{
    size_t groups = (size_t)p->n_groups + 1;
    struct scratch s = {calloc((size_t)p->n_runs + 1, sizeof *s.pair),
                        calloc((size_t)p->n_runs + 1, sizeof *s.x)};
    p->verdict = calloc(groups, sizeof *p->verdict);
    p->sensitivity = calloc(groups, sizeof *p->sensitivity);
    p->budget = calloc(groups * (QM_BUDGET_COUNT + 2), sizeof *p->budget);
    qm_status st = s.pair && s.x && p->verdict && p->sensitivity && p->budget
                       ? QM_OK
                       : qm_fail(QM_NO_MEMORY, "verdicts");
    for (int64_t i = 0; st == QM_OK && i < p->n_groups; i++) {
        const struct qm_comparison_group *g = &p->group[i];
        enum qm_cell_role role = qm_run_cell(p, qm_group_run(p, g, 0))->role;
        if (role == QM_CELL_without || role == QM_CELL_own)
            continue;
        sensitivity(p, g, &s, &p->sensitivity[p->n_sensitivity++]);
        st = verdict(p, g, &s, &p->verdict[p->n_verdicts++]);
    }
    mark_best(p);
    if (st == QM_OK)
        st = decide(p);
    for (int64_t i = 0; st == QM_OK && i < p->n_groups; i++)
        if (qm_run_cell(p, qm_group_run(p, &p->group[i], 0))->role == QM_CELL_plain)
            st = budget(p, &p->group[i], &s);
    free(s.pair);
    free(s.x);
    return st;
}
