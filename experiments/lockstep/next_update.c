/* next_update.c - Coupling update: one update from a state that is quantized as a whole. */
#include "experiments/lockstep/lockstep_internal.h"

#include <math.h>
#include <string.h>

/* Sets both updates to (parameter before - parameter after) / learning rate of the next update. */
static qm_status set_movements(struct qm_lockstep_pair *a, struct qm_outcome *out)
{
    qm_lockstep_pair_gradient(a, 0);
    for (int64_t i = 0; i < a->total; i++) {
        a->update[i] = a->twin_p[i];
        a->got_update[i] = (double)a->p[i];
    }
    QM_TRY(qm_lockstep_pair_step(a, 0));
    QM_TRY(qm_lockstep_pair_twin_step(a, 0));
    double lr = a->recipe.hyper.lr;
    for (int64_t i = 0; i < a->total; i++) {
        a->update[i] = (a->update[i] - a->twin_p[i]) / lr;
        a->got_update[i] = (a->got_update[i] - (double)a->p[i]) / lr;
    }
    out->steps = 1;
    return QM_OK;
}

qm_status qm_next_update_run(struct qm_lockstep_pair *a, struct qm_metrics *m,
                             struct qm_outcome *out)
{
    const struct qm_recorded *r = a->c->recorded;
    int has_next = r->grad && r->param;
    double *kept[2] = {a->m, a->v}, sqnr[2] = {nan(""), nan("")};
    for (int s = 0; s < a->n_slots && s < 2; s++) {
        QM_TRY(qm_lockstep_pair_decode(a, s));
        sqnr[s] = qm_sqnr_db(a->twin_slot[s], NULL, a->got, a->total);
        for (int64_t i = 0; i < a->total; i++)
            kept[s][i] = (double)a->got[i];
    }
    if (has_next) {
        QM_TRY(set_movements(a, out));
    } else {
        int64_t t = a->t0 - 1; /* updates that the state has seen */
        qm_adam_update(a->total, a->twin_slot[0], a->twin_slot[1], &a->recipe.hyper, t, t,
                       a->update);
        qm_adam_update(a->total, a->m, a->v, &a->recipe.hyper, t, t, a->got_update);
    }
    for (int64_t i = 0; i < a->total; i++)
        a->got[i] = (float)a->got_update[i];
    struct qm_sample sample = {.n = a->total,
                               .want = a->update,
                               .got = a->got,
                               .want_step = a->update,
                               .got_step = a->got_update,
                               .grad = has_next ? a->twin_g : NULL,
                               .eps = a->recipe.hyper.eps};
    qm_metrics_reset(m);
    qm_metrics_add(m, &sample);
    qm_outcome_measure(out, m);
    double *extra = out->value + qm_metric_count();
    extra[QM_EXTRA_state0_sqnr] = sqnr[0];
    extra[QM_EXTRA_state1_sqnr] = sqnr[1];
    return QM_OK;
}
