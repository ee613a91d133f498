/* slot.c - Judges scales, codes and decoded values of one slot against the oracle's fresh state. */
#include "experiments/check/slot_parts.h"

#include <string.h>

double qm_slot_quotient_error(const struct qm_slot_view *v)
{
    return v->reorder.div_ulp > 0.0 ? 2.0 * v->reorder.div_ulp * QM_U : QM_U;
}

void qm_slot_judge(const struct qm_slot_view *v, int slot, double *lo, double *hi, int *flag,
                   struct qm_tally *t, struct qm_finding *f, int64_t *at)
{
    int64_t count = qm_groups_count(&v->d->q, v->shape, v->n);
    if (v->d->q.curve == QM_CURVE_allog) {
        qm_slot_judge_adaptive_log(v, t, f, at);
        return;
    }
    if (v->d->q.curve == QM_CURVE_qlog) {
        qm_slot_judge_quantile_log(v, slot, t, f, at);
        return;
    }
    if (v->d->q.curve == QM_CURVE_expand) {
        qm_slot_judge_expand(v, slot, t, f, at);
        return;
    }
    if (v->d->q.curve == QM_CURVE_affine) {
        qm_slot_judge_affine(v, t, f, at);
        return;
    }
    memset(lo, 0, sizeof *lo * (size_t)count);
    memset(hi, 0, sizeof *hi * (size_t)count);
    memset(flag, 0, sizeof *flag * (size_t)count);
    qm_slot_fold(v, lo, hi, flag);
    if (qm_slot_has_two_scales(&v->d->q))
        qm_slot_fold_quotients(v, lo, hi, flag);
    qm_slot_judge_scales(v, lo, hi, flag, count, t, f, at);
    int64_t remaining = 0; /* elements that share s */
    struct qm_element_scale s = {0};
    for (int64_t i = 0; i < v->n; i++, remaining--) {
        if (remaining <= 0) {
            s = qm_element_scale_of(v, i, lo, hi, flag, 0);
            remaining = qm_groups_stay(&v->d->q, v->shape, i);
        }
        t->draw_error = 0.0f;
        if (qm_slot_judge_code(v, slot, i, &s, t, f, at)) {
            struct qm_element_scale wide = qm_element_scale_of(v, i, lo, hi, flag, 1);
            qm_slot_place_code(v, i, &s, &wide, f);
        }
        if (v->draw_error)
            v->draw_error[i] = t->draw_error;
    }
}
