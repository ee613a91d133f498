/* solo.c - Replays the golden vectors of SOLO: tables, block sizes, quantizers, optimizer steps.
 *
 * Layout: maps; quant_NAME quantizer cases; optim runs, of which each step starts from the recorded
 * state.  The recorded random numbers u are 24 bits in [0, 1), which this program's words do not
 * reach at the low end, so the replay hands u itself to the element functions. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/quant/block_numbers.h"
#include "experiments/conform/code_edges.h"
#include "experiments/conform/run.h"

/* Tolerances: alpha and decoded powers 1e-6 relative, as the recording states for powers that are
 * an ulp off; codes of logarithms those of numbers within their errors (code_edges.h); states of
 * other quantizers are every bit.  Of a step, u = 2^-24: torch's Tensor.sqrt is an ulp off, 2 u,
 * and after it the division by the correction, the sum with eps and the quotient may each round to
 * the other side, 2 u each: 8 u of the step.  The sum with the parameter may too: 2 u of that. */
static const double POWERS = 1e-6, ROUNDING = 0x1p-23, STEP = 0x1p-21;

/* torch.linspace(-1, 1) signed, (i + 1) / 2^b unsigned. */
static const char *linear_map(int sign) { return sign ? "linb" : "lin"; }

/* The quantizer of a name of the package as this program writes it; 0: skipped.  A quantile of 0,
 * the least element, has no text: the codec that is made of another one takes it from quantile_of.
 */
static int quantizer_text(struct qm_conform *c, const char *name, int bits, int sign, int64_t asked,
                          double quantile, char text[QM_QUANTIZER_TEXT])
{
    static const struct {
        const char *name, *map, *round;
    } kinds[] = {{"de", "dyn", "bisect/near"},     {"de-sr", "dyn", "bisect/bernoulli"},
                 {"linear", "", "bisect/near"},    {"linear-sr", "", "bisect/bernoulli"},
                 {"qema", "qlog", "arith/dither"}, {"qema-unbiased", "qlog", "arith/bernoulli"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) != 0)
            continue;
        const char *map = kinds[i].map[0] ? kinds[i].map : linear_map(sign);
        int n = snprintf(text, QM_QUANTIZER_TEXT, "%s:%d%c/divblock:%lld/%s/%s/floor:1e-12", map,
                         bits, sign ? 's' : 'u', (long long)asked, kinds[i].round,
                         bits == 3 ? "nibbles" : "hi");
        if (kinds[i].map[0] == 'q')
            snprintf(text + n, QM_QUANTIZER_TEXT - (size_t)n, "/qlog/quantile:%.9g",
                     quantile > 0.0 ? quantile : 0.5);
        return 1;
    }
    qm_golden_case_unreadable(c, "quantizer '%.40s' of %.100s is none of the package's", name,
                              c->group);
    return 0;
}

static double quantile_of(struct qm_conform *c)
{
    return qm_golden_case_number(c, "quantile", 0.1);
}

/* Gives a codec of curve qlog the recorded quantile. */
static void quantile_set(struct qm_conform *c, struct qm_codec *codec)
{
    if (codec->q.curve == QM_CURVE_qlog)
        codec->q.scale.quantile = (float)quantile_of(c);
}

/* ---- tables and block sizes ---- */

static void replay_blocks(struct qm_conform *c, const char *name)
{
    int64_t rows = qm_golden_case_per(c, name, 2), asked = 0;
    const int64_t *table = qm_golden_case_ints(c, name, -1);
    uint64_t *got = qm_golden_case_memory(c, rows, sizeof *got),
             *want = qm_golden_case_memory(c, rows, sizeof *want);
    sscanf(name, "block_of_n_%lld", (long long *)&asked);
    for (int64_t i = 0; table && got && want && i < rows; i++) {
        got[i] = (uint64_t)qm_divisor_block(asked, table[2 * i]);
        want[i] = (uint64_t)table[2 * i + 1];
    }
    if (table && got && want)
        qm_match_words(c, "block", got, want, rows);
}

static void replay_table(struct qm_conform *c, const char *name)
{
    char map[16] = "", sign[16] = "";
    int bits = 0;
    int64_t n = qm_golden_case_numel(c, name);
    const float *table = qm_golden_case_floats(c, name, -1);
    if (sscanf(name, "%15[a-z]_b%d_%15[a-z]", map, &bits, sign) != 3 || bits < 2 || bits > 8) {
        qm_golden_case_skip(c, "a table of no known name");
        return;
    }
    for (int64_t k = 1 << bits; table && k < n; k++) /* 3 bits: the last entry fills the table */
        if (table[k] != table[(1 << bits) - 1])
            qm_golden_case_differs(c, "entry %lld is not the last one again", (long long)k);
    if (table)
        qm_match_map(c, strcmp(map, "de") == 0 ? "dyn" : linear_map(sign[0] == 's'), bits,
                     sign[0] == 's', table, n < 1 << bits ? n : 1 << bits);
}

static void replay_map(struct qm_conform *c, const char *name)
{
    if (strncmp(name, "block_of_n_", 11) == 0)
        replay_blocks(c, name);
    else
        replay_table(c, name);
}

/* ---- quantizers ---- */

/* The codes of x by recorded numbers and draws u (NULL: nothing is drawn). */
static void encode(const struct qm_codec *codec, int64_t block, int64_t n, const float *x,
                   const float *numbers, const float *u, uint8_t *codes)
{
    const struct qm_codebook *cb = &codec->cb;
    int64_t per = qm_block_numbers(codec);
    for (int64_t i = 0; i < n; i++) {
        const float *s = numbers + i / block * per;
        float y = x[i] / s[0];
        int k;
        if (codec->q.curve == QM_CURVE_qlog) {
            codes[i] = (uint8_t)qm_quantile_log_code(codec->q.round, x[i], s[0], s[1], cb->n,
                                                     u ? u[i] : 0.0f);
            continue;
        }
        if (!u || qm_isnan(y)) {
            codes[i] = (uint8_t)qm_code_of(codec, y, 0);
            continue;
        }
        k = qm_search_bisect(y, cb);
        if (k + 1 < cb->n && y - cb->value[k] >= (cb->value[k + 1] - cb->value[k]) * u[i])
            k++;
        codes[i] = (uint8_t)k;
    }
}

/* Scales and, with curve qlog, alphas side by side as the codec keeps them. */
static float *numbers_of(struct qm_conform *c, const struct qm_codec *codec, int64_t blocks,
                         const float *scale, const float *alpha)
{
    int64_t per = qm_block_numbers(codec);
    float *out = qm_golden_case_memory(c, blocks * per, sizeof *out);
    for (int64_t b = 0; out && b < blocks; b++) {
        out[b * per] = scale[b];
        if (per > 1)
            out[b * per + 1] = alpha[b];
    }
    return out;
}

/* Compares the numbers that the codec makes of x with recorded ones. */
static void judge_numbers(struct qm_conform *c, const struct qm_codec *codec,
                          const struct qm_shape *shape, const float *x, const float *want,
                          double within)
{
    int64_t count = qm_scale_count(codec, shape), per = qm_block_numbers(codec), n = count / per;
    float *got = qm_golden_case_memory(c, count, sizeof *got),
          *a = qm_golden_case_memory(c, n, sizeof *a), *b = qm_golden_case_memory(c, n, sizeof *b);
    if (!got || !a || !b)
        return;
    qm_fold(codec, shape, 0, qm_shape_numel(shape), x, got);
    qm_scales(codec, shape, got, got);
    for (int64_t k = 0; k < per; k++) {
        for (int64_t i = 0; i < n; i++) {
            a[i] = got[i * per + k];
            b[i] = want[i * per + k];
        }
        if (k || within > 0.0)
            qm_match_close(c, k ? "alpha" : "scale", a, b, n, k ? POWERS : within, 0.0);
        else
            qm_match_floats(c, "scale", a, b, n);
    }
}

/* n numbers x that were coded in blocks by recorded numbers and draws u. */
struct coded {
    const struct qm_codec *codec;
    int64_t n, block;
    const float *x, *numbers, *u;
    const double *error; /* of each x; NULL: none */
};

/* Codes: every bit, but where a logarithm decides. */
static void judge_codes(struct qm_conform *c, const char *what, const struct coded *s,
                        const uint8_t *got, const int64_t *want)
{
    const struct qm_codec *codec = s->codec;
    int64_t off = 0;
    if (codec->q.curve != QM_CURVE_qlog) {
        qm_match_codes(c, what, got, want, s->n);
        return;
    }
    for (int64_t i = 0; i < s->n && qm_golden_case_open(c); i++) {
        const float *number = s->numbers + i / s->block * qm_block_numbers(codec);
        struct qm_quantile_number x = {.x = (double)s->x[i],
                                       .off = s->error ? s->error[i] : 0.0,
                                       .scale = (double)number[0],
                                       .alpha = (double)number[1],
                                       .u = s->u ? (double)s->u[i] : 0.0,
                                       .top = codec->cb.n - 1,
                                       .is_unbiased = codec->q.round == QM_ROUND_bernoulli};
        if (got[i] != want[i])
            off += qm_code_judge(c, what, i, got[i], want[i], qm_code_range_quantile(&x, want[i]));
    }
    qm_match_count(c, what, off, s->n);
}

static void replay_quantizer(struct qm_conform *c)
{
    static const struct qm_golden_need needs[] = {{"x", QM_NEED_data, 0, 0, 0},
                                                  {"scale", QM_NEED_data, 0, 0, 0},
                                                  {"codes", QM_NEED_data, 0, 0, 0},
                                                  {"dequant", QM_NEED_data, 0, 0, 0},
                                                  {"bits", QM_NEED_number, 2, 8, 0},
                                                  {"signed", QM_NEED_number, 0, 1, 0},
                                                  {"block_size_asked", QM_NEED_number, 0, 1e6, 0},
                                                  {"quantile", QM_NEED_number, 0, 1, 1},
                                                  {"quantizer", QM_NEED_text, 0, 0, 0}};
    char name[32], text[QM_QUANTIZER_TEXT];
    struct qm_codec codec;
    struct qm_shape shape;
    if (!qm_golden_case_needs(c, needs, sizeof needs / sizeof *needs) ||
        !qm_golden_case_text(c, "quantizer", name, sizeof name) ||
        !quantizer_text(c, name, qm_golden_case_int(c, "bits", 0),
                        qm_golden_case_int(c, "signed", 0),
                        qm_golden_case_whole(c, "block_size_asked", 0), quantile_of(c), text) ||
        !qm_golden_case_codec(c, &codec, "%s", text) || !qm_golden_case_shape(c, "x", &shape))
        return;
    quantile_set(c, &codec);
    int64_t n = qm_shape_numel(&shape), block = qm_quantizer_at(&codec.q, &shape).block;
    int64_t blocks = n / block, bytes = qm_code_bytes(&codec, n);
    if (qm_golden_case_whole(c, "block_size", block) != block)
        qm_golden_case_differs(c, "block_size: blocks of %lld here", (long long)block);
    const float *x = qm_golden_case_floats(c, "x", n),
                *scale = qm_golden_case_floats(c, "scale", blocks),
                *dequant = qm_golden_case_floats(c, "dequant", n), *alpha = scale, *u = NULL;
    const int64_t *codes = qm_golden_case_ints(c, "codes", n);
    if (codec.q.curve == QM_CURVE_qlog)
        alpha = qm_golden_case_floats(c, "alpha", blocks);
    if (qm_round_draws(codec.q.round) && !(u = qm_golden_case_floats(c, "rand", n)))
        return;
    uint8_t *got = qm_golden_case_memory(c, n, 1), *packed = qm_golden_case_memory(c, bytes, 1);
    float *values = qm_golden_case_memory(c, n, sizeof *values);
    if (!x || !scale || !dequant || !alpha || !codes || !got || !packed || !values)
        return;
    const float *numbers = numbers_of(c, &codec, blocks, scale, alpha);
    if (!numbers)
        return;
    judge_numbers(c, &codec, &shape, x, numbers, 0.0);
    encode(&codec, block, n, x, numbers, u, got);
    struct coded coded = {&codec, n, block, x, numbers, u, NULL};
    judge_codes(c, "code", &coded, got, codes);
    for (int64_t i = 0; i < n; i++)
        got[i] = (uint8_t)codes[i];
    qm_decode(&codec, &shape, got, numbers, values);
    qm_match_close(c, "decoded", values, dequant, n, codec.q.curve == QM_CURVE_qlog ? POWERS : 0.0,
                   0.0);
    if (qm_golden_case_has(c, "packed")) {
        qm_pack_range(&codec, got, n, packed);
        qm_match_codes(c, "packed", packed, qm_golden_case_ints(c, "packed", bytes), bytes);
    }
}

/* ---- optimizer runs ---- */

/* A recorded state: quantized, or plain numbers. */
struct state {
    const char *of; /* "m" or "v" */
    struct qm_codec codec;
    int64_t block, blocks;
    const float *scale, *alpha, *u, *values, *last; /* [steps][...]; last: [n] */
    const int64_t *codes;
};

static float *part(struct qm_conform *c, const struct state *s, const char *what, int64_t n)
{
    char name[48];
    snprintf(name, sizeof name, "state/%s%s", s->of, what);
    return qm_golden_case_floats(c, name, n);
}

/* Reads state i; 0: skipped, unreadable, or the recorded choice of states is not the recipe's. */
static int state_read(struct qm_conform *c, const struct qm_recipe *r, int i,
                      const struct qm_shape *shape, int64_t steps, struct state *s)
{
    char name[48];
    int64_t n = qm_shape_numel(shape);
    struct qm_quantizer q = qm_recipe_slot(r, i, shape);
    s->of = i ? "v" : "m";
    snprintf(name, sizeof name, "%s_quantized", s->of);
    if ((q.bits > 0) != (qm_golden_case_whole(c, name, 0) != 0))
        qm_golden_case_differs(c, "%s: the recipe says %d", name, q.bits > 0);
    if (!qm_golden_case_open(c) || qm_codec_init(&s->codec, &q) != QM_OK)
        return 0;
    quantile_set(c, &s->codec);
    if (q.bits == 0) {
        s->values = part(c, s, "", steps * n);
        snprintf(name, sizeof name, "state/%s", s->of);
        return qm_golden_case_fits(c, name,
                                   q.plain == QM_PLAIN_bf16  ? QM_PARAM_bf16
                                   : q.plain == QM_PLAIN_f16 ? QM_PARAM_f16
                                                             : QM_PARAM_f32,
                                   s->values, steps * n);
    }
    s->block = q.block;
    s->blocks = n / q.block;
    snprintf(name, sizeof name, "%s_block_size", s->of);
    if (qm_golden_case_whole(c, name, 0) != q.block)
        qm_golden_case_differs(c, "%s: blocks of %lld here", name, (long long)q.block);
    snprintf(name, sizeof name, "state/%s_codes", s->of);
    s->codes = qm_golden_case_ints(c, name, steps * n);
    s->scale = s->alpha = part(c, s, "_scale", steps * s->blocks);
    if (q.curve == QM_CURVE_qlog)
        s->alpha = part(c, s, "_alpha", steps * s->blocks);
    if (qm_round_draws(q.round) && !(s->u = part(c, s, "_rand", steps * n)))
        return 0;
    s->last = part(c, s, "_dequant_last", n);
    return s->codes && s->scale && s->alpha && s->last;
}

/* The state after step t (0: none yet) as floats. */
static int state_floats(struct qm_conform *c, const struct state *s, const struct qm_shape *shape,
                        int64_t t, float *out)
{
    int64_t n = qm_shape_numel(shape);
    uint8_t *codes = qm_golden_case_memory(c, n, 1);
    memset(out, 0, sizeof *out * (size_t)n);
    if (t > 0 && s->values)
        memcpy(out, s->values + (t - 1) * n, sizeof *out * (size_t)n);
    if (t == 0 || s->values)
        return codes != NULL;
    const float *numbers = numbers_of(c, &s->codec, s->blocks, s->scale + (t - 1) * s->blocks,
                                      s->alpha + (t - 1) * s->blocks);
    for (int64_t i = 0; codes && i < n; i++)
        codes[i] = (uint8_t)s->codes[(t - 1) * n + i];
    if (codes && numbers)
        qm_decode(&s->codec, shape, codes, numbers, out);
    return codes && numbers;
}

/* Judges the state after step t, made here as `fresh`; error: of each number, by its old one. */
static void state_judge(struct qm_conform *c, const struct state *s, const struct qm_shape *shape,
                        int64_t t, float *fresh, const double *error)
{
    int64_t n = qm_shape_numel(shape);
    if (s->values) {
        qm_plain_round(s->codec.q.plain, n, fresh);
        qm_match_floats(c, s->of, fresh, s->values + (t - 1) * n, n);
        return;
    }
    uint8_t *codes = qm_golden_case_memory(c, n, 1);
    const float *numbers = numbers_of(c, &s->codec, s->blocks, s->scale + (t - 1) * s->blocks,
                                      s->alpha + (t - 1) * s->blocks);
    if (!codes || !numbers)
        return;
    judge_numbers(c, &s->codec, shape, fresh, numbers,
                  s->codec.q.curve == QM_CURVE_qlog ? POWERS : 0.0);
    const float *u = s->u ? s->u + (t - 1) * n : NULL;
    encode(&s->codec, s->block, n, fresh, numbers, u, codes);
    struct coded coded = {&s->codec, n, s->block, fresh, numbers, u, error};
    judge_codes(c, s->of, &coded, codes, s->codes + (t - 1) * n);
}

/* Parameters within the roundings of a step; stored in 16 bits: what such a number rounds to.
 * decay: the share of the old parameter that stands beside the step, which goes along m: that is
 * rounded to a count of 2^-149 where it is subnormal, on either side. */
static void params_judge(struct qm_conform *c, const struct qm_param *format, double decay,
                         const float *m, const float *old, float *got, const float *want, int64_t n)
{
    double *allowed = qm_golden_case_memory(c, n, sizeof *allowed);
    for (int64_t i = 0; allowed && i < n; i++) {
        double size = fmax(fabs((double)old[i]), fabs((double)got[i]));
        double along = fabs((double)m[i]), count = along > 0.0 ? 0x1p-149 / along : 0.0;
        double e = ROUNDING * size + (STEP + count) * qm_match_step((double)got[i] - (double)old[i],
                                                                    decay, (double)old[i]);
        float stored = qm_param_widen(format->format, qm_param_nearest(format->format, got[i]));
        float low = got[i] - (float)e, high = got[i] + (float)e;
        low = qm_param_widen(format->format, qm_param_nearest(format->format, low));
        high = qm_param_widen(format->format, qm_param_nearest(format->format, high));
        allowed[i] = format->format == QM_PARAM_f32
                         ? e
                         : fmax((double)high - (double)stored, (double)stored - (double)low);
        got[i] = stored;
    }
    if (allowed)
        qm_match_close_each(c, "parameter", got, want, allowed, n);
}

/* The recipe of a run; 0: skipped. */
static int recipe_of(struct qm_conform *c, struct qm_recipe *r)
{
    static const char *const rules[][2] = {
        {"AdamWQ", "adamw_solo"}, {"AdamQ", "adam_solo"}, {"AdaBeliefQ", "adabelief_solo"}};
    static const char *const dtypes[] = {"float32", "bfloat16", "float16"};
    static const enum qm_param_format formats[] = {QM_PARAM_f32, QM_PARAM_bf16, QM_PARAM_f16};
    static const enum qm_plain plains[] = {QM_PLAIN_f32, QM_PLAIN_bf16, QM_PLAIN_f16};
    static const char *const texts[] = {"f32", "bf16", "f16"};
    char name[32], text[QM_QUANTIZER_TEXT];
    double betas[2], bits[2], asked[2];
    int k = 0;
    qm_golden_case_text(c, "optimizer", name, sizeof name);
    while (k < 3 && strcmp(rules[k][0], name) != 0)
        k++;
    if (k == 3 || !qm_golden_case_numbers(c, "betas", 2, betas) ||
        !qm_golden_case_numbers(c, "bits", 2, bits) ||
        !qm_golden_case_numbers(c, "block_sizes_asked", 2, asked)) {
        if (k == 3)
            qm_golden_case_skip(c, "optimizer '%.30s' is not built", name);
        qm_golden_case_unreadable(c, "betas, bits or block_sizes_asked of %s is no pair of numbers",
                                  c->group);
        return 0;
    }
    if (!qm_run_recipe(c, rules[k][1], r))
        return 0;
    int format = qm_golden_case_choice(c, "param_dtype", dtypes, 3, 0);
    if (format < 0)
        return 0;
    r->param.format = formats[format];
    r->hyper.lr = qm_golden_case_number(c, "lr", 1e-3);
    r->hyper.beta1 = betas[0];
    r->hyper.beta2 = betas[1];
    r->hyper.eps = qm_golden_case_number(c, "eps", 1e-8);
    r->hyper.weight_decay = qm_golden_case_number(c, "weight_decay", 0.0);
    for (int i = 0; i < 2; i++) {
        qm_golden_case_text(c, i ? "quantizer_v" : "quantizer_m", name, sizeof name);
        int is_half = strcmp(name, "bf16") == 0, is_plain = is_half || strcmp(name, "none") == 0;
        if (!is_plain &&
            !quantizer_text(c, name, (int)bits[i], i == 0, (int64_t)asked[i], quantile_of(c), text))
            return 0;
        if (is_plain)
            snprintf(text, sizeof text, "%s", is_half ? "bf16" : texts[format]);
        if (!qm_run_quantizer(c, r, i, text, 0, 0.0f))
            return 0;
        r->plain[i].plain = plains[format];
        r->min_numel[i] = qm_golden_case_whole(c, "min_quantizable_tensor_size", 128);
        if (is_plain)
            r->plain[i] = r->slot[i];
        r->whole_blocks[i] = 1;
    }
    return 1;
}

/* The error of a second moment v whose old value was a decoded power: that is an ulp off on either
 * side, and its product with the scale is rounded, 8 u in all, of which the average keeps beta2;
 * its difference with the square, the product with the weight and the sum fall elsewhere, 4 u of
 * the terms. */
static double second_error(const struct qm_hyper *h, double old, double v)
{
    return 8.0 * 0x1p-24 * h->beta2 * old + 4.0 * 0x1p-24 * (fabs(v) + (1.0 - h->beta2) * old);
}

static void replay_run(struct qm_conform *c)
{
    static const struct qm_golden_need needs[] = {
        {"p0", QM_NEED_data, 0, 0, 0},        {"grads", QM_NEED_data, 0, 0, 0},
        {"params", QM_NEED_data, 0, 0, 0},    {"steps", QM_NEED_number, 1, 1e6, 0},
        {"lr", QM_NEED_number, 0, 1e6, 0},    {"optimizer", QM_NEED_text, 0, 0, 0},
        {"quantile", QM_NEED_number, 0, 1, 1}};
    struct qm_recipe r;
    struct qm_shape shape;
    struct state s[2] = {{0}};
    if (!qm_golden_case_needs(c, needs, sizeof needs / sizeof *needs) || !recipe_of(c, &r) ||
        !qm_run_param_shape(c, 0, &shape))
        return;
    int64_t n = qm_shape_numel(&shape), steps = qm_golden_case_whole(c, "steps", 0);
    const enum qm_param_format format = r.param.format;
    const float *p0 = qm_golden_case_floats_of(c, "p0", n, format),
                *grads = qm_golden_case_floats_of(c, "grads", steps * n, format),
                *params = qm_golden_case_floats_of(c, "params", steps * n, format);
    const double *rates = qm_golden_case_rates(c, steps);
    float *p = qm_golden_case_memory(c, n, sizeof *p), *slot[2];
    double *error = qm_golden_case_memory(c, n, sizeof *error);
    for (int i = 0; i < 2; i++)
        if (!(slot[i] = qm_golden_case_memory(c, n, sizeof *p)) ||
            !state_read(c, &r, i, &shape, steps, &s[i]))
            return;
    if (!p0 || !grads || !params || !p || !error)
        return;
    int is_coupled = strcmp(r.rule->name, "adam_solo") == 0;
    for (int64_t t = 1; t <= steps && qm_golden_case_open(c); t++) {
        struct qm_rule_step step;
        const float *old = t > 1 ? params + (t - 2) * n : p0;
        memcpy(p, old, sizeof *p * (size_t)n);
        if (!state_floats(c, &s[0], &shape, t - 1, slot[0]) ||
            !state_floats(c, &s[1], &shape, t - 1, slot[1]))
            return;
        for (int64_t i = 0; i < n; i++) /* of the old value, for now */
            error[i] = s[1].codec.q.curve == QM_CURVE_qlog ? fabs((double)slot[1][i]) : 0.0;
        r.hyper.lr = rates ? rates[t - 1] : r.hyper.lr;
        r.rule->prepare(&r.hyper, t, &step);
        step.hyper = &r.hyper;
        r.rule->elementwise->block(&step, n, p, grads + (t - 1) * n, slot);
        for (int64_t i = 0; i < n; i++)
            error[i] = error[i] > 0.0 ? second_error(&r.hyper, error[i], (double)slot[1][i]) : 0.0;
        params_judge(c, &r.param, is_coupled ? 0.0 : r.hyper.lr * r.hyper.weight_decay, slot[0],
                     old, p, params + (t - 1) * n, n);
        for (int i = 0; i < 2; i++)
            state_judge(c, &s[i], &shape, t, slot[i], i ? error : NULL);
    }
    for (int i = 0; i < 2 && qm_golden_case_open(c); i++)
        if (!s[i].values && state_floats(c, &s[i], &shape, steps, slot[i]))
            qm_match_close(c, "decoded", slot[i], s[i].last, n,
                           s[i].codec.q.curve == QM_CURVE_qlog ? POWERS : 0.0, 0.0);
}

void qm_conform_solo(struct qm_conform *c)
{
    qm_golden_read_all(c, &(struct qm_golden_readers){
                              .map = replay_map, .run = replay_run, .quantizer = replay_quantizer});
}
