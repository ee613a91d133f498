/* lockstep_curves.c - Compares variant and twin: the points of the curves and a cell's metrics. */
#include "experiments/lockstep/lockstep_internal.h"

#include "core/recipe/backend.h"

#include <float.h>
#include <math.h>
#include <string.h>

double qm_sqnr_db(const double *want, const double *from, const float *got, int64_t n)
{
    double signal = 0.0, noise = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double start = from ? from[i] : 0.0;
        double x = want[i] - start, e = ((double)got[i] - start) - x;
        signal += x * x;
        noise += e * e;
    }
    return isfinite(signal) && !isfinite(noise) ? -HUGE_VAL : 10.0 * log10(signal / noise);
}

double qm_above_floor(const struct qm_lockstep_pair *a, double loss)
{
    double gap = loss - a->floor, least = DBL_EPSILON * a->start_loss;
    return gap < least ? least : gap;
}

int qm_has_diverged(const struct qm_lockstep_pair *a, double loss)
{
    return !isfinite(loss) || loss > QM_DIVERGED_GAP * a->start_loss;
}

/* How the update of a rule is measured: not at all, from its states, or as the movement of
 * the parameter. */
enum update { UPDATE_none, UPDATE_states, UPDATE_moved };

static enum update update_of(const struct qm_lockstep_pair *a)
{
    const char *family = a->recipe.rule->family;
    if (qm_oracle_has_adam_states(family))
        return UPDATE_states;
    return strcmp(family, "ema") == 0 || a->recipe.hyper.lr == 0.0 ? UPDATE_none : UPDATE_moved;
}

int qm_curves_need_before(const struct qm_lockstep_pair *a) { return update_of(a) == UPDATE_moved; }

/* Stores both parameters; after the step set_updates turns them into updates. */
void qm_curves_store_before(struct qm_lockstep_pair *a)
{
    for (int64_t i = 0; i < a->total; i++) {
        a->update[i] = a->twin_p[i];
        a->got_update[i] = (double)a->p[i];
    }
}

/* Both updates as (parameter before - parameter after) / learning rate. */
static void set_updates(struct qm_lockstep_pair *a)
{
    double lr = a->recipe.hyper.lr;
    for (int64_t i = 0; i < a->total; i++) {
        a->update[i] = (a->update[i] - a->twin_p[i]) / lr;
        a->got_update[i] = (a->got_update[i] - (double)a->p[i]) / lr;
    }
}

static void add_sample(struct qm_lockstep_pair *a, struct qm_metrics *m, int64_t t)
{
    const struct qm_cell *c = a->c;
    enum update update = update_of(a);
    if (update == UPDATE_moved)
        set_updates(a);
    for (int i = 0; i < a->n_tensors; i++) {
        int64_t at = a->first[i];
        struct qm_quantizer q = qm_recipe_slot(&a->recipe, c->slot, &a->shape[i]);
        struct qm_sample sample = {.n = qm_lockstep_pair_slot_numel(a, i, c->slot),
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

int64_t qm_curves_add_point(int64_t k, double loss, double twin, struct qm_outcome *out)
{
    int64_t at = out->n_points++;
    for (int i = 0; i < QM_TRACK_COUNT; i++)
        out->track[i][at] = nan("");
    out->track[QM_TRACK_step][at] = (double)k;
    out->track[QM_TRACK_loss][at] = loss;
    out->track[QM_TRACK_twin_loss][at] = twin;
    return at;
}

qm_status qm_curves_compare(struct qm_lockstep_pair *a, int64_t k, int64_t at, struct qm_metrics *m,
                            struct qm_outcome *out)
{
    double *sqnr[2] = {out->track[QM_TRACK_state0_sqnr], out->track[QM_TRACK_state1_sqnr]};
    for (int s = 0; s < a->n_slots && s < 2; s++) {
        double *keep = s == 0 ? a->m : a->v;
        QM_TRY(qm_lockstep_pair_decode(a, s));
        for (int64_t i = 0; i < a->total; i++)
            keep[i] = (double)a->got[i];
        sqnr[s][at] = qm_sqnr_db(a->twin_slot[s], NULL, a->got, a->total);
    }
    out->track[QM_TRACK_param_sqnr][at] = qm_sqnr_db(a->twin_p, a->start, a->p, a->total);
    for (int64_t i = 0; i < a->total; i++)
        out->diverged |= !isfinite((double)a->p[i]);
    if (m) {
        QM_TRY(qm_lockstep_pair_decode(a, a->c->slot));
        add_sample(a, m, a->t0 + k - 1);
    }
    return QM_OK;
}

void qm_curves_finish(const struct qm_lockstep_pair *a, const struct qm_metrics *m,
                      struct qm_outcome *out)
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
