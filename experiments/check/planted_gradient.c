/* planted_gradient.c - Aims gradients at codebook points and thresholds (classes planted, exact).
 *
 * Some elements are anchors: they get the largest new state, so that the scale of every group is
 * known beforehand.  The others are aimed at unit values y on the codebook or on thresholds: the
 * gradient is solved for so that the new state is y times the divisor, give or take 0 to 3 ulp.
 * The slots take turns, by blocks of 128 elements or of their own block size. */
#include <math.h>

#include "experiments/check/gradient_parts.h"
#include "oracle/bound/bound.h"

int64_t qm_plant_block(const struct qm_aim *a, int slot)
{
    const struct qm_decider *d = a->slot[slot];
    return d && d->q.norm == QM_NORM_block && d->q.block > 1 ? d->q.block : 128;
}

/* 1: the elements of a scale are not one run of consecutive elements. */
static int is_strided(const struct qm_aim *a, int slot)
{
    const struct qm_decider *d = a->slot[slot];
    return d && d->q.norm != QM_NORM_block && !(d->q.norm == QM_NORM_rank1 && a->shape->rank < 2);
}

/* 1: element i holds the largest value of its groups.  Anchors are the last element of each
 * block; for strided scales, the diagonal of the last axis against all others, and the last of
 * the tensor. */
static int is_anchor(const struct qm_aim *a, int slot, int64_t i)
{
    int64_t block = qm_plant_block(a, slot), rows, cols;
    if (i == a->n - 1 || (!is_strided(a, slot) && i % block == block - 1))
        return 1;
    if (!is_strided(a, slot) || a->shape->rank < 2)
        return 0;
    cols = a->shape->dim[a->shape->rank - 1];
    rows = a->n / cols;
    return i % cols == i / cols % cols || i / cols == i % cols % rows;
}

static int64_t anchor_of(const struct qm_aim *a, int slot, int64_t i)
{
    int64_t block = qm_plant_block(a, slot), last = i / block * block + block - 1;
    return last < a->n && !is_strided(a, slot) ? last : a->n - 1;
}

/* 1: the slot is never negative, an average of squares. */
static int is_square(const struct qm_aim *a, int slot) { return !a->recipe->rule->slot_sign[slot]; }

static int is_planted(const struct qm_aim *a, int slot)
{
    return a->slot[slot] && a->weight[slot].give != 0.0;
}

/* The planted slot whose turn the block of element i is; -1: no slot is planted. */
static int planted_slot(const struct qm_aim *a, int64_t i)
{
    int which[QM_MAX_SLOTS], n = 0;
    int64_t block = 128;
    for (int s = 0; s < a->recipe->rule->n_slots; s++)
        if (is_planted(a, s)) {
            block = qm_plant_block(a, s) > block || n == 0 ? qm_plant_block(a, s) : block;
            which[n++] = s;
        }
    return n ? which[i / block % n] : -1;
}

/* The first planted slot of squares, or of other numbers; -1: none. */
static int first_slot(const struct qm_aim *a, int squares)
{
    for (int s = 0; s < a->recipe->rule->n_slots; s++)
        if (is_planted(a, s) && is_square(a, s) == squares)
            return s;
    return -1;
}

/* Value or threshold `at` in order, counted round and round, so that so many elements in a row have
 * them all.  Where the rounding draws, one value in four is moved by 2^-9 to 2^-13 of its distance
 * from a neighbour, which rounding must reach that seldom. */
static double aimed_unit(const struct qm_decider *d, uint64_t at, uint32_t word)
{
    int k = (int)(at % (uint64_t)(2 * d->n - 1)), next = k / 2 + (word & 1u ? 1 : -1);
    double value = d->value[k / 2];
    if (k % 2)
        return d->cut[k / 2].at;
    if (qm_round_draws(d->q.round) && word >> 1 & 1u && next >= 0 && next < d->n)
        return value + ldexp(d->value[next] - value, -9 - (int)(word >> 2) % 5);
    return value;
}

/* The whole number that divides the largest element of a group into its scale.  Where it divides
 * the element of largest magnitude exactly, the scale and the ties of codes are exact. */
static double whole_divisor(const struct qm_decider *d) { return rint(1.0 / d->gain); }

/* The largest gradient of step k of the case: a power of two that outgrows the carried state, times
 * the divisor of the first slot's scale. */
static double anchor_gradient(const struct qm_aim *a, int k)
{
    const struct qm_decider *d = a->slot[0];
    return ldexp(d ? whole_divisor(d) : 1.0, 2 * k - 6 + a->power);
}

/* The divisor of an anchor's group, from the anchor's gradient g and state. */
static double planted_divisor(const struct qm_aim *a, int slot, double state, double g)
{
    const struct qm_aim_weight *w = &a->weight[slot];
    double fresh = w->keep * state + w->give * (is_square(a, slot) ? g * g : g);
    return qm_round_float32(fabs(fresh)) * a->slot[slot]->gain;
}

float qm_planted_gradient(const struct qm_aim *a, int64_t t, int k, int64_t i)
{
    int slot = planted_slot(a, i);
    uint32_t word = qm_case_draw(a, QM_STREAM_PLANT, t, i), sign = word & 1u;
    double g = anchor_gradient(a, k);
    if (slot < 0)
        return (float)(g * qm_case_normal(a, QM_STREAM_GRADIENT, t, i) / 8.0);
    for (int s = 0; s < a->recipe->rule->n_slots; s++)
        if (is_planted(a, s) && is_anchor(a, s, i))
            return (float)g;
    const struct qm_aim_weight *w = &a->weight[slot];
    double by = planted_divisor(a, slot, (double)a->state[slot][anchor_of(a, slot, i)], g);
    uint32_t from = qm_case_draw(a, QM_STREAM_PLANT, t, -2);
    double y = aimed_unit(a->slot[slot], (uint64_t)from + (uint64_t)i, word >> 8);
    int ulps = (int)(word >> 1 & 15u) - 3; /* half of them exact */
    float target = qm_steps_from((float)(by * y), ulps > 3 ? 0 : ulps);
    double needed = ((double)target - w->keep * (double)a->state[slot][i]) / w->give;
    if (is_square(a, slot))
        needed = needed > 0.0 ? (sign ? -sqrt(needed) : sqrt(needed)) : 0.0;
    return fabs(needed) <= g ? (float)needed : 0.0f; /* |needed| > g would exceed the anchor */
}

/* Class exact.  With beta1 = 0 the new first moment is g itself; with beta2 = 1/2 the new second
 * moment is (v + g^2) / 2.  Anchors of the second moment have v = s and g = 0, so the divisor is s
 * / 2; s = 32 * 4^e lets g = 2^e reach the ties of an evenly spaced map without any rounding.  In
 * every other block anchors have v = s = 16 * 4^e and g^2 = s, so that s stays the divisor and the
 * others are halved; where v is a sum it doubles, and the others stay.  For strided scales e = 0,
 * and first moments up to 4 stay below the anchors. */
static uint32_t exact_word(const struct qm_aim *a, int slot, int64_t i)
{
    return qm_case_draw(a, QM_STREAM_PLANT, 0, i / qm_plant_block(a, slot));
}

static int is_moved(const struct qm_aim *a, int slot, int64_t i)
{
    return !is_strided(a, slot) && (exact_word(a, slot, i) >> 8 & 1u);
}

static double exact_scale(const struct qm_aim *a, int slot, int64_t i)
{
    int power = is_strided(a, slot) ? 6 : (int)(exact_word(a, slot, i) % 9u);
    return ldexp(is_moved(a, slot, i) ? 16.0 : 32.0, 2 * power - 12);
}

static float exact_anchor(const struct qm_aim *a, int slot, int64_t i)
{
    return is_moved(a, slot, i) ? (float)sqrt(exact_scale(a, slot, i)) : 0.0f;
}

int qm_case_load(const struct qm_case *c, const struct qm_aim *a, int slot, int64_t n_scales,
                 uint8_t *codes, float *scales)
{
    const struct qm_decider *d = a->slot[slot];
    if (c->kind != QM_CLASS_exact || slot != first_slot(a, 1) || d->q.curve != QM_CURVE_none)
        return 0;
    for (int64_t i = 0; i < a->n; i++) {
        int k = d->n_negative +
                (int)(qm_case_draw(a, QM_STREAM_START, 1, i) % (uint32_t)(d->n - d->n_negative));
        if (is_anchor(a, slot, i))
            k = d->n - 1;
        else if (is_strided(a, slot) && planted_slot(a, i) != slot)
            k = d->n_negative;
        codes[i] = d->code_of[k];
    }
    for (int64_t b = 0; b < n_scales; b++)
        scales[b] = (float)exact_scale(a, slot, b * qm_plant_block(a, slot));
    return 1;
}

/* The gradient that moves the second moment from `kept` onto a threshold: none where it is on one
 * and `stays`, else the first threshold that some float32 g reaches exactly, else the last one
 * above `kept`.  The thresholds of dynamic maps are hardly ever squares, but halves of their values
 * are thresholds often. */
static float exact_second(const struct qm_decider *d, double by, double kept, double give,
                          int stays)
{
    double best = 0.0;
    int found = 0;
    for (int j = 0; j + 1 < d->n && stays; j++)
        if (by * d->cut[j].at == kept)
            return 0.0f;
    for (int j = 0; j + 1 < d->n && !found; j++) {
        double square = (by * d->cut[j].at - kept) / give;
        if (!(square > 0.0))
            continue;
        best = qm_round_float32(sqrt(square));
        found = best * best == square;
    }
    return (float)best;
}

static float exact_first(const struct qm_aim *a, int slot, int64_t t, int64_t i, uint32_t word)
{
    const struct qm_decider *d = a->slot[slot];
    const struct qm_aim_weight *w = &a->weight[slot];
    int square = first_slot(a, 1),
        wide = is_strided(a, slot) || (square >= 0 && is_strided(a, square));
    uint32_t power = qm_case_draw(a, QM_STREAM_PLANT, t, -1 - i / qm_plant_block(a, slot));
    float by = ldexpf(1.0f, wide ? (int)(power % 5u) - 2 : (int)(power % 17u) - 8);
    if (is_strided(a, slot))
        by = 1.0f;
    else if (power & 256u) /* not a power of two: the unit value is rounded, the state is not */
        by *= 1.0f + (float)(power >> 9) * 0x1p-23f;
    else
        by *= (float)whole_divisor(d);
    float target = (float)(qm_round_float32((double)by * d->gain) * aimed_unit(d, word >> 4, 0));
    target = qm_steps_from(target, (int)((word >> 1) & 7u) - 3);
    if (is_anchor(a, slot, i))
        target = by;
    else if (!(fabsf(target) <= by))
        target = 0.0f;
    return (float)(((double)target - w->keep * (double)a->state[slot][i]) / w->give);
}

/* Curve expand, of which the exponent is a whole number of steps, rounded down: ratios of the
 * largest to the least just above and below where it is one, of gradients or of their squares, by
 * 2^-6 to 2^-19; the same in every step, so that an average of squares keeps them. */
static float expand_edge(const struct qm_aim *a, int64_t i, uint32_t of, uint32_t word)
{
    enum { LEAST = 18, MULTIPLES = 60 };
    static const double range = 100352.0; /* largest over least of the powers */
    int64_t block = a->recipe->slot[0].block;
    double whole = LEAST + of % MULTIPLES,
           off = ldexp(of >> 6 & 1 ? 1.0 : -1.0, -6 - (int)(of >> 7) % 14);
    double log_ratio = log2(range) * a->recipe->slot[0].expand / whole + off;
    double at = i % block == 0 ? 1.0 : i % block == 1 ? 0.0 : (double)(word >> 8) * 0x1p-24;
    float x = (float)exp2((of >> 30 & 1 ? 0.5 : 1.0) * log_ratio * at);
    return word & 16u ? -x : x;
}

/* Curve expand, e4m3, of which a power is exact where its base is 1: the element c, the centre, has
 * the unit value 1 / scale.  With the largest element M, the least 1 / M and the exponent 1, c is
 * 1, so that a reciprocal of it is exact, too, and the scale is M / 448.  M is the one with which
 * 1 / scale is a mid-point between two numbers of the format.  All are multiplied by a power of
 * two. */
static float expand_tie(const struct qm_aim *a, int64_t t, int64_t i, uint32_t word)
{
    enum { MIDS = 5, NEAR = 16 };
    int64_t block = a->recipe->slot[0].block;
    uint32_t kept = qm_case_draw(a, QM_STREAM_PLANT, 0, -1 - i / block);
    if (kept >> 30 == 3)
        return expand_edge(a, i, kept, word);
    uint32_t of = qm_case_draw(a, QM_STREAM_PLANT, t, -1 - i / block);
    float mid = 1.4375f + 0.125f * (float)(of % MIDS), most = 0.0f, least = 0.0f;
    for (int k = 0, is_tie = 0; k < 2 * NEAR && !is_tie; k++) {
        most = qm_steps_from(448.0f / mid, k % 2 ? k / 2 : -k / 2);
        least = 1.0f / most;
        is_tie = 1.0f / (most / 448.0f) == mid && sqrtf(most) * sqrtf(least) == 1.0f;
    }
    float x = i % block == 0 ? most : i % block == 1 || word % 4 == 0 ? least : 1.0f;
    if (of >> 12 & 1) /* the reduction by lanes loses the quarters: an infinite exponent */
        x = i % block % 32 == 1 ? 0.0f : i % 2 ? 0.25f : 1.0f;
    return ldexpf(word & 16u ? -x : x, 2 * (int)(of >> 8 & 15) - 16);
}

/* Curve affine, of a slot that keeps what the gradient is added to.  The sum is a whole or half
 * number of steps between the ends -(top + 1) / 2 and (top - 1) / 2, so that the steps and the ties
 * between codes are exact.  Both ends come so often that some stay where a rule takes the largest
 * elements out. */
static float affine_tie(const struct qm_aim *a, int64_t i, uint32_t word)
{
    int top = (1 << a->recipe->slot[0].bits) - 1, halves = (int)((word >> 8) % (uint32_t)(2 * top));
    int is_end = word % 4 == 0, to = (is_end ? (word & 4u ? 2 * top : 0) : halves) - (top + 1);
    double unit = ldexp(1.0, (int)(qm_case_draw(a, QM_STREAM_PLANT, 0, -1) % 17u) - 8);
    return (float)(0.5 * unit * (double)to - (double)a->state[0][i]);
}

float qm_aimed_gradient(const struct qm_aim *a, int64_t t, int k, int64_t i)
{
    int slot = planted_slot(a, i), square = first_slot(a, 1);
    uint32_t word = qm_case_draw(a, QM_STREAM_PLANT, t, i);
    if (slot < 0 && a->recipe->slot[0].bits && a->recipe->slot[0].curve == QM_CURVE_affine)
        return affine_tie(a, i, word);
    if (slot < 0 && a->recipe->slot[0].bits && a->recipe->slot[0].curve == QM_CURVE_expand)
        return expand_tie(a, t, i, word);
    if (slot < 0)
        return (float)qm_case_normal(a, QM_STREAM_GRADIENT, t, i);
    if (square >= 0 && is_anchor(a, square, i) && (slot == square || is_strided(a, square)))
        return k > 0 ? 0.0f : exact_anchor(a, square, i);
    if (slot != square)
        return exact_first(a, slot, t, i, word);
    const struct qm_aim_weight *w = &a->weight[square];
    int64_t at = anchor_of(a, square, i);
    double to = k > 0 ? 0.0 : (double)exact_anchor(a, square, at);
    double by = (w->keep * (double)a->state[square][at] + w->give * to * to) /
                whole_divisor(a->slot[square]);
    float g = exact_second(a->slot[square], by, w->keep * (double)a->state[square][i], w->give,
                           word >> 1 & 1);
    return k > 0 ? 0.0f : word & 1u ? -g : g;
}
