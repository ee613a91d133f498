/* backend_cpu.c - The backend "cpu": opens plans, runs steps, saves and loads states. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/isa.h"
#include "core/cpu/cpu_plan.h"

enum { PAD = 64 }; /* floats between scratch arrays; a multiple of 16 */

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

static void cpu_close(void *plan)
{
    struct qm_cpu_plan *p = plan;
    if (!p)
        return;
    for (int i = 0; i < p->n_slots; i++) {
        free(p->slot[i].packed);
        free(p->slot[i].scales);
        free(p->slot[i].stat);
        free(p->slot[i].slope);
    }
    for (int i = 0; i < 2 + QM_MAX_SLOTS; i++)
        free(p->copy[i]);
    free(p->room);
    free(p->share);
    free(p->residual);
    free(p->scratch);
    free(p);
}

static qm_status cpu_open(const struct qm_recipe *r, const struct qm_shape *shape, uint32_t tensor,
                          void **plan)
{
    QM_TRY(qm_rule_takes(r->rule, &r->hyper, shape));
    struct qm_cpu_plan *p = calloc(1, sizeof *p);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "plan for %s", r->base->name);
    p->r = qm_recipe_at(r, shape);
    r = &p->r;
    if (r->hyper.initial_lr == 0.0)
        p->r.hyper.initial_lr = r->hyper.lr;
    p->shape = *shape;
    p->n = qm_shape_numel(shape);
    p->tensor = tensor;
    p->n_slots = r->rule->n_slots;
    p->threads = omp_get_max_threads();
    p->piece = 8;
    qm_status st = p->n < 0 ? qm_fail(QM_BAD_ARG, "tensor has more than 2^63 elements") : QM_OK;
    for (int i = 0; st == QM_OK && i < p->n_slots; i++) {
        st = qm_cpu_slot_open(p, i);
        int64_t block = st == QM_OK ? qm_cpu_slot_block(&p->slot[i]) : 1;
        int folds = st == QM_OK && p->slot[i].is_global ? qm_folds(&p->slot[i].c) : 0;
        p->folds = folds > p->folds ? folds : p->folds;
        if (block > 0)
            p->piece = p->piece / gcd(p->piece, block) * block;
    }
    p->second_alone = p->n_slots == 2 && r->rule->elementwise && r->rule->elementwise->second &&
                      !p->slot[0].is_global && p->slot[1].is_global;
    p->piece = (QM_CPU_PIECE + p->piece - 1) / p->piece * p->piece;
    int64_t most = p->n; /* the largest array: a projected state may exceed its parameter */
    for (int i = 0; st == QM_OK && i < p->n_slots; i++)
        most = p->slot[i].n > most ? p->slot[i].n : most;
    if (p->piece > most && most > 0)
        p->piece = (most + 7) / 8 * 8;
    /* Arrays of 1024 floats each would all begin at one offset of a page. */
    p->stride = p->piece / 16 * 16 + 16 + PAD;
    p->scratch = qm_cpu_zeroed((sizeof(float) * (size_t)(2 + p->n_slots) + 1) * (size_t)p->stride *
                               (size_t)p->threads);
    p->share = qm_cpu_zeroed(sizeof *p->share * (size_t)p->threads);
    int residual = qm_param_residual(&r->param);
    if (st == QM_OK && residual && !(p->residual = qm_cpu_zeroed((size_t)p->n * (size_t)residual)))
        st = qm_fail(QM_NO_MEMORY, "residuals of %lld elements", (long long)p->n);
    if (st == QM_OK && r->rule->tensor)
        st = qm_cpu_tensor_rule_open(p);
    if (st == QM_OK && (!p->scratch || !p->share))
        st = qm_fail(QM_NO_MEMORY, "scratch of %lld elements", (long long)p->piece);
    if (st == QM_OK)
        *plan = p;
    else
        cpu_close(p);
    return st;
}

static qm_status cpu_step(void *plan, struct qm_tensor *param, const struct qm_tensor *g, int64_t t,
                          uint64_t seed)
{
    struct qm_cpu_plan *p = plan;
    struct qm_cpu_step st = {.p = p, .param = param->data, .g = g, .t = t, .seed = seed};
    enum qm_dtype stored_as = qm_param_type(p->r.param.format);
    if (param->dtype != stored_as)
        return qm_fail(QM_BAD_ARG, "parameters must be %s, got %s", qm_dtype_name(stored_as),
                       qm_dtype_name(param->dtype));
    if (g->dtype != QM_DTYPE_f32 && g->dtype != QM_DTYPE_bf16 && g->dtype != QM_DTYPE_f16)
        return qm_fail(QM_BAD_ARG, "gradients must be f32, bf16 or f16, got %s",
                       qm_dtype_name(g->dtype));
    if (t < 1)
        return qm_fail(QM_BAD_ARG, "steps count from 1, got %lld", (long long)t);
    if (!g->data)
        return QM_OK;
    p->r.rule->prepare(&p->r.hyper, t, &st.s);
    st.s.hyper = &p->r.hyper;
    st.s.param = p->r.param.format;
    for (int i = 0; i < p->n_slots && p->n == 1 && p->r.rule->mark_absent; i++)
        if (p->slot[i].is_f32 && p->slot[i].n == 1)
            p->r.rule->mark_absent(&st.s, i);
    if (p->r.rule->tensor)
        return qm_cpu_tensor_rule_step(&st);
    qm_cpu_elementwise_step(&st);
    return QM_OK;
}

static qm_status cpu_decode(void *plan, int slot, float *out)
{
    struct qm_cpu_plan *p = plan;
    QM_TRY(qm_rule_slot_check(p->r.rule, slot));
    struct qm_cpu_step st = {.p = p};
    qm_cpu_slot_move(&st, slot, out, 0);
    return QM_OK;
}

static size_t residual_bytes(const struct qm_cpu_plan *p)
{
    return (size_t)p->n * (size_t)qm_param_residual(&p->r.param);
}

static qm_status cpu_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    struct qm_cpu_plan *p = plan;
    if (slot == QM_RESIDUAL) {
        if (codes && p->residual)
            memcpy(codes, p->residual, residual_bytes(p));
        return QM_OK;
    }
    QM_TRY(qm_rule_slot_check(p->r.rule, slot));
    struct qm_cpu_slot *s = &p->slot[slot];
    if (codes && !s->is_f32)
        qm_unpack_range(&s->c, s->packed, s->n, codes);
    if (scales)
        memcpy(scales, s->scales, sizeof(float) * (size_t)s->n_scales);
    return QM_OK;
}

static qm_status cpu_load(void *plan, int slot, const uint8_t *codes, const float *scales)
{
    struct qm_cpu_plan *p = plan;
    if (slot == QM_RESIDUAL) {
        if (codes && p->residual)
            memcpy(p->residual, codes, residual_bytes(p));
        return QM_OK;
    }
    QM_TRY(qm_rule_slot_check(p->r.rule, slot));
    struct qm_cpu_slot *s = &p->slot[slot];
    if (codes && !s->is_f32) {
        QM_TRY(qm_codec_codes_exist(&s->c, codes, s->n));
        qm_pack_range(&s->c, codes, s->n, s->packed);
    }
    if (scales)
        memcpy(s->scales, scales, sizeof(float) * (size_t)s->n_scales);
    if (s->is_f32)
        qm_plain_round(s->c.q.plain, s->n_scales, s->scales);
    return QM_OK;
}

static int64_t cpu_bytes(const void *plan)
{
    const struct qm_cpu_plan *p = plan;
    int64_t sum = qm_param_residual(&p->r.param) * p->n;
    for (int i = 0; i < p->n_slots; i++) {
        const struct qm_cpu_slot *s = &p->slot[i];
        sum += s->is_f32 || s->c.q.scale.nest
                   ? qm_state_bytes(&s->c, &s->shape)
                   : s->code_bytes + s->n_scales * (s->c.q.scale.f16 ? 2 : 4);
    }
    return sum;
}

static qm_status cpu_probe(void) { return QM_OK; }

static qm_status cpu_hyper(void *plan, const struct qm_hyper *h)
{
    struct qm_cpu_plan *p = plan;
    return qm_recipe_schedule(&p->r, &p->shape, h);
}

void *qm_plan_cpu_residual(void *plan) { return ((struct qm_cpu_plan *)plan)->residual; }

struct qm_codec *qm_plan_cpu_codec(void *plan, int slot)
{
    return &((struct qm_cpu_plan *)plan)->slot[slot].c;
}

const char *qm_cpu_isa(void) { return qm_isa_text(qm_isa()); }

const struct qm_backend qm_backend_cpu = {
    .name = "cpu",
    .probe = cpu_probe,
    .open = cpu_open,
    .step = cpu_step,
    .decode = cpu_decode,
    .save = cpu_save,
    .load = cpu_load,
    .bytes = cpu_bytes,
    .close = cpu_close,
    .hyper = cpu_hyper,
};
