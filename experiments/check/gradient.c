/* gradient.c - Draws the gradients of each class, and what a case starts from. */
#include <math.h>
#include <string.h>

#include "experiments/check/gradient_parts.h"
#include "oracle/bound/bound.h"

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
    int64_t place = qm_case_draw(a, QM_STREAM_PLANT, 0, -1) & 1u ? longest / 2 : 0;
    int is_large = longest == 0 || i / apart % longest == place;
    double x =
        is_large ? ldexp(1.0 + qm_case_uniform(word), 13) : 1.0 + qm_case_uniform(word) * 0.99;
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
        uint32_t word = qm_case_draw(a, stream, 2, i);
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
            b = qm_case_draws(a, QM_STREAM_START, 0, i);
        p[i] = i % 13 == 5 ? 0.0f : i % 17 == 3 ? 1000.0f : (float)qm_case_normal_of(b.word[i % 4]);
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
        odd_numbers(a, QM_STREAM_START, a->n, 1, p);
}

/* Class graded: the power of two that loaded number i of n is times; they grow towards the end, in
 * a quarter of the cases towards the start. */
static int graded_state(const struct qm_aim *a, int64_t i, int64_t n)
{
    enum { GROWTH = 16 };
    int64_t at = (qm_case_draw(a, QM_STREAM_PLANT, 0, -3) >> 2 & 3) == 3 ? n - 1 - i : i;
    return (int)(GROWTH * at / n);
}

void qm_case_state(const struct qm_case *c, const struct qm_aim *a, int slot, int64_t n, float *x)
{
    int is_signed = a->recipe->rule->slot_sign[slot], power = qm_case_power(c, QM_POWER_s);
    uint32_t stream = QM_STREAM_STATE + (uint32_t)slot;
    int has_below = strcmp(a->recipe->rule->slot[slot], "eigenvalues") == 0 &&
                    qm_case_draw(a, stream, 3, -1) % 4 == 0; /* rounding leaves such, too */
    if (a->recipe->rule->slot_whole[slot]) { /* indices: most below the size of a block */
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)(qm_case_draw(a, stream, 1, i) %
                               (uint32_t)(a->n < 32767 ? a->n + 1 : 32768) >>
                           qm_case_draw(a, stream, 2, i) % 16);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int grown = c->kind == QM_CLASS_graded ? graded_state(a, i, n) : 0;
        float z = ldexpf((float)qm_case_normal(a, stream, 1, i), power + grown);
        int is_below = has_below && qm_case_draw(a, stream, 3, i) % 16 == 0;
        x[i] = i % 11 == 7 ? 0.0f : is_signed ? z : is_below ? -fabsf(z) : fabsf(z);
    }
    if (qm_case_takes(c, QM_PART_sodd))
        odd_numbers(a, stream, n, is_signed, x);
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
    return qm_steps_from(tie, word >> 10 & 1 ? 0 : word >> 11 & 1 ? 1 : -1);
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
    uint32_t stretch = qm_case_draw(a, QM_STREAM_PLANT, t, -1 - i / 2048);
    int is_flat = (stretch >> 1 & 7) == 0, is_wide = is_flat || (stretch & 1u);
    uint32_t of = qm_case_draw(a, QM_STREAM_PLANT, t, is_wide ? i / 2048 * 64 : i / 32);
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
    uint32_t wide = qm_case_draw(a, QM_STREAM_PLANT, t, -1);
    uint32_t of =
        wide % 2 ? qm_case_draw(a, QM_STREAM_PLANT, t,
                                i / qm_plant_block(a, (int)(wide >> 1) % a->recipe->rule->n_slots))
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

/* The number of the block that element i has in the first slot with codes, of 128 elements where
 * its scales are not those of blocks.  *is_tail: it is a short one behind others. */
static int64_t block_at(const struct qm_aim *a, int64_t i, int *is_tail)
{
    const struct qm_quantizer *q = NULL;
    int64_t cols = a->shape->rank ? a->shape->dim[a->shape->rank - 1] : 1;
    for (int s = 0; s < a->recipe->rule->n_slots && !q; s++)
        q = a->recipe->slot[s].bits ? &a->recipe->slot[s] : NULL;
    int64_t block = q && qm_norm_has_block(q->norm) && q->block > 1 ? q->block : 128;
    int is_row = q && q->norm == QM_NORM_rowblock;
    int64_t rest = is_row ? cols - i % cols / block * block : a->n - i / block * block;
    *is_tail = rest < block && (is_row ? cols : a->n) > block;
    return is_row ? i / cols * (cols / block + 1) + i % cols / block : i / block;
}

/* Class graded.  Rows, columns, both, or a diagonal that hardly couples with the rest grow towards
 * the end of their axes, or towards the start, by 2^8 to 2^20: the largest of all directions, the
 * same in all steps, is the last one or the first.  Of a rule without factors three
 * quarters of the cases have blocks instead, each of a size of its own, from 2^-20 on, and half of
 * these a short last block of that size: nothing of one block hides in the next. */
static float graded(const struct qm_aim *a, int64_t i, uint32_t word)
{
    enum { ROWS, COLUMNS, BOTH, DIAGONAL, OFF = -16 };
    int rank = a->shape->rank;
    uint32_t of = qm_case_draw(a, QM_STREAM_PLANT, 0, -3), kind = of % 4;
    int64_t cols = rank ? a->shape->dim[rank - 1] : 1,
            rows = rank > 1 ? a->shape->dim[rank - 2] : 1;
    if (of >> 9 & 3 && !qm_rule_reads(a->recipe->rule, "stat_gap")) {
        int is_tail;
        uint32_t size = qm_case_draw(a, QM_STREAM_PLANT, 0, -4 - block_at(a, i, &is_tail)) % 21u;
        size = is_tail && of >> 11 & 1 ? 20 : size;
        return ldexpf((float)qm_case_normal_of(word), -(int)size);
    }
    double row = (double)(i / cols % rows) / (double)rows, col = (double)(i % cols) / (double)cols;
    double at = kind == ROWS ? row : kind == COLUMNS ? col : 0.5 * (row + col);
    at = of >> 2 & 1 ? 1.0 - at : at;
    int is_off = kind == DIAGONAL && rank > 1 && i / cols % rows != i % cols;
    int power = (int)((double)(8 + (of >> 3) % 13) * at) + (is_off ? OFF : 0);
    return ldexpf((float)qm_case_normal_of(word), power - 10);
}

/* Class zeroblock.  Elements 128 to 511 are zeros; in half of the cases of a matrix rows and
 * columns are, one each or about an eighth of them, the same in all steps, as those of dead units:
 * factored averages of both are their least where they cross. */
static int is_dead(const struct qm_aim *a, int64_t i)
{
    enum { EIGHTH = 8, SPREAD = 7919 };
    const struct qm_shape *s = a->shape;
    uint32_t of = qm_case_draw(a, QM_STREAM_PLANT, 0, -5);
    if (s->rank < 2 || of & 1u)
        return i >= 128 && i < 512;
    for (int axis = s->rank - 1; axis >= s->rank - 2; axis--) {
        int64_t length = s->dim[axis], at = i % length;
        of = of >> 3 | of << 29;
        if (at == of % length || (of & 1u && (at * SPREAD + of) % EIGHTH == 0))
            return 1;
        i /= length;
    }
    return 0;
}

/* Class lastmax: the largest of 64 elements, of a row, of what is behind the first dimension, of a
 * block and of the tensor, each larger than those before, is one of its last four; z elsewhere. */
static double last_most(const struct qm_aim *a, int64_t i, double sign, double z)
{
    const struct qm_shape *s = a->shape;
    const int64_t run[] = {64, s->rank ? s->dim[s->rank - 1] : 1, s->rank ? a->n / s->dim[0] : 1,
                           qm_plant_block(a, 0), a->n};
    for (int k = sizeof run / sizeof *run - 1; k >= 0; k--) {
        int64_t from = i / run[k] * run[k], end = a->n - from < run[k] ? a->n : from + run[k];
        if (end - i <= 4 &&
            end - i == 1 + (int64_t)(qm_case_draw(a, QM_STREAM_PLANT, -2 - k, from) % 4u))
            return sign * (0.25 + 0.0625 * k);
    }
    return z;
}

/* word, other: the two draws of element i. */
static float plain(enum qm_class kind, const struct qm_aim *a, int64_t i, uint32_t word,
                   uint32_t other)
{
    double u = qm_case_uniform(word), sign = word & 1u ? -1.0 : 1.0, z;
    switch (kind) {
    case QM_CLASS_loguniform: return (float)(sign * pow(10.0, -15.0 + 30.0 * u));
    case QM_CLASS_denormal: return (float)(sign * floor(ldexp(1.0, (int)(24.0 * u))) * 0x1p-149);
    case QM_CLASS_huge: return (float)(sign * pow(10.0, 15.0 + 4.6 * u));
    case QM_CLASS_swamped: return swamped(a, i, word);
    case QM_CLASS_graded: return graded(a, i, word);
    case QM_CLASS_zeros: return 0.0f;
    case QM_CLASS_signedzeros: return i % 2 ? -0.0f : 0.0f;
    case QM_CLASS_constant: return (float)(0.01 * qm_case_normal(a, QM_STREAM_GRADIENT, 0, 0));
    default: z = 0.01 * qm_case_normal_of(other); break;
    }
    switch (kind) {
    case QM_CLASS_outlier: return (float)(i == a->n / 3 ? 100.0 : z);
    case QM_CLASS_zeroblock: return is_dead(a, i) ? 0.0f : (float)z;
    case QM_CLASS_nonfinite:
        return i == a->n / 5         ? a_nan(word >> 4)
               : i == a->n / 5 + 600 ? copysignf(INFINITY, (float)sign)
                                     : (float)z;
    case QM_CLASS_nan: return i == a->n / 5 ? a_nan(word >> 4) : (float)z;
    case QM_CLASS_inf: return i == a->n / 5 ? INFINITY : (float)z;
    case QM_CLASS_small: return (float)(1e-4 * z);
    case QM_CLASS_unit: return (float)(100.0 * z);
    case QM_CLASS_lastmax: return (float)last_most(a, i, sign, z);
    default: return (float)z;
    }
}

/* Whether blocks of a large tensor are lowered, of half of those of class normal or unit where the
 * rule has no sums: floors of scales are met beyond 2^16 elements too. */
static int has_lowered(const struct qm_case *c, const struct qm_aim *a)
{
    return a->n > QM_LARGE && a->recipe->rule->elementwise &&
           (c->kind == QM_CLASS_normal || c->kind == QM_CLASS_unit) &&
           qm_case_draw(a, QM_STREAM_PLANT, 0, -5) % 2u;
}

/* The power of two that element i is times then: 0, or -8 to -31 in a quarter of the blocks. */
static int lowered(const struct qm_aim *a, int64_t i)
{
    int is_tail;
    uint32_t of = qm_case_draw(a, QM_STREAM_PLANT, 0, -6 - block_at(a, i, &is_tail));
    return of % 4u ? 0 : -8 - (int)((of >> 2) % 24u);
}

/* Parts godd and gfirst: NaN, Inf and their like among the gradients; where it is one, at a place
 * whose distance from the end is of any size.  Some at once come in a quarter of the cases, or an
 * eighth where one of them reaches all numbers and hides the others. */
static void odd_gradients(const struct qm_aim *a, int64_t t, float *g)
{
    uint32_t word = qm_case_draw(a, QM_STREAM_GRADIENT, t, -1);
    uint64_t from_end =
        (qm_case_draw(a, QM_STREAM_GRADIENT, t, -2) % (uint64_t)(a->n + 1)) >> (word >> 28);
    int64_t at = a->n - 1 - (int64_t)from_end;
    if (word % 4 == 3 && (a->recipe->rule->elementwise || word >> 3 & 1u))
        odd_numbers(a, QM_STREAM_GRADIENT, a->n, 1, g);
    else if (at >= 0)
        g[at] = word % 4 > 0 ? a_nan(word >> 8) : word >> 2 & 1u ? -INFINITY : INFINITY;
}

void qm_case_gradient(const struct qm_case *c, const struct qm_aim *a, int64_t t, int k, float *g)
{
    struct qm_philox_block word = {{0}}, other = {{0}};
    int power = c->kind == QM_CLASS_planted ? 0 : qm_case_power(c, QM_POWER_g); /* the aim has it */
    int has_low = has_lowered(c, a);
    for (int64_t i = 0; i < a->n; i++) {
        if (c->kind == QM_CLASS_planted || c->kind == QM_CLASS_exact) {
            g[i] = c->kind == QM_CLASS_planted ? qm_planted_gradient(a, t, k, i)
                                               : qm_aimed_gradient(a, t, k, i);
            g[i] = power ? ldexpf(g[i], power) : g[i];
            continue;
        }
        if (i % 4 == 0) {
            word = qm_case_draws(a, QM_STREAM_GRADIENT, t, i + (1 << 30));
            other = qm_case_draws(a, QM_STREAM_GRADIENT, t, i);
        }
        g[i] = c->kind == QM_CLASS_edges ? edge(a, t, i, word.word[i % 4])
               : c->kind == QM_CLASS_floors
                   ? at_floor(a, t, i, word.word[i % 4])
                   : plain(c->kind, a, i, word.word[i % 4], other.word[i % 4]);
        int by = power + (has_low ? lowered(a, i) : 0);
        g[i] = by ? ldexpf(g[i], by) : g[i];
        g[i] = c->kind == QM_CLASS_sparse && is_hole(a, k, i) ? 0.0f : g[i];
    }
    if ((qm_case_takes(c, QM_PART_godd) && k == qm_case_steps(c) - 1) ||
        (qm_case_takes(c, QM_PART_gfirst) && k == 0))
        odd_gradients(a, t, g);
}
