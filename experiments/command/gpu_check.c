/* gpu_check.c - qualm gpu-check: checks and measures the CUDA backend on this GPU. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/compile/cubin_cache.h"
#include "core/recipe/recipe.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/gpu/bench.h"
#include "experiments/gpu/gpu_run.h"
#include "experiments/machine/provenance.h"
#include "experiments/machine/shipped_files.h"

enum {
    KEY_ONLY = 256,
    KEY_OUT,
    KEY_QUICK,
    KEY_SIZE,
    KEY_ROUNDS,
    KEY_PEERS,
    KEY_SECONDS,
    KEY_LIMIT,
    KEY_AHEAD,
    KEY_RESUME,
    KEY_BESIDE
};

struct options {
    struct qm_gpu_options gpu;
    double seconds;
    int has_peers, is_resumed, is_beside, has_plan; /* has_plan: an option that a report stores */
    const char *folder, *resumed;
    const char *peers_were; /* the command of the report, which is not run; NULL: none */
    char **words;
    int n_words;
};

static const struct argp_option options[] = {
    {"only", KEY_ONLY, "PART", 0,
     "exact, speed, codes, check, tables or peers; several with commas; may be repeated", 0},
    {"quick", KEY_QUICK, NULL, 0,
     "codes are compared at the ends of runs, one case in ten is checked, no tensor of exact has "
     "more "
     "than 50,000 elements",
     0},
    {"out", KEY_OUT, "FOLDER", 0, "where the report goes (default results/gpu)", 0},
    {"seconds", KEY_SECONDS, "S", 0,
     "end S seconds after the start, with the report so far and exit code 75 (default 570: a call "
     "of ten "
     "minutes; 0: no limit)",
     0},
    {"time-limit", KEY_LIMIT, "S", 0,
     "seconds of one row (default 60; of a peer three times as many)", 0},
    {"limit", 0, NULL, OPTION_ALIAS, NULL, 0},
    {"ahead", KEY_AHEAD, "N", 0,
     "processes that compile the kernels of rows to come (default: half the cores, at most 12)", 0},
    {"resume", KEY_RESUME, "FILE", OPTION_ARG_OPTIONAL,
     "go on with a report: what is missing first, then what could not be measured (default: the "
     "newest in the folder); parts, recipes, size and rounds are the report's",
     0},
    {"millions", KEY_SIZE, "M", 0,
     "parameters of speed, in millions (default: 134, or as many as fit)", 0},
    {"size", 0, NULL, OPTION_ALIAS, NULL, 0},
    {"rounds", KEY_ROUNDS, "N", 0,
     "timed runs of each step, at least (default 30; up to four times as many until they agree)",
     0},
    {"peers", KEY_PEERS, "COMMAND", 0,
     "time other optimizers by this program (default: python3 tests/peers/peers.py where that is "
     "there; none: leave them out); a report's program is never run, so that --resume wants the "
     "option again",
     0},
    {"beside", KEY_BESIDE, NULL, 0,
     "no measuring: print the reports of the command line (.h5) side by side, in Markdown or with "
     "--json",
     0},
    {0}};

/* Reads "exact,speed". */
static void parse_parts(struct options *o, const char *arg, struct argp_state *state)
{
    for (const char *at = arg;; at++) {
        char word[16];
        size_t n = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        int part = n < sizeof word ? qm_gpu_part_find(word) : -1;
        if (part < 0)
            argp_error(state,
                       "--only: expected exact, speed, codes, check, tables or peers, got '%.*s'",
                       (int)n, at);
        else
            o->gpu.only[part] = o->gpu.has_only = 1;
        at += n;
        if (!*at)
            return;
    }
}

static double number(struct argp_state *state, const char *name, const char *text, double least,
                     double most)
{
    char *end;
    double x = strtod(text, &end);
    if (*end || end == text || !(x >= least && x <= most))
        argp_error(state, "--%s is '%s', expected a number from %g to %.7g", name, text, least,
                   most);
    return x;
}

static void check_all(const struct options *o, struct argp_state *state)
{
    if (o->is_resumed && (o->has_plan || o->n_words))
        argp_error(state, "--resume takes parts, recipes, size and rounds from the report: "
                          "leave them out");
    if (o->is_beside && !o->n_words)
        argp_error(state, "--beside: expected files");
    if (o->is_beside && (o->is_resumed || o->has_plan || o->has_peers))
        argp_error(state, "--beside measures nothing: leave out what says what is measured");
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case KEY_ONLY: parse_parts(o, arg, state); break;
    case KEY_QUICK: o->gpu.quick = 1; break;
    case KEY_SIZE:
        o->gpu.n = (int64_t)(1e6 * number(state, "millions", arg, 0.001,
                                          1e-6 * (double)QM_GPU_MOST_ELEMENTS));
        break;
    case KEY_ROUNDS: o->gpu.rounds = qm_cli_whole(state, "rounds", arg, 1, 1000); break;
    case KEY_PEERS:
        o->gpu.peers = !arg[strspn(arg, " \t")] || strcmp(arg, "none") == 0 ? NULL : arg;
        o->has_peers = 1;
        return 0;
    case KEY_OUT: o->folder = arg; return 0;
    case KEY_SECONDS: o->seconds = number(state, "seconds", arg, 0.0, 1e9); return 0;
    case KEY_LIMIT: o->gpu.limit = number(state, "time-limit", arg, 0.01, 1e9); return 0;
    case KEY_AHEAD: o->gpu.ahead = qm_cli_whole(state, "ahead", arg, 0, QM_GPU_AHEAD); return 0;
    case KEY_BESIDE: o->is_beside = 1; return 0;
    case KEY_RESUME:
        o->is_resumed = 1;
        o->resumed = arg;
        return 0;
    case ARGP_KEY_END: check_all(o, state); return 0;
    case ARGP_KEY_ARG: return qm_cli_append(&o->words, &o->n_words, arg) == QM_OK ? 0 : ENOMEM;
    default: return ARGP_ERR_UNKNOWN;
    }
    o->has_plan = 1;
    return 0;
}

/* ---- the plan ------------------------------------------------------------------------------- */

/* Takes the options of a report over; words of the report are its own. */
static qm_status plan_read(json_t *plan, const char *path, struct options *o)
{
    static char *words; /* the options point into it */
    const char *commit = json_string_value(json_object_get(plan, "commit"));
    double limit = json_number_value(json_object_get(plan, "time_limit"));
    struct qm_recipe r;
    if (strcmp(commit, qm_commit()) != 0)
        return qm_fail(QM_BAD_ARG, "%s was begun by commit %s, this is %s: begin a new report",
                       path, commit, qm_commit());
    free(words);
    QM_TRY(qm_gpu_plan_read(plan, &o->gpu, &words));
    const char *were = json_string_value(json_object_get(plan, "peers"));
    o->peers_were = *were ? were : NULL;
    for (int i = 0; i < o->gpu.n_recipes; i++)
        QM_TRY(qm_recipe_parse(o->gpu.recipes[i], &r));
    if (!(limit <= o->gpu.limit))
        json_object_set_new(plan, "time_limit", json_real(o->gpu.limit));
    return QM_OK;
}

/* ---- the run -------------------------------------------------------------------------------- */

static volatile sig_atomic_t stop;

static void on_signal(int number_of_signal)
{
    (void)number_of_signal;
    stop = 1;
}

/* python3 tests/peers/peers.py, where both are there. */
static const char *default_peers(void)
{
    static char command[4096 + 32];
    char path[4096];
    qm_shipped("tests/peers/peers.py", path, sizeof path);
    if (access(path, R_OK) != 0 || strchr(path, '\'') || !getenv("PATH") ||
        system("command -v python3 >/dev/null 2>&1") != 0)
        return NULL;
    snprintf(command, sizeof command, "python3 '%s'", path);
    return command;
}

/* Lists the tasks, within the time of the run. */
static qm_status make_tasks(struct qm_gpu_run *run)
{
    struct qm_gpu_options of = run->options;
    of.limit = qm_gpu_run_left(run, of.limit);
    QM_TRY(qm_gpu_tasks_make(&of, run->stop, &run->tasks));
    if (run->tasks.n)
        return QM_OK;
    int has_peers = of.has_only ? of.only[QM_GPU_peers] : of.n_recipes == 0;
    return qm_fail(
        QM_NO_MATCH, "nothing to measure: %sno %spart has rows for what was asked",
        has_peers ? "no peers are there (--peers, or python3 and tests/peers/peers.py), and " : "",
        has_peers ? "other " : "");
}

static qm_status name_report(const struct options *o, struct qm_gpu_run *run)
{
    const char *name = json_string_value(json_object_get(run->report.device, "name")),
               *parts = json_string_value(json_object_get(run->report.plan, "parts"));
    qm_status st = qm_gpu_report_name(o->folder, name ? name : "", parts ? parts : "", run->path,
                                      sizeof run->path, &run->lock);
    char why[1024];
    snprintf(why, sizeof why, "%s", qm_message());
    return st == QM_BAD_FILE ? qm_fail(st, "%s (--out names another folder)", why) : st;
}

/* Without a folder for compiled kernels each process compiles its own, and the next call too. */
static void note_cache(void)
{
    char path[PATH_MAX];
    if (!qm_cache_path("", path, sizeof path))
        qm_note("qualm gpu-check: no cache (QM_CACHE=off, or no folder to write to): nothing is "
                "compiled ahead, and every call compiles all kernels again; QM_CACHE=FOLDER names "
                "one");
}

/* The time was over, or a signal came, before there were tasks: writes a report without rows, so
 * that --resume can go on.  An empty device and 0 elements say that the GPU has not answered. */
static qm_status begin_without_rows(struct options *o, struct qm_gpu_run *run)
{
    char why[1024];
    struct qm_gpu_report *r = &run->report;
    snprintf(why, sizeof why, "%s", qm_message());
    r->device = r->device ? r->device : json_object();
    r->plan = r->plan ? r->plan : qm_gpu_plan(&run->options);
    if (!r->device || !r->plan)
        return qm_fail(QM_NO_MEMORY, "a plan");
    QM_TRY(name_report(o, run));
    QM_TRY(qm_gpu_run_begun(run, why));
    return qm_fail(QM_INTERRUPTED, "%s; %s.h5 has no rows, gpu-check --resume goes on", why,
                   run->path);
}

static qm_status begin(struct options *o, struct qm_gpu_run *run)
{
    struct qm_recipe r;
    for (int i = 0; i < o->n_words; i++)
        QM_TRY(qm_recipe_parse(o->words[i], &r));
    o->gpu.recipes = o->words;
    o->gpu.n_recipes = o->n_words;
    if (!o->has_peers)
        o->gpu.peers = default_peers();
    run->options = o->gpu;
    qm_status st = qm_gpu_describe(run, &run->report.device);
    if (st == QM_OK && !(run->report.plan = qm_gpu_plan(&run->options)))
        st = qm_fail(QM_NO_MEMORY, "a plan");
    if (st == QM_OK)
        st = make_tasks(run);
    return st == QM_OK            ? name_report(o, run)
           : st == QM_INTERRUPTED ? begin_without_rows(o, run)
                                  : st;
}

/* A report may come from anywhere, so that the commands in it are only compared with the one that
 * is run: that of this command line, or the default.  A report without peers has none. */
static void choose_peers(struct options *o, const struct qm_gpu_report *r)
{
    int has_part = o->gpu.has_only ? o->gpu.only[QM_GPU_peers] : o->gpu.n_recipes == 0;
    if (!o->has_peers)
        o->gpu.peers = o->peers_were ? default_peers() : NULL;
    const char *now = o->gpu.peers ? o->gpu.peers : "";
    const char *was = o->peers_were ? o->peers_were : "";
    char *others = qm_gpu_report_programs(r, strcmp(was, now) != 0 ? was : "", now);
    if (has_part && others && *others)
        qm_note("qualm gpu-check: the report's peers were timed by %s, which is not run: %s%s%s%s "
                "(--peers COMMAND chooses)",
                others, *now ? "now by `" : "none are timed", now, *now ? "`" : "",
                json_array_size(r->rows[QM_GPU_peers]) ? "; each row names its program" : "");
    free(others);
    if (o->has_peers)
        json_object_set_new(r->plan, "peers", qm_json_text(now));
}

/* Gives a report that was begun before its GPU had answered ("gpu-all-...") the GPU's name, in the
 * same folder. */
static qm_status rename_report(struct qm_gpu_run *run)
{
    static const char *const ends[] = {".h5", ".md"};
    char old[PATH_MAX], file[PATH_MAX + 8], folder[PATH_MAX];
    int lock = run->lock;
    snprintf(old, sizeof old, "%s", run->path);
    const char *slash = strrchr(old, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - old) : 1, slash ? old : ".");
    const struct options in = {.folder = *folder ? folder : "/"};
    json_object_set_new(run->report.plan, QM_GPU_BEGUN_AS, qm_json_text(slash ? slash + 1 : old));
    qm_status st = name_report(&in, run);
    if (st == QM_OK)
        st = qm_gpu_run_begun(run, "begun");
    if (st != QM_OK)
        return st;
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s%s", old, ends[i]);
        unlink(file);
    }
    qm_gpu_report_unlock(old, lock);
    return QM_OK;
}

static qm_status resume(struct options *o, struct qm_gpu_run *run)
{
    char path[PATH_MAX];
    json_t *device = NULL;
    if (o->resumed)
        snprintf(path, sizeof path, "%s", o->resumed);
    else
        QM_TRY(qm_gpu_report_newest(o->folder, path, sizeof path));
    if (o->resumed && qm_gpu_report_follow(path, sizeof path))
        qm_note("qualm gpu-check: %s is now %s", o->resumed, path);
    size_t n = strlen(path);
    snprintf(run->path, sizeof run->path, "%.*s",
             (int)(n > 3 && strcmp(path + n - 3, ".h5") == 0 ? n - 3 : n), path);
    if (access(path, R_OK) == 0) { /* else reading says what is wrong */
        QM_TRY(qm_gpu_report_lock(run->path, &run->lock));
        if (run->lock < 0)
            return qm_fail(QM_BAD_FILE, "%s: another process is writing it", path);
        qm_gpu_report_sweep(run->path);
    }
    QM_TRY(qm_gpu_report_read(path, &run->report));
    QM_TRY(plan_read(run->report.plan, path, o));
    choose_peers(o, &run->report);
    run->options = o->gpu;
    QM_TRY(qm_gpu_describe(run, &device));
    int is_nameless = json_object_size(run->report.device) == 0;
    if (is_nameless) { /* it had not answered */
        json_object_update(run->report.device, device);
        json_object_set_new(run->report.plan, "elements", json_integer(run->options.n));
    }
    qm_status st = qm_gpu_report_same_device(run->report.device, device, path);
    if (st == QM_OK)
        qm_gpu_report_renew(run->report.device, device);
    json_decref(device);
    QM_TRY(st);
    if (is_nameless)
        QM_TRY(rename_report(run));
    QM_TRY(make_tasks(run));
    st = qm_gpu_tasks_take(&run->tasks, &run->report);
    return st == QM_BAD_FILE ? qm_fail_in(st, path) : st;
}

/* Says why rows will have no clocks, where there is an NVML that does not answer. */
static void note_nvml(const struct qm_gpu_run *run)
{
    const char *why = json_string_value(json_object_get(run->report.device, "nvml"));
    if (run->nvml_has_failed && why && strncmp(why, "no NVML", 7) != 0)
        qm_note("qualm gpu-check: rows have no clocks: %s (QM_NVML=PATH names another "
                "libnvidia-ml.so.1, QM_NVML=none leaves it out)",
                why);
}

/* What the rows say; reason: the status of the first skipped one. */
struct summary {
    size_t good, wrong, skipped;
    const char *reason;
};

/* Prints how the rows of each part ended. */
static struct summary summarize(const struct qm_gpu_run *run)
{
    struct summary all = {0};
    for (int i = 0; i < QM_GPU_PARTS; i++) {
        size_t count[4] = {0}, k, n = json_array_size(run->report.rows[i]);
        json_t *row;
        json_array_foreach (run->report.rows[i], k, row) {
            enum qm_gpu_verdict v = qm_gpu_row_verdict((enum qm_gpu_part)i, row);
            count[v]++;
            if (v == QM_GPU_skipped && !all.reason)
                all.reason = json_string_value(json_object_get(row, "status"));
        }
        all.good += count[QM_GPU_good];
        all.wrong += count[QM_GPU_bad] + count[QM_GPU_broken];
        all.skipped += count[QM_GPU_skipped];
        if (n && !qm_cli.json)
            qm_print("%-6s %zu rows: %zu good, %zu bad, %zu not measured, %zu skipped\n",
                     qm_gpu_part_name((enum qm_gpu_part)i), n, count[QM_GPU_good],
                     count[QM_GPU_bad], count[QM_GPU_broken], count[QM_GPU_skipped]);
    }
    return all;
}

static json_t *all_of(const struct qm_gpu_report *r, const char *path)
{
    json_t *all = json_object();
    json_object_set(all, "device", r->device);
    json_object_set(all, "plan", r->plan);
    for (int i = 0; i < QM_GPU_PARTS; i++)
        json_object_set(all, qm_gpu_part_name((enum qm_gpu_part)i), r->rows[i]);
    json_object_set_new(all, "file", qm_json_text(path));
    return all;
}

/* Prints reports side by side; with --json as an array of their contents. */
static qm_status beside(const struct options *o)
{
    struct qm_gpu_report r;
    json_t *all = json_array();
    if (!qm_cli.json) {
        json_decref(all);
        return qm_gpu_report_beside(stdout, o->words, o->n_words);
    }
    for (int i = 0; i < o->n_words; i++) {
        qm_status st = qm_gpu_report_read(o->words[i], &r);
        if (st != QM_OK) {
            json_decref(all);
            return st;
        }
        json_array_append_new(all, all_of(&r, o->words[i]));
        qm_gpu_report_free(&r);
    }
    qm_json_print(all);
    return QM_OK;
}

/* Removes what killed runs have left in the folder of the report. */
static void sweep(const struct options *o)
{
    char folder[PATH_MAX];
    const char *slash = o->resumed ? strrchr(o->resumed, '/') : NULL;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - o->resumed) + 1 : PATH_MAX - 1,
             slash        ? o->resumed
             : o->resumed ? "."
                          : o->folder);
    qm_gpu_report_sweep_folder(folder);
}

/* Measures and prints.  QM_CHECK_FAILED: something is wrong or could not be measured; *is_printed:
 * the report is on stdout. */
static qm_status measure(struct options *o, struct qm_gpu_run *run, int *is_printed)
{
    double limit;
    QM_TRY(qm_cuda_limit(&limit)); /* before anything is done, as in every command */
    sweep(o);
    qm_status st = o->is_resumed ? resume(o, run) : begin(o, run);
    if (st == QM_OK) {
        note_cache();
        st = qm_gpu_run_tasks(run);
    }
    if (st != QM_OK && (st != QM_INTERRUPTED || !run->tasks.n))
        return st;
    *is_printed = 1;
    note_nvml(run); /* also where it failed during the run */
    struct summary all = summarize(run);
    if (qm_cli.json)
        qm_json_print(all_of(&run->report, run->path));
    else
        qm_print("written %s.h5 and .md: %s\n", run->path,
                 json_string_value(json_object_get(run->report.plan, "state")));
    if (st == QM_OK && all.wrong)
        return QM_CHECK_FAILED;
    if (st == QM_OK && !all.good)
        return qm_fail(QM_SKIPPED, "every row was skipped, the first because: %s",
                       all.reason ? all.reason : "there is none");
    return st;
}

static const char doc[] =
    "Checks and measures the CUDA backend on this machine's GPU (number $QM_CUDA_DEVICE, 0), and "
    "writes GPU-PARTS-TIME.h5 and a page to read, .md.  Needs a driver and NVRTC, no toolkit.\v"
    "What people ask first is measured first: the CPU's bits of the ten best-known variants, their "
    "speed against a copy, every float through each 4-bit search, their verdicts in both modes, "
    "many small tensors, other projects' optimizers, and then all other variants.  RECIPE: these "
    "instead, without codes and peers.\n"
    "\n"
    "The report is whole at every moment: rows are written as they come.  Those of a recipe in a "
    "part are measured in one process, and after one that fails, crashes or takes too long, which "
    "says so, "
    "the rest goes on in another.  "
    "results/gpu/README.md says what each figure means.\n"
    "\n"
    "Examples:\n"
    "  qualm gpu-check  # one call of ten minutes\n"
    "  qualm gpu-check --resume  # and the next one\n"
    "  qualm gpu-check adamw4_ao --only exact,speed\n"
    "  qualm gpu-check --only speed,tables,peers --rounds 100 --seconds 0\n"
    "  qualm gpu-check --beside results/gpu/*.h5 > side-by-side.md\n"
    "\n"
    "$QM_CUDA_DEVICE must be a whole number; with none of that number there is no GPU.  Before the "
    "first row a call of the driver may take $QM_CUDA_LIMIT seconds (30; of NVRTC ten times that) "
    "and all of them --time-limit; a row takes --time-limit.  A report whose digest is not that of "
    "what it "
    "says is refused.\n"
    "\n"
    "Exit codes: 0 all is good, 1 something is wrong or could not be measured, 2 usage, another "
    "GPU "
    "than the report's, or $QM_CUDA_DEVICE or $QM_CUDA_LIMIT is no number, 3 a file cannot be read "
    "or "
    "written, was changed, or another process writes it, or the driver fails, crashes or does not "
    "answer, 4 no such recipe, "
    "no "
    "report to go on with or nothing to measure, 75 interrupted or out of time (--resume goes "
    "on, also where no row was measured), 77 no GPU, or every row was skipped.";

int qm_cmd_gpu_check(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {options, option, "[RECIPE...]", doc, children, NULL, NULL};
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction act = {.sa_handler = on_signal};
    struct sigaction was;
    for (int i = 0; i < 3; i++) /* from here on to the end of the command */
        if (sigaction(signals[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN)
            sigaction(signals[i], &act, NULL);
    struct options o = {.folder = "results/gpu", .seconds = 570.0};
    o.gpu.rounds = 30;
    o.gpu.limit = 60.0;
    o.gpu.ahead = -1;
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    static struct qm_gpu_run run;
    memset(&run, 0, sizeof run);
    run.seconds = o.seconds;
    run.stop = &stop;
    run.argc = argc;
    run.argv = argv;
    run.lock = -1;
    run.started = qm_seconds();
    int is_printed = 0;
    qm_status st = o.is_beside ? beside(&o) : measure(&o, &run, &is_printed);
    if (is_printed && (st == QM_INTERRUPTED || st == QM_SKIPPED))
        qm_note("qualm gpu-check: %s", qm_message());
    code = is_printed || st == QM_OK ? qm_exit_code(st) : qm_cli_failed("gpu-check", st);
    qm_gpu_report_unlock(run.path, run.lock);
    qm_gpu_tasks_free(&run.tasks);
    qm_gpu_report_free(&run.report);
    if (o.gpu.recipes != o.words)
        free(o.gpu.recipes);
    free(o.words);
    return code;
}
