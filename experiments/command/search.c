/* search.c - qualm search: searches compositions of formats by the error of the next update. */
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "experiments/campaign/campaign.h"
#include "experiments/campaign/worker.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/machine/shipped_files.h"
#include "experiments/search/halving.h"
#include "experiments/store/atomic_file.h"
#include "experiments/store/store.h"

enum {
    OPT_SEARCH = 256,
    OPT_REPORT,
    OPT_SEED,
    OPT_SPACE,
    OPT_FIRST,
    OPT_REFERENCE,
    OPT_NUMEL,
    OPT_LEAST,
    OPT_TENSOR
};
enum { SURVIVORS = 4 }; /* compositions of the suites that follow */

#define DATA "experiments/data/*.h5"

struct options {
    struct qm_halving search;
    const char *out;
    char **files[QM_HALF_COUNT], **space, *reference;
    int n_files[QM_HALF_COUNT], n_space, is_split, dry_run, keep;
};

static const struct argp_option options[] = {
    {"search", OPT_SEARCH, "FILE", 0,
     "search on the states of this file or glob; may be repeated; with --report instead of drawn "
     "halves",
     0},
    {"report", OPT_REPORT, "FILE", 0, "report on this file or glob; may be repeated", 0},
    {"seed", OPT_SEED, "N", 0, "of the halves and of the order of their tensors (default 1)", 0},
    {"bits", 'b', "MAX", 0,
     "budget of both moments together, bits per element of a 1024 x 1024 tensor, scales included "
     "(default 8.5)",
     0},
    {"space", OPT_SPACE, "SLOT.AXIS=LIST", 0,
     "members of an axis, separated by commas; may be repeated (below)", 0},
    {"first", OPT_FIRST, "N", 0, "pairs that are measured together at first (default 512)", 0},
    {"least", OPT_LEAST, "N", 0, "tensors that a round has at least (default 12)", 0},
    {"reference", OPT_REFERENCE, "LIST", 0,
     "variants or recipes to compare with (default: all AdamW with codes for both moments within "
     "the budget)",
     0},
    {"tensor", OPT_TENSOR, "REGEX", 0, "only states whose name matches", 0},
    {"min-numel", OPT_NUMEL, "N", 0, "only states of at least N elements (default 1024)", 0},
    {"out", 'o', "FILE", 0, "result file (default results/search.h5)", 0},
    {"threads", 't', "N", 0,
     "processes that measure (default: one for each processor that it may use); the results do not "
     "depend on it",
     0},
    {"dry-run", 'n', NULL, 0, "print halves and counts, and measure nothing", 0},
    {"keep", 'k', NULL, 0, "keep the suites and campaigns of the rounds", 0},
    {"fresh", 'F', NULL, 0, "throw away what an earlier, interrupted search left", 0},
    {0}};

static const char doc[] =
    "Search compositions of formats for both moments of AdamW, by the error of the next update of "
    "recorded states; print the frontier of error against bits on held-out states.\v"
    "FILE... (default: those that ship) are divided into two halves of whole runs, drawn by the "
    "seed: one is searched, the other plays no part but in the report.  Rounds of successive "
    "halving, each a suite of coupling update: every format alone on an eighth of the tensors; the "
    "pairs that these predict to be best (noise-to-signal ratios add up) on a quarter; the best "
    "quarter of these on half of the tensors; the best quarter of these on all; then the report "
    "beside registered variants.  Each half bit of state keeps its best.\n"
    "\n"
    "SLOT is exp_avg or exp_avg_sq, AXIS map (nf4:4s), norm (block:64), round, scale, curve, or "
    "format for whole quantizers; the words are those of `qualm list`.  A composition that makes "
    "no sense is left out and counted.  Defaults:\n"
#define X(name, first, second) "  exp_avg." #name "=" first "\n  exp_avg_sq." #name "=" second "\n"
    QM_HALVING_AXIS_LIST(X)
#undef X
        "\n"
        "The result file has every value that was measured (/search) and the cells of the report, "
        "so "
        "that `qualm plot FILE` draws the frontier.  Suites for recorded traces and for training "
        "with "
        "the best compositions are written beside it.  One update is not training: run them.\n"
        "\n"
        "Examples:\n"
        "  qualm search\n"
        "  qualm search --bits 6 --seed 3 --out six.h5 && qualm plot six.h5\n"
        "  qualm search --search 'runs/a/*.h5' --report 'runs/b/*.h5'\n"
        "  qualm search --space exp_avg.map=nf4:4s,lint:5s --space exp_avg_sq.round=mid\n"
        "\n"
        "Exit codes: 0 done, 1 cells failed, 2 usage, 3 a file cannot be read or written, 4 no "
        "such "
        "states, or no composition within the budget, 75 interrupted: the same command goes on.";

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    if (stopped < 2)
        stopped = stopped + 1;
}

static error_t append(char ***list, int *n, char *word)
{
    return qm_cli_append(list, n, word) == QM_OK ? 0 : ENOMEM;
}

static double number(struct argp_state *state, const char *text)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x > 0.0 && x <= 64.0))
        argp_error(state, "--bits '%s': expected a number above 0 and at most 64", text);
    return x;
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    struct qm_halving *s = &o->search;
    switch (key) {
    case OPT_SEARCH: o->is_split = 1; return append(&o->files[0], &o->n_files[0], arg);
    case OPT_REPORT: return append(&o->files[1], &o->n_files[1], arg);
    case OPT_SEED:
        s->files.seed = (uint64_t)qm_cli_whole(state, "seed", arg, 0, 2147483647);
        return 0;
    case 'b': s->most_bits = number(state, arg); return 0;
    case OPT_SPACE: return append(&o->space, &o->n_space, arg);
    case OPT_FIRST: s->first = qm_cli_whole(state, "first", arg, 1, 1000000); return 0;
    case OPT_REFERENCE: o->reference = arg; return 0;
    case OPT_TENSOR: s->files.filter = qm_cli_filter(state, "--tensor", arg); return 0;
    case OPT_LEAST: s->least = qm_cli_whole(state, "least", arg, 1, 1000000); return 0;
    case OPT_NUMEL:
        s->files.min_numel = qm_cli_whole(state, "min-numel", arg, 1, 2147483647);
        return 0;
    case 'o': o->out = arg; return 0;
    case 't': s->workers = qm_cli_whole(state, "threads", arg, 1, QM_CAMPAIGN_WORKERS); return 0;
    case 'n': o->dry_run = 1; return 0;
    case 'k': o->keep = 1; return 0;
    case 'F': s->fresh = 1; return 0;
    case ARGP_KEY_ARG:
        if (o->is_split)
            argp_error(state, "'%s': files are those of --search, or those that are drawn from",
                       arg);
        return append(&o->files[0], &o->n_files[0], arg);
    case ARGP_KEY_END:
        if (o->is_split != (o->n_files[1] > 0))
            argp_error(state, "--search and --report go together");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- references ------------------------------------------------------------------------------ */

/* Whether the recipe is an AdamW in float32 parameters with codes for both moments. */
static int is_comparable(const struct qm_recipe *r)
{
    char param[24];
    return strcmp(r->rule->family, "adamw") == 0 && r->rule->n_slots == QM_HALVING_SLOTS &&
           r->slot[0].bits && r->slot[1].bits &&
           strcmp(qm_param_text(&r->param, param), "f32") == 0;
}

/* Whether an earlier recipe has the same formats. */
static int is_known(const struct qm_recipes *list, const struct qm_recipe *r)
{
    for (int i = 0; i < list->n; i++)
        if (qm_quantizer_equal(&list->recipe[i].slot[0], &r->slot[0]) &&
            qm_quantizer_equal(&list->recipe[i].slot[1], &r->slot[1]))
            return 1;
    return 0;
}

static qm_status find_references(struct options *o)
{
    struct qm_halving *s = &o->search;
    if (o->reference)
        return qm_recipes_add(&s->reference, o->reference);
    for (int i = 0; i < qm_variant_count(); i++) {
        struct qm_recipe r;
        double bits;
        QM_TRY(qm_recipe_from(qm_variant_at(i), &r));
        if (!is_comparable(&r) || is_known(&s->reference, &r))
            continue;
        QM_TRY(qm_halving_bits(&r, &bits));
        if (bits <= s->most_bits)
            QM_TRY(qm_recipes_add(&s->reference, qm_variant_at(i)->name));
    }
    return QM_OK;
}

/* ---- what follows ---------------------------------------------------------------------------- */

/* Writes a suite of the best of the frontier and the best reference to BASE.NAME.yaml; command:
 * what runs it. */
static qm_status follow(const struct options *o, const char *name, json_t *more, char *command,
                        size_t size)
{
    const struct qm_halving *s = &o->search;
    char path[1024];
    int *final, n, entry[SURVIVORS + 1], kept = 0;
    qm_status st = qm_halving_final(s, &final, &n);
    if (st != QM_OK) {
        json_decref(more);
        return st;
    }
    for (int i = n - 1; i > 0 && kept < SURVIVORS; i--)
        if (s->entry[final[i]].is_frontier)
            entry[kept++] = final[i];
    if (n > 0 && s->entry[final[0]].is_reference)
        entry[kept++] = final[0];
    free(final);
    int stem = (int)(strlen(o->out) - (qm_name_ends(o->out, ".h5") ? 3 : 0));
    snprintf(path, sizeof path, "%.*s.%s.yaml", stem, o->out, name);
    snprintf(command, size, "qualm run %s", path);
    return qm_halving_suite(s, path, entry, kept, more);
}

static json_t *traces_suite(void)
{
    return json_pack("{s:s, s:[s,s], s:s, s:s, s:i, s:i, s:[{s:s, s:s, s:s, s:[s,s,s,s]}]}",
                     "title", "the best of a search over recorded gradients", "coupling", "local",
                     "global", "source", "trace:*", "slot", "exp_avg_sq", "min_rank", 2, "every",
                     10, "summary", "name", "all", "by", "coupling", "across", "variant", "value",
                     "step_sqnr", "param_sqnr", "state0_sqnr", "state1_sqnr");
}

static json_t *training_suite(void)
{
    return json_pack("{s:s, s:s, s:s, s:[s,s,s], s:i, s:s, s:i}", "title",
                     "the best of a search in training", "protocol", "paired", "coupling", "closed",
                     "source", "problem:nqm:n=1024", "problem:logreg:n=256,d=256",
                     "problem:mlp:batch=16", "weight_decay", 0, "seed", "1..8", "steps", 300);
}

/* ---- the command ----------------------------------------------------------------------------- */

static qm_status prepare(struct options *o)
{
    struct qm_halving *s = &o->search;
    for (int half = 0; half < QM_HALF_COUNT; half++) {
        s->files.files[half] = o->files[half];
        s->files.n_files[half] = o->n_files[half];
    }
    for (int i = 0; i < o->n_space; i++)
        QM_TRY(qm_halving_space_set(&s->space, o->space[i]));
    QM_TRY(qm_halving_space_make(&s->space));
    QM_TRY(qm_halves_open(&s->files, &s->halves));
    QM_TRY(find_references(o));
    const struct qm_halves *h = &s->halves;
    qm_note(
        "seed %llu: %d tensors of %d runs are searched, %d of %d report%s; %lld states left out",
        (unsigned long long)s->files.seed, h->count[0], h->models[0], h->count[1], h->models[1],
        h->by_tensor ? " (one run alone: halves are of its tensors)" : "", (long long)h->left_out);
    qm_note("%lld x %lld formats make sense, of %lld x %lld", (long long)s->space.n[0],
            (long long)s->space.n[1], (long long)s->space.combined[0],
            (long long)s->space.combined[1]);
    return qm_halving_check(s);
}

static void print_counts(const struct qm_halving *s)
{
    int pairs = 0;
    for (int i = 0; i < s->n; i++)
        pairs += s->entry[i].format[0] >= 0 && s->entry[i].format[1] >= 0;
    qm_note("%lld compositions, %lld legal within %g bits, evaluated %d and %lld single formats; "
            "predictions are off by %.2g dB in the median",
            (long long)s->composed, (long long)s->legal, s->most_bits, pairs,
            (long long)(s->space.n[0] + s->space.n[1]), s->prediction_error);
}

static qm_status run(struct options *o, int argc, char **argv)
{
    char folder[1024], inside[1032], traces[1200], training[1200];
    struct qm_halving *s = &o->search;
    struct qm_store *store = NULL;
    QM_TRY(qm_path_check(o->out));
    qm_campaign_dir(o->out, folder, sizeof folder);
    s->folder = folder;
    snprintf(inside, sizeof inside, "%s/", folder);
    QM_TRY(qm_make_folders(inside));
    qm_status st = qm_store_open(o->out, "search", argc, argv, &store);
    if (st == QM_OK)
        st = qm_halving_run(s);
    if (st == QM_OK)
        st = qm_halving_store(s, store);
    if (st == QM_OK) {
        st = qm_store_commit(store);
        store = NULL;
    }
    qm_store_abort(store);
    if (st != QM_OK) {
        rmdir(folder); /* where no round has begun there is nothing to resume in it */
        return st;
    }
    print_counts(s);
    QM_TRY(follow(o, "traces", traces_suite(), traces, sizeof traces));
    QM_TRY(follow(o, "training", training_suite(), training, sizeof training));
    const char *const next[] = {traces, training};
    QM_TRY(qm_halving_print(s, o->out, next, 2));
    if (!o->keep)
        qm_halving_clear(folder);
    qm_note("%s", o->out);
    return QM_OK;
}

int qm_cmd_search(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    const struct argp argp = {options, option, "[FILE...]", doc, children, NULL, NULL};
    struct options o = {.search = {.most_bits = 8.5,
                                   .first = 512,
                                   .least = 12,
                                   .workers = omp_get_max_threads(),
                                   .files = {.seed = 1, .min_numel = 1024},
                                   .stop = &stopped},
                        .out = "results/search.h5"};
    char shipped[1024];
    struct sigaction stop = {.sa_handler = on_signal}, was[2];
    qm_halving_space_start(&o.search.space);
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    stopped = 0;
    sigemptyset(&stop.sa_mask);
    sigaction(SIGINT, &stop, &was[0]);
    sigaction(SIGTERM, &stop, &was[1]);
    qm_status st = QM_OK;
    if (o.n_files[0] == 0) {
        qm_shipped_pattern(DATA, shipped, sizeof shipped);
        st = qm_cli_append(&o.files[0], &o.n_files[0], shipped);
    }
    if (st == QM_OK)
        st = prepare(&o);
    if (st == QM_OK && !o.dry_run)
        st = run(&o, argc, argv);
    sigaction(SIGINT, &was[0], NULL);
    sigaction(SIGTERM, &was[1], NULL);
    qm_halving_free(&o.search);
    for (int half = 0; half < QM_HALF_COUNT; half++)
        free(o.files[half]);
    free(o.space);
    return st == QM_OK ? 0 : qm_cli_failed("search", st);
}
