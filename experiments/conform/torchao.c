/* torchao.c - Replays the golden vectors of torchao's low-bit optimizers.
 *
 * Layout: maps; q{4,8}{s,u}_* quantizer cases; search_* the search on arbitrary tables; fp8_*;
 * bf16_sr; opt_* and cls_* optimizer runs; fallback_rules. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/rule/adamw.h"
#include "experiments/conform/run.h"

static const struct {
    const char *dataset, *map;
    int bits, sign;
} maps[] = {
    {"signed8", "dyn", 8, 1},   {"unsigned8", "dyn", 8, 0}, {"signed4", "dyn", 4, 1},
    {"unsigned4", "lin", 4, 0}, {"nf4", "nf4", 4, 1},       {"e4m3", "e4m3", 8, 1},
};
enum { N_MAPS = sizeof maps / sizeof *maps };

static void replay_map(struct qm_conform *c, const struct qm_golden_place *at)
{
    int k = 0;
    if (!qm_golden_case_begin(c, at->group, at->name))
        return;
    while (k < N_MAPS && strcmp(maps[k].dataset, at->name) != 0)
        k++;
    if (k < N_MAPS)
        qm_match_map(c, maps[k].map, maps[k].bits, maps[k].sign,
                     qm_golden_case_floats(c, at->name, -1), qm_golden_case_numel(c, at->name));
    else
        qm_golden_case_skip(c, "a table of an older linspace, for reference only");
    qm_golden_case_end(c);
}

/* The words after the search: ties go up; e4m3 rounds as its float format does. */
static const char *words_of(int k)
{
    return strcmp(maps[k].map, "e4m3") == 0 ? "even/floor:1e-12"
           : maps[k].bits < 8               ? "near/hi/floor:1e-12"
                                            : "near/floor:1e-12";
}

/* What a quantizer's case must have. */
static const struct qm_golden_need quantizer_needs[] = {
    {"x", QM_NEED_data, 0, 0, 0},
    {"scale", QM_NEED_data, 0, 0, 0},
    {"dequant", QM_NEED_data, 0, 0, 0},
    {"block_size", QM_NEED_number, 1, 1 << 20, 0},
};

/* Attributes map (absent: e4m3), block_size; x, scale, dequant and codes or codes_packed. */
static void replay_quantizer(struct qm_conform *c)
{
    char map[64];
    struct qm_codec codec;
    int k = 0;
    int64_t block = qm_golden_case_whole(c, "block_size", 0);
    if (!qm_golden_case_text(c, "map", map, sizeof map))
        snprintf(map, sizeof map, "%s", strncmp(c->group, "fp8_", 4) == 0 ? "e4m3" : "");
    while (k < N_MAPS && strcmp(maps[k].dataset, map) != 0)
        k++;
    if (!qm_golden_case_needs(c, quantizer_needs, sizeof quantizer_needs / sizeof *quantizer_needs))
        return;
    if (k == N_MAPS) {
        if (map[0])
            qm_golden_case_skip(c, "map '%s' is not built", map);
        else
            qm_golden_case_needs(c, &(struct qm_golden_need){"map", QM_NEED_text, 0, 0, 0}, 1);
        return;
    }
    if (!qm_golden_case_codec(c, &codec, "%s:%d%c/block:%lld/bisect/%s", maps[k].map, maps[k].bits,
                              maps[k].sign ? 's' : 'u', (long long)block, words_of(k)))
        return;
    struct qm_shape shape;
    if (!qm_golden_case_shape(c, "x", &shape))
        return;
    int64_t n = qm_shape_numel(&shape);
    struct qm_golden_run want = {.n_dequant = n};
    want.packed_bytes = qm_golden_case_numel(c, "codes_packed");
    if (qm_golden_case_has(c, "codes_packed"))
        want.packed = qm_golden_case_ints(c, "codes_packed", (n * codec.q.bits + 7) / 8);
    if (qm_golden_case_has(c, "codes"))
        want.codes = qm_golden_case_ints(c, "codes", n);
    else
        want.codes = qm_golden_case_unpacked(c, codec.q.pack, codec.q.bits, want.packed,
                                             want.packed_bytes * 8 / codec.q.bits == n ? n : 0);
    want.scales = qm_golden_case_floats(c, "scale", qm_scale_count(&codec, &shape));
    want.dequant = qm_golden_case_floats(c, "dequant", n);
    qm_match_quantizer(c, &codec, &shape, qm_golden_case_floats(c, "x", n), &want);
}

/* Datasets value (codes) and decoded (their values at scale 1), in any order. */
static void replay_table(struct qm_conform *c)
{
    struct qm_codec codec;
    int64_t n = qm_golden_case_numel(c, "decoded");
    const float *want = qm_golden_case_floats(c, "decoded", n);
    const int64_t *code = qm_golden_case_ints(c, "value", n);
    uint8_t *codes = qm_golden_case_memory(c, n, 1);
    float *got = qm_golden_case_memory(c, n, sizeof *got);
    struct qm_shape flat = qm_shape_flat(n);
    const float one = 1.0f;
    if (!want || !code || !codes || !got ||
        !qm_golden_case_codec(c, &codec, "e4m3:8s/tensor/bisect/even"))
        return;
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)code[i];
    qm_decode(&codec, &flat, codes, &one, got);
    qm_match_floats(c, "decoded", got, want, n);
}

/* Datasets qmap, x, codes: bisect and near on any sorted table, without a scale. */
static void replay_search(struct qm_conform *c)
{
    struct qm_codec codec;
    int64_t entries = qm_golden_case_numel(c, "qmap"), n = qm_golden_case_numel(c, "x");
    if (entries < 2 || entries > 256) {
        qm_golden_case_skip(c, "tables have 2 to 256 entries, this one %lld", (long long)entries);
        return;
    }
    const float *table = qm_golden_case_floats(c, "qmap", entries),
                *x = qm_golden_case_floats(c, "x", n);
    const int64_t *want = qm_golden_case_ints(c, "codes", n);
    uint8_t *got = qm_golden_case_memory(c, n, 1);
    if (!table || !x || !want || !got ||
        !qm_golden_case_codec(c, &codec, "dyn:8s/tensor/bisect/near"))
        return;
    qm_codec_table(&codec, table, (int)entries);
    snprintf(c->now.how, sizeof c->now.how, "bisect/near on the recorded table");
    for (int64_t i = 0; i < n; i++)
        got[i] = (uint8_t)(qm_isnan(x[i]) ? 0 : qm_code_of(&codec, x[i], 0));
    qm_match_codes(c, "code", got, want, n);
}

/* Rows: numel, whether 8-bit states are quantized, whether 4-bit states are. */
static void replay_fallback(struct qm_conform *c)
{
    static const char *const names[2] = {"adamw8_ao", "adamw4_ao"};
    int64_t n = qm_golden_case_per(c, "numel_q8_q4", 3);
    const int64_t *rows = qm_golden_case_ints(c, "numel_q8_q4", 3 * n);
    for (int v = 0; rows && v < 2; v++) {
        struct qm_recipe r;
        if (qm_recipe_parse(names[v], &r) != QM_OK) {
            qm_golden_case_skip(c, "%s", qm_message());
            return;
        }
        for (int64_t i = 0; i < n; i++) {
            struct qm_shape shape = qm_shape_flat(rows[3 * i]);
            uint8_t got = qm_recipe_slot(&r, 0, &shape).bits != 0;
            char what[96];
            snprintf(what, sizeof what, "%s quantizes %lld elements", names[v],
                     (long long)rows[3 * i]);
            qm_match_codes(c, what, &got, &rows[3 * i + 1 + v], 1);
        }
    }
}

/* ---- optimizer runs ---- */

static int slot_read(struct qm_conform *c, const char *which, int bits, int64_t steps, int64_t n,
                     struct qm_run_slot *out)
{
    char name[32];
    int64_t bytes = bits == 4 ? n / 2 : n;
    snprintf(name, sizeof name, "%s_codes", which);
    const int64_t *codes = qm_golden_case_ints(c, name, steps * bytes);
    out->codes = bits == 4 ? qm_golden_case_unpacked(c, QM_PACK_hi, 4, codes, steps * n) : codes;
    snprintf(name, sizeof name, "%s_scale", which);
    out->n_scales = qm_golden_case_per(c, name, steps);
    out->scales = qm_golden_case_floats(c, name, steps * out->n_scales);
    return out->codes && out->scales;
}

/* "q8", "q4", "fp8" or "fp32", from attribute state or from the class of the state. */
static void state_format(struct qm_conform *c, char *out, size_t size)
{
    char name[64];
    if (qm_golden_case_text(c, "state", out, size))
        return;
    qm_golden_case_text(c, "state_class", name, sizeof name);
    snprintf(out, size, "%s",
             strstr(name, "8bit")   ? "q8"
             : strstr(name, "4bit") ? "q4"
             : strstr(name, "Fp8")  ? "fp8"
                                    : "fp32");
}

/* Reads exp_avg, exp_avg_sq and, with amsgrad, its maximum; tensors without codes are float32, or
 * bfloat16 as the parameter. */
static int slots_read(struct qm_conform *c, struct qm_run *run, const char *state, int64_t n)
{
    static const char *const names[] = {"m", "v", "vmax"};
    static const struct {
        const char *state, *map[2];
    } formats[] = {{"q8", {"signed8", "unsigned8"}},
                   {"q4", {"signed4", "unsigned4"}},
                   {"fp8", {"e4m3", "e4m3"}}};
    int64_t block = qm_golden_case_whole(c, "block_size", 0);
    int f = 0, is_bf16 = run->recipe.param.format == QM_PARAM_bf16 || run->draws;
    while (f < 3 && strcmp(formats[f].state, state) != 0)
        f++;
    for (int i = 0; i < run->recipe.rule->n_slots; i++) {
        char text[QM_QUANTIZER_TEXT];
        int k = 0;
        if (f == 3 || i == 2) {
            if (!qm_run_quantizer(c, &run->recipe, i, is_bf16 ? "bf16" : "f32", 0, 0.0f) ||
                !(run->slot[i].values = qm_golden_case_floats_of(
                      c, names[i], run->steps * n, is_bf16 ? QM_PARAM_bf16 : QM_PARAM_f32)))
                return 0;
            continue;
        }
        while (strcmp(maps[k].dataset, formats[f].map[i]) != 0)
            k++;
        snprintf(text, sizeof text, "%s:%d%c/block:%lld/bisect/%s", maps[k].map, maps[k].bits,
                 maps[k].sign ? 's' : 'u', (long long)block, words_of(k));
        if (!qm_run_quantizer(c, &run->recipe, i, text, 0, 0.0f) ||
            !slot_read(c, names[i], maps[k].bits, run->steps, n, &run->slot[i]))
            return 0;
    }
    return 1;
}

static struct qm_hyper hyper_read(struct qm_conform *c)
{
    struct qm_hyper h = qm_hyper_default();
    h.lr = qm_golden_case_number(c, "lr", h.lr);
    h.beta1 = qm_golden_case_number(c, "beta1", h.beta1);
    h.beta2 = qm_golden_case_number(c, "beta2", h.beta2);
    h.eps = qm_golden_case_number(c, "eps", h.eps);
    h.weight_decay = qm_golden_case_number(c, "weight_decay", 0.0);
    h.amsgrad = qm_golden_case_int(c, "amsgrad", 0);
    return h;
}

/* The recorded bias corrections: powf of the recording machine is off by an ulp in about one of a
 * hundred.  A static is the only way to hand them to a rule's prepare. */
static struct {
    const struct qm_rule *rule;
    const float *correction[2];
} recorded;

static void prepare_recorded(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    recorded.rule->prepare(h, t, s);
    s->c[5] = recorded.correction[0][t - 1]; /* those that qm_adamw_ao_apply reads */
    s->c[6] = sqrtf(recorded.correction[1][t - 1]);
}

/* Compares the recorded corrections of both moments, under either name, with 1 - beta^t, for which
 * torch rounds beta to float32, or not, and the power is off by two ulps of it at most, 2^-23 of it
 * each, and the difference by half an ulp of 1, 2^-24. */
static void corrections_judge(struct qm_conform *c, int64_t steps)
{
    static const char *const prefix[] = {"", "eager_"};
    for (int k = 0; k < 4; k++) {
        char name[32];
        double beta = qm_golden_case_number(c, k % 2 ? "beta2" : "beta1", 0.0);
        snprintf(name, sizeof name, "%sbias_correction%d", prefix[k / 2], k % 2 + 1);
        const float *x = qm_golden_case_has(c, name) ? qm_golden_case_floats(c, name, steps) : NULL;
        for (int64_t t = 1; x && t <= steps && qm_golden_case_open(c); t++) {
            double power = pow(beta, (double)t), narrow = pow((double)(float)beta, (double)t),
                   off = fabs((double)x[t - 1] - (1.0 - power));
            if (!(off <= fabs(power - narrow) + 0x1p-22 * power + 0x1p-24))
                qm_golden_case_differs(c, "step %lld %s: got %.9g, want %.9g: off by %.3g",
                                       (long long)t, name, 1.0 - power, (double)x[t - 1], off);
        }
    }
}

/* Without them the power of torch's vector library, which is an ulp off, is one of three numbers:
 * candidate k of both powers. */
static struct {
    const struct qm_rule *rule;
    int off[2], is_taken; /* in ulps; a candidate other than the first */
} powers;

static float power_at(double beta, int64_t t, int off)
{
    float x = (float)pow((double)(float)beta, (double)t);
    return off ? nextafterf(x, off < 0 ? -1.0f : 2.0f) : x;
}

static void prepare_powers(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    powers.rule->prepare(h, t, s);
    if (powers.off[0] || powers.off[1]) {
        powers.is_taken = 1;
        s->c[QM_ADAMW_AO_BC1] = 1.0f - power_at(h->beta1, t, powers.off[0]);
        s->c[QM_ADAMW_AO_ROOT_BC2] = sqrtf(1.0f - power_at(h->beta2, t, powers.off[1]));
    }
}

static int powers_candidate(int k)
{
    static const int off[3] = {0, 1, -1};
    if (k >= 9)
        return 0;
    powers.off[0] = off[k % 3];
    powers.off[1] = off[k / 3];
    return 1;
}

/* What a run must have. */
static const struct qm_golden_need run_needs[] = {
    {"T", QM_NEED_number, 1, 1e6, 0},
    {"lr", QM_NEED_number, 0, 1e30, 0},
    {"beta1", QM_NEED_number, 0, 1, 0},
    {"beta2", QM_NEED_number, 0, 1, 0},
    {"eps", QM_NEED_number, 0, 1e30, 0},
    {"weight_decay", QM_NEED_number, 0, 1e30, 0},
    {"amsgrad", QM_NEED_number, 0, 1, 1},
    {"is_adamw", QM_NEED_number, 0, 1, 0},
    {"compiled", QM_NEED_number, 0, 1, 1},
    {"bf16_stochastic_round", QM_NEED_number, 0, 1, 1},
    {"block_size", QM_NEED_number, 0, 1 << 20, 1},
    {"dtype", QM_NEED_text, 0, 0, 0},
    {"p0", QM_NEED_data, 0, 0, 0},
    {"grads", QM_NEED_data, 0, 0, 0},
    {"params", QM_NEED_data, 0, 0, 0},
};

/* Every step from the recorded state before it, then the whole run from the start. */
static void replay_optimizer(struct qm_conform *c)
{
    struct qm_run run = {.steps = qm_golden_case_whole(c, "T", 0)};
    static const char *const roots[] = {"ieee", "installed"};
    char state[32], dtype[32], rule[64];
    if (!qm_golden_case_needs(c, run_needs, sizeof run_needs / sizeof *run_needs))
        return;
    int64_t n = qm_golden_case_numel(c, "p0");
    state_format(c, state, sizeof state);
    qm_golden_case_text(c, "dtype", dtype, sizeof dtype);
    int is_bf16 = strcmp(dtype, "bfloat16") == 0;
    const enum qm_param_format format = is_bf16 ? QM_PARAM_bf16 : QM_PARAM_f32;
    if (strcmp(dtype, "float32") != 0 && !is_bf16)
        qm_golden_case_skip(c, "the source's states are float32 or bfloat16, not '%s'", dtype);
    int is_compiled = qm_golden_case_whole(c, "compiled", 0) != 0;
    snprintf(rule, sizeof rule, "%s%s%s",
             qm_golden_case_whole(c, "is_adamw", 0) ? "adamw_ao" : "adam_ao",
             qm_golden_case_whole(c, "amsgrad", 0) ? "_amsgrad" : "",
             is_compiled ? "_compiled" : "");
    if (!qm_golden_case_open(c) || !qm_run_recipe(c, rule, &run.recipe))
        return;
    run.recipe.hyper = hyper_read(c);
    if (is_bf16 && qm_golden_case_whole(c, "bf16_stochastic_round", 0))
        run.draws = qm_golden_case_ints(c, "rand16", run.steps * n);
    else if (is_bf16)
        run.recipe.param.format = QM_PARAM_bf16;
    run.shape = qm_run_shape(c, "shape", n);
    float *grads = qm_golden_case_floats(c, "grads", run.steps * n);
    if (!grads || !slots_read(c, &run, state, n))
        return;
    if (is_bf16) /* recorded before they were rounded to bfloat16 */
        qm_plain_round(QM_PLAIN_bf16, run.steps * n, grads);
    run.grads = grads;
    run.p0 = qm_golden_case_stored(c, "p0", n, format);
    run.lr = qm_golden_case_rates(c, run.steps);
    run.n_kept =
        qm_golden_case_has(c, "params_steps") ? qm_golden_case_numel(c, "params_steps") : run.steps;
    run.kept = qm_golden_case_has(c, "params_steps") ? qm_golden_case_ints(c, "params_steps", -1)
                                                     : qm_run_all_steps(c, run.steps);
    run.params = qm_golden_case_stored(c, "params", run.n_kept * n, format);
    corrections_judge(c, run.steps);
    struct qm_rule as_recorded = *run.recipe.rule;
    const char *first = is_compiled ? "eager_bias_correction1" : "bias_correction1";
    if (qm_golden_case_has(c, first)) {
        recorded.rule = run.recipe.rule;
        recorded.correction[0] = qm_golden_case_floats(c, first, run.steps);
        recorded.correction[1] = qm_golden_case_floats(
            c, is_compiled ? "eager_bias_correction2" : "bias_correction2", run.steps);
        if (!recorded.correction[0] || !recorded.correction[1])
            return;
        as_recorded.prepare = prepare_recorded;
        run.recipe.rule = &as_recorded;
    }
    powers.rule = qm_rule_find(rule);
    powers.is_taken = 0;
    if (qm_golden_case_choice(c, "sqrt", roots, 2, 0) == 1) {
        run.within =
            (struct qm_run_tolerance){.param_relative = 0x1p-22,
                                      .param_of_step = 0x1p-20,
                                      .is_decoupled = qm_golden_case_int(c, "is_adamw", 0)};
        run.is_rounded = is_bf16; /* the source steps in float32 and rounds once, as is done here */
        run.recipe.param.format = QM_PARAM_f32;
    } else if (run.recipe.rule != &as_recorded) {
        as_recorded.prepare = prepare_powers;
        run.recipe.rule = &as_recorded;
        run.candidate = powers_candidate;
    }
    qm_run_replay(c, &run);
    run.candidate = NULL;
    powers_candidate(0);
    run.is_free = run.within.param_relative == 0.0 && !powers.is_taken; /* ulps add up */
    if (run.is_free)
        qm_run_replay(c, &run);
}

/* Datasets x_bits, rand16, y_bf16_bits.  The source adds to the bits of any x, so a NaN may become
 * an infinity or a zero; here it stays NaN, and those results are not compared. */
static void replay_stochastic(struct qm_conform *c)
{
    int64_t n = qm_golden_case_numel(c, "x_bits");
    const uint64_t *x = qm_golden_case_words(c, "x_bits", n),
                   *draw = qm_golden_case_words(c, "rand16", n);
    uint64_t *want = qm_golden_case_words(c, "y_bf16_bits", n);
    uint64_t *got = qm_golden_case_memory(c, n, sizeof *got);
    if (!x || !draw || !want || !got)
        return;
    snprintf(c->now.how, sizeof c->now.how, "bf16/stoch");
    for (int64_t i = 0; i < n; i++) {
        float value = qm_float((uint32_t)x[i]);
        got[i] = qm_param_stochastic(QM_PARAM_bf16, value, (uint32_t)draw[i] << 16);
        if (qm_isnan(value) && (got[i] & 0x7fff) > 0x7f80)
            want[i] = got[i];
    }
    qm_match_words(c, "bits", got, want, n);
}

static void replay_group(struct qm_conform *c, const struct qm_golden_place *at)
{
    char error[64];
    if (strcmp(at->path, "maps") == 0) {
        qm_golden_each(c, at->path, replay_map);
        return;
    }
    if (!qm_golden_case_begin(c, at->path, NULL))
        return;
    if (qm_golden_case_text(c, "error", error, sizeof error))
        qm_golden_case_skip(c, "the source refuses this input (%.50s)", error);
    else if (qm_golden_case_has(c, "numel_q8_q4"))
        replay_fallback(c);
    else if (qm_golden_case_has(c, "y_bf16_bits"))
        replay_stochastic(c);
    else if (qm_golden_case_has(c, "decoded"))
        replay_table(c);
    else if (qm_golden_case_has(c, "grads") || qm_golden_case_whole(c, "T", 0) > 0)
        replay_optimizer(c);
    else if (qm_golden_case_has(c, "qmap"))
        replay_search(c);
    else
        replay_quantizer(c);
    qm_golden_case_end(c);
}

void qm_conform_torchao(struct qm_conform *c) { qm_golden_each(c, "", replay_group); }
