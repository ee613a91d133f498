/* domain.c - Draws cases from the domain of a recipe. */
#include "experiments/check/domain.h"

#include <stdio.h>
#include <string.h>

#include "experiments/check/domain_source.h"
#include "experiments/check/withheld.h"

/* Rules that project: their reference takes the square of a side, and both sides draw the seeds of
 * all projections before the current one.  CANDIDATES: for a plain case.  WINDOWED: elements of a
 * tensor with a window of gradients; WINDOW_NUMBERS: of it and of its window. */
enum {
    CANDIDATES = 12,
    PROJECTED = QM_DOMAIN_PROJECTED,
    PROJECTED_STEP = 1 << 18,
    PROJECTIONS = 4096,
    WINDOWED = QM_DOMAIN_WINDOWED,
    WINDOW_NUMBERS = 1 << 17
};

static int has_sides(const struct qm_recipe *r)
{
    const struct qm_shape matrix = {2, {6, 5}};
    int is = 0;
    for (int i = 0; i < r->rule->n_slots; i++) {
        struct qm_shape of = matrix;
        enum qm_norm norm = r->slot[i].norm;
        qm_rule_slot_shape(r->rule, &r->hyper, i, &matrix, &of);
        is |= qm_shape_numel(&of) == matrix.dim[0] || qm_shape_numel(&of) == matrix.dim[1];
        is |= r->slot[i].bits && norm != QM_NORM_block && norm != QM_NORM_divblock &&
              norm != QM_NORM_tensor && norm != QM_NORM_id;
    }
    return is;
}

void qm_domain_of(const struct qm_recipe *r, const struct qm_backend *b, struct qm_domain *out)
{
    *out = (struct qm_domain){.recipe = *r,
                              .reads = qm_hyper_read(r),
                              .can_schedule = b->hyper != NULL,
                              .can_restart = b->restart != NULL,
                              .last_step = QM_DOMAIN_LAST_STEP,
                              .largest = (1 << 20) + 8,
                              .candidates = CANDIDATES};
    out->has_sides = has_sides(r);
    out->rounds_by_draws = r->param.write == QM_WRITE_stoch && r->param.format != QM_PARAM_f32;
    if (out->reads >> QM_HYPER_adjust & 1) /* Muon: its factors are judged by singular values */
        out->largest = PROJECTED;
    if (out->reads >> QM_HYPER_window & 1) /* MicroAdam: up to 60 rows of all elements */
        out->largest = WINDOWED;
    if (qm_domain_is_projected(out)) {
        out->largest = PROJECTED;
        out->last_step = PROJECTED_STEP;
    }
    for (int i = 0; i < r->rule->n_slots; i++) {
        const struct qm_quantizer *q = &r->slot[i];
        int is_new = q->bits && q->norm == QM_NORM_block && q->block > 1;
        if (q->bits && q->norm == QM_NORM_rowblock)
            out->row_block = q->block;
        for (int k = 0; k < out->n_blocks; k++)
            is_new &= out->block[k] != q->block;
        if (is_new)
            out->block[out->n_blocks++] = q->block;
        out->rounds_by_draws |= q->bits && qm_round_draws(q->round);
    }
    if (out->n_blocks == 0)
        out->block[out->n_blocks++] = 128;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* The number of elements of case i.  Sizes around 2^15 stand at fixed numbers i; larger ones are in
 * large_case.c. */
static int64_t elements(const struct qm_domain *d, struct qm_domain_source *s, int64_t i)
{
    if ((i % 80 == 7 || i % 40 == 23) && (1 << 15) + 8 <= d->largest)
        return (1 << 15) + (qm_domain_one_in(s, 3) ? 0 : qm_domain_below(s, 7) - 3);
    int64_t most = d->largest < QM_DOMAIN_DRAWN ? d->largest : QM_DOMAIN_DRAWN,
            small = most < 4096 ? most : 4096;
    switch (qm_domain_below(s, 20)) {
    case 0: return qm_domain_below(s, 3) ? 1 : 0;
    case 1:
    case 2: return 253 + qm_domain_below(s, 7);
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
    case 8: { /* around whole blocks of the recipe's own sizes */
        int64_t block = d->block[qm_domain_below(s, d->n_blocks)];
        int64_t n = block * qm_domain_log_uniform(s, 8) + (qm_domain_one_in(s, 3) ? 0
                                                           : qm_domain_one_in(s, 2)
                                                               ? 1
                                                               : qm_domain_below(s, 9) - 4);
        return n < 1 ? 1 : n <= most ? n : most;
    }
    case 9: return qm_domain_log_uniform(s, most);
    default: return qm_domain_log_uniform(s, small);
    }
}

int64_t qm_domain_around_blocks(const struct qm_domain *d, struct qm_domain_source *s, int64_t most)
{
    int64_t block = d->block[qm_domain_below(s, d->n_blocks)], blocks = most / block;
    int64_t n =
        block * qm_domain_log_uniform(s, blocks < 1 ? 1 : blocks) + qm_domain_below(s, 3) - 1;
    return n < 1 ? 1 : n < most ? n : most;
}

int64_t qm_domain_around_fallback(const struct qm_domain *d, struct qm_domain_source *s)
{
    enum { MOST = 1 << 13 };
    int slots = d->recipe.rule->n_slots;
    int64_t from = slots ? d->recipe.min_numel[qm_domain_below(s, slots)] : 0;
    if (from < 2 || from > MOST)
        return 0;
    return qm_domain_one_in(s, 3) ? from - 1 + qm_domain_below(s, 3)
                                  : qm_domain_around_blocks(d, s, from - 1);
}

/* Square matrices, and sides around 8, 16 and 32, in the place of the last two sizes. */
static void make_square(struct qm_domain_source *s, struct qm_shape *shape)
{
    int64_t *side = &shape->dim[shape->rank - 2], n = side[0] * side[1];
    int64_t root = (int64_t)sqrt((double)n);
    root = root < 2 ? 2 : root;
    side[0] = side[1] = qm_domain_one_in(s, 2)
                            ? root
                            : ((int64_t)8 << qm_domain_below(s, 3)) - 1 + qm_domain_below(s, 3);
    if (qm_domain_one_in(s, 3))
        side[qm_domain_below(s, 2)] += 1 + qm_domain_below(s, 40);
    for (int a = 0; a < shape->rank - 2 && qm_shape_numel(shape) > QM_DOMAIN_DRAWN; a++)
        shape->dim[a] = 1;
}

struct qm_shape qm_domain_cut(struct qm_domain_source *s, int64_t n, int rank)
{
    struct qm_shape out = {rank, {0}};
    int is_small = n <= QM_DOMAIN_DRAWN, keeps_n = !is_small || !qm_domain_one_in(s, 3),
        taker = rank ? (int)qm_domain_below(s, rank) : 0;
    for (int a = 0; a < rank; a++)
        out.dim[a] = 1;
    if (n == 0 && rank)
        out.dim[taker] = 0;
    for (int a = 0; a < rank && n > 1; a++) {
        int64_t most = rank > 4 ? 8 : 64; /* so that the last axes get elements too */
        int64_t side = qm_domain_one_in(s, 3) ? 1 : qm_domain_log_uniform(s, n < most ? n : most);
        while (keeps_n && n % side != 0)
            side--;
        if (a != taker) {
            out.dim[a] = side;
            n /= side;
        }
    }
    if (rank && out.dim[taker] != 0)
        out.dim[taker] = n > 0 ? n : 1;
    if (rank > 1 && n > 1 && is_small && qm_domain_one_in(s, 5))
        make_square(s, &out);
    return out;
}

struct qm_shape qm_domain_shape(const struct qm_domain *d, struct qm_domain_source *s, int64_t i)
{
    static const int ranks[] = {0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 6, 7, 8};
    if (i % 80 == 31) {             /* every axis has elements */
        int most = i / 80 % 2 == 0; /* all that a shape may have */
        struct qm_shape all = {most ? QM_MAX_RANK : 5 + (int)qm_domain_below(s, QM_MAX_RANK - 5),
                               {0}};
        for (int a = 0; a < all.rank; a++)
            all.dim[a] = 2 + qm_domain_one_in(s, 3);
        return all;
    }
    int64_t n = elements(d, s, i);
    int rank = ranks[qm_domain_below(s, sizeof ranks / sizeof *ranks)];
    if (n == 1 && qm_domain_one_in(s, 2))
        rank = 0;
    if (rank == 0 && n != 1)
        rank = 1;
    return qm_domain_cut(s, n, rank);
}

/* ---- the other coordinates ------------------------------------------------------------------- */

static int64_t any_step(struct qm_domain_source *s)
{
    int64_t t;
    switch (qm_domain_below(s, 10)) {
    case 0:
    case 1: return 1;
    case 2: return 2 + qm_domain_below(s, 14);
    case 3: return 16 + qm_domain_below(s, 16);
    case 4:
    case 5: /* around a power of two */
        t = ((int64_t)1 << (1 + qm_domain_below(s, 40))) - 2 + qm_domain_below(s, 4);
        return t < 1 ? 1 : t;
    case 6: return 1022 + qm_domain_below(s, 4);
    default: return qm_domain_log_uniform(s, (int64_t)1 << 40);
    }
}

/* A tensor's number: any, small, or at an end of so many bits. */
static uint32_t any_tensor(struct qm_domain_source *s)
{
    switch (qm_domain_below(s, 3)) {
    case 0: return qm_domain_word(s);
    case 1: return (uint32_t)qm_domain_below(s, 300);
    default:
        return (uint32_t)(((uint64_t)1 << (32 - qm_domain_below(s, 33) / 2)) -
                          (uint64_t)qm_domain_below(s, 2));
    }
}

static enum qm_class gradient_class(struct qm_domain_source *s)
{
    static const enum qm_class often[] = {QM_CLASS_planted, QM_CLASS_normal, QM_CLASS_exact,
                                          QM_CLASS_edges};
    if (qm_domain_one_in(s, 2))
        return often[qm_domain_below(s, sizeof often / sizeof *often)];
    return (enum qm_class)qm_domain_below(s, QM_CLASS_COUNT);
}

int64_t qm_domain_first_step(const struct qm_domain *d, struct qm_domain_source *s)
{
    int64_t t = any_step(s);
    return t <= d->last_step ? t : 1 + t % d->last_step;
}

/* An exponent, edges favoured: near 0, near the ends of float32, or any. */
static int power(struct qm_domain_source *s)
{
    switch (qm_domain_below(s, 4)) {
    case 0: return (int)qm_domain_below(s, 41) - 20;
    case 1: return 100 + (int)qm_domain_below(s, 28);
    case 2: return -149 + (int)qm_domain_below(s, 50);
    default: return (int)qm_domain_below(s, 277) - 149;
    }
}

int qm_domain_takes(const struct qm_domain *d, const struct qm_case *c)
{
    struct qm_recipe r = d->recipe;
    qm_case_apply(c, &r);
    return qm_recipe_applicable(&r) == QM_OK;
}

/* -2 for an alpha that the rule refuses, where that is a mode of the rule (MicroAdam's); for every
 * other eps1 of 1 none, and for such an exponent beside a beta2 SGD (adafactor8bit). */
static double mode_or(const struct qm_domain *d, const struct qm_case *c, int k, double value)
{
    static const double alphas[] = {-1.0, -2.0};
    int is_taken[2];
    struct qm_case to = *c;
    to.given |= (uint64_t)1 << k;
    to.hyper[k] = value;
    if (k == QM_HYPER_eps1 && d->recipe.rule->betas_optional && value == 1.0 && c->t % 2)
        return -1.0; /* none */
    if (k == QM_HYPER_beta2_decay && d->reads >> QM_HYPER_beta2 & 1 && value == -1.0 && c->t % 2)
        return 1.0;
    if (k != QM_HYPER_alpha || qm_domain_takes(d, &to))
        return value;
    for (int i = 0; i < 2; i++) {
        to.hyper[k] = alphas[i];
        is_taken[i] = qm_domain_takes(d, &to);
    }
    return !is_taken[0] && is_taken[1] ? alphas[1] : value;
}

void qm_domain_give(const struct qm_domain *d, int k, enum qm_hyper_bin bin, uint32_t word,
                    struct qm_case *c)
{
    struct qm_case to = *c;
    double own = qm_hyper_get(&d->recipe.hyper, k);
    if (!(d->reads >> k & 1) || bin == QM_HYPER_BIN_own)
        return;
    to.given |= (uint64_t)1 << k;
    to.hyper[k] =
        qm_hyper_is_flag(k) ? (double)(own == 0.0) : qm_hyper_draw_for(k, bin, word, &c->shape);
    if (k == QM_HYPER_beta2 && bin == QM_HYPER_BIN_one && word % 2) /* rules of their own */
        to.hyper[k] = -1.0;
    qm_domain_put(d, k, mode_or(d, c, k, to.hyper[k]), c);
}

int qm_domain_put(const struct qm_domain *d, int k, double value, struct qm_case *c)
{
    struct qm_case to = *c;
    int at = (int)qm_hyper_bin_of(k, qm_hyper_get(&d->recipe.hyper, k), value);
    to.given |= (uint64_t)1 << k;
    to.hyper[k] = value;
    if (isnan(value) || d->refused[k] >> at & 1 || !qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* 4096 calls take time, so one case of 160 has them: ordinary numbers, in which a change shows. */
static int is_busy(int64_t i) { return i % 160 == 57; }

/* Gives one hyper-parameter that the rule reads another value, unless the rule refuses it. */
static void another_hyper(const struct qm_domain *d, struct qm_domain_source *s, struct qm_case *c)
{
    int k = (int)qm_domain_below(s, QM_HYPERS);
    struct qm_case to = *c;
    for (int tries = 0; !(d->reads >> k & 1) && tries < QM_HYPERS; tries++)
        k = (k + 1) % QM_HYPERS;
    enum qm_hyper_bin bin = (enum qm_hyper_bin)(1 + qm_domain_below(s, QM_HYPER_BINS - 1));
    double value = qm_hyper_draw_for(k, bin, qm_domain_word(s), &c->shape);
    int is_fixed = c->kind == QM_CLASS_exact && (k == QM_HYPER_beta1 || k == QM_HYPER_beta2);
    if (isnan(value) || is_fixed || !(d->reads >> k & 1))
        return;
    to.given |= (uint64_t)1 << k;
    to.hyper[k] = mode_or(d, c, k, value);
    if (qm_domain_takes(d, &to))
        *c = to;
}

static void hyper(const struct qm_domain *d, struct qm_domain_source *s, struct qm_case *c)
{
    struct qm_case to = *c;
    to.setting = c->kind == QM_CLASS_exact ? QM_SETTING_exact
                                           : (enum qm_setting)qm_domain_below(s, QM_SETTING_COUNT);
    if (c->kind == QM_CLASS_edges && qm_domain_one_in(s, 2)) {
        to.setting = QM_SETTING_beta0;      /* the gradients themselves become the states */
    } else if (c->kind == QM_CLASS_edges) { /* or half their sum with loaded ones */
        static const int betas[] = {QM_HYPER_beta1, QM_HYPER_beta2};
        for (int i = 0; i < 2; i++) {
            to.given |= d->reads & (uint64_t)1 << betas[i];
            to.hyper[betas[i]] = d->reads >> betas[i] & 1 ? 0.5 : 0.0;
        }
    }
    if ((c->kind == QM_CLASS_exact || c->kind == QM_CLASS_edges || qm_domain_one_in(s, 5)) &&
        qm_domain_takes(d, &to))
        *c = to;
    int is_zero = c->kind == QM_CLASS_zeros || c->kind == QM_CLASS_signedzeros;
    if (is_zero && qm_domain_one_in(s, 3) && d->reads >> QM_HYPER_eps & 1) { /* 0 / 0 */
        to = *c;
        to.given |= (uint64_t)1 << QM_HYPER_eps;
        to.hyper[QM_HYPER_eps] = 0.0;
        if (qm_domain_takes(d, &to))
            *c = to;
    }
    int n = (int)qm_domain_below(s, 5);
    for (int i = 0; i < n; i++)
        another_hyper(d, s, c);
}

static void parts(const struct qm_domain *d, struct qm_domain_source *s, struct qm_case *c)
{
    int is_exact = c->kind == QM_CLASS_exact;
    for (int k = 0; k < QM_POWERS; k++) {
        if (!qm_domain_one_in(s, 3) || (k == QM_POWER_g && is_exact))
            continue;
        c->powered |= 1u << k;
        c->power[k] = c->kind == QM_CLASS_edges && qm_domain_one_in(s, 2) ? 0 : power(s);
    }
    for (int k = 0; k < QM_PARTS; k++)
        if (k != QM_PART_busy && qm_domain_one_in(s, k <= QM_PART_gfirst ? 10 : 5))
            c->part |= 1u << k;
    if (!qm_case_loads(c))
        c->part &= ~(1u << QM_PART_sodd);
    if (!d->can_schedule || is_exact)
        c->part &= ~(1u << QM_PART_schedule);
    if (qm_domain_one_in(s, 4))
        c->tensor_after_one = any_tensor(s) - 1u;
}

/* Whether case i is a plain one (plain_case.c); the number of plain cases before it. */
static int is_plain(int64_t i) { return i % 8 == 2 || i % 8 == 4 || i % 8 == 6; }
static int64_t plain_before(int64_t i) { return 3 * (i / 8) + i % 8 / 2 - 1; }

/* Elements of the parameter and of all slots. */
static int64_t numbers(const struct qm_domain *d, const struct qm_case *c)
{
    struct qm_recipe r = d->recipe;
    int64_t sum = qm_shape_numel(&c->shape);
    qm_case_apply(c, &r);
    for (int i = 0; i < r.rule->n_slots; i++) {
        struct qm_shape slot;
        qm_rule_slot_shape(r.rule, &r.hyper, i, &c->shape, &slot);
        sum += qm_shape_numel(&slot);
    }
    return sum;
}

/* Halves the largest size until the slots are no larger than a check can judge. */
static void bound_slots(const struct qm_domain *d, struct qm_case *c)
{
    int has_window = (int)(d->reads >> QM_HYPER_window & 1);
    int64_t most = has_window ? WINDOW_NUMBERS : 4 * PROJECTED;
    while (c->shape.rank > !has_window && d->largest <= WINDOWED && numbers(d, c) > most) {
        int at = 0;
        for (int a = 1; a < c->shape.rank; a++)
            at = c->shape.dim[a] > c->shape.dim[at] ? a : at;
        if (c->shape.dim[at] < 2)
            return;
        c->shape.dim[at] = (c->shape.dim[at] + 1) / 2;
    }
}

void qm_domain_bound_step(const struct qm_domain *d, int64_t most, struct qm_case *c)
{
    struct qm_recipe r = d->recipe;
    qm_case_apply(c, &r);
    int64_t gap = r.hyper.gap >= 1.0 ? (int64_t)fmin(r.hyper.gap, 1e6) : 1;
    int is_vector = c->shape.rank < 2 && !qm_case_has_company(c); /* which is not projected */
    if (qm_domain_may_project(d) && !is_vector && r.hyper.rank > 0.0 && (c->t - 1) / gap > most)
        c->t = 1 + c->t % (most * gap);
}

/* A case of any size and kind, number i of them. */
static struct qm_case any_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t i)
{
    struct qm_case c = {.forced = 1};
    if (qm_large_case(d, s, i, &c) || qm_side_case(d, s, i, &c) || qm_aimed_case(d, s, i, &c))
        return c;
    if (is_plain(i)) {
        c = qm_plain_case(d, s, plain_before(i));
    } else {
        c.forced = !qm_domain_one_in(s, 4);
        c.shape = qm_domain_shape(d, s, i);
        c.t = qm_domain_first_step(d, s);
        c.kind = gradient_class(s);
        if (is_busy(i)) {
            c.t = 1 + qm_domain_below(s, 12);
            c.kind = QM_CLASS_normal;
        }
        hyper(d, s, &c);
        parts(d, s, &c);
    }
    bound_slots(d, &c);
    if (is_busy(i))
        c.part |= 1u << QM_PART_busy;
    return c;
}

/* Of four cases three are small; the last 40 of a round are of joint_case.c. */
struct qm_case qm_domain_draw(const struct qm_domain *d, uint64_t seed, int64_t i)
{
    enum { TRIES = 64, ROUND = 4, ALL = QM_CHECK_DRAWS, OTHERS = ALL - 40 };
    int64_t joint = i % ALL - OTHERS;
    struct qm_domain_source s = {seed ^ 0x646f6d61696eu, (uint64_t)i, 0};
    struct qm_case c = {.forced = 1};
    for (int tries = 0; tries < TRIES; tries++) {
        c = joint >= 0  ? qm_joint_case(d, &s, i / ALL * (ALL - OTHERS) + joint)
            : i % ROUND ? qm_small_case(d, &s, i - i / ROUND - 1)
                        : any_case(d, &s, i / ROUND);
        if (i % ROUND || joint >= 0)
            bound_slots(d, &c);
        qm_domain_bound_rank(d, &c);
        if (!qm_case_is_withheld(&d->recipe, &c))
            break;
    }
    qm_domain_bound_step(d, PROJECTIONS, &c);
    qm_domain_finish(d, seed ^ (uint64_t)i, &c);
    int is_aimed = c.kind == QM_CLASS_planted || c.kind == QM_CLASS_exact;
    if (d->rounds_by_draws && is_aimed && c.tensor_after_one == 0 && qm_domain_one_in(&s, 3))
        c.tensor_after_one = 1 + (uint32_t)qm_domain_below(&s, 299); /* planted draws */
    return c;
}

struct qm_case qm_domain_further(const struct qm_domain *d, uint64_t seed, int64_t i)
{
    struct qm_domain_source s = {seed ^ 0x667572746865u, (uint64_t)i, 0};
    struct qm_case c;
    if (i % 12 == 5 && d->largest > QM_COSTLY)
        return qm_large_further(d, &s, i / 12);
    c = i % 4 == 3 ? qm_extreme_case(d, &s, i / 4)
        : i % 2    ? qm_crossed_case(d, &s, i)
                   : qm_plain_case(d, &s, i / 2);
    bound_slots(d, &c);
    qm_domain_bound_rank(d, &c);
    return c;
}

struct qm_case qm_domain_large(const struct qm_domain *d, uint64_t seed, int64_t i,
                               const struct qm_shape *shape)
{
    struct qm_domain_source s = {seed ^ 0x6c61726765u, (uint64_t)i, 0};
    return qm_large_settings(d, &s, i, shape);
}

/* ---- bins ------------------------------------------------------------------------------------ */

static const char *const names[] = {
#define X(name, bins) #name,
    QM_COORDINATE_LIST(X)
#undef X
};
static const char *const bins[] = {
#define X(name, bins) bins,
    QM_COORDINATE_LIST(X)
#undef X
};
static const char *const classes[] = {
#define X(name, text) #name,
    QM_CLASS_LIST(X)
#undef X
};
static const char *const hyper_bins[] = {
#define X(name) #name,
    QM_HYPER_BIN_LIST(X)
#undef X
};

int qm_domain_has(const struct qm_domain *d, int k)
{
    return k < QM_COORDINATE_hyper || (d->reads >> (k - QM_COORDINATE_hyper) & 1);
}

const char *qm_coordinate_name(int k)
{
    return k < QM_COORDINATE_hyper ? names[k] : qm_hyper_names[k - QM_COORDINATE_hyper];
}

const char *qm_coordinate_bin(int k, int bin, char text[24])
{
    const char *from = k < QM_COORDINATE_hyper ? bins[k] : NULL;
    if (k == QM_COORDINATE_class)
        return bin < QM_CLASS_COUNT ? classes[bin] : NULL;
    if (k >= QM_COORDINATE_hyper)
        return bin < QM_HYPER_BINS ? hyper_bins[bin] : NULL;
    for (int i = 0; i < bin && from; i++)
        from = strchr(from, ' ') ? strchr(from, ' ') + 1 : NULL;
    if (!from)
        return NULL;
    snprintf(text, 24, "%.*s", (int)strcspn(from, " "), from);
    return text;
}

static int size_bin(int64_t n)
{
    static const int power[] = {8, 15, 16, 17, 20};
    int bin = 2;
    if (n < 2)
        return (int)n;
    for (size_t i = 0; i < sizeof power / sizeof *power; i++, bin += 2) {
        if (n < (1 << power[i]) - 8)
            return bin;
        if (n <= (1 << power[i]) + 8)
            return bin + 1;
    }
    return bin - 1;
}

static int step_bin(int64_t t)
{
    static const int64_t last[] = {1, 15, 31, 1022, 1025, (1 << 16) - 1, ((int64_t)1 << 31) - 1};
    int bin = 0;
    while (bin < (int)(sizeof last / sizeof *last) && t > last[bin])
        bin++;
    return bin;
}

/* 0: not given; then below 2^-60, below 1, up to 2^60, above. */
static int power_bin(const struct qm_case *c, enum qm_power which)
{
    int k = qm_case_power(c, which);
    if (!(c->powered >> which & 1) || (k == 0 && which != QM_POWER_s))
        return 0;
    return k < -60 ? 1 : k < 0 ? 2 : k <= 60 ? 3 : 4;
}

void qm_domain_bins(const struct qm_domain *d, const struct qm_case *c, int bin[QM_COORDINATES])
{
    struct qm_recipe r = d->recipe;
    int64_t n = qm_shape_numel(&c->shape), block = d->block[0];
    int rank = c->shape.rank;
    qm_case_apply(c, &r);
    bin[QM_COORDINATE_rank] = rank;
    bin[QM_COORDINATE_ones] = 0;
    for (int a = 0; a < rank; a++)
        bin[QM_COORDINATE_ones] |= c->shape.dim[a] == 1;
    bin[QM_COORDINATE_sides] = qm_domain_sides_bin(&c->shape);
    bin[QM_COORDINATE_size] = size_bin(n);
    bin[QM_COORDINATE_large] = n > QM_LARGE;
    bin[QM_COORDINATE_blocks] = n == 0 ? 0 : n < block ? 1 : n % block == 0 ? 2 : 3;
    bin[QM_COORDINATE_class] = (int)c->kind;
    bin[QM_COORDINATE_step] = step_bin(c->t);
    bin[QM_COORDINATE_fallback] = c->forced;
    bin[QM_COORDINATE_p] = power_bin(c, QM_POWER_p);
    bin[QM_COORDINATE_g] = power_bin(c, QM_POWER_g);
    bin[QM_COORDINATE_state] = power_bin(c, QM_POWER_s);
    bin[QM_COORDINATE_tensor] = c->tensor_after_one != 0;
    bin[QM_COORDINATE_pzero] = qm_case_takes(c, QM_PART_pzero);
    bin[QM_COORDINATE_busy] = qm_case_takes(c, QM_PART_busy);
    bin[QM_COORDINATE_podd] = qm_case_takes(c, QM_PART_podd);
    bin[QM_COORDINATE_sodd] = qm_case_takes(c, QM_PART_sodd);
    bin[QM_COORDINATE_godd] = qm_case_takes(c, QM_PART_godd);
    bin[QM_COORDINATE_gfirst] = qm_case_takes(c, QM_PART_gfirst);
    bin[QM_COORDINATE_schedule] = qm_case_takes(c, QM_PART_schedule);
    bin[QM_COORDINATE_second] = qm_case_takes(c, QM_PART_second);
    bin[QM_COORDINATE_group] = qm_case_takes(c, QM_PART_group);
    bin[QM_COORDINATE_warm] = qm_case_takes(c, QM_PART_warm);
    bin[QM_COORDINATE_fresh] = qm_case_takes(c, QM_PART_fresh);
    for (int k = 0; k < QM_HYPERS; k++)
        bin[QM_COORDINATE_hyper + k] =
            d->reads >> k & 1 ? (int)qm_hyper_bin_of(k, qm_hyper_get(&d->recipe.hyper, k),
                                                     qm_hyper_get(&r.hyper, k))
                              : -1;
}
