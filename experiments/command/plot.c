/* plot.c - qualm plot: draws one figure of a result file. */
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/report/figures.h"
#include "experiments/store/result_reader.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"

enum { OPT_PAIR = 256, OPT_LIST, OPT_WHAT };

static const struct argp_option options[] = {
    {"out", 'o', "FILE", 0,
     "the figure, .png, .svg or .pdf; may be repeated (default: X.png beside X.h5)", 0},
    {"output", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0},
    {"what", OPT_WHAT, "NAME", 0, "which figure (default: the first that --list names)", 0},
    {"pair", OPT_PAIR, "A,B", 0,
     "compare value B with value A, instead of the first value with the one of no more bits (0.3 "
     "an element count as none) that gains most (of those that surely gain; where none does and "
     "some surely lose, loses most); two values of any axis but source, of a suite that does not "
     "train: the values of other axes are then compared at each of theirs",
     0},
    {"list", OPT_LIST, NULL, 0,
     "which figures the file has, each with its answer; the first is the default", 0},
    {0}};

static const char doc[] =
    "Draw one figure of a result file, whatever its suite.\v"
    "The axes come from the suite: where maps are compared the map of a format is its colour, the "
    "block size the horizontal axis, one step a value, the norm the marker, the same everywhere; a "
    "variant of several maps, or as it is registered, has a colour of its own.  The title states "
    "the answer, computed from the numbers drawn; the caption says what is shown, of how many, and "
    "what was left out.  Tensors that are not quantized, because they are too small or no whole "
    "blocks, are in no median, and in a title only where nothing else is compared.\n"
    "\n"
    "  points     medians with intervals against the axis\n"
    "  dumbbell   tensor by tensor\n"
    "  frontier   error against bits\n"
    "  drift      SQNR over gradients\n"
    "  loss       loss over updates\n"
    "  ratio      loss over the twin's\n"
    "  gap        gaps with intervals and verdicts\n"
    "  contrasts  value against value\n"
    "  heat       variants by problems\n"
    "  shares     time to target\n"
    "  lr         sensitivity to the learning rate\n"
    "  budget     parts of the gap\n"
    "  sweep      value against value over the learning rate\n"
    "  against    beside an archive, on the page that qualm report makes\n"
    "  prediction errors against training, of qualm predict\n"
    "\n"
    "Examples:\n"
    "  # after: qualm run momentum_format rank1 --out results/\n"
    "  qualm plot results/rank1.h5  # writes results/rank1.png\n"
    "  qualm plot results/rank1.h5 --list\n"
    "  qualm plot results/momentum_format.h5 --what dumbbell --pair int4,nf4 \\\n"
    "    -o a.svg -o a.pdf\n"
    "  qualm plot results/rank1.h5 --pair \"block 128,rank-1\"\n"
    "\n"
    "Exit codes: 0 done, 2 usage, 3 a file cannot be read or written, 4 the file has no such "
    "figure, 77 Python or matplotlib is missing.";

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct qm_plot *o = state->input;
    switch (key) {
    case 'o': return qm_cli_append(&o->out, &o->n_out, arg) == QM_OK ? 0 : ENOMEM;
    case OPT_WHAT: o->what = arg; return 0;
    case OPT_PAIR: o->pair = arg; return 0;
    case OPT_LIST: o->list = 1; return 0;
    case ARGP_KEY_ARG:
        if (o->path)
            argp_error(state, "one result file at a time; '%s' is the second", arg);
        o->path = arg;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no result file given"); return 0;
    case ARGP_KEY_END:
        if (o->list)
            qm_cli_alone(state, "--list", "draws nothing",
                         (const struct qm_cli_given[]){
                             {"--out", o->n_out > 0}, {"--what", o->what != NULL}, {0}});
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* The name of the figure where none is given: X.png for X.h5. */
static qm_status default_out(struct qm_plot *o, char name[PATH_MAX])
{
    size_t n = strlen(o->path) - (qm_name_ends(o->path, ".h5") ? 3 : 0);
    if (n + 5 > PATH_MAX)
        return qm_fail(QM_BAD_ARG, "%.40s...: too long a path", o->path);
    snprintf(name, PATH_MAX, "%.*s.png", (int)n, o->path);
    return qm_cli_append(&o->out, &o->n_out, name);
}

static void print(const struct qm_plot *o, json_t *figures)
{
    size_t i;
    json_t *one;
    if (qm_cli.json && !o->list) {
        json_t *files = json_array();
        for (int k = 0; k < o->n_out; k++)
            json_array_append_new(files, json_string(o->out[k]));
        json_object_set_new(json_array_get(figures, 0), "files", files);
    }
    if (qm_cli.json) {
        qm_json_print(o->list ? figures : json_incref(json_array_get(figures, 0)));
        if (!o->list)
            json_decref(figures);
        return;
    }
    json_array_foreach (figures, i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        const char *title = json_string_value(json_object_get(one, "title"));
        if (o->list) {
            char *shown = qm_cli_shown(title);
            qm_print("%-10s %s\n", name, shown ? shown : "");
            free(shown);
        } else {
            qm_note("%s: %s", name, title);
        }
    }
    for (int k = 0; k < o->n_out && !o->list; k++)
        qm_print("%s\n", o->out[k]);
    json_decref(figures);
}

/* Says how to draw the figure that compares the file with an archive. */
static void tell_against(const char *path)
{
    struct qm_result *r;
    if (qm_result_open(path, &r) != QM_OK)
        return;
    if (qm_result_has(r, "/protocol/runs"))
        qm_note("against an archive: `qualm report %s --against baseline` draws it on its page",
                path);
    qm_result_close(r);
}

int qm_cmd_plot(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    const struct argp argp = {options, option, "FILE.h5", doc, children, NULL, NULL};
    struct qm_plot o = {0};
    char name[PATH_MAX];
    json_t *figures = NULL;
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    qm_status st = o.n_out || o.list ? QM_OK : default_out(&o, name);
    if (st == QM_OK)
        st = qm_figures_plot(&o, &figures);
    if (st == QM_OK)
        print(&o, figures);
    if (st == QM_OK && o.list)
        tell_against(o.path);
    free(o.out);
    return st == QM_OK ? 0 : qm_cli_failed("plot", st);
}
