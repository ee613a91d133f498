/* reference.c - Replays the golden vectors of torch.optim: AdamW, Adam, SGD; float64 and float32.
 *
 * float32 judges the rules, every bit.  float64 judges the oracle, each step from the recorded
 * state, to 1e-14 of the largest magnitude of a tensor. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/conform/run.h"
#include "oracle/oracle.h"

#define DOUBLE_TOLERANCE 1e-14

/* The family, and the dataset of each state in the order of the rule's slots. */
static const struct {
    const char *family;
    int n_slots;
    const char *state[2];
} families[] = {{"adamw", 2, {"state_exp_avg", "state_exp_avg_sq"}},
                {"adam", 2, {"state_exp_avg", "state_exp_avg_sq"}},
                {"sgdm", 1, {"state_momentum_buffer", NULL}}};

static int family_of(struct qm_conform *c)
{
    char optimizer[32];
    qm_case_text(c, "optimizer", optimizer, sizeof optimizer);
    if (strcmp(optimizer, "AdamW") == 0)
        return 0;
    if (strcmp(optimizer, "Adam") == 0)
        return 1;
    if (strcmp(optimizer, "SGD") == 0)
        return 2;
    qm_case_skip(c, "optimizer '%s': not built yet", optimizer);
    return -1;
}

static struct qm_hyper hyper_read(struct qm_conform *c)
{
    struct qm_hyper h = qm_hyper_default();
    double betas[2] = {h.beta1, h.beta2};
    qm_golden_numbers(c->file, c->group, "betas", betas, 2);
    h.lr = qm_case_number(c, "lr", h.lr);
    h.beta1 = betas[0];
    h.beta2 = betas[1];
    h.eps = qm_case_number(c, "eps", h.eps);
    h.weight_decay = qm_case_number(c, "weight_decay", 0.0);
    h.momentum = qm_case_number(c, "momentum", 0.0);
    h.dampening = qm_case_number(c, "dampening", 0.0);
    h.nesterov = (int)qm_case_whole(c, "nesterov", 0);
    h.maximize = (int)qm_case_whole(c, "maximize", 0);
    h.amsgrad = (int)qm_case_whole(c, "amsgrad", 0);
    return h;
}

static void replay_float(struct qm_conform *c, int family, int64_t steps, int64_t n)
{
    struct qm_run run = {.steps = steps};
    char rule[32];
    int amsgrad = (int)qm_case_whole(c, "amsgrad", 0);
    snprintf(rule, sizeof rule, "%s%s", families[family].family, amsgrad ? "_amsgrad" : "");
    if (!qm_run_recipe(c, rule, &run.recipe))
        return;
    run.recipe.hyper = hyper_read(c);
    run.shape = qm_run_shape(c, "shape", n);
    for (int i = 0; i < families[family].n_slots; i++)
        if (qm_case_has(c, families[family].state[i]))
            run.slot[i].values = qm_case_floats(c, families[family].state[i], steps * n);
    if (amsgrad)
        run.slot[2].values = qm_case_floats(c, "state_max_exp_avg_sq", steps * n);
    run.p0 = qm_case_floats(c, "param0", n);
    run.grads = qm_case_floats(c, "grads", steps * n);
    run.params = qm_case_floats(c, "params", steps * n);
    run.n_kept = steps;
    run.kept = qm_run_all_steps(c, steps);
    qm_run_replay(c, &run);
}

/* ---- float64 ---- */

static double largest(const double *x, int64_t n)
{
    double m = 0;
    for (int64_t i = 0; i < n; i++)
        m = fabs(x[i]) > m ? fabs(x[i]) : m;
    return m;
}

struct double_run {
    const struct qm_oracle *oracle;
    struct qm_oracle_hyper h;
    int64_t steps, n;
    int n_states;           /* recorded states; amsgrad has one more than its family */
    const double *state[4]; /* [steps][n]; NULL: not kept (SGD without momentum) */
    const char *state_name[4];
    const double *p0, *grads, *params;
};

static void run_double(struct qm_conform *c, const struct double_run *r)
{
    size_t bytes = (size_t)r->n * sizeof(double);
    double *p = qm_case_memory(c, r->n, sizeof *p), *slot[4];
    for (int i = 0; i < 4; i++)
        if (!(slot[i] = qm_case_memory(c, r->n, sizeof **slot)))
            return;
    if (!p)
        return;
    memcpy(p, r->p0, bytes);
    for (int64_t t = 1; t <= r->steps && qm_case_open(c); t++) {
        char what[96];
        for (int i = 0; i < r->n_states && t > 1; i++)
            if (r->state[i])
                memcpy(slot[i], r->state[i] + (t - 2) * r->n, bytes);
        if (t > 1)
            memcpy(p, r->params + (t - 2) * r->n, bytes);
        r->oracle->step(p, slot, r->grads + (t - 1) * r->n, 1, r->n, &r->h, t);
        for (int i = 0; i < r->n_states; i++) {
            const double *want = r->state[i] ? r->state[i] + (t - 1) * r->n : NULL;
            snprintf(what, sizeof what, "step %lld %s", (long long)t, r->state_name[i]);
            if (want)
                qm_judge_close_double(c, what, slot[i], want, r->n,
                                      DOUBLE_TOLERANCE * largest(want, r->n));
        }
        const double *want = r->params + (t - 1) * r->n;
        snprintf(what, sizeof what, "step %lld parameter", (long long)t);
        qm_judge_close_double(c, what, p, want, r->n, DOUBLE_TOLERANCE * largest(want, r->n));
    }
}

static void replay_double(struct qm_conform *c, int family, int64_t steps, int64_t n)
{
    struct double_run r = {.oracle = qm_oracle_find(families[family].family),
                           .steps = steps,
                           .n = n,
                           .n_states = families[family].n_slots};
    struct qm_hyper h = hyper_read(c);
    if (!r.oracle) {
        qm_case_skip(c, "oracle %s: not built yet", families[family].family);
        return;
    }
    snprintf(c->now.how, sizeof c->now.how, "oracle %s", families[family].family);
    r.h = (struct qm_oracle_hyper){.lr = h.lr,
                                   .beta1 = h.beta1,
                                   .beta2 = h.beta2,
                                   .eps = h.eps,
                                   .weight_decay = h.weight_decay,
                                   .momentum = h.momentum,
                                   .dampening = h.dampening,
                                   .nesterov = h.nesterov,
                                   .maximize = h.maximize,
                                   .amsgrad = (int)qm_case_whole(c, "amsgrad", 0)};
    for (int i = 0; i < families[family].n_slots; i++)
        r.state_name[i] = families[family].state[i];
    if (r.h.amsgrad) /* the oracle takes the running maximum in one more slot */
        r.state_name[r.n_states++] = "state_max_exp_avg_sq";
    for (int i = 0; i < r.n_states; i++)
        if (qm_case_has(c, r.state_name[i]) &&
            !(r.state[i] = qm_case_doubles(c, r.state_name[i], steps * n)))
            return;
    r.p0 = qm_case_doubles(c, "param0", n);
    r.grads = qm_case_doubles(c, "grads", steps * n);
    r.params = qm_case_doubles(c, "params", steps * n);
    if (r.p0 && r.grads && r.params)
        run_double(c, &r);
}

void qm_conform_reference(struct qm_conform *c)
{
    char name[128], dtype[16];
    int members = qm_golden_members(c->file, "");
    for (int i = 0; i < members; i++) {
        if (!qm_golden_member(c->file, "", i, name, sizeof name) || !qm_case_begin(c, name, NULL))
            continue;
        int family = family_of(c);
        int64_t steps = qm_case_whole(c, "steps", 0), n = qm_case_numel(c, "param0");
        qm_case_text(c, "dtype", dtype, sizeof dtype);
        if (family >= 0 && strcmp(dtype, "f32") == 0)
            replay_float(c, family, steps, n);
        else if (family >= 0 && strcmp(dtype, "f64") == 0)
            replay_double(c, family, steps, n);
        else if (family >= 0)
            qm_case_skip(c, "dtype '%s': not built yet", dtype);
        qm_case_end(c);
    }
}
