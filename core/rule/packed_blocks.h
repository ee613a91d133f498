/* fused.h - a rule on two slots of packed blocks, decoded, updated and encoded in one loop; included
 * by blocks_*.c, once per instruction set.
 *
 * While a batch of blocks is decoded and updated, group by group, the one before it, whose maxima are
 * then known, is encoded: square roots and divisions hide the look-ups. */
#ifndef QM_RULE_FUSED_H
#define QM_RULE_FUSED_H

#include "core/quant/simd_group.h"
#include "core/rule/rule.h"

#if defined(__AVX512VBMI__) && defined(__AVX512VBMI2__)
#define QM_HAS_FUSED 1

/* Elements of a batch; of a quarter of a group; how far ahead parameters and gradients are asked for,
 * which this loop reads too slowly for the processor to foresee. */
enum { FUSED = 1024, QUARTER = GROUP / 4, AHEAD = 512 };

/* Before a loop none of whose arrays overlap. */
#ifdef __clang__
#define APART_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define APART_LOOP _Pragma("GCC ivdep")
#endif

/* What a rule reads, as locals that nothing else points at. */
struct fused_rule {
    float c[16];
    struct qm_inverse reciprocal[2];
    int multiplies; /* by reciprocals instead of dividing */
};

/* The new states of a group, in place; 1: its parameters too.  Else those follow, a quarter of the
 * group at a time. */
typedef int fused_states(const struct fused_rule *r, float *restrict p, const float *restrict g,
                         float *restrict m, float *restrict v);
typedef void fused_apply(const struct fused_rule *r, float *restrict p, const float *restrict m,
                         const float *restrict v);

/* The new states of two batches, slot by slot, and what the older's blocks are divided by: block b of
 * slot k at MOST k + b. */
enum { MOST = BATCH / 2, STRIDE = FUSED + 272 }; /* not all at one place of a page */

struct fused_work {
    float x[2][2][STRIDE];
    group_max max[BATCH];
    float by[BATCH], slope[BATCH];
    uint8_t doubt[2][FUSED / GROUP]; /* whether a group of the older batch must be searched */
    int odd;                         /* whether it has a block that is not ordinary */
};

/* What of a codec the loop reads. */
struct fused_codec {
    float value[16];
    int high_first;
    struct finders finders;
    struct planes planes;
    float *scales;
    uint8_t *packed;
    const float *slope; /* rank1 */
    int64_t rows, cols;
};

/* Where a group lies in a matrix. */
struct fused_place {
    int64_t row, col;
};

INLINE void place_next(struct fused_place *at, const struct fused_codec *c)
{
    at->col += GROUP;
    at->row += at->col == c->cols;
    at->col = at->col == c->cols ? 0 : at->col;
}

INLINE struct group fused_decode(int four, const struct fused_codec *c, int64_t at, float s)
{
    return four
               ? nibbles_times(&c->planes, c->value, c->high_first, c->packed + (at >> 1), GROUP, s)
               : unit_group(planes_get(&c->planes, 0, load_codes(c->packed + at, GROUP)), s, 0);
}

INLINE struct group rank1_decode(const struct fused_codec *c, int64_t at,
                                 const struct fused_place *in)
{
    return scale_group(fused_decode(1, c, at, 1.0f), c->scales[in->row],
                       c->scales + c->rows + in->col);
}

/* As fused_encode, of slot 1. */
INLINE void rank1_encode(const struct fused_codec *c, struct fused_work *w, const float *x,
                         int64_t in, int64_t at, const struct fused_place *place)
{
    int doubt;
    struct group slope = larger_group(c->slope[place->row], c->slope + c->rows + place->col);
    put_group(c->packed + (at >> 1), 0, GROUP, 1, c->high_first,
              cells_look(&c->finders.cells, load_group(x, GROUP), slope, &doubt));
    w->doubt[1][in / GROUP] = (uint8_t)(doubt | any_odd(slope));
}

/* Group `in` / GROUP of slot k of the older batch, of block b, to element `at`. */
INLINE void fused_encode(enum finder how, int divides, const struct fused_codec *c,
                         struct fused_work *w, int k, int turn, int64_t b, int64_t in, int64_t at)
{
    int doubt = 0, four = is_four(how);
    struct group x = load_group(w->x[k][turn] + in, GROUP);
    float by = w->by[MOST * k + b];
    group_codes codes =
        how == BY_CELLS
            ? cells_look(&c[k].finders.cells, x, same_group(w->slope[MOST * k + b]), &doubt)
            : lines_look(&c[k].finders.lines, unit_group(x, by, divides), &doubt);
    put_group(c[k].packed + (four ? at >> 1 : at), 0, GROUP, four, c[k].high_first, codes);
    w->doubt[k][in / GROUP] = (uint8_t)doubt;
}

/* The units of a batch of `count` blocks from its maxima. */
APART void fused_units(enum finder how, int divides, const struct qm_packed_slot *slot,
                       struct fused_work *w, int64_t first, int64_t count)
{
    uint32_t bits[BATCH + MOST] = {0};
    float stored[BATCH], second[BATCH] = {1, 1, 1, 1, 1, 1, 1, 1}, *by = w->by;
    max_each(w->max, bits);
    if (!slot[1].slope) {
        units(slot[1].c, bits + MOST, second, stored);
        memcpy(slot[1].scales + first, stored, sizeof *stored * (size_t)count);
    }
    units(slot[0].c, bits, by, stored);
    memcpy(slot[0].scales + first, stored, sizeof *stored * (size_t)count);
    memcpy(by + MOST, second, sizeof *by * MOST);
    if (how == BY_CELLS)
        cells_slopes(divides, by, w->slope);
    w->odd = 0;
    for (int b = 0; b < BATCH; b++)
        w->odd |= (by[b] == 0.0f) & (b % MOST < count);
}

/* Whether fused_rest has anything to do. */
INLINE int fused_has_rest(const struct fused_work *w)
{
    uint64_t doubt[sizeof w->doubt / 8], any = (uint64_t)w->odd;
    memcpy(doubt, w->doubt, sizeof doubt);
    for (size_t i = 0; i < sizeof doubt / sizeof *doubt; i++)
        any |= doubt[i];
    return any != 0;
}

/* What the loop has left of a batch: groups in doubt, blocks that are not ordinary. */
APART void fused_rest(enum finder how, int divides, const struct qm_packed_slot *s, const float *x,
                      const float *by, const uint8_t *doubt, int64_t from, int64_t count)
{
    const struct qm_codec *c = s->c;
    int64_t block = c->q.block;
    int four = is_four(how);
    for (int64_t i = 0; i < count * block; i += GROUP) {
        struct group g = unit_group(load_group(x + i, GROUP), by[i / block], divides);
        if (doubt[i / GROUP])
            put_group(s->packed, from + i, GROUP, four, c->q.pack == QM_PACK_hi,
                      four ? tree16_codes(c, x + i, GROUP, by[i / block]) : tree256_codes(c, &g));
    }
    for (int64_t b = 0; b < count; b++)
        if (by[b] == 0.0f)
            qm_encode_block(c, x + b * block, block,
                            s->packed + (from + b * block) / (four ? 2 : 1),
                            s->scales + from / block + b);
}

/* Likewise of a slot of norm rank1: n elements. */
APART void rank1_rest(const struct qm_packed_slot *s, const float *x, const uint8_t *doubt,
                      int64_t from, int64_t n)
{
    uint8_t codes[GROUP];
    for (int64_t i = 0; i < n; i += GROUP) {
        if (!doubt[i / GROUP])
            continue;
        qm_encode_range(s->c, s->shape, s->first + from + i, GROUP, x + i, s->stat, NULL, codes);
        qm_pack_range(s->c, codes, GROUP, s->packed + (from + i) / 2);
    }
}

/* Where the loop is. */
struct fused_at {
    float *p, *m, *v;                 /* a group whose parameters are due */
    int64_t block, most;              /* elements of a block, blocks of a batch */
    int64_t first, now, before, turn; /* first block; blocks of this batch and of the older */
    float none[3][GROUP];             /* due where nothing is */
    struct fused_place place, old;    /* rank1: of this batch's group and of the older's */
};

INLINE void ask_ahead(const float *p, const float *g)
{
    for (int k = AHEAD; k < AHEAD + GROUP; k += 16) {
        __builtin_prefetch(g + k, 0, 3);
        __builtin_prefetch(p + k, 1, 3);
    }
}

INLINE void fused_batch(enum finder how, int divides, int rank1, int does_rule, int does_encode,
                        fused_states *states, fused_apply *apply, const struct fused_rule *r,
                        struct fused_at *a, float *restrict p, const float *restrict g,
                        const struct fused_codec *c, struct fused_work *w)
{
    int four = is_four(how), turn = (int)a->turn;
    int64_t block = a->block, count = does_rule ? a->now : a->before;
    float *due = a->p, *due_m = a->m, *due_v = a->v;
    struct fused_place place = a->place, old_place = a->old;
    for (int64_t b = 0; b < count; b++) {
        group_max max0 = max_none(), max1 = max_none();
        float s0 = does_rule ? c[0].scales[a->first + b] : 0.0f;
        float s1 = does_rule && !rank1 ? c[1].scales[a->first + b] : 0.0f;
        for (int64_t i = 0; i < block; i += GROUP) {
            int64_t in = b * block + i, at = a->first * block + in, old = at - a->most * block;
            float *m = w->x[0][turn] + in, *v = w->x[1][turn] + in;
            if (does_rule) {
                ask_ahead(p + at, g + at);
                apply(r, due, due_m, due_v);
                store_group(m, GROUP, fused_decode(four, &c[0], at, s0));
                apply(r, due + QUARTER, due_m + QUARTER, due_v + QUARTER);
                store_group(v, GROUP,
                            rank1 ? rank1_decode(&c[1], at, &place)
                                  : fused_decode(four, &c[1], at, s1));
                apply(r, due + 2 * QUARTER, due_m + 2 * QUARTER, due_v + 2 * QUARTER);
            }
            if (does_encode)
                fused_encode(how, divides, c, w, 0, !turn, b, in, old);
            if (does_rule)
                apply(r, due + 3 * QUARTER, due_m + 3 * QUARTER, due_v + 3 * QUARTER);
            if (does_encode && rank1)
                rank1_encode(&c[1], w, w->x[1][!turn] + in, in, old, &old_place);
            else if (does_encode)
                fused_encode(how, divides, c, w, 1, !turn, b, in, old);
            if (does_encode && rank1)
                place_next(&old_place, &c[1]);
            if (does_rule && rank1)
                place_next(&place, &c[1]);
            if (does_rule) {
                int done = states(r, p + at, g + at, m, v);
                max0 = max_group(max0, load_group(m, GROUP));
                max1 = rank1 ? max1 : max_group(max1, load_group(v, GROUP));
                due = done ? a->none[0] : p + at;
                due_m = done ? a->none[1] : m;
                due_v = done ? a->none[2] : v;
            }
        }
        w->max[b] = max0;
        w->max[MOST + b] = max1;
    }
    a->p = due, a->m = due_m, a->v = due_v;
    a->place = place, a->old = old_place;
}

INLINE void fused_two(enum finder how, int divides, int rank1, fused_states *states,
                      fused_apply *apply, const struct fused_rule *r, int64_t n, float *restrict p,
                      const float *restrict g, const struct qm_packed_slot *slot)
{
    struct fused_at a = {.block = slot[0].c->q.block};
    struct fused_work w;
    struct fused_codec c[2];
    int64_t blocks = n / a.block;
    a.most = FUSED / a.block < MOST ? FUSED / a.block : MOST;
    a.p = a.none[0], a.m = a.none[1], a.v = a.none[2];
    memset(w.max, 0, sizeof w.max);
    memset(w.doubt, 0, sizeof w.doubt);
    for (int k = 0; k < 2; k++) {
        memcpy(c[k].value, slot[k].c->cb.value, sizeof c[k].value);
        c[k].high_first = slot[k].c->q.pack == QM_PACK_hi;
        load_finder(how, &c[k].finders, slot[k].c);
        planes_load(&c[k].planes, is_four(how), slot[k].c);
        c[k].scales = slot[k].scales;
        c[k].packed = slot[k].packed;
        c[k].slope = slot[k].slope;
        c[k].rows = rank1 ? slot[k].shape->dim[0] : 0;
        c[k].cols = rank1 ? slot[k].shape->dim[1] : 1;
    }
    a.place = a.old = (struct fused_place){slot[1].first / c[1].cols, slot[1].first % c[1].cols};
    for (; a.first < blocks || a.before > 0; a.first += a.most, a.turn ^= 1) {
        a.now = blocks - a.first < a.most ? blocks - a.first : a.most;
        a.now = a.now > 0 ? a.now : 0;
        if (a.now == a.most && a.before == a.most) {
            fused_batch(how, divides, rank1, 1, 1, states, apply, r, &a, p, g, c, &w);
        } else {
            fused_batch(how, divides, rank1, 0, 1, states, apply, r, &a, p, g, c, &w);
            fused_batch(how, divides, rank1, 1, 0, states, apply, r, &a, p, g, c, &w);
        }
        if (a.before > 0 && fused_has_rest(&w))
            for (int k = 0; k < (rank1 ? 1 : 2); k++)
                fused_rest(how, divides, &slot[k], w.x[k][!a.turn], w.by + MOST * k, w.doubt[k],
                           (a.first - a.most) * a.block, a.before);
        if (a.before > 0 && rank1 && fused_has_rest(&w))
            rank1_rest(&slot[1], w.x[1][!a.turn], w.doubt[1], (a.first - a.most) * a.block,
                       a.before * a.block);
        if (a.now > 0)
            fused_units(how, divides, slot, &w, a.first, a.now);
        a.before = a.now;
    }
    for (int k = 0; k < 4; k++)
        apply(r, a.p + k * QUARTER, a.m + k * QUARTER, a.v + k * QUARTER);
}

/* Pass of a slot of norm rank1 whose maxima are folded. */
typedef void fused_second(const struct fused_rule *r, const float *restrict g, float *restrict v);

INLINE void rank1_fold(fused_second *second, const struct fused_rule *r, int64_t n,
                       const float *restrict g, const struct qm_packed_slot *s)
{
    struct fused_codec c = {.high_first = s->c->q.pack == QM_PACK_hi,
                            .scales = s->scales,
                            .packed = s->packed,
                            .rows = s->shape->dim[0],
                            .cols = s->shape->dim[1]};
    struct fused_place at = {s->first / c.cols, s->first % c.cols};
    float v[GROUP], *col = s->fold + c.rows;
    memcpy(c.value, s->c->cb.value, sizeof c.value);
    for (int64_t i = 0; i < n;) {
        group_max all = max_none();
        int64_t row = at.row;
        for (; i < n && at.row == row; i += GROUP) {
            for (int k = AHEAD; k < AHEAD + GROUP; k += 16)
                __builtin_prefetch(g + i + k, 0, 3);
            store_group(v, GROUP, rank1_decode(&c, i, &at));
            second(r, g + i, v);
            all = max_each_too(all, load_group(v, GROUP), col + at.col);
            place_next(&at, &c);
        }
        uint32_t bits = max_all(all);
        s->fold[row] = bits > qm_bits(s->fold[row]) ? qm_float(bits) : s->fold[row];
    }
}

/* Whether a slot is for fused_two by this finder. */
static inline int fused_fits(enum finder how, int divides, const struct qm_packed_slot *slot)
{
    const struct qm_codec *c = slot->c;
    return !slot->slope && by_groups(c) && !c->has_steps && !c->q.scale.keep_sign &&
           group_finder(c) == how && (c->q.unit == QM_UNIT_div) == divides && c->q.block <= FUSED;
}

/* fused_two by the finder of the slots: 0 where there is none.  `divides` as the sources of the rule
 * make unit values. */
#define FITS_TWO(how, divides, slot)                                                 \
    (fused_fits(how, divides, &(slot)[0]) && fused_fits(how, divides, &(slot)[1]) && \
     (slot)[0].c->q.block == (slot)[1].c->q.block)
#define FUSED_TWO(divides, states, apply, r, n, p, g, slot)                      \
    (FITS_TWO(BY_CELLS, divides, slot)                                           \
         ? (fused_two(BY_CELLS, divides, 0, states, apply, r, n, p, g, slot), 1) \
     : FITS_TWO(BY_LINES, divides, slot)                                         \
         ? (fused_two(BY_LINES, divides, 0, states, apply, r, n, p, g, slot), 1) \
         : 0)
/* Likewise with a second slot of norm rank1. */
#define FUSED_RANK1(states, apply, r, n, p, g, slot)                       \
    (fused_fits(BY_CELLS, 1, &(slot)[0]) && (slot)[1].slope                \
         ? (fused_two(BY_CELLS, 1, 1, states, apply, r, n, p, g, slot), 1) \
         : 0)
#else
#define QM_HAS_FUSED 0
#endif

#endif
