/* cpu_tensor_rule.c - A step of a tensor rule: states, encode, perhaps decode again, apply. */
#include "core/cpu/cpu_plan.h"

/* Allocates n floats unless that is done. */
static qm_status array_open(float **x, int64_t n)
{
    if (*x || (*x = qm_cpu_zeroed(sizeof(float) * (size_t)n)))
        return QM_OK;
    return qm_fail(QM_NO_MEMORY, "a whole tensor of %lld elements", (long long)n);
}

/* Float32 copies of what is not float32; the gradient's type is known at the first step only. */
qm_status qm_cpu_tensor_rule_open(struct qm_cpu_plan *p)
{
    QM_TRY(array_open(&p->room, p->n));
    if (p->r.param.format != QM_PARAM_f32)
        QM_TRY(array_open(&p->copy[1], p->n));
    for (int i = 0; i < p->n_slots; i++)
        if (!qm_cpu_slot_in_place(&p->slot[i]))
            QM_TRY(array_open(&p->copy[2 + i], p->slot[i].n));
    return QM_OK;
}

/* The rounds of `states`: after each round its slots are encoded, and decoded again where the
 * recipe or the rule reads the stored state. */
static qm_status run_rounds(const struct qm_cpu_step *st, struct qm_tensor_rule_args *w)
{
    const struct qm_cpu_plan *p = st->p;
    const struct qm_rule *rule = p->r.rule;
    int round[QM_MAX_SLOTS] = {0}, last = 0;
    for (int i = 0; i < p->n_slots; i++) {
        round[i] = qm_rule_update_round(rule, w, i);
        last = round[i] > last ? round[i] : last;
    }
    for (w->round = 0; w->round <= last; w->round++) {
        QM_TRY(rule->tensor->states(w));
        for (int i = 0; i < p->n_slots; i++) {
            if (round[i] != w->round)
                continue;
            if (qm_cpu_slot_in_place(&p->slot[i]))
                continue;
            qm_cpu_slot_move(st, i, w->slot[i], 1);
            if (p->r.state_stored || qm_rule_applies_stored(rule, w, i))
                qm_cpu_slot_move(st, i, w->slot[i], 0);
        }
    }
    return QM_OK;
}

/* Converts the whole parameter to float32 (in p->copy[1]), or stores that back. */
static void move_param(const struct qm_cpu_step *st, int is_store)
{
    struct qm_cpu_plan *p = st->p;
    struct qm_draws d = qm_draws_for(st->seed, st->t, p->tensor, QM_ROLE_param);
#pragma omp parallel for schedule(static) num_threads(p->threads) if (p->n > 8 * QM_CPU_PIECE)
    for (int64_t from = 0; from < p->n; from += QM_CPU_PIECE) {
        int64_t n = p->n - from < QM_CPU_PIECE ? p->n - from : QM_CPU_PIECE;
        if (is_store)
            qm_cpu_param_store(p, st->param, from, n, p->copy[1] + from, &d);
        else
            qm_cpu_param_load(p, st->param, from, n, p->copy[1] + from);
    }
}

/* The whole gradient as float32: the caller's own, or converted. */
static qm_status load_gradient(const struct qm_cpu_step *st, const float **g)
{
    struct qm_cpu_plan *p = st->p;
    *g = st->g->data;
    if (st->g->dtype == QM_DTYPE_f32)
        return QM_OK;
    QM_TRY(array_open(&p->copy[0], p->n));
#pragma omp parallel for schedule(static) num_threads(p->threads) if (p->n > 8 * QM_CPU_PIECE)
    for (int64_t from = 0; from < p->n; from += QM_CPU_PIECE)
        qm_to_float(st->g->data, st->g->dtype, from,
                    p->n - from < QM_CPU_PIECE ? p->n - from : QM_CPU_PIECE, p->copy[0] + from);
    *g = p->copy[0];
    return QM_OK;
}

qm_status qm_cpu_tensor_rule_step(const struct qm_cpu_step *st)
{
    struct qm_cpu_plan *p = st->p;
    const struct qm_rule *rule = p->r.rule;
    struct qm_tensor_rule_args w = {
        .s = &st->s, .shape = &p->shape, .room = p->room, .tensor = p->tensor};
    int is_f32 = p->r.param.format == QM_PARAM_f32;
    if (p->r.param.write == QM_WRITE_near && p->r.param.format != QM_PARAM_e4m3)
        w.param = is_f32                               ? QM_DTYPE_f32
                  : p->r.param.format == QM_PARAM_bf16 ? QM_DTYPE_bf16
                                                       : QM_DTYPE_f16;
    else
        w.param = QM_DTYPE_f32;
    QM_TRY(load_gradient(st, &w.g));
    w.p = is_f32 ? st->param : p->copy[1];
    if (!is_f32)
        move_param(st, 0);
    for (int i = 0; i < p->n_slots; i++) {
        w.slot[i] = qm_cpu_slot_in_place(&p->slot[i]) ? p->slot[i].scales : p->copy[2 + i];
        w.slot_shape[i] = p->slot[i].shape;
        w.slot_is_f32[i] = p->slot[i].is_f32;
        if (!qm_cpu_slot_in_place(&p->slot[i]))
            qm_cpu_slot_move(st, i, w.slot[i], 0);
    }
    QM_TRY(run_rounds(st, &w));
    QM_TRY(rule->tensor->apply(&w));
    for (int i = 0; i < p->n_slots; i++) /* `apply` may leave numbers (norms) in plain slots */
        if (!qm_cpu_slot_in_place(&p->slot[i]) &&
            (p->slot[i].is_f32 || qm_rule_encodes_again(rule, &w, i)))
            qm_cpu_slot_move(st, i, w.slot[i], 1);
    if (!is_f32)
        move_param(st, 1);
    return QM_OK;
}
