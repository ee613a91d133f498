/* lpmm_run.c - Replays the recorded runs of lpmm's AdamW and SGD.
 *
 * Every run is judged by a registered variant with the overrides that the recording asks for.  With
 * correctly rounded square roots every bit agrees (PyTorch 1.13, attribute sqrt = ieee, the fused
 * kernels, SGD), except for the sums of factored second moments.  Square roots of PyTorch 2 are an
 * ulp off, which the step has and no state. */
#include <stdio.h>
#include <string.h>

#include "experiments/conform/lpmm.h"
#include "experiments/conform/run.h"

/* u = 2^-24.  A root that is an ulp off (2 u), its quotient by the root of the bias correction, the
 * sum with eps and the last quotient, which may be rounded to other neighbours (2 u each). */
#define U       0x1p-24
#define OF_ROOT (8 * U)

/* ---- the recipe ---- */

/* A recorded run and what the variant is chosen by. */
struct source {
    int64_t n;
    struct qm_shape shape;
    int sgd, fused, factored, has_momentum;
    char coded[2]; /* whether states m and v have codes */
    char quantizer[2][QM_QUANTIZER_TEXT];
};

/* Sets a slot as the recording has it.  Of the fused kernel, which has blocks of 128 whatever the
 * configuration says, the map alone is the recording's. */
static qm_status slot_set(struct qm_recipe *r, const struct source *s, int slot)
{
    char key[64], text[QM_QUANTIZER_TEXT];
    struct qm_quantizer q;
    const char *name = r->rule->slot[slot];
    if (s->coded[slot]) {
        QM_TRY(qm_quantizer_parse(s->quantizer[slot], &q));
        if (s->fused) {
            struct qm_quantizer own = r->slot[slot];
            own.map = q.map;
            q = own;
        }
        if (!qm_quantizer_equal(&q, &r->slot[slot])) {
            qm_quantizer_print(&q, text);
            QM_TRY(qm_recipe_set(r, name, text));
        }
    }
    if ((s->n >= r->min_numel[slot] && r->slot[slot].bits != 0) == s->coded[slot])
        return QM_OK;
    snprintf(key, sizeof key, "%s.min_numel", name);
    snprintf(text, sizeof text, "%lld", s->coded[slot] ? 0LL : (long long)s->n + 1);
    return qm_recipe_set(r, key, text);
}

/* The registered variant with the fewest overrides. */
static qm_status variant_at(struct qm_conform *c, const struct source *s, struct qm_recipe *out)
{
    static const char *const own[] = {"adamw4_lpmm", "adamw4_lpmm_group", "adamw8_lpmm",
                                      "adamw4_lpmm_de0", "adamw_lpmm_vonly"};
    const char *only = s->sgd        ? "sgdm4_lpmm"
                       : s->factored ? "adamw4_lpmm_factor"
                       : s->fused    ? "adamw4_lpmm_fused"
                                     : NULL;
    char made[QM_RECIPE_TEXT], best[QM_RECIPE_TEXT] = "";
    for (size_t i = 0; i < (only ? 1 : sizeof own / sizeof *own); i++) {
        struct qm_recipe r;
        QM_TRY(qm_recipe_parse(only ? only : own[i], &r));
        for (int slot = 0; slot < (s->sgd ? 1 : 2); slot++)
            if (slot == 0 || !s->factored || s->shape.rank < 2)
                QM_TRY(slot_set(&r, s, slot));
        qm_recipe_print(&r, made);
        if (*best && strlen(made) >= strlen(best))
            continue;
        memcpy(best, made, sizeof best);
        *out = r;
    }
    char contraction[16];
    qm_golden_case_text(c, "contraction", contraction, sizeof contraction);
    snprintf(c->now.how, sizeof c->now.how, "%.230s", best);
    if (s->fused && strcmp(contraction, "fma") != 0) {
        out->rule = qm_rule_find("adamw_lpmm_fused_strict");
        snprintf(c->now.how, sizeof c->now.how, "%.220s, not contracted", best);
    }
    return QM_OK;
}

/* ---- states ---- */

/* The names of a coded state's scales, NAME_scale with these ends, in this program's order. */
static int scale_names(struct qm_conform *c, const char *name, char out[QM_MAX_RANK][64])
{
    static const char *const pairs[][2] = {
        {"_max_dim0", "_max1"}, {"_max1", "_max_dim1"}, {"_max0", "_max1"}};
    int axes = 0;
    snprintf(out[0], 64, "%.40s", name);
    if (qm_golden_case_has(c, name))
        return 1;
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 2; i++)
            snprintf(out[i], 64, "%.40s%s", name, pairs[k][i]);
        if (qm_golden_case_has(c, out[0]) && qm_golden_case_has(c, out[1]))
            return 2;
    }
    for (; axes < QM_MAX_RANK; axes++) {
        snprintf(out[axes], 64, "%.40s_dim%d", name, axes);
        if (!qm_golden_case_has(c, out[axes]))
            break;
    }
    return axes;
}

/* Reads scales after every step as one row, which is as long as the quantizer asks for. */
static int scales_read(struct qm_conform *c, const char *name, int64_t steps, int64_t count,
                       struct qm_run_slot *out)
{
    char axis[QM_MAX_RANK][64];
    int64_t n[QM_MAX_RANK], filled = 0;
    const float *part[QM_MAX_RANK];
    int axes = scale_names(c, name, axis);
    out->n_scales = 0;
    for (int k = 0; k < axes; k++) {
        n[k] = qm_golden_case_per(c, axis[k], steps);
        if (!(part[k] = qm_golden_case_floats(c, axis[k], steps * n[k])))
            return 0;
        out->n_scales += n[k];
    }
    if (out->n_scales != count) {
        (void)qm_fail(QM_BAD_FILE, "%s of %s: %lld scales in a step, expected %lld", name, c->group,
                      (long long)out->n_scales, (long long)count);
        qm_golden_case_failed(c);
        return 0;
    }
    float *all = qm_golden_case_memory(c, steps * count, sizeof *all);
    for (int64_t t = 0; all && t < steps; t++)
        for (int k = 0; k < axes; k++) {
            memcpy(all + filled, part[k] + t * n[k], (size_t)n[k] * sizeof *all);
            filled += n[k];
        }
    out->scales = all;
    return all != NULL;
}

/* Codes and scales of state "m" or "v" of parameter i.  Code 255 of a table of fewer entries is
 * that of a NaN unit value, which is the top code here; the source decodes it by reading beyond its
 * table, which its scale, 0, mostly hides. */
static int codes_read(struct qm_conform *c, struct qm_run *run, int slot, int i,
                      const struct source *s)
{
    struct qm_codec codec;
    struct qm_run_slot *to = &run->slot[slot];
    char name[48];
    snprintf(name, sizeof name, "p%d_%s_codes", i, slot ? "v" : "m");
    int64_t *codes = qm_golden_case_ints(c, name, run->steps * s->n);
    if (qm_codec_init(&codec, &run->recipe.slot[slot]) != QM_OK ||
        qm_codec_fits(&codec, &s->shape) != QM_OK) {
        qm_golden_case_skip(c, "%.250s", qm_message());
        return 0;
    }
    for (int64_t k = 0; codes && k < run->steps * s->n && codec.cb.n < 256; k++)
        codes[k] = codes[k] == 255 ? codec.cb.n - 1 : codes[k];
    float *table = qm_golden_case_memory(c, 256, sizeof *table);
    to->entries = table ? qm_lpmm_table(c, &codec.q, table) : 0;
    to->table = to->entries > 0 ? table : NULL;
    to->codes = codes;
    snprintf(name, sizeof name, "p%d_%s_scale", i, slot ? "v" : "m");
    return codes && scales_read(c, name, run->steps, qm_scale_count(&codec, &s->shape), to);
}

/* Reads state i of the rule: codes and scales, float32 values at the kept steps, or the factors
 * after every step. */
static int slot_read(struct qm_conform *c, struct qm_run *run, int slot, int i,
                     const struct source *s)
{
    char name[48];
    struct qm_run_slot *to = &run->slot[slot];
    int is_factored = s->factored && s->shape.rank >= 2;
    if (slot >= 2 && is_factored) {
        struct qm_shape own;
        qm_rule_slot_shape(run->recipe.rule, &run->recipe.hyper, slot, &run->shape, &own);
        snprintf(name, sizeof name, "p%d_v_%s", i, slot == 2 ? "row" : "col");
        to->every_step = 1;
        to->values = qm_golden_case_floats(c, name, run->steps * qm_shape_numel(&own));
        return to->values != NULL;
    }
    if (slot >= 2 || (slot == 1 && is_factored) || (s->sgd && !s->has_momentum))
        return 1;
    if (s->coded[slot])
        return codes_read(c, run, slot, i, s);
    snprintf(name, sizeof name, "p%d_%s_fp32", i, slot ? "v" : "m");
    if (!qm_golden_case_has(c, name))
        (void)qm_fail(QM_BAD_FILE, "there is no dataset p%d_%s_codes or %s in %s", i,
                      slot ? "v" : "m", name, c->group);
    else if ((to->values = qm_golden_case_floats(c, name, run->n_kept * s->n)))
        return 1;
    qm_golden_case_failed(c);
    return 0;
}

/* ---- a run ---- */

static int source_read(struct qm_conform *c, int i, struct source *s)
{
    static const char *const prefix[2] = {"M_", "SQM_"};
    char name[48];
    double momentum = qm_golden_case_number(c, "momentum", -1.0);
    s->sgd = momentum >= 0.0;
    s->has_momentum = momentum > 0.0;
    s->factored = qm_golden_case_whole(c, "factor_second_moment", 0) != 0;
    s->fused = qm_golden_case_whole(c, "fused", 0) != 0 && !s->factored;
    for (int k = 0; k < (s->sgd ? 1 : 2); k++) {
        snprintf(name, sizeof name, "p%d_%s_codes", i, k ? "v" : "m");
        s->coded[k] = (char)qm_golden_case_has(c, name);
        if (s->coded[k] && !qm_lpmm_quantizer(c, prefix[k], s->quantizer[k], QM_QUANTIZER_TEXT))
            return 0;
    }
    return qm_golden_case_open(c);
}

/* The steps that parameters and float32 states were kept for, ascending. */
static int kept_read(struct qm_conform *c, struct qm_run *run)
{
    run->n_kept = qm_golden_numbers(c->file, c->group, "kept_steps", NULL, 0);
    double *kept = qm_golden_case_memory(c, run->n_kept, sizeof *kept);
    int64_t *steps = qm_golden_case_memory(c, run->n_kept, sizeof *steps);
    if (!kept || !steps)
        return 0;
    qm_golden_numbers(c->file, c->group, "kept_steps", kept, (int)run->n_kept);
    run->kept = steps;
    for (int64_t k = 0; k < run->n_kept; k++) {
        double before = k > 0 ? kept[k - 1] : 0.0;
        steps[k] = kept[k] > before && kept[k] <= (double)run->steps ? (int64_t)kept[k] : 0;
        if (steps[k] == 0)
            run->n_kept = 0;
    }
    if (run->n_kept > 0)
        return 1;
    (void)qm_fail(QM_BAD_FILE, "attribute kept_steps of %s is missing, or no list of steps",
                  c->group);
    qm_golden_case_failed(c);
    return 0;
}

static int hyper_read(struct qm_conform *c, int sgd, struct qm_hyper *h)
{
    static const struct qm_golden_need adamw[] = {{"beta1", QM_NEED_number, 0, 1, 0},
                                                  {"beta2", QM_NEED_number, 0, 1, 0},
                                                  {"eps", QM_NEED_number, 0, 1e30, 0},
                                                  {"weight_decay", QM_NEED_number, 0, 1e30, 0}};
    static const struct qm_golden_need momentum[] = {{"momentum", QM_NEED_number, 0, 1e9, 0},
                                                     {"dampening", QM_NEED_number, -1e9, 1e9, 1},
                                                     {"nesterov", QM_NEED_number, 0, 1, 1},
                                                     {"maximize", QM_NEED_number, 0, 1, 1},
                                                     {"weight_decay", QM_NEED_number, 0, 1e30, 0}};
    if (!qm_golden_case_needs(c, sgd ? momentum : adamw, sgd ? 5 : 4))
        return 0;
    h->lr = qm_golden_case_number(c, "lr", 1e-3);
    h->beta1 = qm_golden_case_number(c, "beta1", 0.9);
    h->beta2 = qm_golden_case_number(c, "beta2", 0.999);
    h->eps = qm_golden_case_number(c, "eps", 1e-8);
    h->weight_decay = qm_golden_case_number(c, "weight_decay", 0.0);
    h->momentum = qm_golden_case_number(c, "momentum", 0.0);
    h->dampening = qm_golden_case_number(c, "dampening", 0.0);
    h->nesterov = qm_golden_case_int(c, "nesterov", 0);
    h->maximize = qm_golden_case_int(c, "maximize", 0);
    h->factored = 1;
    return 1;
}

/* What roots and sums may be off by; 0: nothing.  A mean of n squares in lanes of eight is off by
 * (n / 16 + 8) u, as its average is, 4 u of that more; the factored second moment is the product of
 * two of them over the mean of one, and the root halves its error. */
static void tolerance(struct qm_conform *c, const struct source *s, struct qm_run *run)
{
    char root[16] = "";
    qm_golden_case_text(c, "sqrt", root, sizeof root);
    int is_off = qm_lpmm_torch(c) >= 2 && strcmp(root, "ieee") != 0 && !s->fused && !s->sgd;
    run->within.beside = is_off ? OF_ROOT : 0.0;
    if (s->factored && s->shape.rank >= 2) {
        int64_t rows = s->shape.dim[s->shape.rank - 2], cols = s->shape.dim[s->shape.rank - 1];
        double most = (double)(rows > cols ? rows : cols);
        run->within.factor_relative = (most / 16.0 + 12.0) * U;
        run->within.beside += 1.5 * run->within.factor_relative + (is_off ? 0.0 : OF_ROOT);
    }
    run->within.param_of_step = run->within.beside;
    run->within.is_decoupled = 1;
}

/* Two NaN in a byte enter the scale of the fused kernel; here none does. */
static void skip_nan_scales(struct qm_conform *c, const struct qm_run *run)
{
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; run->slot[i].scales && k < run->steps * run->slot[i].n_scales; k++)
            if (qm_isnan(run->slot[i].scales[k])) {
                qm_golden_case_skip(c,
                                    "step %lld: a scale is NaN, as the fused kernel makes it "
                                    "where both numbers of a byte are; the variant leaves NaN "
                                    "out",
                                    (long long)(k / run->slot[i].n_scales) + 1);
                return;
            }
}

static void replay(struct qm_conform *c, int i)
{
    static const struct qm_golden_need needs[] = {{"T", QM_NEED_number, 1, 1e6, 0},
                                                  {"lr", QM_NEED_number, 0, 1e30, 0}};
    struct qm_run run = {.steps = qm_golden_case_whole(c, "T", 0)};
    struct source s = {.n = 0};
    char name[48];
    if (!qm_golden_case_needs(c, needs, sizeof needs / sizeof *needs) || !source_read(c, i, &s) ||
        !kept_read(c, &run))
        return;
    snprintf(name, sizeof name, "p%d_init", i);
    s.n = qm_golden_case_numel(c, name);
    run.p0 = qm_golden_case_floats(c, name, s.n);
    snprintf(name, sizeof name, "shape_p%d", i);
    run.shape = s.shape = qm_run_shape(c, name, s.n);
    if (!run.p0)
        return;
    if (variant_at(c, &s, &run.recipe) != QM_OK) {
        qm_golden_case_skip(c, "%.250s", qm_message());
        return;
    }
    if (!hyper_read(c, s.sgd, &run.recipe.hyper))
        return;
    tolerance(c, &s, &run);
    for (int slot = 0; slot < run.recipe.rule->n_slots; slot++)
        if (!slot_read(c, &run, slot, i, &s))
            return;
    if (s.fused)
        skip_nan_scales(c, &run);
    snprintf(name, sizeof name, "p%d_grads", i);
    run.grads = qm_golden_case_floats(c, name, run.steps * s.n);
    snprintf(name, sizeof name, "p%d_params", i);
    run.params = qm_golden_case_floats(c, name, run.n_kept * s.n);
    run.lr = qm_golden_case_rates(c, run.steps);
    qm_run_replay(c, &run);
}

void qm_conform_lpmm_run(struct qm_conform *c, const char *group)
{
    int64_t parameters = qm_golden_case_whole(c, "n_params", 1);
    for (int i = 0; i < parameters && i < 64; i++) {
        char part[16], error[64];
        snprintf(part, sizeof part, "p%d", i);
        if (!qm_golden_case_begin(c, group, parameters > 1 ? part : NULL))
            continue;
        if (qm_golden_case_text(c, "step_error", error, sizeof error))
            qm_golden_case_skip(c, "the source refuses this (%.50s)", error);
        else
            replay(c, i);
        qm_golden_case_end(c);
    }
}
