/* gen.c - qualm gen: writes golden vectors for programs that do not link this one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/vectors/vectors.h"

enum { KEY_FORM = 256, KEY_SETTING, KEY_FIRST, KEY_FORCED };

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
    const char *recipe, *shapes, *classes, *setting, *out, *form;
    int64_t steps, first;
    uint64_t seed;
    int forced;
};

static const struct argp_option options[] = {
    {"out", 'o', "FILE", 0, "FILE.h5, .npz or .safetensors; \"-\": stdout (required)", 0},
    {"shape", 's', "LIST", 0, "shapes of the tensors (default 64x64,300)", 0},
    {"steps", 'n', "N", 0, "steps of each, 1 to 1000 (default 3)", 0},
    {"cases", 'c', "CLASS,...", 0,
     "classes of gradients: normal, loguniform, denormal, huge, zeros, signedzeros, outlier, "
     "zeroblock, nonfinite, lastmax, planted, exact (default normal,planted)",
     0},
    {"setting", KEY_SETTING, "NAME", 0,
     "hyper-parameters: default, wd0, wd, beta0, eps, lr0, slow, extreme, maximize (class exact "
     "has its own)",
     0},
    {"first-step", KEY_FIRST, "T", 0, "number of the first step (default 1)", 0},
    {"forced", KEY_FORCED, NULL, 0, "quantize small tensors too, whatever the variant's limits", 0},
    {"seed", 'S', "N", 0, "of parameters and gradients (default 1)", 0},
    {"form", KEY_FORM, "FORM", 0, "of stdout: safetensors or npz (default safetensors)", 0},
    {0}};

static uint64_t number(struct argp_state *state, const char *name, const char *arg, uint64_t least,
                       uint64_t most)
{
    char *end;
    errno = 0;
    uint64_t x = strtoull(arg, &end, 10);
    if (*end || end == arg || errno || *arg == '-' || x < least || x > most)
        argp_error(state, "--%s is '%s', expected a number from %llu to %llu", name, arg,
                   (unsigned long long)least, (unsigned long long)most);
    return x;
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'o': o->out = arg; return 0;
    case 's': o->shapes = arg; return 0;
    case 'n': o->steps = (int64_t)number(state, "steps", arg, 1, QM_VECTORS_STEPS); return 0;
    case 'c': o->classes = arg; return 0;
    case KEY_SETTING: o->setting = arg; return 0;
    case KEY_FIRST: o->first = (int64_t)number(state, "first-step", arg, 1, 1000000); return 0;
    case KEY_FORCED: o->forced = 1; return 0;
    case 'S': o->seed = number(state, "seed", arg, 0, UINT64_MAX); return 0;
    case KEY_FORM: o->form = arg; return 0;
    case ARGP_KEY_ARG:
        if (o->recipe)
            argp_error(state, "unexpected word '%s'", arg);
        o->recipe = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->recipe)
            argp_error(state, "RECIPE is missing");
        if (!o->out)
            argp_error(state, "--out is missing");
        return 0;
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

/* The index of a word in a list of names; QM_NO_MATCH names the nearest. */
static qm_status word(const char *what, const char *text, const char *const *names, int n, int *out)
{
    *out = qm_name_find(text, names, n);
    return *out < 0 ? qm_name_unknown(what, text, names, n) : QM_OK;
}

/* The cases of every class with every shape; c has QM_VECTORS_CASES of them. */
static qm_status cases_of(const struct options *o, struct qm_vectors_case *c, int *n)
{
    int setting = 0;
    QM_TRY(word("setting", o->setting, setting_names, QM_SETTING_COUNT, &setting));
    char *classes = strdup(o->classes), *rest = classes, *one;
    qm_status st = classes ? QM_OK : qm_fail(QM_NO_MEMORY, "cases");
    while (st == QM_OK && (one = strsep(&rest, ",")) != NULL) {
        int kind = 0;
        char *shapes = strdup(o->shapes), *next = shapes, *shape;
        st = shapes ? word("class of gradients", one, class_names, QM_CLASS_COUNT, &kind)
                    : qm_fail(QM_NO_MEMORY, "cases");
        while (st == QM_OK && (shape = strsep(&next, ",")) != NULL) {
            if (*n == QM_VECTORS_CASES) {
                st = qm_fail(QM_BAD_ARG, "more than %d cases", QM_VECTORS_CASES);
                break;
            }
            struct qm_vectors_case *at = &c[*n];
            memset(at, 0, sizeof *at);
            snprintf(at->name, sizeof at->name, "t%d", *n);
            at->c.kind = (enum qm_class)kind;
            at->c.setting = kind == QM_CLASS_exact ? QM_SETTING_exact : (enum qm_setting)setting;
            at->c.t = o->first;
            at->c.forced = o->forced;
            at->steps = o->steps;
            st = qm_shape_parse(shape, &at->c.shape);
            if (st == QM_OK && qm_shape_numel(&at->c.shape) > 1 << 24)
                st = qm_fail(QM_BAD_ARG, "shape %s: at most 2^24 elements", shape);
            (*n)++;
        }
        free(shapes);
    }
    free(classes);
    return st;
}

static json_t *report(const struct options *o, const struct qm_vectors_case *c, int n)
{
    json_t *rows = json_array();
    char text[QM_CASE_TEXT];
    for (int i = 0; i < n; i++)
        json_array_append_new(rows, json_pack("{s:s, s:s, s:I}", "name", c[i].name, "case",
                                              qm_case_print(&c[i].c, text), "steps",
                                              (json_int_t)c[i].steps));
    return json_pack("{s:s, s:s, s:i, s:o}", "file", o->out, "format", QM_VECTORS_FORMAT, "version",
                     QM_VECTORS_VERSION, "cases", rows);
}

static qm_status run(const struct options *o, int argc, char **argv)
{
    struct qm_recipe r;
    enum qm_container form = QM_CONTAINER_COUNT;
    struct qm_vectors v = {.n = 0};
    int n = 0;
    QM_TRY(form_of(o, &form));
    QM_TRY(qm_recipe_parse(o->recipe, &r));
    struct qm_vectors_case *c = calloc(QM_VECTORS_CASES, sizeof *c);
    qm_status st = c ? cases_of(o, c, &n) : qm_fail(QM_NO_MEMORY, "cases");
    if (st == QM_OK)
        st = qm_vectors_make(&r, c, n, o->seed, &v);
    if (st == QM_OK)
        st = qm_vectors_write(&v, o->out, form, argc, argv);
    if (st == QM_OK && strcmp(o->out, "-") != 0)
        qm_report(report(o, c, n));
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
        "judges them.  The format, with an example in NumPy: results/GOLDEN.md."
        "\vExamples:\n"
        "  qualm gen adamw4_ao --out golden.h5\n"
        "  qualm gen adamw8_bnb -s 4096,61x67 -n 5 -c normal,planted,nonfinite -o golden.npz\n"
        "  qualm gen adamw4_ao --out - | your-kernel | qualm verify -\n"
        "  qualm gen adamw4_ao --form npz --out - > golden.npz\n",
        children,
        NULL,
        NULL};
    struct options o = {.shapes = "64x64,300",
                        .classes = "normal,planted",
                        .setting = "default",
                        .steps = 3,
                        .first = 1,
                        .seed = 1};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    qm_status st = run(&o, argc, argv);
    return st == QM_OK ? 0 : qm_cli_failed("gen", st);
}
