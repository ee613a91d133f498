/* lockstep.c - Runs a cell: the loop of couplings local and global, and calls for the others. */
#include "experiments/lockstep/lockstep_internal.h"

#include "core/base/clock.h"
#include "core/recipe/backend.h"
#include "experiments/lockstep/coded_share.h"
#include "experiments/lockstep/empty_source.h"
#include "experiments/problems/problem_wrapper.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- columns --------------------------------------------------------------------------------- */

static const struct {
    const char *name, *unit, *text;
    enum qm_better better;
} extras[] = {
#define X(name, unit, better, text) {#name, unit, text, QM_BETTER_##better},
    QM_EXTRA_LIST(X)
#undef X
};

int qm_value_count(void) { return qm_metric_count() + QM_EXTRA_COUNT; }

const char *qm_value_name(int i)
{
    int n = qm_metric_count();
    return i < n ? qm_metric_at(i)->name : extras[i - n].name;
}

const char *qm_value_unit(int i)
{
    int n = qm_metric_count();
    return i < n ? qm_metric_at(i)->unit : extras[i - n].unit;
}

const char *qm_value_text(int i)
{
    int n = qm_metric_count();
    return i < n ? qm_metric_at(i)->text : extras[i - n].text;
}

enum qm_better qm_value_better(int i)
{
    int n = qm_metric_count();
    return i < n ? qm_metric_at(i)->better : extras[i - n].better;
}

int qm_value_find(const char *name)
{
    for (int i = 0; i < qm_value_count(); i++)
        if (strcmp(qm_value_name(i), name) == 0)
            return i;
    return -1;
}

/* ---- outcomes -------------------------------------------------------------------------------- */

qm_status qm_outcome_skip(struct qm_outcome *o, const char *reason)
{
    o->reason = strdup(reason);
    return o->reason ? QM_OK : qm_fail(QM_NO_MEMORY, "outcome");
}

void qm_outcome_measure(struct qm_outcome *o, const struct qm_metrics *m)
{
    for (int i = 0; i < qm_metric_count(); i++)
        o->value[i] = qm_metric_at(i)->value(m);
    qm_metrics_decades(m, o->decade);
    qm_metrics_unit_decades(m, o->unit_decade);
}

void qm_outcome_free(struct qm_outcome *o)
{
    free(o->reason);
    free(o->value);
    for (int i = 0; i < QM_TRACK_COUNT; i++)
        free(o->track[i]);
    for (int i = 0; i < QM_HITS_COUNT; i++)
        free(o->hits[i]);
    memset(o, 0, sizeof *o);
}

/* ---- the loops ------------------------------------------------------------------------------- */

int64_t qm_cell_steps(const struct qm_cell *c)
{
    int64_t own = c->recorded  ? c->recorded->n_steps
                  : c->problem ? qm_problem_wrapper_suggests(c->problem, c->problem_args)->steps
                               : 100;
    return c->steps == 0 || (c->recorded && c->steps > own) ? own : c->steps;
}

int64_t qm_next_point(const struct qm_cell *c, int64_t k, int64_t steps)
{
    int64_t next = c->every ? k + c->every : k + (k < 16 ? 1 : k / 8);
    return next < steps ? next : steps;
}

int64_t qm_count_points(const struct qm_cell *c, int64_t steps)
{
    int64_t n = 1;
    for (int64_t k = 0; k < steps; k = qm_next_point(c, k, steps))
        n++;
    return n;
}

static double most_seconds;          /* that a cell may take; 0: no limit */
static _Thread_local double started; /* qm_seconds() when this thread's cell began */

void qm_lockstep_limit(double seconds) { most_seconds = seconds; }

qm_status qm_polled(const volatile sig_atomic_t *stop)
{
    if (stop && *stop)
        return qm_fail(QM_INTERRUPTED, "interrupted");
    return most_seconds > 0.0 && qm_seconds() - started > most_seconds
               ? qm_fail(QM_INTERRUPTED, "no result within %g s", most_seconds)
               : QM_OK;
}

/* Couplings local and global: variant and twin get the same gradients. */
static qm_status loop(struct qm_lockstep_pair *a, struct qm_metrics *m,
                      const volatile sig_atomic_t *stop, struct qm_outcome *out)
{
    const struct qm_cell *c = a->c;
    int64_t steps = qm_cell_steps(c);
    int has_loss = a->problem && c->problem->optimum;
    int64_t point = a->problem ? 0 : qm_next_point(c, 0, steps);
    int is_local = c->coupling == QM_COUPLING_local;
    qm_metrics_reset(m);
    for (int64_t k = 0; k <= steps && !out->diverged; k++) {
        int is_last = k == steps, is_next_last = k + 1 == steps;
        if (k == point) {
            double loss = nan(""), twin = nan("");
            if (has_loss) {
                loss = qm_above_floor(a, qm_lockstep_pair_loss(a, k));
                twin = qm_above_floor(a, c->problem->eval(a->problem, a->twin_p, k + 1, NULL));
                out->diverged |= qm_has_diverged(a, loss);
            }
            int wanted = k > 0 && (is_local || is_last);
            QM_TRY(qm_curves_compare(a, k, qm_curves_add_point(k, loss, twin, out),
                                     wanted ? m : NULL, out));
            point = qm_next_point(c, k, steps);
        }
        if (is_last || out->diverged)
            break;
        QM_TRY(qm_polled(stop));
        if (is_local)
            QM_TRY(qm_lockstep_pair_take_over(a));
        qm_lockstep_pair_gradient(a, k);
        if (qm_curves_need_before(a) && k + 1 == point && (is_local || is_next_last))
            qm_curves_store_before(a);
        QM_TRY(qm_lockstep_pair_step(a, k));
        QM_TRY(qm_lockstep_pair_twin_step(a, k));
        out->steps = k + 1;
    }
    qm_curves_finish(a, m, out);
    return QM_OK;
}

static qm_status run_pair(const struct qm_cell *c, struct qm_metrics *m,
                          struct qm_twin_cache *twins, const volatile sig_atomic_t *stop,
                          struct qm_outcome *out)
{
    struct qm_lockstep_pair *a = calloc(1, sizeof *a);
    if (!a)
        return qm_fail(QM_NO_MEMORY, "lockstep");
    size_t points = (size_t)qm_count_points(c, qm_cell_steps(c)) + 1; /* divergence adds a point */
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < QM_TRACK_COUNT; i++)
        if (!(out->track[i] = malloc(points * sizeof(double))))
            st = qm_fail(QM_NO_MEMORY, "curves");
    if (st == QM_OK)
        st = qm_lockstep_pair_open(c, a);
    if (st == QM_BAD_ARG) /* a shape or an argument of the problem that does not fit the recipe */
        st = qm_outcome_skip(out, qm_message());
    else if (st == QM_OK)
        st = c->coupling == QM_COUPLING_closed   ? qm_closed_run(a, m, twins, stop, out)
             : c->coupling == QM_COUPLING_update ? qm_next_update_run(a, m, out)
                                                 : loop(a, m, stop, out);
    if (st == QM_OK && !out->reason) {
        int64_t bytes = 0;
        for (int i = 0; i < a->n_tensors; i++)
            bytes += qm_backend_cpu.bytes(a->plan[i]);
        qm_coded_count(a, out);
        out->n = a->total;
        out->bits = a->total ? 8.0 * (double)bytes / (double)a->total : 0.0;
    }
    qm_lockstep_pair_close(a);
    return st;
}

static int is_finite(const float *x, int64_t n)
{
    int64_t odd = 0;
    for (int64_t i = 0; i < n; i++)
        odd += !isfinite(x[i]);
    return odd == 0;
}

/* What of the recorded numbers that the cell reads is not finite, as a reason to leave it out: its
 * errors would be infinite or NaN whatever the format.  NULL: nothing. */
static const char *not_finite(const struct qm_cell *c)
{
    const struct qm_recorded *r = c->recorded;
    if (!r)
        return NULL;
    for (int s = 0; s < 2; s++) {
        int is_read = c->coupling != QM_COUPLING_oneshot || s == c->slot;
        if (is_read && r->slot[s] && !is_finite(r->slot[s], r->numel))
            return "the recorded state has NaN or Inf among its numbers";
    }
    if (c->coupling == QM_COUPLING_oneshot)
        return NULL;
    if (r->param && !is_finite(r->param, r->numel))
        return "the recorded parameter has NaN or Inf among its numbers";
    return r->grad && !is_finite(r->grad, r->n_steps * r->numel)
               ? "a recorded gradient has NaN or Inf among its numbers"
               : NULL;
}

qm_status qm_lockstep_run(const struct qm_cell *c, struct qm_metrics *m,
                          struct qm_twin_cache *twins, const volatile sig_atomic_t *stop,
                          struct qm_outcome *out)
{
    memset(out, 0, sizeof *out);
    started = qm_seconds();
    out->value = malloc((size_t)qm_value_count() * sizeof *out->value);
    if (!out->value)
        return qm_fail(QM_NO_MEMORY, "values");
    for (int i = 0; i < qm_value_count(); i++)
        out->value[i] = nan("");
    for (int i = 0; i < QM_DECADES; i++)
        out->decade[i] = out->unit_decade[i] = (struct qm_decade){0, nan(""), nan(""), nan("")};
    const char *reason = c->reason ? c->reason : not_finite(c);
    if (reason)
        return qm_outcome_skip(out, reason);
    qm_status st = c->kind == QM_SOURCE_empty           ? qm_empty_run(c, out)
                   : c->coupling == QM_COUPLING_oneshot ? qm_oneshot_run(c, m, out)
                                                        : run_pair(c, m, twins, stop, out);
    if (st == QM_OK)
        st = qm_polled(NULL);
    out->done = st == QM_OK;
    return st;
}
