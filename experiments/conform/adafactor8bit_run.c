/* adafactor8bit_run.c - Replays steps of adafactor8bit, each from the recorded state before it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rule/adafactor8.h"
#include "core/rule/param.h"
#include "experiments/conform/adafactor8bit.h"
#include "experiments/conform/stored.h"

/* Tolerances (tests/golden/README.md); 4-bit codes are compared bit for bit. */
#define PARAM_SHARE    2e-3 /* of the step's largest change of a parameter */
#define SCALE_RELATIVE 1e-6
#define VALUE_LARGEST  1e-5 /* of the largest magnitude of a float32 state */
#define CONF_LARGEST \
    2e-5 /* the same of CAME's confidence: releases before 0.2.6 cancel in float32 */
#define EXP2_RELATIVE \
    1e-5 /* of a momentum of updates whose roots the kernels form by exp2 in float32 */
#define SPAN_ABSOLUTE \
    1.6e-5             /* of the ends of an adaptive log code: 2 ulp of logarithms up to 126 */
#define LOG_SHARE 1e-4 /* of the log codes, off by one */

/* A recorded state tensor, cut to the elements that the slot has. */
struct recorded {
    int64_t n, n_scales;
    const int64_t *codes; /* [steps][n] */
    const float *scales;  /* [steps][n_scales] */
    const float *values;  /* [kept][n] */
    const double *kept;   /* the kept steps, counted from 0; NULL: all */
    int64_t n_kept;
    int is_two; /* two scales per block: span and least logarithm */
};

struct replay {
    struct qm_recipe recipe;
    struct qm_shape shape;
    int64_t steps, n;
    const float *p0, *grads, *params;
    struct recorded slot[QM_ADAFACTOR8_SLOTS];
    const float *proj;
    const int64_t *proj_index;
    int is_exp2;        /* the momentum averages updates of the CUDA path */
    int is_bf16;        /* parameters are rounded to bfloat16 after each step */
    const float *draws; /* the recorded draws of stochastic rounding, or NULL: to nearest */
};

/* ---- reading -------------------------------------------------------------------------------- */

static int64_t slot_numel(const struct replay *r, int i)
{
    struct qm_shape own;
    qm_rule_slot_shape(r->recipe.rule, &r->recipe.hyper, i, &r->shape, &own);
    return qm_shape_numel(&own);
}

/* Reads codes of every step, unpacked, without the padding. */
static int64_t *codes_read(struct qm_conform *c, const char *name, int bits, int64_t steps,
                           int64_t n)
{
    int64_t total = qm_case_numel(c, name), row = steps > 0 ? total / steps : 0;
    int64_t *out = qm_case_memory(c, steps * n, sizeof *out);
    const int64_t *bytes = qm_case_ints(c, name, steps * row);
    int64_t had = row * 8 / bits;
    if (!out || !bytes)
        return NULL;
    if (had < n) {
        qm_case_skip(c, "%s: %lld codes recorded for %lld elements", name, (long long)had,
                     (long long)n);
        return NULL;
    }
    for (int64_t t = 0; t < steps; t++)
        for (int64_t i = 0; i < n; i++) {
            int64_t byte = bytes[t * row + (bits == 4 ? i / 2 : i)];
            out[t * n + i] = bits == 8 ? byte : i % 2 ? byte & 15 : byte >> 4;
        }
    return out;
}

/* Each scale is followed by the logarithm of the smallest number of its block. */
static void two_scales(struct qm_conform *c, struct recorded *s, const float *low, int64_t steps)
{
    float *out = qm_case_memory(c, 2 * steps * s->n_scales, sizeof *out);
    for (int64_t k = 0; out && low && k < steps * s->n_scales; k++) {
        out[2 * k] = s->scales[k];
        out[2 * k + 1] = low[k];
    }
    s->scales = low ? out : NULL;
    s->n_scales *= 2;
    s->is_two = 1;
}

static int quantized_read(struct qm_conform *c, struct replay *r, int i, const char *name,
                          const char *text, int init_code, float init_scale)
{
    char codes[64], scale[64];
    struct recorded *s = &r->slot[i];
    snprintf(codes, sizeof codes, "%s_q", name);
    snprintf(scale, sizeof scale, "%s_scale", name);
    s->n_scales = qm_case_numel(c, scale) / r->steps;
    struct qm_quantizer q;
    int bits = qm_quantizer_parse(text, &q) == QM_OK ? q.bits : 8;
    s->codes = codes_read(c, codes, bits, r->steps, s->n);
    s->scales = qm_case_floats(c, scale, r->steps * s->n_scales);
    snprintf(scale, sizeof scale, "%s_min_log", name);
    if (s->scales && qm_case_has(c, scale))
        two_scales(c, s, qm_case_floats(c, scale, r->steps * s->n_scales), r->steps);
    return s->codes && s->scales && qm_run_quantizer(c, &r->recipe, i, text, init_code, init_scale);
}

/* Reads float states at the steps that attribute step_index_NAME lists. */
static int values_read(struct qm_conform *c, struct replay *r, int i, const char *name)
{
    struct recorded *s = &r->slot[i];
    char path[QM_GOLDEN_PATH + 8], attribute[96];
    const char *stem = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    snprintf(path, sizeof path, "%s/state", c->group);
    snprintf(attribute, sizeof attribute, "step_index_%s", stem);
    s->n_kept = qm_golden_numbers(c->file, path, attribute, NULL, 0);
    if (s->n_kept > 0) {
        double *kept = qm_case_memory(c, s->n_kept, sizeof *kept);
        if (!kept)
            return 0;
        qm_golden_numbers(c->file, path, attribute, kept, (int)s->n_kept);
        s->kept = kept;
    } else {
        s->n_kept = r->steps;
    }
    s->values = qm_case_floats(c, name, s->n_kept * s->n);
    return s->values != NULL;
}

/* ---- one run -------------------------------------------------------------------------------- */

/* Row of the values after step t (from 1), or -1. */
static int64_t row_of(const struct recorded *s, int64_t t)
{
    for (int64_t k = 0; s->kept && k < s->n_kept; k++)
        if ((int64_t)s->kept[k] == t - 1)
            return k;
    return s->kept ? -1 : t - 1;
}

static qm_status load(const struct replay *r, void *plan, int64_t t, uint8_t *codes)
{
    for (int i = 0; i < QM_ADAFACTOR8_SLOTS && t > 0; i++) {
        const struct recorded *s = &r->slot[i];
        if (s->codes) {
            for (int64_t k = 0; k < s->n; k++)
                codes[k] = (uint8_t)s->codes[(t - 1) * s->n + k];
            QM_TRY(qm_backend_cpu.load(plan, i, codes, s->scales + (t - 1) * s->n_scales));
        } else if (s->values && row_of(s, t) >= 0) {
            QM_TRY(qm_backend_cpu.load(plan, i, NULL, s->values + row_of(s, t) * s->n));
        }
    }
    if (r->proj && r->proj_index) {
        int64_t n = slot_numel(r, QM_ADAFACTOR8_PROJ);
        QM_TRY(qm_backend_cpu.load(plan, QM_ADAFACTOR8_PROJ, NULL, r->proj + r->proj_index[t] * n));
    }
    return QM_OK;
}

static double largest(const float *a, const float *b, int64_t n)
{
    double m = 0.0;
    for (int64_t i = 0; i < n; i++)
        m = fmax(m, fabs((double)a[i] - (b ? (double)b[i] : 0.0)));
    return m;
}

static qm_status judge(struct qm_conform *c, const struct replay *r, void *plan, int64_t t,
                       uint8_t *codes, float *room)
{
    char what[96];
    for (int i = 0; i < QM_ADAFACTOR8_SLOTS && qm_case_open(c); i++) {
        const struct recorded *s = &r->slot[i];
        const char *name = r->recipe.rule->slot[i];
        if (s->codes) {
            QM_TRY(qm_backend_cpu.save(plan, i, codes, room));
            snprintf(what, sizeof what, "step %lld %s scale", (long long)t, name);
            qm_judge_close(c, what, room, s->scales + (t - 1) * s->n_scales, s->n_scales,
                           i == QM_ADAFACTOR8_M && r->is_exp2 ? EXP2_RELATIVE : SCALE_RELATIVE,
                           s->is_two ? SPAN_ABSOLUTE : 0.0);
            snprintf(what, sizeof what, "step %lld %s code", (long long)t, name);
            if (i == QM_ADAFACTOR8_M)
                qm_judge_codes(c, what, codes, s->codes + (t - 1) * s->n, s->n);
            else
                qm_judge_codes_near(c, what, codes, s->codes + (t - 1) * s->n, s->n, LOG_SHARE);
        } else if (s->values && row_of(s, t) >= 0) {
            const float *want = s->values + row_of(s, t) * s->n;
            QM_TRY(qm_backend_cpu.save(plan, i, NULL, room));
            snprintf(what, sizeof what, "step %lld %s", (long long)t, name);
            int conf = i == QM_ADAFACTOR8_CONF_ROW || i == QM_ADAFACTOR8_CONF_COL;
            qm_judge_close(c, what, room, want, s->n, 0.0,
                           (conf ? CONF_LARGEST : VALUE_LARGEST) * largest(want, NULL, s->n));
        }
    }
    return QM_OK;
}

/* x in bfloat16: to nearest, or upward if the draw is below the share of the cell that x lies
 * above its lower end. */
static float rounded(double x, const float *draw)
{
    if (!draw)
        return qm_bf16_to_float(qm_float_to_bf16((float)x));
    uint32_t bits = (uint32_t)(*draw * 65536.0f);
    return qm_param_widen(QM_PARAM_bf16, qm_param_stochastic(QM_PARAM_bf16, (float)x, bits << 16));
}

/* Rounds p to bfloat16, by draws[n] if they are not NULL: to the wanted number where a number
 * within the tolerance is rounded to it. */
static void round_near(float *p, const float *want, int64_t n, double within, const float *draws)
{
    for (int64_t i = 0; i < n; i++) {
        const float *draw = draws ? draws + i : NULL;
        float least = rounded((double)p[i] - within, draw);
        float most = rounded((double)p[i] + within, draw);
        p[i] = least <= want[i] && want[i] <= most ? want[i] : rounded((double)p[i], draw);
    }
}

static qm_status run_steps(struct qm_conform *c, const struct replay *r, void *plan, float *p,
                           float *g, uint8_t *codes, float *room)
{
    size_t bytes = sizeof *p * (size_t)r->n;
    for (int64_t t = 1; t <= r->steps && qm_case_open(c); t++) {
        const float *before = t > 1 ? r->params + (t - 2) * r->n : r->p0;
        const float *want = r->params + (t - 1) * r->n;
        char what[64];
        QM_TRY(load(r, plan, t - 1, codes));
        memcpy(p, before, bytes);
        memcpy(g, r->grads + (t - 1) * r->n, bytes);
        struct qm_tensor pt = {p, QM_DTYPE_f32, r->shape}, gt = {g, QM_DTYPE_f32, r->shape};
        QM_TRY(qm_backend_cpu.step(plan, &pt, &gt, t, 0));
        QM_TRY(judge(c, r, plan, t, codes, room));
        snprintf(what, sizeof what, "step %lld parameter", (long long)t);
        double within = PARAM_SHARE * largest(r->is_bf16 ? p : want, before, r->n);
        if (r->is_bf16)
            round_near(p, want, r->n, within, r->draws ? r->draws + (t - 1) * r->n : NULL);
        qm_judge_close(c, what, p, want, r->n, 0.0, r->is_bf16 ? 0.0 : within);
    }
    return QM_OK;
}

static void run_replay(struct qm_conform *c, const struct replay *r)
{
    int64_t most = r->n;
    void *plan = NULL;
    for (int i = 0; i < QM_ADAFACTOR8_SLOTS; i++)
        most =
            r->slot[i].n + r->slot[i].n_scales > most ? r->slot[i].n + r->slot[i].n_scales : most;
    float *p = qm_case_memory(c, r->n, sizeof *p), *g = qm_case_memory(c, r->n, sizeof *g);
    float *room = qm_case_memory(c, most, sizeof *room);
    uint8_t *codes = qm_case_memory(c, most, 1);
    if (!qm_case_open(c) || !r->p0 || !r->grads || !r->params || !p || !g || !room || !codes)
        return;
    if (qm_recipe_applicable(&r->recipe) != QM_OK ||
        qm_backend_cpu.open(&r->recipe, &r->shape, 0, &plan) != QM_OK) {
        qm_case_skip(c, "%s", qm_message());
        return;
    }
    for (int i = 0; i < QM_ADAFACTOR8_SLOTS; i++) {
        struct qm_quantizer q = qm_recipe_slot(&r->recipe, i, &r->shape);
        int64_t scales = !r->slot[i].codes ? 0
                                           : (r->slot[i].n + q.block - 1) / q.block *
                                                 (q.curve == QM_CURVE_allog ? 2 : 1);
        if (r->slot[i].codes && r->slot[i].n_scales != scales)
            qm_case_skip(c, "%s: %lld scales recorded for %lld elements in blocks of %lld",
                         r->recipe.rule->slot[i], (long long)r->slot[i].n_scales,
                         (long long)r->slot[i].n, (long long)q.block);
    }
    if (qm_case_open(c) && run_steps(c, r, plan, p, g, codes, room) != QM_OK)
        qm_case_differs(c, "the run stopped: %.250s", qm_message());
    qm_backend_cpu.close(plan);
}

/* ---- kind "optimizer" ----------------------------------------------------------------------- */

static void hyper_read(struct qm_conform *c, struct qm_hyper *h, int dims)
{
    double eps[2] = {(double)NAN, 1e-3};
    char type[16];
    qm_golden_numbers(c->file, c->group, "hp_eps", eps, 2);
    qm_case_text(c, "hp_apollo_scale_type", type, sizeof type);
    h->lr = qm_case_number(c, "hp_lr", 1e-2);
    h->beta1 = qm_case_number(c, "hp_beta1", -1.0);
    h->beta2 = qm_case_number(c, "hp_beta2", -1.0);
    h->beta3 = qm_case_number(c, "hp_beta3", 0.0);
    h->beta2_decay = qm_case_number(c, "hp_beta2_decay", -0.8);
    h->eps1 = isnan(eps[0]) ? -1.0 : eps[0];
    h->eps2 = eps[1];
    h->weight_decay = qm_case_number(c, "hp_weight_decay", 0.0);
    h->clip = qm_case_number(c, "hp_d", 1.0);
    h->maximize = (int)qm_case_whole(c, "hp_maximize", 0);
    h->relative_step = (int)qm_case_whole(c, "hp_relative_step", 1);
    h->scale_parameter = (int)qm_case_whole(c, "hp_scale_parameter", 1);
    h->scale_weight_decay = (int)qm_case_whole(c, "hp_scale_weight_decay", 1);
    h->rank = qm_case_number(c, "hp_apollo_rank", 0.0);
    h->gap = -qm_case_number(c, "hp_apollo_update_proj_gap", 200.0);
    h->scale = qm_case_number(c, "hp_apollo_scale", 1.0);
    h->scale_front = (int)qm_case_whole(c, "hp_apollo_scale_front", 0);
    h->tensor_scale = strcmp(type, "tensor") == 0;
    h->margin = qm_case_number(c, "hp_fira_margin", 0.01);
    h->limiter = (int)qm_case_whole(c, "hp_enable_fira_for_adafactor", 0);
    int is_apollo = h->rank > 0.0 && dims >= 2;
    h->eps = qm_case_number(c, is_apollo ? "hp_apollo_eps" : "hp_eps_came", 1e-8);
    h->factored =
        (int)qm_case_whole(c, is_apollo ? "hp_apollo_factorize" : "hp_factored", !is_apollo);
}

#define UNIFORM "int:4s", "arith/even/hi/floor:1e-12", 8
#define TABLE   "nf4a8:4s", "argmin/mid/hi/floor:1e-12", 7
#define EIGHTHS "intm:4s", "arith/even/hi/floor:1e-12", 8

#define UNIFORM_CUDA "int:4s", "arith/even/hi/recip/floor:1e-12/maxskip/nanzero", 8
#define TABLE_CUDA   "nf4a8:4s", "ladder/mid/hi/recip/floor:1e-12/maxskip", 7
#define EIGHTHS_CUDA "intm:4s", "arith/even/hi/recip/floor:1e-12/maxskip/nanzero", 8

/* Releases by attribute `version`, and their rules.  v022r, v024r and v026nf4 were recorded before
 * the texts of 0.2.2 and 0.2.4 were at hand, from 0.2.1 and 0.2.6 with other formats of the
 * states. */
static const struct version {
    const char *version, *rule;
    struct qm_adafactor8_release release;
    int conf_code;
    float conf_scale;
    double cap; /* CUDA path: of log2 of a second moment */
    int is_046; /* 0.4.3 and later: the formats are attributes of the case */
} versions[] = {
    {"v021", "adafactor8_021", {UNIFORM, 0, 0}, 0, 1.0f, 0.0, 0},
    {"v022r", "adafactor8_021", {UNIFORM, 0, 0}, 0, 1.0f, 0.0, 0},
    {"v024r", "adafactor8_021", {TABLE, 0, 0}, 255, 126.0f, 0.0, 0},
    {"v022", "adafactor8_024", {UNIFORM, 0, 0}, 0, 1.0f, 0.0, 0},
    {"v024", "adafactor8_024", {TABLE, 0, 0}, 255, 126.0f, 0.0, 0},
    {"v025", "adafactor8_025", {TABLE, 0, 0}, 255, 126.0f, 0.0, 0},
    {"v026", "adafactor8", {EIGHTHS, 1, 0}, 0, 1.0f, 0.0, 0},
    {"v026nf4", "adafactor8", {TABLE, 1, 0}, 255, 126.0f, 0.0, 0},
    {"v022_cudahost", "adafactor8_024_cuda", {UNIFORM_CUDA, 0, 1}, 0, 1.0f, 50.0, 0},
    {"v024_cudahost", "adafactor8_024_cuda", {TABLE_CUDA, 0, 1}, 255, 126.0f, 50.0, 0},
    {"v025_cudahost", "adafactor8_025_cuda", {TABLE_CUDA, 0, 1}, 255, 126.0f, 126.0, 0},
    {"v043", "adafactor8_046", {NULL, NULL, 0, 1, 0}, 0, 1.0f, 0.0, 1},
    {"v046", "adafactor8_046", {NULL, NULL, 0, 1, 0}, 0, 1.0f, 0.0, 1},
    {"v026_cudahost", "adafactor8_cuda", {EIGHTHS_CUDA, 1, 1}, 0, 1.0f, 126.0, 0},
};
enum { VERSIONS = sizeof versions / sizeof *versions };

/* The state's name in the file; APOLLO has its own names for its tensors. */
static const char *state_name(int i, int is_apollo)
{
    static const char *const names[2][QM_ADAFACTOR8_NORM + 1] = {
        {"m", "row_var", "col_var", "variance", "conf_row", "conf_col", "fira_prev_norm"},
        {"m_low", "row_var_low", "col_var_low", "v_low", "", "", "scaled_grad_norm_prev"}};
    return names[is_apollo][i];
}

/* The moment's format of 0.4.3 and later; 0, and the case skipped, for what is not built. */
static int release_046(struct qm_conform *c, struct qm_adafactor8_release *out)
{
    static const struct {
        const char *word;
        struct qm_adafactor8_release release;
    } formats[] = {
        {"uf4", {EIGHTHS, 1, 0}},
        {"uf8", {"intm:8s", "arith/even/floor:1e-12", 128, 1, 0}},
        {"d4", {"de:4s", "lower/mid/hi/floor:1e-12/nantop", 7, 1, 0}},
        {"d8", {"dyn:8s", "lower/mid/floor:1e-12/nantop", 127, 1, 0}},
        {"fp32", {"f32", "", 0, 1, 0}},
    };
    char moment[16], square[16], conf[16];
    int k = 0, count = sizeof formats / sizeof *formats;
    qm_case_text(c, "hp_m_quant_type", moment, sizeof moment);
    qm_case_text(c, "hp_v_quant_type", square, sizeof square);
    qm_case_text(c, "hp_c_quant_type", conf, sizeof conf);
    while (k < count && strcmp(formats[k].word, moment) != 0)
        k++;
    if (k == count || strcmp(square, "al16") == 0 || strcmp(conf, "al16") == 0) {
        qm_case_skip(c, "no slot holds codes of this format: %s, %s, %s", moment, square, conf);
        return 0;
    }
    *out = formats[k].release;
    return 1;
}

/* What rule adafactor8_046 needs beside the options of 0.2.x; 0, and the case skipped, for what it
 * does not have. */
static int hyper_046(struct qm_conform *c, struct qm_hyper *h, int dims)
{
    int is_adam = !h->factored && h->beta2 >= 0.0 && !(h->beta3 > 0.0);
    int is_full = dims < 2 || !h->factored;
    double unit = qm_case_number(c, "hp_momentum_only_1d", -1.0);
    double corrects = qm_case_number(c, "hp_bias_correction", -1.0);
    h->correct_bias = corrects < 0.0 ? is_adam : corrects > 0.0;
    h->eps = qm_case_number(c, "hp_eps_came", 1e-16);
    if (h->rank > 0.0 && dims >= 2)
        qm_case_skip(c, "APOLLO of 0.4: its second moment has a lower end that no slot has");
    else if (h->beta2 < 0.0 && isnan(qm_case_number(c, "hp_beta2_decay", (double)NAN)))
        qm_case_skip(c, "SGD of adafactor8bit is not built");
    else if (is_full && h->beta1 >= 0.0 && unit >= 0.0 && (unit > 0.0) == is_adam)
        qm_case_skip(c, "momentum_only_1d = %g here is not built", unit);
    h->rank = 0.0;
    h->gap = h->scale = 0.0;
    return qm_case_open(c);
}

static int states_read(struct qm_conform *c, struct replay *r, const struct version *v)
{
    char moment[QM_QUANTIZER_TEXT], square[QM_QUANTIZER_TEXT], name[48], coded[64];
    int is_apollo = r->recipe.hyper.rank > 0.0 && r->shape.rank >= 2;
    struct qm_adafactor8_release release = v->release;
    int64_t block = qm_case_whole(c, "hp_block_size", 2048);
    if (v->is_046 && !release_046(c, &release))
        return 0;
    qm_adafactor8_moment_text(&release, qm_case_whole(c, "hp_m_block_size", v->is_046 ? 256 : 128),
                              moment);
    if (v->is_046)
        snprintf(square, sizeof square, "al:8u/block:%lld/arith/even/allog", (long long)block);
    else
        qm_adafactor8_square_text(release.is_cuda, v->cap, block, square);
    for (int i = 0; i <= QM_ADAFACTOR8_NORM; i++) {
        int conf = i == QM_ADAFACTOR8_CONF_ROW || i == QM_ADAFACTOR8_CONF_COL;
        r->slot[i].n = slot_numel(r, i);
        if (r->slot[i].n == 0)
            continue;
        snprintf(name, sizeof name, "state/%s", state_name(i, is_apollo));
        snprintf(coded, sizeof coded, "%s_q", name);
        int ok = qm_case_has(c, coded)
                     ? quantized_read(c, r, i, name, i == QM_ADAFACTOR8_M ? moment : square,
                                      i == QM_ADAFACTOR8_M ? release.init_code
                                      : conf               ? v->conf_code
                                                           : 0,
                                      conf ? v->conf_scale : 1.0f)
                     : values_read(c, r, i, name);
        if (!ok)
            return 0;
    }
    return 1;
}

static int projections_read(struct qm_conform *c, struct replay *r)
{
    int64_t n = slot_numel(r, QM_ADAFACTOR8_PROJ), total = qm_case_numel(c, "proj");
    if (n == 0)
        return 1;
    r->proj = qm_case_floats(c, "proj", total);
    r->proj_index = qm_case_ints(c, "proj_index_per_step", r->steps);
    for (int64_t t = 0; r->proj && r->proj_index && t < r->steps; t++)
        if (r->proj_index[t] < 0 || (r->proj_index[t] + 1) * n > total) {
            qm_case_skip(c, "step %lld: there is no projection %lld of %lld numbers",
                         (long long)t + 1, (long long)r->proj_index[t], (long long)n);
            return 0;
        }
    return r->proj && r->proj_index;
}

void qm_adafactor8_replay_optimizer(struct qm_conform *c)
{
    struct replay r = {.steps = qm_case_whole(c, "steps", 0), .n = qm_case_numel(c, "p0")};
    char version[16], type[16];
    int k = 0;
    qm_case_text(c, "version", version, sizeof version);
    qm_case_text(c, "dtype", type, sizeof type);
    while (k < VERSIONS && strcmp(versions[k].version, version) != 0)
        k++;
    if (k == VERSIONS || r.steps < 1 || r.n < 1) {
        qm_case_skip(c, "release '%s' is not among those that are built", version);
        return;
    }
    const struct version *v = &versions[k];
    r.shape = qm_run_shape(c, "shape", r.n);
    if (!qm_run_recipe(c, v->rule, &r.recipe))
        return;
    r.recipe.state_stored = v->release.is_cuda;
    hyper_read(c, &r.recipe.hyper, r.shape.rank);
    /* 0.2.6 clips its quantized CAME a second time on the PyTorch path */
    r.recipe.hyper.clip_twice = v->release.is_026 && !v->release.is_cuda && !v->is_046;
    if (v->is_046 && !hyper_046(c, &r.recipe.hyper, r.shape.rank))
        return;
    r.is_exp2 = v->release.is_026 && v->release.is_cuda && r.recipe.hyper.beta3 > 0.0;
    r.is_bf16 = strcmp(type, "bfloat16") == 0;
    if (r.is_bf16 && r.recipe.hyper.eps1 < 0.0 && !v->release.is_026)
        r.recipe.hyper.eps1 = 0x1p-7; /* the machine epsilon of the parameter's type */
    enum qm_param_format format = r.is_bf16 ? QM_PARAM_bf16 : QM_PARAM_f32;
    r.p0 = qm_case_stored(c, "p0", r.n, format);
    r.grads = qm_case_floats(c, "grads", r.steps * r.n);
    r.params = qm_case_stored(c, "params", r.steps * r.n, format);
    if (qm_case_whole(c, "hp_stochastic_round_writeback", 0))
        r.draws = qm_case_floats(c, "rand", r.steps * r.n);
    if (states_read(c, &r, v) && projections_read(c, &r))
        run_replay(c, &r);
}

/* ---- kind "cudahost_step" ------------------------------------------------------------------- */

static const struct {
    const char *version;
    struct qm_adafactor8_release release;
} kernels[] = {
    {"0.2.1", {UNIFORM_CUDA, 0, 1}},
    {"0.2.2", {UNIFORM_CUDA, 0, 1}},
    {"0.2.4", {TABLE_CUDA, 0, 1}},
    {"0.2.6", {EIGHTHS_CUDA, 1, 1}},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

void qm_adafactor8_replay_cudahost(struct qm_conform *c)
{
    struct replay r = {.steps = qm_case_whole(c, "steps", 0), .n = qm_case_numel(c, "p0")};
    char version[32], moment[QM_QUANTIZER_TEXT], square[QM_QUANTIZER_TEXT];
    int v = 0;
    qm_case_text(c, "version", version, sizeof version);
    while (v < KERNELS && strncmp(version, kernels[v].version, 5) != 0)
        v++;
    if (v == KERNELS || r.steps < 1 || r.n < 1) {
        qm_case_skip(c, "release '%s' is not among those that are built", version);
        return;
    }
    int is_026 = kernels[v].release.is_026;
    if (!qm_run_recipe(c, is_026 ? "adafactor8_cuda" : "adafactor8_021_cuda", &r.recipe))
        return;
    r.shape = qm_run_shape(c, "shape", r.n);
    r.recipe.state_stored = 1;
    struct qm_hyper *h = &r.recipe.hyper;
    h->lr = qm_case_number(c, "lr", 1e-2);
    h->beta1 = qm_case_number(c, "beta1", -1.0);
    h->beta2 = qm_case_number(c, "beta2", -1.0);
    h->beta2_decay = qm_case_number(c, "beta2_decay", -0.8);
    h->eps1 = qm_case_number(c, "eps1", -1.0);
    h->eps2 = qm_case_number(c, "eps2", 1e-3);
    h->clip = qm_case_number(c, "d", 1.0);
    h->weight_decay = qm_case_number(c, "weight_decay", 0.0);
    h->relative_step = (int)qm_case_whole(c, "relative_step", 1);
    h->scale_parameter = (int)qm_case_whole(c, "scale_parameter", 1);
    h->scale_weight_decay = (int)qm_case_whole(c, "scale_weight_decay", 1);
    h->factored = qm_case_has(c, "col_var_q");
    h->limiter = 0;
    r.p0 = qm_case_floats(c, "p0", r.n);
    r.grads = qm_case_floats(c, "grads", r.steps * r.n);
    r.params = qm_case_floats(c, "params", r.steps * r.n);
    qm_adafactor8_moment_text(&kernels[v].release, qm_case_whole(c, "m_block_size", 128), moment);
    qm_adafactor8_square_text(1, is_026 ? 126.0 : 50.0, qm_case_whole(c, "block_size", 2048),
                              square);
    for (int i = 0; i <= QM_ADAFACTOR8_V; i++) {
        r.slot[i].n = slot_numel(&r, i);
        const char *name = i == QM_ADAFACTOR8_M     ? "m"
                           : i == QM_ADAFACTOR8_COL ? "col_var"
                                                    : "row_or_var";
        if (r.slot[i].n > 0 &&
            !quantized_read(c, &r, i, name, i == QM_ADAFACTOR8_M ? moment : square,
                            i == QM_ADAFACTOR8_M ? kernels[v].release.init_code : 0, 1.0f))
            return;
    }
    run_replay(c, &r);
}
