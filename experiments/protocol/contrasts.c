/* contrasts.c - Tests the values of an axis against each other, pair by pair. */
#include "experiments/protocol/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "experiments/lockstep/coded_share.h"

/* A growing list of contrasts, without judgements. */
struct list {
    struct qm_contrast_row *row;
    int64_t n, room, apart;
};

static const struct qm_cell *cell_of(const struct qm_protocol *p,
                                     const struct qm_comparison_group *g)
{
    return qm_run_cell(p, qm_group_run(p, g, 0));
}

/* Whether cells a and b of one problem and scale differ on no axis but `axis`. */
static int differ_there_alone(const struct qm_suite *s, const struct qm_cell *a,
                              const struct qm_cell *b, int axis)
{
    static const char *const others[] = {"seed", "instance", "source"}; /* given by the problem */
    for (int i = 0; i < s->n_axes; i++) {
        int skip = i == axis;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            skip |= strcmp(s->axis[i].key, others[k]) == 0;
        if (!skip && qm_cell_value(s, a, i) != qm_cell_value(s, b, i))
            return 0;
    }
    return 1;
}

/* The group that has `value` on the axis and is equal to g otherwise, or NULL. */
static const struct qm_comparison_group *
partner(const struct qm_protocol *p, const struct qm_comparison_group *g, int axis, int value)
{
    for (int64_t i = 0; i < p->n_groups; i++) {
        const struct qm_comparison_group *h = &p->group[i];
        const struct qm_cell *c = cell_of(p, h);
        if (h->problem == g->problem && h->scale == g->scale && c->role == QM_CELL_plain &&
            qm_cell_value(p->r->suite, c, axis) == value &&
            differ_there_alone(p->r->suite, cell_of(p, g), c, axis))
            return h;
    }
    return NULL;
}

static qm_status add(const struct qm_protocol *p, struct list *l,
                     const struct qm_comparison_group *g, int axis, int value)
{
    const struct qm_comparison_group *h = partner(p, g, axis, value);
    if (!h) {
        l->apart++;
        return QM_OK;
    }
    QM_TRY(qm_grow((void **)&l->row, &l->room, l->n + 1, sizeof *l->row));
    l->row[l->n] = (struct qm_contrast_row){.a = g, .b = h, .axis = p->r->suite->axis[axis].key};
    l->n++;
    return QM_OK;
}

/* Adds the contrasts of group g on an axis: c NULL stands for each value against the first. */
static qm_status add_axis(const struct qm_protocol *p, struct list *l,
                          const struct qm_comparison_group *g, int axis,
                          const struct qm_contrast *c)
{
    const struct qm_axis *a = &p->r->suite->axis[axis];
    int own = qm_cell_value(p->r->suite, cell_of(p, g), axis);
    int reference = c && c->against ? qm_axis_find(a, c->against) : 0;
    for (int k = 0; c && k < c->n_pairs; k++)
        if (strcmp(a->value[own].label, c->pair[k][0]) == 0)
            QM_TRY(add(p, l, g, axis, qm_axis_find(a, c->pair[k][1])));
    for (int k = 0; c && c->all && k < own; k++)
        QM_TRY(add(p, l, g, axis, k));
    if (c && (c->all || c->n_pairs))
        return QM_OK;
    return own == reference ? QM_OK : add(p, l, g, axis, reference);
}

static qm_status add_group(const struct qm_protocol *p, struct list *l,
                           const struct qm_comparison_group *g)
{
    const struct qm_suite *s = p->r->suite;
    for (int i = 0; i < s->n_contrasts; i++)
        QM_TRY(add_axis(p, l, g, qm_suite_axis(s, s->contrast[i].axis), &s->contrast[i]));
    for (int a = 0; a < s->n_axes && !s->has_contrast; a++)
        if (s->axis[a].n > 1 && qm_suite_is_format_axis(s, a))
            QM_TRY(add_axis(p, l, g, a, NULL));
    return QM_OK;
}

/* ---- judging --------------------------------------------------------------------------------- */

static int same_pair(const struct qm_protocol *p, const struct qm_run_row *x,
                     const struct qm_run_row *y)
{
    const struct qm_cell *a = qm_run_cell(p, x), *b = qm_run_cell(p, y);
    return a->seed == b->seed && a->instance == b->instance;
}

/* The share of elements with codes in what the suite varies, of those to which the recipes of the
 * group give codes; NaN where they give none. */
static double coded_share(const struct qm_protocol *p, const struct qm_comparison_group *g)
{
    for (int64_t i = 0; i < g->n; i++) {
        const struct qm_run_row *run = qm_group_run(p, g, i);
        if (run->ok)
            return qm_asked_share(p->r, run->cell);
    }
    return nan("");
}

/* Whether a and b are equal to the bit in all that is observed of a run. */
static int is_equal(const struct qm_observed *a, const struct qm_observed *b)
{
    return a->gap == b->gap && memcmp(a->x, b->x, sizeof a->x) == 0;
}

/* Whether the twins of two runs are equal to the bit in every outcome. */
static int is_one_twin(const struct qm_run_row *x, const struct qm_run_row *y)
{
    const double a[] = {x->twin_gap, x->twin_late_gap, x->twin_area},
                 b[] = {y->twin_gap, y->twin_late_gap, y->twin_area};
    return memcmp(a, b, sizeof a) == 0;
}

/* Sets the numbers of a pair of runs, whose difference is log10 of gap / gap: d where both have the
 * same twin, which then drops out, else the gaps alone.  0 where the pair does not count. */
static int observe_both(const struct qm_protocol *p, const struct qm_run_row *x,
                        const struct qm_run_row *y, int is_best, struct qm_observed *one,
                        struct qm_observed *two)
{
    if (!same_pair(p, x, y) || !qm_observe(p, x, is_best, one) || !qm_observe(p, y, is_best, two))
        return 0;
    if (!is_one_twin(x, y)) {
        memcpy(one->x, one->alone, sizeof one->x);
        memcpy(two->x, two->alone, sizeof two->x);
    }
    return 1;
}

/* Whether a pair of runs of the two groups has two twins that differ. */
static int has_two_twins(const struct qm_protocol *p, const struct qm_contrast_row *row)
{
    for (int64_t i = 0; i < row->a->n; i++)
        for (int64_t j = 0; j < row->b->n; j++) {
            const struct qm_run_row *x = qm_group_run(p, row->a, i),
                                    *y = qm_group_run(p, row->b, j);
            if (same_pair(p, x, y) && x->ok && y->ok && !is_one_twin(x, y))
                return 1;
        }
    return 0;
}

/* Pairs the runs of both groups, but for pairs that both diverged, and judges the differences;
 * is_same: there are none. */
static qm_status judge(const struct qm_protocol *p, const struct qm_contrast_row *row, int is_best,
                       struct qm_observed *pair, struct qm_judged *out, int *is_same)
{
    int64_t n = 0, equal = 0;
    for (int64_t i = 0; i < row->a->n; i++)
        for (int64_t j = 0; j < row->b->n; j++) {
            const struct qm_run_row *x = qm_group_run(p, row->a, i),
                                    *y = qm_group_run(p, row->b, j);
            struct qm_observed one, two;
            if (!observe_both(p, x, y, is_best, &one, &two))
                continue;
            if (one.gap >= QM_DIVERGED_GAP && two.gap >= QM_DIVERGED_GAP)
                break; /* both gaps are the constant of diverged runs */
            equal += is_equal(&one, &two);
            one.twin = two.gap;
            for (int k = 0; k < QM_OUTCOME_COUNT; k++) {
                one.x[k] -= two.x[k];
                one.null[k] = nan("");
            }
            pair[n++] = one;
            break;
        }
    *is_same = n > 0 && equal == n;
    return qm_judge(pair, n, 2.0 * qm_most_d(), out);
}

/* The rates of the two sides: the worse tuned of them, or that a tuned one stands against one that
 * is not. */
static enum qm_rates rates_of(const struct qm_protocol *p, const struct qm_contrast_row *row)
{
    enum qm_rates a = qm_rates_of(p, row->a), b = qm_rates_of(p, row->b);
    return (a == QM_RATES_untuned) != (b == QM_RATES_untuned) ? QM_RATES_uneven : a < b ? a : b;
}

static qm_status judge_both(const struct qm_protocol *p, struct qm_contrast_row *row,
                            struct qm_observed *pair)
{
    row->rates = rates_of(p, row);
    row->delta = qm_margin(p, cell_of(p, row->a));
    row->two_twins = has_two_twins(p, row);
    QM_TRY(judge(p, row, 0, pair, row->same, &row->is_same[1]));
    QM_TRY(judge(p, row, row->rates == QM_RATES_best, pair, row->by, &row->is_same[0]));
    row->detectable = qm_detectable_of(&row->by[0].d);
    return QM_OK;
}

static qm_status decide(struct qm_protocol *p)
{
    struct qm_judged_row *row = calloc((size_t)p->n_contrasts + 1, sizeof *row);
    for (int64_t i = 0; row && i < p->n_contrasts; i++) {
        struct qm_contrast_row *c = &p->contrast[i];
        row[i] = (struct qm_judged_row){.by = c->by, .same = c->same, .delta = c->delta};
        row[i].varied = fmin(coded_share(p, c->a), coded_share(p, c->b)); /* fmin ignores a NaN */
        row[i].in_family = row[i].varied != 0.0;
        row[i].is_uneven = c->rates == QM_RATES_uneven;
        row[i].is_own = c->rates == QM_RATES_best;
        memcpy(row[i].is_same, c->is_same, sizeof c->is_same);
    }
    qm_status st = row ? qm_decide_rows(row, p->n_contrasts) : qm_fail(QM_NO_MEMORY, "contrasts");
    free(row);
    return st;
}

qm_status qm_protocol_contrasts(struct qm_protocol *p)
{
    struct list l = {0};
    qm_status st = QM_OK;
    for (int64_t i = 0; st == QM_OK && i < p->n_groups; i++)
        if (cell_of(p, &p->group[i])->role == QM_CELL_plain)
            st = add_group(p, &l, &p->group[i]);
    p->contrast = l.row;
    p->n_contrasts = l.n;
    p->n_apart = l.apart;
    struct qm_observed *pair = calloc((size_t)p->n_runs + 1, sizeof *pair);
    if (st == QM_OK && !pair)
        st = qm_fail(QM_NO_MEMORY, "contrasts");
    for (int64_t i = 0; st == QM_OK && i < l.n; i++)
        st = judge_both(p, &l.row[i], pair);
    free(pair);
    return st == QM_OK ? decide(p) : st;
}
