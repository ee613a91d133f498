/* packed_blocks.h - Decodes, updates and encodes two slots of packed blocks in one loop.
 *
 * For files that are compiled once per instruction set; needs AVX-512 VBMI and VBMI2.  A block can
 * be encoded only after all of it was updated, since its scale comes from its largest value.  So
 * the loop goes batch by batch: while it decodes and updates one batch of blocks, group by group,
 * it encodes the batch before, whose maxima are known.  The table look-ups of encoding then fill
 * the time in which the updates wait for square roots and divisions. */
#ifndef QM_RULE_PACKED_BLOCKS_H
#define QM_RULE_PACKED_BLOCKS_H

#include "core/quant/simd_group.h"
#include "core/rule/rule.h"

#if defined(__AVX512VBMI__) && defined(__AVX512VBMI2__)
#define QM_HAS_FUSED 1

/* FUSED: elements of a batch.  QUARTER: elements of a quarter of a group.  AHEAD: elements between
 * those in work and those that are prefetched; the loop reads parameters and gradients too slowly
 * for the prefetcher of the processor. */
enum { FUSED = 1024, QUARTER = GROUP / 4, AHEAD = 512 };

/* Before a loop none of whose arrays overlap. */
#ifdef __clang__
#define APART_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define APART_LOOP _Pragma("GCC ivdep")
#endif

/* The scalars of a step, copied to a local object that no other pointer reaches. */
struct fused_rule {
    float c[16];
    struct qm_inverse reciprocal[2];
    int multiplies; /* 1: `apply` multiplies by reciprocals instead of dividing */
};

/* `states` updates the moments of a group in place.  It returns 1 if it has updated the parameters
 * of the group too; otherwise `apply` updates them later, a quarter of the group at a time. */
typedef int fused_states(const struct fused_rule *r, float *restrict p, const float *restrict g,
                         float *restrict m, float *restrict v);
typedef void fused_apply(const struct fused_rule *r, float *restrict p, const float *restrict m,
                         const float *restrict v);

/* A kind of loop: constants, for which the loop is compiled.  divides: codes are found for x /
 * scale, otherwise for x * (1 / scale).  rank1: slot 1 has norm rank1. */
struct fused_kind {
    int divides, rank1;
    fused_states *states;
    fused_apply *apply;
};

/* MOST: blocks of a batch.  STRIDE: floats of an array of a batch, such that the arrays do not all
 * begin at the same place of a page. */
enum { MOST = BATCH / 2, STRIDE = FUSED + 272 };

/* Two batches in work.  x[k][turn] holds the new values of slot k; the rest describes the older
 * batch, whose block b of slot k has index MOST k + b. */
struct fused_work {
    float x[2][2][STRIDE];
    group_max max[BATCH];            /* of the batch that is being updated */
    float by[BATCH], slope[BATCH];   /* divisor or factor, 0: not ordinary; BY_CELLS: slope */
    uint8_t doubt[2][FUSED / GROUP]; /* 1: the codes of the group must be searched again */
    int odd;                         /* 1: a block is not ordinary */
};

/* The parts of a codec that the loop reads. */
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

/* The row and the column of a group's first element in its matrix. */
struct fused_place {
    int64_t row, col;
};

/* A group: its block in the batch, its first element in the batch and in the slot. */
struct fused_group {
    int64_t block, in, at;
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

/* Encodes a group of slot 1, which has norm rank1. */
INLINE void rank1_encode(const struct fused_codec *c, struct fused_work *w, int turn,
                         struct fused_group k, const struct fused_place *place)
{
    int doubt;
    struct group slope = larger_group(c->slope[place->row], c->slope + c->rows + place->col);
    put_group(
        c->packed + (k.at >> 1), 0, GROUP, 1, c->high_first,
        cells_look(&c->finders.cells, load_group(w->x[1][turn] + k.in, GROUP), slope, &doubt));
    w->doubt[1][k.in / GROUP] = (uint8_t)(doubt | any_odd(slope));
}

/* Encodes a group of a slot of the older batch. */
INLINE void fused_encode(enum finder how, int divides, const struct fused_codec *c,
                         struct fused_work *w, int slot, int turn, struct fused_group k)
{
    int doubt = 0, four = is_four(how);
    struct group x = load_group(w->x[slot][turn] + k.in, GROUP);
    int64_t b = MOST * slot + k.block;
    group_codes codes =
        how == BY_CELLS
            ? cells_look(&c[slot].finders.cells, x, same_group(w->slope[b]), &doubt)
            : lines_look(&c[slot].finders.lines, unit_group(x, w->by[b], divides), &doubt);
    put_group(c[slot].packed + (four ? k.at >> 1 : k.at), 0, GROUP, four, c[slot].high_first,
              codes);
    w->doubt[slot][k.in / GROUP] = (uint8_t)doubt;
}

/* Scales, divisors and slopes of a batch of `count` blocks from their maxima. */
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

/* 1: fused_rest or rank1_rest has something to do. */
INLINE int fused_has_rest(const struct fused_work *w)
{
    uint64_t doubt[sizeof w->doubt / 8], any = (uint64_t)w->odd;
    memcpy(doubt, w->doubt, sizeof doubt);
    for (size_t i = 0; i < sizeof doubt / sizeof *doubt; i++)
        any |= doubt[i];
    return any != 0;
}

/* Encodes what the loop could not: groups in doubt, and blocks that are not ordinary. */
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

/* The same for n elements of a slot with norm rank1. */
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

/* The state of the loop. */
struct fused_at {
    float *p; /* all parameters and gradients */
    const float *g;
    float *due_p, *due_m, *due_v;  /* the group whose parameters `apply` has to update */
    float none[3][GROUP];          /* takes the place of that group where there is none */
    int64_t block, most;           /* elements of a block; blocks of a batch */
    int64_t first;                 /* first block of the batch that is being updated */
    int64_t now, before;           /* blocks of that batch, and of the older batch */
    int turn;                      /* index of that batch in fused_work.x */
    struct fused_place place, old; /* rank1: of the group being updated, and being encoded */
};

INLINE void ask_ahead(const float *p, const float *g)
{
    for (int k = AHEAD; k < AHEAD + GROUP; k += 16) {
        __builtin_prefetch(g + k, 0, 3);
        __builtin_prefetch(p + k, 1, 3);
    }
}

/* One pass over a batch: decodes and updates the batch in work if does_rule, encodes the older
 * batch if does_encode.  The parameters of a group are updated during the next group, in quarters
 * between the other work. */
INLINE void fused_batch(enum finder how, const struct fused_kind *kind, int does_rule,
                        int does_encode, const struct fused_rule *r, struct fused_at *a,
                        const struct fused_codec *c, struct fused_work *w)
{
    int four = is_four(how), turn = a->turn, rank1 = kind->rank1;
    int64_t block = a->block, count = does_rule ? a->now : a->before;
    float *restrict p = a->p, *due = a->due_p, *due_m = a->due_m, *due_v = a->due_v;
    const float *restrict g = a->g;
    struct fused_place place = a->place, old_place = a->old;
    for (int64_t b = 0; b < count; b++) {
        group_max max0 = max_none(), max1 = max_none();
        float s0 = does_rule ? c[0].scales[a->first + b] : 0.0f;
        float s1 = does_rule && !rank1 ? c[1].scales[a->first + b] : 0.0f;
        for (int64_t i = 0; i < block; i += GROUP) {
            int64_t in = b * block + i, at = a->first * block + in;
            const struct fused_group old = {b, in, at - a->most * block};
            float *m = w->x[0][turn] + in, *v = w->x[1][turn] + in;
            if (does_rule) {
                ask_ahead(p + at, g + at);
                kind->apply(r, due, due_m, due_v);
                store_group(m, GROUP, fused_decode(four, &c[0], at, s0));
                kind->apply(r, due + QUARTER, due_m + QUARTER, due_v + QUARTER);
                store_group(v, GROUP,
                            rank1 ? rank1_decode(&c[1], at, &place)
                                  : fused_decode(four, &c[1], at, s1));
                kind->apply(r, due + 2 * QUARTER, due_m + 2 * QUARTER, due_v + 2 * QUARTER);
            }
            if (does_encode)
                fused_encode(how, kind->divides, c, w, 0, !turn, old);
            if (does_rule)
                kind->apply(r, due + 3 * QUARTER, due_m + 3 * QUARTER, due_v + 3 * QUARTER);
            if (does_encode && rank1)
                rank1_encode(&c[1], w, !turn, old, &old_place);
            else if (does_encode)
                fused_encode(how, kind->divides, c, w, 1, !turn, old);
            if (does_encode && rank1)
                place_next(&old_place, &c[1]);
            if (does_rule && rank1)
                place_next(&place, &c[1]);
            if (does_rule) {
                int done = kind->states(r, p + at, g + at, m, v);
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
    a->due_p = due, a->due_m = due_m, a->due_v = due_v;
    a->place = place, a->old = old_place;
}

INLINE void load_codecs(enum finder how, int rank1, const struct qm_packed_slot *slot,
                        struct fused_codec *c)
{
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
}

/* The step of n elements in whole blocks. */
INLINE void fused_two(enum finder how, const struct fused_kind *kind, const struct fused_rule *r,
                      int64_t n, float *restrict p, const float *restrict g,
                      const struct qm_packed_slot *slot)
{
    const int divides = kind->divides, rank1 = kind->rank1;
    struct fused_at a = {.p = p, .g = g, .block = slot[0].c->q.block};
    struct fused_work w;
    struct fused_codec c[2];
    int64_t blocks = n / a.block;
    a.most = FUSED / a.block < MOST ? FUSED / a.block : MOST;
    a.due_p = a.none[0], a.due_m = a.none[1], a.due_v = a.none[2];
    memset(w.max, 0, sizeof w.max);
    memset(w.doubt, 0, sizeof w.doubt);
    load_codecs(how, rank1, slot, c);
    a.place = a.old = (struct fused_place){slot[1].first / c[1].cols, slot[1].first % c[1].cols};
    for (; a.first < blocks || a.before > 0; a.first += a.most, a.turn ^= 1) {
        a.now = blocks - a.first < a.most ? blocks - a.first : a.most;
        a.now = a.now > 0 ? a.now : 0;
        if (a.now == a.most && a.before == a.most) {
            fused_batch(how, kind, 1, 1, r, &a, c, &w);
        } else {
            fused_batch(how, kind, 0, 1, r, &a, c, &w);
            fused_batch(how, kind, 1, 0, r, &a, c, &w);
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
        kind->apply(r, a.due_p + k * QUARTER, a.due_m + k * QUARTER, a.due_v + k * QUARTER);
}

/* A pass over n elements of a packed second moment with norm rank1: `second` updates it, and its
 * new row and column maxima are folded into s->fold. */
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

/* 1: fused_two can encode this slot of plain blocks by this finder. */
static inline int fused_fits(enum finder how, int divides, const struct qm_packed_slot *slot)
{
    const struct qm_codec *c = slot->c;
    return !slot->slope && by_groups(c) && !c->has_steps && !c->q.scale.keep_sign &&
           group_finder(c) == how && (c->q.unit == QM_UNIT_div) == divides && c->q.block <= FUSED;
}

static inline int fused_fits_two(enum finder how, int divides, const struct qm_packed_slot *slot)
{
    return fused_fits(how, divides, &slot[0]) && fused_fits(how, divides, &slot[1]) &&
           slot[0].c->q.block == slot[1].c->q.block;
}

/* fused_two by the finder that the slots need; returns 0 and does nothing where there is none. */
INLINE int fused_step(const struct fused_kind *kind, const struct fused_rule *r, int64_t n,
                      float *restrict p, const float *restrict g, const struct qm_packed_slot *slot)
{
    if (kind->rank1) {
        if (!fused_fits(BY_CELLS, 1, &slot[0]) || !slot[1].slope)
            return 0;
        fused_two(BY_CELLS, kind, r, n, p, g, slot);
    } else if (fused_fits_two(BY_CELLS, kind->divides, slot)) {
        fused_two(BY_CELLS, kind, r, n, p, g, slot);
    } else if (fused_fits_two(BY_LINES, kind->divides, slot)) {
        fused_two(BY_LINES, kind, r, n, p, g, slot);
    } else {
        return 0;
    }
    return 1;
}
#else
#define QM_HAS_FUSED 0
#endif

#endif
