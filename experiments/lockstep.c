/* lockstep.c - the loop over steps: variant and twin. */
#include "experiments/lockstep.h"

#include "core/engine/backend.h"
#include "experiments/empty.h"
#include "experiments/protocol/stairs.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A side is lost where its normalised gap exceeds this or is not finite, and counts as this. */
#define QM_LOST_GAP 1e3

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
    for (int i = 0; i < QM_STAIR_COUNT; i++)
        free(o->stair[i]);
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

static int is_lost(const struct qm_sides *a, double loss)
{
    return !isfinite(loss) || loss > QM_LOST_GAP * a->start_loss;
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

/* A new point of the curves after k updates, with both losses. */
static int64_t new_point(int64_t k, double loss, double twin, struct qm_outcome *out)
{
    int64_t at = out->n_points++;
    for (int i = 0; i < QM_TRACK_COUNT; i++)
        out->track[i][at] = nan("");
    out->track[QM_TRACK_step][at] = (double)k;
    out->track[QM_TRACK_loss][at] = loss;
    out->track[QM_TRACK_twin_loss][at] = twin;
    return at;
}

/* What both sides hold at a new point; m: the metrics of this state are wanted too. */
static qm_status measure(struct qm_sides *a, int64_t k, int64_t at, struct qm_metrics *m,
                         struct qm_outcome *out)
{
    double *sqnr[2] = {out->track[QM_TRACK_state0_sqnr], out->track[QM_TRACK_state1_sqnr]};
    for (int s = 0; s < a->n_slots && s < 2; s++) {
        double *keep = s == 0 ? a->m : a->v;
        QM_TRY(qm_sides_decode(a, s));
        for (int64_t i = 0; i < a->total; i++)
            keep[i] = (double)a->got[i];
        sqnr[s][at] = sqnr_db(a->twin_slot[s], NULL, a->got, a->total);
    }
    out->track[QM_TRACK_param_sqnr][at] = sqnr_db(a->twin_p, a->start, a->p, a->total);
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

/* ---- the loops ------------------------------------------------------------------------------- */

static int64_t steps_of(const struct qm_cell *c)
{
    int64_t own = c->recorded ? c->recorded->n_steps : c->problem ? c->problem->steps : 100;
    return c->steps == 0 || (c->recorded && c->steps > own) ? own : c->steps;
}

/* The point after this one; every 0: 1, 2, ... 8, 9, ... 16, 18, ..., 20 per decade. */
static int64_t next_point(const struct qm_cell *c, int64_t k, int64_t steps)
{
    int64_t next = c->every ? k + c->every : k + (k < 16 ? 1 : k / 8);
    return next < steps ? next : steps;
}

static int64_t count_points(const struct qm_cell *c, int64_t steps)
{
    int64_t n = 1;
    for (int64_t k = 0; k < steps; k = next_point(c, k, steps))
        n++;
    return n;
}

static qm_status polled(const volatile sig_atomic_t *stop)
{
    return stop && *stop ? qm_fail(QM_INTERRUPTED, "interrupted") : QM_OK;
}

/* local and global: the same gradients for both. */
static qm_status loop(struct qm_sides *a, struct qm_metrics *m, const volatile sig_atomic_t *stop,
                      struct qm_outcome *out)
{
    const struct qm_cell *c = a->c;
    int64_t steps = steps_of(c);
    int has_loss = a->problem && c->problem->optimum;
    int64_t point = a->problem ? 0 : next_point(c, 0, steps);
    int is_local = c->coupling == QM_COUPLING_local;
    qm_metrics_reset(m);
    for (int64_t k = 0; k <= steps && !out->diverged; k++) {
        int is_last = k == steps, is_next_last = k + 1 == steps;
        if (k == point) {
            double loss = nan(""), twin = nan("");
            if (has_loss) {
                loss = above_floor(a, qm_sides_loss(a, k));
                twin = above_floor(a, c->problem->eval(a->problem, a->twin_p, k + 1, NULL));
                out->diverged |= is_lost(a, loss);
            }
            int wanted = k > 0 && (is_local || is_last);
            QM_TRY(measure(a, k, new_point(k, loss, twin, out), wanted ? m : NULL, out));
            point = next_point(c, k, steps);
        }
        if (is_last || out->diverged)
            break;
        QM_TRY(polled(stop));
        if (is_local)
            QM_TRY(qm_sides_take_over(a));
        qm_sides_gradient(a, k);
        if (update_of(a) == UPDATE_moved && k + 1 == point && (is_local || is_next_last))
            keep_parameters(a);
        QM_TRY(qm_sides_step(a, k));
        QM_TRY(qm_sides_twin_step(a, k));
        out->steps = k + 1;
    }
    finish(a, m, out);
    return QM_OK;
}

/* ---- closed ---------------------------------------------------------------------------------- */

/* One closed run: the looks at both losses, which points are among. */
struct run {
    struct qm_sides *a;
    struct qm_twin *w; /* NULL: nothing is kept */
    int gives_loss;    /* a gradient's loss is the one that is looked at */
    int64_t steps, look, n_looks, n_points;
    int64_t *step;       /* [looks] */
    double *loss, *twin; /* [looks], above the floor */
};

/* Whether both sides know their loss at step k, and whether it is a point of the curves. */
static int is_look(const struct run *r, int64_t k, int64_t point)
{
    return r->gives_loss || k == point || k == r->steps || k % r->look == 0;
}

static int64_t count_looks(const struct run *r)
{
    int64_t n = 0, point = 0;
    for (int64_t k = 0; k <= r->steps; k++) {
        n += is_look(r, k, point);
        point = k == point ? next_point(r->a->c, k, r->steps) : point;
    }
    return n;
}

/* The loss above the floor where it is looked at, and the gradient where one follows; NaN: no look. */
static double variant_loss(struct run *r, int64_t k, int looks)
{
    int alone = looks && !(r->gives_loss && k < r->steps);
    double loss = alone ? qm_sides_loss(r->a, k) : nan("");
    double with = k < r->steps ? qm_sides_gradient(r->a, k) : nan("");
    return !looks ? nan("") : above_floor(r->a, alone ? loss : with);
}

static double twin_loss(struct run *r, int64_t k, int looks)
{
    struct qm_sides *a = r->a;
    int alone = looks && !(r->gives_loss && k < r->steps);
    double loss = alone ? a->c->problem->eval(a->problem, a->twin_p, k + 1, NULL) : nan("");
    double with = k < r->steps ? qm_sides_twin_gradient(a, k) : nan("");
    return !looks ? nan("") : above_floor(a, alone ? loss : with);
}

/* The twin's side of step k, from what was kept or by running it; its state at points. */
static void twin_side(struct run *r, int64_t k, int looks, int is_point)
{
    struct qm_sides *a = r->a;
    struct qm_twin *w = r->w;
    size_t bytes = (size_t)a->total * sizeof(double);
    if (w && w->complete) {
        if (is_point)
            qm_twin_show(w, r->n_points, a);
        if (k == r->steps)
            memcpy(a->twin_g, w->grad, bytes);
        r->twin[r->n_looks] = w->loss[r->n_looks];
        return;
    }
    double loss = twin_loss(r, k, looks);
    if (looks)
        r->twin[r->n_looks] = loss;
    if (w && looks)
        w->loss[r->n_looks] = loss;
    if (w && is_point)
        qm_twin_keep(w, r->n_points, a);
    if (w && k + 1 == r->steps) {
        memcpy(w->before, a->twin_p, bytes);
        memcpy(w->grad, a->twin_g, bytes);
    }
}

/* Before the last update: both parameters, for what the update took off them. */
static void keep_last(struct qm_sides *a, const struct qm_twin *w)
{
    if (w && w->complete)
        memcpy(a->twin_p, w->before, (size_t)a->total * sizeof *a->twin_p);
    keep_parameters(a);
}

/* After k updates: both losses, then a point of the curves. */
static qm_status look_at(struct run *r, int64_t k, int64_t point, struct qm_metrics *m,
                         struct qm_outcome *out)
{
    int is_point = k == point, looks = is_look(r, k, point), was = out->diverged;
    int64_t i = r->n_looks;
    if (!was) {
        double loss = variant_loss(r, k, looks);
        out->diverged = looks && is_lost(r->a, loss);
        if (looks)
            r->loss[i] = loss;
    }
    twin_side(r, k, looks, is_point);
    if (looks)
        r->step[i] = k;
    if (out->diverged && !was) /* the twin's state is at hand at points alone */
        new_point(k, r->loss[i], r->twin[i], out);
    else if (is_point && !was)
        QM_TRY(measure(r->a, k, new_point(k, r->loss[i], r->twin[i], out), k == r->steps ? m : NULL,
                       out));
    r->n_looks += looks;
    r->n_points += is_point;
    return QM_OK;
}

static qm_status loop_closed(struct run *r, struct qm_metrics *m, const volatile sig_atomic_t *stop,
                             struct qm_outcome *out)
{
    struct qm_sides *a = r->a;
    int64_t point = 0;
    qm_metrics_reset(m);
    for (int64_t k = 0;; k++) {
        int kept = r->w && r->w->complete;
        QM_TRY(polled(stop));
        QM_TRY(look_at(r, k, point, m, out));
        point = k == point ? next_point(a->c, k, r->steps) : point;
        if (k == r->steps)
            break;
        if (!out->diverged) {
            if (k + 1 == r->steps && update_of(a) == UPDATE_moved)
                keep_last(a, r->w);
            QM_TRY(qm_sides_step(a, k));
            out->steps = k + 1;
        }
        if (!kept)
            QM_TRY(qm_sides_twin_step(a, k));
    }
    if (r->w)
        r->w->complete = 1;
    finish(a, m, out);
    return QM_OK;
}

/* Losses to normalised gaps, in place: 1 at the start, 1000 from the first look that is lost on. */
static void normalise(const struct run *r, double *loss)
{
    int64_t i = 1;
    loss[0] = 1.0;
    for (; i < r->n_looks && !is_lost(r->a, loss[i]); i++)
        loss[i] /= r->a->start_loss;
    for (; i < r->n_looks; i++)
        loss[i] = QM_LOST_GAP;
}

static qm_status follow(struct run *r, struct qm_outcome *out)
{
    static const struct {
        int is_twin, persistence;
    } stairs[] = {
#define X(name, twin, persistence, text) {twin, persistence},
        QM_STAIR_LIST(X)
#undef X
    };
    double *extra = out->value + qm_metric_count();
    for (int64_t i = 0; i < r->n_looks && out->diverged; i++)
        if (r->step[i] >= out->steps)
            r->loss[i] = INFINITY;
    normalise(r, r->loss);
    normalise(r, r->twin);
    double gap = r->loss[r->n_looks - 1], twin = r->twin[r->n_looks - 1];
    extra[QM_EXTRA_start_gap] = r->a->start_loss;
    extra[QM_EXTRA_gap] = gap;
    extra[QM_EXTRA_twin_gap] = twin;
    extra[QM_EXTRA_log_gap] = log10(gap / twin);
    extra[QM_EXTRA_area] = qm_gap_area(r->loss, r->twin, r->step, r->n_looks);
    for (int i = 0; i < QM_STAIR_COUNT; i++)
        QM_TRY(qm_stairs_make(stairs[i].is_twin ? r->twin : r->loss, r->step, r->n_looks,
                              stairs[i].persistence, &out->n_stair[i], &out->stair[i]));
    return QM_OK;
}

static qm_status run_closed(struct qm_sides *a, struct qm_metrics *m, struct qm_twin_cache *twins,
                            const volatile sig_atomic_t *stop, struct qm_outcome *out)
{
    const struct qm_problem *p = a->c->problem;
    struct run r = {.a = a, .steps = steps_of(a->c), .look = p->look > 0 ? p->look : 1};
    r.gives_loss = p->gives_loss && p->gives_loss(a->problem);
    size_t looks = (size_t)count_looks(&r);
    r.step = calloc(looks, sizeof *r.step);
    r.loss = calloc(2 * looks, sizeof *r.loss);
    r.twin = r.loss ? r.loss + looks : NULL;
    qm_status st = r.step && r.loss ? QM_OK : qm_fail(QM_NO_MEMORY, "losses");
    if (st == QM_OK)
        st = qm_twin_find(twins, a, (int64_t)looks, count_points(a->c, r.steps), &r.w);
    if (st == QM_OK)
        st = loop_closed(&r, m, stop, out);
    if (st == QM_OK)
        st = follow(&r, out);
    free(r.step);
    free(r.loss);
    return st;
}

static qm_status run_sides(const struct qm_cell *c, struct qm_metrics *m,
                           struct qm_twin_cache *twins, const volatile sig_atomic_t *stop,
                           struct qm_outcome *out)
{
    struct qm_sides *a = calloc(1, sizeof *a);
    if (!a)
        return qm_fail(QM_NO_MEMORY, "lockstep");
    size_t points = (size_t)count_points(c, steps_of(c)) + 1; /* one more where it diverges */
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < QM_TRACK_COUNT; i++)
        if (!(out->track[i] = malloc(points * sizeof(double))))
            st = qm_fail(QM_NO_MEMORY, "curves");
    if (st == QM_OK)
        st = qm_sides_open(c, a);
    if (st == QM_BAD_ARG) /* a shape or a problem's argument that does not go with the recipe */
        st = qm_outcome_skip(out, qm_message());
    else if (st == QM_OK)
        st = c->coupling == QM_COUPLING_closed ? run_closed(a, m, twins, stop, out)
                                               : loop(a, m, stop, out);
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
                          struct qm_twin_cache *twins, const volatile sig_atomic_t *stop,
                          struct qm_outcome *out)
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
                                                        : run_sides(c, m, twins, stop, out);
    out->done = st == QM_OK;
    return st;
}
