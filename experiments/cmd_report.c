/* cmd_report.c - qualm report: a result file as one page, and as tables for papers. */
#include "experiments/cli.h"
#include "experiments/command.h"
#include "experiments/report/figures.h"
#include "experiments/report/page.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
    const char *path, *out, *markdown, *latex, *figures;
    long rows;
    int no_figures;
};

enum { OPT_MARKDOWN = 256, OPT_LATEX, OPT_FIGURES, OPT_NO_FIGURES, OPT_ROWS };

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "the page (default: beside the result file, X.html for X.h5)", 0},
    {"markdown", OPT_MARKDOWN, "FILE", 0, "also the tables in Markdown; '-' is stdout", 0},
    {"latex", OPT_LATEX, "FILE", 0, "also the tables in LaTeX, without packages; '-' is stdout", 0},
    {"figures", OPT_FIGURES, "DIR", 0,
     "the figures as drawn beforehand by plots/report/draw.py --page --out DIR", 0},
    {"no-figures", OPT_NO_FIGURES, NULL, 0, "tables only", 0},
    {"rows", OPT_ROWS, "N", 0, "rows of a stored table on the page (default 300)", 0},
    {0}};

static const char doc[] =
    "Make one self-contained HTML page of a result file: loss curves first, gaps with intervals, "
    "profiles, sensitivity, budget, sortable tables, what was skipped and why, provenance.\v"
    "The page needs no network, suits light and dark screens, phones and paper.  Figures are drawn "
    "by the matplotlib scripts that the program carries, with /usr/bin/python3; every number is "
    "one "
    "that the file holds.  The same file gives the same page.\n"
    "\n"
    "Examples:\n"
    "  qualm report results/convergence.h5                  writes results/convergence.html\n"
    "  qualm report results/mine.h5 --latex table.tex -o mine.html\n"
    "  qualm report results/mine.h5 --markdown - --no-figures\n"
    "\n"
    "Where Python or matplotlib is missing, the page says so in the figures' place.  Exit codes: 0 "
    "done, 2 usage, 3 a file cannot be read or written.";

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    char *end;
    switch (key) {
    case 'o': o->out = arg; return 0;
    case OPT_MARKDOWN: o->markdown = arg; return 0;
    case OPT_LATEX: o->latex = arg; return 0;
    case OPT_FIGURES: o->figures = arg; return 0;
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
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- files --------------------------------------------------------------------------------- */

/* X.html beside X.h5. */
static void default_out(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    int n = dot && dot > (slash ? slash : path) ? (int)(dot - path) : (int)strlen(path);
    snprintf(out, size, "%.*s.html", n, path);
}

/* Writes by print to a file that appears whole, or to stdout for "-". */
static qm_status write_file(const char *path, const struct qm_page *p,
                            qm_status (*print)(const struct qm_page *p, FILE *to))
{
    if (strcmp(path, "-") == 0)
        return print(p, stdout);
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s.%ld.part", path, (long)getpid());
    FILE *f = fopen(part, "w");
    if (!f)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    qm_status st = print(p, f);
    errno = 0;
    int bad = ferror(f) || fflush(f) != 0 || fsync(fileno(f)) != 0;
    bad |= fclose(f) != 0;
    if (st == QM_OK && (bad || rename(part, path) != 0))
        st = qm_fail(QM_BAD_FILE, "%s: %s", path, errno ? strerror(errno) : "cannot be written");
    if (st != QM_OK)
        unlink(part);
    return st;
}

/* ---- figures ------------------------------------------------------------------------------- */

/* Those drawn beforehand, or new ones.  What only lacks Python is a note on the page. */
static qm_status get_figures(const struct options *o, struct qm_page *p, char *why, size_t size)
{
    if (o->no_figures)
        return (p->figures = json_array()) ? QM_OK : qm_fail(QM_NO_MEMORY, "figures");
    if (o->figures)
        return qm_figures_read(o->figures, &p->figures);
    char folder[PATH_MAX];
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/qualm-figures-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return qm_fail(QM_BAD_FILE, "%s: %s", folder, strerror(errno));
    qm_status st = qm_figures_draw(o->path, NULL, NULL, folder, qm_cli.verbose);
    if (st == QM_OK) {
        st = qm_figures_read(folder, &p->figures);
    } else if (st == QM_SKIPPED) {
        snprintf(why, size, "%s", qm_message());
        qm_note("no figures: %s", why);
        p->no_figures = why;
        p->figures = json_array();
        st = QM_OK;
    }
    qm_folder_remove(folder);
    return st;
}

static void say(const struct options *o, const struct qm_page *p, const char *out)
{
    int tables = 0;
    json_t *names = json_array(), *figure;
    size_t i;
    for (int k = 0; k < p->listing.n; k++)
        tables += p->listing.set[k].kind == QM_LISTED_table;
    json_array_foreach(p->figures, i, figure)
        json_array_append(names, json_object_get(figure, "name"));
    qm_note("%s: %zu figures, %d tables", out, json_array_size(p->figures), tables);
    if (qm_cli.json)
        qm_json_print(json_pack("{s:s, s:s, s:o, s:s?, s:i, s:s?, s:s?}", "file", o->path, "page",
                                out, "figures", names, "no_figures", p->no_figures, "tables",
                                tables, "markdown", o->markdown, "latex", o->latex));
    else
        json_decref(names);
}

static qm_status report(const struct options *o)
{
    struct qm_page p = {.path = o->path, .most = o->rows};
    char out[PATH_MAX], why[512];
    default_out(o->path, out, sizeof out);
    if (o->out)
        snprintf(out, sizeof out, "%s", o->out);
    qm_status st = qm_result_open(o->path, &p.r);
    if (st == QM_OK)
        st = qm_listing_read(o->path, &p.listing);
    if (st == QM_OK)
        st = get_figures(o, &p, why, sizeof why);
    if (st == QM_OK)
        st = write_file(out, &p, qm_page_write);
    if (st == QM_OK && o->markdown)
        st = write_file(o->markdown, &p, qm_page_markdown);
    if (st == QM_OK && o->latex)
        st = write_file(o->latex, &p, qm_page_latex);
    if (st == QM_OK)
        say(o, &p, out);
    json_decref(p.figures);
    qm_listing_free(&p.listing);
    qm_result_close(p.r);
    return st;
}

int qm_cmd_report(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    const struct argp argp = {options, option, "FILE.h5", doc, children, NULL, NULL};
    struct options o = {.rows = 300};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code == 0 && qm_cli.json &&
        ((o.markdown && strcmp(o.markdown, "-") == 0) || (o.latex && strcmp(o.latex, "-") == 0)))
        return qm_cli_failed("report", qm_fail(QM_BAD_ARG, "--json and a table both on stdout"));
    qm_status st = code == 0 ? report(&o) : QM_OK;
    return st == QM_OK ? code : qm_cli_failed("report", st);
}
