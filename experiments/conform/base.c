/* base.c - Replays the golden vectors of Philox words and of conversions of narrow types. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rule/param.h"
#include "experiments/conform/conform.h"

/* ---- philox ---- */

/* Datasets counter [rows][4], key [rows][2] and output [rows][4]. */
static void replay_block(struct qm_conform *c)
{
    int64_t rows = qm_golden_case_per(c, "key", 2);
    const uint64_t *counter = qm_golden_case_words(c, "counter", 4 * rows);
    const uint64_t *key = qm_golden_case_words(c, "key", 2 * rows);
    const uint64_t *want = qm_golden_case_words(c, "output", 4 * rows);
    for (int64_t r = 0; counter && key && want && r < rows; r++) {
        const uint64_t *n = counter + 4 * r, *k = key + 2 * r;
        struct qm_philox_block b = qm_philox((uint32_t)n[0], (uint32_t)n[1], (uint32_t)n[2],
                                             (uint32_t)n[3], (uint32_t)k[0], (uint32_t)k[1]);
        uint64_t got[4] = {b.word[0], b.word[1], b.word[2], b.word[3]};
        qm_match_words(c, "word", got, want + 4 * r, 4);
    }
}

/* Word offset + k of a subsequence.  The sum may exceed 64 bits; the block index does not. */
static uint64_t word_after(uint64_t seed, uint64_t sub, uint64_t offset, uint64_t k)
{
    uint64_t lane = (offset & 3u) + k, block = (offset >> 2) + (lane >> 2);
    if (offset + k >= offset)
        return qm_philox_stream(seed, sub, offset + k);
    return qm_philox((uint32_t)block, (uint32_t)(block >> 32), (uint32_t)sub, (uint32_t)(sub >> 32),
                     (uint32_t)seed, (uint32_t)(seed >> 32))
        .word[lane & 3u];
}

/* Rows of (seed, subsequence, offset), each with the same number of words. */
static void replay_device(struct qm_conform *c)
{
    int64_t rows = qm_golden_case_numel(c, "seed");
    int64_t per = qm_golden_case_per(c, "words", rows);
    const uint64_t *seed = qm_golden_case_words(c, "seed", rows);
    const uint64_t *sub = qm_golden_case_words(c, "subsequence", rows);
    const uint64_t *offset = qm_golden_case_words(c, "offset", rows);
    const uint64_t *want = qm_golden_case_words(c, "words", rows * per);
    uint64_t *got = qm_golden_case_memory(c, rows * per, sizeof *got);
    if (!seed || !sub || !offset || !want || !got)
        return;
    for (int64_t i = 0; i < rows * per; i++)
        got[i] = word_after(seed[i / per], sub[i / per], offset[i / per], (uint64_t)(i % per));
    qm_match_words(c, "word", got, want, rows * per);
}

static uint64_t attribute(struct qm_conform *c, const char *name)
{
    uint64_t x = 0;
    if (!qm_golden_case_unsigned(c, name, &x))
        qm_golden_case_skip(c, "attribute %s is missing", name);
    return x;
}

/* Word offset + k of the host generator, which interleaves 65,536 subsequences, four words of
 * each at a time; the sum may exceed 64 bits. */
static uint64_t host_word(uint64_t seed, uint64_t offset, uint64_t k)
{
    uint64_t w = offset + k, carry = w < offset;
    uint64_t round = (w >> 18) + (carry << 46);
    return qm_philox_stream(seed, (w >> 2) & 65535u, round * 4u + (w & 3u));
}

static void replay_host(struct qm_conform *c)
{
    uint64_t seed = attribute(c, "seed"), offset = attribute(c, "offset");
    int64_t n = qm_golden_case_numel(c, "words");
    const uint64_t *want = qm_golden_case_words(c, "words", n), *index = NULL;
    uint64_t *got = qm_golden_case_memory(c, n, sizeof *got);
    if (qm_golden_case_has(c, "index"))
        index = qm_golden_case_words(c, "index", n);
    if (!want || !got || !qm_golden_case_open(c))
        return;
    for (int64_t i = 0; i < n; i++)
        got[i] = host_word(seed, offset, index ? index[i] : (uint64_t)i);
    qm_match_words(c, "word", got, want, n);
}

/* "c 3 s 7 q 2": three draws, seven words skipped, two subsequences skipped. */
static void replay_skips(struct qm_conform *c)
{
    char ops[256];
    uint64_t seed = attribute(c, "seed"), sub = attribute(c, "subsequence");
    uint64_t at = attribute(c, "offset");
    int64_t n = qm_golden_case_numel(c, "words");
    const uint64_t *want = qm_golden_case_words(c, "words", n);
    uint64_t *got = qm_golden_case_memory(c, n, sizeof *got);
    if (!qm_golden_case_text(c, "ops", ops, sizeof ops))
        qm_golden_case_skip(c, "attribute ops is missing");
    if (!want || !got || !qm_golden_case_open(c))
        return;
    for (char *p = ops; *p;) {
        char op = *p++;
        if (op == ' ')
            continue;
        uint64_t k = strtoull(p, &p, 10);
        if (op == 'q')
            sub += k;
        else
            at += k;
    }
    for (int64_t i = 0; i < n; i++)
        got[i] = word_after(seed, sub, at, (uint64_t)i);
    qm_match_words(c, "word", got, want, n);
}

static void replay_uniform(struct qm_conform *c)
{
    static const char *const names[2] = {"uniform", "uniform4"};
    uint64_t seed = attribute(c, "seed"), sub = attribute(c, "subsequence");
    uint64_t offset = attribute(c, "offset");
    int64_t n = qm_golden_case_numel(c, "curand");
    const uint64_t *want = qm_golden_case_words(c, "curand", n);
    uint64_t *got = qm_golden_case_memory(c, n, sizeof *got);
    float *u = qm_golden_case_memory(c, n, sizeof *u);
    if (!want || !got || !u || !qm_golden_case_open(c))
        return;
    for (int64_t i = 0; i < n; i++) {
        got[i] = word_after(seed, sub, offset, (uint64_t)i);
        u[i] = qm_uniform((uint32_t)got[i]);
    }
    qm_match_words(c, "word", got, want, n);
    for (int k = 0; k < 2; k++) {
        if (qm_golden_case_has(c, names[k]))
            qm_match_floats(c, names[k], u, qm_golden_case_floats(c, names[k], n), n);
    }
}

/* A group is a case, or each group within it is one. */
static void replay_philox(struct qm_conform *c, const struct qm_golden_place *at)
{
    if (qm_golden_at(c->file, at->path) != QM_GOLDEN_GROUP)
        return;
    if (!at->group[0] && qm_golden_groups(c, at->path)) {
        qm_golden_each(c, at->path, replay_philox);
        return;
    }
    if (!qm_golden_case_begin(c, at->path, NULL))
        return;
    if (qm_golden_case_has(c, "counter"))
        replay_block(c);
    else if (qm_golden_case_has(c, "curand"))
        replay_uniform(c);
    else if (qm_golden_case_has(c, "seed"))
        replay_device(c);
    else if (strstr(at->path, "host"))
        replay_host(c);
    else
        replay_skips(c);
    qm_golden_case_end(c);
}

void qm_conform_philox(struct qm_conform *c) { qm_golden_each(c, "", replay_philox); }

/* ---- dtypes ---- */

/* Conversions of this program, from the bits of x to the bits of the result. */
static float wide(uint64_t x) { return qm_float((uint32_t)x); }
static float wide_bf16(uint64_t x) { return qm_bf16_to_float((uint16_t)x); }
static float wide_f16(uint64_t x) { return qm_f16_to_float((uint16_t)x); }
static uint64_t bf16_to_f16(uint64_t x) { return qm_float_to_f16(wide_bf16(x)); }
static uint64_t f16_to_bf16(uint64_t x) { return qm_float_to_bf16(wide_f16(x)); }
static uint64_t f32_to_bf16(uint64_t x) { return qm_float_to_bf16(wide(x)); }
static uint64_t f32_to_f16(uint64_t x) { return qm_float_to_f16(wide(x)); }

#define FP8(from, widen)                                                                     \
    static uint64_t from##_to_e4m3(uint64_t x) { return qm_float_to_e4m3(widen(x), 0); }     \
    static uint64_t from##_to_e4m3_sat(uint64_t x) { return qm_float_to_e4m3(widen(x), 1); } \
    static uint64_t from##_to_e5m2(uint64_t x) { return qm_float_to_e5m2(widen(x), 0); }     \
    static uint64_t from##_to_e5m2_sat(uint64_t x) { return qm_float_to_e5m2(widen(x), 1); }
/* The double next to x, which the *_f64 columns converted in one rounding. */
static float beyond(uint64_t x) { return qm_double_to_odd((double)wide(x) * (1.0 + 1e-12)); }
FP8(f32, wide)
FP8(bf16, wide_bf16)
FP8(f16, wide_f16)
static uint64_t f64_to_e4m3_sat(uint64_t x) { return qm_float_to_e4m3(beyond(x), 1); }
static uint64_t f64_to_e5m2_sat(uint64_t x) { return qm_float_to_e5m2(beyond(x), 1); }

static uint64_t e4m3_to_f32(uint64_t x) { return qm_bits(qm_e4m3_to_float((uint8_t)x)); }
static uint64_t e5m2_to_f32(uint64_t x) { return qm_bits(qm_e5m2_to_float((uint8_t)x)); }
static uint64_t e4m3_to_f16(uint64_t x) { return qm_float_to_f16(wide(e4m3_to_f32(x))); }
static uint64_t e5m2_to_f16(uint64_t x) { return qm_float_to_f16(wide(e5m2_to_f32(x))); }

static const struct {
    const char *dataset;
    uint64_t (*convert)(uint64_t);
    uint64_t sign, infinity; /* bits of the result; larger ones are NaN and not compared */
} conversions[] = {
    {"bf16_to_f16", bf16_to_f16, 0x8000, 0x7c00},
    {"f16_to_bf16", f16_to_bf16, 0x8000, 0x7f80},
    {"bf16_rn", f32_to_bf16, 0x8000, 0x7f80},
    {"torch_bf16", f32_to_bf16, 0x8000, 0x7f80},
    {"f16_rn", f32_to_f16, 0x8000, 0x7c00},
    {"torch_f16", f32_to_f16, 0x8000, 0x7c00},
    {"e4m3_nosat", f32_to_e4m3, 0x80, 0x7e},
    {"e4m3_sat", f32_to_e4m3_sat, 0x80, 0x7e},
    {"e4m3_sat_f64", f64_to_e4m3_sat, 0x80, 0x7e},
    {"e5m2_nosat", f32_to_e5m2, 0x80, 0x7c},
    {"e5m2_sat", f32_to_e5m2_sat, 0x80, 0x7c},
    {"e5m2_sat_f64", f64_to_e5m2_sat, 0x80, 0x7c},
    {"bf16_to_e4m3_nosat", bf16_to_e4m3, 0x80, 0x7e},
    {"bf16_to_e4m3_sat", bf16_to_e4m3_sat, 0x80, 0x7e},
    {"bf16_to_e5m2_nosat", bf16_to_e5m2, 0x80, 0x7c},
    {"bf16_to_e5m2_sat", bf16_to_e5m2_sat, 0x80, 0x7c},
    {"f16_to_e4m3_nosat", f16_to_e4m3, 0x80, 0x7e},
    {"f16_to_e4m3_sat", f16_to_e4m3_sat, 0x80, 0x7e},
    {"f16_to_e5m2_nosat", f16_to_e5m2, 0x80, 0x7c},
    {"f16_to_e5m2_sat", f16_to_e5m2_sat, 0x80, 0x7c},
    {"e4m3_to_f32", e4m3_to_f32, 0x80000000, 0x7f800000},
    {"e5m2_to_f32", e5m2_to_f32, 0x80000000, 0x7f800000},
    {"e4m3_to_f16_bits", e4m3_to_f16, 0x8000, 0x7c00},
    {"e5m2_to_f16_bits", e5m2_to_f16, 0x8000, 0x7c00},
};
enum { N_CONVERSIONS = sizeof conversions / sizeof *conversions };

/* Bits of a dataset, which may be stored as floats. */
static uint64_t *read_bits(struct qm_conform *c, const char *dataset, int is_float, int64_t n)
{
    if (!is_float)
        return qm_golden_case_words(c, dataset, n);
    const float *x = qm_golden_case_floats(c, dataset, n);
    uint64_t *bits = qm_golden_case_memory(c, n, sizeof *bits);
    for (int64_t i = 0; x && bits && i < n; i++)
        bits[i] = qm_bits(x[i]);
    return x ? bits : NULL;
}

/* The bits of a NaN are not compared. */
static void judge_bits(struct qm_conform *c, uint64_t *got, const uint64_t *want, int64_t n,
                       uint64_t sign, uint64_t infinity)
{
    for (int64_t i = 0; i < n; i++)
        if ((got[i] & (sign - 1)) > infinity && (want[i] & (sign - 1)) > infinity)
            got[i] = want[i];
    qm_match_words(c, "value", got, want, n);
}

static void replay_conversion(struct qm_conform *c, const char *dataset, int k)
{
    int64_t n = qm_golden_case_numel(c, dataset);
    uint64_t sign = conversions[k].sign;
    uint64_t *want = read_bits(c, dataset, sign > 0x8000, n);
    uint64_t *got = qm_golden_case_memory(c, n, sizeof *got);
    const uint64_t *x =
        qm_golden_case_has(c, "x_bits") ? qm_golden_case_words(c, "x_bits", n) : NULL;
    if (!x && (n & (n - 1)) != 0) /* a table of all numbers of a format */
        qm_golden_case_unreadable(c, "%s holds %lld numbers, expected a power of two", dataset,
                                  (long long)n);
    if (!want || !got || !qm_golden_case_open(c))
        return;
    for (int64_t i = 0; i < n; i++)
        got[i] = conversions[k].convert(x ? x[i] : (uint64_t)i);
    judge_bits(c, got, want, n, sign, conversions[k].infinity);
}

/* LLMQ rounds stochastically as this program does, but by the low bits of the random word; its
 * e4m3 goes to nearest below 2^-6 and above 448.  Its bfloat16 of a NaN may be an infinity: NaN is
 * not compared. */
static void replay_stochastic(struct qm_conform *c, const char *dataset)
{
    int64_t n = qm_golden_case_numel(c, dataset);
    int is_bf16 = strcmp(dataset, "bf16") == 0;
    enum qm_param_format format = is_bf16 ? QM_PARAM_bf16 : QM_PARAM_e4m3;
    uint64_t *want = qm_golden_case_words(c, dataset, n),
             *got = qm_golden_case_memory(c, n, sizeof *got);
    const uint64_t *random = qm_golden_case_words(c, "random", n);
    const float *x = qm_golden_case_floats(c, "x", n);
    if (!want || !got || !random || !x)
        return;
    for (int64_t i = 0; i < n; i++) {
        uint32_t draw = (uint32_t)random[i] << (is_bf16 ? 16 : 12);
        int nearest = !is_bf16 && !(fabsf(x[i]) >= 0.015625f && fabsf(x[i]) <= 448.0f);
        got[i] = nearest ? qm_param_nearest(format, x[i]) : qm_param_stochastic(format, x[i], draw);
        if (qm_isnan(x[i]) && is_bf16 && (got[i] & 0x7fff) > 0x7f80)
            want[i] = got[i];
    }
    judge_bits(c, got, want, n, is_bf16 ? 0x8000 : 0x80, is_bf16 ? 0x7f80 : 0x7e);
}

/* The reason to skip a dataset whose operation this program does not have. */
static const char *why_not(const char *dataset)
{
    if (strncmp(dataset, "squirrel", 8) == 0)
        return "LLMQ's hash; every draw here is Philox";
    if (strstr(dataset, "e2m1") || strstr(dataset, "e8m0"))
        return "no state or parameter here is stored in 4-bit floats with power-of-two scales";
    if (strstr(dataset, "_rz") || strstr(dataset, "_rd") || strstr(dataset, "_ru"))
        return "nothing here rounds to 16 bits in a direction";
    return "this program does not have this conversion";
}

static void replay_dtype(struct qm_conform *c, const struct qm_golden_place *at)
{
    int k = 0;
    if (strcmp(at->name, "x") == 0 || strcmp(at->name, "x_bits") == 0 ||
        strcmp(at->name, "random") == 0 || !qm_golden_case_begin(c, at->group, at->name))
        return;
    while (k < N_CONVERSIONS && strcmp(conversions[k].dataset, at->name) != 0)
        k++;
    if (k < N_CONVERSIONS)
        replay_conversion(c, at->name, k);
    else if (qm_golden_case_has(c, "random") && strncmp(at->name, "squirrel", 8) != 0)
        replay_stochastic(c, at->name);
    else
        qm_golden_case_skip(c, "%s", why_not(at->name));
    qm_golden_case_end(c);
}

static void replay_dtypes(struct qm_conform *c, const struct qm_golden_place *at)
{
    qm_golden_each(c, at->path, replay_dtype);
}

void qm_conform_dtypes(struct qm_conform *c) { qm_golden_each(c, "", replay_dtypes); }
