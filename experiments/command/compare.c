/* compare.c - qualm compare: compares two result files, and reports what became worse. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/report/compare.h"

struct options {
    char *file[2], **metric;
    int n, n_metrics, all;
    double margin;
};

enum { KEY_ALL = 256 };

static const struct argp_option options[] = {
    {"metric", 'm', "NAME[+|-]", 0,
     "only this metric; may be repeated.  '+': larger is better, '-': smaller is", 0},
    {"margin", 'g', "X", 0, "differences up to X (in the metric's unit) are none", 0},
    {"all", KEY_ALL, NULL, 0, "show what is the same too", 0},
    {0}};

static const char doc[] =
    "Compare two result files, paired cell by cell: B minus A.\v"
    "Cells pair by their id (recipe, source, seed ...), whatever suite they "
    "come from.  Judged are the metrics and outcomes that `qualm list` calls better when higher or "
    "lower (sqnr, loss_ratio ...), for each variant: worse, where a paired t test over its cells "
    "says so with a "
    "false-discovery rate of 5 % "
    "over all that is judged, or where a number became NaN or infinite (or finite: an sqnr of "
    "Inf is exact) for the worse, `broken`; the table gives means with 95 % intervals.  "
    "Other metrics are shown where "
    "they changed, columns of cells (bits, reason ...) with the number of pairs that differ, and "
    "columns that one file alone has.  Nothing else is compared (curves, summaries, verdicts, "
    "code books, axes, the suite's text, times, the numbers of cells): `qualm digest` tells "
    "whether all but times is equal.  Cells that one file alone has are counted: cells less "
    "pairs.\n"
    "\n"
    "Examples:\n"
    "  # both are what `qualm run` wrote\n"
    "  qualm compare results/before.h5 results/after.h5\n"
    "  qualm compare a.h5 b.h5 --metric sqnr --margin 0.01\n"
    "  qualm compare a.h5 b.h5 --metric collapse- --json\n"
    "\n"
    "Exit codes: 0 nothing differs by more than the margin, 1 something does (better, worse or "
    "unclear: `worse` counts regressions), or cells that were ok diverge or fail or the reverse, "
    "or a column differs, "
    "2 usage, 3 a file cannot be read or is damaged, 4 no cell or metric in common.";

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    char *end;
    switch (key) {
    case KEY_ALL: o->all = 1; return 0;
    case 'g':
        o->margin = strtod(arg, &end);
        if (*end || end == arg || !(o->margin >= 0.0))
            argp_error(state, "--margin is '%s', expected a number of at least 0", arg);
        return 0;
    case 'm': return qm_cli_append(&o->metric, &o->n_metrics, arg) == QM_OK ? 0 : ENOMEM;
    case ARGP_KEY_ARG:
        if (o->n == 2)
            argp_error(state, "expected two files");
        o->file[o->n++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (o->n != 2)
            argp_error(state, "expected two files");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static json_t *row_json(const struct qm_compare_row *r)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:s}", "variant", r->variant,
                     "metric", r->metric, "n", (json_int_t)r->n, "equal", (json_int_t)r->equal,
                     "broken", (json_int_t)r->broken, "mean", qm_json_shown(r->mean), "lo95",
                     qm_json_shown(r->lo), "hi95", qm_json_shown(r->hi), "q", qm_json_number(r->q),
                     "verdict", qm_compared_name(r->verdict));
}

/* [{"column": "cells/bits", "only_in": "", "differ": 3}, ...] */
static json_t *columns_json(const struct qm_comparison *c)
{
    json_t *all = json_array();
    for (int i = 0; i < c->n_columns; i++)
        json_array_append_new(all,
                              json_pack("{s:s, s:s#, s:I}", "column", c->column[i].name, "only_in",
                                        &c->column[i].in, (size_t)(c->column[i].in != 0), "differ",
                                        (json_int_t)c->column[i].differ));
    return all;
}

static void show(const struct options *o, const struct qm_comparison *c)
{
    json_t *rows = json_array();
    int64_t same = 0;
    char left_out[400], alone[120] = "";
    if (c->cells_a + c->cells_b > 2 * c->pairs)
        snprintf(alone, sizeof alone, "%lld cells of a and %lld of b without a pair; ",
                 (long long)(c->cells_a - c->pairs), (long long)(c->cells_b - c->pairs));
    snprintf(left_out, sizeof left_out,
             "all but metrics and columns of cells (curves, summaries, verdicts, code books, axes, "
             "texts), cells/cell, times; %s%squalm digest compares all but times",
             o->n_metrics ? "metrics that --metric does not name; " : "", alone);
    for (int i = 0; i < c->n_rows; i++) {
        same += c->row[i].verdict == QM_COMPARED_same;
        if (o->all || qm_cli.json || c->row[i].differs)
            json_array_append_new(rows, row_json(&c->row[i]));
    }
    qm_report(json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:i, s:i, s:o, s:o, s:s}",
                        "a", o->file[0], "b", o->file[1], "cells_a", (json_int_t)c->cells_a,
                        "cells_b", (json_int_t)c->cells_b, "pairs", (json_int_t)c->pairs,
                        "no_longer_ok", (json_int_t)c->lost, "ok_now", (json_int_t)c->found,
                        "compared", c->n_rows, "same", (json_int_t)same, "differ", c->differ,
                        "worse", c->worse, "differences", rows, "columns", columns_json(c),
                        "not_compared", left_out));
}

int qm_cmd_compare(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {options, option, "A.h5 B.h5", doc, children, NULL, NULL};
    struct options o = {0};
    struct qm_comparison c = {0};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code == 0) {
        qm_status st = qm_compare(o.file[0], o.file[1], o.metric, o.n_metrics, o.margin, &c);
        if (st == QM_OK) {
            show(&o, &c);
            code = c.differ || c.lost || c.found || c.n_columns ? qm_exit_code(QM_CHECK_FAILED) : 0;
        } else {
            code = qm_cli_failed("compare", st);
        }
    }
    qm_comparison_free(&c);
    free(o.metric);
    return code;
}
