/* came.c - Replays the golden vectors of CAME.
 *
 * tests/golden/README.md states the tolerances, relative to a tensor's largest magnitude. */
#include <string.h>

#include "experiments/conform/tensor_rule_run.h"

static void setup(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    static const char *const states[] = {"state_exp_avg",         "state_exp_avg_sq_row",
                                         "state_exp_avg_sq_col",  "state_exp_avg_sq",
                                         "state_exp_avg_res_row", "state_exp_avg_res_col"};
    struct qm_hyper *h = &w->hyper;
    w->rule = qm_rule_find("came");
    w->f64 = (struct qm_tensor_run_tolerance){5e-15, 5e-15, 5e-15, 5e-15, 0.0, 0.0};
    w->f32 = (struct qm_tensor_run_tolerance){2e-6, 2e-6, 2e-6, 2e-6, 0.0, 0.0};
    w->bf16 = (struct qm_tensor_run_tolerance){2e-6, 0.0, 2e-6, 2e-2, 0.0, 0.0};
    qm_tensor_run_norms(c, w);
    memcpy(w->state, states, sizeof states);
    h->lr = qm_tensor_run_number(c, "lr", 0, 0.0);
    h->eps1 = qm_tensor_run_number(c, "eps", 0, 1e-30);
    h->eps2 = qm_tensor_run_number(c, "eps", 1, 1e-16);
    h->clip = qm_tensor_run_number(c, "clip_threshold", 0, 1.0);
    h->beta1 = qm_tensor_run_number(c, "betas", 0, 0.9);
    h->beta2 = qm_tensor_run_number(c, "betas", 1, 0.999);
    h->beta3 = qm_tensor_run_number(c, "betas", 2, 0.9999);
    h->weight_decay = qm_tensor_run_number(c, "weight_decay", 0, 0.0);
}

void qm_conform_came(struct qm_conform *c) { qm_tensor_run_replay(c, setup, NULL); }
