/* cpu_plan.h - What the files of core/cpu share: a tensor's plan, one step of it, their parts.
 *
 * A tensor is worked on in pieces that stay in the L1 cache.  A piece is a whole number of blocks
 * of every slot; threads take pieces.  A slot whose scales lie within a piece is decoded, updated
 * and encoded in one pass.  A slot whose scales reach further (tensor, and rank1 of matrices, among
 * others) takes several passes: one or two fold the maxima of the new state (qm_folds), the last
 * computes the new state again and stores it.  Maxima are exact in any order, so any number of
 * threads gives the same bits.
 *
 * A tensor rule (one with sums over whole tensors) works on float32 arrays of the whole tensor. */
#ifndef QM_CPU_CPU_PLAN_H
#define QM_CPU_CPU_PLAN_H

#include "core/recipe/backend.h"

enum { QM_CPU_PIECE = 1024, QM_CPU_LINE = 64 }; /* elements of a piece; bytes of a cache line */

struct qm_cpu_slot {
    struct qm_codec c;
    struct qm_shape shape; /* the parameter's, except in tensor rules */
    int is_f32, is_fused,
        is_global; /* is_f32: no codes, floats in place; is_global: folded first */
    int64_t n, n_scales, code_bytes;
    uint8_t *packed;
    float *scales; /* the stored scales; of an f32 slot, its values */
    float *stat;   /* raw maxima of the new state; is_global: one more set for each thread */
    float *slope;  /* qm_unit_slopes of those maxima, where the codec has slopes */
};

/* The pieces of a pass that a thread begins with; each in a cache line of its own. */
struct qm_cpu_share {
    _Alignas(QM_CPU_LINE) int64_t next;
    int64_t end;
};

struct qm_cpu_plan {
    struct qm_recipe r;
    struct qm_shape shape;
    int64_t n, piece, stride; /* stride: floats from one scratch array to the next */
    uint32_t tensor;          /* its number in the problem */
    int n_slots, threads;
    int folds;        /* passes before the one that stores */
    int second_alone; /* slot 1 is folded without reading slot 0 */
    struct qm_cpu_slot slot[QM_MAX_SLOTS];
    uint8_t *residual;             /* of a parameter that keeps one, else NULL */
    float *scratch;                /* of each thread: g, p, slots, a piece each; then its codes */
    float *copy[2 + QM_MAX_SLOTS]; /* of a tensor rule: g, p and slots that are not float32 */
    float *room;                   /* n floats for a tensor rule's own use */
    struct qm_cpu_share *share;    /* [threads] */
};

struct qm_cpu_step {
    struct qm_cpu_plan *p;
    struct qm_rule_step s;
    void *param;
    const struct qm_tensor *g;
    int64_t t;
    uint64_t seed;
};

/* A thread's scratch for a piece: arrays 0 (g), 1 (p), 2 and on (slots), each p->stride floats. */
static inline float *qm_cpu_scratch(const struct qm_cpu_plan *p, int thread)
{
    return p->scratch + (size_t)thread * (size_t)(2 + p->n_slots) * (size_t)p->stride;
}

/* A thread's unpacked codes of a piece; they lie after the scratch of all threads. */
static inline uint8_t *qm_cpu_codes(const struct qm_cpu_plan *p, int thread)
{
    return (uint8_t *)qm_cpu_scratch(p, p->threads) + (size_t)thread * (size_t)p->stride;
}

/* Zeroed memory at a multiple of a cache line; NULL: none is left. */
void *qm_cpu_zeroed(size_t bytes);

/* ---- cpu_slot.c ----------------------------------------------------------------------------- */

qm_status qm_cpu_slot_open(struct qm_cpu_plan *p, int i);

/* Elements of which a piece must hold a whole number; 0: the slot is folded first. */
int64_t qm_cpu_slot_block(const struct qm_cpu_slot *s);

/* Elements [from, from + n) of a slot as floats: an f32 slot's own, else decoded into room[n].
 * codes: room for n codes. */
float *qm_cpu_slot_floats(const struct qm_cpu_slot *s, int64_t from, int64_t n, float *room,
                          uint8_t *codes);

/* Encodes x[n] into elements [from, from + n).  is_global: s->stat holds the whole tensor's maxima.
 * An f32 slot's floats are in place already and are rounded to its format. */
void qm_cpu_slot_store(struct qm_cpu_slot *s, int64_t from, int64_t n, const float *x,
                       uint8_t *codes, const struct qm_draws *draws);

/* The random numbers that stochastic rounding of slot i takes. */
struct qm_draws qm_cpu_slot_draws(const struct qm_cpu_step *st, int i);

/* All of slot i, piece by piece: decodes it into x[n], or encodes x into it (is_store). */
void qm_cpu_slot_move(const struct qm_cpu_step *st, int i, float *x, int is_store);

/* ---- cpu_param.c ---------------------------------------------------------------------------- */

/* Elements [from, from + n) of the parameter as float32, its residual added; and back. */
void qm_cpu_param_load(const struct qm_cpu_plan *p, void *param, int64_t from, int64_t n,
                       float *out);
void qm_cpu_param_store(struct qm_cpu_plan *p, void *param, int64_t from, int64_t n, const float *x,
                        const struct qm_draws *draws);

/* ---- the two kinds of steps ----------------------------------------------------------------- */

void qm_cpu_elementwise_step(const struct qm_cpu_step *st);

qm_status qm_cpu_tensor_rule_open(struct qm_cpu_plan *p);
qm_status qm_cpu_tensor_rule_step(const struct qm_cpu_step *st);

/* Whether a tensor rule works on the slot's own floats. */
static inline int qm_cpu_slot_in_place(const struct qm_cpu_slot *s)
{
    return s->is_f32 && s->c.q.plain == QM_PLAIN_f32;
}

#endif
