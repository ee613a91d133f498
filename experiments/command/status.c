/* status.c - qualm status: reports the progress of campaigns from their ledgers. */
#include <stdlib.h>
#include <string.h>

#include "experiments/campaign/campaign.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"

struct options {
    char **dir;
    int n;
};

static const char doc[] =
    "How far a campaign has come: reads its ledgers and nothing else, while it runs or not.\v"
    "`running` counts the shards that a process on this machine is at work on.  Cells count when "
    "their segment is closed, which is every second at first and every minute in long campaigns.\n"
    "\n"
    "Examples:\n"
    "  # big.run is the folder of a campaign that is under way\n"
    "  qualm status results/big.run\n"
    "  qualm status --json results/*.run\n"
    "\n"
    "Exit codes: 0 all cells are done, 3 no such folder, or a ledger cannot be read, 4 no "
    "campaign in it, 75 cells are still to do.";

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_ARGS:
        o->dir = state->argv + state->next;
        o->n = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no DIR given"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

struct tally {
    int64_t done, ok, skipped, diverged, failed;
    double seconds;
};

static qm_status tally_up(const struct qm_ledger_index *index, int64_t n, struct tally *t)
{
    int64_t *line = calloc((size_t)n + 1, sizeof *line);
    qm_status st = line ? qm_ledger_index_resolve(index, n, NULL, line)
                        : qm_fail(QM_NO_MEMORY, "%lld cells", (long long)n);
    for (int64_t i = 0; st == QM_OK && i < n; i++) {
        if (line[i] < 0)
            continue;
        const struct qm_ledger_index_line *l = &index->line[line[i]];
        t->done++;
        t->ok += strcmp(l->status, "ok") == 0;
        t->skipped += strcmp(l->status, "skipped") == 0;
        t->diverged += strcmp(l->status, "diverged") == 0;
        t->failed += l->failed;
        t->seconds += l->seconds;
    }
    free(line);
    return st;
}

static qm_status show(const char *dir, json_t *into, int *unfinished)
{
    struct qm_campaign_head head;
    struct qm_ledger_index index = {0};
    struct tally t = {0};
    QM_TRY(qm_campaign_head(dir, &head));
    index.cells = head.cells;
    qm_status st = qm_ledger_index_read_all(&index, dir);
    if (st == QM_OK && index.bad_lines) {
        qm_ledger_index_check(&index);
        st = qm_ledger_index_heal(&index);
    }
    if (st == QM_OK || st == QM_NO_MATCH) /* a campaign just begun has no ledger */
        st = tally_up(&index, head.cells, &t);
    *unfinished |= t.done < head.cells;
    if (st == QM_OK)
        json_array_append_new(
            into,
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:I, s:f}",
                      "campaign", dir, "suite", head.name, "cells", (json_int_t)head.cells, "done",
                      (json_int_t)t.done, "ok", (json_int_t)t.ok, "skipped", (json_int_t)t.skipped,
                      "diverged", (json_int_t)t.diverged, "failed", (json_int_t)t.failed, "ledgers",
                      index.n_ledgers, "running", index.n_held, "segments", index.n_segments,
                      "damaged_lines", (json_int_t)index.bad_lines, "healed_cells",
                      (json_int_t)index.n_healed, "cell_seconds", t.seconds));
    qm_ledger_index_free(&index);
    return st;
}

int qm_cmd_status(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {NULL, option, "DIR...", doc, children, NULL, NULL};
    struct options o = {0};
    int unfinished = 0, code = qm_cli_parse(&argp, argc, argv, &o);
    qm_status st = QM_OK;
    if (code)
        return code;
    json_t *all = json_array();
    for (int i = 0; st == QM_OK && i < o.n; i++)
        st = show(o.dir[i], all, &unfinished);
    if (st != QM_OK) {
        json_decref(all);
        return qm_cli_failed("status", st);
    }
    qm_report(o.n == 1 && !qm_cli.json ? json_incref(json_array_get(all, 0)) : json_incref(all));
    json_decref(all);
    return unfinished ? qm_exit_code(QM_INTERRUPTED) : 0;
}
