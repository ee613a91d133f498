/* cpu_elementwise.c - A step of an elementwise rule, in passes over the pieces of the tensor.
 *
 * A rule with a fused loop (`packed`) takes its pieces in registers; all others go through float32
 * scratch arrays, a piece at a time (run_piece). */
#include <omp.h>
#include <string.h>

#include "core/cpu/cpu_plan.h"

enum { PORTIONS = 16 }; /* in which a thread takes its share of a pass */

/* Prefetches part k of `parts` of the next piece's parameters and gradients.  One part is asked
 * for before each of the first two slots is decoded and one before it is encoded: both compute
 * in registers, so memory would be idle.  Float32 states need no prefetch: the processor
 * foresees them. */
static void fetch_ahead(const struct qm_cpu_step *st, int64_t from, int64_t n, int k, int parts,
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

/* Folds the maxima of a piece into the thread's own set.  fold: 1, or 2 for norms that need a
 * second fold after the first is complete. */
static void slot_fold(struct qm_cpu_slot *s, int64_t from, int64_t n, const float *x, int thread,
                      int fold)
{
    float *stat = s->stat + (thread + 1) * s->n_scales;
    if (fold == 1)
        qm_fold(&s->c, &s->shape, from, n, x, stat);
    else
        qm_fold_again(&s->c, &s->shape, from, n, x, stat);
}

/* One piece: decode, rule; then fold the new states' maxima (fold_only: number of the fold, 1 or 2)
 * or, with fold_only = 0, store the new states and parameters. */
static void run_piece(const struct qm_cpu_step *st, int64_t from, int64_t n, int thread,
                      int fold_only)
{
    struct qm_cpu_plan *p = st->p;
    float *room = qm_cpu_scratch(p, thread);
    uint8_t *codes = qm_cpu_codes(p, thread);
    int is_f32 = p->r.param.format == QM_PARAM_f32;
    float *slots[QM_MAX_SLOTS] = {NULL},
          *param = is_f32 ? (float *)st->param + from : room + p->stride;
    const float *g = (const float *)st->g->data + from;

    if (st->g->dtype != QM_DTYPE_f32) {
        qm_to_float(st->g->data, st->g->dtype, from, n, room);
        g = room;
    }
    if (!is_f32)
        qm_cpu_param_load(p, st->param, from, n, param);
    int first = fold_only && p->second_alone ? 1 : 0; /* 1: slot 1 alone, without parameters */
    int parts = first ? 1 : p->n_slots > 1 ? 4 : 2;
    for (int i = first; i < p->n_slots; i++) {
        if (is_f32 && i < 2 && !p->slot[i].is_f32)
            fetch_ahead(st, from, n, first ? 0 : i, parts, !first);
        slots[i] = qm_cpu_slot_floats(&p->slot[i], from, n, room + (i + 2) * p->stride, codes);
    }
    if (first) {
        p->r.rule->elementwise->second(&st->s, n, param, g, slots[1]);
        slot_fold(&p->slot[1], from, n, slots[1], thread, fold_only);
        return;
    }
    if (fold_only) { /* the caller's arrays must not change yet */
        if (is_f32)
            param = memcpy(room + p->stride, param, sizeof(float) * (size_t)n);
        for (int i = 0; i < p->n_slots; i++)
            if (p->slot[i].is_f32)
                slots[i] = memcpy(room + (i + 2) * p->stride, slots[i], sizeof(float) * (size_t)n);
    }
    p->r.rule->elementwise->block(&st->s, n, param, g, slots);
    for (int i = 0; i < p->n_slots; i++) {
        struct qm_cpu_slot *s = &p->slot[i];
        struct qm_draws d = qm_cpu_slot_draws(st, i);
        if (is_f32 && i < 2 && !s->is_f32)
            fetch_ahead(st, from, n, parts / 2 + i, parts, 1);
        if (!fold_only)
            qm_cpu_slot_store(s, from, n, slots[i], codes, &d);
        else if (s->is_global)
            slot_fold(s, from, n, slots[i], thread, fold_only);
    }
    if (!is_f32 && !fold_only) {
        struct qm_draws d = qm_draws_for(st->seed, st->t, p->tensor, QM_ROLE_param);
        qm_cpu_param_store(p, st->param, from, n, param, &d);
    }
}

static void run_one(const struct qm_cpu_step *st, int64_t k, int thread, int fold_only)
{
    int64_t from = k * st->p->piece, left = st->p->n - from;
    run_piece(st, from, left < st->p->piece ? left : st->p->piece, thread, fold_only);
}

/* Elements [from, from + n) of slot i as a fused loop takes them; 0: no fused loop can. */
static int packed_slot(struct qm_cpu_plan *p, int i, int64_t from, int64_t n, int thread,
                       struct qm_packed_slot *out)
{
    struct qm_cpu_slot *s = &p->slot[i];
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

/* `count` whole pieces from piece `first` on, by the rule's fused loop; 0: it has none for them. */
static int run_packed(const struct qm_cpu_step *st, int64_t first, int64_t count, int thread,
                      int fold_only)
{
    struct qm_cpu_plan *p = st->p;
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

/* Pieces [first, end); the last piece of the tensor may be short. */
static void run_span(const struct qm_cpu_step *st, int64_t first, int64_t end, int thread,
                     int fold_only)
{
    int64_t whole = st->p->n / st->p->piece;
    whole = end < whole ? end : whole;
    if (whole > first && run_packed(st, first, whole - first, thread, fold_only))
        first = whole;
    for (int64_t k = first; k < end; k++)
        run_one(st, k, thread, fold_only);
}

/* Takes the next `portion` of a share, for any thread: returns how many pieces, from *first on. */
static int64_t take(struct qm_cpu_share *s, int64_t portion, int64_t *first)
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

/* Each thread works through its own share, whose memory lies near it, and then helps the others:
 * processors are seldom equally fast. */
static void run_pass(const struct qm_cpu_step *st, int fold_only)
{
    struct qm_cpu_plan *p = st->p;
    int64_t pieces = (p->n + p->piece - 1) / p->piece;
    if (pieces <= 8) { /* no team: its threads would wait for the next one */
        run_span(st, 0, pieces, 0, fold_only);
        return;
    }
#pragma omp parallel num_threads(p->threads)
    {
        int64_t thread = omp_get_thread_num(), team = omp_get_num_threads(), first, n;
        int64_t portion = pieces / (PORTIONS * team) > 1 ? pieces / (PORTIONS * team) : 1;
        p->share[thread] =
            (struct qm_cpu_share){pieces * thread / team, pieces * (thread + 1) / team};
#pragma omp barrier
        for (int64_t k = 0; k < team; k++)
            while ((n = take(&p->share[(thread + k) % team], portion, &first)) > 0)
                run_span(st, first, first + n, (int)thread, fold_only);
    }
}

/* Folds the maxima of the whole new state (fold: 1 or 2); each thread folds a set of its own. */
static void fold_all(const struct qm_cpu_step *st, int fold)
{
    struct qm_cpu_plan *p = st->p;
    for (int i = 0; i < p->n_slots; i++) {
        struct qm_cpu_slot *s = &p->slot[i];
        for (int k = 0; s->is_global && k <= p->threads; k++)
            if (fold == 1)
                memset(s->stat + k * s->n_scales, 0, sizeof(float) * (size_t)s->n_scales);
            else if (k > 0)
                memcpy(s->stat + k * s->n_scales, s->stat, sizeof(float) * (size_t)s->n_scales);
    }
    run_pass(st, fold);
    for (int i = 0; i < p->n_slots; i++) {
        struct qm_cpu_slot *s = &p->slot[i];
        for (int k = 1; s->is_global && k <= p->threads; k++)
            qm_fold_merge(s->stat, s->stat + k * s->n_scales, s->n_scales);
        if (s->slope)
            qm_unit_slopes(&s->c, s->n_scales, s->stat, s->slope);
    }
}

void qm_cpu_elementwise_step(const struct qm_cpu_step *st)
{
    struct qm_cpu_plan *p = st->p;
    for (int fold = 1; fold <= p->folds; fold++)
        fold_all(st, fold);
    run_pass(st, 0);
    for (int i = 0; i < p->n_slots; i++)
        if (!p->slot[i].is_f32 && !p->slot[i].is_fused)
            qm_scales(&p->slot[i].c, &p->shape, p->slot[i].stat, p->slot[i].scales);
}
