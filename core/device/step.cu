/* step.cu - The kernels of a step of any elementwise recipe: decode, update, fold statistics,
 * encode.
 *
 * It is compiled once for each recipe (step_kernels.c).  "step_recipe.h" (step_form.c) holds the
 * formats of parameter and gradient, the rule's element function and a struct slot<I> for each
 * slot, whose quantizer is a constant.  Elements are computed by the functions of the dual headers,
 * so a CPU gives the same bits.
 *
 * A thread holds eight consecutive elements, 256 threads a tile, which is a whole number of blocks
 * of every slot that is stored in one pass.  Statistics are maxima of bits: exact in any order, so
 * neither threads nor blocks nor the division into chunks can change a result.  Slots whose scales
 * reach further (norms tensor, row, col, rank1; blocks that fit no tile) are first folded by
 * qm_fold_1 and qm_fold_2, by atomic maxima.
 *
 * Tensor rules use the same code for each of their slots, and tensor_rule.cu for the rest. */
#include "core/base/philox.h"
#include "core/device/step.h"
#include "core/quant/block_numbers.h"
#include "core/quant/scale_index.h"
#include "core/rule/element.h"
#include "core/rule/sweep.h"

#define QM_DEV static __device__ __forceinline__

/* The kernels ask for two blocks on a multiprocessor (__launch_bounds__): without that, ptxas
 * spills rather than exceed 64 registers. */
enum { EACH = QM_STEP_EACH, THREADS = QM_STEP_THREADS, WARP = 32 };

/* How the statistics of a slot's blocks are computed. */
enum way {
    WAY_PLAIN,  /* no codes */
    WAY_NONE,   /* norm id */
    WAY_LANES,  /* blocks of 8 to 256 elements, a power of two: by shuffles */
    WAY_SHARED, /* other blocks within a tile: in shared memory */
    WAY_TWICE   /* in global memory, by kernels qm_fold_1 and qm_fold_2 */
};

template <int I> struct slot;

/* Defines QM_SLOTS, QM_RANK, QM_TILE, QM_FOLDS, QM_ROOM, QM_SHARED_WAY, QM_VALUES, QM_EDGES,
 * QM_FIRST_SLOT, QM_ELEMENT_FN, QM_FORMAT, QM_WRITE, QM_GRADIENT, and slot<I> for each slot. */
#include "step_recipe.h"

/* A descriptor (step.h). */
struct desc {
    void *p;
    const void *g;
    void *residual;
    int64_t n;
    uint64_t id;
    int64_t dim[QM_RANK];
    double inverse[QM_RANK]; /* of the dims */
    struct {
        uint8_t *codes;
        float *scales, *stat;
        int64_t n_scales;
    } slot[QM_SLOTS];
};
QM_ASSERT_BYTES(struct desc, 8 * (QM_DESC_DIMS + 2 * QM_RANK + QM_SLOT_COUNT * QM_SLOTS));
QM_ASSERT_PLACE(struct desc, residual, 8 * QM_DESC_RESIDUAL);
QM_ASSERT_PLACE(struct desc, id, 8 * QM_DESC_ID);
QM_ASSERT_PLACE(struct desc, slot, 8 * (QM_DESC_DIMS + 2 * QM_RANK));
QM_ASSERT_PLACE(struct desc, slot[0].n_scales, 8 * (QM_DESC_DIMS + 2 * QM_RANK + QM_SLOT_N_SCALES));

/* ---- launches -------------------------------------------------------------------------------- */

extern "C" {
__device__ unsigned long long qm_launches; /* step.h */
}

/* At the head of each kernel. */
QM_DEV void count_launch()
{
    if ((blockIdx.x | blockIdx.y | threadIdx.x) == 0)
        atomicAdd(&qm_launches, 1ull);
}

/* ---- tables in shared memory ----------------------------------------------------------------- */

/* Unit values of each code, and the edges between them where these are not constants in
 * the code. */
struct tables {
    float value[QM_SLOTS][QM_VALUES];
    float edge[QM_SLOTS][QM_EDGES];
    uint32_t room[QM_ROOM]; /* maxima of the blocks of a tile */
#if QM_FRESH > 0
    float fresh[QM_FRESH]; /* new states of a tile whose statistics need whole blocks */
#endif
};

template <int I> QM_DEV void table_fill(struct tables *s)
{
    if constexpr (I < QM_SLOTS) {
        if constexpr (slot<I>::n_values > 0)
            for (int k = (int)threadIdx.x; k < slot<I>::n_values; k += THREADS)
                s->value[I][k] = slot<I>::value(k);
        if constexpr (slot<I>::n_edges > 16)
            for (int k = (int)threadIdx.x; k < slot<I>::n_edges - 1; k += THREADS)
                s->edge[I][k] = slot<I>::edge(k);
        table_fill<I + 1>(s);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct alignas(16) four {
    uint32_t w[4];
};
struct alignas(8) two {
    uint32_t w[2];
};

QM_DEV int is_aligned(const void *at, int bytes)
{
    return ((uint64_t)at & (uint64_t)(bytes - 1)) == 0;
}

/* Loads eight elements of BYTES each from element `at` on; only the first `count` exist, the others
 * are 0. */
template <int BYTES> QM_DEV void load(const void *base, int64_t at, int count, uint32_t *out)
{
    const uint8_t *from = (const uint8_t *)base + at * BYTES;
    for (int j = 0; j < EACH; j++)
        out[j] = 0;
    if (count == EACH && is_aligned(from, BYTES == 1 ? 8 : 16)) {
        uint32_t word[2 * BYTES];
        if constexpr (BYTES == 1) {
            struct two t = *(const struct two *)from;
            word[0] = t.w[0], word[1] = t.w[1];
        } else {
            for (int k = 0; k < BYTES / 2; k++) {
                struct four t = ((const struct four *)from)[k];
                for (int i = 0; i < 4; i++)
                    word[4 * k + i] = t.w[i];
            }
        }
        for (int j = 0; j < EACH; j++)
            out[j] = BYTES == 4   ? word[j * BYTES / 4]
                     : BYTES == 2 ? (word[j * BYTES / 4] >> 16 * (j & 1)) & 0xffffu
                                  : (word[j * BYTES / 4] >> 8 * (j & 3)) & 0xffu;
        return;
    }
    for (int j = 0; j < EACH; j++)
        if (j < count)
            out[j] = BYTES == 4   ? ((const uint32_t *)from)[j]
                     : BYTES == 2 ? ((const uint16_t *)from)[j]
                                  : from[j];
}

template <int BYTES> QM_DEV void store(void *base, int64_t at, int count, const uint32_t *in)
{
    uint8_t *to = (uint8_t *)base + at * BYTES;
    if (count == EACH && is_aligned(to, BYTES == 1 ? 8 : 16)) {
        uint32_t word[2 * BYTES];
        for (int k = 0; k < 2 * BYTES; k++)
            word[k] = BYTES == 4   ? in[k]
                      : BYTES == 2 ? in[2 * k & 7] | in[(2 * k & 7) + 1] << 16
                                   : in[4 * k & 7] | in[(4 * k & 7) + 1] << 8 |
                                         in[(4 * k & 7) + 2] << 16 | in[(4 * k & 7) + 3] << 24;
        if constexpr (BYTES == 1) {
            struct two t;
            t.w[0] = word[0], t.w[1] = word[1];
            *(struct two *)to = t;
        } else {
            for (int k = 0; k < BYTES / 2; k++) {
                struct four t;
                for (int i = 0; i < 4; i++)
                    t.w[i] = word[4 * k + i];
                ((struct four *)to)[k] = t;
            }
        }
        return;
    }
    for (int j = 0; j < EACH; j++)
        if (j < count) {
            if constexpr (BYTES == 4)
                ((uint32_t *)to)[j] = in[j];
            else if constexpr (BYTES == 2)
                ((uint16_t *)to)[j] = (uint16_t)in[j];
            else
                to[j] = (uint8_t)in[j];
        }
}

/* Loads eight packed codes; `at` is a multiple of 8 and the buffer is aligned, so they fill
 * whole bytes. */
template <int I> QM_DEV void load_codes(const uint8_t *base, int64_t at, int count, uint32_t *code)
{
    const struct qm_quantizer q = slot<I>::q();
    constexpr int bytes = slot<I>::eight;
    const uint8_t *from = base + at / EACH * bytes;
    int there = (int)qm_pack_bytes(q.pack, q.bits, count);
    uint64_t word = 0;
    if (bytes == 8 && there == 8) {
        struct two t = *(const struct two *)from;
        word = t.w[0] | (uint64_t)t.w[1] << 32;
    } else if (bytes == 4 && there == 4) {
        word = *(const uint32_t *)from;
    } else {
        for (int k = 0; k < bytes; k++)
            if (k < there)
                word |= (uint64_t)from[k] << 8 * k;
    }
    qm_unpack_eight(q.pack, q.bits, word, code);
}

template <int I> QM_DEV void store_codes(uint8_t *base, int64_t at, int count, const uint32_t *code)
{
    const struct qm_quantizer q = slot<I>::q();
    constexpr int bytes = slot<I>::eight;
    uint8_t *to = base + at / EACH * bytes;
    int there = (int)qm_pack_bytes(q.pack, q.bits, count);
    uint64_t word = qm_pack_eight(q.pack, q.bits, code);
    if (bytes == 8 && there == 8) {
        struct two t;
        t.w[0] = (uint32_t)word, t.w[1] = (uint32_t)(word >> 32);
        *(struct two *)to = t;
    } else if (bytes == 4 && there == 4) {
        *(uint32_t *)to = (uint32_t)word;
    } else {
        for (int k = 0; k < bytes; k++)
            if (k < there)
                to[k] = (uint8_t)(word >> 8 * k);
    }
}

/* ---- places ---------------------------------------------------------------------------------- */

/* The indices of an element. */
struct place {
    int64_t at[QM_RANK];
};

/* The place of element `flat`.  Quotients are products with the host's inverses of the dims,
 * corrected by one where they are off: no division.  Exact below 2^51 elements. */
QM_DEV struct place place_of(const struct desc *t, int64_t flat)
{
    struct place w;
#pragma unroll
    for (int i = QM_RANK - 1; i > 0; i--) {
        int64_t d = t->dim[i], whole = (int64_t)((double)flat * t->inverse[i]);
        int64_t rest = flat - whole * d;
        if (rest < 0)
            whole--, rest += d;
        if (rest >= d)
            whole++, rest -= d;
        w.at[i] = rest;
        flat = whole;
    }
    w.at[0] = flat;
    return w;
}

QM_DEV void place_next(const struct desc *t, struct place *w)
{
    w->at[QM_RANK - 1]++;
#pragma unroll
    for (int i = QM_RANK - 1; i > 0; i--)
        if (w->at[i] == t->dim[i]) {
            w->at[i] = 0;
            w->at[i - 1]++;
        }
}

template <int I>
QM_DEV int64_t scale_index(const struct desc *t, const struct place *w, int64_t flat, int group)
{
    return qm_scale_index_of(slot<I>::q().norm, slot<I>::block, t->dim, w->at, flat, group);
}

/* The scale of an element: the smallest of its groups' scales.  For norms that divide twice, the
 * second divisor's, and *first the first one's (else 1). */
template <int I>
QM_DEV float scale_at(const struct desc *t, const float *scales, const struct place *w,
                      int64_t flat, float *first)
{
    constexpr enum qm_norm norm = slot<I>::norm;
    int one = qm_scale_index_first(norm);
    *first = one < 0 ? 1.0f : scales[scale_index<I>(t, w, flat, one)];
    if (one >= 0)
        return scales[scale_index<I>(t, w, flat, !one)];
    float m = scales[scale_index<I>(t, w, flat, 0)];
#pragma unroll
    for (int k = 1; k < qm_scale_index_groups(norm, QM_RANK); k++)
        m = qm_smaller_scale(scales[scale_index<I>(t, w, flat, k)], m);
    return m;
}

/* ---- decoding -------------------------------------------------------------------------------- */

template <int I>
QM_DEV void decode(const struct desc *t, const struct tables *s, int64_t at, int count, float *x)
{
    const float *scales = t->slot[I].scales;
    if constexpr (slot<I>::way == WAY_PLAIN) {
        uint32_t bits[EACH];
        load<4>(scales, at, count, bits);
        for (int j = 0; j < EACH; j++)
            x[j] = qm_float(bits[j]);
    } else {
        const struct qm_quantizer q = slot<I>::q();
        const struct qm_codebook b = slot<I>::book(s->value[I]);
        constexpr int many = slot<I>::numbers > 1;
        constexpr int shared = slot<I>::block % EACH == 0 && slot<I>::norm == QM_NORM_block;
        uint32_t code[EACH];
        float scale = 1.0f, first = 1.0f;
        const float *number = scales;
        struct place w;
        load_codes<I>(t->slot[I].codes, at, count, code);
        if (shared && count > 0) {
            int64_t k = at / slot<I>::block;
            number = scales + k * slot<I>::numbers;
            scale = *number;
        }
        if constexpr (slot<I>::placed)
            w = place_of(t, at);
        for (int j = 0; j < EACH; j++) {
            if (!shared && slot<I>::norm != QM_NORM_id && j < count) {
                if (many)
                    number = scales + (at + j) / slot<I>::block * slot<I>::numbers;
                else
                    scale = scale_at<I>(t, scales, &w, at + j, &first);
            }
            if constexpr (slot<I>::placed)
                place_next(t, &w);
            if constexpr (many) {
                x[j] = j < count ? qm_block_value(&q, &b, code[j], number) : 0.0f;
                continue;
            }
            float y = qm_unit_value(&q, &b, j < count ? code[j] : 0);
            if (slot<I>::norm != QM_NORM_id)
                y = y * scale;
            if (qm_scale_index_first(slot<I>::norm) >= 0)
                y = y * first;
            x[j] = qm_finish_value(&q, &b, y);
        }
    }
}

template <int I>
QM_DEV void decode_all(const struct desc *t, const struct tables *s, int64_t at, int count,
                       float (*x)[EACH])
{
    if constexpr (I < QM_SLOTS) {
        decode<I>(t, s, at, count, x[I]);
        decode_all<I + 1>(t, s, at, count, x);
    }
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* The number of edges <= y among 15 constants, by bisection. */
QM_DEV int edges_of_16(const float *e, float y)
{
    int a = y >= e[7];
    int b = y >= (a ? e[11] : e[3]);
    int c = y >= (a ? (b ? e[13] : e[9]) : (b ? e[5] : e[1]));
    int d = y >= (a ? (b ? (c ? e[14] : e[12]) : (c ? e[10] : e[8]))
                    : (b ? (c ? e[6] : e[4]) : (c ? e[2] : e[0])));
    return 8 * a + 4 * b + 2 * c + d;
}

/* The stored code of unit value y: by the edges where they decide it, else by the
 * quantizer's search. */
template <int I>
QM_DEV uint32_t code_of(const struct tables *s, const struct qm_quantizer *q,
                        const struct qm_codebook *b, float y, uint32_t draw)
{
    int k = 0;
    if (qm_isnan(y))
        return qm_stored_code(b, y, qm_position_of_nan(q, b));
    if constexpr (slot<I>::is_e4m3)
        return qm_float_to_e4m3(y, 1);
    if (slot<I>::n_edges == 0 || !(slot<I>::edges_suffice || fabsf(y) <= slot<I>::limit)) {
        k = qm_position(q, b, y, draw);
    } else if constexpr (slot<I>::n_edges > 16) {
        for (int half = slot<I>::n_edges / 2; half > 0; half /= 2)
            k += y >= s->edge[I][k + half - 1] ? half : 0;
    } else if constexpr (slot<I>::n_edges > 0) {
        float e[15];
        for (int i = 0; i < 15; i++)
            e[i] = slot<I>::edge(i);
        k = edges_of_16(e, y);
    }
    return qm_stored_code(b, y, k);
}

template <int I>
QM_DEV uint32_t encode_one(const struct tables *s, const struct qm_quantizer *q,
                           const struct qm_codebook *b, float x, float max, float by, int is_short,
                           uint32_t draw)
{
    int divides = slot<I>::way == WAY_NONE || qm_unit_divides(q, is_short);
    uint32_t code;
    if (max == 0.0f && q->scale.zero >= 0 && slot<I>::way != WAY_NONE)
        return (uint32_t)q->scale.zero;
    if (qm_steps_directly(q, divides))
        code = qm_encode_one(q, b, x, by, divides, draw);
    else
        code = code_of<I>(s, q, b, qm_unit_of(q, x, by, divides), draw);
    if (q->scale.keep_sign)
        code = qm_keep_sign((uint32_t)slot<I>::n_negative, (uint32_t)b->n, x, code);
    return code;
}

/* Random draws of the eight elements from `at` on, which is a multiple of 8. */
QM_DEV void draws_for(const struct qm_step_scalars *step, const struct desc *t, enum qm_role role,
                      int64_t at, uint32_t *out)
{
    const struct qm_draws d = qm_draws_for(step->seed, step->step, (uint32_t)t->id, role);
    for (int k = 0; k < EACH; k += 4) {
        struct qm_philox_block four = qm_draw_four(&d, at + k);
        for (int j = 0; j < 4; j++)
            out[k + j] = four.word[j];
    }
}

template <int I>
QM_DEV void slot_draws(const struct qm_step_scalars *step, const struct desc *t, int64_t at,
                       uint32_t *draw)
{
    for (int j = 0; j < EACH; j++)
        draw[j] = 0;
    if constexpr (slot<I>::draws)
        draws_for(step, t,
                  I + QM_FIRST_SLOT == 0   ? QM_ROLE_slot0
                  : I + QM_FIRST_SLOT == 1 ? QM_ROLE_slot1
                                           : QM_ROLE_spare,
                  at, draw);
}

/* ---- statistics ------------------------------------------------------------------------------ */

template <int I> QM_DEV uint32_t stat_of(const struct qm_quantizer *q, float x, int number)
{
    if constexpr (slot<I>::numbers > 1)
        return qm_block_stat(q, x, number);
    return qm_bits(qm_magnitude(q, x));
}

QM_DEV uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* The maximum over a thread's first `count` elements. */
template <int I>
QM_DEV uint32_t stat_of_thread(const struct qm_quantizer *q, const float *x, int count, int number)
{
    uint32_t m = 0;
    for (int j = 0; j < EACH; j++)
        if (j < count)
            m = larger(m, stat_of<I>(q, x[j], number));
    return m;
}

/* The maximum over `lanes` neighbouring threads, a power of two; every thread of the warp must
 * call it. */
QM_DEV uint32_t over_lanes(uint32_t m, int lanes)
{
    for (int d = 1; d < lanes; d *= 2)
        m = larger(m, __shfl_xor_sync(0xffffffffu, m, d));
    return m;
}

/* A read beside atomic operations of other threads. */
QM_DEV uint32_t glance(const uint32_t *at)
{
#ifdef QM_EMU /* a volatile read does not tell the emulator that it may race */
    return qm_emu_glance(at);
#else
    return *(const volatile uint32_t *)at;
#endif
}

/* Raises a number in global memory to m.  The number only grows, so a read may save the atomic. */
QM_DEV void raise(float *stat, int64_t at, uint32_t m)
{
    uint32_t *to = (uint32_t *)stat + at;
    if (m > glance(to))
        atomicMax(to, m);
}

/* Raises stat[at] to m, where most often all threads of a warp have the same `at`: one atomic
 * for all. */
QM_DEV void raise_together(float *stat, int64_t at, uint32_t m)
{
    int64_t common = __shfl_sync(0xffffffffu, at, 0);
    if (__all_sync(0xffffffffu, at == common || m == 0)) {
        m = over_lanes(m, WARP);
        at = common;
        m = threadIdx.x % WARP == 0 ? m : 0;
    }
    if (m > 0)
        raise(stat, at, m);
}

/* ---- blocks within a tile -------------------------------------------------------------------- */

/* Folds a thread's elements into the tile's maxima in shared memory (room); the caller places
 * barriers before and after. */
template <int I>
QM_DEV void fold_shared(struct tables *s, int64_t tile, int64_t at, int count, const float *x)
{
    const struct qm_quantizer q = slot<I>::q();
    for (int number = 0; number < slot<I>::numbers; number++) {
        uint32_t *room = s->room + slot<I>::room + number;
        if constexpr (slot<I>::block % EACH == 0) {
            uint32_t m = stat_of_thread<I>(&q, x, count, number);
            int64_t k = (at - tile) / slot<I>::block;
            if constexpr (slot<I>::block % (EACH * WARP) == 0) {
                m = over_lanes(m, WARP);
                m = threadIdx.x % WARP == 0 ? m : 0;
            }
            if (m > 0)
                atomicMax(room + k * slot<I>::numbers, m);
        } else {
            for (int j = 0; j < EACH; j++)
                if (j < count)
                    atomicMax(room + (at + j - tile) / slot<I>::block * slot<I>::numbers,
                              stat_of<I>(&q, x[j], number));
        }
    }
}

/* Slots whose statistics need whole blocks: each thread leaves its elements in shared memory, and
 * after a barrier one thread makes the statistics of one block. */
template <int I>
QM_DEV void keep_fresh(struct tables *s, int64_t tile, int64_t at, int count, const float *x)
{
#if QM_FRESH > 0
    for (int j = 0; j < count; j++)
        s->fresh[slot<I>::fresh + (at - tile) + j] = x[j];
#endif
}

template <int I> QM_DEV void select_all(struct tables *s, int64_t n)
{
    if constexpr (I < QM_SLOTS) {
#if QM_FRESH > 0
        if constexpr (slot<I>::way == WAY_SHARED && slot<I>::needs_block) {
            const struct qm_quantizer q = slot<I>::q();
            for (int64_t k = threadIdx.x; k * slot<I>::block < n; k += THREADS) {
                int64_t left = n - k * slot<I>::block;
                float stat[QM_BLOCK_NUMBERS_MOST];
                qm_block_fold(&q, s->fresh + slot<I>::fresh + k * slot<I>::block,
                              left < slot<I>::block ? left : slot<I>::block, stat);
                for (int j = 0; j < slot<I>::numbers; j++)
                    s->room[slot<I>::room + k * slot<I>::numbers + j] = qm_bits(stat[j]);
            }
        }
#endif
        select_all<I + 1>(s, n);
    }
}

template <int I>
QM_DEV void fold_shared_all(struct tables *s, int64_t tile, int64_t at, int count,
                            const float (*x)[EACH])
{
    if constexpr (I < QM_SLOTS) {
        if constexpr (slot<I>::way == WAY_SHARED && slot<I>::needs_block)
            keep_fresh<I>(s, tile, at, count, x[I]);
        else if constexpr (slot<I>::way == WAY_SHARED)
            fold_shared<I>(s, tile, at, count, x[I]);
        fold_shared_all<I + 1>(s, tile, at, count, x);
    }
}

/* A thread's eight elements to be encoded. */
struct eight {
    const float *x;
    const uint32_t *draw;
    uint32_t *code; /* the result */
};

/* Encodes elements [from, to) of the eight, which lie in this block; its statistics are m[numbers].
 * is_first: element `from` is the block's first, and the thread stores the scale. */
template <int I>
QM_DEV void put_block(const struct desc *t, const struct tables *s, int64_t block,
                      const uint32_t *m, const struct eight &e, int from, int to, int is_first)
{
    const struct qm_quantizer q = slot<I>::q();
    const struct qm_codebook b = slot<I>::book(s->value[I]);
    float *scale = t->slot[I].scales + block * slot<I>::numbers;
    if constexpr (slot<I>::numbers > 1) {
        float number[QM_BLOCK_NUMBERS_MOST] = {0};
        for (int k = 0; k < slot<I>::numbers; k++)
            number[k] = qm_float(m[k]);
        qm_block_numbers_of(&q, &b, number, number);
        for (int j = 0; j < EACH; j++)
            if (j >= from && j < to)
                e.code[j] = qm_block_code(&q, &b, e.x[j], number, e.draw[j]);
        for (int k = 0; k < slot<I>::numbers && is_first; k++)
            scale[k] = number[k];
    } else {
        float max = qm_float(m[0]);
        int is_short = (block + 1) * slot<I>::block > t->n;
        const struct qm_divisor d = qm_divisor_of(&q, &b, max, is_short);
        for (int j = 0; j < EACH; j++)
            if (j >= from && j < to)
                e.code[j] = encode_one<I>(s, &q, &b, e.x[j], max, d.by, is_short, e.draw[j]);
        if (is_first)
            scale[0] = d.stored;
    }
}

/* Encodes and stores a slot whose blocks lie within a tile, or that has norm id. */
template <int I>
QM_DEV void put_one_pass(const struct desc *t, const struct tables *s,
                         const struct qm_step_scalars *step, int64_t tile, int64_t at, int count,
                         const float *x)
{
    const struct qm_quantizer q = slot<I>::q();
    uint32_t draw[EACH], code[EACH], m[QM_BLOCK_NUMBERS_MOST] = {0, 0};
    const struct eight e = {x, draw, code};
    slot_draws<I>(step, t, at, draw);
    for (int j = 0; j < EACH; j++)
        code[j] = 0;
    if constexpr (slot<I>::way == WAY_LANES) {
        for (int number = 0; number < slot<I>::numbers; number++)
            m[number] = over_lanes(stat_of_thread<I>(&q, x, count, number), slot<I>::block / EACH);
        __syncwarp(); /* every thread has read the old scale */
    }
    if (count == 0)
        return;
    if constexpr (slot<I>::way == WAY_NONE) {
        const struct qm_codebook b = slot<I>::book(s->value[I]);
        for (int j = 0; j < EACH; j++)
            if (j < count)
                code[j] = encode_one<I>(s, &q, &b, x[j], 0.0f, 1.0f, 0, draw[j]);
    } else if constexpr (slot<I>::block % EACH == 0) {
        int64_t k = at / slot<I>::block;
        if constexpr (slot<I>::way == WAY_SHARED)
            for (int number = 0; number < slot<I>::numbers; number++)
                m[number] = s->room[slot<I>::room +
                                    (at - tile) / slot<I>::block * slot<I>::numbers + number];
        put_block<I>(t, s, k, m, e, 0, count, at == k * slot<I>::block);
    } else {
        for (int j = 0; j < EACH; j++) {
            int64_t k = (at + j) / slot<I>::block;
            for (int number = 0; number < slot<I>::numbers; number++)
                m[number] = s->room[slot<I>::room + (k - tile / slot<I>::block) * slot<I>::numbers +
                                    number];
            if (j < count)
                put_block<I>(t, s, k, m, e, j, j + 1, at + j == k * slot<I>::block);
        }
    }
    store_codes<I>(t->slot[I].codes, at, count, code);
}

/* ---- scales beyond a tile -------------------------------------------------------------------- */

/* Pass 1 folds |x|; pass 2, for norms that divide twice, the quotients by the first divisor. */
template <int I, int PASS>
QM_DEV void fold_twice(const struct desc *t, int64_t at, int count, const float *x)
{
    constexpr enum qm_norm norm = slot<I>::norm;
    const int first = qm_scale_index_first(norm);
    const struct qm_quantizer q = slot<I>::q();
    float *stat = t->slot[I].stat;
    if constexpr (slot<I>::numbers > 1 || norm == QM_NORM_tensor) {
        for (int number = 0; number < slot<I>::numbers; number++)
            if constexpr (norm == QM_NORM_tensor || slot<I>::block % EACH == 0)
                raise_together(
                    stat,
                    (norm == QM_NORM_tensor ? 0 : at / slot<I>::block) * slot<I>::numbers + number,
                    stat_of_thread<I>(&q, x, count, number));
            else
                for (int j = 0; j < EACH; j++)
                    if (j < count)
                        raise(stat, (at + j) / slot<I>::block * slot<I>::numbers + number,
                              stat_of<I>(&q, x[j], number));
    } else {
#pragma unroll
        for (int k = 0; k < qm_scale_index_groups(norm, QM_RANK); k++) {
            if ((first >= 0) && (PASS == 1) != (k == first))
                continue;
            struct place w;
            if constexpr (slot<I>::placed)
                w = place_of(t, at);
            int64_t run = scale_index<I>(t, &w, at, k);
            uint32_t m = 0;
            for (int j = 0; j < EACH; j++) {
                int64_t to = scale_index<I>(t, &w, at + j, k);
                uint32_t u = 0;
                if (j < count) {
                    float y = x[j];
                    if (PASS == 2)
                        y = y / stat[scale_index<I>(t, &w, at + j, first)];
                    u = stat_of<I>(&q, y, 0);
                }
                if (j < count && to != run) {
                    raise(stat, run, m);
                    m = 0;
                    run = to;
                }
                m = larger(m, u);
                if constexpr (slot<I>::placed)
                    place_next(t, &w);
            }
            raise_together(stat, run, m);
        }
    }
}

/* Encodes and stores a slot whose statistics were folded before. */
template <int I>
QM_DEV void put_twice(const struct desc *t, const struct tables *s,
                      const struct qm_step_scalars *step, int64_t at, int count, const float *x)
{
    const struct qm_quantizer q = slot<I>::q();
    const struct qm_codebook b = slot<I>::book(s->value[I]);
    const float *stat = t->slot[I].stat;
    uint32_t draw[EACH], code[EACH];
    struct place w;
    if (count == 0)
        return;
    slot_draws<I>(step, t, at, draw);
    if constexpr (slot<I>::placed)
        w = place_of(t, at);
    for (int j = 0; j < EACH; j++) {
        code[j] = 0;
        if (j < count) {
            if constexpr (slot<I>::numbers > 1) {
                float number[QM_BLOCK_NUMBERS_MOST] = {0};
                qm_block_numbers_of(&q, &b, stat + (at + j) / slot<I>::block * slot<I>::numbers,
                                    number);
                code[j] = qm_block_code(&q, &b, x[j], number, draw[j]);
            } else {
                float first, max = scale_at<I>(t, stat, &w, at + j, &first), y = x[j];
                int is_short = slot<I>::norm == QM_NORM_block &&
                               ((at + j) / slot<I>::block + 1) * slot<I>::block > t->n;
                if (qm_scale_index_first(slot<I>::norm) >= 0)
                    y = y / first;
                code[j] = encode_one<I>(s, &q, &b, y, max, qm_divisor_of(&q, &b, max, is_short).by,
                                        is_short, draw[j]);
            }
        }
        if constexpr (slot<I>::placed)
            place_next(t, &w);
    }
    store_codes<I>(t->slot[I].codes, at, count, code);
}

/* ---- all slots ------------------------------------------------------------------------------- */

template <int I, int PASS>
QM_DEV void fold_all(const struct desc *t, int64_t at, int count, const float (*x)[EACH])
{
    if constexpr (I < QM_SLOTS) {
        if constexpr (slot<I>::way == WAY_TWICE && PASS <= slot<I>::folds)
            fold_twice<I, PASS>(t, at, count, x[I]);
        fold_all<I + 1, PASS>(t, at, count, x);
    }
}

template <int I>
QM_DEV void put_all(const struct desc *t, const struct tables *s,
                    const struct qm_step_scalars *step, int64_t tile, int64_t at, int count,
                    const float (*x)[EACH])
{
    if constexpr (I < QM_SLOTS) {
        if constexpr (slot<I>::way == WAY_PLAIN) {
            uint32_t bits[EACH];
            for (int j = 0; j < EACH; j++)
                bits[j] = qm_bits(qm_plain_of(slot<I>::q().plain, x[I][j]));
            store<4>(t->slot[I].scales, at, count, bits);
        } else if constexpr (slot<I>::way == WAY_TWICE) {
            put_twice<I>(t, s, step, at, count, x[I]);
        } else {
            put_one_pass<I>(t, s, step, tile, at, count, x[I]);
        }
        put_all<I + 1>(t, s, step, tile, at, count, x);
    }
}

/* ---- the parameter --------------------------------------------------------------------------- */

enum {
    PARAM_BYTES = QM_FORMAT == QM_PARAM_f32    ? 4
                  : QM_FORMAT == QM_PARAM_e4m3 ? 1
                                               : 2,
    REST_BYTES = QM_WRITE == QM_WRITE_kahan || QM_WRITE == QM_WRITE_ecc16 ? 2
                 : QM_WRITE == QM_WRITE_ecc8                              ? 1
                                                                          : 0
};

QM_DEV void load_param(const struct desc *t, int64_t at, int count, float *p)
{
    uint32_t bits[EACH], rest[EACH];
    for (int j = 0; j < EACH; j++)
        rest[j] = 0;
    load<PARAM_BYTES>(t->p, at, count, bits);
    if constexpr (REST_BYTES > 0)
        load<REST_BYTES>(t->residual, at, count, rest);
    for (int j = 0; j < EACH; j++)
        p[j] = qm_param_read(QM_FORMAT, QM_WRITE, bits[j], rest[j]);
}

QM_DEV void store_param(const struct desc *t, const struct qm_step_scalars *step, int64_t at,
                        int count, const float *p)
{
    uint32_t bits[EACH], rest[EACH], draw[EACH];
    for (int j = 0; j < EACH; j++)
        draw[j] = 0;
    if constexpr (QM_WRITE == QM_WRITE_stoch)
        draws_for(step, t, QM_ROLE_param, at, draw);
    for (int j = 0; j < EACH; j++) {
        bits[j] = qm_param_round(QM_FORMAT, QM_WRITE, p[j], draw[j]);
        rest[j] = qm_param_rest(QM_FORMAT, QM_WRITE, p[j], bits[j]);
    }
    store<PARAM_BYTES>(t->p, at, count, bits);
    if constexpr (REST_BYTES > 0)
        store<REST_BYTES>(t->residual, at, count, rest);
}

QM_DEV void load_gradient(const struct desc *t, int64_t at, int count, float *g)
{
    uint32_t bits[EACH];
    load<QM_GRADIENT == QM_PARAM_f32 ? 4 : 2>(t->g, at, count, bits);
    for (int j = 0; j < EACH; j++)
        g[j] = qm_param_widen(QM_GRADIENT, bits[j]);
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Loads, decodes and updates a thread's elements: the new parameters p and states x, in float32. */
QM_DEV void update(const struct desc *t, const struct tables *s, const struct qm_step_scalars *step,
                   int64_t at, int count, float *p, float (*x)[EACH])
{
    float g[EACH], c[QM_STEP_SCALARS];
    int flag[QM_STEP_FLAGS];
    for (int k = 0; k < QM_STEP_SCALARS; k++)
        c[k] = step->c[k];
    for (int k = 0; k < QM_STEP_FLAGS; k++)
        flag[k] = t->id >> 32 ? step->flag[1][k] : step->flag[0][k];
    load_gradient(t, at, count, g);
    load_param(t, at, count, p);
    decode_all<0>(t, s, at, count, x);
    for (int j = 0; j < EACH; j++) {
        float one[QM_SLOTS];
        for (int i = 0; i < QM_SLOTS; i++)
            one[i] = x[i][j];
        QM_ELEMENT_FN(c, flag, QM_FORMAT, 0, p + j, g[j], one);
        for (int i = 0; i < QM_SLOTS; i++)
            x[i][j] = one[i];
    }
}

template <int PASS>
QM_DEV void run_tile(const struct desc *t, struct tables *s, const struct qm_step_scalars *step,
                     int64_t tile, int64_t end)
{
    int64_t at = tile + (int64_t)threadIdx.x * EACH, left = end - at;
    int count = (int)threadIdx.x * EACH >= QM_TILE || left <= 0 ? 0
                : left < EACH                                   ? (int)left
                                                                : EACH;
    float p[EACH], x[QM_SLOTS][EACH];
    if (count == 0)
        at = tile; /* a valid address for its loads, which are not used */
    update(t, s, step, at, count, p, x);
    if constexpr (PASS > 0) {
        fold_all<0, PASS>(t, at, count, x);
        return;
    }
    if constexpr (QM_SHARED_WAY) {
        __syncthreads(); /* the last tile's maxima have been read */
        for (int k = (int)threadIdx.x; k < QM_ROOM; k += THREADS)
            s->room[k] = 0;
        __syncthreads();
        fold_shared_all<0>(s, tile, at, count, x);
        __syncthreads();
        if constexpr (QM_FRESH > 0) {
            select_all<0>(s, t->n - tile < QM_TILE ? t->n - tile : QM_TILE);
            __syncthreads();
        }
    }
    put_all<0>(t, s, step, tile, at, count, x);
    store_param(t, step, at, count, p);
}

template <int PASS>
QM_DEV void run(const struct desc *tensors, const struct qm_chunk *chunks, int64_t n_chunks,
                const struct qm_step_scalars *step)
{
    __shared__ tables s;
    table_fill<0>(&s);
    __syncthreads();
    for (int64_t k = blockIdx.x; k < n_chunks; k += gridDim.x) {
        const struct qm_chunk c = chunks[k];
        int64_t end = c.first + c.count;
        for (int64_t tile = c.first; tile < end; tile += QM_TILE) {
            int64_t stop = end - tile < QM_TILE ? end : tile + QM_TILE;
            run_tile<PASS>(tensors + c.tensor, &s, step, tile, stop);
        }
    }
}

extern "C" __global__
__launch_bounds__(QM_STEP_THREADS, 2) void qm_step(const struct desc *tensors,
                                                   const struct qm_chunk *chunks, int64_t n_chunks,
                                                   struct qm_step_scalars step)
{
    count_launch();
    run<0>(tensors, chunks, n_chunks, &step);
}

#if QM_FOLDS > 0
extern "C" __global__
__launch_bounds__(QM_STEP_THREADS, 2) void qm_fold_1(const struct desc *tensors,
                                                     const struct qm_chunk *chunks,
                                                     int64_t n_chunks, struct qm_step_scalars step)
{
    count_launch();
    run<1>(tensors, chunks, n_chunks, &step);
}

/* The stored scales of folded slots; sets their maxima to 0 for the next step. */
template <int I> QM_DEV void scales_of(const struct desc *t)
{
    if constexpr (I < QM_SLOTS) {
        if constexpr (slot<I>::way == WAY_TWICE) {
            const struct qm_quantizer q = slot<I>::q();
            const struct qm_codebook b = slot<I>::book(0);
            float *scales = t->slot[I].scales, *stat = t->slot[I].stat;
            int64_t n = t->slot[I].n_scales, stride = (int64_t)gridDim.x * THREADS;
            int has_tail = slot<I>::norm == QM_NORM_block && t->n % slot<I>::block != 0;
            for (int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x; k < n / slot<I>::numbers;
                 k += stride) {
                int64_t at = k * slot<I>::numbers;
                if constexpr (slot<I>::numbers > 1) {
                    qm_block_numbers_of(&q, &b, stat + at, scales + at);
                    for (int j = 1; j < slot<I>::numbers; j++)
                        stat[at + j] = 0.0f;
                } else {
                    scales[at] = qm_divisor_of(&q, &b, stat[at], has_tail && at == n - 1).stored;
                }
                stat[at] = 0.0f;
            }
        }
        scales_of<I + 1>(t);
    }
}

extern "C" __global__ __launch_bounds__(QM_STEP_THREADS,
                                        2) void qm_scales(const struct desc *tensors)
{
    count_launch();
    scales_of<0>(tensors + blockIdx.y);
}
#endif

#if QM_FOLDS > 1
extern "C" __global__
__launch_bounds__(QM_STEP_THREADS, 2) void qm_fold_2(const struct desc *tensors,
                                                     const struct qm_chunk *chunks,
                                                     int64_t n_chunks, struct qm_step_scalars step)
{
    count_launch();
    run<2>(tensors, chunks, n_chunks, &step);
}
#endif

/* Decodes slot `which` to out. */
template <int I>
QM_DEV void decode_slot(const struct desc *t, const struct tables *s, int which, int64_t at,
                        int count, float *out)
{
    if constexpr (I < QM_SLOTS) {
        if (which == I) {
            float x[EACH];
            uint32_t bits[EACH];
            decode<I>(t, s, at, count, x);
            for (int j = 0; j < EACH; j++)
                bits[j] = qm_bits(x[j]);
            store<4>(out, at, count, bits);
        }
        decode_slot<I + 1>(t, s, which, at, count, out);
    }
}

/* Decodes slot `which`; out NULL: to the address of each tensor's gradient. */
extern "C" __global__ __launch_bounds__(QM_STEP_THREADS,
                                        2) void qm_decode(const struct desc *tensors,
                                                          const struct qm_chunk *chunks,
                                                          int64_t n_chunks, int which, float *out)
{
    count_launch();
    __shared__ tables s;
    table_fill<0>(&s);
    __syncthreads();
    for (int64_t k = blockIdx.x; k < n_chunks; k += gridDim.x) {
        const struct qm_chunk c = chunks[k];
        const struct desc *t = tensors + c.tensor;
        int64_t end = c.first + c.count;
        for (int64_t at = c.first + threadIdx.x * EACH; at < end; at += THREADS * EACH)
            decode_slot<0>(t, &s, which, at, end - at < EACH ? (int)(end - at) : EACH,
                           out ? out : (float *)t->g);
    }
}

#ifdef QM_CODES
/* Lists where the code of slot 0 changes among the floats of `count` consecutive bit patterns from
 * `first` on, the first pattern always: found[0] of them, as pairs of bits and code in list[], at
 * most `most`.  Adds to sums[] what QM_CODES_SUMS describes. */
extern "C" __global__ __launch_bounds__(QM_STEP_THREADS,
                                        2) void qm_codes(uint64_t first, uint64_t count,
                                                         uint32_t *found, uint32_t *list,
                                                         uint32_t most, unsigned long long *sums)
{
    count_launch();
    __shared__ tables s;
    __shared__ unsigned long long of_block[QM_CODES_SUMS];
    unsigned long long own[QM_CODES_SUMS] = {0, 0, 0};
    table_fill<0>(&s);
    if (threadIdx.x < QM_CODES_SUMS)
        of_block[threadIdx.x] = 0;
    __syncthreads();
    const struct qm_quantizer q = slot<0>::q();
    const struct qm_codebook b = slot<0>::book(s.value[0]);
    uint64_t stride = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride) {
        uint32_t bits = (uint32_t)(first + i);
        uint32_t code = code_of<0>(&s, &q, &b, qm_float(bits), 0);
        unsigned long long w = bits | (unsigned long long)code << 32;
        own[0] += 1, own[1] += w, own[2] += w * w;
        if (i > 0 && code == code_of<0>(&s, &q, &b, qm_float(bits - 1), 0))
            continue;
        uint32_t k = atomicAdd(found, 1u);
        if (k < most)
            list[2 * k] = bits, list[2 * k + 1] = code;
    }
    for (int k = 0; k < QM_CODES_SUMS; k++)
        atomicAdd(&of_block[k], own[k]);
    __syncthreads();
    if (threadIdx.x < QM_CODES_SUMS)
        atomicAdd(&sums[threadIdx.x], of_block[threadIdx.x]);
}
#endif

#ifdef QM_TENSOR_RULE
#include "core/device/tensor_rule.cu"
#endif

#ifdef QM_BY_VALUE
/* A step with tensors and chunks in the kernel's parameters, to measure what tables in
 * memory cost. */
struct by_value {
    struct desc tensors[QM_BY_VALUE_TENSORS];
    struct qm_chunk chunks[QM_BY_VALUE_CHUNKS];
};
QM_ASSERT_PLACE(struct by_value, chunks, sizeof(struct desc) * QM_BY_VALUE_TENSORS);
QM_ASSERT_LAYOUT(sizeof(struct by_value) <= QM_STEP_BY_VALUE);

extern "C" __global__ __launch_bounds__(QM_STEP_THREADS, 2) void qm_step_by_value(
    const __grid_constant__ struct by_value table, int64_t n_chunks, struct qm_step_scalars step)
{
    count_launch();
    run<0>(table.tensors, table.chunks, n_chunks, &step);
}
#endif
