/* bitsandbytes.c - Replays the golden vectors of three implementations in bitsandbytes.
 *
 *   default       backends/default: multiplies by 1/absmax (a short last block divides), mid-points
 *   cpu_native    csrc/cpu_ops.cpp: a table of 65,536 entries
 *   cuda_hostemu  csrc/kernels.cu on the host: binary search, ties to the even code */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "experiments/conform/code_edges.h"

static const struct {
    const char *dataset, *map;
    int bits, sign, is_padded; /* with zeros to 256 entries, next to the zero of the map */
} maps[] = {
    {"dynamic_signed", "dyn", 8, 1, 0},
    {"dynamic_unsigned", "dyn", 8, 0, 0},
    {"linear_signed", "lin0", 8, 1, 0},
    {"linear_unsigned", "lin0", 8, 0, 0},
    {"nf4", "nf4", 4, 1, 0},
    {"fp4_code_order", "fp4s", 4, 1, 0},
    {"af4_bs64", "af4", 4, 1, 0},
    {"fp8_e4m3", "fpx", 8, 1, 0},
    {"fp8_e5m2", "fp52", 8, 1, 0},
    {"linear_signed_nozero", "linb", 8, 1, 0},
    {"dynamic_unsigned_defect_0_36_to_0_41_0", "dyndef", 8, 0, 0},
    {"dynamic_signed_4bit_padded", "dyn", 4, 1, 1},
    {"dynamic_signed_3exp_4bit_padded", "dyn", 4, 1, 1},
    {"linear_signed_4bit_padded", "lin0", 4, 1, 1},
    {"fp4_e2m1_padded", "fpx", 4, 1, 1},
    {"normal_padded", "nf4", 4, 1, 1},
    {"normal_symmetric_padded", "nf4s", 4, 1, 1},
};
enum { N_MAPS = sizeof maps / sizeof *maps };

static int map_find(const char *name)
{
    int k = 0;
    while (k < N_MAPS && strcmp(maps[k].dataset, name) != 0)
        k++;
    return k;
}

/* Makes the recorded zeros of fp4's code 8 negative, as here: the source has -0 in its back ends
 * and +0 in get_4bit_type, which decodes odd sizes and nested scales. */
static void sign_zeros(float *x, const int64_t *codes, int64_t n)
{
    for (int64_t i = 0; x && i < n; i++)
        if (x[i] == 0.0f && (codes ? codes[i] : i) == 8)
            x[i] = -0.0f;
}

/* Removes the zeros of a padded table, whose number it returns; *n entries remain. */
static int64_t without_zeros(float *table, int64_t *n)
{
    int64_t kept = 0, all = *n;
    for (int64_t i = 0; table && i < all; i++)
        if (table[i] != 0.0f)
            table[kept++] = table[i];
    *n = kept;
    return all - kept;
}

static void judge_padded(struct qm_conform *c, int k, float *table, int64_t entries)
{
    struct qm_codec codec;
    if (!qm_golden_case_codec(c, &codec, "%s:%d%c/tensor/scan/mid", maps[k].map, maps[k].bits,
                              maps[k].sign ? 's' : 'u'))
        return;
    int64_t n = codec.cb.n;
    int64_t ours = without_zeros(codec.cb.value, &n), theirs = without_zeros(table, &entries);
    if (n != entries || theirs - ours != 256 - codec.cb.n)
        qm_golden_case_differs(c, "%lld values and %lld zeros, want %lld and %lld", (long long)n,
                               (long long)ours, (long long)entries, (long long)theirs);
    qm_match_floats(c, "value", codec.cb.value, table, n);
}

static void replay_map(struct qm_conform *c, const struct qm_golden_place *at)
{
    if (!qm_golden_case_begin(c, at->group, at->name))
        return;
    int k = map_find(at->name);
    if (k < N_MAPS) {
        int64_t entries = qm_golden_case_numel(c, at->name);
        float *table = qm_golden_case_floats(c, at->name, entries);
        if (strcmp(maps[k].map, "fp4s") == 0)
            sign_zeros(table, NULL, entries);
        if (maps[k].is_padded)
            judge_padded(c, k, table, entries);
        else
            qm_match_map(c, maps[k].map, maps[k].bits, maps[k].sign, table, entries);
    } else {
        qm_golden_case_skip(c, "a table that no quantizer here uses");
    }
    qm_golden_case_end(c);
}

/* ---- quantizers ---- */

/* The words after the map for each implementation, 8-bit and 4-bit. */
static const struct {
    const char *name, *words8, *words4;
} ways[] = {
    {"default", "mids/mid/recip_tail/guard:1e-38/nantop",
     "mids/mid/recip_tail/guard:1e-38/nantop/hi"},
    {"cpu_native", "grid/mid/recip/maxskip/zero:0", "grid/mid/recip/maxskip/zero:0/hi"},
    {"cuda_hostemu", "bisect/even/recip/maxskip", "ladder/mid/recip/maxskip/hi"},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* The codec of attribute map, or of the table in the case. */
static int codec8(struct qm_conform *c, int way, struct qm_codec *codec)
{
    char map[64];
    long long block = qm_golden_case_whole(c, "block_size", 0);
    int k = qm_golden_case_text(c, "map", map, sizeof map) ? map_find(map) : 0;
    if (k == N_MAPS) {
        qm_golden_case_skip(c, "map '%s' is not built", map);
        return 0;
    }
    if (!qm_golden_case_codec(c, codec, "%s:8%c/block:%lld/%s", maps[k].map,
                              maps[k].sign ? 's' : 'u', block, ways[way].words8))
        return 0;
    if (!qm_golden_case_has(c, "code"))
        return 1;
    const float *table = qm_golden_case_floats(c, "code", 256);
    if (!table)
        return 0;
    qm_codec_table(codec, table, 256);
    snprintf(c->now.how, sizeof c->now.how, "block:%lld/%s on the recorded table", block,
             ways[way].words8);
    return 1;
}

static void replay_quantizer8(struct qm_conform *c, int way)
{
    struct qm_codec codec;
    struct qm_shape shape;
    char name[64];
    const char *x = qm_golden_case_has(c, "x") ? "x" : "x_as_float32";
    if (!codec8(c, way, &codec) || !qm_golden_case_shape(c, x, &shape))
        return;
    int64_t n = qm_shape_numel(&shape);
    struct qm_golden_run want = {.n_dequant = n};
    snprintf(name, sizeof name, "codes_%s", ways[way].name);
    want.codes = qm_golden_case_ints(c, name, n);
    snprintf(name, sizeof name, "absmax_%s", ways[way].name);
    want.scales = qm_golden_case_floats(c, name, qm_scale_count(&codec, &shape));
    snprintf(name, sizeof name, "dequant_%s", ways[way].name);
    if (qm_golden_case_has(c, name))
        want.dequant = qm_golden_case_floats(c, name, n);
    qm_match_quantizer(c, &codec, &shape, qm_golden_case_floats(c, x, n), &want);
}

/* The codec of attribute quant_type.  The default implementation sorts the two zeros of fp4 the
 * other way; the kernels' decision tree gives NaN the code of zero. */
static int codec4(struct qm_conform *c, const char *words, struct qm_codec *codec)
{
    char type[16];
    qm_golden_case_text(c, "quant_type", type, sizeof type);
    if (strcmp(type, "nf4") != 0 && strcmp(type, "fp4") != 0) {
        qm_golden_case_skip(c, "quant_type '%s' is not built", type);
        return 0;
    }
    int fp4 = strcmp(type, "fp4") == 0, tree = strncmp(words, "ladder", 6) == 0;
    return qm_golden_case_codec(c, codec, "%s%s:4s/block:%lld/%s%s", type, fp4 && !tree ? "s" : "",
                                (long long)qm_golden_case_whole(c, "block_size", 0), words,
                                fp4 && tree ? "/nanzero" : "");
}

static void replay_quantizer4(struct qm_conform *c, int way)
{
    struct qm_codec codec;
    struct qm_shape shape;
    char name[64];
    if (!codec4(c, ways[way].words4, &codec) || !qm_golden_case_shape(c, "x", &shape))
        return;
    int64_t n = qm_shape_numel(&shape);
    struct qm_golden_run want = {.n_dequant = n};
    snprintf(name, sizeof name, "packed_%s", ways[way].name);
    want.packed_bytes = qm_golden_case_numel(c, name);
    want.packed = qm_golden_case_ints(c, name, (n + 1) / 2);
    want.codes = qm_golden_case_unpacked(c, QM_PACK_hi, 4, want.packed, n);
    snprintf(name, sizeof name, "absmax_%s", ways[way].name);
    want.scales = qm_golden_case_floats(c, name, qm_scale_count(&codec, &shape));
    snprintf(name, sizeof name, "dequant_%s", ways[way].name);
    float *dequant = qm_golden_case_has(c, name) ? qm_golden_case_floats(c, name, n) : NULL;
    if (codec.q.map == QM_MAP_fp4s && want.codes)
        sign_zeros(dequant, want.codes, n);
    want.dequant = dequant;
    qm_match_quantizer(c, &codec, &shape, qm_golden_case_floats(c, "x", n), &want);
}

/* Decodes nested scales: codes times absmax2, plus the mean. */
static float *nested_scales(struct qm_conform *c, int64_t blocks)
{
    struct qm_codec second;
    struct qm_shape flat = qm_shape_flat(blocks);
    if (qm_codec_parse(&second, "dyn:8s/block:256/grid/mid/recip/maxskip/zero:0") != QM_OK) {
        qm_golden_case_skip(c, "%s", qm_message());
        return NULL;
    }
    const int64_t *codes = qm_golden_case_ints(c, "absmax_codes", blocks);
    const float *absmax = qm_golden_case_floats(c, "absmax2", qm_scale_count(&second, &flat));
    uint8_t *bytes = qm_golden_case_memory(c, blocks, 1);
    float *scales = qm_golden_case_memory(c, blocks, sizeof *scales);
    float offset = (float)qm_golden_case_number(c, "offset", 0.0);
    if (!codes || !absmax || !bytes || !scales)
        return NULL;
    for (int64_t i = 0; i < blocks; i++)
        bytes[i] = (uint8_t)codes[i];
    qm_decode(&second, &flat, bytes, absmax, scales);
    for (int64_t i = 0; i < blocks; i++)
        scales[i] += offset;
    return scales;
}

/* The source's CPU kernel decodes row by row and counts cols / block scales per row.  Where rows
 * are no multiple of the block, it decodes with other scales than it encoded with. */
static void judge_by_rows(struct qm_conform *c, const struct qm_codec *codec,
                          const struct qm_shape *shape, const int64_t *codes, const float *scales)
{
    int64_t n = qm_shape_numel(shape), cols = shape->rank > 0 ? shape->dim[shape->rank - 1] : n;
    int64_t block = codec->q.block, blocks = qm_scale_count(codec, shape);
    float *want = qm_golden_case_floats(c, "dequant", n),
          *got = qm_golden_case_memory(c, n, sizeof *got);
    if (codec->q.map == QM_MAP_fp4s)
        sign_zeros(want, codes, n);
    for (int64_t i = 0; want && got && codes && i < n; i++) {
        int64_t k = i / cols * (cols / block) + i % cols / block;
        got[i] = codec->cb.value[codec->cb.position_of[codes[i] & 15]] *
                 scales[k < blocks ? k : blocks - 1];
    }
    qm_match_floats(c, "decoded", got, want, n);
}

static void replay_nested(struct qm_conform *c)
{
    struct qm_codec codec;
    struct qm_shape shape;
    if (!codec4(c, "mids/mid/recip_tail/guard:1e-38/nantop/hi/nest:256", &codec) ||
        !qm_golden_case_shape(c, "x", &shape))
        return;
    int64_t n = qm_shape_numel(&shape);
    struct qm_golden_run want = {.packed_bytes = qm_golden_case_numel(c, "packed")};
    want.scales = nested_scales(c, qm_scale_count(&codec, &shape));
    want.packed = qm_golden_case_ints(c, "packed", (n + 1) / 2);
    want.codes = qm_golden_case_unpacked(c, QM_PACK_hi, 4, want.packed, n);
    if (!want.scales || !want.codes)
        return;
    qm_match_quantizer(c, &codec, &shape, qm_golden_case_floats(c, "x", n), &want);
    judge_by_rows(c, &codec, &shape, want.codes, want.scales);
}

/* Scalar functions of csrc/kernels.cu; x is a unit value.  A case with a table is the binary
 * search; the others are the decision trees of fp4 and nf4, told apart by the group's name. */
static void replay_function(struct qm_conform *c, const char *group)
{
    struct qm_codec codec;
    int table = qm_golden_case_has(c, "code"), fp4 = strstr(group, "FP4") || strstr(group, "fp4");
    if (!qm_golden_case_codec(c, &codec, "%s",
                              table ? "dyn:8s/tensor/bisect/even"
                              : fp4 ? "fp4:4s/tensor/ladder/mid/hi"
                                    : "nf4:4s/tensor/ladder/mid/hi"))
        return;
    if (table) {
        const float *values = qm_golden_case_floats(c, "code", 256);
        if (!values)
            return;
        qm_codec_table(&codec, values, 256);
    }
    int64_t n = qm_golden_case_numel(c, "x");
    const float *x = qm_golden_case_floats(c, "x", n);
    const int64_t *want = qm_golden_case_ints(c, "code_out", n);
    uint8_t *got = qm_golden_case_memory(c, n, 1);
    if (!x || !want || !got)
        return;
    for (int64_t i = 0; i < n; i++)
        got[i] = qm_isnan(x[i]) ? 0 : codec.cb.perm[qm_code_of(&codec, x[i], 0)];
    qm_match_codes(c, "code", got, want, n);
}

/* ---- optimizer runs ---- */

/* Where a run was recorded: the ending of the variants that reproduce it.  A run of 8-bit states is
 * judged by the registered variant; one of 32-bit classes by the rule. */
enum { DEFAULT, NATIVE, CPU32, DEFAULT32, CUDA, BACK_ENDS };
static const struct {
    const char *name, *ending;
} back_ends[BACK_ENDS] = {
    [DEFAULT] = {"default", "bnb_default"},
    [NATIVE] = {"native", "bnb"},
    [CPU32] = {"cpu32", "bnb"},
    [DEFAULT32] = {"default32", NULL},
    [CUDA] = {"cuda_hostemu", "bnb_cuda"},
};

/* The name before the ending, and the rules of 32-bit states: on a CPU, by default.  In 8 bits LAMB
 * is Adam and LARS is momentum; in CUDA Adam is AdamW. */
static const struct optimizer {
    const char *name, *variant, *rule[2];
} optimizers[] = {
    {"adamw", "adamw8", {"adamw_bnb32", "adamw_bnb_plain"}},
    {"adam", "adam8", {"adamw_bnb32", "adamw_bnb_plain"}},
    {"lamb", "adam8", {"lamb_bnb_cpu", "lamb_bnb"}},
    {"sgd", "sgdm8", {"momentum_bnb32", "momentum_bnb_plain"}},
    {"momentum", "sgdm8", {"momentum_bnb32", "momentum_bnb_plain"}},
    {"lars", "sgdm8", {"lars_bnb_cpu", "lars_bnb"}},
    {"rmsprop", "rmsprop8", {"rmsprop_bnb32", "rmsprop_bnb_plain"}},
    {"adagrad", "adagrad8", {"adagrad_bnb32", "adagrad_bnb_plain"}},
    {"lion", "lion8", {"lion_bnb32", "lion_bnb_plain"}},
    {"ademamix", "ademamix8", {"ademamix_bnb", "ademamix_bnb_plain"}},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

/* Attributes optimizer ("Adam8bit", "ADAM") and quantizer; 0: skipped. */
static int optimizer_read(struct qm_conform *c, const struct optimizer **optimizer, int *back_end,
                          int *is_8bit)
{
    char name[64], quantizer[64];
    qm_golden_case_text(c, "optimizer", name, sizeof name);
    qm_golden_case_text(c, "quantizer", quantizer, sizeof quantizer);
    char *bits = strstr(name, "8bit"), *wide = strstr(name, "32bit");
    if (bits)
        *bits = '\0';
    else if (wide) /* the same class with optim_bits of 32 */
        *wide = '\0';
    *is_8bit = bits != NULL;
    *optimizer = NULL;
    for (int i = 0; i < OPTIMIZERS; i++)
        if (strcasecmp(name, optimizers[i].name) == 0)
            *optimizer = &optimizers[i];
    *back_end = 0;
    while (*back_end < BACK_ENDS && strcmp(back_ends[*back_end].name, quantizer) != 0)
        ++*back_end;
    if (*optimizer && *back_end < BACK_ENDS)
        return 1;
    if (*optimizer)
        qm_golden_case_skip(c,
                            "attribute quantizer is '%s', expected native, cpu32, default, "
                            "default32 or cuda_hostemu",
                            quantizer);
    else
        qm_golden_case_skip(
            c,
            "optimizer '%s' is not replayed; AdamW, Adam, SGD, RMSprop, Adagrad, Lion, "
            "AdEMAMix, LAMB and LARS are, with 8bit or 32bit or without",
            name);
    return 0;
}

/* Reads slot i of the rule; AdEMAMix keeps its two first moments in state1, one after the other. */
static int slot_read(struct qm_conform *c, struct qm_run *run, int i, int64_t n)
{
    struct qm_run_slot *slot = &run->slot[i];
    int slots = run->recipe.rule->n_slots, second = i > 0 && i == slots - 1;
    int parts = slots == 3 && !second ? 2 : 1, part = parts == 2 ? i : 0;
    int64_t rows = run->steps;
    char state[16], absmax[16];
    snprintf(state, sizeof state, "state%d", second ? 2 : 1);
    snprintf(absmax, sizeof absmax, "absmax%d", second ? 2 : 1);
    if (!qm_golden_case_has(c, absmax)) {
        slot->values = qm_run_rows_part(c, qm_golden_case_floats(c, state, rows * parts * n),
                                        sizeof(float), rows, parts * n, part, parts);
        return slot->values != NULL;
    }
    int64_t scales = qm_golden_case_per(c, absmax, rows);
    slot->n_scales = scales / parts;
    slot->scales = qm_run_rows_part(c, qm_golden_case_floats(c, absmax, rows * scales),
                                    sizeof(float), rows, scales, part, parts);
    slot->codes = qm_run_rows_part(c, qm_golden_case_ints(c, state, rows * parts * n),
                                   sizeof(int64_t), rows, parts * n, part, parts);
    return slot->scales && slot->codes;
}

/* What a run must have. */
static const struct qm_golden_need run_needs[] = {
    {"T", QM_NEED_number, 1, 1e6, 0},
    {"optimizer", QM_NEED_text, 0, 0, 0},
    {"quantizer", QM_NEED_text, 0, 0, 0},
    {"lr", QM_NEED_number, 0, 1e30, 0},
    {"beta1", QM_NEED_number, 0, 1, 1},
    {"beta2", QM_NEED_number, 0, 1, 1},
    {"beta3", QM_NEED_number, 0, 1, 1},
    {"alpha", QM_NEED_number, 0, 1e30, 1},
    {"eps", QM_NEED_number, 0, 1e30, 1},
    {"weight_decay", QM_NEED_number, 0, 1e30, 0},
    {"block_size", QM_NEED_number, 1, 1 << 20, 1},
    {"dtype", QM_NEED_text, 0, 0, 1},
    {"sqrt", QM_NEED_text, 0, 0, 1},
    {"p0", QM_NEED_data, 0, 0, 0},
    {"grads", QM_NEED_data, 0, 0, 0},
    {"params", QM_NEED_data, 0, 0, 0},
    {"state1", QM_NEED_data, 0, 0, 0},
};

/* The class passes its momentum, or RMSprop's alpha, as beta1; max_unorm has its default. */
static void hyper_read(struct qm_conform *c, const char *family, struct qm_hyper *h)
{
    int of_lamb = strncmp(family, "lamb", 4) == 0, of_lars = strncmp(family, "lars", 4) == 0;
    int buffer = strcmp(family, "momentum") == 0 || of_lars;
    h->lr = qm_golden_case_number(c, "lr", 1e-3);
    h->beta1 = qm_golden_case_number(c, "beta1", 0.9);
    h->momentum = h->beta1;
    h->beta2 =
        strncmp(family, "rmsprop", 7) == 0 ? h->beta1 : qm_golden_case_number(c, "beta2", 0.999);
    h->beta3 = qm_golden_case_number(c, "beta3", 0.0);
    h->alpha = qm_golden_case_number(c, "alpha", 0.0);
    h->t_alpha = qm_golden_case_number(c, "t_alpha", 0.0);
    h->t_beta3 = qm_golden_case_number(c, "t_beta3", 0.0);
    h->eps = qm_golden_case_number(c, "eps", buffer ? 0.0 : 1e-8);
    h->weight_decay = qm_golden_case_number(c, "weight_decay", 0.0);
    h->max_unorm = qm_golden_case_number(c, "max_unorm", of_lamb ? 1.0 : of_lars ? 0.02 : 0.0);
    h->gnorm_scale = qm_golden_case_number(c, "gnorm_scale", 1.0);
}

/* tests/golden/README.md states the tolerances.  RMSprop and Adagrad may have a tiny state, and
 * CUDA forms 1 - beta and beta^t in float32: both have wider ones.  A parameter near 0 is held to
 * the same share of lr; with the package's own square roots, an ulp off, to 2^-21 of its step.
 * No state depends on a root: the wheel's are the same bits, other float32 ones are off by
 * roundings of their own old and new number, and of an L2 term that cancels the gradient. */
static struct qm_run_tolerance tolerance(struct qm_conform *c, const char *family, int back_end,
                                         const struct qm_hyper *h)
{
    static const char *const roots[] = {"ieee", "installed"};
    int root = qm_golden_case_choice(c, "sqrt", roots, 2, -1) + 1; /* 0: not said */
    int is_lars = strncmp(family, "lars", 4) == 0;
    int has_norm = strncmp(family, "lamb", 4) == 0 || is_lars;
    if (root == 1 && !has_norm && back_end == CPU32)
        return (struct qm_run_tolerance){.param_relative = 0.0};
    int tiny = strncmp(family, "rmsprop", 7) == 0 || strncmp(family, "adagrad", 7) == 0;
    int is_coupled = tiny || has_norm || strncmp(family, "momentum", 8) == 0;
    int has_l2 = tiny || strcmp(family, "momentum") == 0 || is_lars;
    double of_step = back_end == CUDA ? 2e-4 : 0x1p-20, value = root && !has_norm ? 0.0 : 3e-7,
           weight = strncmp(family, "rmsprop", 7) == 0 ? 1.0 - h->beta2 : 1.0;
    return (struct qm_run_tolerance){.param_relative = 0x1p-22,
                                     .param_of_step = of_step,
                                     .is_decoupled = !is_coupled,
                                     .scale_relative = back_end == CUDA     ? 2e-4
                                                       : back_end == NATIVE ? 0.0
                                                                            : 2e-7,
                                     .value_relative = value,
                                     .l2_relative = has_l2 ? value : 0.0,
                                     .takes = {tiny ? QM_TAKES_SQUARE : QM_TAKES_MEAN},
                                     .weight = {weight},
                                     .range = back_end == NATIVE ? NULL : qm_code_range_table,
                                     .number_relative = 8.0 * 0x1p-24};
}

/* The variant that the class, where it was recorded, and the shape make: its quantizers and its
 * rule are what is judged.  A recording with other blocks, or with min_8bit_size elsewhere,
 * overrides them, which the recipe then says. */
static qm_status variant_at(struct qm_conform *c, const struct optimizer *o, int back_end,
                            const struct qm_shape *shape, struct qm_recipe *out)
{
    const struct qm_variant *v;
    struct qm_recipe r;
    char name[64], text[QM_RECIPE_TEXT];
    const char *base = back_end == CUDA && !strcmp(o->variant, "adam8") ? "adamw8" : o->variant;
    int64_t n = qm_shape_numel(shape), block = qm_golden_case_whole(c, "block_size", 256),
            coded = qm_golden_case_has(c, "absmax1");
    snprintf(name, sizeof name, "%s_%s", base, back_ends[back_end].ending);
    QM_TRY(qm_variant_find(name, &v));
    QM_TRY(qm_recipe_from(v, &r));
    snprintf(text, sizeof text, "%lld", coded ? 0LL : (long long)n + 1);
    for (int i = 0; i < r.rule->n_slots; i++) {
        char key[64], norm[32];
        snprintf(key, sizeof key, "%s.min_numel", r.rule->slot[i]);
        if ((n >= r.min_numel[i]) != coded)
            QM_TRY(qm_recipe_set(&r, key, text));
        snprintf(key, sizeof key, "%s.norm", r.rule->slot[i]);
        snprintf(norm, sizeof norm, "block:%lld", (long long)block);
        if (coded && r.slot[i].block != block)
            QM_TRY(qm_recipe_set(&r, key, norm));
    }
    snprintf(c->now.how, sizeof c->now.how, "%.255s", qm_recipe_print(&r, text));
    *out = qm_recipe_at(&r, shape);
    return QM_OK;
}

/* The recipe that a run is judged by; its back end, or -1 when there is none. */
static int recipe_read(struct qm_conform *c, int64_t n, struct qm_recipe *out)
{
    const struct optimizer *optimizer;
    int back_end, is_8bit;
    if (!optimizer_read(c, &optimizer, &back_end, &is_8bit))
        return -1;
    /* Without codes LAMB and LARS have rules of their own, which no 8-bit variant takes. */
    int is_own = strncmp(optimizer->name, "la", 2) == 0 && !qm_golden_case_has(c, "absmax1");
    int is_plain = back_end == DEFAULT32 || (back_end == DEFAULT && is_own);
    if (is_own && back_end == CUDA)
        qm_golden_case_skip(c, "the kernels of LAMB and LARS in float32 are not built");
    if (is_plain || (back_end == CPU32 && !is_8bit) || is_own)
        return qm_golden_case_open(c) && qm_run_recipe(c, optimizer->rule[is_plain], out) ? back_end
                                                                                          : -1;
    struct qm_shape shape = qm_run_shape(c, "shape", n);
    if (variant_at(c, optimizer, back_end, &shape, out) == QM_OK)
        return back_end;
    qm_golden_case_failed(c);
    return -1;
}

/* Attribute dtype: float32, which is also where it is absent, or bfloat16 parameters. */
static int dtype_read(struct qm_conform *c, int *is_bf16)
{
    char type[32];
    qm_golden_case_text(c, "dtype", type, sizeof type);
    if (strcmp(type, "bfloat16") == 0)
        *is_bf16 = 1; /* the replay rounds them, for ties */
    else if (*type && strcmp(type, "float32") != 0)
        qm_golden_case_skip(c, "parameters are float32 or bfloat16, not '%s'", type);
    return qm_golden_case_open(c);
}

static void replay_optimizer(struct qm_conform *c)
{
    struct qm_run run = {.steps = qm_golden_case_whole(c, "T", 0)};
    int64_t n = qm_golden_case_numel(c, "p0");
    if (!qm_golden_case_needs(c, run_needs, sizeof run_needs / sizeof *run_needs))
        return;
    int back_end = recipe_read(c, n, &run.recipe);
    const struct qm_rule *rule = run.recipe.rule;
    if (back_end < 0)
        return;
    if (back_end == CUDA && rule->n_slots == 1 && qm_golden_case_whole(c, "skip_zeros", 0))
        qm_golden_case_skip(c, "skip_zeros: the kernel quantizes what was never computed");
    if (back_end == CUDA && rule->n_slots == 3 &&
        n % qm_golden_case_whole(c, "block_size", 256) != 0)
        qm_golden_case_skip(
            c, "the kernel lets the last block of one moment and the first of the other "
               "share a scale");
    if (!qm_golden_case_open(c))
        return;
    hyper_read(c, rule->family, &run.recipe.hyper);
    if (!dtype_read(c, &run.is_rounded))
        return;
    run.within = tolerance(c, rule->family, back_end, &run.recipe.hyper);
    run.shape = qm_run_shape(c, "shape", n);
    for (int i = 0; i < rule->n_slots; i++)
        if (!slot_read(c, &run, i, n))
            return;
    run.lr = qm_golden_case_rates(c, run.steps);
    const enum qm_param_format format = run.is_rounded ? QM_PARAM_bf16 : QM_PARAM_f32;
    run.p0 = qm_golden_case_floats_of(c, "p0", n, format);
    run.grads = qm_golden_case_floats_of(c, "grads", run.steps * n, format);
    run.params = qm_golden_case_floats_of(c, "params", run.steps * n, format);
    run.n_kept = run.steps;
    run.kept = qm_run_all_steps(c, run.steps);
    qm_run_replay(c, &run);
}

static void replay_group(struct qm_conform *c, const struct qm_golden_place *at)
{
    char dataset[64];
    int several = 0;
    if (strcmp(at->path, "maps") == 0) {
        qm_golden_each(c, at->path, replay_map);
        return;
    }
    snprintf(c->group, sizeof c->group, "%s", at->path);
    for (int w = 0; w < N_WAYS; w++)
        for (int four = 0; four < 2; four++) {
            snprintf(dataset, sizeof dataset, "%s_%s", four ? "packed" : "codes", ways[w].name);
            if (!qm_golden_case_has(c, dataset))
                continue;
            several = 1;
            if (!qm_golden_case_begin(c, at->path, ways[w].name))
                continue;
            if (four)
                replay_quantizer4(c, w);
            else
                replay_quantizer8(c, w);
            qm_golden_case_end(c);
        }
    if (several || !qm_golden_case_begin(c, at->path, NULL))
        return;
    if (qm_golden_case_has(c, "code_out"))
        replay_function(c, at->path);
    else if (qm_golden_case_has(c, "absmax_codes"))
        replay_nested(c);
    else if (qm_golden_case_has(c, "grads") || qm_golden_case_whole(c, "T", 0) > 0)
        replay_optimizer(c);
    else
        qm_golden_case_skip(c, "unknown kind of case");
    qm_golden_case_end(c);
}

void qm_conform_bitsandbytes(struct qm_conform *c) { qm_golden_each(c, "", replay_group); }
