/* case_oracle.c - the oracle's step from the judged side's state, and the bound of every number. */
#include "experiments/check/case_run.h"

#include <math.h>
#include <string.h>

#include "oracle/bound/bound.h"

/* What rounding a plain slot to 16 bits may change: half an ulp. */
static double plain_error(const struct qm_case_run *r, int slot, double x)
{
    struct qm_quantizer q = qm_recipe_slot(&r->judged, slot, &r->c->shape);
    if (q.bits != 0 || q.plain == QM_PLAIN_f32)
        return 0.0;
    if (q.plain == QM_PLAIN_f16)
        return x >= 65504.0 ? (double)INFINITY : 0x1p-11 * x + 0x1p-25;
    return x >= 0x1.fep127 ? (double)INFINITY : 0x1p-8 * x + 0x1p-134;
}

static int is_projection(const struct qm_rule *rule, int i)
{
    return strcmp(rule->slot[i], "proj") == 0;
}

/* The parameter's part of the step sees slot i as stored: because the recipe says so, or the rule, or
 * because its reference leaves it some freedom (a projection). */
static int is_read_back(const struct qm_case_run *r, int i, int64_t t)
{
    const struct qm_rule *rule = r->judged.rule;
    struct qm_rule_step s;
    struct qm_tensor_rule_args w = {.s = &s, .shape = &r->c->shape, .tensor = QM_CASE_TENSOR};
    if (rule->elementwise)
        return 0;
    if (r->judged.state_stored || is_projection(rule, i))
        return 1;
    rule->prepare(&r->judged.hyper, t, &s);
    s.hyper = &r->judged.hyper;
    return qm_rule_applies_stored(rule, &w, i);
}

/* Whether a stored parameter of 16 bits is rounded within the step as well: whole.h's rules see how it
 * is stored where that is to nearest alone. */
static int is_rounded_between(const struct qm_case_run *r)
{
    const struct qm_param *p = &r->judged.param;
    const struct qm_rule *rule = r->judged.rule;
    return rule->order & QM_ORDER_rounds &&
           (p->format == QM_PARAM_bf16 || p->format == QM_PARAM_f16) &&
           (!rule->tensor || p->write == QM_WRITE_near);
}

/* The errors of the step just made, and of the float32 one; want: the oracle's, as it comes. */
static qm_status judge_float32(struct qm_case_run *r, int64_t t, const struct qm_tensor *g)
{
    struct qm_baseline *b = &r->float32;
    struct qm_rmse *to = r->t->rmse;
    if (!b->plan)
        return QM_OK;
    QM_TRY(qm_baseline_step(b, &r->c->shape, r->before_p, r->before, g, t, r->seed));
    qm_rmse_add(&to[QM_MAX_SLOTS], r->side[0].p, b->p, r->want_p, r->n);
    for (int i = 0; i < r->n_slots; i++)
        if (!is_projection(r->judged.rule, i)) /* whose vectors have no one value */
            qm_rmse_add(&to[i], r->side[0].state[i], b->slot[i], r->want[i], r->slot_n[i]);
    return QM_OK;
}

/* The oracle from the judged side's state, and the bound of every result. */
qm_status qm_case_oracle(struct qm_case_run *r, int64_t t, const struct qm_tensor *g)
{
    const double *old[QM_MAX_SLOTS] = {NULL}, *stored[QM_MAX_SLOTS] = {NULL};
    const struct qm_float_format grid = qm_stored_grid(&r->format);
    struct qm_bound_step b = {.h = &r->hyper,
                              .t = t,
                              .n = r->n,
                              .order = r->judged.rule->order,
                              .reorder = r->s->reorder,
                              .shape = &r->c->shape,
                              .tensor = QM_CASE_TENSOR,
                              .p = r->wide_p,
                              .g = r->wide_g,
                              .slot = old,
                              .p_want = r->want_p,
                              .want = r->want,
                              .stored = stored,
                              .between = is_rounded_between(r) ? &grid : NULL,
                              .e_p = r->error_p,
                              .e_slot = r->error};
    for (int64_t i = 0; i < r->n; i++)
        r->want_p[i] = r->wide_p[i] = (double)r->before_p[i];
    for (int k = 0; k < r->n_slots; k++) {
        old[k] = r->wide[k];
        stored[k] = is_read_back(r, k, t) ? r->stored[k] : NULL;
        b.slot_n[k] = r->slot_n[k];
        memset(r->error[k], 0,
               sizeof *r->error[k] * (size_t)r->slot_n[k]); /* of a slot left alone */
        b.plain |= r->decider[k] ? 0u : 1u << k;
        for (int64_t i = 0; i < r->slot_n[k]; i++) {
            r->want[k][i] = r->wide[k][i] = (double)r->before[k][i];
            r->stored[k][i] = (double)r->side[0].state[k][i];
        }
    }
    QM_TRY(qm_oracle_step(r->oracle, r->want_p, r->want, r->wide_g, &r->c->shape, QM_CASE_TENSOR,
                          &r->hyper, t));
    QM_TRY(judge_float32(r, t, g)); /* families over whole tensors replace the results below */
    QM_TRY(r->oracle->bound(&b));
    for (int k = 0; k < r->n_slots; k++)
        for (int64_t i = 0; i < r->slot_n[k]; i++)
            r->error[k][i] += plain_error(r, k, fabs(r->want[k][i]) + r->error[k][i]);
    return QM_OK;
}
