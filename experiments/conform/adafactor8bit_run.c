/* adafactor8bit_run.c - Reads recorded runs of adafactor8bit: release, hyper-parameters, states. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/rule/param.h"
#include "experiments/conform/adafactor8bit_steps.h"
#include "experiments/conform/param16_run.h"

/* ---- kind "optimizer" ----------------------------------------------------------------------- */

/* A beta3 of 0 is CAME in the packages and none in qm_hyper: DBL_MIN, which is 0 in float32 and
 * leaves a weight of 1 for what is new, stands for it. */
static void hyper_read(struct qm_conform *c, struct qm_hyper *h, int dims)
{
    double eps[2] = {(double)NAN, 1e-3};
    static const char *const scales[] = {"channel", "tensor"};
    qm_golden_case_numbers(c, "hp_eps", 2, eps);
    h->lr = qm_golden_case_number(c, "hp_lr", 1e-2);
    h->beta1 = qm_golden_case_number(c, "hp_beta1", -1.0);
    h->beta2 = qm_golden_case_number(c, "hp_beta2", -1.0);
    double beta3 = qm_golden_case_number(c, "hp_beta3", (double)NAN);
    h->beta3 = isnan(beta3) ? 0.0 : beta3 == 0.0 ? DBL_MIN : beta3;
    h->beta2_decay = qm_golden_case_number(c, "hp_beta2_decay", -0.8);
    h->eps1 = isnan(eps[0]) ? -1.0 : eps[0];
    h->eps2 = eps[1];
    h->weight_decay = qm_golden_case_number(c, "hp_weight_decay", 0.0);
    h->clip = qm_golden_case_number(c, "hp_d", 1.0);
    h->maximize = qm_golden_case_int(c, "hp_maximize", 0);
    h->relative_step = qm_golden_case_int(c, "hp_relative_step", 1);
    h->scale_parameter = qm_golden_case_int(c, "hp_scale_parameter", 1);
    h->scale_weight_decay = qm_golden_case_int(c, "hp_scale_weight_decay", 1);
    h->rank = qm_golden_case_number(c, "hp_apollo_rank", 0.0);
    h->gap = -qm_golden_case_number(c, "hp_apollo_update_proj_gap", 200.0);
    h->scale = qm_golden_case_number(c, "hp_apollo_scale", 1.0);
    h->scale_front = qm_golden_case_int(c, "hp_apollo_scale_front", 0);
    h->tensor_scale = qm_golden_case_choice(c, "hp_apollo_scale_type", scales, 2, 0) == 1;
    h->margin = qm_golden_case_number(c, "hp_fira_margin", 0.01);
    h->limiter = qm_golden_case_int(c, "hp_enable_fira_for_adafactor", 0);
    int is_apollo = h->rank > 0.0 && dims >= 2;
    h->eps = qm_golden_case_number(c, is_apollo ? "hp_apollo_eps" : "hp_eps_came", 1e-8);
    qm_golden_case_int(c, "hp_factored", 1); /* no release reads it of a tensor that it projects */
    h->factored =
        qm_golden_case_int(c, is_apollo ? "hp_apollo_factorize" : "hp_factored", !is_apollo);
}

#define UNIFORM "int:4s", "arith/even/hi/floor:1e-12", 8
#define TABLE   "nf4a8:4s", "argmin/mid/hi/floor:1e-12", 7
#define EIGHTHS "intm:4s", "arith/even/hi/floor:1e-12", 8

#define UNIFORM_CUDA "int:4s", "arith/even/hi/recip/floor:1e-12/maxskip/nanzero", 8
#define TABLE_CUDA   "nf4a8:4s", "ladder/mid/hi/recip/floor:1e-12/maxskip", 7
#define EIGHTHS_CUDA "intm:4s", "arith/even/hi/recip/floor:1e-12/maxskip/nanzero", 8

/* Releases by attribute `version`, and their rules.  v022r, v024r and v026nf4 were recorded
 * before the texts of 0.2.2 and 0.2.4 were at hand, from 0.2.1 and 0.2.6 with other formats of
 * the states. */
static const struct version {
    const char *version, *rule;
    struct qm_adafactor8_release release;
    int conf_code;
    float conf_scale;
    double cap;       /* CUDA path: of log2 of a second moment */
    int is_046;       /* 0.4.3 and later: the formats are attributes of the case */
    int is_published; /* which states have codes is known: qm_adafactor8_format_judge */
} versions[] = {
    {"v021", "adafactor8_021", {UNIFORM, 0, 0}, 0, 1.0f, 0.0, 0, 0},
    {"v022r", "adafactor8_021", {UNIFORM, 0, 0}, 0, 1.0f, 0.0, 0, 0},
    {"v024r", "adafactor8_021", {TABLE, 0, 0}, 255, 126.0f, 0.0, 0, 0},
    {"v022", "adafactor8_024", {UNIFORM, 0, 0}, 0, 1.0f, 0.0, 0, 1},
    {"v024", "adafactor8_024", {TABLE, 0, 0}, 255, 126.0f, 0.0, 0, 1},
    {"v025", "adafactor8_025", {TABLE, 0, 0}, 255, 126.0f, 0.0, 0, 1},
    {"v026", "adafactor8", {EIGHTHS, 1, 0}, 0, 1.0f, 0.0, 0, 1},
    {"v026nf4", "adafactor8", {TABLE, 1, 0}, 255, 126.0f, 0.0, 0, 0},
    {"v022_cudahost", "adafactor8_024_cuda", {UNIFORM_CUDA, 0, 1}, 0, 1.0f, 50.0, 0, 1},
    {"v024_cudahost", "adafactor8_024_cuda", {TABLE_CUDA, 0, 1}, 255, 126.0f, 50.0, 0, 1},
    {"v025_cudahost", "adafactor8_025_cuda", {TABLE_CUDA, 0, 1}, 255, 126.0f, 126.0, 0, 1},
    {"v043", "adafactor8_046", {NULL, NULL, 0, 1, 0}, 0, 1.0f, 0.0, 1, 1},
    {"v046", "adafactor8_046", {NULL, NULL, 0, 1, 0}, 0, 1.0f, 0.0, 1, 1},
    {"v026_cudahost", "adafactor8_cuda", {EIGHTHS_CUDA, 1, 1}, 0, 1.0f, 126.0, 0, 1},
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
static int release_046(struct qm_conform *c, struct qm_adafactor8_release *out, int *is_wide)
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
    static const char *const squares[] = {"fp32", "al8", "al16"}, *const confs[] = {"fp32", "al8",
                                                                                    "al16", "none"};
    char moment[16];
    int k = 0, count = sizeof formats / sizeof *formats;
    qm_golden_case_text(c, "hp_m_quant_type", moment, sizeof moment);
    int square = qm_golden_case_choice(c, "hp_v_quant_type", squares, 3, 0);
    int conf = qm_golden_case_choice(c, "hp_c_quant_type", confs, 4, 0);
    while (k < count && strcmp(formats[k].word, moment) != 0)
        k++;
    if (k == count) {
        qm_golden_case_skip(c, "no slot holds codes of this format: %s", moment);
        return 0;
    }
    is_wide[0] = square == 2;
    is_wide[1] = conf == 2 || (is_wide[0] && conf == 3);
    *out = formats[k].release;
    return 1;
}

/* What rule adafactor8_046 needs beside the options of 0.2.x; 0, and the case skipped, for what it
 * does not have.  *is_update: whether the moment averages the update and not the gradient. */
static int hyper_046(struct qm_conform *c, struct qm_recipe *r, int dims, int *is_update)
{
    struct qm_hyper *h = &r->hyper;
    int is_adam = !h->factored && h->beta2 >= 0.0 && !(h->beta3 > 0.0);
    int is_apollo = h->rank > 0.0 && dims >= 2, is_full = !is_apollo && (dims < 2 || !h->factored);
    int is_sgd = h->beta2 < 0.0 && isnan(qm_golden_case_number(c, "hp_beta2_decay", (double)NAN));
    double unit = qm_golden_case_number(c, "hp_momentum_only_1d", -1.0);
    double corrects = qm_golden_case_number(c, "hp_bias_correction", -1.0);
    h->correct_bias = corrects < 0.0 ? is_adam || is_apollo : corrects > 0.0;
    h->eps = qm_golden_case_number(c, is_apollo ? "hp_apollo_eps" : "hp_eps_came",
                                   is_apollo ? 1e-6 : 1e-16);
    if (is_sgd)
        h->beta2_decay = 1.0;
    if (is_apollo && !qm_golden_case_whole(c, "hp_enable_fira_for_apollo", 1))
        h->margin = -1.0;
    if (is_apollo && h->beta3 > 0.0)
        qm_golden_case_skip(c, "APOLLO with CAME is not built");
    int is_other = is_full && !is_sgd && h->beta1 >= 0.0 && unit >= 0.0 && (unit > 0.0) == is_adam;
    if (is_other)
        r->rule = qm_rule_find("adafactor8_046_1d");
    *is_update = is_apollo || h->beta3 > 0.0 || (is_full && !is_sgd && is_adam == is_other);
    return qm_golden_case_open(c);
}

/* The projected second moment of 0.4.x has a lower end of its own, but for its first step. */
static int with_low_end(struct qm_conform *c, struct qm_adafactor8_replay *r, const char *square)
{
    char text[QM_QUANTIZER_TEXT + 24];
    double eps = r->recipe.hyper.eps;
    int i = QM_ADAFACTOR8_V;
    r->slot[i].floor = (float)fmax(eps * eps, 0x1p-126);
    if (r->slot[i].n == 0 || !r->slot[i].codes || r->slot[i].is_wide)
        return 1;
    r->first = r->recipe;
    snprintf(text, sizeof text, "%s/floor:%.9g", square, (double)r->slot[i].floor);
    return qm_run_quantizer(c, &r->recipe, i, text, 0, 1.0f);
}

static int states_read(struct qm_conform *c, struct qm_adafactor8_replay *r,
                       const struct version *v)
{
    char moment[QM_QUANTIZER_TEXT], square[QM_QUANTIZER_TEXT], name[48], coded[64];
    int is_apollo = r->recipe.hyper.rank > 0.0 && r->shape.rank >= 2;
    struct qm_adafactor8_release release = v->release;
    int64_t block = qm_golden_case_whole(c, "hp_block_size", 2048);
    int is_wide[2] = {0, 0};
    if (v->is_046 && !release_046(c, &release, is_wide))
        return 0;
    qm_adafactor8_moment_text(
        &release, qm_golden_case_whole(c, "hp_m_block_size", v->is_046 ? 256 : 128), moment);
    if (v->is_046)
        snprintf(square, sizeof square, "al:8u/block:%lld/arith/even/allog", (long long)block);
    else
        qm_adafactor8_square_text(release.is_cuda, v->cap, block, square);
    for (int i = 0; i <= QM_ADAFACTOR8_NORM; i++) {
        int conf = i == QM_ADAFACTOR8_CONF_ROW || i == QM_ADAFACTOR8_CONF_COL;
        r->slot[i].n = qm_adafactor8_slot_numel(r, i);
        if (r->slot[i].n == 0)
            continue;
        snprintf(name, sizeof name, "state/%s", state_name(i, is_apollo));
        snprintf(coded, sizeof coded, "%s_q", name);
        int is_coded = qm_golden_case_has(c, coded),
            is_there = is_coded || qm_golden_case_has(c, name);
        if (v->is_published && is_there &&
            !qm_adafactor8_format_judge(c, r, i, name, is_apollo, is_coded))
            return 0;
        int ok = is_coded && i != QM_ADAFACTOR8_M && is_wide[conf]
                     ? qm_adafactor8_wide_read(c, r, i, name, block)
                 : is_coded ? qm_adafactor8_quantized_read(c, r, i, name,
                                                           i == QM_ADAFACTOR8_M ? moment : square,
                                                           i == QM_ADAFACTOR8_M ? release.init_code
                                                           : conf               ? v->conf_code
                                                                                : 0,
                                                           conf ? v->conf_scale : 1.0f)
                            : qm_adafactor8_values_read(c, r, i, name);
        if (!ok)
            return 0;
    }
    return !(v->is_046 && is_apollo) || with_low_end(c, r, square);
}

/* Matrices of n numbers of this many rows, transposed. */
static const float *turned(struct qm_conform *c, const float *x, int64_t n, int64_t total,
                           int64_t rows)
{
    float *out = qm_golden_case_memory(c, total, sizeof *out);
    int64_t cols = n / rows;
    for (int64_t k = 0; out && x && k < total; k++) {
        int64_t i = k % n / cols, j = k % n % cols;
        out[k - k % n + j * rows + i] = x[k];
    }
    return x ? out : NULL;
}

/* A projection lasts hp_apollo_update_proj_gap steps.  Before 0.2.6 a state of factored second
 * moments is made anew in every step, and with it the seed, which may be the same again. */
static void judge_gap(struct qm_conform *c, const struct qm_adafactor8_replay *r, int64_t n)
{
    int64_t gap = qm_golden_case_whole(c, "hp_apollo_update_proj_gap", 0);
    int is_each = !r->is_026 && r->recipe.hyper.factored;
    for (int64_t t = 1; gap > 0 && !is_each && t < r->steps; t++) {
        const float *now = r->proj + r->proj_index[t] * n,
                    *old = r->proj + r->proj_index[t - 1] * n;
        int is_new = memcmp(now, old, (size_t)n * sizeof *now) != 0;
        if (is_new != (t % gap == 0))
            qm_golden_case_differs(c, "step %lld: %s projection, and one lasts %lld",
                                   (long long)t + 1, is_new ? "a new" : "the old", (long long)gap);
    }
}

/* Matrices as the package returns them: k the shorter side of the gradient, rank x k where it is
 * not the rows and k x rank where it is; is_turned: of 0.4.x each is the other one. */
static int projections_read(struct qm_conform *c, struct qm_adafactor8_replay *r, int is_turned)
{
    struct qm_shape is;
    int is_right = r->shape.dim[0] * r->shape.dim[0] >= r->n;
    int64_t n = qm_adafactor8_slot_numel(r, QM_ADAFACTOR8_PROJ),
            total = qm_golden_case_numel(c, "proj");
    if (n == 0)
        return 1;
    int64_t rank = (int64_t)r->recipe.hyper.rank, rows = is_right == is_turned ? n / rank : rank;
    if (qm_golden_case_shape(c, "proj", &is) && is.rank >= 2 &&
        (is.dim[is.rank - 2] != rows || is.dim[is.rank - 1] != n / rows)) {
        qm_golden_case_unreadable(c, "proj: matrices of %lld x %lld, expected %lld x %lld",
                                  (long long)is.dim[is.rank - 2], (long long)is.dim[is.rank - 1],
                                  (long long)rows, (long long)(n / rows));
        return 0;
    }
    r->proj = qm_golden_case_floats(c, "proj", total);
    r->proj_index = qm_golden_case_ints(c, "proj_index_per_step", r->steps);
    for (int64_t t = 0; r->proj && r->proj_index && t < r->steps; t++)
        if (r->proj_index[t] < 0 || (r->proj_index[t] + 1) * n > total) {
            qm_golden_case_unreadable(c, "step %lld: there is no projection %lld of %lld numbers",
                                      (long long)t + 1, (long long)r->proj_index[t], (long long)n);
            return 0;
        }
    if (r->proj && r->proj_index)
        judge_gap(c, r, n);
    if (is_turned && total % n == 0)
        r->proj = turned(c, r->proj, n, total, rows);
    return r->proj && r->proj_index;
}

/* What a run must have. */
static const struct qm_golden_need run_needs[] = {
    {"steps", QM_NEED_number, 1, 1e6, 0},
    {"version", QM_NEED_text, 0, 0, 0},
    {"dtype", QM_NEED_text, 0, 0, 1},
    {"hp_lr", QM_NEED_number, 0, 1e30, 0},
    {"hp_beta1", QM_NEED_number, 0, 1, 1},
    {"hp_beta2", QM_NEED_number, 0, 1, 1},
    {"hp_beta3", QM_NEED_number, 0, 1, 1},
    {"hp_weight_decay", QM_NEED_number, 0, 1e30, 0},
    {"hp_d", QM_NEED_number, 0, 1e30, 1},
    {"hp_block_size", QM_NEED_number, 1, 1 << 20, 1},
    {"hp_m_block_size", QM_NEED_number, 1, 1 << 20, 1},
    {"p0", QM_NEED_data, 0, 0, 0},
    {"grads", QM_NEED_data, 0, 0, 0},
    {"params", QM_NEED_data, 0, 0, 0},
};

/* Arguments of the classes of every release, which may be None (NaN), but must be said. */
static int arguments_there(struct qm_conform *c)
{
    static const char *const names[] = {"hp_beta1",
                                        "hp_beta2",
                                        "hp_beta2_decay",
                                        "hp_eps",
                                        "hp_d",
                                        "hp_maximize",
                                        "hp_relative_step",
                                        "hp_scale_parameter",
                                        "hp_scale_weight_decay",
                                        "hp_factored",
                                        "hp_block_size",
                                        "hp_m_block_size",
                                        "hp_enable_fira_for_adafactor",
                                        "hp_fira_margin"};
    char name[128];
    int64_t count;
    for (int i = 0; qm_golden_attribute_name(c->file, c->group, i, name, sizeof name); i++) {
        int n = strcmp(name, "hp_eps") == 0 ? 2 : 1;
        enum qm_golden_attribute is = qm_golden_attribute(c->file, c->group, name, &count);
        if (strncmp(name, "hp_", 3) == 0 && (is == QM_GOLDEN_OTHER || count != n))
            qm_golden_case_unreadable(c, "attribute %.60s of %.100s has %lld elements, expected %d",
                                      name, c->group, (long long)count, n);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (qm_golden_attribute(c->file, c->group, names[i], &count) != QM_GOLDEN_NUMBERS)
            qm_golden_case_unreadable(c,
                                      "attribute %s of %s is missing, expected numbers, or NaN "
                                      "for None",
                                      names[i], c->group);
    return qm_golden_case_open(c);
}

/* The rule, but that it averages a variance in float32 as one that has codes.  A static is the only
 * way to hand the rule to its prepare. */
static const struct qm_rule *wide_rule;

static void prepare_wide(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    wide_rule->prepare(h, t, s);
    s->flag[QM_ADAFACTOR8_WIDE] = 1;
}

/* The arguments of the class in any release, without those that every kind of run reads. */
static const char arguments[] =
    "hp_apollo_cache_proj hp_apollo_eps hp_apollo_factorize hp_apollo_rank hp_apollo_scale "
    "hp_apollo_scale_front hp_apollo_scale_type hp_apollo_update_proj_gap hp_beta2 hp_beta2_decay "
    "hp_beta3 hp_bias_correction hp_block_size hp_c_quant_type hp_enable_fira_for_adafactor "
    "hp_enable_fira_for_apollo hp_eps_came hp_factored hp_fira_margin hp_lag_norm hp_m_block_size "
    "hp_m_quant_type hp_min_8bit_size hp_momentum_only_1d hp_quantize "
    "hp_stochastic_round_writeback hp_use_cuda_kernel hp_v_quant_type hp_warmup_multiplier";

void qm_adafactor8_replay_optimizer(struct qm_conform *c)
{
    c->now.arguments = arguments;
    struct qm_adafactor8_replay r = {.steps = qm_golden_case_whole(c, "steps", 0),
                                     .n = qm_golden_case_numel(c, "p0")};
    static const char *const types[] = {"float32", "bfloat16"};
    char version[16];
    int k = 0;
    if (!qm_golden_case_needs(c, run_needs, sizeof run_needs / sizeof *run_needs) ||
        !arguments_there(c) || !qm_golden_case_one_rate(c))
        return;
    qm_golden_case_text(c, "version", version, sizeof version);
    while (k < VERSIONS && strcmp(versions[k].version, version) != 0)
        k++;
    if (k == VERSIONS || r.steps < 1 || r.n < 1) {
        qm_golden_case_skip(c, "release '%s' is not among those that are built", version);
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
    r.is_update = (r.recipe.hyper.beta3 > 0.0 && v->release.is_026) ||
                  (r.recipe.hyper.rank > 0.0 && r.shape.rank >= 2);
    if (v->is_046 && !hyper_046(c, &r.recipe, r.shape.rank, &r.is_update))
        return;
    if (r.recipe.hyper.rank > 0.0 && r.shape.rank >= 2) {
        int64_t rows = r.shape.dim[0], cols = r.n / rows;
        r.terms = rows >= cols ? cols : rows;
    }
    r.is_exp2 = v->release.is_026 && v->release.is_cuda && r.recipe.hyper.beta3 > 0.0;
    r.is_bf16 = qm_golden_case_choice(c, "dtype", types, 2, 0) == 1;
    r.is_026 = v->release.is_026;
    if (!v->release.is_026 && r.recipe.hyper.beta3 > 0.0 && r.shape.rank >= 2) {
        const int64_t *last = &r.shape.dim[r.shape.rank - 1];
        r.products = last[0] > last[-1] ? last[0] : last[-1];
    }
    if (r.is_bf16 && r.recipe.hyper.eps1 < 0.0 && !v->release.is_026 && r.terms == 0)
        r.recipe.hyper.eps1 = 0x1p-7; /* the machine epsilon of the parameter's type */
    enum qm_param_format format = r.is_bf16 ? QM_PARAM_bf16 : QM_PARAM_f32;
    r.p0 = qm_golden_case_stored(c, "p0", r.n, format);
    r.grads = qm_golden_case_floats_of(c, "grads", r.steps * r.n, format);
    r.params = qm_golden_case_stored(c, "params", r.steps * r.n, format);
    if (r.is_bf16 && qm_golden_case_whole(c, "hp_stochastic_round_writeback", 0))
        r.draws = qm_golden_case_floats(c, "rand", r.steps * r.n);
    if (!states_read(c, &r, v) || !projections_read(c, &r, v->is_046))
        return;
    struct qm_rule as_wide = *r.recipe.rule;
    if (r.slot[QM_ADAFACTOR8_V].is_wide) {
        wide_rule = r.recipe.rule;
        as_wide.prepare = prepare_wide;
        r.recipe.rule = &as_wide;
    }
    qm_adafactor8_run_replay(c, &r);
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
    struct qm_adafactor8_replay r = {.steps = qm_golden_case_whole(c, "steps", 0),
                                     .n = qm_golden_case_numel(c, "p0")};
    char version[32], moment[QM_QUANTIZER_TEXT], square[QM_QUANTIZER_TEXT];
    int v = 0;
    qm_golden_case_text(c, "version", version, sizeof version);
    while (v < KERNELS && strncmp(version, kernels[v].version, 5) != 0)
        v++;
    if (v == KERNELS || r.steps < 1 || r.n < 1) {
        qm_golden_case_skip(c, "release '%s' is not among those that are built", version);
        return;
    }
    int is_026 = kernels[v].release.is_026;
    if (!qm_run_recipe(c, is_026 ? "adafactor8_cuda" : "adafactor8_021_cuda", &r.recipe))
        return;
    r.shape = qm_run_shape(c, "shape", r.n);
    r.recipe.state_stored = 1;
    struct qm_hyper *h = &r.recipe.hyper;
    h->lr = qm_golden_case_number(c, "lr", 1e-2);
    h->beta1 = qm_golden_case_number(c, "beta1", -1.0);
    h->beta2 = qm_golden_case_number(c, "beta2", -1.0);
    h->beta2_decay = qm_golden_case_number(c, "beta2_decay", -0.8);
    h->eps1 = qm_golden_case_number(c, "eps1", -1.0);
    h->eps2 = qm_golden_case_number(c, "eps2", 1e-3);
    h->clip = qm_golden_case_number(c, "d", 1.0);
    h->weight_decay = qm_golden_case_number(c, "weight_decay", 0.0);
    h->relative_step = qm_golden_case_int(c, "relative_step", 1);
    h->scale_parameter = qm_golden_case_int(c, "scale_parameter", 1);
    h->scale_weight_decay = qm_golden_case_int(c, "scale_weight_decay", 1);
    h->factored = qm_golden_case_has(c, "col_var_q");
    h->limiter = 0;
    r.p0 = qm_golden_case_floats(c, "p0", r.n);
    r.grads = qm_golden_case_floats(c, "grads", r.steps * r.n);
    r.params = qm_golden_case_floats(c, "params", r.steps * r.n);
    qm_adafactor8_moment_text(&kernels[v].release, qm_golden_case_whole(c, "m_block_size", 128),
                              moment);
    qm_adafactor8_square_text(1, is_026 ? 126.0 : 50.0, qm_golden_case_whole(c, "block_size", 2048),
                              square);
    for (int i = 0; i <= QM_ADAFACTOR8_V; i++) {
        r.slot[i].n = qm_adafactor8_slot_numel(&r, i);
        const char *name = i == QM_ADAFACTOR8_M     ? "m"
                           : i == QM_ADAFACTOR8_COL ? "col_var"
                                                    : "row_or_var";
        if (r.slot[i].n > 0 && !qm_adafactor8_quantized_read(
                                   c, &r, i, name, i == QM_ADAFACTOR8_M ? moment : square,
                                   i == QM_ADAFACTOR8_M ? kernels[v].release.init_code : 0, 1.0f))
            return;
    }
    qm_adafactor8_run_replay(c, &r);
}
