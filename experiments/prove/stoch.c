/* stoch.c - Proves stochastic rounding by exact counts of draws, and by a sequential test. */
#include "experiments/prove/stoch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/recipe/recipe.h"
#include "experiments/cli/cli.h"
#include "experiments/prove/prove.h"
#include "oracle/codebook/unbiased_test.h"

/* ---- 16 bits, enumerated --------------------------------------------------------------------- */

void qm_bf16_deviations_count(int64_t (*ups)(const void *of, uint32_t base, uint32_t fraction),
                              const void *of, uint32_t base, struct qm_bf16_deviations *out)
{
    static const int n = 65536;
    int64_t *count = malloc(sizeof *count * (size_t)n);
    memset(out, 0, sizeof *out);
    if (!count)
        return;
#pragma omp parallel for schedule(static)
    for (int f = 0; f < n; f++)
        count[f] = ups(of, base, (uint32_t)f);
    for (int f = 0; f < n; f++) {
        int64_t off = count[f] - f;
        out->sum += off;
        if (llabs(off) > llabs(out->worst)) {
            out->worst = off;
            out->at = (uint32_t)f;
        }
    }
    out->evaluations = (int64_t)n * n;
    free(count);
}

/* Counts the ups of core/rule/param.h over all values of the draw's upper 16 bits. */
static int64_t ups_bf16(const void *of, uint32_t base, uint32_t fraction)
{
    int64_t sum = 0;
    uint32_t low = *(const uint32_t *)of; /* the draw's lower bits, which must have no effect */
    float x = qm_float(base << 16 | fraction);
    for (uint32_t draw = 0; draw < 65536; draw++)
        sum += qm_param_stochastic(QM_PARAM_bf16, x, draw << 16 | low) - base;
    return sum;
}

/* ---- 32 bits, bisected ----------------------------------------------------------------------- */

struct sum {
    long double mean;
    uint64_t ups;
    double high;
};

/* Adds draws from .. to (inclusive), where a and b are the values at both ends. */
static void add_draws(const struct qm_rounder *r, float x, uint64_t from, uint64_t to, double a,
                      double b, struct sum *s)
{
    if (a == b) {
        s->mean += (long double)a * (long double)(to - from + 1) * 0x1p-32L;
        s->ups += a == s->high ? to - from + 1 : 0;
    } else if (to - from == 1) {
        add_draws(r, x, from, from, a, a, s);
        add_draws(r, x, to, to, b, b, s);
    } else {
        uint64_t mid = (from + to) / 2;
        double m = r->value(r->of, x, (uint32_t)mid);
        add_draws(r, x, from, mid, a, m, s);
        add_draws(r, x, mid, to, m, b, s);
        s->mean -= (long double)m * 0x1p-32L; /* both halves hold mid */
        s->ups -= m == s->high;
    }
}

void qm_expect(const struct qm_rounder *r, float x, struct qm_expectation *out)
{
    double a = r->value(r->of, x, 0), b = r->value(r->of, x, 0xffffffffu), last = a;
    struct sum s = {.high = fmax(a, b)};
    add_draws(r, x, 0, 0xffffffffu, a, b, &s);
    *out = (struct qm_expectation){fmin(a, b), s.high, s.ups, (double)s.mean, 1};
    for (uint32_t i = 1; i < 64; i++) {
        double v = r->value(r->of, x, i * 0x04030201u);
        out->is_monotone &= a <= b ? v >= last : v <= last;
        last = v;
    }
}

static double value_of_param(const void *of, float x, uint32_t draw)
{
    const enum qm_param_format *format = of;
    return (double)qm_param_widen(*format, qm_param_stochastic(*format, x, draw));
}

static double value_of_codec(const void *of, float y, uint32_t draw)
{
    const struct qm_codec *c = of;
    return (double)c->cb.value[qm_code_of(c, y, draw)];
}

/* ---- a survey of numbers --------------------------------------------------------------------- */

enum { PER_CELL = 64 };

struct survey {
    int64_t numbers;
    double worst, sum; /* bias (mean - x) / gap, in steps of the target: largest, sum */
    float at;          /* number of the largest bias */
    uint64_t ups;      /* of `at` */
    int is_monotone;
};

/* Adds number x between neighbours low and high of the target. */
static void survey_add(const struct qm_rounder *r, float x, double low, double high,
                       struct survey *s)
{
    struct qm_expectation e;
    qm_expect(r, x, &e);
    double off = (e.mean - (double)x) / (high - low);
    s->numbers++;
    s->sum += off;
    s->is_monotone &= e.is_monotone;
    if (s->numbers == 1 || fabs(off) > fabs(s->worst)) {
        s->worst = off;
        s->at = x;
        s->ups = e.ups;
    }
}

/* Adds numbers of a cell: the two floats at each end, and others by counted draws. */
static void survey_cell(const struct qm_rounder *r, float low, float high, uint64_t cell,
                        struct survey *s)
{
    int64_t from = qm_ordered(low), to = qm_ordered(high);
    for (int i = 0; i < PER_CELL && to > from + 1; i++) {
        int64_t inner = to - from - 1;
        int64_t at = i < 2 ? 1 + i
                     : i < 4
                         ? inner - (i - 2)
                         : 1 + (int64_t)(qm_philox_stream(7, cell, (uint64_t)i) % (uint64_t)inner);
        if (at >= 1 && at <= inner)
            survey_add(r, qm_unordered((int32_t)(from + at)), (double)low, (double)high, s);
    }
}

/* ---- the sequential test --------------------------------------------------------------------- */

/* Tests the engine's encoder with its counted draws on numbers of all cells. */
static void test_codec(const struct qm_codec *c, struct qm_unbiased *u)
{
    enum { BATCH = 4096 };
    struct qm_codec tensor = *c;
    struct qm_draws draws = qm_draws_for(20240501, 1, 0, QM_ROLE_slot0);
    struct qm_shape shape = {1, {(int64_t)1 << 40}};
    float y[BATCH], max = tensor.cb.over != 0.0f ? tensor.cb.over : 1.0f / tensor.cb.gain;
    uint8_t code[BATCH], position;
    tensor.q.norm = QM_NORM_tensor;
    for (int64_t at = 0; u->verdict == QM_UNBIASED_OPEN && at < (int64_t)1 << 31; at += BATCH) {
        double p[BATCH];
        int cell[BATCH];
        for (int i = 0; i < BATCH; i++) {
            uint32_t word = qm_philox_stream(11, 3, (uint64_t)(at + i));
            int k = cell[i] = (int)(word % (uint32_t)(c->cb.n - 1));
            float lo = c->cb.value[k], hi = c->cb.value[k + 1];
            y[i] = lo + (hi - lo) * (float)(word >> 8) * 0x1p-24f;
            p[i] = hi > lo ? ((double)y[i] - (double)lo) / ((double)hi - (double)lo) : 0.0;
        }
        qm_encode_range(&tensor, &shape, at, BATCH, y, &max, &draws, code);
        for (int i = 0; i < BATCH; i++) {
            position = c->cb.position_of[code[i]];
            qm_unbiased_add(u, p[i], position > cell[i]);
        }
    }
}

static void test_param(enum qm_param_format format, struct qm_unbiased *u)
{
    struct qm_draws draws = qm_draws_for(20240501, 1, 0, QM_ROLE_param);
    for (int64_t at = 0; u->verdict == QM_UNBIASED_OPEN && at < (int64_t)1 << 31; at++) {
        float x = 1.0f + (float)(qm_philox_stream(11, 3, (uint64_t)at) >> 9) * 0x1p-23f;
        double low = value_of_param(&format, x, 0xffffffffu), high = value_of_param(&format, x, 0);
        double got = value_of_param(&format, x, qm_draw(&draws, at));
        qm_unbiased_add(u, high > low ? ((double)x - low) / (high - low) : 0.0, got > low);
    }
}

/* Adds the result of the test to a row. */
static json_t *with_test(json_t *row, const struct qm_unbiased *u)
{
    static const char *const words[] = {"undecided", "unbiased", "BIASED"};
    json_t *test = json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:f}", "sequential_test",
                             words[u->verdict], "draws", (json_int_t)u->trials, "ups",
                             (json_int_t)u->ups, "expected", u->expected, "detectable_bias",
                             u->bias, "alpha", u->alpha, "power", 1.0 - u->beta);
    json_object_update(row, test);
    json_decref(test);
    return row;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Bound on the bias of core/quant/round.h's float32 arithmetic: the position in the cell has 3
 * roundings, the uniform number 2 of half its size, their sum one of 2^-24; a draw stands for the
 * middle of its interval, 2^-32. */
static double codec_bound(const struct qm_codec *c)
{
    double bound = 5.0 * 0x1p-24 + 0x1p-32, steps = fmax(-c->cb.base, c->cb.base + c->cb.n - 1);
    if (c->q.search != QM_SEARCH_arith)
        return bound;
    /* y * steps is rounded, and so are the table's values; under dither their sum with the
     * draw too */
    return bound + (c->q.round == QM_ROUND_dither ? 3.0 : 2.0) * steps * 0x1p-24;
}

static json_t *row(const char *name, const char *right, const struct survey *s, double bound,
                   const struct qm_unbiased *u)
{
    char at[40], ups[48];
    int holds = s->is_monotone && fabs(s->worst) <= bound && u->verdict == QM_UNBIASED_ACCEPTED;
    snprintf(at, sizeof at, "%.9g", (double)s->at);
    snprintf(ups, sizeof ups, "%llu/2^32", (unsigned long long)s->ups);
    return with_test(json_pack("{s:s, s:s, s:b, s:I, s:f, s:f, s:s, s:s, s:f}", "stoch", name,
                               "verdict", holds ? right : "BIASED", "holds", holds, "numbers",
                               (json_int_t)s->numbers, "largest_deviation", s->worst, "allowed",
                               bound, "at", at, "goes_up_there", ups, "mean_bias",
                               s->sum / (double)s->numbers),
                     u);
}

/* Enumerates both signs, a subnormal and the largest binade, with both ends of the draw's
 * unused bits. */
static json_t *prove_bf16(const struct qm_unbiased *u)
{
    static const uint32_t base[] = {0x3f80, 0xbf80, 0x0000, 0x7f7e};
    struct qm_bf16_deviations all = {0, 0, 0, 0};
    char worst[48], at[32];
    for (uint32_t i = 0; i < 4; i++) {
        struct qm_bf16_deviations one;
        uint32_t low = i & 1 ? 0xffffu : 0;
        qm_bf16_deviations_count(ups_bf16, &low, base[i], &one);
        all.evaluations += one.evaluations;
        all.sum += one.sum;
        if (llabs(one.worst) > llabs(all.worst)) {
            all.worst = one.worst;
            all.at = one.at;
        }
    }
    int holds =
        all.worst == 0 && all.evaluations == (int64_t)4 << 32 && u->verdict == QM_UNBIASED_ACCEPTED;
    snprintf(worst, sizeof worst, "%lld/65536", (long long)all.worst);
    snprintf(at, sizeof at, "%u/65536", all.at);
    return with_test(json_pack("{s:s, s:s, s:b, s:I, s:s, s:s, s:f}", "stoch", "bf16", "verdict",
                               holds ? "exact" : "BIASED", "holds", holds, "evaluations",
                               (json_int_t)all.evaluations, "largest_deviation", worst,
                               "at_fraction", at, "mean_bias_ulp", (double)all.sum * 0x1p-34),
                     u);
}

/* Surveys every cell of the format's positive numbers, subnormal ones too (of float16 every 37th).
 * The rounding truncates the dropped fraction to 32 bits. */
static json_t *prove_param(const char *name, enum qm_param_format format,
                           const struct qm_unbiased *u)
{
    struct qm_rounder r = {value_of_param, &format};
    struct survey s = {.is_monotone = 1};
    int codes = format == QM_PARAM_f16 ? 1 << 15 : 1 << 7, stride = format == QM_PARAM_f16 ? 37 : 1;
    for (int k = 0; k + 1 < codes; k += stride) {
        float low = qm_param_widen(format, (uint32_t)k),
              high = qm_param_widen(format, (uint32_t)k + 1);
        if (high < INFINITY)
            survey_cell(&r, low, high, (uint64_t)k, &s);
    }
    return row(name, "exact to 2^-32", &s, 0x1p-32, u);
}

static qm_status prove_codec(const char *name, const struct qm_codec *c,
                             const struct qm_unbiased *u, json_t **out)
{
    struct qm_rounder r = {value_of_codec, c};
    struct survey s = {.is_monotone = 1};
    for (int k = 0; k + 1 < c->cb.n; k++)
        survey_cell(&r, c->cb.value[k], c->cb.value[k + 1], (uint64_t)k, &s);
    if (s.numbers == 0)
        return qm_fail(QM_BAD_ARG, "%s has no cell", name);
    *out = row(name, "within float32 rounding", &s, codec_bound(c), u);
    return QM_OK;
}

/* Reads a quantizer's string with or without a norm; a map alone is completed by scan and stoch. */
static qm_status read_quantizer(const char *word, struct qm_codec *c, char *name)
{
    struct qm_quantizer q;
    size_t map = strcspn(word, "/");
    char text[QM_QUANTIZER_TEXT];
    if (strchr(word, '/'))
        snprintf(text, sizeof text, "%.*s/block:128%s", (int)(map < 64 ? map : 64), word,
                 word + map);
    else
        snprintf(text, sizeof text, "%.64s/block:128/scan/stoch", word);
    if (qm_quantizer_parse(text, &q) != QM_OK)
        QM_TRY(qm_quantizer_parse(word, &q));
    if (!qm_round_draws(q.round))
        return qm_fail(QM_BAD_ARG, "%s draws nothing: its round is neither stoch nor dither", word);
    snprintf(name, QM_QUANTIZER_TEXT, "%.*s", QM_QUANTIZER_TEXT - 1, word);
    return qm_codec_init(c, &q);
}

qm_status qm_prove_stoch(const char *word, const struct qm_prove_options *o, json_t *all,
                         int *failed)
{
    static const char *const params[] = {"bf16", "f16", "e4m3"};
    static const enum qm_param_format formats[] = {QM_PARAM_bf16, QM_PARAM_f16, QM_PARAM_e4m3};
    struct qm_unbiased u;
    json_t *one = NULL;
    int which = -1;
    for (int i = 0; i < 3; i++)
        which = strcmp(word, params[i]) == 0 ? i : which;
    qm_unbiased_start(&u, o->bias, o->alpha, o->alpha);
    if (which >= 0) {
        test_param(formats[which], &u);
        one = which == 0 ? prove_bf16(&u) : prove_param(word, formats[which], &u);
    } else {
        struct qm_codec *c = malloc(sizeof *c);
        char name[QM_QUANTIZER_TEXT];
        qm_status st = c ? read_quantizer(word, c, name) : qm_fail(QM_NO_MEMORY, "a codec");
        if (st == QM_OK) {
            test_codec(c, &u);
            st = prove_codec(name, c, &u, &one);
        }
        free(c);
        QM_TRY(st);
    }
    *failed |= !json_is_true(json_object_get(one, "holds"));
    json_array_append_new(all, one);
    return QM_OK;
}
