/* adafactor8bit_run.c - Replays steps of adafactor8bit, each from the recorded state before it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rule/adafactor8.h"
#include "experiments/conform/adafactor8bit.h"

/* Tolerances (tests/golden/README.md); 4-bit codes are compared bit for bit. */
#define PARAM_SHARE    2e-3 /* of the step's largest change of a parameter */
#define SCALE_RELATIVE 1e-6
#define VALUE_LARGEST  1e-5 /* of the largest magnitude of a float32 state */
#define LOG_SHARE      1e-4 /* of the log codes, off by one */

/* A recorded state tensor, cut to the elements that the slot has. */
struct recorded {
    int64_t n, n_scales;
    const int64_t *codes; /* [steps][n] */
    const float *scales;  /* [steps][n_scales] */
    const float *values;  /* [kept][n] */
    const double *kept;   /* the kept steps, counted from 0; NULL: all */
    int64_t n_kept;
};

struct replay {
    struct qm_recipe recipe;
    struct qm_shape shape;
    int64_t steps, n;
    const float *p0, *grads, *params;
    struct recorded slot[QM_ADAFACTOR8_SLOTS];
    const float *proj;
    const int64_t *proj_index;
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

static int quantized_read(struct qm_conform *c, struct replay *r, int i, const char *name,
                          const char *text, int init_code, float init_scale)
{
    char codes[64], scale[64];
    struct recorded *s = &r->slot[i];
    snprintf(codes, sizeof codes, "%s_q", name);
    snprintf(scale, sizeof scale, "%s_scale", name);
    s->n_scales = qm_case_numel(c, scale) / r->steps;
    s->codes = codes_read(c, codes, i == QM_ADAFACTOR8_M ? 4 : 8, r->steps, s->n);
    s->scales = qm_case_floats(c, scale, r->steps * s->n_scales);
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
                           SCALE_RELATIVE, 0.0);
            snprintf(what, sizeof what, "step %lld %s code", (long long)t, name);
            if (i == QM_ADAFACTOR8_M)
                qm_judge_codes(c, what, codes, s->codes + (t - 1) * s->n, s->n);
            else
                qm_judge_codes_near(c, what, codes, s->codes + (t - 1) * s->n, s->n, LOG_SHARE);
        } else if (s->values && row_of(s, t) >= 0) {
            const float *want = s->values + row_of(s, t) * s->n;
            QM_TRY(qm_backend_cpu.save(plan, i, NULL, room));
            snprintf(what, sizeof what, "step %lld %s", (long long)t, name);
            qm_judge_close(c, what, room, want, s->n, 0.0,
                           VALUE_LARGEST * largest(want, NULL, s->n));
        }
    }
    return QM_OK;
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
        qm_judge_close(c, what, p, want, r->n, 0.0, PARAM_SHARE * largest(want, before, r->n));
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
        if (r->slot[i].codes && r->slot[i].n_scales != (r->slot[i].n + q.block - 1) / q.block)
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

static const struct {
    const char *version;
    struct qm_adafactor8_release release;
    int conf_code;
    float conf_scale;
} versions[] = {
    {"v021", {"int:4s", "arith/even/hi/floor:1e-12", 8, 0, 0}, 0, 1.0f},
    {"v022r", {"int:4s", "arith/even/hi/floor:1e-12", 8, 0, 0}, 0, 1.0f},
    {"v024r", {"nf4a8:4s", "argmin/mid/hi/floor:1e-12", 7, 0, 0}, 255, 126.0f},
    {"v026", {"intm:4s", "arith/even/hi/floor:1e-12", 8, 1, 0}, 0, 1.0f},
    {"v026nf4", {"nf4a8:4s", "argmin/mid/hi/floor:1e-12", 7, 1, 0}, 255, 126.0f},
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

static int states_read(struct qm_conform *c, struct replay *r, int version)
{
    char moment[QM_QUANTIZER_TEXT], square[QM_QUANTIZER_TEXT], name[48], coded[64];
    int is_apollo = r->recipe.hyper.rank > 0.0 && r->shape.rank >= 2;
    qm_adafactor8_moment_text(&versions[version].release, qm_case_whole(c, "hp_m_block_size", 128),
                              moment);
    qm_adafactor8_square_text(0, 0.0, qm_case_whole(c, "hp_block_size", 2048), square);
    for (int i = 0; i <= QM_ADAFACTOR8_NORM; i++) {
        int conf = i == QM_ADAFACTOR8_CONF_ROW || i == QM_ADAFACTOR8_CONF_COL;
        r->slot[i].n = slot_numel(r, i);
        if (r->slot[i].n == 0)
            continue;
        snprintf(name, sizeof name, "state/%s", state_name(i, is_apollo));
        snprintf(coded, sizeof coded, "%s_q", name);
        int ok = qm_case_has(c, coded)
                     ? quantized_read(c, r, i, name, i == QM_ADAFACTOR8_M ? moment : square,
                                      i == QM_ADAFACTOR8_M ? versions[version].release.init_code
                                      : conf               ? versions[version].conf_code
                                                           : 0,
                                      conf ? versions[version].conf_scale : 1.0f)
                     : values_read(c, r, i, name);
        if (!ok)
            return 0;
        if (i == QM_ADAFACTOR8_CONF_ROW && r->slot[i].codes)
            r->recipe.hyper.clip_twice = 1;
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
    char version[16];
    int v = 0;
    qm_case_text(c, "version", version, sizeof version);
    while (v < VERSIONS && strcmp(versions[v].version, version) != 0)
        v++;
    if (v == VERSIONS || r.steps < 1 || r.n < 1) {
        qm_case_skip(c, "release '%s' is not among those that are built", version);
        return;
    }
    r.shape = qm_run_shape(c, "shape", r.n);
    int is_026 = versions[v].release.is_026;
    if (!is_026 && qm_case_number(c, "hp_beta3", 0.0) > 0.0) {
        qm_case_skip(c, "CAME before 0.2.6: the published code cannot be recovered");
        return;
    }
    if (!qm_run_recipe(c, is_026 ? "adafactor8" : "adafactor8_021", &r.recipe))
        return;
    hyper_read(c, &r.recipe.hyper, r.shape.rank);
    r.p0 = qm_case_floats(c, "p0", r.n);
    r.grads = qm_case_floats(c, "grads", r.steps * r.n);
    r.params = qm_case_floats(c, "params", r.steps * r.n);
    if (states_read(c, &r, v) && projections_read(c, &r))
        run_replay(c, &r);
}

/* ---- kind "cudahost_step" ------------------------------------------------------------------- */

static const struct {
    const char *version;
    struct qm_adafactor8_release release;
} kernels[] = {
    {"0.2.1", {"int:4s", "arith/even/hi/recip/floor:1e-12/maxskip/nanzero", 8, 0, 1}},
    {"0.2.2", {"int:4s", "arith/even/hi/recip/floor:1e-12/maxskip/nanzero", 8, 0, 1}},
    {"0.2.4", {"nf4a8:4s", "ladder/mid/hi/recip/floor:1e-12/maxskip", 7, 0, 1}},
    {"0.2.6", {"intm:4s", "arith/even/hi/recip/floor:1e-12/maxskip/nanzero", 8, 1, 1}},
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
