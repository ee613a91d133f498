/* apollo.c - Replays the golden vectors of APOLLO and APOLLO-Mini.
 *
 * Runs use the recorded projections; case NAME/proj judges the projections drawn here, seeds
 * exactly and entries within 2e-6.  tests/golden/README.md states the other tolerances, relative to
 * a tensor's largest magnitude. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/rule/lowrank.h"
#include "experiments/conform/tensor_rule_run.h"

#define ENTRY_TOLERANCE 2e-6

/* The side of proj_type; -1, and the case skipped, for a type that the source does not run. */
static int side_of(struct qm_conform *c)
{
    static const char *const names[] = {"std", "reverse_std", "right", "left"};
    char type[32] = "std";
    if (qm_golden_text(c->file, c->group, "proj_type", type, sizeof type) == 0)
        strcpy(type, "std");
    for (int i = 0; i < 4; i++)
        if (strcmp(type, names[i]) == 0)
            return i;
    qm_golden_case_skip(c, "proj_type '%s': the random projector does not implement it", type);
    return -1;
}

static void setup(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    struct qm_hyper *h = &w->hyper;
    char text[32] = "";
    w->rule = qm_rule_find("apollo");
    w->f64 = (struct qm_tensor_run_tolerance){2e-15, 2e-15, 2e-15, 2e-15, 0.0, 0.0};
    w->f32 = (struct qm_tensor_run_tolerance){2e-6, 2e-6, 2e-6, 2e-6, 0.0, 0.0};
    w->bf16 = w->f32;
    qm_tensor_run_norms(c, w);
    w->tensor = (uint32_t)qm_golden_case_whole(c, "param_index", 1) - 1;
    w->proj = 2;
    w->state[0] = "state_exp_avg";
    w->state[1] = "state_exp_avg_sq";
    w->state[3] = "state_scaled_grad_norm";
    h->lr = qm_tensor_run_number(c, "lr", 0, 1e-3);
    h->beta1 = qm_tensor_run_number(c, "betas", 0, 0.9);
    h->beta2 = qm_tensor_run_number(c, "betas", 1, 0.999);
    h->eps = qm_tensor_run_number(c, "eps", 0, 1e-6);
    h->weight_decay = qm_tensor_run_number(c, "weight_decay", 0, 0.0);
    h->correct_bias = (int)qm_golden_case_whole(c, "correct_bias", 1);
    h->scale_front = (int)qm_golden_case_whole(c, "scale_front", 0);
    h->limiter = !qm_golden_case_whole(c, "disable_nl", 0);
    h->rank = qm_tensor_run_number(c, "rank", 0, 0.0);
    h->scale = qm_tensor_run_number(c, "scale", 0, 1.0);
    h->side = (double)side_of(c);
    h->gap = 0.0; /* the recorded matrices are used */
    qm_golden_case_text(c, "scale_type", text, sizeof text);
    h->tensor_scale = strcmp(text, "tensor") == 0;
    qm_golden_case_text(c, "proj", text, sizeof text);
    h->svd = strcmp(text, "svd") == 0;
}

/* Draws the projections again from the parameter's number. */
static void replay_proj(struct qm_conform *c)
{
    struct qm_tensor_run_case w = {.hyper = qm_hyper_default()};
    struct qm_shape shape;
    struct qm_lowrank l;
    setup(c, &w);
    if (!qm_golden_case_open(c) || !qm_tensor_run_shape(c, &shape) ||
        !qm_lowrank_of(&w.hyper, 0, &shape, &l))
        return;
    int64_t count = qm_golden_case_numel(c, "proj_seed"),
            gap = qm_golden_case_whole(c, "update_proj_gap", 200);
    int64_t n = l.r * (l.right ? l.n : l.m);
    const uint64_t *want_seed = qm_golden_case_words(c, "proj_seed", count);
    const int64_t *step = qm_golden_case_ints(c, "proj_step", count);
    const float *want = qm_golden_case_floats(c, "proj", count * n);
    uint64_t *seed = qm_golden_case_memory(c, count, sizeof *seed);
    float *got = qm_golden_case_memory(c, count * n, sizeof *got);
    if (!qm_golden_case_open(c))
        return;
    for (int64_t k = 0; k < count; k++) {
        seed[k] = qm_lowrank_seed((uint64_t)w.tensor + 1, gap > 0 ? step[k] / gap : k);
        qm_lowrank_random(seed[k], n, l.r, got + k * n);
    }
    snprintf(c->now.how, sizeof c->now.how, "MT19937 from seed %d", (int)w.tensor + 1);
    qm_judge_words(c, "seed", seed, want_seed, count);
    qm_judge_close(c, "entry", got, want, count * n, 0.0, ENTRY_TOLERANCE);
}

static void extra(struct qm_conform *c, const char *group)
{
    char path[2 * QM_GOLDEN_PATH];
    snprintf(path, sizeof path, "%s/proj_seed", group);
    if (qm_golden_at(c->file, path) != QM_GOLDEN_DATASET || !qm_golden_case_begin(c, group, "proj"))
        return;
    replay_proj(c);
    qm_golden_case_end(c);
}

void qm_conform_apollo(struct qm_conform *c) { qm_tensor_run_replay(c, setup, extra); }
