/* muon.c - Replays the golden vectors of 8-bit and 4-bit Muon.
 *
 * maps, quant_SCHEME/NAME and optim/NAME.  A run is taken step by step from the recorded momentum
 * and parameter.  To the bit: momentum before it is encoded, codes, scales, and what goes into the
 * Newton-Schulz iterations.  The recording summed products in another order, so that some roundings
 * to bfloat16 fell the other way: the factor that comes out is off by no more than SPREAD of the d
 * of oracle/rule/bound_muon.c, the size of what all roundings make together, as a norm of
 * Frobenius, and each number of it by that, or NS_TOLERANCE, four such roundings of a number
 * between 1 and 2.  Of 3,700 drawn matrices 366 had a factor that was not equal and none was
 * further off than half of d; of 400 drawn by another hand two were, by 0.53 d at most.  Where the
 * recorded factor is applied, the decayed parameter, the product and the sum round three times on
 * either side, each by at most 2^-24 of its number; after a whole step NS_TOLERANCE times the rate
 * is added.
 *
 * torch adds epsilon to the norm of a bfloat16 matrix as a bfloat16 number on the CPU and as a
 * float32 one on a GPU.  The run is replayed with the one that leads to the recorded factors.
 *
 * Where a factor is not equal, and its last iteration moves it by no more than both may be off, a
 * recording of another number of iterations would pass as well, and the case is skipped. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/rule/muon.h"
#include "experiments/conform/run.h"
#include "oracle/rule/muon.h"

#define NS_TOLERANCE  0x1p-5
#define SPREAD        0.625
#define SUM_TOLERANCE (3.0 * 0x1p-23) /* three roundings on either side, of the larger number */

/* ---- schemes --------------------------------------------------------------------------------- */

static const struct scheme {
    const char *name, *words; /* words: the quantizer with %lld for the block */
    int code0;                /* the position that the recorded code 0 stands for */
} schemes[] = {
    {"linear_int8", "intd:8s/rowblock:%lld/arith/even/floor:1.4928778e-36", 127},
    {"dynamic8", "dyn:8s/block:%lld/grid/mid/recip/maxskip/zero:0", 0},
    {"dynamic8_triton", "dyn:8s/block:%lld/argmin/mid/maxskip/zero:127", 0},
    {"nf4", "nf4:4s/block:%lld/mids/mid/recip_tail/guard:1e-38/nantop/hi", 0},
    {"fp4", "fp4s:4s/block:%lld/mids/mid/recip_tail/guard:1e-38/nantop/hi", 0},
    {"nvfp4", "nvfp4:4s/block:%lld/ladder/mid/guard:1e-12/nanzero/hi", 0},
};
enum { SCHEMES = sizeof schemes / sizeof *schemes };

/* The scheme of the case, and its quantizer; NULL, and the case skipped, for others. */
static const struct scheme *scheme_of(struct qm_conform *c, char *words, size_t size)
{
    char name[32];
    qm_golden_case_text(c, "scheme", name, sizeof name);
    for (int i = 0; i < SCHEMES; i++)
        if (strcmp(name, schemes[i].name) == 0) {
            long long block = qm_golden_case_whole(c, "block_size", 0);
            int at = (int)(strchr(schemes[i].words, '%') - schemes[i].words);
            snprintf(words, size, "%.*s%lld%s", at, schemes[i].words, block,
                     schemes[i].words + at + 4);
            return &schemes[i];
        }
    qm_golden_case_skip(c, "scheme '%s' is not built", name);
    return NULL;
}

/* Recorded codes as positions.  An int8 of -128, which 16-bit arithmetic makes of a quotient that
 * rounds to 128 or to -128, is position 255. */
static int64_t *positions(struct qm_conform *c, const char *name, const struct scheme *s, int64_t n)
{
    int64_t *codes = qm_golden_case_ints(c, name, n);
    for (int64_t i = 0; codes && i < n; i++)
        codes[i] = (codes[i] + s->code0) & 255;
    return codes;
}

/* ---- 16-bit arithmetic ----------------------------------------------------------------------- */

enum type { F32, BF16, F16 };

static int type_of(struct qm_conform *c, const char *attribute, enum type *out)
{
    char text[16];
    if (!qm_golden_case_text(c, attribute, text, sizeof text))
        strcpy(text, "float32");
    *out = strcmp(text, "bfloat16") == 0 ? BF16 : strcmp(text, "float16") == 0 ? F16 : F32;
    if (*out == F32 && strcmp(text, "float32") != 0)
        qm_golden_case_skip(c, "%s '%s' is not built", attribute, text);
    return qm_golden_case_open(c);
}

static float in(enum type t, float x)
{
    return t == BF16  ? qm_bf16_to_float(qm_float_to_bf16(x))
           : t == F16 ? qm_f16_to_float(qm_float_to_f16(x))
                      : x;
}

static enum qm_param_format format_of(enum type t)
{
    return t == BF16 ? QM_PARAM_bf16 : t == F16 ? QM_PARAM_f16 : QM_PARAM_f32;
}

/* A dataset in the type, whose 16-bit forms are recorded as their bits, or as numbers. */
static float *typed(struct qm_conform *c, const char *name, int64_t n, enum type t)
{
    return qm_golden_case_stored(c, name, n, format_of(t));
}

/* The linear quantizer of the source where it computes in 16 bits; rows[rows][cols]. */
static void encode_typed(enum type t, int64_t block, const struct qm_shape *s, const float *x,
                         uint8_t *codes, float *scales)
{
    int64_t rows = s->dim[0], cols = s->dim[1], per = (cols + block - 1) / block;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t b = 0; b < per; b++) {
            int64_t from = r * cols + b * block, end = (b + 1) * block;
            int64_t to = r * cols + (end < cols ? end : cols);
            float most = 0.0f, scale;
            for (int64_t i = from; i < to; i++)
                most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
            scale = in(t, most / 127.0f);
            scale = fmaxf(scale, t == F16 ? 0x1p-14f : 0x1p-126f);
            for (int64_t i = from; i < to; i++)
                codes[i] = (uint8_t)((int)rintf(in(t, x[i] / scale)) + 127);
            scales[r * per + b] = scale;
        }
}

static void decode_typed(enum type t, int64_t block, const struct qm_shape *s, const int64_t *codes,
                         const float *scales, float *out)
{
    int64_t cols = s->dim[1], per = (cols + block - 1) / block;
    for (int64_t i = 0; i < s->dim[0] * cols; i++)
        out[i] = in(t, (float)(codes[i] < 255 ? codes[i] - 127 : -128) *
                           scales[i / cols * per + i % cols / block]);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void replay_map(struct qm_conform *c, const char *name)
{
    struct qm_codebook cb;
    int64_t n = qm_golden_case_numel(c, name);
    qm_codebook_build(QM_MAP_nvfp4, 4, 1, &cb);
    if (strncmp(name, "ns_", 3) == 0) {
        const struct qm_muon_kind *kind =
            strcmp(name, "ns_axolotl") == 0 ? &qm_muon_lin : &qm_muon_bnb;
        qm_match_close_double(c, "coefficient", &kind->triple[0][0],
                              qm_golden_case_doubles(c, name, 3 * QM_MUON_ITERATIONS),
                              3 * QM_MUON_ITERATIONS, 0.0);
        return;
    }
    float *table = qm_golden_case_floats(c, name, n), cut[7];
    for (int k = 0; k < 7; k++)
        cut[k] = nextafterf(cb.cut[8 + k], INFINITY);
    if (table && strcmp(name, "fp4") == 0 && n == 16)
        table[8] = -table[0]; /* here the second zero is -0 */
    if (strcmp(name, "nvfp4_magnitude") == 0)
        qm_match_floats(c, "value", cb.value + 8, table, n < 8 ? n : 8);
    else if (strcmp(name, "nvfp4_threshold") == 0)
        qm_match_floats(c, "threshold", cut, table, n < 7 ? n : 7);
    else if (strcmp(name, "dynamic8") == 0)
        qm_match_map(c, "dyn", 8, 1, table, n);
    else
        qm_match_map(c, strcmp(name, "fp4") == 0 ? "fp4s" : name, 4, 1, table, n);
}

/* ---- quantizers ------------------------------------------------------------------------------ */

/* Whether `name` has one scale for each block of a row. */
static int has_scales(struct qm_conform *c, const char *name, int64_t count, int64_t block,
                      const struct qm_shape *shape)
{
    int64_t want = block < 1 ? 0 : shape->dim[0] * ((shape->dim[1] + block - 1) / block);
    if (block < 1)
        qm_golden_case_unreadable(c, "block_size %lld: expected at least 1", (long long)block);
    else if (count != want)
        qm_golden_case_unreadable(c, "%s holds %lld numbers, expected %lld", name, (long long)count,
                                  (long long)want);
    return block >= 1 && count == want;
}

static void replay_typed(struct qm_conform *c, enum type t, const struct qm_shape *shape)
{
    int64_t block = qm_golden_case_whole(c, "block_size", 0), n = qm_shape_numel(shape);
    int64_t count = qm_golden_case_numel(c, "scale");
    uint8_t *codes = qm_golden_case_memory(c, n, 1);
    float *scales = qm_golden_case_memory(c, count, sizeof *scales);
    float *out = qm_golden_case_memory(c, n, sizeof *out), *x = typed(c, "x", n, t);
    const int64_t *want = positions(c, "codes", &schemes[0], n);
    if (!codes || !scales || !out || !x || !want || !has_scales(c, "scale", count, block, shape))
        return;
    encode_typed(t, block, shape, x, codes, scales);
    qm_match_floats(c, "scale", scales, typed(c, "scale", count, t), count);
    qm_match_codes(c, "code", codes, want, n);
    decode_typed(t, block, shape, want, scales, out);
    qm_match_floats(c, "decoded", out, typed(c, "dequant", n, t), n);
    snprintf(c->now.how, sizeof c->now.how, "intd:8s in 16-bit arithmetic");
}

static void replay_quantizer(struct qm_conform *c)
{
    char words[128];
    struct qm_codec codec;
    struct qm_shape shape;
    enum type t;
    const struct scheme *s = scheme_of(c, words, sizeof words);
    if (!s || !type_of(c, "dtype", &t) || !qm_golden_case_shape(c, "x", &shape))
        return;
    for (; s->code0 && shape.rank > 2; shape.rank--) /* rows of the first dim */
        shape.dim[shape.rank - 2] *= shape.dim[shape.rank - 1];
    if (t != F32 && shape.rank == 2) {
        replay_typed(c, t, &shape);
        return;
    }
    if (!qm_golden_case_codec(c, &codec, "%s", words))
        return;
    int64_t n = qm_shape_numel(&shape);
    struct qm_golden_run want = {.n_dequant = n, .codes = positions(c, "codes", s, n)};
    want.scales =
        qm_golden_case_floats(c, s->code0 ? "scale" : "absmax", qm_scale_count(&codec, &shape));
    float *dequant = qm_golden_case_floats(c, "dequant", n);
    for (int64_t i = 0; dequant && want.codes && i < n; i++)
        if (codec.q.map == QM_MAP_fp4s && want.codes[i] == 8)
            dequant[i] = -0.0f;
    want.dequant = dequant;
    if (qm_golden_case_has(c, "packed")) {
        want.packed_bytes = qm_golden_case_numel(c, "packed");
        int64_t *packed = qm_golden_case_ints(c, "packed", (n + 1) / 2);
        if (packed && n % 2) /* the padding nibble is not specified */
            packed[n / 2] = (packed[n / 2] & 0xf0) | codec.cb.perm[codec.cb.zero];
        want.packed = packed;
    }
    qm_match_quantizer(c, &codec, &shape, qm_golden_case_floats(c, "x", n), &want);
}

/* ---- runs ------------------------------------------------------------------------------------ */

struct record {
    struct qm_recipe recipe;
    struct qm_shape shape, slot; /* of the parameter and of its momentum */
    const struct scheme *scheme; /* NULL: float32 momentum */
    enum type type;
    int is_lin;
    int64_t n, steps, block, n_scales;
    const float *p0, *grads, *params, *input, *output, *scales, *values;
    const double *rates; /* of each step, or NULL: the recipe's */
    const int64_t *codes;
    int64_t unseen; /* the first step whose last iteration may be as large as its tolerance, or 0 */
};

static int read_hyper(struct qm_conform *c, struct record *r)
{
    static const char *const rules[] = {"none", "spectral_norm", "rms_norm"};
    struct qm_hyper *h = &r->recipe.hyper;
    char text[32], words[128] = "f32";
    qm_golden_case_text(c, "scheme", text, sizeof text);
    if (strcmp(text, "float32") != 0 && !(r->scheme = scheme_of(c, words, sizeof words)))
        return 0;
    r->is_lin = r->scheme == &schemes[0] || qm_golden_case_number(c, "epsilon", -1.0) >= 0.0;
    if (!type_of(c, "param_dtype", &r->type) ||
        !qm_run_recipe(c, r->is_lin ? "muon_lin" : "muon_bnb", &r->recipe) ||
        !qm_run_quantizer(c, &r->recipe, 0, words, r->scheme ? r->scheme->code0 : 0, 0.0f))
        return 0;
    r->block = qm_golden_case_whole(c, "block_size", 0);
    h->lr = qm_golden_case_number(c, "lr", 1e-3);
    h->momentum = qm_golden_case_number(c, r->is_lin ? "mu" : "momentum", 0.95);
    h->weight_decay = qm_golden_case_number(c, "weight_decay", 0.0);
    h->nesterov = qm_golden_case_whole(c, "nesterov", 0) != 0;
    h->flatten = qm_golden_case_whole(c, "flatten", 0) != 0;
    h->eps = qm_golden_case_number(c, "epsilon", r->is_lin ? 1e-8 : 1e-7);
    qm_golden_case_text(c, "adjust_lr", text, sizeof text);
    for (int i = 0; i < 3; i++)
        if (strcmp(text, rules[i]) == 0)
            h->adjust = i;
    return 1;
}

/* The scales of every step, n_scales of each. */
static const float *scales_read(struct qm_conform *c, struct record *r)
{
    const char *name = r->scheme->code0 ? "state/momentum_scale" : "state/momentum_absmax";
    struct qm_codec codec;
    if (r->type != F32) {
        r->n_scales = qm_golden_case_per(c, name, r->steps);
        if (!has_scales(c, name, r->n_scales, r->block, &r->slot))
            return NULL;
    } else {
        if (qm_codec_init(&codec, &r->recipe.slot[0]) != QM_OK) {
            qm_golden_case_failed(c);
            return NULL;
        }
        r->n_scales = qm_scale_count(&codec, &r->slot);
    }
    return typed(c, name, r->steps * r->n_scales, r->type);
}

static int read_record(struct qm_conform *c, struct record *r)
{
    static const struct qm_golden_need needs[] = {
        {"steps", QM_NEED_number, 1, 1e6, 0},
        {"lr", QM_NEED_number, 0, 1e30, 0},
        {"weight_decay", QM_NEED_number, 0, 1e9, 0},
        {"scheme", QM_NEED_text, 0, 0, 0},
        {"adjust_lr", QM_NEED_text, 0, 0, 0},
        {"p0", QM_NEED_data, 0, 0, 0},
        {"grads", QM_NEED_data, 0, 0, 0},
        {"params", QM_NEED_data, 0, 0, 0},
        {"ns_input", QM_NEED_data, 0, 0, 0},
        {"ns_output", QM_NEED_data, 0, 0, 0},
    };
    if (!qm_golden_case_needs(c, needs, sizeof needs / sizeof *needs) ||
        !qm_run_param_shape(c, 1, &r->shape) || !read_hyper(c, r))
        return 0;
    r->steps = qm_golden_case_whole(c, "steps", 0);
    r->n = qm_shape_numel(&r->shape);
    int64_t all = r->steps * r->n;
    r->p0 = typed(c, "p0", r->n, r->type);
    r->grads = typed(c, "grads", all, r->type);
    r->params = typed(c, "params", all, r->type);
    r->input = qm_golden_case_floats(c, "ns_input", all);
    r->output = qm_golden_case_floats(c, "ns_output", all);
    r->rates = qm_golden_case_rates(c, r->steps);
    qm_rule_slot_shape(r->recipe.rule, &r->recipe.hyper, 0, &r->shape, &r->slot);
    if (r->scheme) {
        r->scales = scales_read(c, r);
        r->codes = positions(c, "state/momentum_codes", r->scheme, all);
    } else {
        r->values = typed(c, "state/momentum", all, r->type);
    }
    return r->p0 && r->grads && r->params && r->input && r->output &&
           (r->values || (r->codes && r->scales));
}

/* m[n] <- the recorded momentum after step t, decoded; 0 before the first. */
static void momentum_after(struct qm_conform *c, const struct record *r, int64_t t, float *m)
{
    struct qm_codec codec;
    uint8_t *codes = qm_golden_case_memory(c, r->n, 1);
    const float *scales = r->scales ? r->scales + (t - 1) * r->n_scales : NULL;
    memset(m, 0, sizeof *m * (size_t)r->n);
    if (t == 0 || !codes)
        return;
    if (r->values) {
        memcpy(m, r->values + (t - 1) * r->n, sizeof *m * (size_t)r->n);
        return;
    }
    const int64_t *from = r->codes + (t - 1) * r->n;
    if (r->type != F32) {
        decode_typed(r->type, r->block, &r->slot, from, scales, m);
        return;
    }
    for (int64_t i = 0; i < r->n; i++)
        codes[i] = (uint8_t)from[i];
    if (qm_codec_init(&codec, &r->recipe.slot[0]) == QM_OK)
        qm_decode(&codec, &r->slot, codes, scales, m);
}

/* Encodes m and compares it with the record after step t. */
static void judge_state(struct qm_conform *c, const struct record *r, int64_t t, const float *m)
{
    struct qm_codec codec;
    uint8_t *codes = qm_golden_case_memory(c, r->n, 1);
    float *scales = qm_golden_case_memory(c, r->n_scales, sizeof *scales);
    if (r->values)
        qm_match_floats(c, "momentum", m, r->values + (t - 1) * r->n, r->n);
    if (r->values || !codes || !scales)
        return;
    if (r->type != F32)
        encode_typed(r->type, r->block, &r->slot, m, codes, scales);
    else if (qm_codec_init(&codec, &r->recipe.slot[0]) != QM_OK ||
             qm_scale_count(&codec, &r->slot) != r->n_scales ||
             qm_encode(&codec, &r->slot, m, NULL, codes, scales) != QM_OK)
        qm_golden_case_differs(c, "momentum: %lld scales a step are recorded",
                               (long long)r->n_scales);
    qm_match_floats(c, "scale", scales, r->scales + (t - 1) * r->n_scales, r->n_scales);
    qm_match_codes(c, "code", codes, r->codes + (t - 1) * r->n, r->n);
}

/* The factors of the recorded input of step t with this epsilon. */
static int factors(struct qm_conform *c, const struct record *r, int64_t t, double eps, float *o)
{
    struct qm_matrices matrices;
    qm_muon_matrices(&r->recipe.hyper, r->is_lin, &r->shape, &matrices);
    memcpy(o, r->input + (t - 1) * r->n, sizeof *o * (size_t)r->n);
    int is_made = qm_muon_orthogonalize(&matrices, r->is_lin, eps, o) == QM_OK;
    if (!is_made)
        qm_golden_case_failed(c);
    return is_made;
}

/* Rounds epsilon to bfloat16 where the recorded factors are nearer to those of that number. */
static void choose_eps(struct qm_conform *c, struct record *r, float *o)
{
    double *eps = &r->recipe.hyper.eps, off[2] = {0.0, 0.0};
    const double of[2] = {*eps, (double)qm_muon_bf16_of((float)*eps)};
    for (int64_t t = 1; r->is_lin && of[0] != of[1] && t <= r->steps; t++)
        for (int k = 0; k < 2; k++) {
            if (!factors(c, r, t, of[k], o))
                return;
            for (int64_t i = 0; i < r->n; i++)
                off[k] += fabs((double)o[i] - (double)r->output[(t - 1) * r->n + i]);
        }
    *eps = of[off[1] < off[0]];
}

/* p after the step by the factors o, in the parameter's type, and how far it may be off. */
static void step_typed(const struct record *r, float *p, const float *o, double *allowed)
{
    struct qm_sweep a = qm_muon_step(&r->recipe.hyper, r->is_lin, &r->shape, p, o);
    for (int64_t i = 0; i < r->n; i++) {
        allowed[i] = SUM_TOLERANCE *
                     (fabs((double)p[i]) + fabs((double)a.c[QM_MUON_STEP_LR] * (double)o[i]));
        if (r->type != F32)
            p[i] = in(r->type, p[i] * a.c[QM_MUON_STEP_KEEP]);
    }
    if (r->type != F32)
        a.c[QM_MUON_STEP_KEEP] = 1.0f;
    qm_sweep_run(QM_SWEEP_muon_step, &a);
    for (int64_t i = 0; i < r->n && r->type != F32; i++) {
        float x = p[i], e = (float)allowed[i];
        p[i] = in(r->type, x);
        allowed[i] = fmax((double)in(r->type, x + e) - (double)p[i],
                          (double)p[i] - (double)in(r->type, x - e));
    }
}

/* What matrix b of step t may be off by, and the less of what its last iteration does and what the
 * same once more would do, as norms. */
struct spread {
    double off, last;
};

static double distance(const double *x, const double *y, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sqrt(sum);
}

/* Both of the recorded input over its norm, in double.  0: failed. */
static int spread_of(struct qm_conform *c, const struct record *r, const struct qm_matrices *m,
                     int64_t t, int64_t b, struct spread *out)
{
    int64_t size = m->rows * m->cols, is_tall = m->rows > m->cols;
    int64_t k = is_tall ? m->cols : m->rows, n = size / k;
    const struct qm_muon_kind *kind = r->is_lin ? &qm_muon_lin : &qm_muon_bnb;
    const float *u = r->input + (t - 1) * r->n + b * size;
    double sum = 0.0, *x = qm_golden_case_memory(c, 2 * size, sizeof *x), *y = x + size,
           *room = qm_golden_case_memory(c, 2 * k * k + size, sizeof *room);
    if (!x || !room)
        return 0;
    for (int64_t i = 0; i < size; i++)
        sum += (double)u[i] * (double)u[i];
    double eps = r->recipe.hyper.eps, by = r->is_lin ? sqrt(sum) + eps : fmax(sqrt(sum), eps);
    for (int64_t i = 0; i < size; i++) {
        int64_t to = is_tall ? i % m->cols * m->rows + i / m->cols : i;
        x[to] = y[to] = by > 0.0 ? (double)u[i] / by : 0.0;
    }
    *out = (struct spread){0.0, HUGE_VAL};
    if (!isfinite(sum))
        return 1;
    if (qm_muon_spread(kind, k, n, x, &out->off) != QM_OK) {
        qm_golden_case_failed(c);
        return 0;
    }
    out->off *= SPREAD;
    const struct qm_muon_kind last = {kind->rounds_all, kind->triple + QM_MUON_ITERATIONS - 1};
    qm_muon_iterate(kind, QM_MUON_ITERATIONS, 0, k, n, x, room);
    qm_muon_iterate(kind, QM_MUON_ITERATIONS - 1, 0, k, n, y, room);
    out->last = distance(x, y, size);
    memcpy(y, x, sizeof *y * (size_t)size);
    qm_muon_iterate(&last, 1, 0, k, n, y, room);
    out->last = fmin(out->last, distance(x, y, size));
    return 1;
}

/* Judges the factors o of step t: each number, and each matrix as a whole. */
static void judge_factors(struct qm_conform *c, struct record *r, int64_t t, const float *o)
{
    const float *want = r->output + (t - 1) * r->n;
    struct qm_matrices m;
    qm_muon_matrices(&r->recipe.hyper, r->is_lin, &r->shape, &m);
    int64_t size = m.rows * m.cols;
    double *allowed = qm_golden_case_memory(c, r->n, sizeof *allowed);
    for (int64_t b = 0; allowed && b < m.batch && size > 0 && qm_golden_case_open(c); b++) {
        double sum = 0.0;
        struct spread spread = {0.0, HUGE_VAL};
        for (int64_t i = b * size; i < (b + 1) * size; i++) {
            double off = (double)o[i] - (double)want[i];
            sum += isfinite(off) ? off * off : 0.0;
        }
        if (sum > 0.0 && !spread_of(c, r, &m, t, b, &spread))
            return;
        if (sqrt(sum) > spread.off)
            qm_golden_case_differs(c, "factor %lld: off by %.3g in norm, allowed %.3g",
                                   (long long)b, sqrt(sum), spread.off);
        if (spread.last <= 2.0 * spread.off && r->unseen == 0) /* whose roundings are as large */
            r->unseen = t;
        for (int64_t i = b * size; i < (b + 1) * size; i++)
            allowed[i] = fmin(NS_TOLERANCE, spread.off);
    }
    if (allowed)
        qm_match_close_each(c, "factor", o, want, allowed, r->n);
}

/* Judges step t in its parts; m, u, p, allowed: room. */
static void judge_step(struct qm_conform *c, struct record *r, int64_t t, float *m, float *u,
                       float *p, double *allowed)
{
    struct qm_hyper *h = &r->recipe.hyper;
    const float *g = r->grads + (t - 1) * r->n, *want = r->output + (t - 1) * r->n;
    float mu = (float)h->momentum;
    momentum_after(c, r, t - 1, m);
    for (int64_t i = 0; i < r->n; i++) {
        m[i] = in(r->type, in(r->type, m[i] * mu) + g[i]);
        u[i] = qm_muon_bf16_of(h->nesterov ? in(r->type, in(r->type, m[i] * mu) + g[i]) : m[i]);
    }
    qm_match_floats(c, "input of Newton-Schulz", u, r->input + (t - 1) * r->n, r->n);
    judge_state(c, r, t, m);
    if (!factors(c, r, t, h->eps, u))
        return;
    judge_factors(c, r, t, u);
    memcpy(p, t > 1 ? r->params + (t - 2) * r->n : r->p0, sizeof *p * (size_t)r->n);
    h->lr = r->rates ? r->rates[t - 1] : h->lr;
    step_typed(r, p, want, allowed);
    qm_match_close_each(c, "parameter", p, r->params + (t - 1) * r->n, allowed, r->n);
}

static void judge_run(struct qm_conform *c, struct record *r)
{
    float *m = qm_golden_case_memory(c, 3 * r->n, sizeof *m);
    double *allowed = qm_golden_case_memory(c, r->n, sizeof *allowed),
           rate = r->rates ? 0.0 : r->recipe.hyper.lr;
    if (!m || !allowed)
        return;
    choose_eps(c, r, m);
    for (int64_t t = 1; t <= r->steps && qm_golden_case_open(c); t++) {
        judge_step(c, r, t, m, m + r->n, m + 2 * r->n, allowed);
        rate = fmax(rate, r->recipe.hyper.lr);
    }
    if (r->type != F32) {
        snprintf(c->now.how, sizeof c->now.how, "%s in 16-bit arithmetic", r->recipe.rule->name);
        return;
    }
    r->recipe.hyper.lr = rate;
    struct qm_sweep a = qm_muon_step(&r->recipe.hyper, r->is_lin, &r->shape, NULL, NULL);
    struct qm_run run = {.mixes = 1,
                         .recipe = r->recipe,
                         .shape = r->shape,
                         .steps = r->steps,
                         .p0 = r->p0,
                         .grads = r->grads,
                         .lr = r->rates,
                         .params = r->params,
                         .kept = qm_run_all_steps(c, r->steps),
                         .n_kept = r->steps};
    run.slot[0] = (struct qm_run_slot){
        .codes = r->codes, .scales = r->scales, .n_scales = r->n_scales, .values = r->values};
    run.within.param_relative = SUM_TOLERANCE;
    run.within.param_absolute =
        (2.0 * SUM_TOLERANCE + NS_TOLERANCE) * fabs((double)a.c[QM_MUON_STEP_LR]);
    qm_run_replay(c, &run);
}

static void replay_run(struct qm_conform *c)
{
    struct record r = {.steps = 0};
    if (!read_record(c, &r))
        return;
    judge_run(c, &r);
    if (r.unseen > 0 && qm_golden_case_open(c))
        qm_golden_case_skip(c,
                            "step %lld: the tolerance is as large as what the last iteration does, "
                            "or would do again",
                            (long long)r.unseen);
}

void qm_conform_muon(struct qm_conform *c)
{
    qm_golden_read_all(c, &(struct qm_golden_readers){
                              .map = replay_map, .run = replay_run, .quantizer = replay_quantizer});
}
