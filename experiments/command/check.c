/* check.c - qualm check: judges variants, or a kernel of the user, by the oracle. */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/device/device_cuda.h"
#include "core/device/step_kernels.h"
#include "core/device/tensor_rule_form.h"
#include "core/user_kernel/user_cuda.h"
#include "experiments/check/bound_search_table.h"
#include "experiments/check/check_table.h"
#include "experiments/check/judge.h"
#include "experiments/check/specials_table.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/kernel/kernel.h"
#include "experiments/recipes/recipe_list.h"

enum {
    KEY_CASE = 256,
    KEY_LIST,
    KEY_SPECIALS,
    KEY_SEARCH,
    KEY_KERNEL,
    KEY_AS,
    KEY_AGAINST,
    KEY_REGIME,
    KEY_TIME,
    KEY_FOREVER,
    KEY_JUNIT,
    KEY_LIMIT_TIME,
    KEY_LIMIT_MEMORY,
    KEY_TEMPLATE,
    KEY_DRAWS,
    KEY_QUICK,
    KEY_BACKEND,
    KEY_MODE,
    KEY_NO_SHRINK,
    KEY_FMAD,
    KEY_ALLOW_REFUSED
};

enum { DRAWS = QM_CHECK_DRAWS, QUICK_DRAWS = 96, QUICK_STRIDE = 8, BATCH = 32 };

struct options {
    struct qm_recipes recipes;
    qm_status status;            /* the first failure of a recipe */
    const struct qm_backend *on; /* what `backend` names */
    int list, specials, quick, forever, search;
    int64_t draws; /* -1: the default */
    double time;   /* seconds; 0: no limit */
    uint64_t seed;
    enum qm_mode mode;
    struct qm_kernel_options kernel;
    const char *one_case, *template, *backend;
    const char *only_kernel; /* name of an option given that needs --kernel; or NULL */
};

#define X(name, text) "  - " text "\n"
#define Y(text)       "  - " text "\n"
#define ALLOWED       QM_REORDER_LIST(X)
#define NOT_ALLOWED   QM_REORDER_NOT_LIST(Y)

static const struct argp_option options[] = {
    {"case", KEY_CASE, "ID", 0, "this case only; see --list-cases", 0},
    {"list-cases", KEY_LIST, NULL, 0,
     "print the cases, the core and the drawn ones of each VARIANT (default: of --as, else of "
     "adamw4_ao), and "
     "stop; of a kernel of yours more are judged, N/far and what its results ask for",
     0},
    {"draws", KEY_DRAWS, "N", 0,
     "cases drawn from the domain beside the core (default " QM_CHECK_DRAWS_TEXT ")", 0},
    {"quick", KEY_QUICK, NULL, 0,
     "an eighth of the core, and 96 drawn cases; so it is where neither a variant nor --draws is "
     "named, and all are judged",
     0},
    {"forever", KEY_FOREVER, NULL, 0,
     "go on drawing cases until interrupted, or --time is over; the core is left out", 0},
    {"time", KEY_TIME, "S", 0, "stop after S seconds", 0},
    {"specials", KEY_SPECIALS, NULL, 0,
     "what each variant does with NaN, Inf, zeros, denormals and squares that overflow; judged", 0},
    {"search", KEY_SEARCH, NULL, 0,
     "climb to inputs at which the error comes nearest its bound, for --time S altogether (default "
     "60): is the bound that I am judged by right, and is it sharp?",
     0},
    {"seed", 's', "N", 0,
     "of drawn cases, parameters and gradients (default " QM_CHECK_SEED_TEXT ")", 0},
    {"backend", KEY_BACKEND, "NAME", 0,
     "cpu (default); cuda: on the GPU, by NVRTC; emu: the same kernels on the CPU", 0},
    {"mode", KEY_MODE, "MODE", 0,
     "of backends cuda and emu; exact (default): the CPU's bits; fast: contracted, approximate (of "
     "a "
     ".cu file: the bounds allow divisions and roots to be off by 2 ulp)",
     0},
    {NULL, 0, NULL, 0, "A kernel of your own in place of the variant's step:", 1},
    {"kernel", KEY_KERNEL, "FILE", 0,
     "judge this .c ($CC and $CFLAGS compile it), .cu (on the CPU, by $CXX and $CXXFLAGS) or .so "
     "file; it runs in a process of its own, which judges nothing",
     1},
    {"as", KEY_AS, "VARIANT", 0, "what it claims to be (default: what its QM_KERNEL says)", 1},
    {"against", KEY_AGAINST, "FILE", 0, "compare with an older kernel too: codes, errors, speed",
     1},
    {"regime", KEY_REGIME, "NAME", 0,
     "only cases of this class or setting (planted, denormal, wd0, ...); may be repeated", 1},
    {"junit", KEY_JUNIT, "FILE", 0, "write the results as JUnit XML", 1},
    {"time-limit", KEY_LIMIT_TIME, "S", 0,
     "time for one case (default 10), and as much again for every 1024 calls; waits for a "
     "processor do not count",
     1},
    {"limit-time", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0},
    {"memory-limit", KEY_LIMIT_MEMORY, "MIB", 0,
     "resident memory, of child processes too (default 2048)", 1},
    {"limit-memory", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0},
    {"no-shrink", KEY_NO_SHRINK, NULL, 0,
     "leave out the reproducer NAME-repro.c of one failure, the first of finite numbers where no "
     "step "
     "crashes or damages memory (see qualm shrink)",
     1},
    {"fmad", KEY_FMAD, "BOOL", 0,
     "of a .cu file: judge it contracted (true) or not (false) alone; default: what $CUDAFLAGS "
     "says, else both",
     1},
    {"template", KEY_TEMPLATE, "VARIANT", 0,
     "print a kernel to start from, or kernel_abi.h, or kernel_cuda.h; \"list\" names them", 1},
    {"allow-refused", KEY_ALLOW_REFUSED, "N", 0,
     "the kernel may refuse N cases beside those that the template of its variant refuses (default "
     "0: such a refusal is a failure)",
     1},
    {0}};

static double number_of(struct argp_state *state, const char *option, const char *arg)
{
    char *end;
    double x = strtod(arg, &end);
    if (end == arg || *end || !(x > 0.0 && x < 1e9))
        argp_error(state, "--%s: expected a number above 0 and below 1e9, got '%s'", option, arg);
    return x;
}

/* Takes an option that goes with --kernel; returns 0 for any other option. */
static int kernel_option(int key, char *arg, struct argp_state *state, struct options *o)
{
    struct qm_kernel_options *k = &o->kernel;
    switch (key) {
    case KEY_KERNEL: k->file = arg; return 1;
    case KEY_AS: k->as = arg; break;
    case KEY_AGAINST: k->against = arg; break;
    case KEY_REGIME:
        if (k->n_regimes == QM_REGIMES)
            argp_error(state, "--regime: at most %d of them", QM_REGIMES);
        k->regime[k->n_regimes++] = arg;
        break;
    case KEY_NO_SHRINK: k->no_shrink = 1; break;
    case KEY_JUNIT: k->junit = arg; break;
    case KEY_ALLOW_REFUSED:
        k->allow_refused = qm_cli_whole(state, "allow-refused", arg, 0, 1000000000);
        break;
    case KEY_FMAD:
        if (strcmp(arg, "true") != 0 && strcmp(arg, "false") != 0)
            argp_error(state, "--fmad: expected true or false, got '%s'", arg);
        k->fmad = arg;
        break;
    case KEY_LIMIT_TIME: k->limits.seconds = number_of(state, "time-limit", arg); break;
    case KEY_LIMIT_MEMORY: k->limits.mebibytes = number_of(state, "memory-limit", arg); break;
    default: return 0;
    }
    for (const struct argp_option *a = options; !o->only_kernel; a++)
        o->only_kernel = a->key == key ? a->name : NULL;
    return 1;
}

/* Refuses two of the options that each say what is done, and what has no part in it. */
static void refuse_contradictions(const struct options *o, struct argp_state *state)
{
    const struct qm_cli_given work[] = {{"--list-cases", o->list},
                                        {"--search", o->search},
                                        {"--specials", o->specials},
                                        {"--case", o->one_case != NULL},
                                        {"--forever", o->forever},
                                        {0}},
                              drawn[] = {{"--draws", o->draws >= 0}, {"--quick", o->quick}, {0}};
    static const char *const does[] = {"prints cases", "looks for inputs of its own",
                                       "has cases of its own", "judges one case"};
    for (int i = 0; i < 4; i++)
        if (work[i].is_given) {
            qm_cli_alone(state, work[i].name, does[i], work + i + 1);
            qm_cli_alone(state, work[i].name, does[i], drawn + (i == 0 ? 2 : 0)); /* lists both */
        }
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    if (kernel_option(key, arg, state, o))
        return 0;
    switch (key) {
    case KEY_TEMPLATE: o->template = arg; return 0;
    case KEY_BACKEND: o->backend = arg; return 0;
    case KEY_MODE:
        if (strcmp(arg, "fast") != 0 && strcmp(arg, "exact") != 0)
            argp_error(state, "--mode: expected exact or fast, got '%s'", arg);
        o->mode = strcmp(arg, "fast") == 0 ? QM_MODE_fast : QM_MODE_exact;
        return 0;
    case KEY_CASE: o->one_case = arg; return 0;
    case KEY_LIST: o->list = 1; return 0;
    case KEY_QUICK: o->quick = 1; return 0;
    case KEY_FOREVER: o->forever = 1; return 0;
    case KEY_TIME: o->time = number_of(state, "time", arg); return 0;
    case KEY_DRAWS: o->draws = (int64_t)qm_cli_number(state, "draws", arg, 0, 1000000); return 0;
    case KEY_SPECIALS: o->specials = 1; return 0;
    case KEY_SEARCH: o->search = 1; return 0;
    case 's':
        o->seed = qm_cli_number(state, "seed", arg, 0, UINT64_MAX);
        o->kernel.has_seed = 1;
        return 0;
    case ARGP_KEY_END:
        if (o->only_kernel && !o->kernel.file)
            argp_error(state, "--%s needs --kernel FILE", o->only_kernel);
        if (o->recipes.n > 0 && (o->kernel.file || o->template))
            argp_error(state, o->kernel.file ? "--kernel takes what it is judged as by --as"
                                             : "--template takes one VARIANT");
        refuse_contradictions(o, state);
        return 0;
    case ARGP_KEY_ARG:
        if (o->status == QM_OK)
            o->status = qm_recipes_add(&o->recipes, arg);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Drawn cases beside the core. */
static int draws_of(const struct options *o)
{
    return o->draws >= 0 ? (int)o->draws : o->quick ? QUICK_DRAWS : DRAWS;
}

/* Listed cases. */
static int core_of(const struct options *o)
{
    return (qm_case_count() - 1) / (o->quick ? QUICK_STRIDE : 1) + 1;
}

/* The core, and the drawn cases of each recipe. */
static void list_cases(const struct options *o, const struct qm_backend *backend)
{
    struct qm_recipe one;
    const char *usual = o->kernel.as ? o->kernel.as : "adamw4_ao";
    int is_none = o->recipes.n == 0 && qm_recipe_parse(usual, &one) == QM_OK;
    const struct qm_recipes all = is_none ? (struct qm_recipes){&one, 1} : o->recipes;
    json_t *list = qm_check_cases(&all, backend, o->quick ? QUICK_STRIDE : 1, draws_of(o), o->seed);
    size_t i;
    json_t *name;
    json_array_foreach (list, i, name)
        if (!qm_cli.json)
            qm_print("%s\n", json_string_value(name));
    if (qm_cli.json)
        qm_json_print(list);
    else
        json_decref(list);
}

static void count_case(void *progress) { qm_progress_add(progress, 1, 0); }

/* The cases that --forever draws: BATCH by BATCH, until the time is over or the first failure. */
static qm_status check_forever(struct qm_subject *s, const struct options *o, double until,
                               struct qm_tally *t, struct qm_judge_watch watch)
{
    int64_t first = 0;
    do {
        QM_TRY(qm_judge_drawn(s, watch.domain, first, BATCH, o->seed, t, watch));
        first += BATCH;
    } while (t->failed_cases == 0 && qm_seconds() < until);
    return QM_OK;
}

/* *coverage: an object of qm_coverage_json, or NULL for one case. */
static qm_status check_one(struct qm_subject *s, const struct options *o, double until,
                           struct qm_tally *t, struct qm_progress *progress, json_t **coverage)
{
    struct qm_domain d;
    struct qm_coverage *seen;
    QM_TRY(qm_judge_begin(s, t));
    if (o->one_case) {
        struct qm_case c;
        char limits[200];
        QM_TRY(qm_case_parse(o->one_case, &c));
        qm_case_limits(&c, &s->recipe, limits, sizeof limits);
        if (*limits)
            qm_note("%s", limits);
        QM_TRY(qm_judge_case(s, &c, o->seed, t));
        if (t->skipped)
            return qm_fail_in(QM_SKIPPED, "the case is unfit");
        qm_judge_end(s, t);
        return QM_OK;
    }
    seen = calloc(1, sizeof *seen);
    if (!seen)
        return qm_fail(QM_NO_MEMORY, "the coverage");
    qm_domain_of(&s->recipe, s->backend, &d);
    struct qm_judge_watch watch = {count_case, progress, seen, &d};
    qm_status st = QM_OK;
    if (o->forever)
        st = check_forever(s, o, until, t, watch);
    else
        st = qm_judge_list(s, 0, o->quick ? QUICK_STRIDE : 1, o->seed, t, watch);
    if (st == QM_OK && !o->forever)
        st = qm_judge_drawn(s, &d, 0, draws_of(o), o->seed, t, watch);
    if (st == QM_OK)
        qm_judge_end(s, t);
    *coverage = st == QM_OK ? qm_coverage_json(seen, &d) : NULL;
    free(seen);
    return st;
}

static const struct qm_backend *const backends[] = {&qm_backend_cpu, &qm_backend_cuda,
                                                    &qm_backend_emu};

/* Finds the backend of that name (NULL: cpu) for a kernel file (or NULL).  QM_SKIPPED: it cannot
 * run here. */
static qm_status backend_found(const char *name, const char *file, const struct qm_backend **out)
{
    struct qm_cuda_gpu gpu;
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(name ? name : "cpu", backends[i]->name) == 0) {
            *out = backends[i];
            if (file && name && (i > 0) != qm_kernel_is_cuda(file))
                return qm_fail(QM_BAD_ARG, "%s: backend %s runs %s sources", file, name,
                               i > 0 ? "CUDA" : "no CUDA");
            if (!file || backends[i] != &qm_backend_cuda)
                return backends[i]->probe();
            QM_TRY(qm_kernel_cuda_build(file, NULL)); /* compile errors show without a GPU */
            return qm_cuda_gpu_asked(&gpu);           /* the kernel's process opens it */
        }
    return qm_fail(QM_NO_MATCH, "no backend '%s'; expected cpu, cuda or emu", name);
}

static struct qm_check_run run_of(const struct options *o)
{
    return (struct qm_check_run){o->on->name, o->mode, o->seed};
}

static int search(const struct options *o, json_t *skipped)
{
    const struct qm_bound_search_job job = {
        .recipes = &o->recipes,
        .backend = o->on,
        .kernel = o->kernel.file,
        .as = o->kernel.as,
        .reorder = o->kernel.file ? qm_kernel_freedoms(&o->kernel.fast) : qm_step_reorder(o->mode),
        .seconds = o->time > 0.0 ? o->time : 60.0,
        .run = o->kernel.file ? qm_kernel_on(&o->kernel) : run_of(o),
        .skipped = skipped};
    return qm_bound_search_print(&job);
}

/* Does the work of options other than a check of variants; returns its exit code, or -1 for
 * a check. */
static int other_work(struct options *o)
{
    int is_cuda = o->kernel.file && qm_kernel_is_cuda(o->kernel.file); /* on backend emu */
    qm_status st =
        o->search && is_cuda && o->backend && strcmp(o->backend, "cuda") == 0
            ? qm_fail(QM_BAD_ARG, "--search runs a .cu file on --backend emu (default), not cuda")
            : backend_found(o->backend, o->kernel.file, &o->on);
    if (st != QM_OK)
        return qm_cli_failed("check", st);
    if (o->template && o->kernel.file)
        return qm_cli_failed("check", qm_fail(QM_BAD_ARG, "--template writes a kernel, --kernel "
                                                          "judges one: give one of them"));
    if (o->template)
        return qm_kernel_template(o->template);
    if (o->mode == QM_MODE_fast && o->on == &qm_backend_cpu && !is_cuda)
        return qm_cli_failed("check",
                             qm_fail(QM_BAD_ARG, "--mode fast is of --backend cuda or emu"));
    if (o->list) {
        list_cases(o, o->on);
        return 0;
    }
    if (!o->kernel.file)
        return -1;
    o->kernel.one_case = o->one_case;
    o->kernel.backend = o->backend;
    o->kernel.seed = o->seed;
    o->kernel.draws = draws_of(o);
    o->kernel.quick = o->quick;
    o->kernel.forever = o->forever;
    o->kernel.time = o->time;
    o->kernel.on_gpu = o->on == &qm_backend_cuda;
    o->kernel.specials = o->specials;
    o->kernel.fast = qm_step_reorder(o->mode);
    return o->search ? search(o, NULL) : qm_kernel_check(&o->kernel);
}

/* QM_SKIPPED, with the reason, when this recipe has no kernel for any tensor. */
static qm_status has_kernel(const struct qm_recipe *r)
{
    const struct qm_shape shape = {2, {64, 96}};
    struct qm_step_form *f = malloc(sizeof *f);
    int is_there = 1;
    qm_status st = f ? QM_OK : qm_fail(QM_NO_MEMORY, "a form");
    for (int part = 0; st == QM_OK && is_there; part++)
        st = qm_recipe_form(r, part, &shape, r->grad, f, &is_there);
    free(f);
    return st;
}

static void add_skipped(json_t *skipped, const char *name)
{
    json_array_append_new(skipped,
                          json_pack("{s:s, s:s}", "variant", name, "reason", qm_message()));
}

/* Takes the recipes away that have no kernel on the backend, as {variant, reason}.  QM_SKIPPED:
 * none is left; qm_message() has the last reason. */
static qm_status leave_out(struct options *o, json_t *skipped)
{
    char name[QM_RECIPE_TEXT];
    int n = 0;
    for (int i = 0; i < o->recipes.n; i++) {
        const struct qm_recipe *r = &o->recipes.recipe[i];
        qm_status st = o->on == &qm_backend_cpu ? QM_OK : has_kernel(r);
        if (st == QM_OK)
            o->recipes.recipe[n++] = *r;
        else if (st == QM_SKIPPED)
            add_skipped(skipped, qm_recipe_print(r, name));
        else
            return st;
    }
    o->recipes.n = n;
    return n ? QM_OK : QM_SKIPPED;
}

/* *out: a row per judged recipe; those that cannot be are added to skipped.  *failed: some case
 * of one failed; *unjudged: no number of one was judged. */
static qm_status check(const struct options *o, json_t **out, json_t *skipped, int *failed,
                       int *unjudged)
{
    struct qm_progress progress;
    const struct qm_check_run on = run_of(o);
    json_t *rows = json_array();
    qm_status st = QM_OK;
    qm_progress_start(&progress, "check",
                      (int64_t)o->recipes.n * (o->one_case  ? 1
                                               : o->forever ? 0
                                                            : core_of(o) + draws_of(o)));
    double from = qm_seconds(), each = (o->time > 0.0 ? o->time : 1e9) / o->recipes.n;
    for (int i = 0; i < o->recipes.n && st == QM_OK; i++) {
        struct qm_subject s = {
            .backend = o->on, .recipe = o->recipes.recipe[i], .reorder = qm_step_reorder(o->mode)};
        struct qm_tally t;
        char name[QM_RECIPE_TEXT];
        json_t *coverage = NULL;
        st = check_one(&s, o, from + each * (i + 1), &t, &progress, &coverage);
        if (st == QM_OK)
            st = qm_check_unload(o->on);
        qm_recipe_print(&s.recipe, name);
        if (st == QM_OK) {
            json_array_append_new(rows, qm_check_row(s.recipe.rule, name, &t, &on, coverage));
            *failed |= t.failed_cases > 0;
            *unjudged |= t.judged == 0;
        } else if (st == QM_SKIPPED) {
            add_skipped(skipped, name);
            st = QM_OK;
        }
    }
    qm_progress_end(&progress);
    if (st == QM_OK && json_array_size(rows) == 0)
        st = QM_SKIPPED; /* qm_message() has the last reason */
    if (st == QM_OK)
        *out = rows;
    else
        json_decref(rows);
    return st;
}

/* Checks the cases of all recipes.  Returns the exit code. */
static int check_all(const struct options *o, json_t *skipped)
{
    const struct qm_check_run on = run_of(o);
    json_t *rows = NULL;
    int failed = 0, unjudged = 0;
    qm_status st = check(o, &rows, skipped, &failed, &unjudged);
    if (st != QM_OK)
        return qm_cli_failed("check", st);
    if (qm_cli.json) {
        json_t *all = qm_check_head(&on, !failed && !unjudged);
        json_object_set_new(all, "variants", rows);
        json_object_set(all, "skipped", skipped);
        qm_json_print(all);
    } else {
        qm_check_print(rows);
        qm_check_print_skipped(skipped);
        qm_check_end(&on);
        json_decref(rows);
    }
    return failed ? qm_exit_code(QM_CHECK_FAILED) : unjudged ? qm_exit_code(QM_NO_MATCH) : 0;
}

static int run(void *of)
{
    struct options *o = of;
    int other = o->status == QM_OK ? other_work(o) : -1;
    qm_status st = o->status;
    if (other >= 0)
        return other;
    qm_backend_device_mode(o->mode);
    if (st == QM_OK && o->recipes.n == 0) {
        st = qm_recipes_add_all(&o->recipes);
        if (o->draws < 0 && !o->quick && !o->one_case && !o->forever && !o->search &&
            !o->specials) {
            o->quick = 1;
            qm_note("%d of %d cases of each variant: name one, or --draws %d, for all of them",
                    core_of(o) + QUICK_DRAWS, qm_case_count() + DRAWS, DRAWS);
        }
    }
    json_t *skipped = json_array();
    if (st == QM_OK)
        st = leave_out(o, skipped);
    const struct qm_subject by = {.backend = o->on, .reorder = qm_step_reorder(o->mode)};
    const struct qm_check_run on = o->on ? run_of(o) : (struct qm_check_run){0};
    int code = st != QM_OK   ? qm_cli_failed("check", st)
               : o->search   ? search(o, skipped)
               : o->specials ? qm_specials_print(&o->recipes, &by, &on, skipped)
                             : check_all(o, skipped);
    json_decref(skipped);
    return code;
}

int qm_cmd_check(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = option,
        .args_doc = "[VARIANT|RECIPE...]",
        .doc =
            "Runs each variant (default: all) beside the double-precision oracle over shapes, "
            "gradients and settings that are known to break kernels, and judges parameters, "
            "scales and codes by derived bounds.  Exit code 1 when something is out of bounds."
            "  With --kernel FILE your own step is judged in place of the variant's.  It runs in a "
            "process of its own that judges nothing; crashes, hangs, writes past the end or after "
            "the return, processes left behind and a case refused are verdicts like others.  Where "
            "the system has seccomp and Landlock it can send no signal to its judge.  A CUDA "
            "source (kernel_cuda.h) runs thread by thread on the CPU: races, divergent barriers, "
            "unwritten memory and accesses out of bounds are verdicts with their line.  It is "
            "judged "
            "contracted, as nvcc and NVRTC compile by default, and uncontracted (--fmad)."
            "\n\nRMSE/f32 is the error of the parameter after one step, root mean square against "
            "the oracle, over that of the same rule in plain float32 from the same inputs "
            "(gradients of class normal, geometric mean over steps): 1 where float32 would do no "
            "better.  \"of states\" is the same for the state whose format costs most; --json has "
            "each."
            "\vA kernel may be more precise than its rule, and in these points otherwise:\n" ALLOWED
            "and is another rule or format, to be judged with another --as, where it "
            "has:\n" NOT_ALLOWED "\nExamples:\n"
            "  qualm check adamw4_ao --json\n"
            "  qualm check adamw4_ao,exp_avg.round=mid\n"
            "  qualm check --specials adamw8_bnb lion8_fused\n"
            "  qualm check adamw4_lpmm --case 61x67/planted/wd/t1/forced --seed 7\n"
            "  qualm check --template adamw4_ao > mine.c\n"
            "  qualm check --backend emu adamw4_ao  # the CUDA kernels, without a GPU\n"
            "  qualm check --backend cuda --mode fast  # the GPU, approximate\n"
            "  qualm check --backend emu --mode fast adafactor8_026  # as inexact as that\n"
            "  qualm check --search --time 20 adamw4_ao  # the bound's largest share\n"
            "  # mine.c is what --template prints\n"
            "  qualm check --kernel mine.c\n"
            "  qualm check --template adamw4_ao.cu > mine.cu; qualm check --kernel mine.cu\n"
            "  CUDAFLAGS=--fmad=false qualm check --kernel mine.cu  # uncontracted alone\n"
            "  qualm check --kernel mine.c --case 2147483655/far  # beyond 2^31: a minute\n"
            "  qualm check --kernel mine.so --as adamw4_ao,exp_avg.norm=block:64 \\\n"
            "    --junit out.xml\n"
            "  qualm check --kernel mine.c --against old.c --regime planted --regime wd\n"
            "  qualm check --kernel mine.c --forever\n"
            "  qualm check adamw4_ao --draws 2000 --seed 7  # more of the domain\n"
            "\nWith --backend cuda another process does the work, on GPU number "
            "$QM_CUDA_DEVICE (0): a driver or NVRTC that crashes, leaves, or needs more than "
            "$QM_CUDA_LIMIT seconds (30; to compile ten times that) is a line and exit code 3.  "
            "A kernel of your own holds the GPU alone, in a process for each form of --fmad and "
            "for --against: where the compute mode is EXCLUSIVE_PROCESS say one form."
            "\nExit codes: 0 all passed, 1 something is out of bounds, 2 usage, a kernel does not "
            "compile or $QM_CUDA_DEVICE is no number, 3 a file cannot be read, or the driver "
            "failed, 4 nothing found or judged, 75 interrupted, 77 the "
            "backend is not "
            "there, or has no "
            "kernel for any of the variants.",
        .children = children,
    };
    struct options o = {
        .status = QM_OK,
        .draws = -1,
        .seed = QM_CHECK_SEED,
        .kernel.limits = {.seconds = 10, .mebibytes = 2048, .processes = QM_PROCESSES}};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    int is_apart = o.backend && strcmp(o.backend, "cuda") == 0;
    if (code == 0)
        code = is_apart ? qm_cli_apart("check", run, &o) : run(&o);
    qm_recipes_free(&o.recipes);
    return code;
}
