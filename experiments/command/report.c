/* report.c - qualm report: makes an HTML page of a result file, and tables for papers. */
#include "experiments/report/report.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/report/against.h"
#include "experiments/store/atomic_file.h"

#include <stdlib.h>
#include <string.h>

enum { OPT_MARKDOWN = 256, OPT_LATEX, OPT_FIGURES, OPT_NO_FIGURES, OPT_ROWS, OPT_ARCHIVE };

static const struct argp_option options[] = {
    {"out", 'o', "FILE", 0, "the page (default: beside the result file, X.html for X.h5)", 0},
    {"output", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0},
    {"against", 'a', "ARCHIVE", 0,
     "beside the variants of another campaign: a result file, or NAME for results/NAME.h5", 0},
    {"markdown", OPT_MARKDOWN, "FILE", 0, "also the tables in Markdown; '-' is stdout", 0},
    {"latex", OPT_LATEX, "FILE", 0, "also the tables in LaTeX, without packages; '-' is stdout", 0},
    {"figures", OPT_FIGURES, "DIR", 0,
     "the figures as drawn beforehand by plots/report/draw.py --page --out DIR", 0},
    {"no-figures", OPT_NO_FIGURES, NULL, 0, "tables only", 0},
    {"archive", OPT_ARCHIVE, "FILE", 0,
     "also what is kept of this campaign to compare others with: runs, verdicts, loss curves", 0},
    {"rows", OPT_ROWS, "N", 0, "rows of a stored table on the page (default 300)", 0},
    {0}};

static const char doc[] =
    "Make one self-contained HTML page of a result file: loss curves first, gaps with intervals, "
    "profiles, sensitivity, budget, sortable tables, what was skipped and why, provenance.\v"
    "The page needs no network, suits light and dark screens, phones and paper.  Figures are "
    "drawn by the matplotlib scripts that the program carries, with /usr/bin/python3; every "
    "number is one that the file holds.  The same file gives the same page.\n"
    "\n"
    "Examples:\n"
    "  # mine.yaml is a paired suite, for --against with problems of baseline\n"
    "  # after: qualm run convergence mine.yaml --out results/\n"
    "  qualm report results/convergence.h5  # writes results/convergence.html\n"
    "  qualm report results/mine.h5 --against baseline  # beside those published\n"
    "  qualm report results/mine.h5 --latex table.tex -o mine.html\n"
    "  qualm report results/mine.h5 --markdown - --no-figures\n"
    "\n"
    "With --against, runs are paired with the archive's where problem, seed, learning rate, steps "
    "and double-precision twin agree, at the archive's rates; the page says what did not.  stdout "
    "has, per archived variant, on how many problems yours is better or worse.\n"
    "\n"
    "Where Python or matplotlib is missing, the page says so in the figures' place.  Exit codes: 0 "
    "done, 2 usage, 3 a file cannot be read or written, 4 nothing to compare: a file without "
    "paired runs, no such archive, or one where no run has a partner (the page is written); or "
    "nothing that a page shows, neither figure nor table (no page is written).";

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct qm_report *o = state->input;
    char *end;
    switch (key) {
    case 'o': o->out = arg; return 0;
    case 'a': o->against = arg; return 0;
    case OPT_MARKDOWN: o->markdown = arg; return 0;
    case OPT_LATEX: o->latex = arg; return 0;
    case OPT_FIGURES: o->figures = arg; return 0;
    case OPT_ARCHIVE: o->archive = arg; return 0;
    case OPT_NO_FIGURES: o->no_figures = 1; return 0;
    case OPT_ROWS:
        o->rows = strtol(arg, &end, 10);
        if (*end || end == arg || o->rows < 0)
            argp_error(state, "--rows is '%s', expected a whole number from 0", arg);
        return 0;
    case ARGP_KEY_ARG:
        if (o->path)
            argp_error(state, "one result file at a time; '%s' is the second", arg);
        o->path = arg;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no result file given"); return 0;
    case ARGP_KEY_END:
        if (o->figures && o->no_figures)
            argp_error(state, "--figures and --no-figures: expected one of them");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int is_stdout(const char *path) { return path && strcmp(path, "-") == 0; }

int qm_cmd_report(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    const struct argp argp = {options, option, "FILE.h5", doc, children, NULL, NULL};
    struct qm_report o = {.rows = QM_REPORT_ROWS};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    const char *to_stdout[4];
    int n_stdout = 0;
    if (qm_cli.json)
        to_stdout[n_stdout++] = "--json";
    if (is_stdout(o.out))
        to_stdout[n_stdout++] = "--out";
    if (is_stdout(o.markdown))
        to_stdout[n_stdout++] = "--markdown";
    if (is_stdout(o.latex))
        to_stdout[n_stdout++] = "--latex";
    if (n_stdout > 1)
        return qm_cli_failed(
            "report", qm_fail(QM_BAD_ARG, "%s and %s both on stdout", to_stdout[0], to_stdout[1]));
    const char *const file[] = {o.out, o.markdown, o.latex, o.archive};
    for (size_t i = 0; i < sizeof file / sizeof *file; i++)
        if (file[i] && !is_stdout(file[i]) && qm_atomic_file_check(file[i]) != QM_OK)
            return qm_cli_failed("report", QM_BAD_FILE);
    json_t *out;
    qm_status st = qm_report_make(&o, &out);
    if (st != QM_OK)
        return qm_cli_failed("report", st);
    if (o.against && n_stdout == 0)
        qm_against_print(json_object_get(out, "against_counts"),
                         json_string_value(json_object_get(out, "against")));
    st = qm_report_expect_pairs(out);
    if (qm_cli.json)
        qm_json_print(out);
    else
        json_decref(out);
    return st == QM_OK ? 0 : qm_cli_failed("report", st);
}
