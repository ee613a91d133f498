/* lpmm_run.c - Replays the recorded runs of lpmm's AdamW and SGD. */
#include <stdio.h>
#include <string.h>

#include "experiments/conform/lpmm.h"
#include "experiments/conform/run.h"

/* Of runs that are not fused, each step from the recorded state; fused runs are compared bit for
 * bit (tests/golden/README.md). */
static const struct qm_run_tolerance teacher_forced = {.param_absolute = 2e-7,
                                                       .scale_relative = 5e-7,
                                                       .value_largest = 5e-7,
                                                       .factor_relative = 5e-7,
                                                       .code_share = 1e-3};

/* Reads scales after every step as one row: dataset "NAME_scale", or one dataset per axis. */
static int scales_read(struct qm_conform *c, const char *name, int64_t steps,
                       struct qm_run_slot *out)
{
    char axis[64];
    int64_t n[QM_MAX_RANK], filled = 0;
    const float *part[QM_MAX_RANK];
    int axes = 0;
    if (qm_golden_case_has(c, name)) {
        out->n_scales = qm_golden_case_numel(c, name) / steps;
        out->scales = qm_golden_case_floats(c, name, steps * out->n_scales);
        return out->scales != NULL;
    }
    out->n_scales = 0;
    for (; axes < QM_MAX_RANK; axes++) {
        snprintf(axis, sizeof axis, "%s_dim%d", name, axes);
        if (!qm_golden_case_has(c, axis))
            break;
        n[axes] = qm_golden_case_numel(c, axis) / steps;
        if (!(part[axes] = qm_golden_case_floats(c, axis, steps * n[axes])))
            return 0;
        out->n_scales += n[axes];
    }
    float *all = qm_golden_case_memory(c, steps * out->n_scales, sizeof *all);
    if (!all)
        return 0;
    for (int64_t t = 0; t < steps; t++)
        for (int k = 0; k < axes; k++) {
            memcpy(all + filled, part[k] + t * n[k], (size_t)n[k] * sizeof *all);
            filled += n[k];
        }
    out->scales = all;
    return 1;
}

/* Reads state "m" or "v" of parameter i: codes and scales, or float32 values at the kept steps. */
static int slot_read(struct qm_conform *c, struct qm_run *run, int slot, int i, int64_t n)
{
    const char *which = slot == 0 ? "m" : "v";
    char name[48], text[QM_QUANTIZER_TEXT];
    if (slot >= 2) { /* row and column factors, after every step */
        snprintf(name, sizeof name, "p%d_v_%s", i, slot == 2 ? "row" : "col");
        run->slot[slot].every_step = 1;
        if (qm_golden_case_has(c, name))
            run->slot[slot].values = qm_golden_case_floats(c, name, qm_golden_case_numel(c, name));
        return qm_golden_case_open(c);
    }
    snprintf(name, sizeof name, "p%d_%s_codes", i, which);
    if (qm_golden_case_has(c, name)) {
        run->slot[slot].codes = qm_golden_case_ints(c, name, run->steps * n);
        snprintf(name, sizeof name, "p%d_%s_scale", i, which);
        return run->slot[slot].codes && scales_read(c, name, run->steps, &run->slot[slot]) &&
               qm_lpmm_quantizer(c, slot == 0 ? "M_" : "SQM_", text, sizeof text) &&
               qm_run_quantizer(c, &run->recipe, slot, text, 0, 0.0f);
    }
    snprintf(name, sizeof name, "p%d_%s_fp32", i, which);
    if (qm_golden_case_numel(c, name) ==
        run->n_kept * n) /* SGD without momentum stores a placeholder */
        run->slot[slot].values = qm_golden_case_floats(c, name, run->n_kept * n);
    return qm_golden_case_open(c);
}

static const char *rule_of(struct qm_conform *c, int sgd)
{
    char contraction[16];
    if (sgd)
        return "sgdm_lpmm";
    if (qm_golden_case_whole(c, "factor_second_moment", 0)) /* 1-D tensors take the plain path */
        return "adamw_lpmm_factor";
    if (!qm_golden_case_whole(c, "fused", 0))
        return "adamw_lpmm";
    qm_golden_case_text(c, "contraction", contraction, sizeof contraction);
    return strcmp(contraction, "fma") == 0 ? "adamw_lpmm_fused" : "adamw_lpmm_fused_strict";
}

static void replay(struct qm_conform *c, int i)
{
    static const struct qm_golden_need needs[] = {
        {"T", QM_NEED_number, 1, 1e6, 0},      {"lr", QM_NEED_number, 0, 1e30, 0},
        {"beta1", QM_NEED_number, 0, 1, 1},    {"beta2", QM_NEED_number, 0, 1, 1},
        {"eps", QM_NEED_number, 0, 1e30, 1},   {"weight_decay", QM_NEED_number, 0, 1e30, 1},
        {"momentum", QM_NEED_number, 0, 1, 1},
    };
    struct qm_run run = {.steps = qm_golden_case_whole(c, "T", 0)};
    char name[48];
    if (!qm_golden_case_needs(c, needs, sizeof needs / sizeof *needs) ||
        !qm_golden_case_one_rate(c))
        return;
    snprintf(name, sizeof name, "p%d_init", i);
    int64_t n = qm_golden_case_numel(c, name);
    int sgd = qm_golden_case_number(c, "momentum", -1.0) >= 0.0;
    run.p0 = qm_golden_case_floats(c, name, n);
    snprintf(name, sizeof name, "shape_p%d", i);
    run.shape = qm_run_shape(c, name, n);
    if (!run.p0 || run.steps < 1)
        return;
    if (!qm_run_recipe(c, rule_of(c, sgd), &run.recipe))
        return;
    struct qm_hyper *h = &run.recipe.hyper;
    h->lr = qm_golden_case_number(c, "lr", 1e-3);
    h->beta1 = qm_golden_case_number(c, "beta1", 0.9);
    h->beta2 = qm_golden_case_number(c, "beta2", 0.999);
    h->eps = qm_golden_case_number(c, "eps", 1e-8);
    h->weight_decay = qm_golden_case_number(c, "weight_decay", 0.0);
    h->momentum = qm_golden_case_number(c, "momentum", 0.0);
    h->dampening = qm_golden_case_number(c, "dampening", 0.0);
    h->nesterov = (int)qm_golden_case_whole(c, "nesterov", 0);
    h->maximize = (int)qm_golden_case_whole(c, "maximize", 0);
    h->factored = 1;
    if (!qm_golden_case_whole(c, "fused", 0) || qm_golden_case_whole(c, "factor_second_moment", 0))
        run.within = teacher_forced;
    run.n_kept = qm_golden_numbers(c->file, c->group, "kept_steps", NULL, 0);
    double *kept = qm_golden_case_memory(c, run.n_kept, sizeof *kept);
    int64_t *steps = qm_golden_case_memory(c, run.n_kept, sizeof *steps);
    if (!kept || !steps)
        return;
    qm_golden_numbers(c->file, c->group, "kept_steps", kept, (int)run.n_kept);
    for (int64_t k = 0; k < run.n_kept; k++)
        steps[k] = (int64_t)kept[k];
    run.kept = steps;
    for (int slot = 0; slot < run.recipe.rule->n_slots; slot++)
        if (!slot_read(c, &run, slot, i, n))
            return;
    snprintf(name, sizeof name, "p%d_grads", i);
    run.grads = qm_golden_case_floats(c, name, run.steps * n);
    snprintf(name, sizeof name, "p%d_params", i);
    run.params = qm_golden_case_floats(c, name, run.n_kept * n);
    if (qm_golden_case_has(c, "lr_per_step"))
        run.lr = qm_golden_case_doubles(c, "lr_per_step", run.steps);
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
