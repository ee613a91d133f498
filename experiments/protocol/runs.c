/* runs.c - Groups closed cells into comparisons; chooses targets and finds their hitting times. */
#include "experiments/protocol/tables.h"

#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "experiments/lockstep/hitting_times.h"

const struct qm_cell *qm_run_cell(const struct qm_protocol *p, const struct qm_run_row *run)
{
    return &p->r->cell[run->cell];
}

/* ---- words ----------------------------------------------------------------------------------- */

/* The index of a word in the list, to which a new word is added; -1 without memory. */
static int index_of(struct qm_words *w, const char *word)
{
    for (int i = w->n - 1; i >= 0; i--)
        if (strcmp(w->word[i], word) == 0)
            return i;
    if (qm_grow((void **)&w->word, &w->room, w->n + 1, sizeof *w->word) != QM_OK)
        return -1;
    w->word[w->n] = strdup(word);
    return w->word[w->n] ? w->n++ : -1;
}

/* The index of a cell's problem: "quad", "quad:cond=1e6 (500 steps)".  The name is the source as
 * the suite names it, and the axes steps, warmup and decay_rank where they have several values. */
static int index_of_problem(struct qm_protocol *p, const struct qm_cell *c)
{
    static const char *const axes[][2] = {{"steps", "(%s steps)"},
                                          {"warmup", "(warm-up %s)"},
                                          {"schedule", "(%s)"},
                                          {"clip", "(clip %s)"},
                                          {"decay_rank", "(decay from rank %s)"}};
    const struct qm_suite *s = p->r->suite;
    int source = qm_suite_axis(s, "source");
    const struct qm_axis_value *v = &s->axis[source].value[qm_cell_value(s, c, source)];
    char text[2 * QM_LABEL_TEXT], part[QM_LABEL_TEXT];
    int bare = strcmp(v->label, v->text) == 0 && strncmp(v->label, "problem:", 8) == 0;
    snprintf(text, QM_LABEL_TEXT, "%s", v->label + (bare ? 8 : 0));
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        int a = qm_suite_axis(s, axes[i][0]);
        if (a < 0 || s->axis[a].n < 2)
            continue;
        snprintf(part, sizeof part, axes[i][1], qm_cell_choice(s, c, a));
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, " %s", part);
    }
    return index_of(&p->problem, text);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static double value(const struct qm_outcome *o, enum qm_extra which)
{
    return o->value ? o->value[qm_metric_count() + which] : nan("");
}

static qm_status add_run(struct qm_protocol *p, int64_t i)
{
    const struct qm_cell *c = &p->r->cell[i];
    const struct qm_outcome *o = &p->r->outcome[i];
    char label[QM_LABEL_TEXT];
    struct qm_run_row *run = &p->run[p->n_runs];
    p->row_of[i] = p->n_runs++;
    run->cell = i;
    run->problem = index_of_problem(p, c);
    run->label = index_of(&p->label, qm_cell_label(p->r->suite, c, label));
    run->start_gap = value(o, QM_EXTRA_start_gap);
    run->gap = value(o, QM_EXTRA_gap);
    run->twin_gap = value(o, QM_EXTRA_twin_gap);
    run->d = value(o, QM_EXTRA_log_gap);
    run->d_of[QM_OUTCOME_last] = run->d;
    run->d_of[QM_OUTCOME_late] = value(o, QM_EXTRA_late);
    run->d_of[QM_OUTCOME_area] = value(o, QM_EXTRA_area);
    run->late_gap = value(o, QM_EXTRA_late_gap);
    run->twin_late_gap = value(o, QM_EXTRA_twin_late_gap);
    run->twin_area = value(o, QM_EXTRA_twin_area);
    run->ok = isfinite(run->d);
    run->basin = value(o, QM_EXTRA_basin);
    run->twin_basin = value(o, QM_EXTRA_twin_basin);
    for (int k = 0; k < p->n_scales; k++)
        if (p->scale[k] == c->lr_scale)
            run->scale = k;
    return run->problem >= 0 && run->label >= 0 &&
                   index_of(&p->family, c->recipe->rule->family) >= 0
               ? QM_OK
               : qm_fail(QM_NO_MEMORY, "runs");
}

/* Whether cell i has a row: a closed cell that was not skipped. */
static int has_row(const struct qm_protocol *p, int64_t i)
{
    const struct qm_cell *c = &p->r->cell[i];
    return c->coupling == QM_COUPLING_closed && c->problem && !c->reason &&
           (!p->r->outcome[i].reason || p->r->outcome[i].failed);
}

static void find_scales(struct qm_protocol *p)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->r->n_cells; i++)
        if (has_row(p, i))
            p->scale[n++] = p->r->cell[i].lr_scale;
    gsl_sort(p->scale, 1, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || p->scale[i] != p->scale[p->n_scales - 1])
            p->scale[p->n_scales++] = p->scale[i];
    for (int k = 1; k < p->n_scales; k++)
        if (fabs(log(p->scale[k])) < fabs(log(p->scale[p->one])))
            p->one = k;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int by_group(const void *a, const void *b, void *context)
{
    const struct qm_protocol *p = context;
    int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    const struct qm_run_row *x = &p->run[i], *y = &p->run[j];
    int d = x->problem != y->problem ? x->problem - y->problem
            : x->label != y->label   ? x->label - y->label
                                     : x->scale - y->scale;
    uint64_t sx = qm_cell_seed(qm_run_cell(p, x)), sy = qm_cell_seed(qm_run_cell(p, y));
    return d ? d : sx != sy ? (sx > sy) - (sx < sy) : (i > j) - (i < j);
}

static void find_groups(struct qm_protocol *p)
{
    for (int64_t i = 0; i < p->n_runs; i++)
        p->order[i] = i;
    qsort_r(p->order, (size_t)p->n_runs, sizeof *p->order, by_group, p);
    for (int64_t i = 0; i < p->n_runs; i++) {
        const struct qm_run_row *run = &p->run[p->order[i]];
        struct qm_comparison_group *g = p->n_groups ? &p->group[p->n_groups - 1] : NULL;
        if (!g || g->problem != run->problem || g->label != run->label || g->scale != run->scale) {
            g = &p->group[p->n_groups++];
            *g = (struct qm_comparison_group){run->problem, run->label, run->scale, 0, i, 0};
        }
        g->n++;
    }
}

/* Sets the basin in which most twins of a group ended, the lower one of a tie, and marks the runs
 * that ended elsewhere.  A run that diverged counts in the basin of its twin. */
static void find_basin(struct qm_protocol *p, struct qm_comparison_group *g)
{
    enum { MOST = 16 };
    int64_t count[MOST] = {0};
    for (int64_t i = 0; i < g->n; i++) {
        const struct qm_run_row *run = qm_group_run(p, g, i);
        if (run->ok && run->twin_basin >= 0 && run->twin_basin < MOST)
            count[(int)run->twin_basin]++;
    }
    for (int b = 1; b < MOST; b++)
        g->basin = count[b] > count[g->basin] ? b : g->basin;
    for (int64_t i = 0; i < g->n; i++) {
        struct qm_run_row *run = &p->run[p->order[g->first + i]];
        run->elsewhere = run->ok && (run->twin_basin != g->basin ||
                                     (!isnan(run->basin) && run->basin != g->basin));
    }
}

const struct qm_comparison_group *qm_group_find(const struct qm_protocol *p, int problem, int label,
                                                int scale)
{
    for (int64_t lo = 0, hi = p->n_groups; lo < hi;) {
        int64_t mid = lo + (hi - lo) / 2;
        const struct qm_comparison_group *g = &p->group[mid];
        int d = g->problem != problem ? g->problem - problem
                : g->label != label   ? g->label - label
                                      : g->scale - scale;
        if (d == 0)
            return g;
        if (d < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const struct qm_run_row *qm_group_run(const struct qm_protocol *p,
                                      const struct qm_comparison_group *g, int64_t i)
{
    return &p->run[p->order[g->first + i]];
}

qm_status qm_protocol_runs(struct qm_protocol *p)
{
    size_t n = 1;
    for (int64_t i = 0; i < p->r->n_cells; i++)
        n += (size_t)has_row(p, i);
    p->run = calloc(n, sizeof *p->run);
    p->scale = calloc(n, sizeof *p->scale);
    p->order = calloc(n, sizeof *p->order);
    p->group = calloc(n, sizeof *p->group);
    p->row_of = calloc((size_t)p->r->n_cells + 1, sizeof *p->row_of);
    if (!p->run || !p->scale || !p->order || !p->group || !p->row_of)
        return qm_fail(QM_NO_MEMORY, "runs");
    for (int64_t i = 0; i < p->r->n_cells; i++)
        p->row_of[i] = -1;
    find_scales(p);
    for (int64_t i = 0; i < p->r->n_cells; i++)
        if (has_row(p, i))
            QM_TRY(add_run(p, i));
    find_groups(p);
    for (int64_t i = 0; i < p->n_groups; i++)
        find_basin(p, &p->group[i]);
    return QM_OK;
}

/* ---- targets --------------------------------------------------------------------------------- */

/* The deepest level that at least half the twins of a family reach, at the scale of targets. */
static int64_t deepest_level(const struct qm_protocol *p, int problem, int family, double *level)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_runs; i++) {
        const struct qm_run_row *run = &p->run[i];
        const struct qm_outcome *o = &p->r->outcome[run->cell];
        const char *name = qm_run_cell(p, run)->recipe->rule->family;
        if (run->problem == problem && run->scale == p->one && run->ok &&
            strcmp(name, p->family.word[family]) == 0)
            level[n++] = (double)qm_hitting_times_level(o->hits[QM_HITS_twin_hits],
                                                        o->n_hits[QM_HITS_twin_hits]);
    }
    if (n == 0)
        return 0;
    gsl_sort(level, 1, (size_t)n);
    return (int64_t)level[n / 2];
}

static void find_hits(struct qm_protocol *p, int64_t i)
{
    const struct qm_outcome *o = &p->r->outcome[p->run[i].cell];
    for (int k = 0; k < QM_HITS_COUNT; k++)
        for (int j = 0; j < QM_TARGETS; j++)
            p->hits[k][i * QM_TARGETS + j] =
                p->run[i].ok ? qm_hitting_times_step(o->hits[k], o->n_hits[k],
                                                     p->target[p->run[i].problem][j])
                             : -1;
}

qm_status qm_protocol_targets(struct qm_protocol *p)
{
    double *level = calloc((size_t)p->n_runs + 1, sizeof *level);
    p->target = calloc((size_t)p->problem.n + 1, sizeof *p->target);
    int ok = level && p->target;
    for (int k = 0; k < QM_HITS_COUNT; k++)
        ok = (p->hits[k] = calloc((size_t)(p->n_runs * QM_TARGETS) + 1, sizeof(int64_t))) && ok;
    for (int q = 0; ok && q < p->problem.n; q++) {
        int64_t most = 0, last = QM_TARGETS - 1;
        for (int f = 0; f < p->family.n; f++) {
            int64_t deepest = deepest_level(p, q, f, level);
            most = deepest > most ? deepest : most;
        }
        for (int64_t j = 0; j <= last; j++)
            p->target[q][j] = (2 * j * most + last) / (2 * last);
    }
    for (int64_t i = 0; ok && i < p->n_runs; i++)
        find_hits(p, i);
    free(level);
    return ok ? QM_OK : qm_fail(QM_NO_MEMORY, "targets");
}
