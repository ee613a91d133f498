/* closed_loop.c - Coupling closed: variant and twin evaluate gradients at their own parameters. */
#include "experiments/lockstep/hitting_times.h"
#include "experiments/lockstep/lockstep_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A closed run and its plotted losses.  Every point of the curves has a loss. */
struct run {
    struct qm_lockstep_pair *a;
    struct qm_twin *w; /* NULL: the twin is neither cached nor recorded */
    int gives_loss;    /* the loss that comes with a gradient is the plotted one */
    int64_t steps, loss_interval, n_losses, n_points;
    int64_t *step;       /* of each loss */
    double *loss, *twin; /* above the floor */
    int has_twin_diverged;
    double moved, twin_moved; /* the largest |parameter - start| at any loss so far */
};

/* Whether the plotted losses are evaluated after k updates; point: the next point of the curves. */
static int has_loss(const struct run *r, int64_t k, int64_t point)
{
    return r->gives_loss || k == point || k == r->steps || k % r->loss_interval == 0;
}

static int64_t count_losses(const struct run *r)
{
    int64_t n = 0, point = 0;
    for (int64_t k = 0; k <= r->steps; k++) {
        n += has_loss(r, k, point);
        point = k == point ? qm_next_point(r->a->c, k, r->steps) : point;
    }
    return n;
}

/* Evaluates the variant's gradient unless k is the last step, and its loss above the floor where
 * it is wanted (else NaN). */
static double variant_loss(struct run *r, int64_t k, int is_wanted)
{
    int alone = is_wanted && !(r->gives_loss && k < r->steps);
    double loss = alone ? qm_lockstep_pair_loss(r->a, k) : nan("");
    double with = k < r->steps ? qm_lockstep_pair_gradient(r->a, k) : nan("");
    return !is_wanted ? nan("") : qm_above_floor(r->a, alone ? loss : with);
}

static double twin_loss(struct run *r, int64_t k, int is_wanted)
{
    struct qm_lockstep_pair *a = r->a;
    int alone = is_wanted && !(r->gives_loss && k < r->steps);
    double loss = alone ? a->c->problem->eval(a->problem, a->twin_p, k + 1, NULL) : nan("");
    double with = k < r->steps ? qm_lockstep_pair_twin_gradient(a, k) : nan("");
    return !is_wanted ? nan("") : qm_above_floor(a, alone ? loss : with);
}

enum { LANES = 8 };

static double farthest(const double lane[LANES], double most)
{
    for (int j = 0; j < LANES; j++)
        most = lane[j] > most ? lane[j] : most;
    return most;
}

/* max(most, max_i |p[i] - start[i]|), NaN ignored; the variant's parameter is float.  The maxima
 * are taken in lanes, so that their order does not prevent vectorization. */
#define DEFINE_MOVED(name, type)                                                   \
    static double name(const type *p, const double *start, int64_t n, double most) \
    {                                                                              \
        double lane[LANES] = {0};                                                  \
        int64_t i = 0;                                                             \
        for (; i + LANES <= n; i += LANES)                                         \
            for (int j = 0; j < LANES; j++) {                                      \
                double far = fabs((double)p[i + j] - start[i + j]);                \
                lane[j] = far > lane[j] ? far : lane[j];                           \
            }                                                                      \
        for (int j = 0; i < n; i++, j++) {                                         \
            double far = fabs((double)p[i] - start[i]);                            \
            lane[j] = far > lane[j] ? far : lane[j];                               \
        }                                                                          \
        return farthest(lane, most);                                               \
    }
DEFINE_MOVED(moved_float, float)
DEFINE_MOVED(moved_double, double)

/* The twin's loss after k updates and its gradient, from the cache or by evaluation; at points also
 * its state, which is restored from or recorded in the cache. */
static void evaluate_twin(struct run *r, int64_t k, int is_wanted, int is_point)
{
    struct qm_lockstep_pair *a = r->a;
    struct qm_twin *w = r->w;
    size_t bytes = (size_t)a->total * sizeof(double);
    if (w && w->complete) {
        if (is_point)
            qm_twin_restore(w, r->n_points, a);
        if (k == r->steps)
            memcpy(a->twin_g, w->grad, bytes);
        r->twin[r->n_losses] = w->loss[r->n_losses];
        return;
    }
    double loss = twin_loss(r, k, is_wanted);
    if (is_wanted)
        r->twin[r->n_losses] = loss;
    r->has_twin_diverged |= is_wanted && qm_has_diverged(a, loss);
    if (is_wanted && !r->has_twin_diverged)
        r->twin_moved = moved_double(a->twin_p, a->start, a->total, r->twin_moved);
    if (w && is_wanted)
        w->loss[r->n_losses] = loss;
    if (w && is_point)
        qm_twin_record(w, r->n_points, a);
    if (w && k + 1 == r->steps) {
        memcpy(w->before, a->twin_p, bytes);
        memcpy(w->grad, a->twin_g, bytes);
    }
}

/* Stores both parameters before the last update, whose movement is measured. */
static void store_before_last(struct qm_lockstep_pair *a, const struct qm_twin *w)
{
    if (w && w->complete)
        memcpy(a->twin_p, w->before, (size_t)a->total * sizeof *a->twin_p);
    qm_curves_store_before(a);
}

/* Evaluates both losses and gradients after k updates, and adds a point of the curves where k is
 * one or the variant diverges. */
static qm_status evaluate(struct run *r, int64_t k, int64_t point, struct qm_metrics *m,
                          struct qm_outcome *out)
{
    int is_point = k == point, is_wanted = has_loss(r, k, point), was = out->diverged;
    int64_t i = r->n_losses;
    if (!was) {
        double loss = variant_loss(r, k, is_wanted);
        out->diverged = is_wanted && qm_has_diverged(r->a, loss);
        if (is_wanted)
            r->loss[i] = loss;
    }
    evaluate_twin(r, k, is_wanted, is_point);
    if (is_wanted)
        r->step[i] = k;
    if (out->diverged && !was) /* the cache has the twin's state at points only */
        qm_curves_add_point(k, r->loss[i], r->twin[i], out);
    else if (is_point && !was)
        QM_TRY(qm_curves_compare(r->a, k, qm_curves_add_point(k, r->loss[i], r->twin[i], out),
                                 k == r->steps ? m : NULL, out));
    if (is_wanted && !out->diverged)
        r->moved = moved_float(r->a->p, r->a->start, r->a->total, r->moved);
    r->n_losses += is_wanted;
    r->n_points += is_point;
    return QM_OK;
}

static qm_status loop_closed(struct run *r, struct qm_metrics *m, const volatile sig_atomic_t *stop,
                             struct qm_outcome *out)
{
    struct qm_lockstep_pair *a = r->a;
    int64_t point = 0;
    qm_metrics_reset(m);
    for (int64_t k = 0;; k++) {
        int kept = r->w && r->w->complete;
        QM_TRY(qm_polled(stop));
        QM_TRY(evaluate(r, k, point, m, out));
        point = k == point ? qm_next_point(a->c, k, r->steps) : point;
        if (k == r->steps)
            break;
        if (!out->diverged) {
            if (k + 1 == r->steps && qm_curves_need_before(a))
                store_before_last(a, r->w);
            QM_TRY(qm_lockstep_pair_step(a, k));
            out->steps = k + 1;
        }
        if (!kept)
            QM_TRY(qm_lockstep_pair_twin_step(a, k));
    }
    if (r->w && r->w->complete)
        r->twin_moved = r->w->moved;
    else if (r->w) {
        r->w->moved = r->twin_moved;
        r->w->complete = 1;
    }
    qm_curves_finish(a, m, out);
    return QM_OK;
}

/* Turns losses into normalised gaps, in place; the start has 1 and diverged
 * losses QM_DIVERGED_GAP. */
static void normalise(const struct run *r, double *loss)
{
    int64_t i = 1;
    loss[0] = 1.0;
    for (; i < r->n_losses && !qm_has_diverged(r->a, loss[i]); i++)
        loss[i] /= r->a->start_loss;
    for (; i < r->n_losses; i++)
        loss[i] = QM_DIVERGED_GAP;
}

/* Sets the values of coupling closed and the hitting times from the losses of the whole run. */
static qm_status set_values(struct run *r, struct qm_outcome *out)
{
    static const struct {
        int is_twin, persistence;
    } hits[] = {
#define X(name, twin, persistence, text) {twin, persistence},
        QM_HITS_LIST(X)
#undef X
    };
    double *extra = out->value + qm_metric_count(), recovery;
    for (int64_t i = 0; i < r->n_losses && out->diverged; i++)
        if (r->step[i] >= out->steps)
            r->loss[i] = HUGE_VAL;
    normalise(r, r->loss);
    normalise(r, r->twin);
    double gap = r->loss[r->n_losses - 1], twin = r->twin[r->n_losses - 1];
    extra[QM_EXTRA_start_gap] = r->a->start_loss;
    extra[QM_EXTRA_gap] = gap;
    extra[QM_EXTRA_twin_gap] = twin;
    extra[QM_EXTRA_log_gap] = log10(gap / twin);
    extra[QM_EXTRA_area] = qm_gap_area(r->loss, r->twin, r->step, r->n_losses);
    extra[QM_EXTRA_peak] = qm_gap_peak(r->loss, r->twin, r->step, r->n_losses, &recovery);
    extra[QM_EXTRA_late_gap] = qm_late_gap(r->loss, r->step, r->n_losses);
    extra[QM_EXTRA_twin_late_gap] = qm_late_gap(r->twin, r->step, r->n_losses);
    extra[QM_EXTRA_late] = log10(extra[QM_EXTRA_late_gap] / extra[QM_EXTRA_twin_late_gap]);
    extra[QM_EXTRA_twin_area] = qm_gap_area(r->twin, NULL, r->step, r->n_losses);
    extra[QM_EXTRA_recovery] = out->diverged ? HUGE_VAL : recovery;
    extra[QM_EXTRA_moved] = r->moved;
    extra[QM_EXTRA_twin_moved] = r->twin_moved;
    extra[QM_EXTRA_twin_basin] = qm_lockstep_pair_basin(r->a, 1);
    extra[QM_EXTRA_basin] = out->diverged ? nan("") : qm_lockstep_pair_basin(r->a, 0);
    for (int i = 0; i < QM_HITS_COUNT; i++)
        QM_TRY(qm_hitting_times_make(hits[i].is_twin ? r->twin : r->loss, r->step, r->n_losses,
                                     hits[i].persistence, &out->n_hits[i], &out->hits[i]));
    return QM_OK;
}

qm_status qm_closed_run(struct qm_lockstep_pair *a, struct qm_metrics *m,
                        struct qm_twin_cache *twins, const volatile sig_atomic_t *stop,
                        struct qm_outcome *out)
{
    const struct qm_problem *p = a->c->problem;
    struct run r = {.a = a, .steps = qm_cell_steps(a->c), .loss_interval = 1};
    if (p->loss_interval && p->loss_interval(a->problem) > 0)
        r.loss_interval = p->loss_interval(a->problem);
    r.gives_loss = p->gives_loss && p->gives_loss(a->problem);
    size_t losses = (size_t)count_losses(&r);
    r.step = calloc(losses, sizeof *r.step);
    r.loss = calloc(2 * losses, sizeof *r.loss);
    r.twin = r.loss ? r.loss + losses : NULL;
    qm_status st = r.step && r.loss ? QM_OK : qm_fail(QM_NO_MEMORY, "losses");
    if (st == QM_OK)
        st = qm_twin_find(twins, a, (int64_t)losses, qm_count_points(a->c, r.steps), &r.w);
    if (st == QM_OK)
        st = loop_closed(&r, m, stop, out);
    if (st == QM_OK)
        st = set_values(&r, out);
    free(r.step);
    free(r.loss);
    return st;
}
