/* gen.c - qualm gen: writes golden vectors for programs that do not link this one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/vectors/vectors.h"

enum {
    KEY_FORM = 256,
    KEY_SETTING,
    KEY_FIRST,
    KEY_FORCED,
    KEY_OWN,
    KEY_QUICK,
    KEY_DRAWS,
    KEY_STEPS
};

static const char *const class_names[] = {
#define X(name, text) #name,
    QM_CLASS_LIST(X)
#undef X
};
static const char *const setting_names[] = {
#define X(name, lr, b1, b2, eps, wd, text) #name,
    QM_SETTING_LIST(X)
#undef X
};

struct options {
    const char *recipe, *out, *form;
    uint64_t seed;
    struct qm_vectors_choice choice;
};

/* "normal, loguniform, ... ". */
#define X(name, text) #name ", "
#define CLASSES       QM_CLASS_LIST(X)

static const struct argp_option options[] = {
    {"out", 'o', "FILE", 0, "FILE.h5, .npz or .safetensors; \"-\": stdout (required)", 0},
    {"quick", KEY_QUICK, NULL, 0,
     "every class, setting, first step, shape and mode in some case, instead of every pair of them",
     0},
    {"cases", 'c', "CLASS,...", 0,
     "classes of gradients: " CLASSES "(default every one; qualm show CLASS); \"all\": the cases "
     "of `qualm check` as well",
     0},
    {"setting", KEY_SETTING, "NAME,...", 0,
     "hyper-parameters: default, wd0, wd, beta0, eps, lr0, slow, extreme, exact, maximize (default "
     "every one; class exact has setting exact)",
     0},
    {"shape", 'S', "LIST", 0,
     "shapes of the tensors (default: eleven of rank 0 to 5, of which 64x68 is large enough for "
     "the variants' own limits, and two of no elements)",
     0},
    {"first-step", KEY_FIRST, "T,...", 0, "numbers of the first step (default 1,12,1000,1000000)",
     0},
    {"forced", KEY_FORCED, NULL, 0, "quantize small tensors too, whatever the variant's limits", 0},
    {"own", KEY_OWN, NULL, 0, "keep the variant's own limits (default: both)", 0},
    {"draws", KEY_DRAWS, "N", 0,
     "cases drawn from the domain of `qualm check` by --seed, beside the others: hyper-parameters "
     "of "
     "every kind and changed from step to step, parameters, gradients and states of every size "
     "(default 64; 256 with --cases all; none with --quick or where cases are chosen)",
     0},
    {"steps", KEY_STEPS, "N", 0, "steps of each case, 1 to 1000 (default 3)", 0},
    {"seed", 's', "N", 0, "of parameters and gradients (default 1)", 0},
    {"form", KEY_FORM, "FORM", 0, "of stdout: safetensors or npz (default safetensors)", 0},
    {0}};
#undef X

/* Reads a list of words of `names` to to[], and their number to *n; "all" among classes asks for
 * every case there is. */
static void words(struct argp_state *state, const char *what, char *arg, const char *const *names,
                  int n_names, int *to, int *n)
{
    char *one;
    *n = 0;
    while ((one = strsep(&arg, ",")) != NULL) {
        int i = qm_name_find(one, names, n_names);
        const char *near = i < 0 ? qm_name_nearest(one, names, n_names) : NULL;
        if (i < 0)
            argp_failure(state, qm_exit_code(QM_NO_MATCH), 0, "no %s '%s'%s%s%s", what, one,
                         near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        for (int k = 0; k < *n; k++)
            if (to[k] == i)
                argp_error(state, "%s '%s' is there twice", what, one);
        to[(*n)++] = i;
    }
}

static void read_shapes(struct argp_state *state, char *arg, struct qm_vectors_choice *c)
{
    char *one;
    for (c->n_shapes = 0; (one = strsep(&arg, ",")) != NULL; c->n_shapes++) {
        struct qm_shape *to = &c->shape[c->n_shapes];
        if (c->n_shapes == QM_VECTORS_VALUES)
            argp_error(state, "--shape: more than %d shapes", QM_VECTORS_VALUES);
        if (qm_shape_parse(one, to) != QM_OK)
            argp_error(state, "--shape: %s", qm_message());
        if (qm_shape_numel(to) > 1 << 24)
            argp_error(state, "--shape: %s has more than 2^24 elements", one);
    }
}

static void read_firsts(struct argp_state *state, char *arg, struct qm_vectors_choice *c)
{
    char *one;
    for (c->n_firsts = 0; (one = strsep(&arg, ",")) != NULL; c->n_firsts++) {
        if (c->n_firsts == QM_VECTORS_VALUES)
            argp_error(state, "--first-step: more than %d numbers", QM_VECTORS_VALUES);
        c->first[c->n_firsts] = (int64_t)qm_cli_number(state, "first-step", one, 1, 1000000000);
    }
}

static void read_mode(struct qm_vectors_choice *c, int forced)
{
    for (int i = 0; i < c->n_modes; i++)
        if (c->forced[i] == forced)
            return;
    c->forced[c->n_modes++] = forced;
}

static void read_classes(struct argp_state *state, char *arg, struct qm_vectors_choice *c)
{
    if (strcmp(arg, "all") == 0)
        c->extent = QM_VECTORS_ALL;
    else
        words(state, "class of gradients", arg, class_names, QM_CLASS_COUNT, c->kind,
              &c->n_classes);
}

/* Fills defaults in.  Fails where --cases all, which is everything, stands beside a choice. */
static void check_options(struct argp_state *state, struct options *o)
{
    struct qm_vectors_choice *c = &o->choice;
    int chooses = c->n_shapes + c->n_classes + c->n_settings + c->n_firsts + c->n_modes > 0;
    if (!o->recipe)
        argp_error(state, "RECIPE is missing");
    if (!o->out)
        argp_error(state, "--out is missing");
    if (c->extent == QM_VECTORS_ALL && chooses)
        argp_error(state, "--cases all is everything; it stands beside no choice of cases");
    if (c->draws < 0)
        c->draws = c->extent == QM_VECTORS_ALL                ? 256
                   : c->extent == QM_VECTORS_QUICK || chooses ? 0
                                                              : 64;
    c->seed = o->seed;
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    struct qm_vectors_choice *c = &o->choice;
    switch (key) {
    case 'o': o->out = arg; return 0;
    case 'S': read_shapes(state, arg, c); return 0;
    case KEY_STEPS:
        c->steps = (int64_t)qm_cli_number(state, "steps", arg, 1, QM_VECTORS_STEPS);
        return 0;
    case 'c': read_classes(state, arg, c); return 0;
    case KEY_SETTING:
        words(state, "setting", arg, setting_names, QM_SETTING_COUNT, c->setting, &c->n_settings);
        return 0;
    case KEY_FIRST: read_firsts(state, arg, c); return 0;
    case KEY_FORCED: read_mode(c, 1); return 0;
    case KEY_OWN: read_mode(c, 0); return 0;
    case KEY_DRAWS: c->draws = (int)qm_cli_number(state, "draws", arg, 0, 2000); return 0;
    case KEY_QUICK: c->extent = QM_VECTORS_QUICK; return 0;
    case 's': o->seed = qm_cli_number(state, "seed", arg, 0, UINT64_MAX); return 0;
    case KEY_FORM: o->form = arg; return 0;
    case ARGP_KEY_ARG:
        if (o->recipe)
            argp_error(state, "unexpected word '%s'", arg);
        o->recipe = arg;
        return 0;
    case ARGP_KEY_END: check_options(state, o); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* The form of the output: by --form for stdout, by the ending for a file. */
static qm_status form_of(const struct options *o, enum qm_container *out)
{
    int is_stdout = strcmp(o->out, "-") == 0;
    char as_file[32];
    snprintf(as_file, sizeof as_file, "x.%.24s", o->form ? o->form : "safetensors");
    *out = qm_container_of(is_stdout ? as_file : o->out);
    if (!is_stdout && o->form)
        return qm_fail(QM_BAD_ARG, "--form is for stdout; %s has an ending", o->out);
    if (is_stdout && *out >= QM_CONTAINER_h5)
        return qm_fail(QM_BAD_ARG, "--form is '%s', expected safetensors or npz", o->form);
    if (*out == QM_CONTAINER_COUNT)
        return qm_fail(QM_BAD_ARG, "%s: expected a name that ends in .h5, .npz or .safetensors",
                       o->out);
    return QM_OK;
}

static json_t *report(const struct options *o, const struct qm_recipe *r,
                      const struct qm_vectors_case *c, int n, int left_out)
{
    static struct qm_cover cover;
    json_t *rows = json_array();
    char text[QM_CASE_TEXT], gaps[QM_COVER_GAPS];
    json_int_t steps = 0;
    int met, of;
    qm_cover_start(r, &cover);
    for (int i = 0; i < n; i++) {
        steps += c[i].steps;
        qm_cover_add(&cover, r, &c[i].c);
        json_array_append_new(rows, json_pack("{s:s, s:s, s:I}", "name", c[i].name, "case",
                                              qm_case_print(&c[i].c, text), "steps",
                                              (json_int_t)c[i].steps));
    }
    qm_cover_pairs(&cover, &met, &of);
    json_t *out =
        json_pack("{s:s, s:s, s:i, s:I, s:I, s:i, s:i, s:i, s:s, s:o}", "file", o->out, "format",
                  QM_VECTORS_FORMAT, "version", QM_VECTORS_VERSION, "cases", (json_int_t)n, "steps",
                  steps, "cases_left_out", left_out, "pairs", met, "of_pairs", of, "not_exercised",
                  qm_cover_gaps(&cover, gaps), "coverage", qm_cover_report(&cover, !qm_cli.json));
    if (qm_cli.json || qm_cli.verbose)
        json_object_set(out, "list", rows);
    json_decref(rows);
    return out;
}

static qm_status run(const struct options *o, int argc, char **argv)
{
    struct qm_recipe r;
    enum qm_container form = QM_CONTAINER_COUNT;
    struct qm_vectors v = {.n = 0};
    struct qm_vectors_case *c = NULL;
    int n = 0, left_out = 0;
    QM_TRY(form_of(o, &form));
    QM_TRY(qm_recipe_parse(o->recipe, &r));
    QM_TRY(qm_vectors_choose(&r, &o->choice, &c, &n, &left_out));
    if (left_out > 0)
        qm_note("%d cases are left out: the quantizers do not take their shapes, or the state is "
                "more than 16 times the tensor",
                left_out);
    int chosen = n;
    qm_status st = qm_vectors_make(&r, c, &n, o->seed, &v);
    if (st == QM_OK && n < chosen)
        qm_note("%d cases are left out: the recipe does not take them, or the reference itself "
                "does not pass them",
                chosen - n);
    left_out += chosen - n;
    if (st == QM_OK)
        st = qm_vectors_write(&v, o->out, form, argc, argv);
    if (st == QM_OK && strcmp(o->out, "-") != 0)
        qm_report(report(o, &r, c, n, left_out));
    qm_vectors_free(&v);
    free(c);
    return st;
}

int qm_cmd_gen(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        options,
        option,
        "RECIPE",
        "Writes golden vectors of a recipe for programs that do not link this one: parameters, "
        "states and hyper-parameters before, a gradient per step, and what the reference makes of "
        "them.  A program under test adds its own results as CASE/out/STEP/...; `qualm verify` "
        "judges them.  Without a choice, every pair of two of class, setting, shape, first step "
        "and mode meets in some case; a list keeps a coordinate to these values.  The format, with "
        "an example in NumPy: results/GOLDEN.md."
        "\vExamples:\n"
        "  qualm gen adamw4_ao --out golden.h5\n"
        "  qualm gen adamw4_ao --quick --out golden.npz\n"
        "  qualm gen adamw4_ao --cases all --out golden.safetensors\n"
        "  qualm gen adamw8_bnb -S 4096,61x67 --steps 5 -c normal,planted,nonfinite \\\n"
        "    -o golden.npz\n"
        "  qualm gen adamw4_ao --out - | your-kernel | qualm verify -\n"
        "  qualm gen adamw4_ao --form npz --out - > golden.npz\n",
        children,
        NULL,
        NULL};
    struct options o = {.seed = 1, .choice = {.extent = QM_VECTORS_PAIRS, .steps = 3, .draws = -1}};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    qm_status st = run(&o, argc, argv);
    return st == QM_OK ? 0 : qm_cli_failed("gen", st);
}
