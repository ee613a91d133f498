/* state.c - qualm state: makes, steps, converts and shows optimizer states in files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "core/base/name.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/source/distribution.h"
#include "experiments/state/state_file.h"

/* clang-format off */
#define VERB_LIST(X)                                            \
    X(show,    1, "what a state file holds")                    \
    X(convert, 2, "write it in the other form, or for another recipe") \
    X(make,    1, "run steps on random gradients from the start") \
    X(step,    2, "run further steps on the same gradients")
/* clang-format on */

enum { KEY_AS = 256, KEY_STEPS };

enum verb {
#define X(name, files, text) VERB_##name,
    VERB_LIST(X)
#undef X
        VERB_COUNT
};
static const char *const verbs[] = {
#define X(name, files, text) #name,
    VERB_LIST(X)
#undef X
};
static const int verb_files[] = {
#define X(name, files, text) files,
    VERB_LIST(X)
#undef X
};

struct options {
    enum verb verb;
    const char *recipe, *as, *shapes, *file[2];
    int64_t steps;
    uint64_t seed;
    int has_seed, has_steps;
    int n_words, argc;
    char **argv;
};

static const struct argp_option options[] = {
    {"recipe", 'R', "RECIPE", 0, "variant with overrides; make: required, convert: the target", 0},
    {"as", KEY_AS, "RECIPE", 0,
     "show, convert, step: the float32 recipe of a checkpoint's states, where the file does not "
     "say it",
     0},
    {"shapes", 'S', "LIST", 0, "make: shapes of the tensors, such as 64x64,300", 0},
    {"steps", KEY_STEPS, "N", 0, "make, step: number of steps (default 10)", 0},
    {"seed", 's', "N", 0, "make: seed of start, gradients and rounding (default 1)", 0},
    {0}};

static void word(struct options *o, char *arg, struct argp_state *state)
{
    if (o->n_words == 0) {
        int v = qm_name_find(arg, verbs, VERB_COUNT);
        if (v < 0)
            argp_error(state, "no '%s'; expected show, convert, make or step", arg);
        o->verb = (enum verb)v;
    } else if (o->n_words > verb_files[o->verb]) {
        argp_error(state, "unexpected word '%s'", arg);
    } else {
        o->file[o->n_words - 1] = arg;
    }
    o->n_words++;
}

/* Refuses the options that the verb does not read. */
static void refuse_unread(const struct options *o, struct argp_state *state)
{
    int steps = o->verb == VERB_make || o->verb == VERB_step, makes = o->verb == VERB_make;
    const struct qm_cli_given unread[] = {{"--recipe", o->recipe && o->verb == VERB_show},
                                          {"--as", o->as && makes},
                                          {"--shapes", o->shapes && !makes},
                                          {"--steps", o->has_steps && !steps},
                                          {"--seed", o->has_seed && !makes},
                                          {0}};
    static const char *const work[] = {"prints what a file holds", "runs no step", "reads no file",
                                       "goes on by the file's own seed"};
    qm_cli_alone(state, verbs[o->verb], work[o->verb], unread);
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case KEY_AS: o->as = arg; return 0;
    case 'R': o->recipe = arg; return 0;
    case 'S': o->shapes = arg; return 0;
    case KEY_STEPS:
        o->steps = (int64_t)qm_cli_number(state, "steps", arg, 0, 1000000000);
        o->has_steps = 1;
        return 0;
    case 's':
        o->seed = qm_cli_number(state, "seed", arg, 0, UINT64_MAX);
        o->has_seed = 1;
        return 0;
    case ARGP_KEY_ARG: word(o, arg, state); return 0;
    case ARGP_KEY_END:
        if (o->n_words == 0)
            argp_error(state, "expected show, convert, make or step");
        if (o->n_words <= verb_files[o->verb])
            argp_error(state, "%s wants %s", verbs[o->verb],
                       verb_files[o->verb] == 2 ? "two files, IN and OUT"
                       : o->verb == VERB_show   ? "a file"
                                                : "a file to write");
        if (o->verb == VERB_make && (!o->recipe || !o->shapes))
            argp_error(state, "make wants --recipe and --shapes");
        refuse_unread(o, state);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- notes ---------------------------------------------------------------------------------- */

/* Distinct lines, with the number of times each occurred. */
struct notes {
    const char *path; /* of the file that is read; NULL: none */
    int n;
    char **line;
    int *count;
};

/* Whether a line is about the whole file, and begins with its path. */
static int is_of_file(const struct notes *all, const char *line)
{
    size_t n = all->path ? strlen(all->path) : 0;
    return n && strncmp(line, all->path, n) == 0 && strncmp(line + n, ": ", 2) == 0;
}

static void note(const char *line, void *context)
{
    struct notes *all = context;
    for (int i = 0; i < all->n; i++)
        if (strcmp(all->line[i], line) == 0) {
            all->count[i]++;
            return;
        }
    char **lines = realloc(all->line, ((size_t)all->n + 1) * sizeof *lines);
    if (lines)
        all->line = lines;
    int *counts = realloc(all->count, ((size_t)all->n + 1) * sizeof *counts);
    if (counts)
        all->count = counts;
    if (!lines || !counts || !(all->line[all->n] = strdup(line)))
        return;
    all->count[all->n++] = 1;
}

/* Prints the notes on stderr, where nothing failed, and releases them; returns the list for
 * --json. */
static json_t *notes_end(struct notes *all, qm_status st)
{
    json_t *list = json_array();
    for (int i = 0; i < all->n; i++) {
        if (st != QM_OK)
            ; /* the error is the one line */
        else if (is_of_file(all, all->line[i]))
            qm_note_remark(all->path, all->line[i] + strlen(all->path) + 2);
        else
            qm_note("%s (%d %s)", all->line[i], all->count[i],
                    all->count[i] == 1 ? "tensor" : "tensors");
        json_array_append_new(list, json_pack("{s:o, s:i}", "note", qm_json_text(all->line[i]),
                                              "tensors", all->count[i]));
        free(all->line[i]);
    }
    free(all->line);
    free(all->count);
    return list;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Standard normals as floats: elements from id 2^38 on of a stream. */
static qm_status normals(uint64_t seed, enum qm_stream stream, int64_t step, uint32_t id, int64_t n,
                         float *out)
{
    enum { PIECE = 4096 };
    double x[PIECE];
    if (n >= INT64_C(1) << 38)
        return qm_fail(QM_BAD_ARG, "a tensor of 2^38 elements or more");
    for (int64_t from = 0; from < n; from += PIECE) {
        int64_t count = n - from < PIECE ? n - from : PIECE;
        qm_normals(seed, stream, step, ((int64_t)id << 38) + from, count, x);
        for (int64_t i = 0; i < count; i++)
            out[from + i] = (float)x[i];
    }
    return QM_OK;
}

/* Runs steps from + 1 to p->step of an open plan, of the tensor of this name, on random gradients.
 */
static qm_status run_steps(const struct qm_state_plan *p, const char *name, int64_t from)
{
    struct qm_progress bar;
    const struct qm_recipe *r = p->recipe;
    int64_t n = qm_shape_numel(p->shape);
    float *g = malloc(sizeof(float) * ((size_t)n + 1));
    uint16_t *narrow = malloc(sizeof(uint16_t) * ((size_t)n + 1));
    struct qm_tensor param = {p->param, qm_param_dtype(&r->param), *p->shape};
    struct qm_tensor grad = {r->grad == QM_DTYPE_f32 ? (void *)g : (void *)narrow, r->grad,
                             *p->shape};
    qm_status st = g && narrow ? QM_OK : qm_fail(QM_NO_MEMORY, "gradients");
    qm_progress_start(&bar, name, p->step - from);
    for (int64_t t = from + 1; st == QM_OK && t <= p->step; t++) {
        st = normals(p->seed, QM_STREAM_noise, t, p->id, n, g);
        for (int64_t i = 0; r->grad != QM_DTYPE_f32 && i < n; i++)
            narrow[i] = r->grad == QM_DTYPE_bf16 ? qm_float_to_bf16(g[i]) : qm_float_to_f16(g[i]);
        if (st == QM_OK)
            st = p->backend->step(p->plan, &param, &grad, t, p->seed);
        qm_progress_add(&bar, 1, 0);
    }
    qm_progress_end(&bar);
    free(narrow);
    free(g);
    return st;
}

/* Appends to out tensor `name` after its first o->steps steps. */
static qm_status make_tensor(const struct options *o, const struct qm_recipe *r, const char *name,
                             const struct qm_shape *shape, uint32_t id, struct qm_state *out)
{
    void *plan;
    int64_t n = qm_shape_numel(shape);
    QM_TRY(qm_backend_cpu.open(r, shape, id, &plan));
    float *x = malloc(sizeof(float) * ((size_t)n + 1));
    uint8_t *param = malloc((size_t)n * (size_t)qm_param_bytes(&r->param) + 1);
    qm_status st = x && param ? normals(o->seed, QM_STREAM_start, 0, id, n, x)
                              : qm_fail(QM_NO_MEMORY, "%s: %lld elements", name, (long long)n);
    for (int64_t i = 0; st == QM_OK && i < n; i++) {
        uint32_t h = qm_param_nearest(r->param.format, x[i]);
        memcpy(param + i * qm_param_bytes(&r->param), &h, (size_t)qm_param_bytes(&r->param));
    }
    const struct qm_state_plan p = {r, shape, &qm_backend_cpu, plan, param, id, o->steps, o->seed};
    if (st == QM_OK)
        st = run_steps(&p, name, 0);
    if (st == QM_OK)
        st = qm_state_take(out, name, &p);
    free(param);
    free(x);
    qm_backend_cpu.close(plan);
    return st;
}

static qm_status make(const struct options *o, struct qm_state *out)
{
    struct qm_recipe r;
    char *list = strdup(o->shapes), *rest = list, *one;
    qm_status st = list ? qm_recipe_parse(o->recipe, &r) : qm_fail(QM_NO_MEMORY, "shapes");
    while (st == QM_OK && (one = strsep(&rest, ",")) != NULL) {
        struct qm_shape shape;
        char name[24];
        snprintf(name, sizeof name, "t%d", out->n);
        st = qm_shape_parse(one, &shape);
        if (st == QM_OK)
            st = make_tensor(o, &r, name, &shape, (uint32_t)out->n, out);
    }
    free(list);
    return st;
}

/* Notes that a tensor's states become those of another family of rules, as RAdam's AdamW's. */
static void note_rule(const struct qm_state_tensor *t, const struct qm_recipe *to,
                      struct notes *notes)
{
    struct qm_recipe was;
    char line[160];
    if (qm_recipe_parse(t->recipe, &was) != QM_OK ||
        strcmp(was.rule->family, to->rule->family) == 0)
        return;
    snprintf(line, sizeof line, "rule: %s -> %s, which takes its states for its own",
             was.rule->name, to->rule->name);
    note(line, notes);
}

/* Appends to out a stored tensor under recipe `target` (NULL: its own) after `steps` more steps. */
static qm_status resume_tensor(const struct qm_state_tensor *t, const char *target, int64_t steps,
                               struct notes *notes, struct qm_state *out)
{
    struct qm_recipe recipe, *r = &recipe;
    void *plan;
    QM_TRY(qm_recipe_parse(target ? target : t->recipe, r));
    if (target) {
        note_rule(t, r, notes);
        qm_state_keep_hyper(t, target, r, note, notes);
    }
    int64_t from = qm_state_steps(t, r->rule);
    if (from + steps > INT64_C(0xffffffff))
        return qm_fail(QM_BAD_ARG, "%s: more than 2^32 - 1 steps", t->name);
    QM_TRY(qm_backend_cpu.open(r, &t->shape, t->id, &plan));
    uint8_t *param =
        malloc((size_t)qm_shape_numel(&t->shape) * (size_t)qm_param_bytes(&r->param) + 1);
    const struct qm_state_plan p = {r,     &t->shape, &qm_backend_cpu, plan,
                                    param, t->id,     from + steps,    t->seed};
    qm_status st = param ? qm_state_give(t, &p, note, notes) : qm_fail(QM_NO_MEMORY, "%s", t->name);
    if (st == QM_OK)
        st = run_steps(&p, t->name, from);
    if (st == QM_OK)
        st = qm_state_take(out, t->name, &p);
    free(param);
    qm_backend_cpu.close(plan);
    return st;
}

/* Notes a slot that the recipe quantizes, but in no tensor of these sizes. */
static void note_plain(const struct qm_recipe *r, const struct qm_state *made, struct notes *notes)
{
    char line[256];
    for (int k = 0; k < r->rule->n_slots; k++) {
        int coded = !r->slot[k].bits || qm_rule_slot_like(r->rule, k) >= 0;
        for (int i = 0; i < made->n; i++)
            coded |= k < made->tensor[i].n_slots &&
                     strcmp(made->tensor[i].slot[k].quantizer, "f32") != 0;
        snprintf(line, sizeof line,
                 "%s stays in float32, as the recipe keeps tensors of these sizes; "
                 ",min_numel=0,whole_blocks=0 after its name gives codes to all",
                 r->rule->slot[k]);
        for (int i = 0; i < made->n && !coded; i++)
            note(line, notes);
    }
}

static qm_status resume(const struct options *o, const struct qm_state *in, struct notes *notes,
                        struct qm_state *out)
{
    struct qm_recipe r;
    if (o->recipe)
        QM_TRY(qm_recipe_parse(o->recipe, &r));
    for (int i = 0; i < in->n; i++) {
        qm_status st = resume_tensor(&in->tensor[i], o->recipe, o->verb == VERB_step ? o->steps : 0,
                                     notes, out);
        if (st != QM_OK)
            return qm_fail_in(st, in->tensor[i].name);
    }
    if (o->recipe)
        note_plain(&r, out, notes);
    return QM_OK;
}

/* ---- output --------------------------------------------------------------------------------- */

static json_int_t slot_bytes(const struct qm_state_slot *s)
{
    size_t codes = s->codes.data ? qm_tensor_bytes(&s->codes) : 0;
    return (json_int_t)(codes + qm_tensor_bytes(&s->scales));
}

static json_t *report(const struct qm_state *s, const char *path, json_t *notes)
{
    json_t *tensors = json_array(), *slots = json_array();
    char shape[192], digest[65] = "", text[24];
    for (int i = 0; i < s->n; i++) {
        const struct qm_state_tensor *t = &s->tensor[i];
        snprintf(text, sizeof text, "%llu", (unsigned long long)t->seed);
        json_array_append_new(tensors,
                              json_pack("{s:s, s:s, s:I, s:I, s:s, s:s}", "name", t->name, "shape",
                                        qm_shape_print(&t->shape, shape, sizeof shape), "tensor",
                                        (json_int_t)t->id, "step", (json_int_t)t->step, "seed",
                                        text, "recipe", t->recipe));
        for (int k = 0; k < t->n_slots; k++)
            json_array_append_new(
                slots, json_pack("{s:s, s:s, s:s, s:s, s:I}", "tensor", t->name, "slot",
                                 t->slot[k].name, "quantizer", t->slot[k].quantizer, "shape",
                                 qm_shape_print(&t->slot[k].shape, shape, sizeof shape), "bytes",
                                 slot_bytes(&t->slot[k])));
    }
    qm_state_digest(s, digest);
    json_t *all = json_pack("{s:o, s:s, s:o, s:o}", "file", qm_json_text(path), "digest", digest,
                            "tensors", tensors, "slots", slots);
    if (json_array_size(notes) > 0 && qm_cli.json)
        json_object_set(all, "notes", notes);
    json_decref(notes);
    return all;
}

static qm_status run(struct options *o, json_t **out)
{
    struct qm_state in = {0}, made = {0};
    struct notes notes = {.path = o->verb == VERB_make ? NULL : o->file[0]};
    const char *path = o->file[verb_files[o->verb] - 1];
    /* convert without --recipe copies the arrays, and so needs no known variant */
    int as_it_is = o->verb == VERB_show || (o->verb == VERB_convert && !o->recipe);
    qm_status st = o->verb == VERB_make ? make(o, &made)
                                        : qm_state_read_as(o->file[0], o->as, note, &notes, &in);
    if (st == QM_OK && o->verb != VERB_make && !as_it_is)
        st = resume(o, &in, &notes, &made);
    if (!as_it_is) { /* what the input does not prove, its copy does not either */
        made.joined = in.joined;
        made.left_out = in.left_out;
        in.joined = in.left_out = NULL;
    }
    const struct qm_state *result = as_it_is ? &in : &made;
    if (st == QM_OK && o->verb != VERB_show)
        st = qm_state_write(result, path, o->argc, o->argv);
    json_t *said = notes_end(&notes, st);
    if (st == QM_OK)
        *out = report(result, path, said);
    else
        json_decref(said);
    qm_state_free(&made);
    qm_state_free(&in);
    return st;
}

int qm_cmd_state(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        options,
        option,
        "show FILE\nconvert IN OUT\nmake OUT\nstep IN OUT",
        "Optimizer states in files: parameter, residual, codes and scales of every slot, step and "
        "seed.  The ending says the form: .h5 (HDF5) or .safetensors; both hold the same bits.  IN "
        "may be "
        "a torch checkpoint with model and optimizer: its states become those of the float32 "
        "recipe that its param_groups tell, such as adamw_f32."
        "\v"
        "  show     what a file holds, and the digest of its contents\n"
        "  convert  the other form; with --recipe another recipe: what both store alike is copied, "
        "the rest goes through float32, with a note on stderr for each; each tensor keeps the "
        "hyper-parameters of IN that RECIPE does not state, and a note names those that "
        "RECIPE's rule does not read\n"
        "  make     start and gradients are standard normal by --seed; tensors are t0, t1, ...\n"
        "  step     further steps on the gradients that make would have used: after k and k steps "
        "a file has the digest of one after 2k.  --recipe as in convert\n"
        "\n"
        "Examples:\n"
        "  qualm state make --recipe adamw4_ao --shapes 64x64,300 --steps 10 \\\n"
        "    a.safetensors\n"
        "  qualm state step a.safetensors b.safetensors --steps 10\n"
        "  qualm state convert b.safetensors b.h5\n"
        "  qualm state convert b.h5 c.h5 --recipe adamw8_bnb,param=bf16/kahan\n"
        "  qualm state show b.h5 --json\n"
        "  qualm state convert checkpoint.pt out.safetensors --recipe adamw4_ao\n"
        "\n"
        "Exit codes: 0 done, 2 a value or a shape that is none, 3 a file cannot be read or "
        "written, "
        "4 a recipe names a variant, key or word that there is not.",
        children,
        NULL,
        NULL};
    struct options o = {.steps = 10, .seed = 1, .argc = argc, .argv = argv};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    json_t *result = NULL;
    qm_status st = run(&o, &result);
    if (st != QM_OK)
        return qm_cli_failed("state", st);
    qm_report(result);
    return 0;
}
