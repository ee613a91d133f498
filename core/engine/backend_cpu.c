/* backend_cpu.c - steps on the CPU: phases over pieces held in L1, threads over pieces.
 *
 * A piece is a whole number of blocks of every slot.  Slots whose scale lies within a piece are
 * decoded, updated and encoded in one pass.  A slot whose scale reaches further (rank1, row, col,
 * tensor) takes two: the first folds the maxima of the new state, the second computes it again
 * and stores it.  Maxima are exact in any order, so any number of threads gives the same bits. */
#include <assert.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/isa.h"
#include "core/engine/backend.h"

enum { PIECE = 1024, ALIGN = 64 };

struct slot {
    struct qm_codec c;
    int is_f32, is_fused, is_global;
    int64_t n_scales, code_bytes;
    uint8_t *packed;
    float *scales; /* stored ones; of an f32 slot, its values */
    float *stat;   /* raw maxima of the new state, for global norms; one set per thread */
};

struct plan {
    struct qm_recipe r;
    struct qm_shape shape;
    int64_t n, piece;
    uint32_t tensor;
    int n_slots, is_two_pass, second_alone, threads;
    struct slot slot[QM_MAX_SLOTS];
    float *scratch; /* per thread: p, g, slots; PIECE each */
};

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

static void *aligned(size_t bytes)
{
    size_t room = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    void *p = aligned_alloc(ALIGN, room ? room : ALIGN);
    if (p)
        memset(p, 0, room ? room : ALIGN);
    return p;
}

static void cpu_close(void *plan)
{
    struct plan *p = plan;
    if (!p)
        return;
    for (int i = 0; i < p->n_slots; i++) {
        free(p->slot[i].packed);
        free(p->slot[i].scales);
        free(p->slot[i].stat);
    }
    free(p->scratch);
    free(p);
}

/* Blocks of a slot, or 1 where any split will do; 0: wants two passes. */
static int64_t slot_block(const struct plan *p, const struct slot *s)
{
    if (s->is_f32 || s->c.q.norm == QM_NORM_id)
        return 8;
    if (s->c.q.norm == QM_NORM_block)
        return s->c.q.block;
    if (s->c.q.norm == QM_NORM_rank1 && p->shape.rank <= 1)
        return QM_RANK1_BLOCK;
    return 0;
}

static qm_status slot_open(struct plan *p, int i)
{
    struct slot *s = &p->slot[i];
    struct qm_quantizer q = qm_recipe_slot(&p->r, i, &p->shape);
    QM_TRY(qm_codec_init(&s->c, &q));
    QM_TRY(qm_codec_fits(&s->c, &p->shape));
    s->is_f32 = q.bits == 0;
    s->is_fused = !s->is_f32 && qm_codec_is_fused(&s->c);
    s->n_scales = s->is_f32 ? p->n : qm_scale_count(&s->c, &p->shape);
    s->code_bytes = qm_code_bytes(&s->c, p->n);
    s->is_global = p->n > 0 && slot_block(p, s) == 0;
    s->scales = aligned(sizeof(float) * (size_t)s->n_scales);
    if (!s->is_f32)
        s->packed = aligned((size_t)s->code_bytes);
    s->stat = s->is_f32 ? NULL
                        : aligned(sizeof(float) * (size_t)s->n_scales *
                                  (size_t)(s->is_global ? p->threads + 1 : 1));
    if (!s->scales || (!s->is_f32 && (!s->packed || !s->stat)))
        return qm_fail(QM_NO_MEMORY, "state of %lld elements", (long long)p->n);
    if (!s->is_f32) {
        for (int64_t k = 0; k < p->n && p->r.init_code[i]; k++)
            qm_pack_put(q.pack, q.bits, s->packed, k, (uint32_t)p->r.init_code[i]);
        for (int64_t k = 0; k < s->n_scales; k++)
            s->scales[k] = p->r.init_scale[i];
    }
    return QM_OK;
}

static qm_status cpu_open(const struct qm_recipe *r, const struct qm_shape *shape, uint32_t tensor,
                          void **plan)
{
    struct plan *p = calloc(1, sizeof *p);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "plan for %s", r->base->name);
    p->r = *r;
    p->shape = *shape;
    p->n = qm_shape_numel(shape);
    p->tensor = tensor;
    p->n_slots = r->rule->n_slots;
    p->threads = omp_get_max_threads();
    p->piece = 8;
    qm_status st = p->n < 0 ? qm_fail(QM_BAD_ARG, "tensor has more than 2^63 elements") : QM_OK;
    for (int i = 0; st == QM_OK && i < p->n_slots; i++) {
        st = slot_open(p, i);
        int64_t block = st == QM_OK ? slot_block(p, &p->slot[i]) : 1;
        p->is_two_pass |= st == QM_OK && p->slot[i].is_global;
        if (block > 0)
            p->piece = p->piece / gcd(p->piece, block) * block;
    }
    p->second_alone =
        p->n_slots == 2 && r->rule->second && !p->slot[0].is_global && p->slot[1].is_global;
    p->piece = (PIECE + p->piece - 1) / p->piece * p->piece;
    if (p->piece > p->n && p->n > 0)
        p->piece = (p->n + 7) / 8 * 8;
    p->scratch = aligned(sizeof(float) * (size_t)p->piece * 4 * (size_t)p->threads +
                         (size_t)p->piece * (size_t)p->threads);
    if (st == QM_OK && !p->scratch)
        st = qm_fail(QM_NO_MEMORY, "scratch of %lld elements", (long long)p->piece);
    if (st == QM_OK)
        *plan = p;
    else
        cpu_close(p);
    return st;
}

/* A piece of a slot as floats: f32 slots are used in place. */
static float *slot_floats(const struct plan *p, const struct slot *s, int64_t from, int64_t n,
                          float *room, uint8_t *codes)
{
    if (s->is_f32)
        return s->scales + from;
    if (s->is_fused) {
        qm_decode_blocks(&s->c, s->packed + from * s->c.q.bits / 8, s->scales + from / s->c.q.block,
                         n, room);
    } else {
        qm_unpack_range(&s->c, s->packed + qm_code_bytes(&s->c, from), n, codes);
        qm_decode_range(&s->c, &p->shape, from, n, codes, s->scales, room);
    }
    return room;
}

/* Puts a piece back.  Global norms: s->stat holds the whole tensor's maxima. */
static void slot_store(struct plan *p, int i, int64_t from, int64_t n, const float *x,
                       uint8_t *codes, const struct qm_draws *draws)
{
    struct slot *s = &p->slot[i];
    if (s->is_f32)
        return;
    if (s->is_fused) {
        qm_encode_blocks(&s->c, x, n, s->packed + from * s->c.q.bits / 8,
                         s->scales + from / s->c.q.block);
        return;
    }
    if (!s->is_global && s->n_scales > 0) { /* block norm: this piece's scales lie in it alone */
        int64_t block = slot_block(p, s), b = from / block, count = (n + block - 1) / block;
        memset(s->stat + b, 0, sizeof(float) * (size_t)count);
        qm_fold(&s->c, &p->shape, from, n, x, s->stat);
    }
    qm_encode_range(&s->c, &p->shape, from, n, x, s->stat, draws, codes);
    qm_pack_range(&s->c, codes, n, s->packed + qm_code_bytes(&s->c, from));
}

struct step {
    struct plan *p;
    struct qm_rule_step s;
    float *param;
    const struct qm_tensor *g;
    int64_t t;
    uint64_t seed;
};

/* Asks for the next piece's parameters and gradients while this one is encoded in registers. */
static void fetch_ahead(const struct step *st, int64_t from, int64_t n)
{
    size_t g_size = qm_dtype_size(st->g->dtype);
    const char *g = (const char *)st->g->data + (size_t)from * g_size;
    const char *param = (const char *)(st->param + from);
    int64_t left = st->p->n - from < n ? st->p->n - from : n;
    for (int64_t i = 0; i < left * (int64_t)sizeof(float); i += 64)
        __builtin_prefetch(param + i, 1, 2);
    for (int64_t i = 0; i < left * (int64_t)g_size; i += 64)
        __builtin_prefetch(g + i, 0, 2);
}

/* One piece: decode, rule; then either fold the new states' maxima (pass 1 of 2) or store them. */
static void run_piece(const struct step *st, int64_t from, int64_t n, int thread, int fold_only)
{
    struct plan *p = st->p;
    float *room = p->scratch + (size_t)thread * 4 * (size_t)p->piece;
    uint8_t *codes = (uint8_t *)(p->scratch + (size_t)p->threads * 4 * (size_t)p->piece) +
                     (size_t)thread * (size_t)p->piece;
    float *slots[QM_MAX_SLOTS] = {NULL}, *param = st->param + from;
    const float *g = (const float *)st->g->data + from;

    if (st->g->dtype != QM_DTYPE_f32) {
        qm_to_float(st->g->data, st->g->dtype, from, n, room);
        g = room;
    }
    int first = fold_only && p->second_alone ? 1 : 0;
    for (int i = first; i < p->n_slots; i++)
        slots[i] = slot_floats(p, &p->slot[i], from, n, room + (i + 2) * p->piece, codes);
    if (first) {
        p->r.rule->second(&st->s, n, param, g, slots[1]);
        qm_fold(&p->slot[1].c, &p->shape, from, n, slots[1],
                p->slot[1].stat + (thread + 1) * p->slot[1].n_scales);
        return;
    }
    if (fold_only) { /* nothing of the caller's may change yet */
        param = memcpy(room + p->piece, param, sizeof(float) * (size_t)n);
        for (int i = 0; i < p->n_slots; i++)
            if (p->slot[i].is_f32)
                slots[i] = memcpy(room + (i + 2) * p->piece, slots[i], sizeof(float) * (size_t)n);
    }
    p->r.rule->block(&st->s, n, param, g, slots);
    fetch_ahead(st, from + n, n);
    for (int i = 0; i < p->n_slots; i++) {
        struct slot *s = &p->slot[i];
        struct qm_draws d =
            qm_draws_for(st->seed, st->t, p->tensor, i == 0 ? QM_ROLE_slot0 : QM_ROLE_slot1);
        if (!fold_only)
            slot_store(p, i, from, n, slots[i], codes, &d);
        else if (s->is_global)
            qm_fold(&s->c, &p->shape, from, n, slots[i], s->stat + (thread + 1) * s->n_scales);
    }
}

static void run_pass(const struct step *st, int fold_only)
{
    struct plan *p = st->p;
    int64_t pieces = (p->n + p->piece - 1) / p->piece;
#pragma omp parallel for schedule(static) num_threads(p->threads) if (pieces > 8)
    for (int64_t k = 0; k < pieces; k++) {
        int64_t from = k * p->piece, n = p->n - from < p->piece ? p->n - from : p->piece;
        run_piece(st, from, n, omp_get_thread_num(), fold_only);
    }
}

static qm_status cpu_step(void *plan, struct qm_tensor *param, const struct qm_tensor *g, int64_t t,
                          uint64_t seed)
{
    struct plan *p = plan;
    struct step st = {.p = p, .param = param->data, .g = g, .t = t, .seed = seed};
    if (param->dtype != QM_DTYPE_f32)
        return qm_fail(QM_BAD_ARG, "parameters must be f32, got %s", qm_dtype_name(param->dtype));
    if (g->dtype != QM_DTYPE_f32 && g->dtype != QM_DTYPE_bf16 && g->dtype != QM_DTYPE_f16)
        return qm_fail(QM_BAD_ARG, "gradients must be f32, bf16 or f16, got %s",
                       qm_dtype_name(g->dtype));
    if (t < 1)
        return qm_fail(QM_BAD_ARG, "steps count from 1, got %lld", (long long)t);
    p->r.rule->prepare(&p->r.hyper, t, &st.s);
    if (p->is_two_pass) {
        for (int i = 0; i < p->n_slots; i++)
            if (p->slot[i].is_global)
                memset(p->slot[i].stat, 0,
                       sizeof(float) * (size_t)p->slot[i].n_scales * (size_t)(p->threads + 1));
        run_pass(&st, 1);
        for (int i = 0; i < p->n_slots; i++) {
            struct slot *s = &p->slot[i];
            for (int k = 1; s->is_global && k <= p->threads; k++)
                qm_fold_merge(s->stat, s->stat + k * s->n_scales, s->n_scales);
        }
    }
    run_pass(&st, 0);
    for (int i = 0; i < p->n_slots; i++)
        if (!p->slot[i].is_f32 && !p->slot[i].is_fused)
            qm_scales(&p->slot[i].c, &p->shape, p->slot[i].stat, p->slot[i].scales);
    return QM_OK;
}

static qm_status slot_check(const struct plan *p, int slot)
{
    if (slot < 0 || slot >= p->n_slots)
        return qm_fail(QM_BAD_ARG, "rule %s has slots 0 to %d, not %d", p->r.rule->name,
                       p->n_slots - 1, slot);
    return QM_OK;
}

static qm_status cpu_decode(void *plan, int slot, float *out)
{
    struct plan *p = plan;
    QM_TRY(slot_check(p, slot));
    struct slot *s = &p->slot[slot];
    uint8_t *codes = (uint8_t *)(p->scratch + (size_t)p->threads * 4 * (size_t)p->piece);
    for (int64_t from = 0; from < p->n; from += p->piece) {
        int64_t n = p->n - from < p->piece ? p->n - from : p->piece;
        const float *x = slot_floats(p, s, from, n, p->scratch, codes);
        memcpy(out + from, x, sizeof(float) * (size_t)n);
    }
    return QM_OK;
}

static qm_status cpu_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    struct plan *p = plan;
    QM_TRY(slot_check(p, slot));
    struct slot *s = &p->slot[slot];
    if (codes && !s->is_f32)
        qm_unpack_range(&s->c, s->packed, p->n, codes);
    if (scales)
        memcpy(scales, s->scales, sizeof(float) * (size_t)s->n_scales);
    return QM_OK;
}

static qm_status cpu_load(void *plan, int slot, const uint8_t *codes, const float *scales)
{
    struct plan *p = plan;
    QM_TRY(slot_check(p, slot));
    struct slot *s = &p->slot[slot];
    if (codes && !s->is_f32) {
        for (int64_t i = 0; i < p->n; i++)
            if (codes[i] >= 1 << s->c.q.bits || s->c.cb.position_of[codes[i]] >= s->c.cb.n)
                return qm_fail(QM_BAD_ARG, "code %d at %lld does not exist in %d bits", codes[i],
                               (long long)i, s->c.q.bits);
        qm_pack_range(&s->c, codes, p->n, s->packed);
    }
    if (scales)
        memcpy(s->scales, scales, sizeof(float) * (size_t)s->n_scales);
    return QM_OK;
}

static int64_t cpu_bytes(const void *plan)
{
    const struct plan *p = plan;
    int64_t sum = 0;
    for (int i = 0; i < p->n_slots; i++) {
        const struct slot *s = &p->slot[i];
        sum += s->is_f32 || s->c.q.scale.nest
                   ? qm_state_bytes(&s->c, &p->shape)
                   : s->code_bytes + s->n_scales * (s->c.q.scale.f16 ? 2 : 4);
    }
    return sum;
}

static qm_status cpu_probe(void) { return QM_OK; }

void qm_plan_cpu_hyper(void *plan, const struct qm_hyper *h)
{
    ((struct plan *)plan)->r.hyper = *h;
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
};
