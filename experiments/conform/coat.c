/* coat.c - Replays the golden vectors of COAT: the e4m3 cast, both quantizers, optimizer steps.
 *
 * Layout: e4m3; quant_expand and quant_plain, a step with both betas 0, so that m is the input and
 * v its square; optim runs, of which each step starts from the recorded state.  A name m_codes,
 * v_scale, ... says whose numbers they are. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/fp8.h"
#include "core/quant/block_numbers.h"
#include "experiments/conform/run.h"

/* Tolerances, u = 2^-24.  Powers and logarithms of the recording are those of a C library, within
 * two ulp, 4 u here.  So a decoded state is 8 u off, of which an average keeps its beta; that is
 * the error of the fresh state.  Centre: half the errors of maximum and minimum, 4 u of roots and
 * product.  Scale, of the recorded exponent k and centre: |k| times the error of the maximum and 4
 * u of the quotient, 8 u of power and quotient.  Codes: that of a number within its error, and,
 * where a power is taken, within 8 u over the exponent, for a power is 4 u off and so is its
 * quotient.  The code of NaN, and under an exponent 0, where NaN has the greatest code, the code of
 * that, may have either sign. */
static const double STATE = 8 * 0x1p-24, ROUNDINGS = 4 * 0x1p-24;

/* A recorded state of `steps` steps: numbers [steps][blocks], codes and fresh values [steps][n]. */
struct state {
    const char *of; /* "m" or "v" */
    struct qm_codec codec;
    int64_t n, blocks, per;
    int is_gpu; /* of attribute device: its NaN has no sign */
    const int64_t *codes;
    const float *number[QM_EXPAND_NUMBERS];
};

static float *part(struct qm_conform *c, const char *folder, const struct state *s,
                   const char *what, int64_t n)
{
    char name[48];
    snprintf(name, sizeof name, "%s%s_%s", folder, s->of, what);
    return qm_golden_case_floats(c, name, n);
}

/* Reads the state "m" or "v" of a case; 0: skipped or unreadable. */
static int state_read(struct qm_conform *c, const char *of, const char *folder,
                      const struct qm_codec *codec, int64_t n, int64_t steps, struct state *s)
{
    static const char *const names[] = {"scale", "expand", "sqrt_minmax"}, *const devices[] = {
                                                                               "cpu", "cuda"};
    char name[48];
    *s = (struct state){.of = of, .codec = *codec, .n = n, .per = qm_block_numbers(codec)};
    s->blocks = (n + codec->q.block - 1) / codec->q.block;
    s->is_gpu = qm_golden_case_choice(c, "device", devices, 2, 0) == 1;
    snprintf(name, sizeof name, "%s%s_codes", folder, of);
    s->codes = qm_golden_case_ints(c, name, steps * n);
    for (int k = 0; k < s->per; k++)
        s->number[k] = part(c, folder, s, names[k], steps * s->blocks);
    return qm_golden_case_open(c);
}

/* The numbers of step t (0: the first recorded one) side by side, as the codec keeps them. */
static float *numbers_of(struct qm_conform *c, const struct state *s, int64_t t)
{
    float *out = qm_golden_case_memory(c, s->blocks * s->per, sizeof *out);
    for (int64_t b = 0; out && b < s->blocks; b++)
        for (int64_t k = 0; k < s->per; k++)
            out[b * s->per + k] = s->number[k][t * s->blocks + b];
    return out;
}

static int same(float a, float b) { return qm_bits(a) == qm_bits(b); }

/* The relative error of a statistic, the magnitude of one element: the largest among the elements
 * whose magnitude may be the statistic within their errors. */
static double error_of(const struct state *s, int64_t b, float stat, const float *x,
                       const double *error)
{
    int64_t from = b * s->codec.q.block, to = from + s->codec.q.block;
    double own = 0.0, most = 0.0, at = (double)stat;
    for (int64_t i = from; error && i < to && i < s->n; i++)
        if (fabsf(x[i]) == stat)
            own = fmax(own, error[i]);
    for (int64_t i = from; error && i < to && i < s->n; i++)
        if (fabs(fabs((double)x[i]) - at) <= error[i] + own)
            most = fmax(most, error[i] + own);
    return most > 0.0 ? most / at : 0.0;
}

/* Whether the recorded exponent may come of these statistics, whose relative errors add up to
 * `errors`: the floor of a number within its error. */
static int may_be(const struct state *s, const float *stat, float k, double errors)
{
    const struct qm_quantizer *q = &s->codec.q;
    double most = (double)qm_expand_plus(stat[0], q->scale.plus),
           least = (double)qm_expand_plus(stat[1], q->scale.plus), steps = q->expand;
    double l = log2(most / least), off = 1.5 * (errors + ROUNDINGS) + 0x1p-22 * fabs(l);
    double ends[2], range = log2(100352.0) * steps;
    for (int i = 0; i < 2; i++)
        ends[i] = range / (l + (i ? -off : off)) * (1.0 + (i ? 0x1p-21 : -0x1p-21));
    if (l - off <= 0.0) /* the range may be one magnitude */
        return isinf(k) || (double)k * steps >= floor(ends[0]);
    return (double)k * steps >= floor(ends[0]) && (double)k * steps <= floor(ends[1]);
}

/* Whether a scale is an infinite power's of a quotient below 1, of 1 or above 1, over 448. */
static int is_of_infinite(float scale)
{
    return scale == 0.0f || same(scale, 1.0f / 448.0f) || scale == INFINITY;
}

/* Whether a number x may stand in a block with such a scale: the maximum is below, at or above the
 * centre, and no number of the block is larger. */
static int is_below(const struct state *s, float x, const float *number)
{
    float y = qm_expand_plus(fabsf(x), s->codec.q.scale.plus) / number[2];
    return number[0] == INFINITY || (number[0] == 0.0f ? y < 1.0f : y <= 1.0f) || qm_isnan(x);
}

/* Judges the numbers of a block against the recorded ones; 0: they are not the same bits. */
static int judge_block(struct qm_conform *c, const struct state *s, int64_t b, const float *stat,
                       const float *want, const double by[2])
{
    const struct qm_quantizer *q = &s->codec.q;
    float got[QM_EXPAND_NUMBERS], k = want[1];
    int equal = 1;
    qm_block_numbers_of(q, &s->codec.cb, stat, got);
    for (int i = 0; i < QM_EXPAND_NUMBERS; i++)
        equal &= same(got[i], want[i]);
    if (equal)
        return 1;
    if (!same(got[1], k) && !may_be(s, stat, k, by[0] + by[1]))
        qm_golden_case_differs(c, "%s: exponent of block %lld: got %.9g, want %.9g", s->of,
                               (long long)b, (double)got[1], (double)k);
    qm_match_close(c, "centre", &got[2], &want[2], 1, 0.5 * (by[0] + by[1]) + ROUNDINGS, 0.0);
    float of = qm_expand_plus(stat[0], q->scale.plus) / want[2], scale = qm_power(of, k) / 448.0f;
    double within = fabs((double)k) * (by[0] + ROUNDINGS) + STATE;
    /* The infinite power of a quotient that an error of the state may put on either side of 1. */
    if (isinf(k) && by[0] > 0.0 && is_of_infinite(want[0])) {
        if (c->now.outcome == QM_CONFORM_equal)
            snprintf(c->now.text, sizeof c->now.text,
                     "%s: scale of block %lld: an infinite power of a quotient near 1", s->of,
                     (long long)b);
        c->now.outcome = QM_CONFORM_near;
        return 0;
    }
    qm_match_close(c, "scale", &scale, &want[0], 1, isinf(k) ? 0.0 : within, 0.0);
    return 0;
}

/* Whether the recorded code is that of a number within the error of x, of an infinite exponent one
 * that may stand beside the recorded scale: either end, x itself or the centre. */
static int code_may_be(const struct state *s, float x, double error, const float *number,
                       uint8_t want)
{
    const struct qm_codec *codec = &s->codec;
    int is_infinite = s->per > 1 && isinf(number[1]) && is_of_infinite(number[0]);
    double by = s->per > 1 ? STATE / fmin(fabs((double)number[1]), 1.0) : 0.0;
    double off = error + by * fabs((double)x);
    if (!(off < HUGE_VAL)) /* of an exponent 0 all numbers have the greatest code */
        return 0;
    float centre = is_infinite ? copysignf(number[2], x) : x;
    float at[4] = {(float)((double)x - off), (float)((double)x + off), x,
                   fabs((double)centre - (double)x) <= off ? centre : x};
    for (int i = 0; i < 4; i++)
        if ((!is_infinite || is_below(s, at[i], number)) &&
            qm_block_code(&codec->q, &codec->cb, at[i], number, 0) == want)
            return 1;
    return 0;
}

/* Judges numbers and codes of fresh values x against those of step t; error: of each x; NULL: none.
 * A block whose recorded numbers differ in their bits is encoded by the recorded ones. */
static void state_judge(struct qm_conform *c, const struct state *s, int64_t t, const float *x,
                        const double *error)
{
    struct qm_shape flat = qm_shape_flat(s->n);
    const struct qm_codec *codec = &s->codec;
    int64_t count = s->blocks * s->per, block = codec->q.block;
    float *stat = qm_golden_case_memory(c, count, sizeof *stat), *want = numbers_of(c, s, t),
          *numbers = qm_golden_case_memory(c, count, sizeof *numbers);
    uint8_t *codes = qm_golden_case_memory(c, s->n, 1);
    if (!stat || !want || !numbers || !codes ||
        qm_encode(codec, &flat, x, NULL, codes, numbers) != QM_OK)
        return;
    qm_fold(codec, &flat, 0, s->n, x, stat);
    if (s->per == 1)
        qm_match_floats(c, "scale", numbers, want, count);
    for (int64_t b = 0; b < s->blocks && qm_golden_case_open(c); b++) {
        const float *of = want + b * s->per, *at = stat + b * s->per;
        if (s->per == 1)
            break;
        double by[2] = {error_of(s, b, at[0], x, error), error_of(s, b, at[1], x, error)};
        if (judge_block(c, s, b, at, of, by))
            continue;
        for (int64_t i = b * block; i < (b + 1) * block && i < s->n; i++) {
            codes[i] = (uint8_t)qm_block_code(&codec->q, &codec->cb, x[i], of, 0);
            if (isinf(of[1]) && is_of_infinite(of[0]) && !is_below(s, x[i], of) &&
                !code_may_be(s, x[i], error ? error[i] : 0.0, of, (uint8_t)s->codes[t * s->n + i]))
                qm_golden_case_differs(
                    c, "%s code[%lld]: 0x%02llx cannot be beside the scale %g of its block", s->of,
                    (long long)i, (unsigned long long)s->codes[t * s->n + i], (double)of[0]);
        }
    }
    c->now.compared += count;
    const int64_t *recorded = s->codes + t * s->n;
    int64_t off = 0;
    for (int64_t i = 0; i < s->n; i++) /* whose sign is that of the NaN which a machine makes */
        if (qm_isnan(x[i]) && (codes[i] ^ recorded[i]) == 0x80)
            codes[i] = (uint8_t)recorded[i];
    for (int64_t i = 0; i < s->n && s->per > 1; i++)
        if (codes[i] != recorded[i] &&
            code_may_be(s, x[i], error ? error[i] : 0.0, want + i / block * s->per,
                        (uint8_t)recorded[i])) {
            codes[i] = (uint8_t)recorded[i];
            off++;
        }
    qm_match_count(c, s->of, off, s->n);
    qm_match_codes(c, s->of, codes, recorded, s->n);
}

/* The recorded state after step t as floats.  The product 0 Inf is the NaN of the recording
 * machine: an x86 CPU's has its sign bit set, so that signed states became negative, a GPU's has
 * not. */
static int state_floats(struct qm_conform *c, const struct state *s, int64_t t, float *out)
{
    struct qm_shape flat = qm_shape_flat(s->n);
    const float *numbers = numbers_of(c, s, t);
    uint8_t *codes = qm_golden_case_memory(c, s->n, 1);
    for (int64_t i = 0; codes && i < s->n; i++)
        codes[i] = (uint8_t)s->codes[t * s->n + i];
    if (!codes || !numbers)
        return 0;
    qm_decode(&s->codec, &flat, codes, numbers, out);
    for (int64_t i = 0; i < s->n && s->of[0] == 'm' && !s->is_gpu; i++) {
        float unit = qm_e4m3_to_float(codes[i]), scale = numbers[i / s->codec.q.block * s->per];
        if (!qm_isnan(unit) && qm_isnan(unit * scale))
            out[i] = -out[i];
    }
    return 1;
}

/* Decoded values: a product, or two and a power.  A NaN is one of either sign. */
static void decoded_judge(struct qm_conform *c, const struct state *s, int64_t t, const float *want)
{
    float *got = qm_golden_case_memory(c, s->n, sizeof *got);
    if (got && want && state_floats(c, s, t, got))
        qm_match_close(c, "decoded", got, want, s->n, s->per == 1 ? 0.0 : STATE, 0x1p-148);
}

/* The registered variant of a case, with the blocks and the steps of exponents that it asks for. */
static qm_status variant_at(struct qm_conform *c, struct qm_recipe *r)
{
    int expands = qm_golden_case_whole(c, "expansion", 0) != 0;
    int64_t block = qm_golden_case_whole(c, "group_size", 128);
    int64_t steps = qm_golden_case_whole(c, "expand_min", 16);
    char key[32], value[32], text[QM_RECIPE_TEXT];
    QM_TRY(qm_recipe_parse(expands ? "adamw8_coat" : "adamw8_coat_plain", r));
    for (int i = 0; i < 2; i++) {
        snprintf(key, sizeof key, "%s.norm", r->rule->slot[i]);
        snprintf(value, sizeof value, "block:%lld", (long long)block);
        if (r->slot[i].block != block)
            QM_TRY(qm_recipe_set(r, key, value));
        snprintf(key, sizeof key, "%s.curve", r->rule->slot[i]);
        snprintf(value, sizeof value, "expand:%lld", (long long)steps);
        if (expands && (int64_t)r->slot[i].expand != steps)
            QM_TRY(qm_recipe_set(r, key, value));
    }
    snprintf(c->now.how, sizeof c->now.how, "%.250s", qm_recipe_print(r, text));
    return qm_recipe_applicable(r);
}

/* The recipe of a case and the codecs of its states; 0: skipped. */
static int codecs_of(struct qm_conform *c, struct qm_recipe *r, struct qm_codec codec[2])
{
    if (variant_at(c, r) == QM_OK && qm_codec_init(&codec[0], &r->slot[0]) == QM_OK &&
        qm_codec_init(&codec[1], &r->slot[1]) == QM_OK)
        return 1;
    qm_golden_case_skip(c, "%.250s", qm_message());
    return 0;
}

static const struct qm_golden_need quantizer_needs[] = {
    {"expansion", QM_NEED_number, 0, 1, 0},
    {"group_size", QM_NEED_number, 1, 1024, 0},
    {"expand_min", QM_NEED_number, 1, 65536, 1}};
enum { QUANTIZER_NEEDS = sizeof quantizer_needs / sizeof *quantizer_needs };

/* A step from the zero state with betas 0: m = 0 0 + 1 x, v = 0 0 + (1 x) x. */
static void replay_quantizer(struct qm_conform *c)
{
    struct qm_recipe r;
    struct qm_codec codec[2];
    struct state s;
    int64_t n = qm_golden_case_numel(c, "x");
    const float *x = qm_golden_case_floats(c, "x", n);
    float *fresh = qm_golden_case_memory(c, n, sizeof *fresh);
    if (!qm_golden_case_needs(c, quantizer_needs, QUANTIZER_NEEDS) || !codecs_of(c, &r, codec) ||
        !x || !fresh)
        return;
    for (int k = 0; k < 2 && qm_golden_case_open(c); k++) {
        if (!state_read(c, k ? "v" : "m", "", &codec[k], n, 1, &s))
            return;
        for (int64_t i = 0; i < n; i++)
            fresh[i] = 0.0f + (k ? x[i] * x[i] : x[i]);
        state_judge(c, &s, 0, fresh, NULL);
        decoded_judge(c, &s, 0, part(c, "", &s, "dequant", n));
    }
}

/* ---- the cast ---- */

static void replay_cast(struct qm_conform *c)
{
    int64_t n = qm_golden_case_numel(c, "cast_x");
    const float *x = qm_golden_case_floats(c, "cast_x", n),
                *value = qm_golden_case_floats(c, "value", 256);
    const int64_t *want = qm_golden_case_ints(c, "cast_code", n);
    uint8_t *codes = qm_golden_case_memory(c, n, 1);
    float decoded[256];
    if (!x || !value || !want || !codes)
        return;
    for (int k = 0; k < 256; k++)
        decoded[k] = qm_e4m3_to_float((uint8_t)k);
    for (int64_t i = 0; i < n; i++)
        codes[i] = qm_float_to_e4m3(x[i], 1);
    qm_match_floats(c, "value", decoded, value, 256);
    qm_match_codes(c, "cast", codes, want, n);
}

/* ---- optimizer runs ---- */

static int recipe_of(struct qm_conform *c, struct qm_recipe *r, struct qm_codec codec[2])
{
    char name[32];
    double betas[2];
    qm_golden_case_text(c, "optimizer", name, sizeof name);
    if (strcmp(name, "CoatAdamW") != 0) {
        qm_golden_case_skip(c, "optimizer '%.30s' is not built", name);
        return 0;
    }
    if (!qm_run_betas(c, betas) || !codecs_of(c, r, codec))
        return 0;
    r->hyper.lr = qm_golden_case_number(c, "lr", 1e-3);
    r->hyper.beta1 = betas[0];
    r->hyper.beta2 = betas[1];
    r->hyper.eps = qm_golden_case_number(c, "eps", 1e-8);
    r->hyper.weight_decay = qm_golden_case_number(c, "weight_decay", 1e-2);
    return 1;
}

/* A step of n elements: parameter, its recorded value after it, fresh states and their errors. */
struct fresh {
    int64_t n, t;
    const float *p, *want;
    float *slot[2];
    double *error[2], *allowed;
};

/* Parameters: lr m / den by the errors of m and v, of which the root halves the relative one, 8 u
 * of roundings that may fall elsewhere, and two of the sum.  The first step has no errors. */
static void params_judge(struct qm_conform *c, const struct qm_hyper *h, const struct fresh *f)
{
    double c1 = 1.0 - pow(h->beta1, (double)f->t), c2 = 1.0 - pow(h->beta2, (double)f->t);
    for (int64_t i = 0; i < f->n; i++) {
        double m = (double)f->slot[0][i], v = (double)f->slot[1][i];
        double den = (sqrt(v / c2) + h->eps) * c1,
               of_v = v > 0.0 ? f->error[1][i] / (2.0 * v) : 0.0;
        double step = f->error[0][i] / den + fabs(m / den) * (of_v + STATE);
        int is_off = f->error[0][i] > 0.0 || f->error[1][i] > 0.0;
        f->allowed[i] = is_off ? h->lr * step + 0x1p-23 * fabs((double)f->want[i]) : 0.0;
    }
    qm_match_close_each(c, "parameter", f->p, f->want, f->allowed, f->n);
}

/* Sets the old states of step t, and the errors that its averages keep of them. */
static int states_before(struct qm_conform *c, const struct qm_hyper *h, const struct state s[2],
                         const struct fresh *f)
{
    for (int k = 0; k < 2 && f->t > 1; k++) {
        double by = s[k].per > 1 ? STATE * (k ? h->beta2 : h->beta1) : 0.0;
        if (!state_floats(c, &s[k], f->t - 2, f->slot[k]))
            return 0;
        for (int64_t i = 0; i < f->n; i++)
            f->error[k][i] = by * fabs((double)f->slot[k][i]);
    }
    return 1;
}

static void replay_run(struct qm_conform *c)
{
    static const struct qm_golden_need needs[] = {
        {"p0", QM_NEED_data, 0, 0, 0},       {"grads", QM_NEED_data, 0, 0, 0},
        {"params", QM_NEED_data, 0, 0, 0},   {"steps", QM_NEED_number, 1, 1e6, 0},
        {"lr", QM_NEED_number, 0, 1e6, 0},   {"optimizer", QM_NEED_text, 0, 0, 0},
        {"eps", QM_NEED_number, 0, 1e30, 0}, {"weight_decay", QM_NEED_number, 0, 1e9, 0}};
    struct qm_recipe r;
    struct qm_codec codec[2];
    struct state s[2];
    if (!qm_golden_case_needs(c, needs, sizeof needs / sizeof *needs) ||
        !qm_golden_case_needs(c, quantizer_needs, QUANTIZER_NEEDS) || !recipe_of(c, &r, codec))
        return;
    int64_t n = qm_golden_case_numel(c, "p0"), steps = qm_golden_case_whole(c, "steps", 0);
    const float *p0 = qm_golden_case_floats(c, "p0", n),
                *grads = qm_golden_case_floats(c, "grads", steps * n),
                *params = qm_golden_case_floats(c, "params", steps * n);
    const double *rates = qm_golden_case_rates(c, steps);
    float *p = qm_golden_case_memory(c, n, sizeof *p);
    struct fresh f = {.n = n, .p = p, .allowed = qm_golden_case_memory(c, n, sizeof *f.allowed)};
    for (int i = 0; i < 2; i++)
        if (!(f.slot[i] = qm_golden_case_memory(c, n, sizeof *p)) ||
            !(f.error[i] = qm_golden_case_memory(c, n, sizeof *f.error[i])) ||
            !state_read(c, i ? "v" : "m", "state/", &codec[i], n, steps, &s[i]))
            return;
    if (!p0 || !grads || !params || !p || !f.allowed)
        return;
    for (int64_t t = 1; t <= steps && qm_golden_case_open(c); t++) {
        struct qm_rule_step step;
        memcpy(p, t > 1 ? params + (t - 2) * n : p0, sizeof *p * (size_t)n);
        f.t = t;
        f.want = params + (t - 1) * n;
        r.hyper.lr = rates ? rates[t - 1] : r.hyper.lr;
        if (!states_before(c, &r.hyper, s, &f))
            return;
        r.rule->prepare(&r.hyper, t, &step);
        step.hyper = &r.hyper;
        r.rule->elementwise->block(&step, n, p, grads + (t - 1) * n, f.slot);
        params_judge(c, &r.hyper, &f);
        for (int i = 0; i < 2; i++)
            state_judge(c, &s[i], t - 1, f.slot[i], t > 1 ? f.error[i] : NULL);
    }
    for (int i = 0; i < 2 && qm_golden_case_open(c); i++)
        decoded_judge(c, &s[i], steps - 1, part(c, "state/", &s[i], "dequant_last", n));
}

void qm_conform_coat(struct qm_conform *c)
{
    qm_golden_read_all(c, &(struct qm_golden_readers){.run = replay_run,
                                                      .quantizer = replay_quantizer,
                                                      .single = "e4m3",
                                                      .replay_single = replay_cast});
}
