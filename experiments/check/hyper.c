/* hyper.c - Draws hyper-parameters, and finds those that a rule reads. */
#include "experiments/check/hyper.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/philox.h"

const char *const qm_hyper_names[QM_HYPERS] = {
#define X(name, value, text) #name,
    QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
};

double qm_hyper_get(const struct qm_hyper *h, int k)
{
    switch (k) {
#define X(name, value, text) \
    case QM_HYPER_##name: return (double)h->name;
        QM_HYPER_LIST(X)
        QM_HYPER_FLAG_LIST(X)
#undef X
    default: return (double)NAN;
    }
}

void qm_hyper_put(struct qm_hyper *h, int k, double to)
{
    switch (k) {
#define X(name, value, text) \
    case QM_HYPER_##name: h->name = to; break;
        QM_HYPER_LIST(X)
#undef X
#define X(name, value, text) \
    case QM_HYPER_##name: h->name = to != 0.0; break;
        QM_HYPER_FLAG_LIST(X)
#undef X
    default: break;
    }
}

/* ---- the domain ------------------------------------------------------------------------------ */

/* What a hyper-parameter is; a new one does not compile before it has a kind here. */
enum kind {
    RATE,
    WEIGHT,
    FACTOR,
    STEPS,
    RANK,
    SIDE,
    POWER,
    COUNT,
    WINDOW,
    LENGTH, /* of a block */
    ORDER,  /* of a matrix */
    AREA,   /* the square of an order */
    SHARE,
    FLAG
};
/* clang-format off */
enum {
    KIND_lr = RATE, KIND_eps = RATE, KIND_eps1 = RATE, KIND_eps2 = RATE, KIND_weight_decay = RATE,
    KIND_initial_lr = RATE, KIND_margin = RATE, KIND_momentum_decay = RATE,
    KIND_beta1 = WEIGHT, KIND_beta2 = WEIGHT, KIND_beta3 = WEIGHT, KIND_momentum = WEIGHT,
    KIND_dampening = WEIGHT,
    KIND_alpha = FACTOR, KIND_clip = FACTOR, KIND_scale = FACTOR, KIND_max_unorm = FACTOR,
    KIND_gnorm_scale = FACTOR,
    KIND_t_alpha = STEPS, KIND_t_beta3 = STEPS, KIND_gap = STEPS,
    KIND_stat_gap = STEPS, KIND_root_gap = STEPS, KIND_start = STEPS,
    KIND_rect_stat = COUNT, KIND_rect_root = COUNT, KIND_max_order = ORDER, KIND_min_lowbit = AREA,
    KIND_stat_decay = WEIGHT, KIND_matrix_eps = RATE,
    KIND_rank = RANK, KIND_side = SIDE, KIND_adjust = SIDE, KIND_beta2_decay = POWER,
    KIND_window = WINDOW, KIND_d_block = LENGTH, KIND_k_init = SHARE
};
/* clang-format on */

static const enum kind kinds[QM_HYPERS] = {
#define X(name, value, text) (enum kind) KIND_##name,
    QM_HYPER_LIST(X)
#undef X
#define X(name, value, text) FLAG,
        QM_HYPER_FLAG_LIST(X)
#undef X
};

/* Where tiny ends and where large begins. */
static const struct {
    double tiny, large;
} ends[] = {[RATE] = {1e-4, 1.0},     [WEIGHT] = {0.05, 0.96}, [FACTOR] = {0.1, 6.0},
            [STEPS] = {11.0, 1001.0}, [RANK] = {1.0, 5.0},     [SIDE] = {2.0, 3.0},
            [POWER] = {0.1, 1.0},     [COUNT] = {3.0, 6.0},    [WINDOW] = {5.0, 41.0},
            [LENGTH] = {5.0, 41.0},   [ORDER] = {3.0, 6.0},    [AREA] = {3.0, 6.0},
            [SHARE] = {0.005, 0.2},   [FLAG] = {0.0, 2.0}};

/* The largest that is drawn: the largest that rules take, but for a rank, whose projections cost
 * that times a side. */
static double most_of(enum kind is)
{
    return is == RANK     ? 512.0
           : is == WINDOW ? 4096.0
           : is == LENGTH ? 32768.0
           : is == ORDER  ? 1048576.0
                          : 16777216.0;
}

static int counts_elements(enum kind is)
{
    return is == RANK || is == LENGTH || is == ORDER || is == AREA;
}

int qm_hyper_is_flag(int k) { return kinds[k] == FLAG; }

enum qm_hyper_bin qm_hyper_bin_of(int k, double own, double value)
{
    double size = fabs(value);
    return value == own                  ? QM_HYPER_BIN_own
           : value == 0.0                ? QM_HYPER_BIN_zero
           : size == 1.0                 ? QM_HYPER_BIN_one
           : size < ends[kinds[k]].tiny  ? QM_HYPER_BIN_tiny
           : size < ends[kinds[k]].large ? QM_HYPER_BIN_ordinary
                                         : QM_HYPER_BIN_large;
}

/* The number of `digits` significant decimal digits nearest to x. */
static double rounded(double x, int digits)
{
    char text[40];
    snprintf(text, sizeof text, "%.*e", digits - 1, x);
    return strtod(text, NULL);
}

static double power_of_ten(double from, double to, double u)
{
    return rounded(pow(10.0, from + (to - from) * u), 2);
}

static double tiny(enum kind is, double u)
{
    switch (is) {
    case RATE: return power_of_ten(-30.0, -5.0, u);
    case WEIGHT: return power_of_ten(-12.0, -2.0, u);
    case FACTOR: return power_of_ten(-12.0, -2.0, u);
    case STEPS: return 2.0 + floor(9.0 * u);
    case RANK: return u < 0.5 ? 0.25 : 0.5;
    case COUNT:
    case ORDER:
    case AREA: return 2.0;
    case POWER: return -power_of_ten(-4.0, -1.5, u);
    case WINDOW:
    case LENGTH: return 2.0 + floor(3.0 * u);
    case SHARE: return power_of_ten(-6.0, -2.4, u);
    default: return (double)NAN;
    }
}

static double ordinary(enum kind is, double u)
{
    switch (is) {
    case RATE: return power_of_ten(-3.9, -0.1, u);
    case WEIGHT: return rounded(0.06 + 0.89 * u, 2);
    case FACTOR: /* a tenth just below 1, as the shares are that some rules have here */
        return u < 0.4   ? rounded(0.2 + 1.25 * u, 2)
               : u < 0.5 ? 1.0 - power_of_ten(-9.0, -2.0, 10.0 * (u - 0.4))
                         : rounded(1.1 + 6.0 * (u - 0.5), 2);
    case STEPS: return 11.0 + floor(989.0 * u);
    case RANK: return 2.0 + floor(3.0 * u);
    case COUNT:
    case ORDER:
    case AREA: return 3.0 + floor(3.0 * u);
    case SIDE: return 2.0;
    case POWER: return -rounded(0.15 + 0.8 * u, 2);
    case WINDOW:
    case LENGTH: return 5.0 + floor(36.0 * u);
    case SHARE: return rounded(0.006 + 0.19 * u, 2);
    default: return (double)NAN;
    }
}

/* Log-uniform among the whole numbers from where large begins. */
static double large_count(enum kind is, double u)
{
    double from = ends[is].large, most = most_of(is);
    return fmin(floor(from * pow((most + 1.0) / from, u)), most);
}

static double large(enum kind is, double u)
{
    switch (is) {
    case RANK:
    case WINDOW:
    case LENGTH:
    case ORDER:
    case AREA: return large_count(is, u);
    case RATE: return power_of_ten(0.5, 4.0, u);
    case WEIGHT: /* 1 - b log-uniform to 2^-24; one in eight is closer to 1 than a float32 */
        return u < 0.125 ? 1.0 - pow(10.0, -8.0 - floor(16.0 * u))
                         : 1.0 - power_of_ten(-7.22, -1.4, (u - 0.125) / 0.875);
    case FACTOR: return power_of_ten(1.0, 6.0, u);
    case STEPS: return rounded(pow(10.0, 3.01 + 5.99 * u), 3);
    case COUNT: return 6.0 + floor(7.0 * u);
    case SIDE: return 3.0;
    case POWER: return -rounded(1.1 + u, 2);
    case SHARE: return rounded(0.21 + 0.78 * u, 2);
    default: return (double)NAN;
    }
}

double qm_hyper_draw(int k, enum qm_hyper_bin bin, uint32_t word)
{
    double u = ((double)word + 0.5) * 0x1p-32;
    enum kind is = kinds[k];
    switch (bin) {
    case QM_HYPER_BIN_zero: return is == ORDER || is == SHARE ? (double)NAN : 0.0;
    case QM_HYPER_BIN_one: return is == POWER ? -1.0 : 1.0;
    case QM_HYPER_BIN_tiny: return tiny(is, u);
    case QM_HYPER_BIN_ordinary: return ordinary(is, u);
    case QM_HYPER_BIN_large: return large(is, u);
    default: return (double)NAN;
    }
}

double qm_hyper_beyond(int k, int is_up, double x, uint32_t word)
{
    enum kind is = kinds[k];
    double u = ((double)word + 0.5) * 0x1p-32, by = pow(10.0, (word % 2 ? 6.0 : 1.0) * u);
    double most = most_of(is), to;
    int is_count = is == STEPS || counts_elements(is) || is == WINDOW || is == COUNT;
    if (is == FLAG || is == SIDE || is == SHARE || is == POWER)
        return (double)NAN;
    x = fabs(x);
    if (is == WEIGHT && is_up && x >= 0.5)
        return 1.0 - rounded(fmax((1.0 - x) / by, 1e-23), 2);
    if (is_count)
        to = is_up ? floor(x * by) + 1.0 : floor(x / by);
    else
        to = rounded(is_up ? fmax(x, 1e-6) * by : x / by, 2);
    double least = is_count ? 1.0 : is == RATE ? 1e-30 : 1e-12;
    most = is == RATE ? 1e4 : is == WEIGHT ? 1.0 : is == FACTOR ? 1e6 : is == STEPS ? 1e9 : most;
    to = fmin(fmax(to, least), most);
    return is_up == (to > x) && to != x ? to : (double)NAN;
}

/* A size of the shape, of one axis or of several, or one beside it; 0: it has none. */
static double near_shape(enum kind is, uint32_t word, const struct qm_shape *s)
{
    int from = s->rank ? (int)(word / 16 % (uint32_t)s->rank) : 0;
    int to = is == LENGTH && word / 256 % 2 ? s->rank : from + 1; /* a block runs through axes */
    double n = s->rank ? 1.0 : 0.0, beside = (double)(word / 4096 % 3) - 1.0;
    for (int a = from; a < to && a < s->rank; a++)
        n *= (double)s->dim[a];
    n = is == AREA ? n * n : n;
    return n + beside < 1.0 ? 0.0 : fmin(n + beside, most_of(is));
}

double qm_hyper_draw_for(int k, enum qm_hyper_bin bin, uint32_t word, const struct qm_shape *shape)
{
    enum { STREAM = 0x73697a65 };
    uint32_t other = qm_philox_stream(word, STREAM, 0);
    double near = other % 2 ? near_shape(kinds[k], other, shape) : 0.0;
    if (bin == QM_HYPER_BIN_large && counts_elements(kinds[k]) && near > 0.0)
        return near;
    return qm_hyper_draw(k, bin, word);
}

/* ---- schedules ------------------------------------------------------------------------------- */

/* 1: an open plan of tensors of any shape takes the hyper-parameters h. */
static int is_takeable(const struct qm_recipe *r, const struct qm_hyper *h)
{
    static const struct qm_shape shapes[] = {{1, {24}}, {2, {6, 5}}, {2, {5, 6}}, {3, {2, 3, 4}}};
    int is = 1;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && is; i++) {
        struct qm_recipe now = *r;
        is = qm_recipe_schedule(&now, &shapes[i], h) == QM_OK;
    }
    return is;
}

/* Replaces number k by a drawn one, unless the rule refuses it. */
static void vary(struct qm_recipe *r, int k, uint64_t seed, uint64_t stream)
{
    struct qm_recipe next = *r;
    uint32_t bin = qm_philox_stream(seed, stream, 2 * (uint64_t)k);
    uint32_t word = qm_philox_stream(seed, stream, 2 * (uint64_t)k + 1);
    double value = qm_hyper_draw(k, (enum qm_hyper_bin)(1 + bin % (QM_HYPER_BINS - 1)), word);
    if (k == QM_HYPER_lr) /* 0 in every eighth step, else a number as schedules have it */
        value = bin % 8 ? qm_hyper_draw(k, QM_HYPER_BIN_ordinary, word) : 0.0;
    qm_hyper_put(&next.hyper, k, value);
    if (!isnan(value) && is_takeable(r, &next.hyper))
        *r = next;
}

struct qm_hyper qm_hyper_schedule(const struct qm_recipe *r, uint64_t seed, int step)
{
    enum { STREAM = 7000 };
    struct qm_recipe at = *r;
    uint64_t stream = STREAM + (uint64_t)step, reads = qm_hyper_read(r);
    if (at.hyper.initial_lr == 0.0)
        at.hyper.initial_lr = at.hyper.lr;
    for (int k = 0; k < QM_HYPERS && step > 0; k++) {
        int stays =
            !(reads >> k & 1) || kinds[k] == FLAG || kinds[k] == SIDE || kinds[k] == COUNT ||
            kinds[k] == WINDOW || kinds[k] == SHARE || counts_elements(kinds[k]) ||
            k == QM_HYPER_gap || k == QM_HYPER_initial_lr ||
            /* an exponent above 0 says which states there are (mode_or in domain.c) */
            (at.hyper.beta2_decay > 0.0 && (k == QM_HYPER_beta2_decay || k == QM_HYPER_beta2));
        if (!stays &&
            (k == QM_HYPER_lr || qm_philox_stream(seed, stream, 1000 + (uint64_t)k) % 3 == 0))
            vary(&at, k, seed, stream);
    }
    return at.hyper;
}

/* ---- what a rule reads ----------------------------------------------------------------------- */

uint64_t qm_hyper_read(const struct qm_recipe *r)
{
    uint64_t reads = 0;
    for (int k = 0; k < QM_HYPERS; k++)
        reads |= (uint64_t)(qm_rule_reads(r->rule, qm_hyper_names[k]) != 0) << k;
    return reads;
}
