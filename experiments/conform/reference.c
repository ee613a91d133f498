/* reference.c - Replays the golden vectors of torch.optim.
 *
 * AdamW, Adam, SGD, RMSprop, Adagrad, NAdam and RAdam.  float32 judges the rules; float64 judges
 * the oracle, each step from the recorded state, to 1e-14 of the largest magnitude of a tensor;
 * bfloat16 judges the rules with parameters and states in bfloat16.  tests/golden/README.md states
 * the tolerances.  Adafactor is in adafactor.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/conform/run.h"
#include "experiments/conform/tensor_rule_run.h"
#include "experiments/recipes/oracle_hyper.h"

#define DOUBLE_TOLERANCE 1e-14

/* The option that asks for another rule of a class. */
enum option { NONE, DECOUPLED, FULL }; /* FULL: RMSprop that is centered or has a momentum */

/* A class with an option: the rule, and the dataset of each state in the order of its slots. */
struct family {
    const char *optimizer;
    enum option option;
    const char *rule;
    int n_slots, has_tail, has_old; /* has_tail: the fused kernel's last elements have a rule */
    const char *state[3];
    const char *takes; /* for each state m, s or q: mean, square, quotient (enum qm_run_takes) */
};
/* clang-format off */
static const struct family families[] = {
    {"AdamW",   NONE,      "adamw",        2, 1, 1, {"state_exp_avg", "state_exp_avg_sq", NULL}, "ms"},
    {"AdamW",   DECOUPLED, "adamw",        2, 1, 1, {"state_exp_avg", "state_exp_avg_sq", NULL}, "ms"},
    {"Adam",    NONE,      "adam",         2, 1, 1, {"state_exp_avg", "state_exp_avg_sq", NULL}, "ms"},
    {"Adam",    DECOUPLED, "adamw",        2, 1, 1, {"state_exp_avg", "state_exp_avg_sq", NULL}, "ms"},
    {"SGD",     NONE,      "sgdm",         1, 1, 0, {"state_momentum_buffer", NULL, NULL}, "m"},
    {"RMSprop", NONE,      "rmsprop",      1, 0, 0, {"state_square_avg", NULL, NULL}, "s"},
    {"RMSprop", FULL,      "rmsprop_full", 3, 0, 0, {"state_square_avg", "state_grad_avg", "state_momentum_buffer"}, "smq"},
    {"Lion",    NONE,      "lion",         1, 0, 0, {"state_exp_avg", NULL, NULL}, ""},
    {"Adagrad", NONE,      "adagrad",      1, 0, 0, {"state_sum", NULL, NULL}, "s"},
    {"NAdam",   NONE,      "nadam",        2, 0, 0, {"state_exp_avg", "state_exp_avg_sq", NULL}, "ms"},
    {"NAdam",   DECOUPLED, "nadamw",       2, 0, 0, {"state_exp_avg", "state_exp_avg_sq", NULL}, "ms"},
    {"RAdam",   NONE,      "radam",        2, 0, 0, {"state_exp_avg", "state_exp_avg_sq", NULL}, "ms"},
    {"RAdam",   DECOUPLED, "radamw",       2, 0, 0, {"state_exp_avg", "state_exp_avg_sq", NULL}, "ms"},
};
/* clang-format on */
enum { FAMILIES = sizeof families / sizeof *families };

/* A recorded run. */
struct record {
    const struct family *f;
    struct qm_hyper h;
    int64_t steps, n;
    int is_fused, is_foreach, is_ieee;
    int is_old, is_gpu; /* is_old: PyTorch 1 */
    double first, *lr;  /* of the state; [steps] or NULL */
};

/* Whether an attribute has this text. */
static int says(struct qm_conform *c, const char *name, const char *text)
{
    char value[32];
    qm_golden_case_text(c, name, value, sizeof value);
    return strcmp(value, text) == 0;
}

static struct qm_hyper hyper_read(struct qm_conform *c)
{
    struct qm_hyper h = qm_hyper_default();
    double betas[2] = {h.beta1, h.beta2};
    qm_golden_numbers(c->file, c->group, "betas", betas, 2);
    h.lr = qm_golden_case_number(c, "lr", h.lr);
    h.beta1 = betas[0];
    h.beta2 = qm_golden_case_number(c, "alpha", betas[1]); /* RMSprop's name */
    h.eps = qm_golden_case_number(c, "eps", h.eps);
    h.weight_decay = qm_golden_case_number(c, "weight_decay", 0.0);
    h.momentum = qm_golden_case_number(c, "momentum", 0.0);
    h.dampening = qm_golden_case_number(c, "dampening", 0.0);
    h.momentum_decay = qm_golden_case_number(c, "momentum_decay", h.momentum_decay);
    h.nesterov = (int)qm_golden_case_whole(c, "nesterov", 0);
    h.maximize = (int)qm_golden_case_whole(c, "maximize", 0);
    h.amsgrad = (int)qm_golden_case_whole(c, "amsgrad", 0);
    h.centered = (int)qm_golden_case_whole(c, "centered", 0);
    return h;
}

/* The rule of the class with these options. */
static const struct family *family_of(struct qm_conform *c, const struct qm_hyper *h)
{
    static const char *const words[] = {"", " with decoupled_weight_decay",
                                        " with centered or momentum"};
    char optimizer[32];
    qm_golden_case_text(c, "optimizer", optimizer, sizeof optimizer);
    enum option option = qm_golden_case_whole(c, "decoupled_weight_decay", 0) ? DECOUPLED
                         : h->centered || (strcmp(optimizer, "RMSprop") == 0 && h->momentum > 0.0)
                             ? FULL
                             : NONE;
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(optimizer, families[i].optimizer) == 0 && families[i].option == option)
            return &families[i];
    qm_golden_case_skip(c, "optimizer '%s'%s: not built yet", optimizer, words[option]);
    return NULL;
}

/* What a run must have. */
static const struct qm_golden_need run_needs[] = {
    {"steps", QM_NEED_number, 1, 1e6, 0},
    {"optimizer", QM_NEED_text, 0, 0, 0},
    {"dtype", QM_NEED_text, 0, 0, 0},
    {"lr", QM_NEED_number, 0, 1e30, 0},
    {"eps", QM_NEED_number, 0, 1e30, 1},
    {"alpha", QM_NEED_number, 0, 1, 1},
    {"weight_decay", QM_NEED_number, 0, 1e30, 1},
    {"momentum", QM_NEED_number, 0, 1, 1},
    {"dampening", QM_NEED_number, 0, 1, 1},
    {"param0", QM_NEED_data, 0, 0, 0},
    {"grads", QM_NEED_data, 0, 0, 0},
    {"params", QM_NEED_data, 0, 0, 0},
};

static int record_read(struct qm_conform *c, struct record *r)
{
    char version[32];
    double decay = qm_golden_case_number(c, "lr_decay", 0.0);
    r->h = hyper_read(c);
    if (!(r->f = family_of(c, &r->h)) ||
        !qm_golden_case_needs(c, run_needs, sizeof run_needs / sizeof *run_needs))
        return 0;
    r->steps = qm_golden_case_whole(c, "steps", 0);
    r->n = qm_golden_case_numel(c, "param0");
    r->is_fused = says(c, "impl", "fused");
    r->is_foreach = says(c, "impl", "foreach");
    r->is_gpu = says(c, "device", "cuda");
    r->is_ieee = !says(c, "sqrt", "installed"); /* older recordings have no such attribute */
    qm_golden_text(c->file, "", "torch_version", version, sizeof version);
    r->is_old = strncmp(version, "1.", 2) == 0;
    r->first = qm_golden_case_number(c, "initial_accumulator_value", 0.0);
    r->lr = qm_golden_case_rates(c, r->steps);
    if (decay != 0.0) {
        const double *given = r->lr;
        if (!(r->lr = qm_golden_case_memory(c, r->steps, sizeof *r->lr)))
            return 0;
        for (int64_t t = 1; t <= r->steps; t++)
            r->lr[t - 1] = (given ? given[t - 1] : r->h.lr) / (1.0 + (double)(t - 1) * decay);
    }
    return qm_golden_case_open(c);
}

/* ---- float32 and bfloat16 -------------------------------------------------------------------- */

/* Every bit, but: the package's own square roots are off by an ulp (not those of its fused kernels,
 * and SGD has none), and bfloat16 outside of the fused kernels is rounded after every operation,
 * the sum with an L2 term too.  A momentum of RMSprop takes in g / root, whose size is at most that
 * of its old and its new value: where both cancel, so does the step, but not the error; in bfloat16
 * that holds of SGD's momentum, too, and the step has lr times what the momentum may be off by.
 * The sign of a sum of Lion is open within the three roundings of its terms, and where two of them,
 * each off by half of 2^-133, make it 0.
 * A state takes at most three roundings there (L2 term, product, sum) and one here, a parameter as
 * many: four halves of bfloat16's least number.  An L2 term there has the roundings of
 * weight_decay and of its product, 2^-8 each, where it may cancel most of the gradient.
 * A decay beside the step (decoupled) may cancel most of the step. */
static struct qm_run_tolerance tolerance(const struct record *r, int is_bf16)
{
    const char *rule = r->f->rule;
    int has_root = strcmp(rule, "sgdm") != 0, is_lion = strcmp(rule, "lion") == 0;
    int is_decoupled = is_lion || rule[strlen(rule) - 1] == 'w';
    int has_moment = !is_lion && has_root && r->f->takes[0] == 'm';
    int has_buffer = r->h.momentum > 0.0 || !has_root; /* RMSprop and SGD */
    if (r->is_gpu) /* nvcc contracts what it will, in float32 throughout */
        return (struct qm_run_tolerance){.param_relative = 0x1p-22,
                                         .param_of_step = 0x1p-18,
                                         .is_decoupled = is_decoupled,
                                         .value_relative = 0x1p-21,
                                         .value_largest = 0x1p-22};
    struct qm_run_tolerance narrow = {.param_relative = 0x1p-7,
                                      .param_of_step = 0x1p-4,
                                      .is_decoupled = is_decoupled,
                                      .param_absolute = 0x1p-132,
                                      .value_absolute = 0x1p-132,
                                      .is_narrow = 1,
                                      .value_relative = 0x1p-6,
                                      .has_moment = has_moment,
                                      .has_parts = strncmp(rule, "nadam", 5) == 0,
                                      .param_of_values = has_buffer ? 0x1p-6 : 0.0,
                                      .slot = has_buffer && has_root ? 2 : 0,
                                      .l2_relative = is_decoupled ? 0.0 : 0x1p-7,
                                      .sign_relative = is_lion ? 0x1p-7 : 0.0};
    for (int i = 0; i < 3 && r->f->takes[i]; i++) {
        char takes = r->f->takes[i];
        narrow.takes[i] = takes == 'm'   ? QM_TAKES_MEAN
                          : takes == 's' ? QM_TAKES_SQUARE
                                         : QM_TAKES_QUOTIENT;
        narrow.weight[i] = !has_root || takes == 'q' || strcmp(rule, "adagrad") == 0 ? 1.0
                           : takes == 's' || strncmp(rule, "rmsprop", 7) == 0 ? 1.0 - r->h.beta2
                                                                              : 1.0 - r->h.beta1;
    }
    if (r->h.amsgrad) { /* its maximum of second moments takes in what they do */
        narrow.takes[r->f->n_slots] = narrow.takes[r->f->n_slots - 1];
        narrow.weight[r->f->n_slots] = narrow.weight[r->f->n_slots - 1];
    }
    if (is_bf16 && !r->is_fused)
        return narrow;
    if (!is_bf16 && has_root && !r->is_ieee && !r->is_fused)
        return (struct qm_run_tolerance){.param_relative = 0x1p-22,
                                         .param_of_step = 0x1p-20,
                                         .is_decoupled = is_decoupled,
                                         .value_relative = r->h.momentum > 0.0 ? 0x1p-21 : 0.0,
                                         .param_of_values = r->h.momentum > 0.0 ? 0x1p-21 : 0.0,
                                         .slot = r->h.momentum > 0.0 ? 2 : 0};
    return (struct qm_run_tolerance){.param_relative = 0.0};
}

/* Columns `from` to `to` of rows of n numbers. */
static float *columns(struct qm_conform *c, const float *all, int64_t rows, int64_t n, int64_t from,
                      int64_t to)
{
    float *out = qm_golden_case_memory(c, rows * (to - from), sizeof *out);
    for (int64_t t = 0; all && out && t < rows; t++)
        memcpy(out + t * (to - from), all + t * n + from, (size_t)(to - from) * sizeof *out);
    return all ? out : NULL;
}

/* Replays elements `from` to `to` by the rule with this suffix. */
static void replay_part(struct qm_conform *c, const struct record *r, int is_bf16,
                        const char *suffix, int64_t from, int64_t to)
{
    struct qm_run run = {.steps = r->steps, .lr = r->lr, .within = tolerance(r, is_bf16)};
    int64_t steps = r->steps, n = r->n;
    char rule[40];
    int amsgrad = r->h.amsgrad;
    if (from == to || !qm_golden_case_open(c))
        return;
    snprintf(rule, sizeof rule, "%s%s%s", r->f->rule, amsgrad ? "_amsgrad" : "", suffix);
    if (!qm_run_recipe(c, rule, &run.recipe))
        return;
    run.recipe.hyper = r->h;
    run.shape = to - from == n ? qm_run_shape(c, "shape", n) : qm_shape_flat(to - from);
    for (int i = 0; i < r->f->n_slots + amsgrad; i++) {
        const char *name = i < r->f->n_slots ? r->f->state[i] : "state_max_exp_avg_sq";
        if (qm_golden_case_has(c, name))
            run.slot[i].values =
                columns(c, qm_golden_case_floats(c, name, steps * n), steps, n, from, to);
        run.slot[i].first = (float)r->first;
        if (is_bf16 && !qm_run_quantizer(c, &run.recipe, i, "bf16", 0, 0.0f))
            return;
    }
    if (is_bf16)
        run.recipe.param = (struct qm_param){QM_PARAM_bf16, QM_WRITE_near};
    run.p0 = columns(c, qm_golden_case_floats(c, "param0", n), 1, n, from, to);
    run.grads = columns(c, qm_golden_case_floats(c, "grads", steps * n), steps, n, from, to);
    run.params = columns(c, qm_golden_case_floats(c, "params", steps * n), steps, n, from, to);
    run.n_kept = steps;
    run.kept = qm_run_all_steps(c, steps);
    qm_run_replay(c, &run);
}

/* The fused kernels take vectors of eight elements, in bfloat16 of sixteen; what remains is
 * computed by scalar code, which the compiler contracted otherwise. */
static void replay_float(struct qm_conform *c, const struct record *r, int is_bf16)
{
    int64_t whole =
        r->is_fused && r->f->has_tail ? r->n / (is_bf16 ? 16 : 8) * (is_bf16 ? 16 : 8) : r->n;
    if (is_bf16 && r->h.centered) {
        qm_golden_case_skip(c, "v - m^2 of numbers that are rounded to bfloat16 may have any sign");
        return;
    }
    char foreach[40];
    snprintf(foreach, sizeof foreach, "%s_foreach", r->f->rule);
    replay_part(c, r, is_bf16,
                r->is_old && r->f->has_old               ? "_t113"
                : r->is_foreach && qm_rule_find(foreach) ? "_foreach" /* NAdam and RAdam */
                                                         : "",
                0, whole);
    replay_part(c, r, is_bf16, "_tail", whole, r->n);
}

/* torch.sqrt of float32 numbers, correctly rounded. */
static void replay_roots(struct qm_conform *c)
{
    int64_t n = qm_golden_case_numel(c, "x");
    float *x = qm_golden_case_floats(c, "x", n), *want = qm_golden_case_floats(c, "sqrt_ieee", n);
    snprintf(c->now.how, sizeof c->now.how, "sqrtf");
    for (int64_t i = 0; x && i < n; i++)
        x[i] = sqrtf(x[i]);
    qm_judge_floats(c, "root", x, want, n);
}

/* ---- float64 --------------------------------------------------------------------------------- */

static double largest(const double *x, int64_t n)
{
    double m = 0;
    for (int64_t i = 0; i < n; i++)
        m = isfinite(x[i]) && fabs(x[i]) > m ? fabs(x[i]) : m;
    return m;
}

struct double_run {
    const struct qm_oracle *oracle;
    struct qm_oracle_hyper h;
    int64_t steps, n;
    int n_states;           /* recorded states; amsgrad has one more than its family */
    const double *state[4]; /* [steps][n]; NULL: not kept (SGD without momentum) */
    const char *state_name[4];
    const double *p0, *grads, *params, *lr; /* lr: [steps], or NULL */
    double first[4], param_absolute;        /* param_absolute: allowed besides, of NAdam */
    int is_radam, has_corrections;
};

/* The relative error of a step by the numbers 1 - beta^t, each off by 2^-52 on either side, for the
 * power is and the difference rounds, and by RAdam's count of steps rho_t, a difference of
 * 2 / (1 - beta2) and a quotient of such a number, which is at least 1 above its limit of 4. */
static double correction_error(const struct double_run *r, int64_t t)
{
    double least1 = 1.0 - pow(r->h.beta1, (double)t), least2 = 1.0 - pow(r->h.beta2, (double)t);
    if (!r->has_corrections)
        return 0.0;
    double rho = r->is_radam ? 2.0 / (1.0 - r->h.beta2) / least2 : 0.0;
    return 0x1p-51 * (1.0 / least1 + 1.0 / least2 + rho);
}

/* The relative error of a quotient of RMSprop by the root of v - m^2, which may cancel: v and m^2
 * are each off by 2^-53 of v on either side, and 1 / sqrt(1 - x) is at most 1 + x up to 0.6. */
static double centered_error(double v, double m)
{
    double left = v - m * m, off = 0x1p-51 * v;
    return v > 0.0 && isfinite(v) ? (left > 2.0 * off ? off / left : HUGE_VAL) : 0.0;
}

/* The largest of these times the size of the quotients, which the momentum takes in; HUGE_VAL where
 * nothing of one is certain. */
static double centered_off(const struct double_run *r, int64_t t)
{
    double most = 0.0;
    for (int64_t k = 0; r->h.centered && r->state[0] && r->state[1] && k < r->n; k++) {
        double v = r->state[0][(t - 1) * r->n + k], m = r->state[1][(t - 1) * r->n + k],
               off = centered_error(v, m), g = r->grads[(t - 1) * r->n + k];
        double root = sqrt(fmax(v - m * m, 0.0)) + r->h.eps;
        most = fmax(most, off == HUGE_VAL             ? off
                          : root > 0.0 && isfinite(g) ? off * fabs(g) / root
                                                      : 0.0);
    }
    return most;
}

/* torch's lerp of an infinite gradient from its other end is NaN where an average is infinite. */
static void take_nan(const double *grad, const double *want, double *got, int64_t n)
{
    for (int64_t k = 0; want && k < n; k++)
        if (!isfinite(grad[k]) && isnan(want[k]) && !isfinite(got[k]))
            got[k] = want[k];
}

static void run_double(struct qm_conform *c, const struct double_run *r)
{
    size_t bytes = (size_t)r->n * sizeof(double);
    double *p = qm_golden_case_memory(c, r->n, sizeof *p), *slot[4];
    for (int i = 0; i < 4; i++)
        if (!(slot[i] = qm_golden_case_memory(c, r->n, sizeof **slot)))
            return;
    if (!p)
        return;
    memcpy(p, r->p0, bytes);
    for (int i = 0; i < r->n_states; i++)
        for (int64_t k = 0; k < r->n; k++)
            slot[i][k] = r->first[i];
    struct qm_oracle_hyper h = r->h;
    for (int64_t t = 1; t <= r->steps && qm_golden_case_open(c); t++) {
        char what[96];
        for (int i = 0; i < r->n_states && t > 1; i++)
            if (r->state[i])
                memcpy(slot[i], r->state[i] + (t - 2) * r->n, bytes);
        if (t > 1)
            memcpy(p, r->params + (t - 2) * r->n, bytes);
        h.lr = r->lr ? r->lr[t - 1] : r->h.lr;
        const double *grad = r->grads + (t - 1) * r->n, *want = r->params + (t - 1) * r->n;
        r->oracle->step(p, slot, grad, 1, r->n, &h, t);
        double centered = centered_off(r, t);
        if (centered == HUGE_VAL)
            qm_golden_case_skip(c, "step %lld: v - m^2 cancels to rounding errors", (long long)t);
        for (int i = 0; i < r->n_states; i++) {
            const double *state = r->state[i] ? r->state[i] + (t - 1) * r->n : NULL;
            snprintf(what, sizeof what, "step %lld %s", (long long)t, r->state_name[i]);
            take_nan(grad, state, slot[i], r->n);
            if (state)
                qm_judge_close_double(c, what, slot[i], state, r->n,
                                      DOUBLE_TOLERANCE * largest(state, r->n) +
                                          (i == 2 ? centered : 0.0));
        }
        double change = 0.0, off = correction_error(r, t);
        for (int64_t k = 0; k < r->n && off > 0.0; k++)
            change = isfinite(p[k] - want[k])
                         ? fmax(change, fabs(want[k] - (t > 1 ? want[k - r->n] : r->p0[k])))
                         : change;
        take_nan(grad, want, p, r->n);
        snprintf(what, sizeof what, "step %lld parameter", (long long)t);
        qm_judge_close_double(c, what, p, want, r->n,
                              DOUBLE_TOLERANCE * largest(want, r->n) + r->param_absolute +
                                  off * change + fabs(h.lr) * centered);
    }
}

static void replay_double(struct qm_conform *c, const struct record *from)
{
    const struct qm_rule *rule = qm_rule_find(from->f->rule);
    struct double_run r = {.oracle = rule ? qm_oracle_find(rule->family) : NULL,
                           .steps = from->steps,
                           .n = from->n,
                           .n_states = from->f->n_slots,
                           .lr = from->lr,
                           .first = {from->first},
                           .h = qm_oracle_hyper_of(&from->h)};
    if (!r.oracle) {
        qm_golden_case_skip(c, "oracle of %s: not built yet", from->f->rule);
        return;
    }
    snprintf(c->now.how, sizeof c->now.how, "oracle %s", r.oracle->family);
    r.is_radam = strncmp(from->f->rule, "radam", 5) == 0;
    r.has_corrections = strstr(from->f->rule, "adam") != NULL;
    if (strncmp(from->f->rule, "nadam", 5) == 0) /* its product of momenta is a float32 number */
        r.param_absolute = 1e-5 * from->h.lr;
    for (int i = 0; i < r.n_states; i++)
        r.state_name[i] = from->f->state[i];
    if (r.h.amsgrad) /* the oracle takes the running maximum in one more slot */
        r.state_name[r.n_states++] = "state_max_exp_avg_sq";
    for (int i = 0; i < r.n_states; i++)
        if (qm_golden_case_has(c, r.state_name[i]) &&
            !(r.state[i] = qm_golden_case_doubles(c, r.state_name[i], r.steps * r.n)))
            return;
    r.p0 = qm_golden_case_doubles(c, "param0", r.n);
    r.grads = qm_golden_case_doubles(c, "grads", r.steps * r.n);
    r.params = qm_golden_case_doubles(c, "params", r.steps * r.n);
    if (r.p0 && r.grads && r.params)
        run_double(c, &r);
}

static void replay_case(struct qm_conform *c)
{
    struct record r = {.f = NULL};
    char dtype[16];
    if (qm_golden_case_has(c, "sqrt_ieee")) {
        replay_roots(c);
        return;
    }
    if (!record_read(c, &r))
        return;
    qm_golden_case_text(c, "dtype", dtype, sizeof dtype);
    if (strcmp(dtype, "f32") == 0 || strcmp(dtype, "bf16") == 0)
        replay_float(c, &r, *dtype == 'b');
    else if (strcmp(dtype, "f64") == 0)
        replay_double(c, &r);
    else
        qm_golden_case_skip(c, "dtype '%s': not built yet", dtype);
}

void qm_conform_reference(struct qm_conform *c)
{
    char name[128];
    int members = qm_golden_members(c->file, "");
    for (int i = 0; i < members; i++) {
        if (!qm_golden_member(c->file, "", i, name, sizeof name))
            continue;
        snprintf(c->group, sizeof c->group, "%.127s", name);
        if (says(c, "optimizer", "Adafactor(torch)")) {
            qm_conform_adafactor_group(c, name);
        } else if (qm_golden_case_begin(c, name, NULL)) {
            replay_case(c);
            qm_golden_case_end(c);
        }
    }
}
