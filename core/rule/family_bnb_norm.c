/* family_bnb_norm.c - LAMB and LARS of bitsandbytes.
 *
 * The step is scaled such that its norm is at most max_unorm times the norm of the parameter.
 *
 * default  LAMB takes the norm of the bias-corrected update, LARS that of the update without the L2
 *          term of this step; LARS compares it with max_unorm |p| + eps
 * CPU      the norm of what is really added: not bias-corrected, with the L2 term
 *
 * Norms of parameters, and the norms of the CPU form, are added in the order of PyTorch.  The
 * update norm of the default back end, there a pairwise float32 sum, is added in double here; and
 * since the old state of LARS is gone by then, its L2 term is taken out of the new one: the factor
 * is within a few 2^-24. */
#include "core/rule/rule.h"

#include <math.h>
#include <string.h>

#include "core/rule/tensor_rule.h"

/* 0 stands for 1, as it does where the hyper-parameter was not named. */
static double gnorm_scale(const struct qm_hyper *h)
{
    return h->gnorm_scale != 0.0 ? h->gnorm_scale : 1.0;
}

static void prepare_lamb(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    double bc1 = 1.0 - pow(h->beta1, (double)t), bc2 = 1.0 - pow(h->beta2, (double)t);
    const double c[] = {[QM_BNB_GNORM_SCALE] = gnorm_scale(h),
                        [QM_BNB_DECAY] = 1.0 - h->lr * h->weight_decay,
                        [QM_BNB_BETA1] = h->beta1,
                        [QM_BNB_ONE_MINUS_BETA1] = 1.0 - h->beta1,
                        [QM_BNB_BETA2] = h->beta2,
                        [QM_BNB_ONE_MINUS_BETA2] = 1.0 - h->beta2,
                        [QM_BNB_EPS] = h->eps * sqrt(bc2),
                        [QM_BNB_STEP] = -h->lr * sqrt(bc2) / bc1,
                        [QM_LAMB_INVERSE_BC1] = 1.0 / bc1,
                        [QM_LAMB_INVERSE_BC2] = 1.0 / bc2};
    *s = (struct qm_rule_step){.t = t};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        s->c[i] = (float)c[i];
}

static void prepare_lars(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    *s = (struct qm_rule_step){
        .t = t,
        .c = {[QM_BNB_GNORM_SCALE] = (float)gnorm_scale(h),
              [QM_BNB_DECAY] = (float)h->weight_decay,
              [QM_BNB_BETA1] = (float)h->momentum,
              [QM_BNB_EPS] = (float)h->eps,
              [QM_BNB_STEP] = (float)-h->lr},
        .flag = {[QM_FLAG_BNB_FIRST] = t == 1, [QM_FLAG_BNB_COUPLED] = h->weight_decay > 0.0}};
}

static int64_t numel(const struct qm_tensor_rule_args *w) { return qm_shape_numel(w->shape); }

/* The factor on the step: 1 where max_unorm is 0 or the update is short enough. */
static float factor(const struct qm_tensor_rule_args *w, float unorm, float extra)
{
    float most = (float)w->s->hyper->max_unorm;
    if (!(most > 0.0f))
        return 1.0f;
    most = most * qm_lane_norm(w->p, numel(w)) + extra;
    return unorm > most ? most / unorm : 1.0f;
}

/* Runs an operation with the scalars of this step on all elements. */
static void run(enum qm_sweep_kind kind, enum qm_bnb_form form, const struct qm_tensor_rule_args *w,
                float eps, float step, float *x0, const float *x1, const float *x2)
{
    struct qm_sweep a = {.n = numel(w),
                         .flag = {[QM_LAMB_FUSES] = form == QM_BNB_32,
                                  [QM_LAMB_FIRST] = w->s->flag[QM_FLAG_BNB_FIRST],
                                  [QM_LAMB_COUPLED] = w->s->flag[QM_FLAG_BNB_COUPLED]},
                         .x = {x0, QM_AT(x1), QM_AT(x2)}};
    memcpy(a.c, w->s->c, sizeof a.c);
    a.c[QM_LAMB_EPS] = eps;
    a.c[QM_LAMB_STEP] = step;
    qm_sweep_run(kind, &a);
}

/* ---- LAMB ---------------------------------------------------------------------------------- */

static qm_status lamb_states_plain(const struct qm_tensor_rule_args *w)
{
    run(QM_SWEEP_lamb_states, QM_BNB_plain, w, 0.0f, 0.0f, w->slot[0], w->slot[1], w->g);
    return QM_OK;
}

static qm_status lamb_states_cpu(const struct qm_tensor_rule_args *w)
{
    run(QM_SWEEP_lamb_states, QM_BNB_32, w, 0.0f, 0.0f, w->slot[0], w->slot[1], w->g);
    return QM_OK;
}

static void lamb_step(enum qm_bnb_form form, const struct qm_tensor_rule_args *w, float scale)
{
    run(QM_SWEEP_lamb_step, form, w, 0.0f, scale * w->s->c[QM_BNB_STEP], w->p, w->slot[0],
        w->slot[1]);
}

static qm_status lamb_apply_plain(const struct qm_tensor_rule_args *w)
{
    run(QM_SWEEP_lamb_corrected, QM_BNB_plain, w, (float)w->s->hyper->eps, 0.0f, w->room,
        w->slot[0], w->slot[1]);
    lamb_step(QM_BNB_plain, w, factor(w, qm_root_of_squares(w->room, numel(w)), 0.0f));
    return QM_OK;
}

static qm_status lamb_apply_cpu(const struct qm_tensor_rule_args *w)
{
    run(QM_SWEEP_lamb_update, QM_BNB_32, w, 0.0f, 0.0f, w->room, w->slot[0], w->slot[1]);
    lamb_step(QM_BNB_32, w, factor(w, qm_lane_norm(w->room, numel(w)), 0.0f));
    return QM_OK;
}

/* ---- LARS ---------------------------------------------------------------------------------- */

static qm_status lars_states_plain(const struct qm_tensor_rule_args *w)
{
    run(QM_SWEEP_lars_states, QM_BNB_plain, w, 0.0f, 0.0f, w->slot[0], w->p, w->g);
    return QM_OK;
}

static qm_status lars_states_cpu(const struct qm_tensor_rule_args *w)
{
    run(QM_SWEEP_lars_states, QM_BNB_32, w, 0.0f, 0.0f, w->slot[0], w->p, w->g);
    return QM_OK;
}

static qm_status lars_apply_plain(const struct qm_tensor_rule_args *w)
{
    run(QM_SWEEP_lars_bare, QM_BNB_plain, w, 0.0f, 0.0f, w->room, w->slot[0], w->p);
    float scale = factor(w, qm_root_of_squares(w->room, numel(w)), w->s->c[QM_BNB_EPS]);
    run(QM_SWEEP_lars_step, QM_BNB_plain, w, 0.0f, scale, w->p, w->slot[0], NULL);
    return QM_OK;
}

static qm_status lars_apply_cpu(const struct qm_tensor_rule_args *w)
{
    float step = factor(w, qm_lane_norm(w->slot[0], numel(w)), 0.0f) * w->s->c[QM_BNB_STEP];
    run(QM_SWEEP_lars_step_cpu, QM_BNB_32, w, 0.0f, step, w->p, w->slot[0], NULL);
    return QM_OK;
}

#define MOMENTS .n_slots = 2, .slot = {"exp_avg", "exp_avg_sq"}, .slot_sign = {1, 0}
#define BUFFER  .n_slots = 1, .slot = {"momentum_buffer"}, .slot_sign = {1}

static const struct qm_rule rules[] = {
    {.name = "lamb_bnb",
     .family = "lamb",
     .reads = "lr beta1 beta2 eps weight_decay max_unorm gnorm_scale",
     .order = QM_ORDER_bnb | QM_ORDER_lanes,
     MOMENTS,
     .summary = "LAMB of bitsandbytes' default back end: norm of the corrected update",
     .source = "bitsandbytes/backends/default/ops.py _optimizer_precondition_32bit",
     .prepare = prepare_lamb,
     .tensor = &(const struct qm_tensor_ops){.states = lamb_states_plain,
                                             .apply = lamb_apply_plain,
                                             .on_device = 1,
                                             .extra_passes = 1}},
    {.name = "lamb_bnb_cpu",
     .family = "lamb_raw",
     .reads = "lr beta1 beta2 eps weight_decay max_unorm gnorm_scale",
     .order = QM_ORDER_bnb | QM_ORDER_lanes,
     MOMENTS,
     .summary = "LAMB of bitsandbytes on CPU: norm of the update without bias correction",
     .source = "bitsandbytes/backends/cpu/ops.py _optimizer_update_32bit_cpu",
     .prepare = prepare_lamb,
     .tensor = &(const struct qm_tensor_ops){.states = lamb_states_cpu,
                                             .apply = lamb_apply_cpu,
                                             .on_device = 1,
                                             .extra_passes = 1}},
    {.name = "lars_bnb",
     .family = "lars_bare",
     .reads = "lr eps weight_decay momentum max_unorm gnorm_scale",
     .order = QM_ORDER_lanes,
     BUFFER,
     .summary = "LARS of bitsandbytes' default back end: norm of the update without its decay",
     .source = "bitsandbytes/backends/default/ops.py _optimizer_precondition_32bit",
     .prepare = prepare_lars,
     .tensor = &(const struct qm_tensor_ops){.states = lars_states_plain,
                                             .apply = lars_apply_plain,
                                             .on_device = 1,
                                             .extra_passes = 1}},
    {.name = "lars_bnb_cpu",
     .family = "lars",
     .reads = "lr weight_decay momentum max_unorm gnorm_scale",
     .order = QM_ORDER_lanes,
     BUFFER,
     .summary = "LARS of bitsandbytes on CPU: norm of the momentum",
     .source = "bitsandbytes/backends/cpu/ops.py _optimizer_update_32bit_cpu",
     .prepare = prepare_lars,
     .tensor = &(const struct qm_tensor_ops){.states = lars_states_cpu,
                                             .apply = lars_apply_cpu,
                                             .on_device = 1,
                                             .extra_passes = 1}},
};

const struct qm_rule_family qm_family_bnb_norm = {sizeof rules / sizeof *rules, rules};
