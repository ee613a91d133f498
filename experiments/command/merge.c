/* merge.c - qualm merge: writes the result file of a campaign from its shards. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/clock.h"
#include "experiments/campaign/campaign.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/run/write_results.h"

struct options {
    const char *out;
    char **source;
    int n, argc;
    char **argv;
};

static const struct argp_option options[] = {
    {"out", 'o', "FILE", 0, "result file (default: beside the folder, NAME.run gives NAME.h5)", 0},
    {0}};

static const char doc[] =
    "Write the one result file of a campaign whose shards are done.\v"
    "DIR is a campaign's folder (NAME.run); more folders, or ledgers (DIR/2of7.jsonl with its "
    "segments beside it), add shards that ran where the first was not seen.  Every cell's digest "
    "is verified; nothing is written while cells are missing.  Relative paths of the suite's data "
    "are taken from the folder that the campaign was begun in, which campaign.json names, or from "
    "the current one where nothing matches there.  Outside /provenance and /timing "
    "the file is byte for byte what one process would have written.  The folder is left as it "
    "is.\n"
    "\n"
    "Examples:\n"
    "  # big.run is the folder of a campaign that is under way\n"
    "  qualm merge results/big.run\n"
    "  qualm merge a/big.run b/big.run -o results/big.h5\n"
    "  qualm merge big.run other/3of4.jsonl -o big.h5\n"
    "\n"
    "Exit codes: 0 done, 1 cells failed (the file is there), 2 folders of different campaigns, 3 "
    "damage or I/O, 4 cells or data files are missing, or every cell was skipped.";

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'o': o->out = arg; return 0;
    case ARGP_KEY_ARGS:
        o->source = state->argv + state->next;
        o->n = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no DIR given"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

/* QM_BAD_ARG unless all folders were begun with the same suite and data. */
static qm_status check_same(const struct options *o)
{
    struct qm_campaign_head first, other;
    QM_TRY(qm_campaign_head(o->source[0], &first));
    for (int i = 1; i < o->n; i++) {
        if (!is_folder(o->source[i]))
            continue;
        QM_TRY(qm_campaign_head(o->source[i], &other));
        if (strcmp(first.digest, other.digest) != 0)
            return qm_fail(QM_BAD_ARG, "%s and %s are different campaigns", o->source[0],
                           o->source[i]);
    }
    return QM_OK;
}

static qm_status merge(const struct options *o, json_t *into)
{
    struct qm_write_results finish = {.started = qm_seconds()};
    struct qm_loaded_suite job = {0};
    struct qm_results r = {0};
    struct qm_store *store = NULL;
    char path[1100];
    int64_t failed = 0;
    QM_TRY(qm_path_check(o->out ? o->out : ""));
    qm_campaign_out(o->out, o->source[0], path, sizeof path);
    QM_TRY(check_same(o));
    qm_status st = qm_campaign_job(o->source[0], &job);
    if (st == QM_OK)
        st = qm_store_open(path, "run", o->argc, o->argv, &store);
    if (st == QM_OK)
        st = qm_campaign_collect(&job, o->source, o->n, &r);
    for (int64_t i = 0; st == QM_OK && i < r.n_cells; i++)
        failed += r.outcome[i].failed;
    if (st == QM_OK) {
        st = qm_write_results(&finish, &r, store, path, into);
        store = NULL;
    }
    if (st == QM_OK && failed)
        st = qm_fail(QM_CHECK_FAILED, "%lld cells failed", (long long)failed);
    qm_store_abort(store);
    qm_results_free(&r);
    qm_loaded_suite_close(&job);
    return st;
}

int qm_cmd_merge(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {options, option, "DIR [DIR|LEDGER]...", doc, children,
                                     NULL,    NULL};
    struct options o = {.argc = argc, .argv = argv};
    json_t *all = json_array();
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code == 0) {
        qm_status st = merge(&o, all);
        if (json_array_size(all) > 0 && qm_cli.json)
            qm_json_print(json_incref(json_array_get(all, 0)));
        if (st != QM_OK && json_array_size(all) > 0 && qm_cli.json)
            qm_cli.json = 0; /* one document, the error's text is on stderr */
        code = st == QM_OK ? 0 : qm_cli_failed("merge", st);
    }
    json_decref(all);
    return code;
}
