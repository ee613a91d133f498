/* family_bnb_norm.c - bitsandbytes' LAMB and LARS: the step is scaled so that its norm is at most
 * max_unorm times the parameter's, which no other element rule here needs to know.
 *
 * default  the norm of LAMB is that of the bias-corrected update, that of LARS leaves the L2 term of
 *          this step out; LARS compares with max_unorm |p| + eps
 * CPU      the norm of what is really added: not bias-corrected, with the L2 term
 *
 * The sources sum in float32 in PyTorch's order; here squares are added in double in index order
 * and rounded once.  The old state of LARS is gone when its norm is needed, so its L2 term is taken
 * out of the new one, which rounds. */
#include "core/rule/rule.h"

#include <math.h>
#include <string.h>

#include "core/rule/bnb.h"

/* c of bnb.h, but 8 and 9: 1 / (1 - beta^t). */
static void prepare_lamb(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    double bc1 = 1.0 - pow(h->beta1, (double)t), bc2 = 1.0 - pow(h->beta2, (double)t);
    const double c[10] = {h->gnorm_scale,     1.0 - h->lr * h->weight_decay,
                          h->beta1,           1.0 - h->beta1,
                          h->beta2,           1.0 - h->beta2,
                          h->eps * sqrt(bc2), -h->lr * sqrt(bc2) / bc1,
                          1.0 / bc1,          1.0 / bc2};
    memset(s, 0, sizeof *s);
    for (int i = 0; i < 10; i++)
        s->c[i] = (float)c[i];
    s->t = t;
}

static void prepare_lars(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    memset(s, 0, sizeof *s);
    s->c[0] = (float)h->gnorm_scale;
    s->c[1] = (float)h->weight_decay;
    s->c[2] = (float)h->momentum;
    s->c[6] = (float)h->eps;
    s->c[7] = (float)-h->lr;
    s->flag[0] = t == 1;
    s->flag[1] = h->weight_decay > 0.0;
    s->t = t;
}

static int64_t numel(const struct qm_whole *w) { return qm_shape_numel(w->shape); }

static float param_norm(const struct qm_whole *w)
{
    double sum = 0.0;
    for (int64_t i = 0; i < numel(w); i++)
        sum += (double)w->p[i] * (double)w->p[i];
    return (float)sqrt(sum);
}

/* The factor on the step, 1 where max_unorm is 0 or the update is short enough. */
static float factor(const struct qm_whole *w, double sum, float extra)
{
    float unorm = (float)sqrt(sum), most = (float)w->s->hyper->max_unorm;
    if (!(most > 0.0f))
        return 1.0f;
    most = most * param_norm(w) + extra;
    return unorm > most ? most / unorm : 1.0f;
}

/* ---- LAMB ---------------------------------------------------------------------------------- */

static void lamb_states(enum qm_bnb_form form, const struct qm_whole *w)
{
    const float *c = w->s->c;
    float *m = w->slot[0], *v = w->slot[1];
    for (int64_t i = 0; i < numel(w); i++) {
        float x = w->g[i] * c[0];
        m[i] = qm_bnb_add(form, m[i] * c[2], c[3], x);
        v[i] = qm_bnb_add_square(form, v[i] * c[4], c[5], x);
    }
}

static void lamb_apply(enum qm_bnb_form form, const struct qm_whole *w)
{
    const float *c = w->s->c, *m = w->slot[0], *v = w->slot[1];
    float eps = (float)w->s->hyper->eps;
    double sum = 0.0;
    for (int64_t i = 0; i < numel(w); i++) {
        float u = form == QM_BNB_plain ? (m[i] * c[8]) / (sqrtf(v[i] * c[9]) + eps)
                                       : m[i] / (sqrtf(v[i]) + c[6]);
        sum += (double)u * (double)u;
    }
    float step = factor(w, sum, 0.0f) * c[7];
    for (int64_t i = 0; i < numel(w); i++)
        w->p[i] = qm_bnb_add(form, w->p[i] * c[1], step, m[i] / (sqrtf(v[i]) + c[6]));
}

static qm_status lamb_states_plain(const struct qm_whole *w)
{
    lamb_states(QM_BNB_plain, w);
    return QM_OK;
}

static qm_status lamb_apply_plain(const struct qm_whole *w)
{
    lamb_apply(QM_BNB_plain, w);
    return QM_OK;
}

static qm_status lamb_states_cpu(const struct qm_whole *w)
{
    lamb_states(QM_BNB_32, w);
    return QM_OK;
}

static qm_status lamb_apply_cpu(const struct qm_whole *w)
{
    lamb_apply(QM_BNB_32, w);
    return QM_OK;
}

/* ---- LARS ---------------------------------------------------------------------------------- */

static void lars_states(enum qm_bnb_form form, const struct qm_whole *w)
{
    const struct qm_rule_step *s = w->s;
    float *b = w->slot[0];
    for (int64_t i = 0; i < numel(w); i++)
        b[i] = qm_bnb_buffer(form, s->c, s->flag[1], s->flag[0], w->p[i], w->g[i], b[i]);
}

static qm_status lars_states_plain(const struct qm_whole *w)
{
    lars_states(QM_BNB_plain, w);
    return QM_OK;
}

static qm_status lars_states_cpu(const struct qm_whole *w)
{
    lars_states(QM_BNB_32, w);
    return QM_OK;
}

static qm_status lars_apply_plain(const struct qm_whole *w)
{
    const float *c = w->s->c, *b = w->slot[0];
    double sum = 0.0;
    for (int64_t i = 0; i < numel(w); i++) {
        float bare = b[i] - w->p[i] * c[1];
        sum += (double)bare * (double)bare;
    }
    float scale = factor(w, sum, c[6]);
    for (int64_t i = 0; i < numel(w); i++)
        w->p[i] = w->p[i] + scale * (c[7] * b[i]);
    return QM_OK;
}

static qm_status lars_apply_cpu(const struct qm_whole *w)
{
    const float *c = w->s->c, *b = w->slot[0];
    double sum = 0.0;
    for (int64_t i = 0; i < numel(w); i++)
        sum += (double)b[i] * (double)b[i];
    float step = factor(w, sum, 0.0f) * c[7];
    for (int64_t i = 0; i < numel(w); i++)
        w->p[i] = fmaf(b[i], step, w->p[i]);
    return QM_OK;
}

#define MOMENTS .n_slots = 2, .slot = {"exp_avg", "exp_avg_sq"}, .slot_sign = {1, 0}
#define BUFFER  .n_slots = 1, .slot = {"momentum_buffer"}, .slot_sign = {1}

static const struct qm_rule rules[] = {
    {.name = "lamb_bnb",
     .family = "lamb",
     MOMENTS,
     .summary = "LAMB of bitsandbytes' default back end: norm of the corrected update",
     .source = "bitsandbytes/backends/default/ops.py _optimizer_precondition_32bit",
     .prepare = prepare_lamb,
     .states = lamb_states_plain,
     .apply = lamb_apply_plain},
    {.name = "lamb_bnb_cpu",
     .family = "lamb_raw",
     MOMENTS,
     .summary = "LAMB of bitsandbytes on CPU: norm of the update without bias correction",
     .source = "bitsandbytes/backends/cpu/ops.py _optimizer_update_32bit_cpu",
     .prepare = prepare_lamb,
     .states = lamb_states_cpu,
     .apply = lamb_apply_cpu},
    {.name = "lars_bnb",
     .family = "lars_bare",
     BUFFER,
     .summary = "LARS of bitsandbytes' default back end: norm of the update without its decay",
     .source = "bitsandbytes/backends/default/ops.py _optimizer_precondition_32bit",
     .prepare = prepare_lars,
     .states = lars_states_plain,
     .apply = lars_apply_plain},
    {.name = "lars_bnb_cpu",
     .family = "lars",
     BUFFER,
     .summary = "LARS of bitsandbytes on CPU: norm of the momentum",
     .source = "bitsandbytes/backends/cpu/ops.py _optimizer_update_32bit_cpu",
     .prepare = prepare_lars,
     .states = lars_states_cpu,
     .apply = lars_apply_cpu},
};

const struct qm_rule_family qm_family_bnb_norm = {sizeof rules / sizeof *rules, rules};
