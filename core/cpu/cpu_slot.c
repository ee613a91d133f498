/* cpu_slot.c - One slot's state: its memory, and pieces of it between codes and floats. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "core/cpu/cpu_plan.h"

void *qm_cpu_zeroed(size_t bytes)
{
    size_t room = (bytes + QM_CPU_LINE - 1) / QM_CPU_LINE * QM_CPU_LINE;
    void *p = aligned_alloc(QM_CPU_LINE, room ? room : QM_CPU_LINE);
    if (p)
        memset(p, 0, room ? room : QM_CPU_LINE);
    return p;
}

int64_t qm_cpu_slot_block(const struct qm_cpu_slot *s)
{
    if (s->is_f32 || s->c.q.norm == QM_NORM_id)
        return 8;
    int64_t block = s->c.q.block;
    return qm_norm_of_rank(s->c.q.norm, s->shape.rank, &block) == QM_NORM_block ? block : 0;
}

qm_status qm_cpu_slot_open(struct qm_cpu_plan *p, int i)
{
    struct qm_cpu_slot *s = &p->slot[i];
    struct qm_quantizer q = qm_recipe_slot(&p->r, i, &p->shape);
    s->shape = p->shape;
    if (p->r.rule->slot_shape)
        p->r.rule->slot_shape(&p->r.hyper, i, &p->shape, &s->shape);
    s->n = qm_shape_numel(&s->shape);
    QM_TRY(qm_codec_init(&s->c, &q));
    QM_TRY(qm_codec_fits(&s->c, &s->shape));
    s->is_f32 = q.bits == 0;
    s->is_fused = !s->is_f32 && qm_codec_is_fused(&s->c);
    s->n_scales = s->is_f32 ? s->n : qm_scale_count(&s->c, &s->shape);
    s->code_bytes = qm_code_bytes(&s->c, s->n);
    s->is_global = s->n > 0 && qm_cpu_slot_block(s) == 0;
    s->scales = qm_cpu_zeroed(sizeof(float) * (size_t)s->n_scales);
    if (!s->is_f32)
        s->packed = qm_cpu_zeroed((size_t)s->code_bytes);
    s->stat = s->is_f32 ? NULL
                        : qm_cpu_zeroed(sizeof(float) * (size_t)s->n_scales *
                                        (size_t)(s->is_global ? p->threads + 1 : 1));
    int has_slopes = !s->is_f32 && s->is_global && qm_codec_has_slopes(&s->c, &s->shape);
    if (has_slopes)
        s->slope = qm_cpu_zeroed(sizeof(float) * (size_t)s->n_scales);
    if (!s->scales || (!s->is_f32 && (!s->packed || !s->stat)) || (has_slopes && !s->slope))
        return qm_fail(QM_NO_MEMORY, "state of %lld elements", (long long)s->n);
    if (!s->is_f32) {
        int init = p->r.init_code[i] < s->c.cb.n ? p->r.init_code[i]
                                                 : 0; /* an override may give a smaller map */
        for (int64_t k = 0; k < s->n && init; k++)
            qm_pack_put(q.pack, q.bits, s->packed, k, (uint32_t)init);
        for (int64_t k = 0; k < s->n_scales; k++)
            s->scales[k] = p->r.init_scale[i];
    }
    return QM_OK;
}

float *qm_cpu_slot_floats(const struct qm_cpu_slot *s, int64_t from, int64_t n, float *room,
                          uint8_t *codes)
{
    if (s->is_f32)
        return s->scales + from;
    if (s->is_fused) {
        qm_decode_blocks(&s->c, s->packed + from * s->c.q.bits / 8, s->scales + from / s->c.q.block,
                         n, room);
    } else {
        qm_unpack_range(&s->c, s->packed + qm_code_bytes(&s->c, from), n, codes);
        qm_decode_range(&s->c, &s->shape, from, n, codes, s->scales, room);
    }
    return room;
}

void qm_cpu_slot_store(struct qm_cpu_slot *s, int64_t from, int64_t n, const float *x,
                       uint8_t *codes, const struct qm_draws *draws)
{
    if (s->is_f32) {
        qm_plain_round(s->c.q.plain, n, s->scales + from);
        return;
    }
    if (s->is_fused) {
        qm_encode_blocks(&s->c, x, n, s->packed + from * s->c.q.bits / 8,
                         s->scales + from / s->c.q.block);
        return;
    }
    if (!s->is_global &&
        s->n_scales > 0) { /* norm block: no other piece shares this piece's scales */
        int64_t block = qm_cpu_slot_block(s), b = from / block, count = (n + block - 1) / block;
        int64_t per = qm_block_numbers(&s->c);
        memset(s->stat + b * per, 0, sizeof(float) * (size_t)(count * per));
        qm_fold(&s->c, &s->shape, from, n, x, s->stat);
    }
    qm_encode_range(&s->c, &s->shape, from, n, x, s->stat, draws, codes);
    qm_pack_range(&s->c, codes, n, s->packed + qm_code_bytes(&s->c, from));
}

/* Roles are two bits: slots from the third on share one, and no rule rounds more than three slots
 * stochastically. */
struct qm_draws qm_cpu_slot_draws(const struct qm_cpu_step *st, int i)
{
    enum qm_role role = i == 0 ? QM_ROLE_slot0 : i == 1 ? QM_ROLE_slot1 : QM_ROLE_spare;
    return qm_draws_for(st->seed, st->t, st->p->tensor, role);
}

void qm_cpu_slot_move(const struct qm_cpu_step *st, int i, float *x, int is_store)
{
    struct qm_cpu_plan *p = st->p;
    struct qm_cpu_slot *s = &p->slot[i];
    struct qm_draws d = qm_cpu_slot_draws(st, i);
    int64_t block = qm_cpu_slot_block(s) > 0 ? qm_cpu_slot_block(s) : 1;
    int64_t piece = p->piece >= s->n       ? s->n
                    : p->piece / block > 0 ? p->piece / block * block
                                           : block;
    piece = piece > 0 ? piece : 1;
    if (is_store && s->is_global) {
        memset(s->stat, 0, sizeof(float) * (size_t)s->n_scales);
        qm_fold(&s->c, &s->shape, 0, s->n, x, s->stat);
        qm_fold_again(&s->c, &s->shape, 0, s->n, x, s->stat);
    }
#pragma omp parallel for schedule(static) num_threads(p->threads) if (s->n / piece > 8)
    for (int64_t from = 0; from < s->n; from += piece) {
        uint8_t *codes = qm_cpu_codes(p, omp_get_thread_num());
        int64_t n = s->n - from < piece ? s->n - from : piece;
        if (is_store && s->is_f32)
            memcpy(s->scales + from, x + from, sizeof(float) * (size_t)n);
        if (is_store)
            qm_cpu_slot_store(s, from, n, x + from, codes, &d);
        else if (qm_cpu_slot_floats(s, from, n, x + from, codes) != x + from)
            memcpy(x + from, s->scales + from, sizeof(float) * (size_t)n);
    }
    if (is_store && !s->is_f32 && !s->is_fused)
        qm_scales(&s->c, &s->shape, s->stat, s->scales);
}
