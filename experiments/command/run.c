/* run.c - qualm run: runs suites, in this process or as campaigns, and writes result files. */
#include "core/base/clock.h"
#include "experiments/campaign/campaign.h"
#include "experiments/campaign/mpi_dispatch.h"
#include "experiments/campaign/queue.h"
#include "experiments/campaign/worker.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/lockstep/lockstep.h"
#include "experiments/machine/shipped_files.h"
#include "experiments/recipes/lpmm_config.h"
#include "experiments/report/archive.h"
#include "experiments/report/report.h"
#include "experiments/run/write_results.h"
#include "experiments/store/atomic_file.h"
#include "experiments/suite/cell_list.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char states_suite[] = "lpmm_states", training_suite[] = "lpmm_training";
static char *const config_suites[] = {states_suite, training_suite};

enum { WORTH_SECONDS = 60 }; /* estimated wall time above which a run becomes a campaign */

struct options {
    const char *out, *against, *shard_text, *rates, *size; /* size of suites; NULL: normal */
    char **suite, **data, **config;
    int n_suites, n_data, n_configs, threads, workers, dry_run, keep, has_time_limit, has_threads;
    int rank, ranks; /* of MPI; ranks 0: MPI does not run */
    struct qm_campaign_options campaign;
    struct qm_write_results finish;
    int argc; /* of the whole command, for /provenance */
    char **argv;
    struct qm_loaded_suite_variant *added; /* n_configs variants of --lpmm-config */
};

/* A key of suites, in the list of options. */
#define KEY(name, text)                    \
    {                                      \
        name, 0, NULL, OPTION_DOC, text, 2 \
    }

enum { KEY_CONFIG = 256, KEY_SHARD, KEY_RETRY };

static const struct argp_option options[] = {
    {"out", 'o', "FILE", 0,
     "result file, or folder when it is one or ends in '/' (default: results/NAME.h5)", 0},
    {"data", 'd', "GLOB", 0,
     "recorded data, instead of the suite's; may be repeated (experiments/record/README.md records "
     "a training run)",
     0},
    {"lpmm-config", KEY_CONFIG, "FILE", 0,
     "another variant: AdamW as this configuration of low-bit-optimizers has it; may be repeated; "
     "without SUITE runs lpmm_states and lpmm_training",
     0},
    {"threads", 't', "N", 0,
     "threads (default: one for each processor that it may use) where the cells run in this "
     "process; results do not depend on "
     "it",
     0},
    {"against", 'a', "ARCHIVE", 0,
     "also a page (qualm report) beside the variants of another campaign: a result file, or NAME "
     "for results/NAME.h5; `baseline` ships",
     0},
    {"headline", 'H', NULL, 0, "print only the tables that answer the suites' questions", 0},
    {"claims", 'C', NULL, 0,
     "print only what the suites say of their claims; without SUITE: all in " QM_SUITES "claims/",
     0},
    {"size", 'z', "SIZE", 0, "small, normal or large: the values that suites give for it", 0},
    {"rates", 'r', "FILE", 0,
     "tuned learning rates (qualm tune); default: results/rates/NAME.json, else those that ship; "
     "none: the problems' own",
     0},
    {"dry-run", 'n', NULL, 0, "list the cells and run nothing", 0},
    {NULL, 0, NULL, 0, "Campaigns:", 1},
    {"workers", 'w', "N", 0,
     "processes that run cells; 0: no campaign, all in this process.  Default: 0 where the plan "
     "takes less than a minute (qualm plan), no campaign was begun and no limit is given, else one "
     "per core; of ranks under srun or mpirun one",
     1},
    {"shard", KEY_SHARD, "I/N", 0,
     "only part I of N, from 1; the same N everywhere, on any machine that sees the folder.  "
     "Default: as the environment of srun, mpirun or a Slurm array says",
     1},
    {"retry-failed", KEY_RETRY, NULL, 0, "run cells again that crashed, took too long or failed",
     1},
    {"time-limit", 'T', "S", 0,
     "seconds a cell may take (3600; with --workers 0 none, and the first cell that takes longer "
     "ends the run)",
     1},
    {"memory-limit", 'M', "MIB", 0,
     "resident memory a cell's process may use, as sampled (default: 4/5 of the machine's, shared)",
     1},
    {"keep", 'k', NULL, 0, "keep the campaign's folder when the result file is written", 1},
    {"fresh", 'F', NULL, 0, "throw away what an earlier, interrupted campaign left", 1},
    {NULL, 0, NULL, 0,
     "Keys of suites for paired comparisons, cells of coupling closed "
     "(experiments/protocol/README.md: How comparisons are "
     "judged):",
     2},
    KEY("protocol: paired", "adds what the variants are judged against, and tables of verdicts, "
                            "contrasts, runtimes to 51 targets and profiles"),
    KEY("contrast", "value against value on an axis of formats, pair by pair: {exp_avg: {against: "
                    "VALUE}}, {exp_avg: {pairs: all}}, {exp_avg: {pairs: [[A, B], ...]}}, or none; "
                    "by default each value stands against its axis' first"),
    KEY("instance", "other data, starts and noise: 1..4; intervals then cover instances and seeds"),
    KEY("lr_scale", "times the problem's learning rate: [0.25, 0.5, 1, 2, 4]"),
    KEY("warmup", "steps over which the learning rate rises to its value: [0, 100]"),
    KEY("schedule", "constant, linear or cosine: how the rate falls to 0 after the warm-up"),
    KEY("clip", "largest norm of the gradient of all tensors together; 0: none"),
    KEY("decay_rank", "tensors of lower rank have no weight decay; 2: matrices alone"),
    KEY("start", "problem, or ulp: the float64 twin beside itself, one float32 ulp off"),
    KEY("rounding_seed", "other draws of stochastic rounding, the same data"),
    KEY("rates: none", "no tuned learning rates; NAME: those of that suite; else those that `qualm "
                       "tune` found for these problems, steps and schedules; the table says where"),
    KEY("budget: 1", "what each part of a variant adds: codes, scales, parameter"),
    KEY("delta: 0.0212", "equivalent within +- delta of log10 gap (default log10 1.05)"),
    KEY("sizes", "{small: {KEY: VALUE...}, large: {...}}: other values for --size"),
    {0}};

static const char doc[] =
    "Run suites of experiments; print their tables, write one HDF5 file each.\v"
    "SUITE is a file, a name in " QM_SUITES ", or the folder of a campaign that was begun.  A "
    "suite is YAML; any of its keys with a list of "
    "values is an axis, and every combination is a cell:\n"
    "  title, question        text\n"
    "  variant                names (qualm list variants) or recipes\n"
    "  exp_avg, exp_avg.norm, lr, grad ...\n"
    "                         any override of a recipe; the list item - mine: \"VALUE\" has "
    "the label mine; NAME,min_numel=0,whole_blocks=0 switches off fallbacks to float32\n"
    "  coupling               oneshot, local, global, closed or update\n"
    "  slot                   the state to measure: exp_avg, exp_avg_sq ...\n"
    "  source                 states:GLOB, trace:GLOB, dist:NAME[:ARG], problem:NAME[:k=v,...]\n"
    "  seed, steps            random seed (1..16 lists whole numbers); updates\n"
    "  n                      elements of a dist: source\n"
    "and, one value each: data (globs of recorded files; relative ones are taken from the current "
    "folder), min_numel, min_rank (smaller recorded tensors are left out), every (steps between "
    "points of a curve), summary (a list of {name, by, across, value, stat, versus, "
    "where, headline}).  A suite may test a claim of the literature:\n"
    "  claim, claim_source    text\n"
    "  expect                 a list of {value: METRIC, of: {KEY: LABEL}, versus: {KEY: LABEL}, "
    "unit: tensor or seed, relation: above X, below X or between X Y}: the mean over units of the "
    "value (the difference to versus, all else equal), with Student's 95 % interval (paired t); "
    "the claim holds when the whole interval satisfies the relation, does not hold when all of it "
    "violates it, and is undecided otherwise.  With each: KEY it stands for one for each value of "
    "that axis.\n"
    "\n"
    "Examples:\n"
    "  qualm run ablation_momentum --size small\n"
    "  qualm run --claims --out results/claims/\n"
    "  qualm run --headline rank1 search --out results/\n"
    "  # mine.yaml and big are suites of yours, mine.yml a configuration\n"
    "  qualm run --lpmm-config mine.yml second_moment convergence\n"
    "  qualm run mine.yaml --against baseline\n"
    "  qualm run mine.yaml --data '../states/*.h5' --out results/mine.h5\n"
    "  qualm run big --workers 8 --time-limit 600  # once more: it goes on\n"
    "  qualm run big --shard 2/7  # one machine of seven; then: qualm merge\n"
    "  mpirun -n 4 qualm run big  # four shards at once\n"
    "\n"
    "A campaign keeps what is finished in a folder beside the result file (NAME.run: segments "
    "and a ledger of digests).  A crash, a timeout or an exit is the outcome of its cell, and the "
    "others go on.  SIGINT, SIGTERM and SIGUSR1 let the cells under way finish; a second one "
    "gives them up.  When all is done the result file is written, byte for byte as one process "
    "would have (outside /provenance and /timing), and the folder goes.\n"
    "\n"
    "Combinations that make no sense are skipped cells with a reason; so are all where no cell "
    "reads a key.  Exit codes: 0 done, 2 a mistake in a suite or a campaign begun with another "
    "one, 3 a file cannot be read or written, 4 nothing matched or every cell was skipped, 75 "
    "interrupted (in one process nothing is written, a campaign goes on with the same command), "
    "1 cells failed.";

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    if (stopped < 2)
        stopped = stopped + 1;
}

/* Refuses options that would have no effect beside --dry-run or --workers 0. */
static void refuse_contradictions(const struct options *o, struct argp_state *state)
{
    const struct qm_campaign_options *c = &o->campaign;
    const struct qm_cli_given campaign[] = {{"--shard", o->shard_text != NULL},
                                            {"--retry-failed", c->retry_failed},
                                            {"--memory-limit", c->mebibytes > 0.0},
                                            {"--keep", o->keep},
                                            {"--fresh", c->fresh},
                                            {0}};
    const struct qm_cli_given others[] = {{"--out", o->out != NULL},
                                          {"--workers", o->workers >= 0},
                                          {"--time-limit", o->has_time_limit},
                                          {"--threads", o->has_threads},
                                          {"--against", o->against != NULL},
                                          {"--headline", o->finish.headline},
                                          {0}};
    if (o->workers == 0)
        qm_cli_alone(state, "--workers 0", "is no campaign", campaign);
    if (o->dry_run) {
        qm_cli_alone(state, "--dry-run", "runs nothing", campaign);
        qm_cli_alone(state, "--dry-run", "runs nothing", others);
    }
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'o': o->out = arg; return 0;
    case 'd': return qm_cli_append(&o->data, &o->n_data, arg) == QM_OK ? 0 : ENOMEM;
    case KEY_CONFIG: return qm_cli_append(&o->config, &o->n_configs, arg) == QM_OK ? 0 : ENOMEM;
    case 'z': o->size = arg; return 0;
    case 'r': o->rates = arg; return 0;
    case 'n': o->dry_run = 1; return 0;
    case 'a': o->against = arg; return 0;
    case 'H': o->finish.headline = 1; return 0;
    case 'C': o->finish.claims = 1; return 0;
    case 'w': o->workers = qm_cli_whole(state, "workers", arg, 0, QM_CAMPAIGN_WORKERS); return 0;
    case KEY_SHARD: o->shard_text = arg; return 0;
    case KEY_RETRY: o->campaign.retry_failed = 1; return 0;
    case 'T':
        o->campaign.seconds = qm_cli_whole(state, "time-limit", arg, 1, INT_MAX);
        o->has_time_limit = 1;
        return 0;
    case 'M':
        o->campaign.mebibytes = qm_cli_whole(state, "memory-limit", arg, 1, INT_MAX);
        return 0;
    case 'k': o->keep = 1; return 0;
    case 'F': o->campaign.fresh = 1; return 0;
    case 't':
        o->threads = qm_cli_whole(state, "threads", arg, 1, 4096);
        o->has_threads = 1;
        return 0;
    case ARGP_KEY_ARG: return qm_cli_append(&o->suite, &o->n_suites, arg) == QM_OK ? 0 : ENOMEM;
    case ARGP_KEY_END:
        for (int i = 0, none = o->n_suites == 0; i < 2 && none && o->n_configs; i++)
            if (qm_cli_append(&o->suite, &o->n_suites, config_suites[i]) != QM_OK)
                return ENOMEM;
        if (o->n_suites == 0 && !o->finish.claims)
            argp_error(state, "no SUITE given");
        refuse_contradictions(o, state);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- finding files --------------------------------------------------------------------------- */

static int is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

/* The result file of a suite by --out; makes the folder. */
static qm_status find_out(const struct options *o, const char *stem, char *path, size_t size)
{
    const char *out = o->out ? o->out : "results/";
    size_t n = strlen(out);
    QM_TRY(qm_path_check(out));
    int folder = is_folder(out) || (n > 0 && out[n - 1] == '/');
    if (!folder && o->n_suites > 1)
        return qm_fail(QM_BAD_ARG, "--out is '%s'; several suites need a folder, 'NAME/'", out);
    const char *slash = folder ? out + n : strrchr(out, '/');
    snprintf(path, size, "%.*s", slash && slash > out ? (int)(slash - out) : 1, slash ? out : ".");
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return qm_fail(QM_BAD_FILE,
                       "%s: cannot be written in the folder %s: %s (it cannot be made)", out, path,
                       strerror(errno));
    const char *between = folder && !(n > 0 && out[n - 1] == '/') ? "/" : "";
    snprintf(path, size, "%s%s%s%s", out, between, folder ? stem : "", folder ? ".h5" : "");
    QM_TRY(qm_cli_writes(path));
    return folder ? qm_cli_writes_once(path) : QM_OK;
}

/* ---- one suite ------------------------------------------------------------------------------- */

/* Says what a suite is about, where it has a text for that: the begin of a long one. */
static void announce(const struct options *o, const struct qm_suite *s)
{
    const char *said = s->question ? s->question : s->title;
    char *text = said ? strdup(said) : NULL;
    for (size_t n = text ? strlen(text) : 0; n > 0; n--) /* a block of YAML has several lines */
        if (text[n - 1] == '\n')
            text[n - 1] = text[n] ? ' ' : '\0';
    if (text)
        qm_cli_cut(text, s->question ? 2 * QM_CLI_SAID : QM_CLI_SAID);
    if (text && *text && !o->finish.headline && !o->finish.claims && o->rank == 0)
        qm_note("%s: %s", s->stem, text);
    free(text);
}

/* Runs the cells in this process and writes the results. */
static qm_status run_here(struct options *o, struct qm_loaded_suite *job, const char *path,
                          json_t *into)
{
    struct qm_results r = {0};
    struct qm_store *store = NULL;
    o->finish.started = qm_seconds();
    qm_lockstep_limit(o->has_time_limit ? o->campaign.seconds : 0.0);
    qm_status st = qm_store_open(path, "run", o->argc, o->argv, &store);
    if (st == QM_OK)
        st = qm_loaded_suite_load_all(job);
    if (st == QM_OK)
        announce(o, job->suite);
    if (st == QM_OK)
        st = qm_results_run(job->suite, job->cells, job->n_cells, o->threads, 1, &stopped, &r);
    if (st == QM_INTERRUPTED && !stopped) { /* by the time limit */
        char why[128];
        snprintf(why, sizeof why, "%s", qm_message());
        st = qm_fail(QM_INTERRUPTED,
                     "a cell failed: %s; nothing is written, --workers keeps the other cells", why);
    }
    if (st == QM_OK) {
        st = qm_write_results(&o->finish, &r, store, path, into);
        store = NULL;
    }
    qm_store_abort(store);
    qm_results_free(&r);
    return st;
}

static void warn(void *context, const char *line)
{
    (void)context;
    qm_note("warning: %s", line);
}

/* Sets o->added: "configs/default_5b.yml" becomes the variant default_5b. */
static qm_status read_configs(struct options *o)
{
    o->added = calloc((size_t)o->n_configs + 1, sizeof *o->added);
    if (!o->added)
        return qm_fail(QM_NO_MEMORY, "options");
    for (int i = 0; i < o->n_configs; i++) {
        struct qm_lpmm_config config;
        struct qm_loaded_suite_variant *a = &o->added[i];
        const char *slash = strrchr(o->config[i], '/'), *stem = slash ? slash + 1 : o->config[i];
        const char *dot = strrchr(stem, '.');
        snprintf(a->label, sizeof a->label, "%.*s", dot && dot > stem ? (int)(dot - stem) : 63,
                 stem);
        QM_TRY(qm_lpmm_config_read(o->config[i], warn, NULL, &config));
        QM_TRY(qm_lpmm_config_recipe(&config, a->recipe));
        qm_note("%s: %s", o->config[i], a->recipe);
    }
    return QM_OK;
}

/* ---- campaigns ------------------------------------------------------------------------------- */

/* Writes the result file of a finished campaign; removes its folder unless cells failed,
 * or --keep. */
static qm_status write_results(struct options *o, const struct qm_loaded_suite *job,
                               const char *path, int64_t failed, json_t *into)
{
    struct qm_results r = {0};
    struct qm_store *store = NULL;
    char dir[1100];
    char *source[] = {dir};
    snprintf(dir, sizeof dir, "%s", o->campaign.dir);
    qm_status st = qm_store_open(path, "run", o->argc, o->argv, &store);
    if (st == QM_OK)
        st = qm_campaign_collect(job, source, 1, &r);
    if (st == QM_OK) {
        st = qm_write_results(&o->finish, &r, store, path, into);
        store = NULL;
    }
    qm_store_abort(store);
    qm_results_free(&r);
    if ((st == QM_OK || st == QM_NO_MATCH) && failed == 0 && !o->keep)
        qm_campaign_remove(dir);
    if (st == QM_OK && failed)
        st = qm_fail(QM_CHECK_FAILED,
                     "%lld cells failed; --retry-failed runs them again, %s/*.log has "
                     "what they printed",
                     (long long)failed, dir);
    return st;
}

/* Fails when path cannot be written, so that this shows before the cells run. */
static qm_status can_write(const char *path)
{
    struct qm_atomic_file file;
    QM_TRY(qm_atomic_file_open(path, &file));
    qm_atomic_file_abort(&file);
    return QM_OK;
}

static qm_status run_campaign(struct options *o, struct qm_loaded_suite *job, const char *path,
                              json_t *into)
{
    struct qm_campaign_count n;
    const struct qm_campaign_options *c = &o->campaign;
    o->finish.started = qm_seconds();
    int is_dispatcher = c->dispatched && c->shard == 0;
    if (c->shards == 1 || is_dispatcher)
        QM_TRY(can_write(path));
    if (c->fresh ||
        !qm_campaign_exists(c->dir)) /* one that goes on was announced, and may be damaged */
        announce(o, job->suite);
    qm_status st = is_dispatcher ? qm_campaign_dispatch(job, c, &stopped, &n)
                                 : qm_campaign_run(job, c, &stopped, &n);
    if (c->dispatched && !is_dispatcher)
        qm_mpi_dispatch_leave(); /* after a failure too */
    QM_TRY(st);
    if ((c->shards == 1 || is_dispatcher) && n.all_done == n.all_cells)
        return write_results(o, job, path, n.all_failed, into);
    if (c->dispatched && !is_dispatcher) {
        qm_note("rank %d of %d: %lld cells done", c->shard, c->shards, (long long)n.ran);
        return QM_OK; /* rank 0 reports the rest */
    }
    qm_note("shard %d/%d: %lld cells done; of the whole %lld of %lld%s%s%s%s", c->shard + 1,
            c->shards, (long long)n.ran, (long long)n.all_done, (long long)n.all_cells,
            n.all_done == n.all_cells ? ": qualm merge " : "",
            n.all_done == n.all_cells ? c->dir : "", n.all_done == n.all_cells ? " -o " : "",
            n.all_done == n.all_cells ? path : "");
    json_array_append_new(
        into, json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "suite", job->suite->stem, "campaign",
                        c->dir, "ran", (json_int_t)n.ran, "failed", (json_int_t)n.failed, "done",
                        (json_int_t)n.all_done, "cells", (json_int_t)n.all_cells));
    return n.failed ? qm_fail(QM_CHECK_FAILED, "%lld cells failed; --retry-failed runs them again",
                              (long long)n.failed)
                    : QM_OK;
}

/* Sets shard, workers and limits; *campaign: whether to run a campaign at all. */
static qm_status choose(struct options *o, const struct qm_loaded_suite *job, const char *dir,
                        int *campaign)
{
    struct qm_campaign_options *c = &o->campaign;
    char from[64] = "";
    double cost = 0.0;
    int cores = omp_get_max_threads(), ranked = 0;
    c->dir = dir;
    c->shard = 0;
    c->shards = 1;
    c->dispatched = o->ranks > 1 && !o->shard_text && o->workers != 0;
    if (c->dispatched) {
        c->shard = o->rank;
        c->shards = o->ranks;
        snprintf(from, sizeof from, "rank");
        ranked = 1;
    } else if (o->shard_text)
        QM_TRY(qm_shard_parse(o->shard_text, &c->shard, &c->shards));
    else if (o->workers != 0 &&
             (ranked = qm_shard_from_environment(&c->shard, &c->shards, from, sizeof from)))
        qm_note("shard %d/%d, by %s", c->shard + 1, c->shards, from);
    for (int64_t i = 0; i < job->n_cells; i++)
        cost += qm_cell_cost(&job->cells[i]);
    int has_limits = o->has_time_limit || c->mebibytes > 0.0; /* which workers keep */
    *campaign = o->workers > 0 || (o->workers < 0 && (c->shards > 1 || c->retry_failed || o->keep ||
                                                      has_limits || qm_campaign_exists(dir) ||
                                                      cost > (double)WORTH_SECONDS * cores));
    c->workers = o->workers > 0 ? o->workers : ranked && strstr(from, "rank") ? 1 : cores;
    if (c->workers > QM_CAMPAIGN_WORKERS)
        c->workers = QM_CAMPAIGN_WORKERS;
    if (c->mebibytes == 0.0)
        c->mebibytes = qm_campaign_memory(c->workers);
    return QM_OK;
}

/* folder: of the campaign that the suite was loaded from, or NULL. */
static qm_status run_loaded(struct options *o, struct qm_loaded_suite *job, const char *folder,
                            json_t *into)
{
    const struct qm_suite *s = job->suite;
    char path[1024], dir[1100];
    int campaign = 0;
    if (o->against && !s->paired)
        return qm_fail(QM_BAD_ARG, "%s: --against needs protocol: paired", s->path);
    if (o->dry_run) {
        qm_cells_list(job->suite, job->cells, job->n_cells, into);
        return QM_OK;
    }
    if (folder) {
        snprintf(dir, sizeof dir, "%s", folder);
        qm_campaign_out(o->out, dir, path, sizeof path);
    } else {
        QM_TRY(find_out(o, s->stem, path, sizeof path));
        qm_campaign_dir(path, dir, sizeof dir);
    }
    QM_TRY(choose(o, job, dir, &campaign));
    return campaign ? run_campaign(o, job, path, into) : run_here(o, job, path, into);
}

/* word: a suite, or the folder of a campaign. */
static qm_status run_suite(struct options *o, const char *word, json_t *into)
{
    char file[1024];
    struct qm_loaded_suite job = {0};
    const struct qm_loaded_suite_changes changes = {o->size,      o->data,  o->rates, o->n_data,
                                                    o->n_configs, o->added, NULL};
    int again = is_folder(word);
    qm_status st =
        again ? qm_campaign_job(word, &job) : qm_loaded_suite_find(word, file, sizeof file);
    if (st == QM_OK && !again)
        st = qm_loaded_suite_open(file, &changes, &job);
    if (st == QM_OK)
        st = run_loaded(o, &job, again ? word : NULL, into);
    qm_loaded_suite_close(&job);
    return st;
}

/* Adds every suite of claims, for --claims without SUITE. */
static qm_status all_claims(struct options *o, glob_t *found)
{
    char pattern[PATH_MAX];
    if (glob(qm_shipped_pattern(QM_SUITES "claims/*.yaml", pattern, sizeof pattern), 0, NULL,
             found) != 0)
        return qm_fail(QM_NO_MATCH, "no suites in " QM_SUITES "claims/");
    for (size_t i = 0; i < found->gl_pathc; i++)
        QM_TRY(qm_cli_append(&o->suite, &o->n_suites, found->gl_pathv[i]));
    return QM_OK;
}

static qm_status run_all(struct options *o, glob_t *found, json_t *into)
{
    char path[1024];
    if (o->against) { /* before a long run */
        QM_TRY(qm_archive_find(o->against, path, sizeof path));
        QM_TRY(qm_archive_check(path));
        qm_cli_reads(path);
    }
    QM_TRY(read_configs(o));
    if (o->n_suites == 0)
        QM_TRY(all_claims(o, found));
    for (int i = 0; i < o->n_suites; i++) {
        QM_TRY(run_suite(o, o->suite[i], into));
        if (o->against)
            QM_TRY(qm_report_against(into, o->against));
    }
    return QM_OK;
}

/* Installs `action` for the signals that stop a run; `was` (or NULL) gets the earlier ones. */
static void set_signals(const struct sigaction action[3], struct sigaction was[3])
{
    static const int numbers[3] = {SIGINT, SIGTERM, SIGUSR1};
    for (int i = 0; i < 3; i++)
        sigaction(numbers[i], &action[i], was ? &was[i] : NULL);
}

int qm_cmd_run(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    const struct argp argp = {options, option, "SUITE...", doc, children, NULL, NULL};
    struct options o = {.threads = omp_get_max_threads(),
                        .workers = -1,
                        .campaign = {.seconds = QM_CAMPAIGN_SECONDS},
                        .finish = {.stop = &stopped},
                        .argc = argc,
                        .argv = argv};
    struct sigaction stop = {.sa_handler = on_signal}, was[3];
    glob_t found = {0};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    json_t *all = json_array();
    stopped = 0;
    sigemptyset(&stop.sa_mask);
    const struct sigaction act[3] = {stop, stop, stop};
    set_signals(act, was);
    if (code == 0) {
        if (!o.dry_run && !qm_mpi_dispatch_begin(&o.rank, &o.ranks))
            o.ranks = 0;
        qm_status st = run_all(&o, &found, all);
        code = st == QM_OK ? 0 : qm_cli_failed("run", st);
    }
    set_signals(was, NULL);
    if (code == 0 && o.finish.claims)
        qm_note("\n%d expectations hold, %d do not, %d undecided",
                o.finish.verdicts[QM_CLAIM_VERDICT_holds],
                o.finish.verdicts[QM_CLAIM_VERDICT_fails],
                o.finish.verdicts[QM_CLAIM_VERDICT_undecided]);
    if (code == 0 && qm_cli.json && o.rank == 0)
        qm_json_print(json_incref(all));
    json_decref(all);
    if (o.ranks)
        qm_mpi_dispatch_end(
            code == qm_exit_code(QM_CHECK_FAILED) || code == qm_exit_code(QM_INTERRUPTED) ? 0
                                                                                          : code);
    globfree(&found);
    free(o.suite);
    free(o.data);
    free(o.config);
    free(o.added);
    return code;
}
