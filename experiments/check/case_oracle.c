/* case_oracle.c - Computes the oracle's step from the judged plan's state, and the error bounds. */
#include "experiments/check/case_run.h"

#include <math.h>
#include <string.h>

#include "experiments/check/slot_parts.h"

/* Rounds the wanted values of a plain slot of 16 bits, and the ends of their bounds: a number that
 * is known exactly has one rounding, a tie's too. */
static void round_plain(enum qm_plain plain, int64_t n, double *want, double *error)
{
    static const struct qm_float_format f16 = QM_FORMAT_f16, bf16 = QM_FORMAT_bf16;
    const struct qm_float_format *format = plain == QM_PLAIN_f16 ? &f16 : &bf16;
    for (int64_t i = 0; i < n; i++) {
        struct qm_ball stored = qm_ball_round_to(format, (struct qm_ball){want[i], error[i]});
        want[i] = stored.x;
        error[i] = stored.e;
    }
}

static int is_projection(const struct qm_rule *rule, int i)
{
    return strcmp(rule->slot[i], "proj") == 0;
}

/* 1: the parameter's update is judged from slot i as it is stored: because the recipe or the rule
 * reads the stored slot, or because the reference leaves the slot some freedom (a projection). */
static int is_read_back(const struct qm_case_run *r, int i, int64_t t)
{
    const struct qm_rule *rule = r->judged.rule;
    struct qm_rule_step s;
    struct qm_tensor_rule_args w = {.s = &s, .shape = &r->c->shape, .tensor = r->tensor};
    if (rule->elementwise)
        return 0;
    if (r->judged.state_stored || is_projection(rule, i))
        return 1;
    rule->prepare(&r->judged.hyper, t, &s);
    s.hyper = &r->judged.hyper;
    return qm_rule_applies_stored(rule, &w, i);
}

/* Whether a parameter of 16 bits is also rounded between the operations of the step.  Rules over
 * whole tensors (core/rule/tensor_rule.h) do so only where the parameter is stored to nearest. */
static int is_rounded_between(const struct qm_case_run *r)
{
    const struct qm_param *p = &r->judged.param;
    const struct qm_rule *rule = r->judged.rule;
    return rule->order & QM_ORDER_rounds &&
           (p->format == QM_PARAM_bf16 || p->format == QM_PARAM_f16) &&
           (!rule->tensor || p->write == QM_WRITE_near);
}

/* Adds the errors of the judged step and of the float32 step against the oracle's unchanged
 * results. */
static qm_status judge_float32(struct qm_case_run *r, int64_t t, const struct qm_tensor *g)
{
    struct qm_baseline *b = &r->float32;
    struct qm_rmse *to = r->t->rmse;
    if (!b->plan)
        return QM_OK;
    QM_TRY(qm_baseline_step(b, &r->c->shape, r->before_p, r->before, g, t, r->seed));
    qm_rmse_add(&to[QM_MAX_SLOTS], r->plan[0].p, b->p, r->want_p, r->n);
    for (int i = 0; i < r->n_slots; i++)
        if (!is_projection(r->judged.rule, i)) /* its vectors are not unique */
            qm_rmse_add(&to[i], r->plan[0].state[i], b->slot[i], r->want[i], r->slot_n[i]);
    return QM_OK;
}

/* A judged side may form a parameter from its residual by a reciprocal, or fuse the two: then the
 * float32 that it starts from is a neighbour. */
static void widen_residuals(struct qm_case_run *r, const struct qm_float_format *grid)
{
    for (int64_t i = 0; i < r->n && r->format.residual_bytes; i++) {
        double p = (double)r->before_p[i];
        if (qm_float_format_round(grid, p) != p) /* its residual is not 0 */
            r->error_p[i] += 2.0 * QM_U * (fabs(p) + fabs(r->want_p[i])) + 2.0 * QM_ETA;
    }
}

static struct qm_bound_affine affine_of(const struct qm_case_run *r, int k)
{
    const struct qm_quantizer *q = r->decider[k] ? &r->decider[k]->q : NULL;
    if (!q || q->curve != QM_CURVE_affine || q->round != QM_ROUND_near)
        return (struct qm_bound_affine){0};
    return (struct qm_bound_affine){(1 << q->bits) - 1, qm_slot_run(q, &r->shape[k]),
                                    q->scale.f16 == QM_F16_bf16};
}

qm_status qm_case_oracle(struct qm_case_run *r, int64_t t, const struct qm_tensor *g)
{
    const double *old[QM_MAX_SLOTS] = {NULL}, *stored[QM_MAX_SLOTS] = {NULL};
    const double *e_old[QM_MAX_SLOTS] = {NULL}, *e_stored[QM_MAX_SLOTS] = {NULL};
    const struct qm_float_format grid = qm_stored_grid(&r->format);
    /* a search is for how near the whole bound the error comes */
    int is_f32 = r->judged.param.format == QM_PARAM_f32;
    const float *got = is_f32 && !r->trial ? r->plan[0].p : NULL;
    struct qm_bound_step b = {.h = &r->hyper,
                              .t = t,
                              .n = r->n,
                              .order = r->judged.rule->order,
                              .reorder = r->s->reorder,
                              .shape = &r->c->shape,
                              .tensor = r->tensor,
                              .p = r->wide_p,
                              .g = r->wide_g,
                              .slot = old,
                              .p_want = r->want_p,
                              .want = r->want,
                              .p_got = got,
                              .p_seen = is_f32 ? r->plan[0].p : NULL,
                              .stored = stored,
                              .e_old = e_old,
                              .e_stored = e_stored,
                              .between = is_rounded_between(r) ? &grid : NULL,
                              .e_p = r->error_p,
                              .e_slot = r->error};
    for (int64_t i = 0; i < r->n; i++)
        r->want_p[i] = r->wide_p[i] = (double)r->before_p[i];
    qm_case_fused_errors(r, &r->plan[0], r->fused_after);
    for (int k = 0; k < r->n_slots; k++) {
        old[k] = r->wide[k];
        e_old[k] = r->fused_before[k];
        e_stored[k] = r->fused_after[k];
        stored[k] = is_read_back(r, k, t) ? r->stored[k] : NULL;
        b.slot_n[k] = r->slot_n[k];
        /* A slot that the bound does not touch has no error. */
        memset(r->error[k], 0, sizeof *r->error[k] * (size_t)r->slot_n[k]);
        b.plain |= r->decider[k] ? 0u : 1u << k;
        b.affine[k] = affine_of(r, k);
        for (int64_t i = 0; i < r->slot_n[k]; i++) {
            r->want[k][i] = r->wide[k][i] = (double)r->before[k][i];
            r->stored[k][i] = (double)r->plan[0].state[k][i];
        }
    }
    QM_TRY(qm_oracle_step(r->oracle, r->want_p, r->want, r->wide_g, &r->c->shape, r->tensor,
                          &r->hyper, t));
    QM_TRY(judge_float32(r, t, g)); /* before bounds of whole-tensor families replace the results */
    QM_TRY(r->oracle->bound(&b));
    if (r->s->reorder.recip || r->s->reorder.fma)
        widen_residuals(r, &grid);
    for (int k = 0; k < r->n_slots; k++) {
        struct qm_quantizer q = qm_recipe_slot(&r->judged, k, &r->c->shape);
        if (q.bits != 0 || q.plain == QM_PLAIN_f32 || q.plain == QM_PLAIN_i16)
            continue;
        round_plain(q.plain, r->slot_n[k], r->want[k], r->error[k]);
    }
    return QM_OK;
}
