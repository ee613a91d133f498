/* cmd_run.c - qualm run: suites to result files. */
#include "core/base/name.h"
#include "experiments/claim.h"
#include "experiments/cli.h"
#include "experiments/command.h"
#include "experiments/lpmm_config.h"
#include "experiments/protocol/protocol.h"
#include "experiments/report/against.h"
#include "experiments/report/report.h"
#include "experiments/summary.h"

#include <errno.h>
#include <glob.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUITES "experiments/suites/"
static char default_data[] = "experiments/data/*.h5";
static char states_suite[] = "lpmm_states", training_suite[] = "lpmm_training";
static char *const config_suites[] = {states_suite, training_suite};

/* A variant that the command line adds to every suite. */
struct added {
    char label[64], recipe[QM_RECIPE_TEXT];
};

struct options {
    const char *out, *against;
    char **suite, **data, **config;
    int n_suites, n_data, n_configs, threads, dry_run, headline, claims;
    int verdicts[QM_VERDICT_COUNT];
    const char *size; /* of suites; NULL: normal */
    int argc;         /* of the whole command, for /provenance */
    char **argv;
    struct added *added; /* n_configs of them */
};

static const struct argp_option options[] = {
    {"out", 'o', "FILE", 0, "result file, or folder when it ends in '/' (default: results/NAME.h5)",
     0},
    {"data", 'd', "GLOB", 0, "recorded data, instead of the suite's; may be repeated", 0},
    {"lpmm-config", 'c', "FILE", 0,
     "another variant: AdamW as this configuration of low-bit-optimizers has it; may be repeated; "
     "without SUITE runs lpmm_states and lpmm_training",
     0},
    {"threads", 't', "N", 0, "threads (default: all cores); results do not depend on it", 0},
    {"against", 'a', "ARCHIVE", 0,
     "also a page (qualm report) beside the variants of another campaign: a result file, or NAME "
     "for "
     "results/NAME.h5; `baseline` ships",
     0},
    {"headline", 'H', NULL, 0, "print only the tables that answer the suites' questions", 0},
    {"claims", 'C', NULL, 0,
     "print only what the suites say of their claims; without SUITE: all in " SUITES "claims/", 0},
    {"size", 's', "SIZE", 0, "small, normal or large: the values that suites give for it", 0},
    {"dry-run", 'n', NULL, 0, "list the cells and run nothing", 0},
    {0}};

static const char doc[] =
    "Run suites of experiments; print their tables, write one HDF5 file each.\v"
    "SUITE is a file, or a name in " SUITES ".  A suite is YAML; any of its keys with a list of "
    "values is an axis, and every combination is a cell:\n"
    "  title, question        text\n"
    "  variant                names (qualm list variants) or recipes\n"
    "  exp_avg, exp_avg.norm, lr, grad ...\n"
    "                         any override of a recipe; 'label: value' names one\n"
    "  coupling               oneshot, local, global or closed\n"
    "  slot                   the state to measure: exp_avg, exp_avg_sq ...\n"
    "  source                 states:GLOB, trace:GLOB, dist:NAME[:ARG], problem:NAME[:k=v,...]\n"
    "  seed, steps            random seed; updates\n"
    "  n                      elements of a dist: source\n"
    "and, one value each: data (globs of recorded files), min_numel, min_rank, every (steps "
    "between "
    "points of a curve), summary (a list of {name, by, across, value, stat, versus, where, "
    "headline}).  A suite may test a claim of the literature:\n"
    "  claim, claim_source    text\n"
    "  expect                 a list of {value: METRIC, of: {KEY: LABEL}, versus: {KEY: LABEL}, "
    "unit: tensor or seed, relation: above X, below X or between X Y}: the mean over units of the "
    "value (the difference to versus, all else equal), with Student's 95 % interval (paired t); "
    "the claim holds when the whole interval satisfies the relation, does not hold when all of it "
    "violates it, and is undecided otherwise.\n"
    "\n"
    "Examples:\n"
    "  qualm run momentum_format\n"
    "  qualm run --claims --out results/claims/\n"
    "  qualm run --headline rank1 search --out results/\n"
    "  qualm run --lpmm-config default_5b.yml second_moment convergence\n"
    "  qualm run mine.yaml --against baseline\n"
    "  qualm run mine.yaml --data '../states/*.h5' --out results/mine.h5\n"
    "\n"
    "Combinations that make no sense are skipped cells with a reason.  Exit codes: 0 done, 2 a "
    "mistake in a suite, 3 a file cannot be read or written, 4 nothing matched or every cell was "
    "skipped, 75 interrupted (nothing is written).";

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

static qm_status append(char ***list, int *n, char *word)
{
    char **more = realloc(*list, (size_t)(*n + 1) * sizeof *more);
    if (!more)
        return qm_fail(QM_NO_MEMORY, "options");
    *list = more;
    more[(*n)++] = word;
    return QM_OK;
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    char *end;
    switch (key) {
    case 'o': o->out = arg; return 0;
    case 'd': return append(&o->data, &o->n_data, arg) == QM_OK ? 0 : ENOMEM;
    case 'c': return append(&o->config, &o->n_configs, arg) == QM_OK ? 0 : ENOMEM;
    case 's': o->size = arg; return 0;
    case 'n': o->dry_run = 1; return 0;
    case 'a': o->against = arg; return 0;
    case 'H': o->headline = 1; return 0;
    case 'C': o->claims = 1; return 0;
    case 't':
        o->threads = (int)strtol(arg, &end, 10);
        if (*end || end == arg || o->threads < 1 || o->threads > 4096)
            argp_error(state, "--threads is '%s', expected 1 to 4096", arg);
        return 0;
    case ARGP_KEY_ARG: return append(&o->suite, &o->n_suites, arg) == QM_OK ? 0 : ENOMEM;
    case ARGP_KEY_END:
        for (int i = 0, none = o->n_suites == 0; i < 2 && none && o->n_configs; i++)
            if (append(&o->suite, &o->n_suites, config_suites[i]) != QM_OK)
                return ENOMEM;
        if (o->n_suites == 0 && !o->claims)
            argp_error(state, "no SUITE given");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- finding files --------------------------------------------------------------------------- */

/* A path as it is, or a name in the folder of suites. */
static qm_status find_suite(const char *word, char *path, size_t size)
{
    snprintf(path, size, "%s", word);
    if (access(path, F_OK) == 0 || strchr(word, '/'))
        return QM_OK; /* what is wrong with it shows when it is read */
    size_t n = strlen(word);
    int has_ending = n > 5 && strcmp(word + n - 5, ".yaml") == 0;
    snprintf(path, size, SUITES "%s%s", word, has_ending ? "" : ".yaml");
    if (access(path, F_OK) == 0)
        return QM_OK;
    glob_t found = {0};
    glob(SUITES "*.yaml", 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) { /* "SUITES NAME.yaml" to "NAME" */
        memmove(found.gl_pathv[i], found.gl_pathv[i] + strlen(SUITES),
                strlen(found.gl_pathv[i] + strlen(SUITES)) + 1);
        *strrchr(found.gl_pathv[i], '.') = 0;
    }
    const char *nearest =
        qm_name_nearest(word, (const char *const *)found.gl_pathv, (int)found.gl_pathc);
    qm_status st =
        qm_fail(QM_NO_MATCH, "no suite '%s'%s%s%s", word, nearest ? "; did you mean '" : "",
                nearest ? nearest : "", nearest ? "'?" : "; " SUITES " holds them");
    globfree(&found);
    return st;
}

static int is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static qm_status find_out(const struct options *o, const char *stem, char *path, size_t size)
{
    const char *out = o->out ? o->out : "results/";
    size_t n = strlen(out);
    int folder = is_folder(out) || (n > 0 && out[n - 1] == '/');
    if (!folder && o->n_suites > 1)
        return qm_fail(QM_BAD_ARG, "--out is '%s'; several suites need a folder, 'NAME/'", out);
    if (folder && mkdir(out, 0777) != 0 && errno != EEXIST)
        return qm_fail(QM_BAD_FILE, "%s: %s", out, strerror(errno));
    if (folder)
        snprintf(path, size, "%s%s%s.h5", out, n > 0 && out[n - 1] == '/' ? "" : "/", stem);
    else
        snprintf(path, size, "%s", out);
    return QM_OK;
}

/* ---- reporting ------------------------------------------------------------------------------- */

static const char *quantizer_of(const struct qm_cell *c, char *buffer)
{
    return c->recipe.base ? qm_quantizer_print(&c->recipe.slot[c->slot], buffer) : "";
}

static json_t *cell_json(const struct qm_cell *c)
{
    char quantizer[QM_QUANTIZER_TEXT], recipe[QM_RECIPE_TEXT];
    return json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:I, s:s}", "cell", (json_int_t)c->index,
                     "recipe", c->recipe.base ? qm_recipe_print(&c->recipe, recipe) : "",
                     "quantizer", quantizer_of(c, quantizer), "coupling",
                     qm_coupling_name(c->coupling), "source", c->source_text, "tensor", c->tensor,
                     "seed", (json_int_t)c->seed, "skipped", c->reason ? c->reason : "");
}

static void list_cells(const struct qm_suite *s, const struct qm_cell *cells, int64_t n,
                       json_t *into)
{
    static const char *const heads[] = {"cell",   "recipe", "quantizer", "coupling",
                                        "source", "tensor", "seed",      "skipped"};
    char quantizer[QM_QUANTIZER_TEXT], recipe[QM_RECIPE_TEXT];
    if (qm_cli.json) {
        json_t *list = json_array();
        for (int64_t i = 0; i < n; i++)
            json_array_append_new(list, cell_json(&cells[i]));
        json_array_append_new(into, json_pack("{s:s, s:o}", "suite", s->stem, "cells", list));
        return;
    }
    struct qm_table *t = qm_table_open(8, heads);
    for (int64_t i = 0; i < n; i++) {
        const struct qm_cell *c = &cells[i];
        qm_table_cell(t, "%lld", (long long)i);
        qm_table_cell(t, "%s", c->recipe.base ? qm_recipe_print(&c->recipe, recipe) : "");
        qm_table_cell(t, "%s", quantizer_of(c, quantizer));
        qm_table_cell(t, "%s", qm_coupling_name(c->coupling));
        qm_table_cell(t, "%s", c->source_text);
        qm_table_cell(t, "%s", c->tensor);
        qm_table_cell(t, "%llu", (unsigned long long)c->seed);
        qm_table_cell(t, "%s", c->reason ? c->reason : "");
    }
    qm_table_close(t);
}

struct counts {
    int64_t ok, skipped, diverged;
};

static struct counts count(const struct qm_results *r)
{
    struct counts n = {0, 0, 0};
    for (int64_t i = 0; i < r->n_cells; i++) {
        const struct qm_outcome *o = &r->outcome[i];
        n.skipped += o->reason != NULL;
        n.diverged += !o->reason && o->diverged;
        n.ok += !o->reason && !o->diverged;
    }
    return n;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Every distinct reason once, with how many cells it took. */
static void note_skips(const struct qm_results *r, int64_t skipped, json_t *into)
{
    const char **reason = calloc((size_t)skipped + 1, sizeof *reason);
    int64_t n = 0;
    for (int64_t i = 0; reason && i < r->n_cells; i++)
        if (r->outcome[i].reason)
            reason[n++] = r->outcome[i].reason;
    if (n > 0)
        qsort(reason, (size_t)n, sizeof *reason, by_text);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && strcmp(reason[end], reason[i]) == 0; end++)
            ;
        qm_note("%lld %s skipped: %s", (long long)(end - i), end - i == 1 ? "cell" : "cells",
                reason[i]);
        json_object_set_new(into, reason[i], json_integer(end - i));
    }
    free(reason);
}

static json_t *report(struct options *o, const struct qm_results *r, struct qm_summary **tables,
                      const struct qm_effect *effect, const struct qm_protocol *protocol,
                      const char *path, double seconds)
{
    struct counts n = count(r);
    json_t *skips = json_object(), *summary = json_object();
    note_skips(r, n.skipped, skips);
    if (n.diverged)
        qm_note("%lld cells diverged", (long long)n.diverged);
    for (int i = 0; i < r->suite->n_summaries; i++) {
        if (qm_cli.json)
            json_object_set_new(summary, r->suite->summary[i].name, qm_summary_json(tables[i]));
        else if (!o->claims && (!o->headline || r->suite->summary[i].headline))
            qm_summary_print(tables[i]);
    }
    if (!qm_cli.json && !o->claims)
        qm_protocol_print(protocol);
    for (int i = 0; i < r->suite->n_expects; i++)
        o->verdicts[effect[i].verdict]++;
    if (r->suite->claim && !qm_cli.json)
        qm_claim_print(r->suite, effect);
    fflush(stdout); /* before the notes on stderr */
    qm_note("%s%lld cells, %lld skipped, %.1f s: %s", o->claims ? "  " : "\n",
            (long long)r->n_cells, (long long)n.skipped, seconds, path);
    json_t *all = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "suite", r->suite->stem,
                            "file", path, "cells", (json_int_t)r->n_cells, "ok", (json_int_t)n.ok,
                            "skipped", (json_int_t)n.skipped, "diverged", (json_int_t)n.diverged,
                            "reasons", skips, "summary", summary);
    if (r->suite->claim)
        json_object_set_new(all, "claim", qm_claim_json(r->suite, effect));
    if (protocol)
        json_object_set_new(all, "protocol", qm_protocol_json(protocol));
    return all;
}

/* ---- one suite ------------------------------------------------------------------------------- */

static qm_status store_all(const struct qm_results *r, struct qm_summary **tables,
                           const struct qm_effect *effect, const struct qm_protocol *protocol,
                           struct qm_store *store)
{
    QM_TRY(qm_results_store(r, store));
    QM_TRY(qm_protocol_store(protocol, store));
    for (int i = 0; i < r->suite->n_summaries; i++)
        QM_TRY(qm_summary_store(tables[i], store));
    return qm_claim_store(r->suite, effect, store);
}

/* Runs the cells, makes the tables, writes the file. */
static qm_status run_and_store(struct options *o, const struct qm_suite *s, struct qm_cell *cells,
                               int64_t n_cells, json_t *into)
{
    struct qm_results r = {0};
    struct qm_store *store = NULL;
    struct qm_protocol *protocol = NULL;
    struct qm_summary **tables = calloc((size_t)s->n_summaries + 1, sizeof *tables);
    struct qm_effect *effect = calloc((size_t)s->n_expects + 1, sizeof *effect);
    char path[1024];
    double start = qm_seconds();
    qm_status st = tables && effect ? find_out(o, s->stem, path, sizeof path)
                                    : qm_fail(QM_NO_MEMORY, "summaries");
    if (st == QM_OK)
        st = qm_store_open(path, "run", o->argc, o->argv, &store);
    if (st == QM_OK)
        st = qm_results_run(s, cells, n_cells, o->threads, 1, &stopped, &r);
    for (int i = 0; st == QM_OK && i < s->n_summaries; i++)
        st = qm_summary_make(&r, &s->summary[i], &tables[i]);
    if (st == QM_OK)
        st = qm_claim_judge(&r, effect);
    if (st == QM_OK)
        st = qm_protocol_make(&r, &protocol);
    if (st == QM_OK)
        st = store_all(&r, tables, effect, protocol, store);
    if (st == QM_OK && stopped)
        st = qm_fail(QM_INTERRUPTED, "interrupted");
    if (st == QM_OK) {
        st = qm_store_commit(store);
        store = NULL;
    }
    if (st == QM_OK) {
        struct counts n = count(&r);
        json_array_append_new(into,
                              report(o, &r, tables, effect, protocol, path, qm_seconds() - start));
        if (n.skipped == n_cells)
            st = qm_fail(QM_NO_MATCH, "%s: every cell was skipped", s->path);
    }
    qm_store_abort(store);
    qm_protocol_free(protocol);
    for (int i = 0; tables && i < s->n_summaries; i++)
        qm_summary_free(tables[i]);
    free(tables);
    free(effect);
    qm_results_free(&r);
    return st;
}

static qm_status load_data(struct qm_replay *replay, struct qm_cell *cells, int64_t n_cells)
{
    for (int64_t i = 0; i < n_cells; i++)
        if (cells[i].recorded && !cells[i].reason)
            QM_TRY(qm_replay_load(replay, cells[i].recorded));
    return QM_OK;
}

static qm_status open_data(const struct options *o, struct qm_suite *s, struct qm_replay **replay)
{
    char *globs[] = {default_data};
    if (o->n_data)
        QM_TRY(qm_suite_data(s, o->data, o->n_data));
    else if (s->n_data == 0 && qm_suite_wants_data(s))
        QM_TRY(qm_suite_data(s, globs, 1));
    return qm_suite_wants_data(s) ? qm_replay_open(s->data, s->n_data, replay) : QM_OK;
}

static void warn(void *context, const char *line)
{
    (void)context;
    qm_note("warning: %s", line);
}

/* The recipes of all configurations: "configs/default_5b.yml" becomes the variant default_5b. */
static qm_status read_configs(struct options *o)
{
    o->added = calloc((size_t)o->n_configs + 1, sizeof *o->added);
    if (!o->added)
        return qm_fail(QM_NO_MEMORY, "options");
    for (int i = 0; i < o->n_configs; i++) {
        struct qm_lpmm_config config;
        struct added *a = &o->added[i];
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

static qm_status run_suite(struct options *o, const char *word, json_t *into)
{
    char path[1024];
    struct qm_suite *s = NULL;
    struct qm_replay *replay = NULL;
    struct qm_cell *cells = NULL;
    int64_t n_cells = 0;
    QM_TRY(find_suite(word, path, sizeof path));
    qm_status st = qm_suite_read_size(path, o->size, &s);
    for (int i = 0; st == QM_OK && i < o->n_configs; i++)
        st = qm_suite_add_variant(s, o->added[i].label, o->added[i].recipe);
    for (int i = 0; st == QM_OK && i < s->n_summaries; i++)
        st = qm_summary_check(s, &s->summary[i]);
    for (int i = 0; st == QM_OK && i < s->n_expects; i++)
        st = qm_claim_check(s, &s->expect[i]);
    if (st == QM_OK)
        st = open_data(o, s, &replay);
    if (st == QM_OK)
        st = qm_suite_cells(s, replay, &cells, &n_cells);
    if (st == QM_OK && !o->dry_run) {
        if (!o->headline && !o->claims)
            qm_note("%s: %s", s->stem, s->question ? s->question : s->title ? s->title : "");
        st = load_data(replay, cells, n_cells);
    }
    if (st == QM_OK && o->dry_run)
        list_cells(s, cells, n_cells, into);
    else if (st == QM_OK)
        st = run_and_store(o, s, cells, n_cells, into);
    qm_cells_free(cells, n_cells);
    qm_replay_close(replay);
    qm_suite_free(s);
    return st;
}

/* Every suite of claims, where --claims names none. */
static qm_status all_claims(struct options *o, glob_t *found)
{
    if (glob(SUITES "claims/*.yaml", 0, NULL, found) != 0)
        return qm_fail(QM_NO_MATCH, "no suites in " SUITES "claims/");
    for (size_t i = 0; i < found->gl_pathc; i++)
        QM_TRY(append(&o->suite, &o->n_suites, found->gl_pathv[i]));
    return QM_OK;
}

int qm_cmd_run(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    const struct argp argp = {options, option, "SUITE...", doc, children, NULL, NULL};
    struct options o = {.threads = omp_get_max_threads(), .argc = argc, .argv = argv};
    struct sigaction act = {.sa_handler = on_signal}, was_int, was_term;
    int code = qm_cli_parse(&argp, argc, argv, &o);
    qm_status st = QM_OK;
    char path[1024];
    glob_t found = {0};
    json_t *all = json_array();
    stopped = 0;
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, &was_int);
    sigaction(SIGTERM, &act, &was_term);
    if (code == 0 && o.against && (st = qm_against_find(o.against, path, sizeof path)) != QM_OK)
        code = qm_cli_failed("run", st); /* before a long run */
    if (code == 0 && (st = read_configs(&o)) != QM_OK)
        code = qm_cli_failed("run", st);
    if (code == 0 && o.n_suites == 0 && (st = all_claims(&o, &found)) != QM_OK)
        code = qm_cli_failed("run", st);
    for (int i = 0; code == 0 && i < o.n_suites; i++)
        if ((st = run_suite(&o, o.suite[i], all)) != QM_OK ||
            (o.against && (st = qm_report_beside(all, o.against)) != QM_OK))
            code = qm_cli_failed("run", st);
    sigaction(SIGINT, &was_int, NULL);
    sigaction(SIGTERM, &was_term, NULL);
    if (code == 0 && o.claims)
        qm_note("\n%d expectations hold, %d do not, %d undecided", o.verdicts[QM_VERDICT_holds],
                o.verdicts[QM_VERDICT_fails], o.verdicts[QM_VERDICT_undecided]);
    if (code == 0 && qm_cli.json)
        qm_json_print(json_incref(all));
    json_decref(all);
    globfree(&found);
    free(o.suite);
    free(o.data);
    free(o.config);
    free(o.added);
    return code;
}
