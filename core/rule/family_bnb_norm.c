/* family_bnb_norm.c - bitsandbytes' LAMB and LARS: the step is scaled so that its norm is at most
 * max_unorm times the parameter's.
 *
 * default  the norm of LAMB is that of the bias-corrected update, that of LARS leaves the L2 term
 *          of this step out; LARS compares with max_unorm |p| + eps
 * CPU      the norm of what is really added: not bias-corrected, with the L2 term
 *
 * Norms of parameters and those of the CPU go in PyTorch's order.  The update norm of the default
 * back end, a pairwise float32 sum there, is added in double here; and the old state of LARS being
 * gone by then, its L2 term is taken out of the new one: the factor is within a few 2^-24. */
#include "core/rule/rule.h"

#include <math.h>
#include <string.h>

#include "core/rule/bnb.h"

/* 0, as everything that was not named, is 1 too. */
static double gnorm_scale(const struct qm_hyper *h)
{
    return h->gnorm_scale != 0.0 ? h->gnorm_scale : 1.0;
}

/* c of bnb.h, but 8 and 9: 1 / (1 - beta^t). */
static void prepare_lamb(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    double bc1 = 1.0 - pow(h->beta1, (double)t), bc2 = 1.0 - pow(h->beta2, (double)t);
    const double c[10] = {gnorm_scale(h),     1.0 - h->lr * h->weight_decay,
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
    s->c[0] = (float)gnorm_scale(h);
    s->c[1] = (float)h->weight_decay;
    s->c[2] = (float)h->momentum;
    s->c[6] = (float)h->eps;
    s->c[7] = (float)-h->lr;
    s->flag[0] = t == 1;
    s->flag[1] = h->weight_decay > 0.0;
    s->t = t;
}

static int64_t numel(const struct qm_whole *w) { return qm_shape_numel(w->shape); }

/* torch.norm of float32 on CPU with AVX2, one thread: eight lanes, an fma each, added in order;
 * then the rest. */
struct norm {
    float lane[8];
    int64_t at, whole; /* the lanes take the first n / 8 * 8 */
};

static void norm_add(struct norm *s, float x)
{
    float *to = &s->lane[s->at < s->whole ? s->at % 8 : 0];
    *to = fmaf(x, x, *to);
    if (++s->at == s->whole)
        for (int j = 1; j < 8; j++)
            s->lane[0] = s->lane[0] + s->lane[j];
}

static float norm_end(const struct norm *s) { return sqrtf(s->lane[0]); }

static float param_norm(const struct qm_whole *w)
{
    struct norm s = {.whole = numel(w) / 8 * 8};
    for (int64_t i = 0; i < numel(w); i++)
        norm_add(&s, w->p[i]);
    return norm_end(&s);
}

/* The factor on the step, 1 where max_unorm is 0 or the update is short enough. */
static float factor(const struct qm_whole *w, float unorm, float extra)
{
    float most = (float)w->s->hyper->max_unorm;
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

static void lamb_step(enum qm_bnb_form form, const struct qm_whole *w, float scale)
{
    const float *c = w->s->c, *m = w->slot[0], *v = w->slot[1];
    float step = scale * c[7];
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
    const float *c = w->s->c, *m = w->slot[0], *v = w->slot[1];
    float eps = (float)w->s->hyper->eps;
    double sum = 0.0;
    for (int64_t i = 0; i < numel(w); i++) {
        float u = (m[i] * c[8]) / (sqrtf(v[i] * c[9]) + eps);
        sum += (double)u * (double)u;
    }
    lamb_step(QM_BNB_plain, w, factor(w, (float)sqrt(sum), 0.0f));
    return QM_OK;
}

static qm_status lamb_states_cpu(const struct qm_whole *w)
{
    lamb_states(QM_BNB_32, w);
    return QM_OK;
}

static qm_status lamb_apply_cpu(const struct qm_whole *w)
{
    const float *c = w->s->c, *m = w->slot[0], *v = w->slot[1];
    struct norm sum = {.whole = numel(w) / 8 * 8};
    for (int64_t i = 0; i < numel(w); i++)
        norm_add(&sum, m[i] / (sqrtf(v[i]) + c[6]));
    lamb_step(QM_BNB_32, w, factor(w, norm_end(&sum), 0.0f));
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
    float scale = factor(w, (float)sqrt(sum), c[6]);
    for (int64_t i = 0; i < numel(w); i++)
        w->p[i] = w->p[i] + scale * (c[7] * b[i]);
    return QM_OK;
}

static qm_status lars_apply_cpu(const struct qm_whole *w)
{
    const float *c = w->s->c, *b = w->slot[0];
    struct norm sum = {.whole = numel(w) / 8 * 8};
    for (int64_t i = 0; i < numel(w); i++)
        norm_add(&sum, b[i]);
    float step = factor(w, norm_end(&sum), 0.0f) * c[7];
    for (int64_t i = 0; i < numel(w); i++)
        w->p[i] = fmaf(b[i], step, w->p[i]);
    return QM_OK;
}

#define MOMENTS .n_slots = 2, .slot = {"exp_avg", "exp_avg_sq"}, .slot_sign = {1, 0}
#define BUFFER  .n_slots = 1, .slot = {"momentum_buffer"}, .slot_sign = {1}

static const struct qm_rule rules[] = {
    {.name = "lamb_bnb",
     .family = "lamb",
     .order = QM_ORDER_bnb | QM_ORDER_lanes,
     MOMENTS,
     .summary = "LAMB of bitsandbytes' default back end: norm of the corrected update",
     .source = "bitsandbytes/backends/default/ops.py _optimizer_precondition_32bit",
     .prepare = prepare_lamb,
     .sums = 1,
     .states = lamb_states_plain,
     .apply = lamb_apply_plain},
    {.name = "lamb_bnb_cpu",
     .family = "lamb_raw",
     .order = QM_ORDER_bnb | QM_ORDER_lanes,
     MOMENTS,
     .summary = "LAMB of bitsandbytes on CPU: norm of the update without bias correction",
     .source = "bitsandbytes/backends/cpu/ops.py _optimizer_update_32bit_cpu",
     .prepare = prepare_lamb,
     .sums = 1,
     .states = lamb_states_cpu,
     .apply = lamb_apply_cpu},
    {.name = "lars_bnb",
     .family = "lars_bare",
     .order = QM_ORDER_lanes,
     BUFFER,
     .summary = "LARS of bitsandbytes' default back end: norm of the update without its decay",
     .source = "bitsandbytes/backends/default/ops.py _optimizer_precondition_32bit",
     .prepare = prepare_lars,
     .sums = 1,
     .states = lars_states_plain,
     .apply = lars_apply_plain},
    {.name = "lars_bnb_cpu",
     .family = "lars",
     .order = QM_ORDER_lanes,
     BUFFER,
     .summary = "LARS of bitsandbytes on CPU: norm of the momentum",
     .source = "bitsandbytes/backends/cpu/ops.py _optimizer_update_32bit_cpu",
     .prepare = prepare_lars,
     .sums = 1,
     .states = lars_states_cpu,
     .apply = lars_apply_cpu},
};

const struct qm_rule_family qm_family_bnb_norm = {sizeof rules / sizeof *rules, rules};
