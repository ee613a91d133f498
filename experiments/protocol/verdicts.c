/* verdicts.c - Verdicts over seeds, sensitivity to the learning rate, the error budget. */
#include "experiments/lockstep/lockstep_internal.h"
#include "experiments/protocol/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* log10 1.05: gaps that differ by less than 5 % count as equivalent. */
static const double usual_delta = 0.021189299069938092;

/* The averaged number x of a run, and the losses by which repeated runs are recognised. */
struct observed {
    double start, gap, twin, x;
};

static int by_gaps(const void *a, const void *b)
{
    const struct observed *x = a, *y = b;
    int d = (x->gap > y->gap) - (x->gap < y->gap);
    d = d ? d : (x->twin > y->twin) - (x->twin < y->twin);
    return d ? d : (x->start > y->start) - (x->start < y->start);
}

/* Sets x[] to the numbers of distinct runs and returns their count.  Runs that are equal in the
 * start's loss and both gaps are one observation, because their seed changes nothing; runs from
 * different starts that all reach the floor are several observations. */
static int64_t distinct(struct observed *o, int64_t n, double *x)
{
    int64_t kept = 0;
    qsort(o, (size_t)n, sizeof *o, by_gaps);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || by_gaps(&o[i], &o[i - 1]) != 0)
            x[kept++] = o[i].x;
    return kept;
}

/* Whether a pair counts in verdicts: not where both runs diverged, failed or ended elsewhere. */
static int is_informative(const struct qm_run_row *run)
{
    return run->ok && !run->elsewhere &&
           !(run->gap >= QM_DIVERGED_GAP && run->twin_gap >= QM_DIVERGED_GAP);
}

/* Scratch for the largest group. */
struct scratch {
    struct qm_bootstrap *b;
    struct observed *pair;
    double *x;
};

/* Cuts the intervals to the range of d: gaps lie between 2^-52 and QM_DIVERGED_GAP.  Bootstrap-t
 * intervals may reach hundreds of decades when one pair lies far from many nearly equal ones. */
static void cut_to_range(struct qm_paired *x)
{
    const double most = log10(QM_DIVERGED_GAP * 0x1p52);
    double *const ends[] = {&x->lo95, &x->hi95, &x->lo90, &x->hi90};
    for (int i = 0; i < 4; i++)
        *ends[i] = fmin(fmax(*ends[i], -most), most);
}

static qm_status judge_group(const struct qm_protocol *p, const struct qm_comparison_group *g,
                             struct scratch *s, struct qm_paired *out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < g->n; i++) {
        const struct qm_run_row *run = qm_group_run(p, g, i);
        if (is_informative(run))
            s->pair[n++] = (struct observed){run->start_gap, run->gap, run->twin_gap, run->d};
    }
    n = distinct(s->pair, n, s->x);
    QM_TRY(qm_paired_make(s->b, s->x, n, out));
    if (n > 1)
        cut_to_range(out);
    return QM_OK;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static int has_codes(const struct qm_recipe *r)
{
    for (int i = 0; i < r->rule->n_slots; i++)
        if (r->slot[i].bits > 0)
            return 1;
    return 0;
}

static qm_status verdict(const struct qm_protocol *p, const struct qm_comparison_group *g,
                         struct scratch *s, struct qm_verdict_row *row)
{
    const struct qm_run_row *first = qm_group_run(p, g, 0);
    const struct qm_cell *c = qm_run_cell(p, first);
    const struct qm_comparison_group *null = NULL;
    row->of = *g;
    row->bits = nan("");
    for (int64_t i = 0; i < g->n; i++) {
        const struct qm_run_row *run = qm_group_run(p, g, i);
        row->failed += !run->ok;
        row->elsewhere += run->elsewhere;
        row->diverged += p->r->outcome[run->cell].diverged;
        row->twin_diverged += run->ok && run->twin_gap >= QM_DIVERGED_GAP;
        row->bits = run->ok ? p->r->outcome[run->cell].bits : row->bits; /* equal for all seeds */
    }
    QM_TRY(judge_group(p, g, s, &row->d));
    if (c->float32 >= 0 && p->row_of[c->float32] >= 0) {
        const struct qm_run_row *run = &p->run[p->row_of[c->float32]];
        null = qm_group_find(p, run->problem, run->label, run->scale);
        row->is_float32 =
            has_codes(c->recipe) && run->ok && row->bits >= p->r->outcome[run->cell].bits;
    }
    if (null)
        QM_TRY(judge_group(p, null, s, &row->null));
    else
        QM_TRY(qm_paired_make(s->b, NULL, 0, &row->null));
    row->delta = p->r->suite->delta > 0.0  ? p->r->suite->delta
                 : c->problem->delta > 0.0 ? c->problem->delta
                                           : usual_delta;
    row->detectable = row->d.n > 1 ? row->d.sd * qm_detectable(row->d.n, 0.05, 0.8) : nan("");
    return QM_OK;
}

/* Sets q and verdict of all rows; the family of tests is the plain cells with enough pairs. */
static qm_status decide(struct qm_protocol *p)
{
    size_t room = (size_t)p->n_verdicts + 1;
    double *prob = calloc(2 * room, sizeof *prob), *q = prob ? prob + room : NULL;
    if (!prob)
        return qm_fail(QM_NO_MEMORY, "verdicts");
    for (int64_t i = 0; i < p->n_verdicts; i++) {
        const struct qm_verdict_row *v = &p->verdict[i];
        int own = qm_run_cell(p, qm_group_run(p, &v->of, 0))->role == QM_CELL_plain;
        prob[i] = own && v->d.n >= QM_LEAST_PAIRS ? v->d.p : nan("");
    }
    qm_status st = qm_false_discovery(prob, p->n_verdicts, q);
    for (int64_t i = 0; st == QM_OK && i < p->n_verdicts; i++) {
        struct qm_verdict_row *v = &p->verdict[i];
        v->q = q[i];
        v->verdict = qm_decide(&v->d, v->delta, v->q);
    }
    free(prob);
    return st;
}

/* ---- sensitivity ----------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

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
        qsort(s->x, (size_t)n, sizeof *s->x, ascending);
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
        s->pair[n++] = (struct observed){run->start_gap, run->gap, run->twin_gap, share[i]};
    }
    *row = (struct qm_budget_row){.problem = g->problem, .label = g->label, .part = part};
    return qm_paired_make(s->b, s->x, distinct(s->pair, n, s->x), &row->share);
}

/* Adds the budget rows of a group.  All rows use the same runs, those of which every part is known,
 * so that parts and rest sum to all. */
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
        all[i] = is_informative(run) ? run->d : nan("");
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
    struct scratch s = {NULL, calloc((size_t)p->n_runs + 1, sizeof *s.pair),
                        calloc((size_t)p->n_runs + 1, sizeof *s.x)};
    p->verdict = calloc(groups, sizeof *p->verdict);
    p->sensitivity = calloc(groups, sizeof *p->sensitivity);
    p->budget = calloc(groups * (QM_BUDGET_COUNT + 2), sizeof *p->budget);
    qm_status st = s.pair && s.x && p->verdict && p->sensitivity && p->budget
                       ? qm_bootstrap_open(&s.b)
                       : qm_fail(QM_NO_MEMORY, "verdicts");
    for (int64_t i = 0; st == QM_OK && i < p->n_groups; i++) {
        const struct qm_comparison_group *g = &p->group[i];
        if (qm_run_cell(p, qm_group_run(p, g, 0))->role == QM_CELL_without)
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
    qm_bootstrap_close(s.b);
    free(s.pair);
    free(s.x);
    return st;
}
