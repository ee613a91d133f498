/* lockstep.c - the loop over steps: variant and twin. */
#include "experiments/lockstep.h"

#include "core/engine/backend.h"
#include "experiments/empty.h"
#include "experiments/sides.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- columns --------------------------------------------------------------------------------- */

static const struct {
    const char *name, *unit, *text;
} extras[] = {
#define X(name, unit, text) {#name, unit, text},
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
    memset(o, 0, sizeof *o);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static double sqnr_db(const double *want, const double *from, const float *got, int64_t n)
{
    double signal = 0.0, noise = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double start = from ? from[i] : 0.0;
        double x = want[i] - start, e = ((double)got[i] - start) - x;
        signal += x * x;
        noise += e * e;
    }
    return 10.0 * log10(signal / noise);
}

/* Loss above the floor; what double cannot tell from the floor counts as its resolution. */
static double above_floor(const struct qm_sides *a, double loss)
{
    double gap = loss - a->floor, least = DBL_EPSILON * a->start_loss;
    return gap < least ? least : gap;
}

/* Where a rule's update is to be had: from its states, from the parameter's movement, nowhere. */
enum update { UPDATE_none, UPDATE_states, UPDATE_moved };

static enum update update_of(const struct qm_sides *a)
{
    const char *family = a->recipe.rule->family;
    if (strcmp(family, "adamw") == 0 || strcmp(family, "adam") == 0 ||
        strcmp(family, "adamw_after") == 0)
        return UPDATE_states;
    return strcmp(family, "ema") == 0 || a->recipe.hyper.lr == 0.0 ? UPDATE_none : UPDATE_moved;
}

/* Both sides' parameters, to be called before a step; after it `moved` makes its updates of them. */
static void keep_parameters(struct qm_sides *a)
{
    for (int64_t i = 0; i < a->total; i++) {
        a->update[i] = a->twin_p[i];
        a->got_update[i] = (double)a->p[i];
    }
}

static void moved(struct qm_sides *a)
{
    double lr = a->recipe.hyper.lr;
    for (int64_t i = 0; i < a->total; i++) {
        a->update[i] = (a->update[i] - a->twin_p[i]) / lr;
        a->got_update[i] = (a->got_update[i] - (double)a->p[i]) / lr;
    }
}

static void add_sample(struct qm_sides *a, struct qm_metrics *m, int64_t t)
{
    const struct qm_cell *c = a->c;
    enum update update = update_of(a);
    if (update == UPDATE_moved)
        moved(a);
    for (int i = 0; i < a->n_tensors; i++) {
        int64_t at = a->first[i];
        struct qm_quantizer q = qm_recipe_slot(&a->recipe, c->slot, &a->shape[i]);
        struct qm_sample sample = {.n = qm_sides_slot_numel(a, i, c->slot),
                                   .want = a->twin_slot[c->slot] + at,
                                   .got = a->got + at,
                                   .grad = a->twin_g + at,
                                   .bits = q.bits,
                                   .eps = a->recipe.hyper.eps};
        if (update == UPDATE_states) {
            qm_adam_update(a->numel[i], a->twin_slot[0] + at, a->twin_slot[1] + at,
                           &a->recipe.hyper, t, t, a->update + at);
            qm_adam_update(a->numel[i], a->m + at, a->v + at, &a->recipe.hyper, t, t,
                           a->got_update + at);
        }
        if (update != UPDATE_none) {
            sample.want_step = a->update + at;
            sample.got_step = a->got_update + at;
        }
        if (q.bits && qm_backend_cpu.save(a->plan[i], c->slot, a->codes + at, NULL) == QM_OK)
            sample.code = a->codes + at;
        qm_metrics_add(m, &sample);
    }
}

/* One point of the curves after k updates; m: the metrics of this state are wanted too. */
static qm_status measure(struct qm_sides *a, int64_t k, struct qm_metrics *m,
                         struct qm_outcome *out)
{
    int64_t at = out->n_points++;
    double *sqnr[2] = {out->track[QM_TRACK_state0_sqnr], out->track[QM_TRACK_state1_sqnr]};
    for (int i = 0; i < QM_TRACK_COUNT; i++)
        out->track[i][at] = nan("");
    out->track[QM_TRACK_step][at] = (double)k;
    for (int s = 0; s < a->n_slots && s < 2; s++) {
        double *keep = s == 0 ? a->m : a->v;
        QM_TRY(qm_sides_decode(a, s));
        for (int64_t i = 0; i < a->total; i++)
            keep[i] = (double)a->got[i];
        sqnr[s][at] = sqnr_db(a->twin_slot[s], NULL, a->got, a->total);
    }
    out->track[QM_TRACK_param_sqnr][at] = sqnr_db(a->twin_p, a->start, a->p, a->total);
    if (a->problem && a->c->problem->optimum) {
        for (int64_t i = 0; i < a->total; i++)
            a->scratch[i] = (double)a->p[i];
        double loss = a->c->problem->eval(a->problem, a->scratch, k + 1, NULL);
        double twin = a->c->problem->eval(a->problem, a->twin_p, k + 1, NULL);
        out->track[QM_TRACK_loss][at] = above_floor(a, loss);
        out->track[QM_TRACK_twin_loss][at] = above_floor(a, twin);
        out->diverged |= !isfinite(loss) || loss - a->floor > 1e3 * a->start_loss;
    }
    for (int64_t i = 0; i < a->total; i++)
        out->diverged |= !isfinite((double)a->p[i]);
    if (m) {
        QM_TRY(qm_sides_decode(a, a->c->slot));
        add_sample(a, m, a->t0 + k - 1);
    }
    return QM_OK;
}

static void finish(const struct qm_sides *a, const struct qm_metrics *m, struct qm_outcome *out)
{
    double *extra = out->value + qm_metric_count();
    int64_t last = out->n_points - 1, n = 0;
    double sum = 0.0;
    qm_outcome_measure(out, m);
    extra[QM_EXTRA_state0_sqnr] = out->track[QM_TRACK_state0_sqnr][last];
    extra[QM_EXTRA_state1_sqnr] = out->track[QM_TRACK_state1_sqnr][last];
    extra[QM_EXTRA_param_sqnr] = out->track[QM_TRACK_param_sqnr][last];
    if (!a->problem || !a->c->problem->optimum)
        return;
    const double *loss = out->track[QM_TRACK_loss], *twin = out->track[QM_TRACK_twin_loss];
    extra[QM_EXTRA_loss] = loss[last];
    extra[QM_EXTRA_twin_loss] = twin[last];
    extra[QM_EXTRA_loss_ratio] = log10(loss[last] / twin[last]);
    for (int64_t i = 1; i <= last; i++, n++)
        sum += log10(loss[i] / twin[i]);
    extra[QM_EXTRA_loss_ratio_mean] = n ? sum / (double)n : nan("");
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int64_t steps_of(const struct qm_cell *c)
{
    int64_t own = c->recorded ? c->recorded->n_steps : c->problem ? c->problem->steps : 100;
    return c->steps == 0 || (c->recorded && c->steps > own) ? own : c->steps;
}

static qm_status loop(struct qm_sides *a, struct qm_metrics *m, const volatile sig_atomic_t *stop,
                      struct qm_outcome *out)
{
    const struct qm_cell *c = a->c;
    int64_t steps = steps_of(c);
    int is_local = c->coupling == QM_COUPLING_local;
    qm_metrics_reset(m);
    if (a->problem)
        QM_TRY(measure(a, 0, NULL, out));
    for (int64_t k = 0; k < steps; k++) {
        int is_last = k + 1 == steps;
        if (stop && *stop)
            return qm_fail(QM_INTERRUPTED, "interrupted");
        if (is_local)
            QM_TRY(qm_sides_take_over(a));
        qm_sides_gradients(a, k);
        int is_point = is_last || (k + 1) % c->every == 0;
        struct qm_metrics *into = is_point && (is_local || is_last) ? m : NULL;
        if (into && update_of(a) == UPDATE_moved)
            keep_parameters(a);
        QM_TRY(qm_sides_step(a, k));
        out->steps = k + 1;
        if (is_point)
            QM_TRY(measure(a, k + 1, into, out));
        if (out->diverged)
            break;
    }
    finish(a, m, out);
    return QM_OK;
}

static qm_status run_sides(const struct qm_cell *c, struct qm_metrics *m,
                           const volatile sig_atomic_t *stop, struct qm_outcome *out)
{
    struct qm_sides *a = calloc(1, sizeof *a);
    if (!a)
        return qm_fail(QM_NO_MEMORY, "lockstep");
    size_t points = (size_t)(steps_of(c) / c->every + 2);
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < QM_TRACK_COUNT; i++)
        if (!(out->track[i] = malloc(points * sizeof(double))))
            st = qm_fail(QM_NO_MEMORY, "curves");
    if (st == QM_OK)
        st = qm_sides_open(c, a);
    if (st == QM_BAD_ARG) /* a shape or a problem's argument that does not go with the recipe */
        st = qm_outcome_skip(out, qm_message());
    else if (st == QM_OK)
        st = loop(a, m, stop, out);
    if (st == QM_OK && !out->reason) {
        int64_t bytes = 0;
        for (int i = 0; i < a->n_tensors; i++)
            bytes += qm_backend_cpu.bytes(a->plan[i]);
        out->n = a->total;
        out->bits = a->total ? 8.0 * (double)bytes / (double)a->total : 0.0;
    }
    qm_sides_close(a);
    return st;
}

qm_status qm_lockstep_run(const struct qm_cell *c, struct qm_metrics *m,
                          const volatile sig_atomic_t *stop, struct qm_outcome *out)
{
    memset(out, 0, sizeof *out);
    out->value = malloc((size_t)qm_value_count() * sizeof *out->value);
    if (!out->value)
        return qm_fail(QM_NO_MEMORY, "values");
    for (int i = 0; i < qm_value_count(); i++)
        out->value[i] = nan("");
    for (int i = 0; i < QM_DECADES; i++)
        out->decade[i] = out->unit_decade[i] = (struct qm_decade){0, nan(""), nan(""), nan("")};
    if (c->reason)
        return qm_outcome_skip(out, c->reason);
    qm_status st = c->kind == QM_SOURCE_empty           ? qm_empty_run(c, out)
                   : c->coupling == QM_COUPLING_oneshot ? qm_oneshot_run(c, m, out)
                                                        : run_sides(c, m, stop, out);
    out->done = st == QM_OK;
    return st;
}
