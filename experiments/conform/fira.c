/* fira.c - Replays the golden vectors of Fira with Adam and with RMSProp.
 *
 * Runs use the recorded projections, because signs of singular vectors depend on the library.
 * tests/golden/README.md states the tolerances, relative to a tensor's largest magnitude. */
#include <string.h>

#include "experiments/conform/tensor_rule_run.h"

static void setup_adam(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    struct qm_hyper *h = &w->hyper;
    w->rule = qm_rule_find("fira");
    w->proj = 2;
    w->state[0] = "state_exp_avg";
    w->state[1] = "state_exp_avg_sq";
    w->state[3] = "state_scaling_grad_norm";
    h->beta1 = qm_tensor_run_number(c, "betas", 0, 0.9);
    h->beta2 = qm_tensor_run_number(c, "betas", 1, 0.999);
    h->correct_bias = (int)qm_golden_case_whole(c, "correct_bias", 1);
}

static void setup_rms(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    struct qm_hyper *h = &w->hyper;
    w->rule = qm_rule_find("fira_rms");
    w->proj = 3;
    w->state[0] = "state_square_avg";
    w->state[1] = "state_momentum_buffer";
    w->state[2] = "state_grad_avg";
    w->state[4] = "state_scaling_grad_norm";
    h->beta2 = qm_tensor_run_number(c, "beta", 0, 0.9);
    h->momentum = qm_tensor_run_number(c, "momentum", 0, 0.0);
    h->centered = (int)qm_golden_case_whole(c, "centered", 0);
}

static void setup(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    static const char *const sides[] = {"std", "reverse_std", "right", "left"};
    struct qm_hyper *h = &w->hyper;
    char text[32] = "";
    w->f64 = (struct qm_tensor_run_tolerance){2e-15, 2e-15, 2e-15, 2e-15, 0.0, 0.0};
    w->f32 = (struct qm_tensor_run_tolerance){2e-6, 2e-6, 2e-6, 2e-6, 0.0, 0.0};
    w->bf16 = w->f32;
    qm_tensor_run_norms(c, w);
    w->has_sums = 1;
    h->lr = qm_tensor_run_number(c, "lr", 0, 1e-3);
    h->eps = qm_tensor_run_number(c, "eps", 0, 1e-6);
    h->weight_decay = qm_tensor_run_number(c, "weight_decay", 0, 0.0);
    h->rank = qm_tensor_run_number(c, "rank", 0, 0.0);
    h->scale = qm_tensor_run_number(c, "alpha", 0, 1.0);
    h->gap = 0.0; /* the recorded matrices are used */
    h->side = -1.0;
    if (!qm_golden_case_text(c, "proj_type", text, sizeof text))
        strcpy(text, "std");
    for (int i = 0; i < 4; i++)
        h->side = strcmp(text, sides[i]) == 0 ? (double)i : h->side;
    if (h->side < 0.0)
        qm_golden_case_skip(c, "proj_type '%s' keeps two matrices, the file one", text);
    if (qm_golden_case_text(c, "optimizer", text, sizeof text) && strcmp(text, "FiraAdamW") == 0)
        setup_adam(c, w);
    else if (strcmp(text, "FiraRMSProp") == 0)
        setup_rms(c, w);
    else
        qm_golden_case_skip(c, "optimizer '%s' is not one of this file's", text);
}

void qm_conform_fira(struct qm_conform *c) { qm_tensor_run_replay(c, setup, NULL); }
