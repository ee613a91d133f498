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
#include "core/base/narrow.h"
#include "core/recipe/backend.h"
#include "core/rule/param_loops.h"

enum { PIECE = 1024, PAD = 64, ALIGN = 64, DRAWS = 256 }; /* PAD: a multiple of 16 */
enum { PORTIONS = 16 };                                   /* of a thread's share of a pass */

struct slot {
    struct qm_codec c;
    struct qm_shape shape;           /* the parameter's but for rules over whole tensors */
    int is_f32, is_fused, is_global; /* is_f32: no codes; plain floats in place */
    int64_t n, n_scales, code_bytes;
    uint8_t *packed;
    float *scales; /* stored ones; of an f32 slot, its values */
    float *stat;   /* raw maxima of the new state, for global norms; one set per thread */
    float *slope;  /* of those maxima, where the codec has slopes */
};

/* The pieces of a pass that a thread begins with; each in a cache line of its own. */
struct share {
    _Alignas(ALIGN) int64_t next;
    int64_t end;
};

struct plan {
    struct qm_recipe r;
    struct qm_shape shape;
    int64_t n, piece, stride; /* stride: of the arrays of scratch; not all at one place of a page */
    uint32_t tensor;
    int n_slots, folds, second_alone, threads; /* folds: passes before the one that stores */
    struct slot slot[QM_MAX_SLOTS];
    uint8_t *residual;              /* of a parameter that keeps one */
    float *scratch;                 /* per thread: g, p, slots; a piece each */
    float *whole[2 + QM_MAX_SLOTS]; /* rules over whole tensors: g, p, slots; those not float32 */
    float *room;                    /* for the rule */
    struct share *share;            /* [threads] */
};

static int arrays(const struct plan *p) { return 2 + p->n_slots; }

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
        free(p->slot[i].slope);
    }
    for (int i = 0; i < 2 + QM_MAX_SLOTS; i++)
        free(p->whole[i]);
    free(p->room);
    free(p->share);
    free(p->residual);
    free(p->scratch);
    free(p);
}

/* Blocks of a slot, or 1 where any split will do; 0: wants two passes. */
static int64_t slot_block(const struct slot *s)
{
    if (s->is_f32 || s->c.q.norm == QM_NORM_id)
        return 8;
    if (s->c.q.norm == QM_NORM_block)
        return s->c.q.block;
    if ((s->c.q.norm == QM_NORM_rank1 || s->c.q.norm == QM_NORM_rank1block) && s->shape.rank <= 1)
        return QM_RANK1_BLOCK;
    return 0;
}

static qm_status slot_open(struct plan *p, int i)
{
    struct slot *s = &p->slot[i];
    struct qm_quantizer q = qm_recipe_slot(&p->r, i, &p->shape);
    s->shape = p->shape;
    qm_rule_slot_shape(p->r.rule, &p->r.hyper, i, &p->shape, &s->shape);
    s->n = qm_shape_numel(&s->shape);
    QM_TRY(qm_codec_init(&s->c, &q));
    QM_TRY(qm_codec_fits(&s->c, &s->shape));
    s->is_f32 = q.bits == 0;
    s->is_fused = !s->is_f32 && qm_codec_is_fused(&s->c);
    s->n_scales = s->is_f32 ? s->n : qm_scale_count(&s->c, &s->shape);
    s->code_bytes = qm_code_bytes(&s->c, s->n);
    s->is_global = s->n > 0 && slot_block(s) == 0;
    s->scales = aligned(sizeof(float) * (size_t)s->n_scales);
    if (!s->is_f32)
        s->packed = aligned((size_t)s->code_bytes);
    s->stat = s->is_f32 ? NULL
                        : aligned(sizeof(float) * (size_t)s->n_scales *
                                  (size_t)(s->is_global ? p->threads + 1 : 1));
    int has_slopes = !s->is_f32 && s->is_global && qm_codec_has_slopes(&s->c, &s->shape);
    if (has_slopes)
        s->slope = aligned(sizeof(float) * (size_t)s->n_scales);
    if (!s->scales || (!s->is_f32 && (!s->packed || !s->stat)) || (has_slopes && !s->slope))
        return qm_fail(QM_NO_MEMORY, "state of %lld elements", (long long)s->n);
    if (!s->is_f32) {
        int init = p->r.init_code[i] < s->c.cb.n ? p->r.init_code[i] : 0; /* map replaced */
        for (int64_t k = 0; k < s->n && init; k++)
            qm_pack_put(q.pack, q.bits, s->packed, k, (uint32_t)init);
        for (int64_t k = 0; k < s->n_scales; k++)
            s->scales[k] = p->r.init_scale[i];
    }
    return QM_OK;
}

/* Whether a rule over whole tensors works on the state's own floats. */
static int in_place(const struct slot *s) { return s->is_f32 && s->c.q.plain == QM_PLAIN_f32; }

static qm_status whole_array(float **x, int64_t n)
{
    if (*x || (*x = aligned(sizeof(float) * (size_t)n)))
        return QM_OK;
    return qm_fail(QM_NO_MEMORY, "a whole tensor of %lld elements", (long long)n);
}

/* Room for a rule over whole tensors: what is not float32 already.  The gradient's type shows later. */
static qm_status whole_open(struct plan *p)
{
    QM_TRY(whole_array(&p->room, p->n));
    if (p->r.param.format != QM_PARAM_f32)
        QM_TRY(whole_array(&p->whole[1], p->n));
    for (int i = 0; i < p->n_slots; i++)
        if (!in_place(&p->slot[i]))
            QM_TRY(whole_array(&p->whole[2 + i], p->slot[i].n));
    return QM_OK;
}

static qm_status cpu_open(const struct qm_recipe *r, const struct qm_shape *shape, uint32_t tensor,
                          void **plan)
{
    struct plan *p = calloc(1, sizeof *p);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "plan for %s", r->base->name);
    p->r = *r;
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
        st = slot_open(p, i);
        int64_t block = st == QM_OK ? slot_block(&p->slot[i]) : 1;
        int folds = st == QM_OK && p->slot[i].is_global ? qm_folds(&p->slot[i].c) : 0;
        p->folds = folds > p->folds ? folds : p->folds;
        if (block > 0)
            p->piece = p->piece / gcd(p->piece, block) * block;
    }
    p->second_alone = p->n_slots == 2 && r->rule->elementwise && r->rule->elementwise->second &&
                      !p->slot[0].is_global && p->slot[1].is_global;
    p->piece = (PIECE + p->piece - 1) / p->piece * p->piece;
    int64_t most = p->n; /* a projected state may be larger than its parameter */
    for (int i = 0; st == QM_OK && i < p->n_slots; i++)
        most = p->slot[i].n > most ? p->slot[i].n : most;
    if (p->piece > most && most > 0)
        p->piece = (most + 7) / 8 * 8;
    p->stride = p->piece / 16 * 16 + 16 + PAD;
    p->scratch =
        aligned((sizeof(float) * (size_t)arrays(p) + 1) * (size_t)p->stride * (size_t)p->threads);
    p->share = aligned(sizeof *p->share * (size_t)p->threads);
    int residual = qm_param_residual(&r->param);
    if (st == QM_OK && residual && !(p->residual = aligned((size_t)p->n * (size_t)residual)))
        st = qm_fail(QM_NO_MEMORY, "residuals of %lld elements", (long long)p->n);
    if (st == QM_OK && r->rule->tensor)
        st = whole_open(p);
    if (st == QM_OK && (!p->scratch || !p->share))
        st = qm_fail(QM_NO_MEMORY, "scratch of %lld elements", (long long)p->piece);
    if (st == QM_OK)
        *plan = p;
    else
        cpu_close(p);
    return st;
}

/* A piece of a slot as floats: f32 slots are used in place. */
static float *slot_floats(const struct slot *s, int64_t from, int64_t n, float *room,
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

/* Puts a piece back.  Global norms: s->stat holds the whole tensor's maxima. */
static void slot_store(struct slot *s, int64_t from, int64_t n, const float *x, uint8_t *codes,
                       const struct qm_draws *draws)
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
    if (!s->is_global && s->n_scales > 0) { /* block norm: this piece's scales lie in it alone */
        int64_t block = slot_block(s), b = from / block, count = (n + block - 1) / block;
        int64_t per = qm_block_numbers(&s->c);
        memset(s->stat + b * per, 0, sizeof(float) * (size_t)(count * per));
        qm_fold(&s->c, &s->shape, from, n, x, s->stat);
    }
    qm_encode_range(&s->c, &s->shape, from, n, x, s->stat, draws, codes);
    qm_pack_range(&s->c, codes, n, s->packed + qm_code_bytes(&s->c, from));
}

struct step {
    struct plan *p;
    struct qm_rule_step s;
    void *param;
    const struct qm_tensor *g;
    int64_t t;
    uint64_t seed;
};

/* Asks for part k of the next piece's parameters and gradients.  A part before decoding and one before
 * encoding each of the first two slots, which compute in registers: memory then works all the time.
 * Float32 states need none of it, the processor foresees them. */
static void fetch_ahead(const struct step *st, int64_t from, int64_t n, int k, int parts,
                        int with_param)
{
    size_t g_size = qm_dtype_size(st->g->dtype);
    int64_t left = st->p->n - from - n < n ? st->p->n - from - n : n;
    int64_t begin = k * (n / parts), end = k + 1 == parts ? n : begin + n / parts;
    end = end < left ? end : left;
    const char *g = (const char *)st->g->data + (size_t)(from + n) * g_size;
    const float *param = (const float *)st->param + from + n;
    for (int64_t i = begin; i < end && with_param; i += 16)
        __builtin_prefetch(param + i, 1, 2);
    for (int64_t i = begin; i < end; i += 64 / (int64_t)g_size)
        __builtin_prefetch(g + (size_t)i * g_size, 0, 2);
}

/* Element `from` of the parameter and of its residuals. */
static void *param_at(const struct plan *p, void *param, int64_t from)
{
    return (char *)param + from * qm_param_bytes(&p->r.param);
}

static void *residual_at(const struct plan *p, int64_t from)
{
    return p->residual ? p->residual + from * qm_param_residual(&p->r.param) : NULL;
}

/* A piece of the parameter as float32, the residual added; and back. */
static void param_load(const struct plan *p, void *param, int64_t from, int64_t n, float *out)
{
    enum qm_param_format f = p->r.param.format;
    const void *at = param_at(p, param, from);
    if (!p->residual && f == QM_PARAM_bf16)
        qm_narrow()->bf16_to_float(at, n, out);
    else if (!p->residual && f == QM_PARAM_e4m3)
        qm_narrow()->e4m3_to_float(at, n, out);
    else
        qm_param_loops()->load(p->r.param, at, residual_at(p, from), n, out);
}

static void param_store(struct plan *p, void *param, int64_t from, int64_t n, const float *x,
                        const struct qm_draws *draws)
{
    uint32_t draw[DRAWS];
    uint16_t *to = param_at(p, param, from);
    if (p->residual || p->r.param.format != QM_PARAM_bf16) {
        qm_param_loops()->store(p->r.param, x, n, draws, from, to, residual_at(p, from));
        return;
    }
    for (int64_t i = 0; i < n; i += DRAWS) {
        int64_t m = n - i < DRAWS ? n - i : DRAWS;
        if (p->r.param.write == QM_WRITE_stoch) {
            qm_narrow()->draws(draws, from + i, m, draw);
            qm_narrow()->stochastic_bf16(x + i, draw, m, to + i);
        } else {
            qm_narrow()->float_to_bf16(x + i, m, to + i);
        }
    }
}

/* What stochastic rounding draws by.  Roles are two bits: slots beyond the third share theirs, and
 * no rule rounds more than three stochastically. */
static struct qm_draws slot_draws(const struct step *st, int i)
{
    enum qm_role role = i == 0 ? QM_ROLE_slot0 : i == 1 ? QM_ROLE_slot1 : QM_ROLE_spare;
    return qm_draws_for(st->seed, st->t, st->p->tensor, role);
}

/* The maxima of a piece: the first fold, or what norms with two want after it. */
static void slot_fold(struct slot *s, int64_t from, int64_t n, const float *x, int thread, int fold)
{
    float *stat = s->stat + (thread + 1) * s->n_scales;
    if (fold == 1)
        qm_fold(&s->c, &s->shape, from, n, x, stat);
    else
        qm_fold_again(&s->c, &s->shape, from, n, x, stat);
}

/* One piece: decode, rule; then either fold the new states' maxima (fold_only: the 1st or 2nd time)
 * or store them. */
static void run_piece(const struct step *st, int64_t from, int64_t n, int thread, int fold_only)
{
    struct plan *p = st->p;
    float *room = p->scratch + (size_t)thread * (size_t)arrays(p) * (size_t)p->stride;
    uint8_t *codes =
        (uint8_t *)(p->scratch + (size_t)p->threads * (size_t)arrays(p) * (size_t)p->stride) +
        (size_t)thread * (size_t)p->stride;
    int is_f32 = p->r.param.format == QM_PARAM_f32;
    float *slots[QM_MAX_SLOTS] = {NULL},
          *param = is_f32 ? (float *)st->param + from : room + p->stride;
    const float *g = (const float *)st->g->data + from;

    if (st->g->dtype != QM_DTYPE_f32) {
        qm_to_float(st->g->data, st->g->dtype, from, n, room);
        g = room;
    }
    if (!is_f32)
        param_load(p, st->param, from, n, param);
    int first = fold_only && p->second_alone ? 1 : 0; /* which then wants no parameters */
    int parts = first ? 1 : p->n_slots > 1 ? 4 : 2;
    for (int i = first; i < p->n_slots; i++) {
        if (is_f32 && i < 2 && !p->slot[i].is_f32)
            fetch_ahead(st, from, n, first ? 0 : i, parts, !first);
        slots[i] = slot_floats(&p->slot[i], from, n, room + (i + 2) * p->stride, codes);
    }
    if (first) {
        p->r.rule->elementwise->second(&st->s, n, param, g, slots[1]);
        slot_fold(&p->slot[1], from, n, slots[1], thread, fold_only);
        return;
    }
    if (fold_only) { /* nothing of the caller's may change yet */
        if (is_f32)
            param = memcpy(room + p->stride, param, sizeof(float) * (size_t)n);
        for (int i = 0; i < p->n_slots; i++)
            if (p->slot[i].is_f32)
                slots[i] = memcpy(room + (i + 2) * p->stride, slots[i], sizeof(float) * (size_t)n);
    }
    p->r.rule->elementwise->block(&st->s, n, param, g, slots);
    for (int i = 0; i < p->n_slots; i++) {
        struct slot *s = &p->slot[i];
        struct qm_draws d = slot_draws(st, i);
        if (is_f32 && i < 2 && !s->is_f32)
            fetch_ahead(st, from, n, parts / 2 + i, parts, 1);
        if (!fold_only)
            slot_store(s, from, n, slots[i], codes, &d);
        else if (s->is_global)
            slot_fold(s, from, n, slots[i], thread, fold_only);
    }
    if (!is_f32 && !fold_only) {
        struct qm_draws d = qm_draws_for(st->seed, st->t, p->tensor, QM_ROLE_weight);
        param_store(p, st->param, from, n, param, &d);
    }
}

/* A slot of any shape between its codes and whole floats, piece by piece. */
static void slot_whole(const struct step *st, int i, float *x, int store)
{
    struct plan *p = st->p;
    struct slot *s = &p->slot[i];
    uint8_t *room =
        (uint8_t *)(p->scratch + (size_t)p->threads * (size_t)arrays(p) * (size_t)p->stride);
    struct qm_draws d = slot_draws(st, i);
    int64_t block = slot_block(s) > 0 ? slot_block(s) : 1;
    int64_t piece = p->piece / block > 0 ? p->piece / block * block : block;
    if (store && s->is_global) {
        memset(s->stat, 0, sizeof(float) * (size_t)s->n_scales);
        qm_fold(&s->c, &s->shape, 0, s->n, x, s->stat);
        qm_fold_again(&s->c, &s->shape, 0, s->n, x, s->stat);
    }
#pragma omp parallel for schedule(static) num_threads(p->threads) if (s->n / piece > 8)
    for (int64_t from = 0; from < s->n; from += piece) {
        uint8_t *codes = room + (size_t)omp_get_thread_num() * (size_t)p->stride;
        int64_t n = s->n - from < piece ? s->n - from : piece;
        if (store && s->is_f32)
            memcpy(s->scales + from, x + from, sizeof(float) * (size_t)n);
        if (store)
            slot_store(s, from, n, x + from, codes, &d);
        else if (slot_floats(s, from, n, x + from, codes) != x + from)
            memcpy(x + from, s->scales + from, sizeof(float) * (size_t)n);
    }
    if (store && !s->is_f32 && !s->is_fused)
        qm_scales(&s->c, &s->shape, s->stat, s->scales);
}

/* The rounds of a rule's states: after each its slots are encoded, and perhaps decoded again. */
static qm_status run_rounds(const struct step *st, struct qm_tensor_rule_args *w)
{
    const struct plan *p = st->p;
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
            if (in_place(&p->slot[i]))
                continue;
            slot_whole(st, i, w->slot[i], 1);
            if (p->r.state_stored || qm_rule_applies_stored(rule, w, i))
                slot_whole(st, i, w->slot[i], 0);
        }
    }
    return QM_OK;
}

/* The parameter of a rule over whole tensors, between its format and float32. */
static void param_whole(const struct step *st, int store)
{
    struct plan *p = st->p;
    struct qm_draws d = qm_draws_for(st->seed, st->t, p->tensor, QM_ROLE_weight);
#pragma omp parallel for schedule(static) num_threads(p->threads) if (p->n > 8 * PIECE)
    for (int64_t from = 0; from < p->n; from += PIECE) {
        int64_t n = p->n - from < PIECE ? p->n - from : PIECE;
        if (store)
            param_store(p, st->param, from, n, p->whole[1] + from, &d);
        else
            param_load(p, st->param, from, n, p->whole[1] + from);
    }
}

/* The gradient of a rule over whole tensors as float32. */
static qm_status gradient_whole(const struct step *st, const float **g)
{
    struct plan *p = st->p;
    *g = st->g->data;
    if (st->g->dtype == QM_DTYPE_f32)
        return QM_OK;
    QM_TRY(whole_array(&p->whole[0], p->n));
#pragma omp parallel for schedule(static) num_threads(p->threads) if (p->n > 8 * PIECE)
    for (int64_t from = 0; from < p->n; from += PIECE)
        qm_to_float(st->g->data, st->g->dtype, from, p->n - from < PIECE ? p->n - from : PIECE,
                    p->whole[0] + from);
    *g = p->whole[0];
    return QM_OK;
}

/* A step of a rule over whole tensors: states, encode, perhaps decode again, apply. */
static qm_status run_whole(const struct step *st)
{
    struct plan *p = st->p;
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
    QM_TRY(gradient_whole(st, &w.g));
    w.p = is_f32 ? st->param : p->whole[1];
    if (!is_f32)
        param_whole(st, 0);
    for (int i = 0; i < p->n_slots; i++) {
        w.slot[i] = in_place(&p->slot[i]) ? p->slot[i].scales : p->whole[2 + i];
        w.slot_shape[i] = p->slot[i].shape;
        w.slot_is_f32[i] = p->slot[i].is_f32;
        if (!in_place(&p->slot[i]))
            slot_whole(st, i, w.slot[i], 0);
    }
    QM_TRY(run_rounds(st, &w));
    QM_TRY(rule->tensor->apply(&w));
    for (int i = 0; i < p->n_slots; i++) /* what apply keeps for the next step (norms) is float32 */
        if (p->slot[i].is_f32 && !in_place(&p->slot[i]))
            slot_whole(st, i, w.slot[i], 1);
    if (!is_f32)
        param_whole(st, 1);
    return QM_OK;
}

/* Piece k. */
static void run_one(const struct step *st, int64_t k, int thread, int fold_only)
{
    int64_t from = k * st->p->piece, left = st->p->n - from;
    run_piece(st, from, left < st->p->piece ? left : st->p->piece, thread, fold_only);
}

/* Slot i from element `from` on, n elements; 0 where it cannot be taken in registers. */
static int packed_slot(struct plan *p, int i, int64_t from, int64_t n, int thread,
                       struct qm_packed_slot *out)
{
    struct slot *s = &p->slot[i];
    if (!s->slope && (!s->is_fused || n % s->c.q.block))
        return 0;
    if (s->slope && (n % 64 || from % 64))
        return 0;
    *out = (struct qm_packed_slot){.c = &s->c,
                                   .packed = s->packed + from * s->c.q.bits / 8,
                                   .scales = s->scales,
                                   .shape = &s->shape,
                                   .first = from,
                                   .slope = s->slope};
    if (s->slope) {
        out->stat = s->stat;
        out->fold = s->stat + (thread + 1) * s->n_scales;
    } else {
        out->scales += from / s->c.q.block;
    }
    return 1;
}

/* Pieces from `first` on, `count` whole ones, in registers: 0 where the rule cannot. */
static int run_packed(const struct step *st, int64_t first, int64_t count, int thread,
                      int fold_only)
{
    struct plan *p = st->p;
    const struct qm_elementwise_ops *ops = p->r.rule->elementwise;
    int64_t from = first * p->piece, n = count * p->piece;
    const float *g = (const float *)st->g->data + from;
    struct qm_packed_slot at[QM_MAX_SLOTS];
    if (st->g->dtype != QM_DTYPE_f32 || p->r.param.format != QM_PARAM_f32)
        return 0;
    if (fold_only)
        return ops->packed_second && p->second_alone && p->slot[1].slope &&
               packed_slot(p, 1, from, n, thread, &at[1]) &&
               ops->packed_second(&st->s, n, g, &at[1]);
    for (int i = 0; i < p->n_slots; i++)
        if (!ops->packed || !packed_slot(p, i, from, n, thread, &at[i]))
            return 0;
    return ops->packed(&st->s, n, (float *)st->param + from, g, at);
}

/* Pieces from `first` to `end`. */
static void run_span(const struct step *st, int64_t first, int64_t end, int thread, int fold_only)
{
    int64_t whole = st->p->n / st->p->piece;
    whole = end < whole ? end : whole;
    if (whole > first && run_packed(st, first, whole - first, thread, fold_only))
        first = whole;
    for (int64_t k = first; k < end; k++)
        run_one(st, k, thread, fold_only);
}

/* The next portion of a share, by whoever asks; returns how many pieces, from *first on. */
static int64_t take(struct share *s, int64_t portion, int64_t *first)
{
    int64_t at;
#pragma omp atomic capture relaxed
    {
        at = s->next;
        s->next += portion;
    }
    *first = at;
    return at >= s->end ? 0 : s->end - at < portion ? s->end - at : portion;
}

/* Each thread works through its own share, which is where its memory is, and then helps the others:
 * processors are seldom equally fast. */
static void run_pass(const struct step *st, int fold_only)
{
    struct plan *p = st->p;
    int64_t pieces = (p->n + p->piece - 1) / p->piece;
    if (pieces <= 8) { /* without a team, whose threads would wait for the next one */
        run_span(st, 0, pieces, 0, fold_only);
        return;
    }
#pragma omp parallel num_threads(p->threads)
    {
        int64_t thread = omp_get_thread_num(), team = omp_get_num_threads(), first, n;
        int64_t portion = pieces / (PORTIONS * team) > 1 ? pieces / (PORTIONS * team) : 1;
        p->share[thread] = (struct share){pieces * thread / team, pieces * (thread + 1) / team};
#pragma omp barrier
        for (int64_t k = 0; k < team; k++)
            while ((n = take(&p->share[(thread + k) % team], portion, &first)) > 0)
                run_span(st, first, first + n, (int)thread, fold_only);
    }
}

/* The maxima of the whole new state, the first or the second of them; every thread folds a copy. */
static void fold_all(const struct step *st, int fold)
{
    struct plan *p = st->p;
    for (int i = 0; i < p->n_slots; i++) {
        struct slot *s = &p->slot[i];
        for (int k = 0; s->is_global && k <= p->threads; k++)
            if (fold == 1)
                memset(s->stat + k * s->n_scales, 0, sizeof(float) * (size_t)s->n_scales);
            else if (k > 0)
                memcpy(s->stat + k * s->n_scales, s->stat, sizeof(float) * (size_t)s->n_scales);
    }
    run_pass(st, fold);
    for (int i = 0; i < p->n_slots; i++) {
        struct slot *s = &p->slot[i];
        for (int k = 1; s->is_global && k <= p->threads; k++)
            qm_fold_merge(s->stat, s->stat + k * s->n_scales, s->n_scales);
        if (s->slope)
            qm_unit_slopes(&s->c, s->n_scales, s->stat, s->slope);
    }
}

static qm_status cpu_step(void *plan, struct qm_tensor *param, const struct qm_tensor *g, int64_t t,
                          uint64_t seed)
{
    struct plan *p = plan;
    struct step st = {.p = p, .param = param->data, .g = g, .t = t, .seed = seed};
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
        return run_whole(&st);
    for (int fold = 1; fold <= p->folds; fold++)
        fold_all(&st, fold);
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
    struct step st = {.p = p};
    slot_whole(&st, slot, out, 0);
    return QM_OK;
}

static size_t residual_bytes(const struct plan *p)
{
    return (size_t)p->n * (size_t)qm_param_residual(&p->r.param);
}

static qm_status cpu_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    struct plan *p = plan;
    if (slot == QM_RESIDUAL) {
        if (codes && p->residual)
            memcpy(codes, p->residual, residual_bytes(p));
        return QM_OK;
    }
    QM_TRY(slot_check(p, slot));
    struct slot *s = &p->slot[slot];
    if (codes && !s->is_f32)
        qm_unpack_range(&s->c, s->packed, s->n, codes);
    if (scales)
        memcpy(scales, s->scales, sizeof(float) * (size_t)s->n_scales);
    return QM_OK;
}

static qm_status cpu_load(void *plan, int slot, const uint8_t *codes, const float *scales)
{
    struct plan *p = plan;
    if (slot == QM_RESIDUAL) {
        if (codes && p->residual)
            memcpy(p->residual, codes, residual_bytes(p));
        return QM_OK;
    }
    QM_TRY(slot_check(p, slot));
    struct slot *s = &p->slot[slot];
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
    const struct plan *p = plan;
    int64_t sum = qm_param_residual(&p->r.param) * p->n;
    for (int i = 0; i < p->n_slots; i++) {
        const struct slot *s = &p->slot[i];
        sum += s->is_f32 || s->c.q.scale.nest
                   ? qm_state_bytes(&s->c, &s->shape)
                   : s->code_bytes + s->n_scales * (s->c.q.scale.f16 ? 2 : 4);
    }
    return sum;
}

static qm_status cpu_probe(void) { return QM_OK; }

void qm_plan_cpu_hyper(void *plan, const struct qm_hyper *h)
{
    struct qm_hyper *own = &((struct plan *)plan)->r.hyper;
    double initial_lr = h->initial_lr != 0.0 ? h->initial_lr : own->initial_lr;
    *own = *h;
    own->initial_lr = initial_lr;
}

void *qm_plan_cpu_residual(void *plan) { return ((struct plan *)plan)->residual; }

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
