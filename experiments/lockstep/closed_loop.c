/* closed_loop.c - coupling closed: each side evaluates its own gradient. */
#include "experiments/lockstep/hitting_times.h"
#include "experiments/lockstep/lockstep_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One closed run: the looks at both losses, which points are among. */
struct run {
    struct qm_lockstep_pair *a;
    struct qm_twin *w; /* NULL: nothing is kept */
    int gives_loss;    /* a gradient's loss is the one that is looked at */
    int64_t steps, look, n_looks, n_points;
    int64_t *step;       /* [looks] */
    double *loss, *twin; /* [looks], above the floor */
    int is_twin_lost;
    double moved, twin_moved; /* over the looks so far */
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
        point = k == point ? qm_next_point(r->a->c, k, r->steps) : point;
    }
    return n;
}

/* The loss above the floor where it is looked at, and the gradient where one follows; NaN: no look. */
static double variant_loss(struct run *r, int64_t k, int looks)
{
    int alone = looks && !(r->gives_loss && k < r->steps);
    double loss = alone ? qm_lockstep_pair_loss(r->a, k) : nan("");
    double with = k < r->steps ? qm_lockstep_pair_gradient(r->a, k) : nan("");
    return !looks ? nan("") : qm_above_floor(r->a, alone ? loss : with);
}

static double twin_loss(struct run *r, int64_t k, int looks)
{
    struct qm_lockstep_pair *a = r->a;
    int alone = looks && !(r->gives_loss && k < r->steps);
    double loss = alone ? a->c->problem->eval(a->problem, a->twin_p, k + 1, NULL) : nan("");
    double with = k < r->steps ? qm_lockstep_pair_twin_gradient(a, k) : nan("");
    return !looks ? nan("") : qm_above_floor(a, alone ? loss : with);
}

enum { LANES = 8 };

static double farthest(const double lane[LANES], double most)
{
    for (int j = 0; j < LANES; j++)
        most = lane[j] > most ? lane[j] : most;
    return most;
}

/* The larger of `most` and the largest |p - start|; the variant's parameter is float.  In lanes, so
 * that the order of maxima keeps no compiler from vectorizing; a NaN is passed over. */
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

/* The twin's side of step k, from what was kept or by running it; its state at points. */
static void twin_side(struct run *r, int64_t k, int looks, int is_point)
{
    struct qm_lockstep_pair *a = r->a;
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
    r->is_twin_lost |= looks && qm_is_lost(a, loss);
    if (looks && !r->is_twin_lost)
        r->twin_moved = moved_double(a->twin_p, a->start, a->total, r->twin_moved);
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
static void keep_last(struct qm_lockstep_pair *a, const struct qm_twin *w)
{
    if (w && w->complete)
        memcpy(a->twin_p, w->before, (size_t)a->total * sizeof *a->twin_p);
    qm_measure_before(a);
}

/* After k updates: both losses, then a point of the curves. */
static qm_status look_at(struct run *r, int64_t k, int64_t point, struct qm_metrics *m,
                         struct qm_outcome *out)
{
    int is_point = k == point, looks = is_look(r, k, point), was = out->diverged;
    int64_t i = r->n_looks;
    if (!was) {
        double loss = variant_loss(r, k, looks);
        out->diverged = looks && qm_is_lost(r->a, loss);
        if (looks)
            r->loss[i] = loss;
    }
    twin_side(r, k, looks, is_point);
    if (looks)
        r->step[i] = k;
    if (out->diverged && !was) /* the twin's state is at hand at points alone */
        qm_measure_point(k, r->loss[i], r->twin[i], out);
    else if (is_point && !was)
        QM_TRY(qm_measure(r->a, k, qm_measure_point(k, r->loss[i], r->twin[i], out),
                          k == r->steps ? m : NULL, out));
    if (looks && !out->diverged)
        r->moved = moved_float(r->a->p, r->a->start, r->a->total, r->moved);
    r->n_looks += looks;
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
        QM_TRY(look_at(r, k, point, m, out));
        point = k == point ? qm_next_point(a->c, k, r->steps) : point;
        if (k == r->steps)
            break;
        if (!out->diverged) {
            if (k + 1 == r->steps && qm_measure_wants_before(a))
                keep_last(a, r->w);
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
    qm_measure_end(a, m, out);
    return QM_OK;
}

/* Losses to normalised gaps, in place: 1 at the start, 1000 from the first look that is lost on. */
static void normalise(const struct run *r, double *loss)
{
    int64_t i = 1;
    loss[0] = 1.0;
    for (; i < r->n_looks && !qm_is_lost(r->a, loss[i]); i++)
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
    double *extra = out->value + qm_metric_count(), recovery;
    for (int64_t i = 0; i < r->n_looks && out->diverged; i++)
        if (r->step[i] >= out->steps)
            r->loss[i] = HUGE_VAL;
    normalise(r, r->loss);
    normalise(r, r->twin);
    double gap = r->loss[r->n_looks - 1], twin = r->twin[r->n_looks - 1];
    extra[QM_EXTRA_start_gap] = r->a->start_loss;
    extra[QM_EXTRA_gap] = gap;
    extra[QM_EXTRA_twin_gap] = twin;
    extra[QM_EXTRA_log_gap] = log10(gap / twin);
    extra[QM_EXTRA_area] = qm_gap_area(r->loss, r->twin, r->step, r->n_looks);
    extra[QM_EXTRA_peak] = qm_gap_peak(r->loss, r->twin, r->step, r->n_looks, &recovery);
    extra[QM_EXTRA_recovery] = out->diverged ? HUGE_VAL : recovery;
    extra[QM_EXTRA_moved] = r->moved;
    extra[QM_EXTRA_twin_moved] = r->twin_moved;
    extra[QM_EXTRA_twin_basin] = qm_lockstep_pair_basin(r->a, 1);
    extra[QM_EXTRA_basin] = out->diverged ? nan("") : qm_lockstep_pair_basin(r->a, 0);
    for (int i = 0; i < QM_STAIR_COUNT; i++)
        QM_TRY(qm_stairs_make(stairs[i].is_twin ? r->twin : r->loss, r->step, r->n_looks,
                              stairs[i].persistence, &out->n_stair[i], &out->stair[i]));
    return QM_OK;
}

qm_status qm_closed_run(struct qm_lockstep_pair *a, struct qm_metrics *m,
                        struct qm_twin_cache *twins, const volatile sig_atomic_t *stop,
                        struct qm_outcome *out)
{
    const struct qm_problem *p = a->c->problem;
    struct run r = {.a = a, .steps = qm_cell_steps(a->c), .look = 1};
    if (p->look && p->look(a->problem) > 0)
        r.look = p->look(a->problem);
    r.gives_loss = p->gives_loss && p->gives_loss(a->problem);
    size_t looks = (size_t)count_looks(&r);
    r.step = calloc(looks, sizeof *r.step);
    r.loss = calloc(2 * looks, sizeof *r.loss);
    r.twin = r.loss ? r.loss + looks : NULL;
    qm_status st = r.step && r.loss ? QM_OK : qm_fail(QM_NO_MEMORY, "losses");
    if (st == QM_OK)
        st = qm_twin_find(twins, a, (int64_t)looks, qm_count_points(a->c, r.steps), &r.w);
    if (st == QM_OK)
        st = loop_closed(&r, m, stop, out);
    if (st == QM_OK)
        st = follow(&r, out);
    free(r.step);
    free(r.loss);
    return st;
}
