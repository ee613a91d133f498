/* lpmm.c - Replays the golden vectors of lpmm: tables, quantizers, stochastic rounding.
 *
 * A case is a group without subgroups; attributes scale_type, quant_type, round_type, bits, signed
 * and group_size name the quantizer.  lpmm_run.c replays optimizer runs. */
#include "experiments/conform/lpmm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/conform/conform.h"
#include "experiments/recipes/lpmm_config.h"

static int state_set(struct qm_conform *c, const char *prefix, const char *attribute,
                     const char *key, struct qm_lpmm_state *s)
{
    char name[64], text[64];
    snprintf(name, sizeof name, "%s%s", prefix, attribute);
    qm_golden_case_text(c, name, text, sizeof text);
    if (qm_lpmm_state_set(s, key, text) == QM_OK)
        return 1;
    qm_golden_case_skip(c, "%s: %.100s", name, qm_message());
    return 0;
}

static int64_t whole(struct qm_conform *c, const char *prefix, const char *attribute,
                     int64_t fallback)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", prefix, attribute);
    return qm_golden_case_whole(c, name, fallback);
}

int qm_lpmm_torch(struct qm_conform *c)
{
    char text[64] = "";
    return qm_golden_text(c->file, "", "torch_version", text, sizeof text) ? atoi(text) : 1;
}

int qm_lpmm_table(struct qm_conform *c, const struct qm_quantizer *q, float *out)
{
    struct qm_codebook cb;
    int power = q->map == QM_MAP_lin ? 1 : q->map == QM_MAP_pow2 ? 2 : 3;
    if (qm_lpmm_torch(c) < 2)
        return 0;
    if (q->map == QM_MAP_de || q->map == QM_MAP_de0) {
        qm_codebook_build(QM_MAP_dyn, q->bits, q->sign, &cb);
        if (q->map == QM_MAP_de0 && !q->sign)
            cb.value[0] = cb.value[1];
    } else if (q->sign &&
               (q->map == QM_MAP_lin || q->map == QM_MAP_pow2 || q->map == QM_MAP_pow3)) {
        qm_codebook_build(QM_MAP_linb, q->bits, 1, &cb);
        for (int k = 0; k < cb.n; k++) {
            float a = fabsf(cb.value[k]), r = power == 1 ? a : power == 2 ? a * a : a * a * a;
            cb.value[k] = copysignf(r, cb.value[k]);
        }
    } else {
        return 0;
    }
    memcpy(out, cb.value, sizeof *out * (size_t)cb.n);
    return cb.n;
}

/* What the names of a quantizer's attributes begin with is read before them. */
static int attributes_there(struct qm_conform *c, const char *prefix)
{
    static const struct qm_golden_need needs[] = {
        {"bits", QM_NEED_number, 1, 8, 0},     {"group_size", QM_NEED_number, 0, 1e15, 1},
        {"signed", QM_NEED_number, 0, 1, 1},   {"scale_type", QM_NEED_text, 0, 0, 0},
        {"quant_type", QM_NEED_text, 0, 0, 0}, {"round_type", QM_NEED_text, 0, 0, 0}};
    char name[64];
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        struct qm_golden_need need = needs[i];
        snprintf(name, sizeof name, "%s%s", prefix, need.name);
        need.name = name;
        if (!qm_golden_case_needs(c, &need, 1))
            return 0;
    }
    return 1;
}

int qm_lpmm_quantizer(struct qm_conform *c, const char *prefix, char *out, size_t size)
{
    if (!attributes_there(c, prefix))
        return 0;
    struct qm_lpmm_state s = {.bits = (int)whole(c, prefix, "bits", 0),
                              .sign = (int)whole(c, prefix, "signed", 1),
                              .group_size = whole(c, prefix, "group_size", 0)};
    char text[QM_QUANTIZER_TEXT];
    if (!state_set(c, prefix, "scale_type", "SCALE_TYPE", &s) ||
        !state_set(c, prefix, "quant_type", "QUANT_TYPE", &s) ||
        !state_set(c, prefix, "round_type", "ROUND_TYPE", &s))
        return 0;
    if (s.bits < 2 || s.bits > 8 || qm_lpmm_state_quantizer(&s, text) != QM_OK) {
        qm_golden_case_skip(c, "%d bits: %.200s", s.bits, qm_message());
        return 0;
    }
    snprintf(out, size, "%s", text);
    return 1;
}

/* The codec of a case's quantizer, with the table of the release that recorded it; 0: there is
 * none. */
static int codec_read(struct qm_conform *c, struct qm_codec *codec)
{
    char text[QM_QUANTIZER_TEXT];
    float table[256];
    if (!qm_lpmm_quantizer(c, "", text, sizeof text) || !qm_golden_case_codec(c, codec, "%s", text))
        return 0;
    int n = qm_lpmm_table(c, &codec->q, table);
    if (n > 0)
        qm_codec_table(codec, table, n);
    return 1;
}

/* ---- quantizers ---- */

/* Reads scales in this program's layout: one array, or one per axis, axis 0 first. */
static float *scales_read(struct qm_conform *c, int64_t n_scales)
{
    static const char *const pairs[][2] = {{"scale_max_dim0", "scale_max1"}, /* dim01 */
                                           {"scale_max1", "scale_max_dim1"}, /* dim10 */
                                           {"scale_max0", "scale_max1"}};    /* rank1-group */
    char name[32];
    const char *const *pair = NULL;
    int64_t filled = 0;
    for (int k = 0; k < 3 && !pair; k++)
        if (qm_golden_case_has(c, pairs[k][0]) && qm_golden_case_has(c, pairs[k][1]))
            pair = pairs[k];
    if (!pair && qm_golden_case_has(c, "scale_max1"))
        return qm_golden_case_floats(c, "scale_max1", n_scales);
    float *out = qm_golden_case_memory(c, n_scales, sizeof *out);
    for (int axis = 0; out && axis < (pair ? 2 : QM_MAX_RANK); axis++) {
        snprintf(name, sizeof name, "scale_dim%d", axis);
        if (pair)
            snprintf(name, sizeof name, "%s", pair[axis]);
        if (!qm_golden_case_has(c, name))
            break;
        int64_t n = qm_golden_case_numel(c, name);
        const float *part = qm_golden_case_floats(c, name, n);
        if (!part || filled + n > n_scales)
            break;
        memcpy(out + filled, part, (size_t)n * sizeof *part);
        filled += n;
    }
    if (filled == n_scales)
        return out;
    if (qm_golden_case_open(c)) {
        (void)qm_fail(QM_BAD_FILE, "%s: scales for %lld groups expected", c->group,
                      (long long)n_scales);
        qm_golden_case_failed(c);
    }
    return NULL;
}

/* Recorded codes belong to the scaled tensor, whose last group is filled with zeros. */
static int input_read(struct qm_conform *c, const struct qm_codec *codec, struct qm_shape *shape,
                      float **x, int64_t *n)
{
    int64_t padded;
    if (!qm_golden_case_shape(c, "x", shape))
        return 0;
    *n = qm_shape_numel(shape);
    *x = qm_golden_case_floats(c, "x", *n);
    int64_t block = codec->q.block;
    if (shape->rank && qm_norm_of_rank(codec->q.norm, shape->rank, &block) == QM_NORM_block) {
        *x = qm_golden_case_padded(c, *x, *n, block, &padded);
        *shape = qm_shape_flat(padded);
    }
    return *x != NULL;
}

/* Turns recorded codes into positions: the integer map counts from its lowest code, and 255, the
 * code of a NaN unit value, becomes the top code of a table of 8 to 128 entries.  Returns the
 * number of codes 255. */
static int64_t codes_shift(const struct qm_codec *codec, int64_t *codes, int64_t n)
{
    int64_t ones = 0;
    for (int64_t i = 0; codes && i < n; i++) {
        if (codec->q.map == QM_MAP_lint)
            codes[i] -= codec->cb.base;
        else if (codes[i] == 255 && codec->cb.n < 256) {
            codes[i] = codec->cb.n - 1;
            ones++;
        }
    }
    return ones;
}

/* The recorded values, except those of code 255, which are decoded here: the source decodes them by
 * reading beyond its table. */
static const float *defined_only(struct qm_conform *c, const struct qm_codec *codec,
                                 const struct qm_shape *shape, const int64_t *codes,
                                 const float *scales, int64_t n)
{
    int64_t all = qm_shape_numel(shape);
    const int64_t *recorded = qm_golden_case_ints(c, "codes", all);
    float *want = qm_golden_case_floats(c, "dequant", n),
          *own = qm_golden_case_memory(c, all, sizeof *own);
    uint8_t *narrow = qm_golden_case_memory(c, all, 1);
    if (!recorded || !want || !own || !narrow || !scales)
        return NULL;
    for (int64_t i = 0; i < all; i++)
        narrow[i] = (uint8_t)codes[i];
    qm_decode(codec, shape, narrow, scales, own);
    for (int64_t i = 0; i < n; i++)
        if (recorded[i] == 255)
            want[i] = own[i];
    return want;
}

static void replay_quantizer(struct qm_conform *c)
{
    struct qm_codec codec;
    struct qm_shape shape;
    float *x;
    int64_t n;
    if (!codec_read(c, &codec) || !input_read(c, &codec, &shape, &x, &n))
        return;
    int64_t all = qm_shape_numel(&shape);
    struct qm_golden_run want = {.n_dequant = n};
    int64_t *codes = qm_golden_case_ints(c, "codes", all);
    int64_t ones = codes_shift(&codec, codes, all);
    want.codes = codes;
    if (codec.q.norm != QM_NORM_id)
        want.scales = scales_read(c, qm_scale_count(&codec, &shape));
    if (qm_golden_case_has(c, "packed")) { /* whole grids of 2048 codes, and one spare byte */
        int64_t bits = codec.q.pack == QM_PACK_byte ? 8 : codec.q.bits;
        want.packed_bytes = (all + 2047) / 2048 * (2048 * bits / 8);
        int64_t *packed = qm_golden_case_ints(c, "packed", want.packed_bytes + 1);
        if (packed && codec.q.pack == QM_PACK_byte)
            codes_shift(&codec, packed, want.packed_bytes);
        want.packed = packed;
    }
    if (qm_golden_case_has(c, "dequant"))
        want.dequant = ones ? defined_only(c, &codec, &shape, codes, want.scales, n)
                            : qm_golden_case_floats(c, "dequant", n);
    qm_match_quantizer(c, &codec, &shape, x, &want);
    if (ones && qm_golden_case_open(c))
        snprintf(c->now.text, sizeof c->now.text,
                 "but for %lld codes 255 of 0/0, which the source reads beyond its table",
                 (long long)ones);
}

/* ---- stochastic rounding ---- */

/* Finds a word with qm_uniform(word) - minus == u - minus; 0 if there is none. */
static int word_of(float u, float minus, uint32_t *word)
{
    double w = floor((double)u * 4294967296.0);
    for (int64_t d = -256; d <= 256; d++) {
        double at = w + (double)d;
        if (at < 0 || at > 4294967295.0 || qm_uniform((uint32_t)at) - minus != u - minus)
            continue;
        *word = (uint32_t)at;
        return 1;
    }
    return 0;
}

/* The packed kernels; the case records noise, seed and offset.  Thread t owns 32 / bits consecutive
 * elements (4 bytes; with one code per byte: 4 elements) and draws from subsequence t. */
static void replay_real(struct qm_conform *c)
{
    struct qm_codec codec;
    uint64_t seed = 0, offset = 0;
    if (!codec_read(c, &codec))
        return;
    int64_t n = qm_golden_case_numel(c, "normalized"),
            per = codec.q.pack == QM_PACK_byte ? 4 : 32 / codec.q.bits;
    const float *y = qm_golden_case_floats(c, "normalized", n),
                *noise = qm_golden_case_floats(c, "noise", n);
    const int64_t *want = qm_golden_case_ints(c, "codes", n);
    uint8_t *got = qm_golden_case_memory(c, n, 1);
    float *drawn = qm_golden_case_memory(c, n, sizeof *drawn);
    if (!y || !noise || !want || !got || !drawn)
        return;
    if (!qm_golden_case_unsigned(c, "philox_seed", &seed) ||
        !qm_golden_case_unsigned(c, "philox_offset", &offset)) {
        qm_golden_case_skip(c, "philox_seed and philox_offset are missing");
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t word = 0;
        drawn[i] =
            qm_uniform(qm_philox_stream(seed, (uint64_t)(i / per), offset + (uint64_t)(i % per)));
        if (!word_of(noise[i], 0.0f, &word))
            qm_golden_case_differs(c, "noise[%lld] = %.9g is no uniform of 32 bits", (long long)i,
                                   (double)noise[i]);
        got[i] = qm_isnan(y[i]) ? (uint8_t)(codec.cb.n - 1)
                                : codec.cb.perm[qm_code_of(&codec, y[i], word)];
    }
    qm_match_floats(c, "noise", drawn, noise, n);
    qm_match_codes(c, "code", got, want, n);
}

/* The integer map; the case records noise u in [0, 1) of the framework's generator.  The source
 * first subtracts one half, so a word with the same u - 1/2 replaces the noise. */
static void replay_dither(struct qm_conform *c)
{
    struct qm_codec codec;
    struct qm_shape shape;
    float *x;
    int64_t n;
    if (!codec_read(c, &codec) || !input_read(c, &codec, &shape, &x, &n))
        return;
    if (codec.q.norm != QM_NORM_block && codec.q.norm != QM_NORM_tensor) {
        qm_golden_case_skip(c, "noise is replayed for scales of blocks and tensors only");
        return;
    }
    int64_t all = qm_shape_numel(&shape), block = codec.q.block > 0 ? codec.q.block : all;
    const float *noise = qm_golden_case_floats(c, "noise", all),
                *scales = scales_read(c, qm_scale_count(&codec, &shape)),
                *dequant = qm_golden_case_floats(c, "dequant", n);
    int64_t *want = qm_golden_case_ints(c, "codes", all);
    uint8_t *got = qm_golden_case_memory(c, all, 1);
    float *own = qm_golden_case_memory(c, qm_scale_count(&codec, &shape) + all, sizeof *own);
    if (!noise || !scales || !dequant || !want || !got || !own)
        return;
    codes_shift(&codec, want, all);
    qm_fold(&codec, &shape, 0, all, x, own);
    qm_match_floats(c, "scale", own, scales, qm_scale_count(&codec, &shape));
    for (int64_t i = 0; i < all; i++) {
        uint32_t word = 0;
        if (!word_of(noise[i], 0.5f, &word))
            qm_golden_case_differs(c, "noise[%lld] = %.9g is no uniform of 32 bits", (long long)i,
                                   (double)noise[i]);
        got[i] = (uint8_t)qm_code_of(&codec, x[i] / scales[i / block], word);
    }
    qm_match_codes(c, "code", got, want, all);
    qm_decode(&codec, &shape, got, scales, own);
    qm_match_floats(c, "decoded", own, dequant, n);
}

/* The extension's linear kernel, which the published code never calls: the integer map, noise from
 * Philox, codes as two's complement.  It subtracts one half after adding the noise, in double;
 * dither subtracts it before.  It decodes as code (absmax / most), the map as (code / most) absmax:
 * two roundings each, so the values are at most 4 u apart. */
static void replay_absmax_linear(struct qm_conform *c)
{
    static const char *const contractions[] = {"strict", "fma"};
    int bits = qm_golden_case_int(c, "bits", 0), per = bits == 4 || bits == 8 ? 32 / bits : 1;
    int64_t group = qm_golden_case_whole(c, "group_size", 0), n = qm_golden_case_numel(c, "x");
    struct qm_codec codec;
    struct qm_shape shape = qm_shape_flat(n);
    uint64_t seed = 0, offset = 0;
    if (per == 1 || group < 1 || n % group != 0 || !qm_golden_case_unsigned(c, "seed", &seed) ||
        !qm_golden_case_unsigned(c, "offset", &offset)) {
        qm_golden_case_skip(c, "bits, group_size, seed or offset are missing");
        return;
    }
    if (!qm_golden_case_codec(c, &codec, "lint:%ds/block:%lld/arith/dither/lo", bits,
                              (long long)group))
        return;
    const float *x = qm_golden_case_floats(c, "x", n),
                *scales = qm_golden_case_floats(c, "absmax", n / group),
                *noise = qm_golden_case_floats(c, "noise", n);
    uint8_t *codes = qm_golden_case_memory(c, n, 1), *stored = qm_golden_case_memory(c, n, 1),
            *bytes = qm_golden_case_memory(c, n, 1);
    float *drawn = qm_golden_case_memory(c, n, sizeof *drawn),
          *out = qm_golden_case_memory(c, n, sizeof *out);
    if (!x || !scales || !noise || !codes || !stored || !bytes || !drawn || !out)
        return;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word = qm_philox_stream(seed, (uint64_t)(i / per), offset + (uint64_t)(i % per));
        drawn[i] = qm_uniform(word);
        codes[i] = (uint8_t)qm_code_of(&codec, x[i] / scales[i / group], word);
        stored[i] = (uint8_t)((codes[i] + codec.cb.base) & ((1 << bits) - 1));
    }
    qm_match_floats(c, "noise", drawn, noise, n);
    qm_pack_codes(QM_PACK_lo, bits, stored, n, bytes);
    qm_decode(&codec, &shape, codes, scales, out);
    for (int k = 0; k < 2; k++) {
        char name[32];
        snprintf(name, sizeof name, "packed_%s", contractions[k]);
        const int64_t *packed = qm_golden_case_ints(c, name, (n * bits + 7) / 8 + 1);
        if (!packed)
            return;
        qm_match_codes(c, name, bytes, packed, n * bits / 8);
        snprintf(name, sizeof name, "unpacked_%s", contractions[k]);
        qm_match_close(c, name, out, qm_golden_case_floats(c, name, n), n, 0x1p-22, 0.0);
    }
}

/* The exact probability that the codec rounds y up from code `low`: rounding up is monotone in the
 * draw, so bisection finds the first word that rounds up. */
static double chance_up(const struct qm_codec *codec, float y, int low)
{
    uint64_t from = 0, to = (uint64_t)1 << 32;
    while (from < to) {
        uint64_t at = (from + to) / 2;
        if (qm_code_of(codec, y, (uint32_t)at) > low)
            to = at;
        else
            from = at + 1;
    }
    return (double)(((uint64_t)1 << 32) - from) / 4294967296.0;
}

/* Histograms of codes over many draws of the framework's generator: every count lies within five
 * standard deviations plus one of this codec's expectation. */
static void replay_histogram(struct qm_conform *c)
{
    struct qm_codec codec;
    struct qm_shape shape;
    float *x;
    int64_t n;
    if (!codec_read(c, &codec) || !input_read(c, &codec, &shape, &x, &n))
        return;
    int64_t entries = codec.cb.n, block = codec.q.block > 0 ? codec.q.block : n;
    double repeats = qm_golden_case_number(c, "repeats", 0);
    const int64_t *counts = qm_golden_case_ints(c, "code_counts", n * entries);
    const float *scales = scales_read(c, qm_scale_count(&codec, &shape));
    if (!counts || !scales)
        return;
    double worst = 0;
    for (int64_t i = 0; i < n && qm_golden_case_open(c); i++) {
        double p[257] = {0};
        float y = x[i] / scales[i / block];
        int low = qm_code_of(&codec, y, 0);
        double up = chance_up(&codec, y, low);
        p[low] += 1.0 - up;
        p[low + 1] += up;
        for (int64_t k = 0; k < entries && qm_golden_case_open(c); k++) {
            double mean = repeats * p[k], sigma = sqrt(repeats * p[k] * (1.0 - p[k]));
            double off = fabs((double)counts[i * entries + k] - mean), allowed = 5.0 * sigma + 1.0;
            worst = off / allowed > worst ? off / allowed : worst;
            if (off > allowed)
                qm_golden_case_differs(
                    c, "count[%lld][%lld]: got %.2f, want %lld, allowed %.2f apart", (long long)i,
                    (long long)k, mean, (long long)counts[i * entries + k], allowed);
        }
    }
    c->now.compared += n * entries;
    if (!qm_golden_case_open(c))
        return;
    c->now.outcome = QM_CONFORM_near;
    c->now.worst = worst;
    snprintf(c->now.text, sizeof c->now.text, "counts of %.0f draws: at worst %.2f of five sigma",
             repeats, worst);
}

/* ---- the file ---- */

static void replay_map(struct qm_conform *c)
{
    char text[QM_QUANTIZER_TEXT];
    struct qm_lpmm_state s = qm_lpmm_config_default().m;
    struct qm_quantizer q;
    float table[256];
    s.bits = (int)whole(c, "", "bits", 0);
    s.sign = (int)whole(c, "", "signed", 1);
    if (!state_set(c, "", "quant_type", "QUANT_TYPE", &s))
        return;
    if (qm_lpmm_state_quantizer(&s, text) != QM_OK) {
        qm_golden_case_skip(c, "%.200s", qm_message());
        return;
    }
    int64_t n = qm_golden_case_numel(c, "qmap");
    const float *want = qm_golden_case_floats(c, "qmap", -1);
    int own = qm_quantizer_parse(text, &q) == QM_OK ? qm_lpmm_table(c, &q, table) : 0;
    if (own == n && own > 0) {
        snprintf(c->now.how, sizeof c->now.how, "%.*s of PyTorch 2", (int)strcspn(text, "/"), text);
        qm_match_floats(c, "value", table, want, n);
        return;
    }
    text[strcspn(text, ":")] = '\0'; /* the map's name */
    qm_match_map(c, text, s.bits, s.sign, want, n);
}

static void replay_leaf(struct qm_conform *c, const char *group)
{
    char error[64];
    snprintf(c->group, sizeof c->group, "%.310s", group);
    if (qm_golden_case_has(c, "p0_grads")) {
        qm_conform_lpmm_run(c, group);
        return;
    }
    if (!qm_golden_case_begin(c, group, NULL))
        return;
    if (qm_golden_case_text(c, "quant_error", error, sizeof error))
        qm_golden_case_skip(c, "the source refuses this (%.50s)", error);
    else if (qm_golden_case_has(c, "qmap"))
        replay_map(c);
    else if (qm_golden_case_has(c, "code_counts"))
        replay_histogram(c);
    else if (qm_golden_case_has(c, "absmax"))
        replay_absmax_linear(c);
    else if (qm_golden_case_has(c, "noise") && qm_golden_case_has(c, "normalized"))
        replay_real(c);
    else if (qm_golden_case_has(c, "noise"))
        replay_dither(c);
    else
        replay_quantizer(c);
    qm_golden_case_end(c);
}

static int depth_of(const char *path)
{
    int depth = 1;
    for (; (path = strchr(path, '/')); path++)
        depth++;
    return depth;
}

/* A group is a case, or each group within it is one; the sixth level bounds the recursion in a
 * damaged or circular file. */
static void walk(struct qm_conform *c, const struct qm_golden_place *at)
{
    if (qm_golden_at(c->file, at->path) != QM_GOLDEN_GROUP || strcmp(at->path, "inputs") == 0)
        return;
    if (depth_of(at->path) < 6 && qm_golden_groups(c, at->path))
        qm_golden_each(c, at->path, walk);
    else
        replay_leaf(c, at->path);
}

void qm_conform_lpmm(struct qm_conform *c) { qm_golden_each(c, "", walk); }
