/* reference.c - Replays the golden vectors of torch.optim.
 *
 * AdamW, Adam, SGD, RMSprop, Adagrad, NAdam and RAdam.  float32 judges the rules; float64 judges
 * the oracle, each step from the recorded state, to 1e-14 of the largest magnitude of a tensor;
 * bfloat16 judges the rules with parameters and states in bfloat16.  tests/golden/README.md states
 * the tolerances.  Adafactor is in adafactor.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/half.h"
#include "experiments/conform/reference.h"
#include "experiments/conform/run.h"
#include "experiments/conform/tensor_rule_run.h"

/* The option that asks for another rule of a class. */
enum { NONE, DECOUPLED, FULL }; /* FULL: RMSprop that is centered or has a momentum */

/* clang-format off */
static const struct qm_reference_family families[] = {
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
    qm_run_betas_or(c, betas);
    h.lr = qm_golden_case_number(c, "lr", h.lr);
    h.beta1 = betas[0];
    int is_rms = says(c, "optimizer", "RMSprop"), is_lion = says(c, "optimizer", "Lion");
    h.beta2 = is_rms ? qm_golden_case_number(c, "alpha", 0.99) : betas[1];
    h.eps = qm_golden_case_number(c, "eps", says(c, "optimizer", "Adagrad") ? 1e-10 : h.eps);
    h.weight_decay = qm_golden_case_number(c, "weight_decay", 0.0);
    h.momentum =
        is_rms || says(c, "optimizer", "SGD") ? qm_golden_case_number(c, "momentum", 0.0) : 0.0;
    h.dampening = qm_golden_case_number(c, "dampening", 0.0);
    h.momentum_decay = qm_golden_case_number(c, "momentum_decay", h.momentum_decay);
    h.nesterov = qm_golden_case_int(c, "nesterov", 0);
    h.maximize = is_lion ? 0 : qm_golden_case_int(c, "maximize", 0);
    h.amsgrad = qm_golden_case_int(c, "amsgrad", 0);
    h.centered = qm_golden_case_int(c, "centered", 0);
    return h;
}

/* The rule of the class with these options. */
static const struct qm_reference_family *family_of(struct qm_conform *c, const struct qm_hyper *h)
{
    static const char *const words[] = {"", " with decoupled_weight_decay",
                                        " with centered or momentum"};
    char optimizer[32];
    qm_golden_case_text(c, "optimizer", optimizer, sizeof optimizer);
    int option = qm_golden_case_whole(c, "decoupled_weight_decay", 0) ? DECOUPLED
                 : h->centered || (strcmp(optimizer, "RMSprop") == 0 && h->momentum > 0.0) ? FULL
                                                                                           : NONE;
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(optimizer, families[i].optimizer) == 0 && families[i].option == option)
            return &families[i];
    qm_golden_case_skip(c,
                        "optimizer '%s'%s is not replayed; AdamW, Adam, SGD, RMSprop, Adagrad, "
                        "NAdam, RAdam, Adafactor(torch) and Lion are",
                        optimizer, words[option]);
    return NULL;
}

/* What a run must have. */
static const struct qm_golden_need run_needs[] = {
    {"steps", QM_NEED_number, 1, 1e6, 0},
    {"optimizer", QM_NEED_text, 0, 0, 0},
    {"dtype", QM_NEED_text, 0, 0, 0},
    {"lr", QM_NEED_number, 0, 1e30, 0},
    {"eps", QM_NEED_number, 0, 1e30, 1},
    {"alpha", QM_NEED_number, 0, 1e30, 1},
    {"weight_decay", QM_NEED_number, 0, 1e30, 1},
    {"momentum", QM_NEED_number, 0, 1e30, 1},
    {"dampening", QM_NEED_number, -1e30, 1e30, 1},
    {"param0", QM_NEED_data, 0, 0, 0},
    {"grads", QM_NEED_data, 0, 0, 0},
    {"params", QM_NEED_data, 0, 0, 0},
};

/* Whether the class keeps state i with these options. */
static int has_state(const struct qm_reference *r, int i)
{
    if (strcmp(r->f->rule, "sgdm") == 0)
        return r->h.momentum != 0.0;
    return strcmp(r->f->rule, "rmsprop_full") != 0 || i == 0 ||
           (i == 1 ? r->h.centered : r->h.momentum > 0.0);
}

/* Every state of the class must be there: a misspelt one would not be compared. */
static int states_there(struct qm_conform *c, const struct qm_reference *r)
{
    struct qm_golden_need need = {NULL, QM_NEED_data, 0, 0, 0};
    for (int i = 0; i < r->f->n_slots; i++) {
        need.name = r->f->state[i];
        if (has_state(r, i) && !qm_golden_case_needs(c, &need, 1))
            return 0;
    }
    need.name = "state_max_exp_avg_sq";
    if (r->h.amsgrad && !qm_golden_case_needs(c, &need, 1))
        return 0;
    need.name = "state_mu_product";
    return strncmp(r->f->rule, "nadam", 5) != 0 || qm_golden_case_needs(c, &need, 1);
}

/* The options of each class, besides those of all. */
static const char *const options[][2] = {
    {"AdamW", "betas eps amsgrad maximize decoupled_weight_decay"},
    {"Adam", "betas eps amsgrad maximize decoupled_weight_decay"},
    {"SGD", "momentum dampening nesterov maximize"},
    {"RMSprop", "alpha eps momentum centered maximize"},
    {"Lion", "betas"},
    {"Adagrad", "eps lr_decay initial_accumulator_value maximize"},
    {"NAdam", "betas eps momentum_decay decoupled_weight_decay maximize"},
    {"RAdam", "betas eps decoupled_weight_decay maximize"},
};

/* Names what this class does not read; a maximum that is kept without amsgrad is a wrong option. */
static void unread(struct qm_conform *c, const struct qm_reference *r)
{
    char names[256] = "", states[256] = "grads params lr_per_step state_step";
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strcmp(options[i][0], r->f->optimizer) == 0)
            snprintf(names, sizeof names,
                     "steps optimizer dtype lr weight_decay shape ndim impl device sqrt tensor_lr "
                     "tensor_betas %s",
                     options[i][1]);
    for (int i = 0; i < r->f->n_slots + 2; i++) {
        size_t used = strlen(states);
        const char *name = i < r->f->n_slots                      ? r->f->state[i]
                           : i == r->f->n_slots                   ? "state_max_exp_avg_sq"
                           : strncmp(r->f->rule, "nadam", 5) == 0 ? "state_mu_product"
                                                                  : "";
        snprintf(states + used, sizeof states - used, " %s", name);
    }
    if (!r->h.amsgrad && qm_golden_case_has(c, "state_max_exp_avg_sq"))
        qm_golden_case_unreadable(c, "%.100s has state_max_exp_avg_sq, but attribute amsgrad is 0",
                                  c->group);
    qm_golden_case_unread(c, names, states);
}

/* A rate that is a float32 tensor (attribute tensor_lr): what is formed from it outside of the
 * fused kernels is float32, too.  That is lr itself where a class hands it to an operation (SGD,
 * RMSprop, Adagrad, RAdam); of AdamW and Adam lr / (1 - beta1^t) and 1 - lr weight_decay, which
 * rates and a decay of double that round to the same float32 numbers stand for here. */
static void tensor_rate(struct qm_conform *c, struct qm_reference *r)
{
    const char *rule = r->f->rule;
    int is_adam = strncmp(rule, "adam", 4) == 0, is_decoupled = rule[strlen(rule) - 1] == 'w';
    double *rate = qm_golden_case_memory(c, r->steps, sizeof *rate);
    if (!qm_golden_case_whole(c, "tensor_lr", 0) || !rate)
        return;
    if (!r->is_fused && (strncmp(rule, "nadam", 5) == 0 || strcmp(rule, "lion") == 0 ||
                         (is_decoupled && !is_adam) || (is_adam && r->is_foreach) ||
                         qm_golden_case_number(c, "lr_decay", 0.0) != 0.0))
        qm_golden_case_skip(c, "a rate that is a tensor (tensor_lr): of this class, implementation "
                               "or lr_decay PyTorch forms several float32 numbers of it");
    if (is_decoupled && r->h.weight_decay != 0.0 && r->lr && !r->is_fused)
        qm_golden_case_skip(c, "a rate that is a tensor (tensor_lr) and changes: the decay is "
                               "formed in float32 then");
    float lr = (float)r->h.lr, keep = 1.0f - lr * (float)r->h.weight_decay;
    for (int64_t t = 1; t <= r->steps; t++) {
        float now = r->lr ? (float)r->lr[t - 1] : lr;
        double left = 1.0 - pow(r->h.beta1, (double)t);
        rate[t - 1] = is_adam && !r->is_fused ? (double)(now / (float)left) * left : (double)now;
    }
    r->h.lr = (double)lr;
    r->lr = rate;
    if (is_adam && is_decoupled && !r->is_fused && lr > 0.0f)
        r->h.weight_decay = (1.0 - (double)keep) / (double)lr;
}

static int record_read(struct qm_conform *c, struct qm_reference *r)
{
    static const char *const impls[] = {"single", "foreach", "fused"},
                             *const devices[] = {"cpu", "cuda"},
                             *const roots[] = {"ieee", "installed"};
    char version[32];
    double decay = qm_golden_case_number(c, "lr_decay", 0.0);
    r->h = hyper_read(c);
    if (!qm_golden_case_needs(c, run_needs, sizeof run_needs / sizeof *run_needs) ||
        !(r->f = family_of(c, &r->h)))
        return 0;
    if (qm_golden_case_whole(c, "tensor_betas", 0))
        qm_golden_case_skip(c, "betas that are tensors: PyTorch rounds them and their powers to "
                               "float32 then, here they are doubles");
    r->steps = qm_golden_case_whole(c, "steps", 0);
    r->n = qm_golden_case_numel(c, "param0");
    int impl = qm_golden_case_choice(c, "impl", impls, 3, 0);
    r->is_fused = impl == 2;
    r->is_foreach = impl == 1;
    r->is_gpu = qm_golden_case_choice(c, "device", devices, 2, 0) == 1;
    int root = qm_golden_case_choice(c, "sqrt", roots, 2, 2);
    r->is_ieee = root == 0;
    r->is_unsaid = root == 2;
    if (!qm_golden_case_open(c))
        return 0;
    qm_golden_text(c->file, "", "torch_version", version, sizeof version);
    r->is_old = strncmp(version, "1.", 2) == 0;
    r->first = qm_golden_case_number(c, "initial_accumulator_value", 0.0);
    r->lr = qm_golden_case_rates(c, r->steps);
    tensor_rate(c, r);
    if (decay != 0.0) {
        const double *given = r->lr;
        if (!(r->lr = qm_golden_case_memory(c, r->steps, sizeof *r->lr)))
            return 0;
        for (int64_t t = 1; t <= r->steps; t++)
            r->lr[t - 1] =
                (given ? given[t - 1] : r->h.lr) /
                (r->is_fused ? fma((double)(t - 1), decay, 1.0) : 1.0 + (double)(t - 1) * decay);
    }
    unread(c, r);
    return states_there(c, r);
}

/* ---- NAdam's product of momenta -------------------------------------------------------------- */

static float to_bf16(float x) { return qm_bf16_to_float(qm_float_to_bf16(x)); }

/* Whether `now` may be the product after `before` and the momentum mu.  The product is a float32
 * number times a momentum that is rounded to float32; of a default dtype of float64, three
 * roundings of 2^-53.  The momentum is an ulp of double off where two libraries' powers are, which
 * decides a tie. */
static int is_product(double before, double mu, double now)
{
    float least = (float)before * (float)(mu * (1.0 - 0x1p-51)),
          most = (float)before * (float)(mu * (1.0 + 0x1p-51));
    int is_float = (double)(float)now == now && (double)(float)before == before;
    return is_float ? (double)least <= now && now <= (double)most
                    : fabs(now - before * mu) <= 0x1p-51 * fabs(now);
}

/* The same of a product in bfloat16, before which there may be one in float32; foreach rounds the
 * momentum to bfloat16, too. */
static int is_narrow_product(double before, double mu, double now, int is_foreach)
{
    float by = is_foreach ? to_bf16((float)mu) : (float)mu;
    return (double)to_bf16(to_bf16((float)before) * by) == now;
}

/* torch's load_state_dict casts the product to the type of the parameter: of bfloat16 it is one of
 * that type from some step on. */
static void judge_product(struct qm_conform *c, const struct qm_reference *r, int is_bf16)
{
    int was_loaded = 0;
    if (strncmp(r->f->rule, "nadam", 5) != 0)
        return;
    const double *product = qm_golden_case_doubles(c, "state_mu_product", r->steps);
    if (!says(c, "dtype", "f64") &&
        !qm_golden_case_fits_double(c, "state_mu_product", QM_PARAM_f32, product, r->steps))
        return;
    for (int64_t t = 1; product && t <= r->steps && qm_golden_case_open(c); t++) {
        double before = t > 1 ? product[t - 2] : 1.0, now = product[t - 1];
        double mu = r->h.beta1 * (1.0 - 0.5 * pow(0.96, (double)t * r->h.momentum_decay));
        if (!was_loaded && is_product(before, mu, now))
            continue;
        was_loaded = is_bf16 && t > 1 && is_narrow_product(before, mu, now, r->is_foreach);
        if (!was_loaded)
            qm_golden_case_differs(c, "state_mu_product[%lld]: got %.9g, want %.9g",
                                   (long long)t - 1, (double)((float)before * (float)mu), now);
    }
    c->now.compared += product ? r->steps : 0;
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
 * A decay beside the step (decoupled) may cancel most of the step.  A parameter has a rounding of
 * 2^-8 for its decay, for its step (NAdam has two) and for the sum here.  The step of a rule that
 * averages no gradients (RMSprop, Adagrad) goes along the gradient with its L2 term. */
static struct qm_run_tolerance tolerance(const struct qm_reference *r, int is_bf16)
{
    const char *rule = r->f->rule;
    int is_lion = strcmp(rule, "lion") == 0, has_root = strcmp(rule, "sgdm") != 0 && !is_lion;
    int is_decoupled = is_lion || rule[strlen(rule) - 1] == 'w';
    int is_nadam = strncmp(rule, "nadam", 5) == 0;
    int has_buffer = r->h.momentum > 0.0 || strcmp(rule, "sgdm") == 0; /* RMSprop and SGD */
    double grows = fmax(1.0, r->h.momentum); /* which of a buffer's old value it keeps */
    enum qm_run_takes third =
        strcmp(r->f->takes, "smq") == 0 ? QM_TAKES_QUOTIENT : QM_TAKES_NOTHING;
    int has_moment = !is_lion && !has_buffer; /* where there is none, the gradient is it */
    if (r->is_gpu) /* nvcc contracts what it will, in float32 throughout */
        return (struct qm_run_tolerance){.param_relative = 0x1p-22,
                                         .param_of_step = 0x1p-18,
                                         .is_decoupled = is_decoupled,
                                         .value_relative = 0x1p-21,
                                         .takes = {[2] = third},
                                         .value_largest = 0x1p-22};
    struct qm_run_tolerance narrow = {.param_relative = 0x1p-8 * (2 + is_decoupled + is_nadam),
                                      .param_of_step = 0x1p-4,
                                      .is_decoupled = is_decoupled,
                                      .param_absolute = 0x1p-132,
                                      .value_absolute = 0x1p-132,
                                      .is_narrow = 1,
                                      .value_relative = grows * 0x1p-6,
                                      .has_moment = has_moment,
                                      .has_parts = is_nadam,
                                      .param_of_values = has_buffer ? grows * 0x1p-6 : 0.0,
                                      .slot = has_buffer && has_root ? 2 : 0,
                                      .l2_relative = is_decoupled ? 0.0 : 0x1p-7,
                                      .sign_relative = is_lion ? 0x1p-7 : 0.0};
    for (int i = 0; i < 3 && r->f->takes[i]; i++) {
        char takes = r->f->takes[i];
        narrow.takes[i] = takes == 'm'   ? QM_TAKES_MEAN
                          : takes == 's' ? QM_TAKES_SQUARE
                                         : QM_TAKES_QUOTIENT;
        narrow.weight[i] = strcmp(rule, "sgdm") == 0 ? fmax(1.0, fabs(1.0 - r->h.dampening))
                           : takes == 'q' || strcmp(rule, "adagrad") == 0     ? 1.0
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
                                         .value_relative = has_buffer ? grows * 0x1p-21 : 0.0,
                                         .value_from = has_buffer ? 2 : 0,
                                         .param_of_values = has_buffer ? grows * 0x1p-21 : 0.0,
                                         .slot = has_buffer ? 2 : 0,
                                         .takes = {[2] = third}};
    return (struct qm_run_tolerance){.param_relative = 0.0};
}

/* A bfloat16 run whose parameters are judged by its roundings. */
struct narrow_run {
    const struct qm_reference *r;
    struct qm_narrow_data data;
};

static void judge_narrow(struct qm_conform *c, const void *context, int64_t t, const char *what)
{
    const struct narrow_run *n = context;
    qm_reference_narrow(c, n->r, &n->data, t, what);
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
static void replay_part(struct qm_conform *c, const struct qm_reference *r, int is_bf16,
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
    const enum qm_param_format format = is_bf16 ? QM_PARAM_bf16 : QM_PARAM_f32;
    run.shape = to - from == n ? qm_run_shape(c, "shape", n) : qm_shape_flat(to - from);
    for (int i = 0; i < r->f->n_slots + amsgrad; i++) {
        const char *name = i < r->f->n_slots ? r->f->state[i] : "state_max_exp_avg_sq";
        if (qm_golden_case_has(c, name))
            run.slot[i].values = columns(c, qm_golden_case_floats_of(c, name, steps * n, format),
                                         steps, n, from, to);
        run.slot[i].first = (float)r->first;
        if (is_bf16 && !qm_run_quantizer(c, &run.recipe, i, "bf16", 0, 0.0f))
            return;
    }
    if (is_bf16)
        run.recipe.param = (struct qm_param){QM_PARAM_bf16, QM_WRITE_near};
    run.p0 = columns(c, qm_golden_case_floats_of(c, "param0", n, format), 1, n, from, to);
    run.grads =
        columns(c, qm_golden_case_floats_of(c, "grads", steps * n, format), steps, n, from, to);
    run.params =
        columns(c, qm_golden_case_floats_of(c, "params", steps * n, format), steps, n, from, to);
    run.n_kept = steps;
    run.kept = qm_run_all_steps(c, steps);
    struct narrow_run narrow = {.r = r, .data = {run.p0, run.grads, run.params, {NULL}, NULL}};
    for (int i = 0; i < r->f->n_slots + amsgrad; i++)
        narrow.data.state[i] = run.slot[i].values;
    if (strncmp(r->f->rule, "nadam", 5) == 0)
        narrow.data.mu_product = qm_golden_case_doubles(c, "state_mu_product", steps);
    if (is_bf16 && qm_reference_is_narrow(r)) {
        run.judge = judge_narrow;
        run.context = &narrow;
    }
    qm_run_replay(c, &run);
}

/* The fused kernels take vectors of eight elements, in bfloat16 of sixteen; what remains is
 * computed by scalar code, which the compiler contracted otherwise. */
static void replay_float(struct qm_conform *c, const struct qm_reference *r, int is_bf16)
{
    int64_t whole =
        r->is_fused && r->f->has_tail ? r->n / (is_bf16 ? 16 : 8) * (is_bf16 ? 16 : 8) : r->n;
    if (is_bf16 && r->h.centered) {
        qm_golden_case_skip(c, "v - m^2 of numbers that are rounded to bfloat16 may have any sign");
        return;
    }
    char foreach[40], executed[128];
    snprintf(foreach, sizeof foreach, "%s_foreach", r->f->rule);
    qm_golden_text(c->file, "", "executed", executed, sizeof executed);
    /* the path inside the package lion-pytorch; that of google/automl is lion/lion_pytorch.py */
    int is_package = strstr(executed, "lion_pytorch/lion_pytorch.py") != NULL;
    replay_part(c, r, is_bf16,
                r->is_old && r->f->has_old                        ? "_t113"
                : r->is_foreach && qm_rule_find(foreach)          ? "_foreach" /* NAdam and RAdam */
                : r->is_fused && strcmp(r->f->rule, "adamw") == 0 ? "_fused"
                : is_package && strcmp(r->f->rule, "lion") == 0   ? "_025"
                                                                  : "",
                0, whole);
    replay_part(c, r, is_bf16, "_tail", whole, r->n);
    size_t used = strlen(c->now.text);
    if (!is_bf16 && r->is_unsaid && tolerance(r, 0).param_relative > 0.0 &&
        (c->now.outcome == QM_CONFORM_near || c->now.outcome == QM_CONFORM_differs))
        snprintf(c->now.text + used, sizeof c->now.text - used,
                 "; attribute sqrt is absent: roots may be an ulp off, as of installed");
}

/* torch.sqrt of float32 numbers, correctly rounded. */
static void replay_roots(struct qm_conform *c)
{
    int64_t n = qm_golden_case_numel(c, "x");
    float *x = qm_golden_case_floats(c, "x", n), *want = qm_golden_case_floats(c, "sqrt_ieee", n);
    snprintf(c->now.how, sizeof c->now.how, "sqrtf");
    for (int64_t i = 0; x && i < n; i++)
        x[i] = sqrtf(x[i]);
    qm_match_floats(c, "root", x, want, n);
}

static void replay_case(struct qm_conform *c)
{
    struct qm_reference r = {.f = NULL};
    char dtype[16];
    if (qm_golden_case_has(c, "sqrt_ieee")) {
        replay_roots(c);
        return;
    }
    if (!record_read(c, &r))
        return;
    qm_golden_case_text(c, "dtype", dtype, sizeof dtype);
    int is_double = strcmp(dtype, "f64") == 0;
    if (strcmp(r.f->optimizer, "RMSprop") == 0 && r.h.beta2 >= (is_double ? 1.0 + 0x1p-52 : 1.0))
        qm_golden_case_skip(c, "alpha is %g; replayed is one in [0, 1), in float64 also 1",
                            r.h.beta2);
    qm_golden_case_step_count(c, r.steps);
    judge_product(c, &r, strcmp(dtype, "bf16") == 0);
    if (strcmp(dtype, "f32") == 0 || strcmp(dtype, "bf16") == 0)
        replay_float(c, &r, *dtype == 'b');
    else if (is_double && qm_golden_case_whole(c, "tensor_lr", 0) && !r.is_fused)
        qm_golden_case_skip(c, "a rate that is a tensor (tensor_lr): float32 numbers in a run of "
                               "float64");
    else if (is_double)
        qm_reference_double(c, &r);
    else
        qm_golden_case_skip(c, "parameters are f32, f64 or bf16, not '%s'", dtype);
}

static void replay_group(struct qm_conform *c, const struct qm_golden_place *at)
{
    snprintf(c->group, sizeof c->group, "%s", at->path);
    if (says(c, "optimizer", "Adafactor(torch)")) {
        qm_conform_adafactor_group(c, at);
    } else if (qm_golden_case_begin(c, at->path, NULL)) {
        replay_case(c);
        qm_golden_case_end(c);
    }
}

void qm_conform_reference(struct qm_conform *c) { qm_golden_each(c, "", replay_group); }
