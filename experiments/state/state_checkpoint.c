/* state_checkpoint.c - The states of a PyTorch checkpoint as those of float32 recipes. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name_index.h"
#include "experiments/readers/reader.h"
#include "experiments/state/state_file.h"

enum { WORD_MOST = 1200 };

struct checkpoint {
    struct qm_file *f;
    const char *path, *as;
    struct qm_name_index at; /* entries by name */
    char *used;              /* for each entry */
    qm_state_note *note;
    void *context;
};

/* ---- looking ------------------------------------------------------------------------------- */

/* Entry NAME/leaf, or -1. */
static int entry(const struct checkpoint *c, const char *name, const char *leaf)
{
    char path[WORD_MOST];
    int n = snprintf(path, sizeof path, "%s/%s", name, leaf);
    return n < WORD_MOST ? (int)qm_name_index_get(&c->at, path, (size_t)n) : -1;
}

static int has(const struct checkpoint *c, const char *name, const char *leaf)
{
    return entry(c, name, leaf) >= 0;
}

/* Whether the parameter's group has an option, and its number. */
static int option(const struct checkpoint *c, const char *name, const char *key, double *out)
{
    char path[WORD_MOST];
    *out = 0.0;
    return snprintf(path, sizeof path, "/%s", name) < WORD_MOST &&
           qm_file_attr_number(c->f, path, key, out, 1) == 1;
}

/* Whether the parameter has a group, whose options that are no numbers are ",KEY,KEY," then. */
static int no_numbers(const struct checkpoint *c, const char *name, char *out, size_t size)
{
    char path[WORD_MOST];
    return snprintf(path, sizeof path, "/%s", name) < WORD_MOST &&
           qm_file_attr_text(c->f, path, "no_numbers", out, size) > 0;
}

/* Whether these are states of Adafactor in the form of PyTorch, or of transformers. */
static const char *adafactor_of(const struct checkpoint *c, const char *name)
{
    double x;
    if (option(c, name, "beta2_decay", &x))
        return has(c, name, "row_var") || has(c, name, "variance") ? "adafactor_torch" : NULL;
    if (option(c, name, "decay_rate", &x) && option(c, name, "clip_threshold", &x))
        return has(c, name, "exp_avg_sq_row") || has(c, name, "exp_avg_sq") ? "adafactor_hf" : NULL;
    return NULL;
}

/* Whether this is a parameter of an SGD that has no momentum, and so no states. */
static int is_plain_sgd(const struct checkpoint *c, const char *name)
{
    double momentum, dampening;
    return option(c, name, "momentum", &momentum) && momentum == 0.0 &&
           option(c, name, "dampening", &dampening);
}

/* The float32 recipe whose states these are; NULL: the file does not say. */
static const char *variant_of(const struct checkpoint *c, const char *name)
{
    double amsgrad, decoupled, decay, x;
    int is_bnb = has(c, name, "state1");
    if (adafactor_of(c, name))
        return adafactor_of(c, name);
    if (!option(c, name, "betas", &x) && !option(c, name, "beta1", &x)) {
        if ((has(c, name, "momentum_buffer") && option(c, name, "dampening", &x)) ||
            is_plain_sgd(c, name))
            return "sgdm_f32";
        if (has(c, name, "sum") && option(c, name, "lr_decay", &x))
            return "adagrad_f32";
        if (has(c, name, "square_avg") && option(c, name, "alpha", &x))
            return has(c, name, "grad_avg") || has(c, name, "momentum_buffer") ? "rmsprop_full_f32"
                                                                               : "rmsprop_f32";
        return NULL;
    }
    int says = option(c, name, "decoupled_weight_decay", &decoupled);
    option(c, name, "weight_decay", &decay);
    if (!is_bnb && has(c, name, "exp_avg") && !has(c, name, "exp_avg_sq"))
        return option(c, name, "eps", &x) ? NULL : "lion_f32";
    if (!has(c, name, is_bnb ? "state2" : "exp_avg_sq"))
        return NULL;
    if (option(c, name, "momentum_decay", &x))
        return decoupled == 0.0 || decay == 0.0 ? "nadam_f32" : NULL;
    if (!is_bnb && !option(c, name, "amsgrad", &amsgrad)) /* others lack it, too: SparseAdam */
        return says && (decoupled == 0.0 || decay == 0.0) ? "radam_f32" : NULL;
    if (!is_bnb && amsgrad != 0.0)
        return decoupled != 0.0 || decay == 0.0 ? "adamw_amsgrad_f32" : NULL;
    if (says)
        return decoupled != 0.0 ? "adamw_f32" : "adam_f32";
    return decay == 0.0 ? "adamw_f32" : NULL; /* without decay both do the same */
}

/* Says where --as names another relative of Adam than the file's options. */
static void say_relative(const struct checkpoint *c, const char *name, const struct qm_recipe *r)
{
    double x;
    int is_kin = has(c, name, "exp_avg_sq") && option(c, name, "beta1", &x);
    const char *kin = !is_kin                                         ? NULL
                      : option(c, name, "momentum_decay", &x)         ? "nadam"
                      : option(c, name, "amsgrad", &x)                ? NULL
                      : option(c, name, "decoupled_weight_decay", &x) ? "radam"
                                                                      : NULL;
    char line[200];
    if (!c->as || !c->note || !kin || strcmp(kin, r->rule->family) == 0)
        return;
    snprintf(line, sizeof line,
             "the file's options are those of %s; its states are taken as those of %s (--as)", kin,
             r->rule->name);
    c->note(line, c->context);
}

/* ---- one parameter -------------------------------------------------------------------------- */

/* torch.finfo(dtype).eps, which PyTorch's Adafactor takes where its group has none. */
static double epsilon_of(enum qm_dtype dtype)
{
    return dtype == QM_DTYPE_bf16  ? 0x1p-7
           : dtype == QM_DTYPE_f16 ? 0x1p-10
           : dtype == QM_DTYPE_f64 ? 0x1p-52
                                   : 0x1p-23;
}

/* Whether a rule of Adam's kin decays the parameter beside its gradient. */
static int decays_apart(const struct qm_recipe *r)
{
    const char *family = r->rule->family;
    return strcmp(family, "adam") != 0 && strcmp(family, "nadam") != 0 &&
           strcmp(family, "radam") != 0;
}

/* The last failure, of a hyper-parameter of this parameter's group. */
static qm_status refused(const struct checkpoint *c, const char *name)
{
    qm_fail_in(QM_BAD_FILE, name);
    return qm_fail_in(QM_BAD_FILE, c->path);
}

/* Refuses an option that the rule reads and that is no number in the file, and notes one that every
 * optimizer of its kind has and this group has not.  called: by the group; key: by the recipe. */
static qm_status without(const struct checkpoint *c, const char *name, const char *called,
                         const char *key, const struct qm_recipe *r)
{
    static const char *const usual[] = {"lr", "beta1", "beta2", "eps", "weight_decay"};
    char text[2048], word[64], line[200];
    const char *in = strncmp(called, "beta", 4) == 0 && strlen(called) == 5 ? "betas" : called;
    double relative;
    snprintf(word, sizeof word, ",%s,", in);
    if (strcmp(key, "lr") == 0 && option(c, name, "relative_step", &relative) && relative != 0.0)
        return QM_OK; /* Adafactor has none then */
    if (!no_numbers(c, name, text, sizeof text))
        return QM_OK;
    if (strstr(text, word))
        return qm_fail(QM_BAD_FILE, "%s: '%s': %s of its param_group is %s", c->path, name, in,
                       strcmp(in, "betas") == 0 ? "no pair of numbers" : "no number");
    for (size_t i = 0; i < sizeof usual / sizeof *usual && c->note; i++)
        if (strcmp(usual[i], key) == 0) {
            snprintf(line, sizeof line, "the file does not say %s: that of %s", key, r->base->name);
            c->note(line, c->context);
        }
    return QM_OK;
}

/* Sets the recipe's hyper-parameters from the group; what the rule has not must be off.  param: the
 * parameter's entry. */
static qm_status read_hyper(const struct checkpoint *c, const char *name, int param,
                            struct qm_recipe *r)
{
    static const struct {
        const char *option, *key;
    } set[] = {{"lr", "lr"},
               {"beta1", "beta1"},
               {"beta2", "beta2"},
               {"eps", "eps"},
               {"weight_decay", "weight_decay"},
               {"momentum", "momentum"},
               {"dampening", "dampening"},
               {"momentum_decay", "momentum_decay"},
               {"nesterov", "nesterov"},
               {"maximize", "maximize"},
               {"amsgrad", "amsgrad"},
               {"centered", "centered"},
               {"eps1", "eps1"},
               {"eps2", "eps2"},
               {"d", "clip"},
               {"clip_threshold", "clip"},
               {"beta2_decay", "beta2_decay"},
               {"decay_rate", "beta2_decay"},
               {"relative_step", "relative_step"},
               {"scale_parameter", "scale_parameter"},
               {"warmup_init", "warmup"}};
    static const char *const off[] = {"lr_decay", "nesterov",  "maximize", "amsgrad",
                                      "centered", "dampening", "momentum"};
    char text[40];
    double x, decay;
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (option(c, name, off[i], &x) && x != 0.0 && !qm_rule_reads(r->rule, off[i]))
            return qm_fail(QM_BAD_FILE, "%s: '%s': %s is %g, which %s does not know", c->path, name,
                           off[i], x, r->base->name);
    int says = option(c, name, "decoupled_weight_decay", &x);
    option(c, name, "weight_decay", &decay);
    if (says && decay != 0.0 && decays_apart(r) != (x != 0.0))
        return qm_fail(QM_BAD_FILE, "%s: '%s': weight_decay is %s, in %s %s", c->path, name,
                       x != 0.0 ? "decoupled" : "an L2 term", r->base->name,
                       x != 0.0 ? "an L2 term" : "decoupled");
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        if (!qm_rule_reads(r->rule, set[i].key))
            continue;
        if (!option(c, name, set[i].option, &x)) {
            QM_TRY(without(c, name, set[i].option, set[i].key, r));
            continue;
        }
        snprintf(text, sizeof text, "%.17g", x);
        qm_status st = qm_recipe_set(r, set[i].key, text);
        if (st != QM_OK)
            return refused(c, name);
    }
    if (qm_rule_reads(r->rule, "beta2") && option(c, name, "alpha", &x) &&
        has(c, name, "square_avg")) {
        snprintf(text, sizeof text, "%.17g", x);
        QM_TRY(qm_recipe_set(r, "beta2", text));
    }
    if (strcmp(r->rule->name, "adafactor_torch") == 0 && !option(c, name, "eps1", &x)) {
        snprintf(text, sizeof text, "%.17g", epsilon_of(qm_file_entry(c->f, param)->dtype));
        QM_TRY(qm_recipe_set(r, "eps1", text));
    }
    return QM_OK;
}

/* Whether two shapes are the same but for sides of 1, such as a factor's [rows, 1]. */
static int same_but_ones(const struct qm_shape *a, const struct qm_shape *b)
{
    int i = 0, k = 0;
    for (;;) {
        while (i < a->rank && a->dim[i] == 1)
            i++;
        while (k < b->rank && b->dim[k] == 1)
            k++;
        if (i == a->rank || k == b->rank)
            return i == a->rank && k == b->rank;
        if (a->dim[i++] != b->dim[k++])
            return 0;
    }
}

/* Reads entry i, which must have this shape but for sides of 1, as float32. */
static qm_status read_floats(struct checkpoint *c, int i, const struct qm_shape *shape,
                             struct qm_tensor *out)
{
    const struct qm_entry *e = qm_file_entry(c->f, i);
    char a[192], b[192];
    if (!same_but_ones(&e->shape, shape))
        return qm_fail(QM_BAD_FILE, "%s: '%s' is %s, expected %s", c->path, e->name,
                       qm_shape_print(&e->shape, a, sizeof a), qm_shape_print(shape, b, sizeof b));
    *out = (struct qm_tensor){NULL, QM_DTYPE_f32, *shape};
    if (!(out->data = malloc(qm_tensor_bytes(out) + 1)))
        return qm_fail(QM_NO_MEMORY, "%s: '%s'", c->path, e->name);
    c->used[i] = 1;
    if (e->dtype != QM_DTYPE_f32 && c->note) {
        snprintf(a, sizeof a, "%s is %s in the file, and float32 here", strrchr(e->name, '/') + 1,
                 qm_dtype_name(e->dtype));
        c->note(a, c->context);
    }
    return qm_file_read(c->f, i, 0, e->numel, out->data);
}

static qm_status read_step(struct checkpoint *c, const char *name, const struct qm_recipe *r,
                           int64_t *out)
{
    int i = entry(c, name, "step");
    double step = -1.0;
    if (i >= 0 && qm_file_entry(c->f, i)->numel == 1) {
        c->used[i] = 1;
        QM_TRY(qm_file_read_double(c->f, i, 0, 1, &step));
    } else if (strcmp(r->rule->name, "sgdm") == 0 || strcmp(r->rule->family, "lion") == 0) {
        step = 1.0; /* the steps after the first are all alike */
        if (c->note)
            c->note("the file has no number of steps: 1, which is all the same to its rule",
                    c->context);
    }
    if (!(step >= 0.0 && step <= 4294967295.0) || step != (double)(int64_t)step)
        return qm_fail(QM_BAD_FILE, "%s: '%s' has no whole number of steps", c->path, name);
    *out = (int64_t)step;
    return QM_OK;
}

/* Whether RMSprop or SGD has no use for a slot, which the file then lacks. */
static int is_unused(const struct qm_recipe *r, const char *slot)
{
    return (strcmp(slot, "grad_avg") == 0 && !r->hyper.centered) ||
           (strcmp(slot, "momentum_buffer") == 0 && r->hyper.momentum == 0.0);
}

static qm_status zeros(const struct checkpoint *c, struct qm_state_slot *slot)
{
    char line[160];
    slot->scales.data = calloc(qm_tensor_bytes(&slot->scales) + 1, 1);
    if (!slot->scales.data)
        return qm_fail(QM_NO_MEMORY, "%s: zeros", c->path);
    snprintf(line, sizeof line, "%s: not in the file, whose options leave it out: zeros",
             slot->name);
    if (c->note && qm_shape_numel(&slot->shape) > 0)
        c->note(line, c->context);
    return QM_OK;
}

static qm_status read_slot(struct checkpoint *c, struct qm_state_tensor *t,
                           const struct qm_recipe *r, int k)
{
    struct qm_state_slot *slot = &t->slot[t->n_slots++];
    struct qm_codec codec;
    char other[20];
    snprintf(slot->name, sizeof slot->name, "%s", r->rule->slot[k]);
    snprintf(slot->quantizer, sizeof slot->quantizer, "f32");
    snprintf(other, sizeof other, "state%d", k + 1); /* bitsandbytes */
    qm_rule_slot_shape(r->rule, &r->hyper, k, &t->shape, &slot->shape);
    QM_TRY(qm_state_slot_layout(slot, &codec));
    slot->is_plain = 1;
    int i = entry(c, t->name, slot->name);
    if (i < 0)
        i = entry(c, t->name, other);
    if (i < 0 && (is_unused(r, slot->name) || qm_shape_numel(&slot->shape) == 0))
        return zeros(c, slot);
    if (i < 0)
        return qm_fail(QM_BAD_FILE, "%s: '%s' has no %s, which %s holds", c->path, t->name,
                       slot->name, r->base->name);
    struct qm_shape as_stored = slot->scales.shape;
    QM_TRY(read_floats(c, i, &slot->shape, &slot->scales));
    slot->scales.shape = as_stored;
    return QM_OK;
}

static qm_status read_parameter(struct checkpoint *c, const char *name, int param,
                                struct qm_state *out)
{
    struct qm_state_tensor *t = &out->tensor[out->n];
    struct qm_recipe r;
    const char *variant = c->as ? c->as : variant_of(c, name);
    if (strlen(name) >= QM_STATE_NAME)
        return qm_fail(QM_BAD_FILE, "%s: '%.60s...': a tensor's name has at most %d characters",
                       c->path, name, QM_STATE_NAME - 1);
    if (!qm_state_is_path(name))
        return qm_fail(QM_BAD_FILE,
                       "%s: '%s': a tensor's name in a state has no empty parts, '.' and '..' "
                       "between its slashes",
                       c->path, name);
    if (!variant)
        return qm_fail(QM_BAD_FILE,
                       "%s: the file does not say whose states '%s' has, or no float32 variant has "
                       "them (--as NAME, of `qualm list variants`, says whose they are)",
                       c->path, name);
    QM_TRY(qm_recipe_parse(variant, &r));
    if (!qm_recipe_is_full(&r))
        return qm_fail(QM_BAD_ARG,
                       "--as %s: a checkpoint's states are read as float32, expected "
                       "a recipe such as adamw_f32",
                       variant);
    QM_TRY(read_hyper(c, name, param, &r));
    say_relative(c, name, &r);
    memset(t, 0, sizeof *t);
    strcpy(t->name, name);
    t->shape = qm_file_entry(c->f, param)->shape;
    t->id = (uint32_t)out->n++;
    t->seed = 1;
    t->stored = r.param;
    if (strlen(qm_recipe_print(&r, t->recipe)) >= QM_RECIPE_TEXT - 1)
        return qm_fail(QM_BAD_FILE, "%s: '%s': the recipe is too long", c->path, name);
    if (qm_recipe_parse(t->recipe, &r) != QM_OK) /* as whoever reads the state will */
        return refused(c, name);
    QM_TRY(read_step(c, name, &r, &t->step));
    QM_TRY(read_floats(c, param, &t->shape, &t->param));
    t->residual.dtype = qm_state_residual_dtype(&t->stored);
    t->residual.shape = t->shape;
    for (int k = 0; k < r.rule->n_slots; k++)
        if (!qm_state_leaves_out(&r, k, &t->shape))
            QM_TRY(read_slot(c, t, &r, k));
    /* what the rule forms anew: NAdam's product from the step, Adafactor's RMS of the parameter */
    static const char *const derived[] = {"mu_product", "RMS"};
    for (int k = 0; k < 2; k++)
        if (entry(c, name, derived[k]) >= 0)
            c->used[entry(c, name, derived[k])] = 1;
    return QM_OK;
}

/* ---- the file ------------------------------------------------------------------------------- */

/* Bytes of the parameter's name in NAME/LEAF where a group of the file trains it, or 0. */
static size_t trained(const struct checkpoint *c, const char *name)
{
    const char *slash = strrchr(name, '/');
    char parameter[WORD_MOST], text[2];
    double lr;
    if (!slash ||
        snprintf(parameter, sizeof parameter, "%.*s", (int)(slash - name), name) >= WORD_MOST)
        return 0;
    return option(c, parameter, "lr", &lr) || no_numbers(c, parameter, text, sizeof text)
               ? (size_t)(slash - name)
               : 0;
}

/* Notes what holds for the whole file, after its path. */
static qm_status say_of_file(const struct checkpoint *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static qm_status say_of_file(const struct checkpoint *c, const char *format, ...)
{
    char text[QM_FILE_REMARK], *line = NULL;
    va_list args;
    if (!c->note)
        return QM_OK;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (asprintf(&line, "%s: %s", c->path, text) < 0)
        return qm_fail(QM_NO_MEMORY, "%s: notes", c->path);
    c->note(line, c->context);
    free(line);
    return QM_OK;
}

/* Every state was taken, and what else there is, is said. */
static qm_status check_rest(const struct checkpoint *c, const struct qm_state *s, int64_t stateless)
{
    int others = 0;
    for (int i = 0; i < qm_file_count(c->f); i++) {
        const char *name = qm_file_entry(c->f, i)->name;
        if (c->used[i])
            continue;
        if (!trained(c, name)) {
            others++;
            continue;
        }
        if (strcmp(strrchr(name, '/'), "/param") == 0)
            continue;
        return qm_fail(QM_BAD_FILE, "%s: no slot of %s holds '%s'", c->path,
                       s->n ? s->tensor[0].recipe : "a recipe", name);
    }
    if (others)
        QM_TRY(
            say_of_file(c, "left out: %d tensors that no optimizer trains by these names", others));
    if (stateless)
        QM_TRY(say_of_file(c, "left out: %lld parameters that were never updated",
                           (long long)stateless));
    return QM_OK;
}

/* Why a parameter has a number in the place of a name: what the file says of what it left out. */
static int unjoined(const struct checkpoint *c, const char *name, char *why, size_t size)
{
    *why = '\0';
    return strspn(name, "0123456789") == strlen(name) && qm_file_left_out(c->f, why, size);
}

static qm_status read_all(struct checkpoint *c, struct qm_state *out)
{
    char why[QM_FILE_REMARK];
    struct qm_name_index met = {NULL, 0, 0};
    qm_status st = QM_OK;
    int64_t stateless = 0;
    int n = qm_file_count(c->f);
    for (int i = 0; st == QM_OK && i < n; i++)
        st = qm_name_index_put(&c->at, qm_file_entry(c->f, i)->name,
                               strlen(qm_file_entry(c->f, i)->name), i);
    for (int i = 0; st == QM_OK && i < n; i++) {
        const char *path = qm_file_entry(c->f, i)->name;
        size_t length = trained(c, path);
        char name[WORD_MOST];
        if (!length || qm_name_index_get(&met, path, length) >= 0)
            continue;
        st = qm_name_index_put(&met, path, length, i);
        snprintf(name, sizeof name, "%.*s", (int)length, path);
        int param = entry(c, name, "param"), states = 0;
        for (int k = i; k < n && strncmp(qm_file_entry(c->f, k)->name, path, length + 1) == 0; k++)
            states += k != param;
        if (st == QM_OK && param < 0)
            st = qm_fail(QM_BAD_FILE,
                         "%s: '%s' has states but no parameter: a state needs the model's "
                         "state_dict() beside the optimizer's, of which the file tells whose "
                         "states are whose%s%s",
                         c->path, name, unjoined(c, name, why, sizeof why) ? "; left out: " : "",
                         why);
        else if (st == QM_OK && states == 0 && !is_plain_sgd(c, name))
            stateless++;
        else if (st == QM_OK)
            st = read_parameter(c, name, param, out);
    }
    qm_name_index_free(&met);
    if (st == QM_OK && out->n == 0)
        st = qm_fail(QM_BAD_FILE,
                     "%s: is a checkpoint without an optimizer's states, or no group "
                     "of its optimizer trains the parameters that have some",
                     c->path);
    return st == QM_OK ? check_rest(c, out, stateless) : st;
}

qm_status qm_state_from_checkpoint(struct qm_file *f, const char *path, const char *as,
                                   qm_state_note *note, void *context, struct qm_state *out)
{
    struct checkpoint c = {.f = f, .path = path, .as = as, .note = note, .context = context};
    char remark[QM_FILE_REMARK];
    if (qm_file_remark(f, remark))
        QM_TRY(say_of_file(&c, "%s", remark));
    if (qm_file_joined(f, remark, sizeof remark) &&
        asprintf(&out->joined, "%s: %s", path, remark) < 0)
        return qm_fail(QM_NO_MEMORY, "%s: remarks", path);
    if (qm_file_left_out(f, remark, sizeof remark) &&
        asprintf(&out->left_out, "%s: %s", path, remark) < 0)
        return qm_fail(QM_NO_MEMORY, "%s: remarks", path);
    size_t n = (size_t)qm_file_count(f);
    c.used = calloc(n + 1, 1);
    out->tensor = calloc(n + 1, sizeof *out->tensor);
    qm_status st =
        c.used && out->tensor ? read_all(&c, out) : qm_fail(QM_NO_MEMORY, "%s: states", path);
    qm_name_index_free(&c.at);
    free(c.used);
    return st;
}
