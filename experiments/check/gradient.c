/* gradient.c - Draws the gradients of each class, including planted ones.
 *
 * Planting.  Some elements are anchors: they get the largest new state, so that the scale of every
 * group is known beforehand.  The others are aimed at unit values y on the codebook or on
 * thresholds: the gradient is solved for so that the new state is y times the divisor, give or take
 * 0 to 3 ulp.  The slots take turns, by blocks of 128 elements or of their own block size. */
#include <gsl/gsl_cdf.h>
#include <math.h>
#include <string.h>

#include "core/base/philox.h"
#include "experiments/check/cases.h"
#include "oracle/bound/bound.h"

/* Tensor numbers of the random counter; the judged tensor draws as number 1. */
enum { STREAM_START = 101, STREAM_GRADIENT = 102, STREAM_PLANT = 103, STREAM_STATE = 104 };

static uint32_t draw(const struct qm_aim *a, uint32_t stream, int64_t t, int64_t i)
{
    struct qm_draws d = qm_draws_for(a->seed, t, stream, QM_ROLE_spare);
    return qm_draw(&d, i);
}

static double uniform(uint32_t word) { return ((double)word + 0.5) * 0x1p-32; }

/* Draws i to i + 3, for i a multiple of 4; one block of Philox holds four. */
static struct qm_philox_block draws(const struct qm_aim *a, uint32_t stream, int64_t t, int64_t i)
{
    struct qm_draws d = qm_draws_for(a->seed, t, stream, QM_ROLE_spare);
    uint64_t block = (uint64_t)i >> 2;
    return qm_philox((uint32_t)block, (uint32_t)(block >> 32), d.step, d.stream, (uint32_t)d.seed,
                     (uint32_t)(d.seed >> 32));
}

static double normal_of(uint32_t word) { return gsl_cdf_ugaussian_Pinv(uniform(word)); }

static double normal(const struct qm_aim *a, uint32_t stream, int64_t t, int64_t i)
{
    return normal_of(draw(a, stream, t, i));
}

/* Class swamped, gradients and parameters: at one place of the longest axis numbers so large that
 * the squares of all others are below half an ulp of theirs.  A sum that takes them one by one
 * loses those; a tree does not. */
static float swamped(const struct qm_aim *a, int64_t i, uint32_t word)
{
    int64_t stride = 1, longest = 0, apart = 1;
    for (int k = a->shape->rank - 1; k >= 0; k--) {
        if (a->shape->dim[k] > longest) {
            longest = a->shape->dim[k];
            apart = stride;
        }
        stride *= a->shape->dim[k];
    }
    int64_t place = draw(a, STREAM_PLANT, 0, -1) & 1u ? longest / 2 : 0;
    int is_large = longest == 0 || i / apart % longest == place;
    double x = is_large ? ldexp(1.0 + uniform(word), 13) : 1.0 + uniform(word) * 0.99;
    return (float)(word & 1u ? -x : x);
}

/* A NaN of either sign: the pattern that a GPU computes, the one that the CPU does, one with other
 * bits, and a signalling one. */
static float a_nan(uint32_t word)
{
    static const uint32_t patterns[] = {0x7fffffff, 0x7fc00000, 0xffffffff, 0x7f800001,
                                        0xffc00000, 0x7fa55a5b, 0x7fffffff, 0x7fff8000};
    float x;
    memcpy(&x, &patterns[word % 8], sizeof x);
    return x;
}

/* Numbers that arithmetic treats apart, in place of x[i] for some i. */
static void odd_numbers(const struct qm_aim *a, uint32_t stream, int64_t n, int is_signed, float *x)
{
    static const float odd[] = {INFINITY,   -INFINITY, 0.0f,        -0.0f,           0x1p-149f,
                                -0x1p-149f, 0x1p-126f, 0x1.8p-130f, 0x1.fffffep127f, 0x1p-127f};
    enum { ODD = sizeof odd / sizeof *odd };
    for (int64_t i = 0; i < n; i++) {
        uint32_t word = draw(a, stream, 2, i);
        uint32_t which = (word >> 8) % (ODD + 2);
        float to = which < ODD ? odd[which] : a_nan(word >> 20);
        if (word % 8 == 0 || i == 0)
            x[i] = is_signed ? to : fabsf(to);
    }
}

void qm_case_start(const struct qm_case *c, const struct qm_aim *a, float *p)
{
    struct qm_philox_block b = {{0}};
    int power = qm_case_power(c, QM_POWER_p);
    int has_tail = a->n > QM_LARGE && !a->recipe->rule->elementwise;
    int is_still = c->kind == QM_CLASS_zeros || c->kind == QM_CLASS_signedzeros;
    for (int64_t i = 0; i < a->n; i++) {
        if (i % 4 == 0)
            b = draws(a, STREAM_START, 0, i);
        p[i] = i % 13 == 5 ? 0.0f : i % 17 == 3 ? 1000.0f : (float)normal_of(b.word[i % 4]);
        if (c->kind == QM_CLASS_swamped)
            p[i] = swamped(a, i, b.word[i % 4]);
        if (is_still && i % 2 &&
            p[i] != 0.0f) /* a number of every format, so that a decay may be exact */
            p[i] = ldexpf(rintf(ldexpf(p[i], 7 - ilogbf(p[i]))), ilogbf(p[i]) - 7);
        p[i] = power ? ldexpf(p[i], power) : p[i];
        p[i] *= has_tail && i >= qm_case_tail(a->n) ? QM_TAIL_FACTOR : 1.0f;
    }
    if (qm_case_takes(c, QM_PART_pzero))
        memset(p, 0, sizeof *p * (size_t)a->n);
    if (qm_case_takes(c, QM_PART_podd))
        odd_numbers(a, STREAM_START, a->n, 1, p);
}

/* Class graded: the power of two that loaded number i of n is times; they grow towards the end, in
 * a quarter of the cases towards the start. */
static int graded_state(const struct qm_aim *a, int64_t i, int64_t n)
{
    enum { GROWTH = 16 };
    int64_t at = (draw(a, STREAM_PLANT, 0, -3) >> 2 & 3) == 3 ? n - 1 - i : i;
    return (int)(GROWTH * at / n);
}

void qm_case_state(const struct qm_case *c, const struct qm_aim *a, int slot, int64_t n, float *x)
{
    int is_signed = a->recipe->rule->slot_sign[slot], power = qm_case_power(c, QM_POWER_s);
    uint32_t stream = STREAM_STATE + (uint32_t)slot;
    if (a->recipe->rule->slot_whole[slot]) { /* indices: most below the size of a block */
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)(draw(a, stream, 1, i) % (uint32_t)(a->n < 32767 ? a->n + 1 : 32768) >>
                           draw(a, stream, 2, i) % 16);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int grown = c->kind == QM_CLASS_graded ? graded_state(a, i, n) : 0;
        float z = ldexpf((float)normal(a, stream, 1, i), power + grown);
        x[i] = i % 11 == 7 ? 0.0f : is_signed ? z : fabsf(z);
    }
    if (qm_case_takes(c, QM_PART_sodd))
        odd_numbers(a, stream, n, is_signed, x);
}

/* ---- planting -------------------------------------------------------------------------------- */

/* Elements that share an anchor. */
static int64_t plant_block(const struct qm_aim *a, int slot)
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
    int64_t block = plant_block(a, slot), rows, cols;
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
    int64_t block = plant_block(a, slot), last = i / block * block + block - 1;
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
            block = plant_block(a, s) > block || n == 0 ? plant_block(a, s) : block;
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

static float steps_from(float x, int ulps)
{
    for (; ulps > 0; ulps--)
        x = nextafterf(x, INFINITY);
    for (; ulps < 0; ulps++)
        x = nextafterf(x, -INFINITY);
    return x;
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

static float planted(const struct qm_aim *a, int64_t t, int k, int64_t i)
{
    int slot = planted_slot(a, i);
    uint32_t word = draw(a, STREAM_PLANT, t, i), sign = word & 1u;
    double g = anchor_gradient(a, k);
    if (slot < 0)
        return (float)(g * normal(a, STREAM_GRADIENT, t, i) / 8.0);
    for (int s = 0; s < a->recipe->rule->n_slots; s++)
        if (is_planted(a, s) && is_anchor(a, s, i))
            return (float)g;
    const struct qm_aim_weight *w = &a->weight[slot];
    double by = planted_divisor(a, slot, (double)a->state[slot][anchor_of(a, slot, i)], g);
    uint32_t from = draw(a, STREAM_PLANT, t, -2);
    double y = aimed_unit(a->slot[slot], (uint64_t)from + (uint64_t)i, word >> 8);
    int ulps = (int)(word >> 1 & 15u) - 3; /* half of them exact */
    float target = steps_from((float)(by * y), ulps > 3 ? 0 : ulps);
    double needed = ((double)target - w->keep * (double)a->state[slot][i]) / w->give;
    if (is_square(a, slot))
        needed = needed > 0.0 ? (sign ? -sqrt(needed) : sqrt(needed)) : 0.0;
    return fabs(needed) <= g ? (float)needed : 0.0f; /* |needed| > g would exceed the anchor */
}

/* Class exact.  With beta1 = 0 the new first moment is g itself; with beta2 = 1/2 the new second
 * moment is (v + g^2) / 2.  Anchors of the second moment have v = s and g = 0, so the divisor is s
 * / 2; s = 32 * 4^e lets g = 2^e reach the ties of an evenly spaced map without any rounding.  For
 * strided scales e = 0, and first moments up to 4 stay below the anchors. */
static double exact_scale(const struct qm_aim *a, int slot, int64_t i)
{
    if (is_strided(a, slot))
        return 32.0;
    uint32_t power = draw(a, STREAM_PLANT, 0, i / plant_block(a, slot)) % 9u;
    return ldexp(32.0, 2 * (int)power - 12);
}

int qm_case_load(const struct qm_case *c, const struct qm_aim *a, int slot, int64_t n_scales,
                 uint8_t *codes, float *scales)
{
    const struct qm_decider *d = a->slot[slot];
    if (c->kind != QM_CLASS_exact || slot != first_slot(a, 1) || d->q.curve != QM_CURVE_none)
        return 0;
    for (int64_t i = 0; i < a->n; i++) {
        int k =
            d->n_negative + (int)(draw(a, STREAM_START, 1, i) % (uint32_t)(d->n - d->n_negative));
        if (is_anchor(a, slot, i))
            k = d->n - 1;
        else if (is_strided(a, slot) && planted_slot(a, i) != slot)
            k = d->n_negative;
        codes[i] = d->code_of[k];
    }
    for (int64_t b = 0; b < n_scales; b++)
        scales[b] = (float)exact_scale(a, slot, b * plant_block(a, slot));
    return 1;
}

/* The gradient that moves the second moment from `kept` onto a threshold: the first threshold that
 * some float32 g reaches exactly, else the last one above `kept`. */
static float exact_second(const struct qm_decider *d, double by, double kept, double give)
{
    double best = 0.0;
    int found = 0;
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
    uint32_t power = draw(a, STREAM_PLANT, t, -1 - i / plant_block(a, slot));
    float by = ldexpf(1.0f, wide ? (int)(power % 5u) - 2 : (int)(power % 17u) - 8);
    if (is_strided(a, slot))
        by = 1.0f;
    else if (power & 256u) /* not a power of two: the unit value is rounded, the state is not */
        by *= 1.0f + (float)(power >> 9) * 0x1p-23f;
    else
        by *= (float)whole_divisor(d);
    float target = (float)(qm_round_float32((double)by * d->gain) * aimed_unit(d, word >> 4, 0));
    target = steps_from(target, (int)((word >> 1) & 7u) - 3);
    if (is_anchor(a, slot, i))
        target = by;
    else if (!(fabsf(target) <= by))
        target = 0.0f;
    return (float)(((double)target - w->keep * (double)a->state[slot][i]) / w->give);
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
    uint32_t of = draw(a, STREAM_PLANT, t, -1 - i / block);
    float mid = 1.4375f + 0.125f * (float)(of % MIDS), most = 0.0f, least = 0.0f;
    for (int k = 0, is_tie = 0; k < 2 * NEAR && !is_tie; k++) {
        most = steps_from(448.0f / mid, k % 2 ? k / 2 : -k / 2);
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
    double unit = ldexp(1.0, (int)(draw(a, STREAM_PLANT, 0, -1) % 17u) - 8);
    return (float)(0.5 * unit * (double)to - (double)a->state[0][i]);
}

static float exact_gradient(const struct qm_aim *a, int64_t t, int k, int64_t i)
{
    int slot = planted_slot(a, i), square = first_slot(a, 1);
    uint32_t word = draw(a, STREAM_PLANT, t, i);
    if (slot < 0 && a->recipe->slot[0].bits && a->recipe->slot[0].curve == QM_CURVE_affine)
        return affine_tie(a, i, word);
    if (slot < 0 && a->recipe->slot[0].bits && a->recipe->slot[0].curve == QM_CURVE_expand)
        return expand_tie(a, t, i, word);
    if (slot < 0)
        return (float)normal(a, STREAM_GRADIENT, t, i);
    if (square >= 0 && is_anchor(a, square, i) && (slot == square || is_strided(a, square)))
        return 0.0f;
    if (slot != square)
        return exact_first(a, slot, t, i, word);
    const struct qm_aim_weight *w = &a->weight[square];
    double by = w->keep * (double)a->state[square][anchor_of(a, square, i)] /
                whole_divisor(a->slot[square]);
    float g = exact_second(a->slot[square], by, w->keep * (double)a->state[square][i], w->give);
    return k > 0 ? 0.0f : word & 1u ? -g : g;
}

/* ---- the other classes ----------------------------------------------------------------------- */

enum { F16, BF16, E4M3, FORMATS };
static const struct qm_float_format formats[FORMATS] = {QM_FORMAT_f16, QM_FORMAT_bf16,
                                                        QM_FORMAT_e4m3};

/* Bit F16, BF16, E4M3: the recipe stores scales, states or parameters in that format. */
static unsigned formats_of(const struct qm_recipe *r)
{
    unsigned used = r->param.format == QM_PARAM_bf16   ? 1u << BF16
                    : r->param.format == QM_PARAM_f16  ? 1u << F16
                    : r->param.format == QM_PARAM_e4m3 ? 1u << E4M3
                                                       : 0u;
    for (int s = 0; s < r->rule->n_slots; s++) {
        const struct qm_quantizer *q = &r->slot[s];
        int is_bf16 = q->bits ? q->scale.f16 == QM_F16_bf16 : q->plain == QM_PLAIN_bf16;
        int is_f16 = q->bits ? q->scale.f16 && !is_bf16 : q->plain == QM_PLAIN_f16;
        used |= (unsigned)is_bf16 << BF16 | (unsigned)is_f16 << F16;
    }
    return used;
}

/* A mid-point between neighbours of a float format that the recipe stores something in (of any,
 * where it has none), or the float32 below or above it: of every binade near 1 and of those at the
 * format's ends, from the least denormal number to the overflow. */
static float format_tie(const struct qm_aim *a, uint32_t word)
{
    unsigned used = formats_of(a->recipe);
    uint32_t more = word * 0x9e3779b1u;
    int k = (int)(more >> 8) % FORMATS;
    while (used && !(used >> k & 1))
        k = (k + 1) % FORMATS;
    const struct qm_float_format *f = &formats[k];
    int whole = 1 << f->fraction, top = ilogb(f->most), at = (int)(more >> 16) % whole;
    int e = (int)(word >> 4 & 31) - 16, last = (int)ldexp(f->most, f->fraction - top) - whole;
    e = word % 4 == 0 ? f->least : word % 4 == 1 ? top : e;
    e = e < f->least ? f->least : e > top ? top : e;
    at = word >> 2 & 1 ? at : word >> 3 & 1 ? 0 : whole - 1; /* the ends of a binade */
    at = e == top && at > last ? last : at;
    int is_denormal = e == f->least && word >> 9 & 1;
    float tie = ldexpf((float)(is_denormal ? at : whole + at) + 0.5f, e - f->fraction);
    return steps_from(tie, word >> 10 & 1 ? 0 : word >> 11 & 1 ? 1 : -1);
}

/* Class edges.  The first of 32 elements is the largest, in half of the stretches of 2048 elements
 * the same for all of them: a power of two, a 9-bit integer, a mid-point of a float format or
 * beside one, or a number at the end of a float format's range or near the floor of a scale, or
 * 3/4, 3/2 or 2 times that.  The others are 0, or halves, smaller powers and 9-bit integers below
 * it, so that averages with beta 0, their squares, their quotients by the largest and the ties of
 * 16-bit formats are exact.  In an eighth of the stretches fifteen of sixteen are the largest,
 * too, so that quantiles are the largest, and the base of a logarithmic map is 1. */
static float edge(const struct qm_aim *a, int64_t t, int64_t i, uint32_t word)
{
    static const float ends[] = {
        65504.0f,     0x1.ffdffep15f, 65520.0f,     0x1.ffe002p15f, 65536.0f, 448.0f,     464.0f,
        480.0f,       0x1p-14f,       0x1.ff8p-15f, 0x1p-24f,       0x1p-25f, 0x1.8p-24f, 0x1p-126f,
        0x1.fep-127f, 0x1.fep127f,    1e-38f,       1e-38f,         1e-12f,   1e-12f};
    enum { ENDS = sizeof ends / sizeof *ends };
    static const float times[] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 0.75f, 1.5f, 1.984375f};
    uint32_t stretch = draw(a, STREAM_PLANT, t, -1 - i / 2048);
    int is_flat = (stretch >> 1 & 7) == 0, is_wide = is_flat || (stretch & 1u);
    uint32_t of = draw(a, STREAM_PLANT, t, is_wide ? i / 2048 * 64 : i / 32);
    int k = (int)(of >> 8 & 31) - 16;
    float top = of % 4 == 0   ? fminf(ends[(of >> 16) % ENDS] * times[of >> 13 & 7], 0x1.fep127f)
                : of % 4 == 1 ? ldexpf((float)(257 + (of >> 16 & 254)), k)
                : of % 4 == 2 ? format_tie(a, of >> 2)
                              : ldexpf(1.0f, k);
    float sign = word & 1u ? -1.0f : 1.0f;
    if (i % 32 == 0 || (is_flat && (word >> 4 & 15) > 0))
        return sign * top;
    switch (word >> 1 & 7) {
    case 0: return sign * 0.0f;
    case 1:
    case 2:
    case 3: return sign * ldexpf(top, -1 - (int)(word >> 8 & 3));
    case 4: return sign * ldexpf((float)(17 + (word >> 16 & 6)), ilogbf(top) - 5); /* squares */
    default:
        return sign *
               ldexpf((float)(257 + (word >> 16 & 254)), ilogbf(top) - 9 - (int)(word >> 8 & 3));
    }
}

/* Class floors.  The size of all elements of a step, or of each block, is a power of two: below
 * 2^-118, so that the element is a floor or denormal, or below 2^-58, so that its square is, or
 * near the floor 1e-12 of scales, or any below 1.  Some elements are 0, and some smaller. */
static float at_floor(const struct qm_aim *a, int64_t t, int64_t i, uint32_t word)
{
    uint32_t wide = draw(a, STREAM_PLANT, t, -1);
    uint32_t of = wide % 2 ? draw(a, STREAM_PLANT, t,
                                  i / plant_block(a, (int)(wide >> 1) % a->recipe->rule->n_slots))
                           : wide;
    int by = (int)(of >> 8 & 0xffff), k;
    switch (of >> 2 & 7) {
    case 0: k = -41 + by % 3; break;
    case 1: k = -21 + by % 3; break;
    case 2: k = -by % 150; break;
    case 3:
    case 4: k = -76 + by % 18; break;
    default: k = -149 + by % 32; break;
    }
    float x = ldexpf(1.0f + (float)(word >> 9) * 0x1p-23f, k);
    x = word >> 1 & 7 ? x : word >> 4 & 1 ? 0.0f : ldexpf(x, -(int)(word >> 5 & 7));
    return word & 1u ? -x : x;
}

/* Class sparse: 1 where the gradient is 0. */
static int is_hole(const struct qm_aim *a, int k, int64_t i)
{
    int rank = a->shape->rank;
    int64_t cols = rank ? a->shape->dim[rank - 1] : 1,
            rows = rank > 1 ? a->shape->dim[rank - 2] : 1;
    return k == 1 || (rank < 2 ? i / 5 % 3 == 1 : i / cols % rows % 3 == 1 || i % cols % 4 == 2);
}

/* Class graded.  Rows, columns, both, or a diagonal that hardly couples with the rest grow towards
 * the end of their axes, or towards the start, by 2^8 to 2^20: the largest of all directions, the
 * same in all steps, is the last one or the first. */
static float graded(const struct qm_aim *a, int64_t i, uint32_t word)
{
    enum { ROWS, COLUMNS, BOTH, DIAGONAL, OFF = -16 };
    int rank = a->shape->rank;
    uint32_t of = draw(a, STREAM_PLANT, 0, -3), kind = of % 4;
    int64_t cols = rank ? a->shape->dim[rank - 1] : 1,
            rows = rank > 1 ? a->shape->dim[rank - 2] : 1;
    double row = (double)(i / cols % rows) / (double)rows, col = (double)(i % cols) / (double)cols;
    double at = kind == ROWS ? row : kind == COLUMNS ? col : 0.5 * (row + col);
    at = of >> 2 & 1 ? 1.0 - at : at;
    int is_off = kind == DIAGONAL && rank > 1 && i / cols % rows != i % cols;
    int power = (int)((double)(8 + (of >> 3) % 13) * at) + (is_off ? OFF : 0);
    return ldexpf((float)normal_of(word), power - 10);
}

/* word, other: the two draws of element i. */
static float plain(enum qm_class kind, const struct qm_aim *a, int64_t i, uint32_t word,
                   uint32_t other)
{
    double u = uniform(word), sign = word & 1u ? -1.0 : 1.0, z;
    switch (kind) {
    case QM_CLASS_loguniform: return (float)(sign * pow(10.0, -15.0 + 30.0 * u));
    case QM_CLASS_denormal: return (float)(sign * floor(ldexp(1.0, (int)(24.0 * u))) * 0x1p-149);
    case QM_CLASS_huge: return (float)(sign * pow(10.0, 15.0 + 4.6 * u));
    case QM_CLASS_swamped: return swamped(a, i, word);
    case QM_CLASS_graded: return graded(a, i, word);
    case QM_CLASS_zeros: return 0.0f;
    case QM_CLASS_signedzeros: return i % 2 ? -0.0f : 0.0f;
    case QM_CLASS_constant: return (float)(0.01 * normal(a, STREAM_GRADIENT, 0, 0));
    default: z = 0.01 * normal_of(other); break;
    }
    switch (kind) {
    case QM_CLASS_outlier: return (float)(i == a->n / 3 ? 100.0 : z);
    case QM_CLASS_zeroblock: return i >= 128 && i < 512 ? 0.0f : (float)z;
    case QM_CLASS_nonfinite:
        return i == a->n / 5         ? a_nan(word >> 4)
               : i == a->n / 5 + 600 ? copysignf(INFINITY, (float)sign)
                                     : (float)z;
    case QM_CLASS_nan: return i == a->n / 5 ? a_nan(word >> 4) : (float)z;
    case QM_CLASS_inf: return i == a->n / 5 ? INFINITY : (float)z;
    case QM_CLASS_small: return (float)(1e-4 * z);
    case QM_CLASS_unit: return (float)(100.0 * z);
    case QM_CLASS_lastmax: return (float)(i % 64 == 63 || i == a->n - 1 ? sign * 0.25 : z);
    default: return (float)z;
    }
}

/* Parts godd and gfirst: NaN, Inf and their like among the gradients; where it is one, at a place
 * whose distance from the end is of any size.  Some at once come in a quarter of the cases, or an
 * eighth where one of them reaches all numbers and hides the others. */
static void odd_gradients(const struct qm_aim *a, int64_t t, float *g)
{
    uint32_t word = draw(a, STREAM_GRADIENT, t, -1);
    uint64_t from_end = (draw(a, STREAM_GRADIENT, t, -2) % (uint64_t)(a->n + 1)) >> (word >> 28);
    int64_t at = a->n - 1 - (int64_t)from_end;
    if (word % 4 == 3 && (a->recipe->rule->elementwise || word >> 3 & 1u))
        odd_numbers(a, STREAM_GRADIENT, a->n, 1, g);
    else if (at >= 0)
        g[at] = word % 4 > 0 ? a_nan(word >> 8) : word >> 2 & 1u ? -INFINITY : INFINITY;
}

void qm_case_gradient(const struct qm_case *c, const struct qm_aim *a, int64_t t, int k, float *g)
{
    struct qm_philox_block word = {{0}}, other = {{0}};
    int power = c->kind == QM_CLASS_planted ? 0 : qm_case_power(c, QM_POWER_g); /* the aim has it */
    for (int64_t i = 0; i < a->n; i++) {
        if (c->kind == QM_CLASS_planted || c->kind == QM_CLASS_exact) {
            g[i] = c->kind == QM_CLASS_planted ? planted(a, t, k, i) : exact_gradient(a, t, k, i);
            g[i] = power ? ldexpf(g[i], power) : g[i];
            continue;
        }
        if (i % 4 == 0) {
            word = draws(a, STREAM_GRADIENT, t, i + (1 << 30));
            other = draws(a, STREAM_GRADIENT, t, i);
        }
        g[i] = c->kind == QM_CLASS_edges ? edge(a, t, i, word.word[i % 4])
               : c->kind == QM_CLASS_floors
                   ? at_floor(a, t, i, word.word[i % 4])
                   : plain(c->kind, a, i, word.word[i % 4], other.word[i % 4]);
        g[i] = power ? ldexpf(g[i], power) : g[i];
        g[i] = c->kind == QM_CLASS_sparse && is_hole(a, k, i) ? 0.0f : g[i];
    }
    if ((qm_case_takes(c, QM_PART_godd) && k == qm_case_steps(c) - 1) ||
        (qm_case_takes(c, QM_PART_gfirst) && k == 0))
        odd_gradients(a, t, g);
}
