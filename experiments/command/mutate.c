/* mutate.c - qualm mutate: plants bugs in kernels, and reports which ones the judge finds. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "experiments/check/cases.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/mutants/matrix.h"
#include "experiments/store/atomic_file.h"

enum { KEY_LIST = 256, KEY_ONLY, KEY_QUICK, KEY_RUNS, KEY_EXPORT };

struct options {
    struct qm_matrix_options m;
    int list;
    int has_runs, has_seed;
    const char *export, *file;
};

static const struct argp_option options[] = {
    {"list", KEY_LIST, NULL, 0, "print the mutants and benign re-writings and stop", 0},
    {"only", KEY_ONLY, "ID", 0, "those whose name matches this regular expression", 0},
    {"quick", KEY_QUICK, NULL, 0,
     "every fourth of each template, one seed, 128 drawn cases and no listed ones; a mutant that "
     "survives those gets all cases",
     0},
    {"runs", KEY_RUNS, "N", 0, "benign cases at least (default 1000)", 0},
    {"seed", 's', "N", 0, "of parameters and gradients (default " QM_CHECK_SEED_TEXT ")", 0},
    {"export", KEY_EXPORT, "ID", 0,
     "write this kernel to FILE (default: stdout), for `qualm check --kernel FILE`", 0},
    {0}};

/* Refuses options of a run beside --list and --export. */
static void refuse_contradictions(const struct options *o, struct argp_state *state)
{
    const struct qm_cli_given of_runs[] = {
        {"--quick", o->m.quick}, {"--runs", o->has_runs}, {"--seed", o->has_seed}, {0}};
    const struct qm_cli_given others[] = {{"--list", o->list}, {"--only", o->m.only != NULL}, {0}};
    if (o->list)
        qm_cli_alone(state, "--list", "judges nothing", of_runs);
    if (o->export) {
        qm_cli_alone(state, "--export", "judges nothing", of_runs);
        qm_cli_alone(state, "--export", "writes one kernel", others);
    }
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = NULL; return 0;
    case KEY_LIST: o->list = 1; return 0;
    case KEY_ONLY: o->m.only = qm_cli_filter(state, "--only", arg); return 0;
    case KEY_QUICK: o->m.quick = 1; return 0;
    case KEY_RUNS:
        o->m.runs = (int64_t)qm_cli_number(state, "runs", arg, 0, INT64_MAX);
        o->has_runs = 1;
        return 0;
    case 's':
        o->m.seed = qm_cli_number(state, "seed", arg, 0, INT64_MAX);
        o->has_seed = 1;
        return 0;
    case KEY_EXPORT: o->export = arg; return 0;
    case ARGP_KEY_ARG:
        if (!o->export || o->file)
            argp_error(state, "unexpected '%s'; a file is for --export ID", arg);
        o->file = arg;
        return 0;
    case ARGP_KEY_END: refuse_contradictions(o, state); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void list(const struct qm_registry *r, const char *only)
{
    static const char *const heads[] = {"name", "class", "what"};
    json_t *all = json_array();
    struct qm_table *t = qm_cli.json ? NULL : qm_table_open(3, heads);
    for (int i = 0; i < r->n; i++) {
        const struct qm_mutant_entry *e = &r->entry[i];
        if (e->kind == QM_MUTANT_template || !qm_name_matches(e->id, only))
            continue;
        json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:s}", "id", e->id, "template",
                                             e->template, "class", e->class, "text", e->text));
        for (int k = 0; t && k < 3; k++)
            qm_table_cell(t, "%s", k == 0 ? e->id : k == 1 ? e->class : e->text);
    }
    if (t)
        qm_table_close(t);
    if (qm_cli.json)
        qm_json_print(all);
    else
        json_decref(all);
}

static qm_status no_entry(const struct qm_registry *r, const char *id)
{
    const char **names = malloc(sizeof *names * (size_t)(r->n + 1));
    for (int i = 0; names && i < r->n; i++)
        names[i] = r->entry[i].id;
    const char *near = names ? qm_name_nearest(id, names, r->n) : NULL;
    qm_status st = qm_fail(QM_NO_MATCH, "no mutant '%s'%s%s%s; `qualm mutate --list` names them",
                           id, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    free(names);
    return st;
}

/* Writes a kernel's source to file, through a temporary file, or to stdout if NULL. */
static qm_status export(const struct qm_registry *r, const char *id, const char *file)
{
    const struct qm_mutant_entry *e = qm_registry_find(r, id);
    struct qm_atomic_file f;
    if (!e)
        return no_entry(r, id);
    if (!file)
        return fputs(e->source, stdout) < 0 ? qm_fail(QM_BAD_FILE, "stdout") : QM_OK;
    QM_TRY(qm_atomic_file_open(file, &f));
    qm_status st = qm_atomic_file_write(&f, e->source, strlen(e->source));
    if (st == QM_OK)
        st = qm_atomic_file_commit(&f);
    qm_atomic_file_abort(&f);
    QM_TRY(st);
    qm_note("%s: %s (%s)", file, e->text, e->kind == QM_MUTANT_mutant ? "a bug" : "benign");
    return QM_OK;
}

static qm_status work(struct options *o, const struct qm_registry *r, int *failed)
{
    struct qm_matrix m;
    if (o->export)
        return export(r, o->export, o->file);
    if (o->list) {
        list(r, o->m.only);
        return QM_OK;
    }
    o->m.registry = r;
    qm_status st = qm_matrix_run(&o->m, &m);
    if (st == QM_OK) {
        qm_matrix_report(&m);
        *failed = m.n_faults > 0;
    }
    qm_matrix_free(&m);
    return st;
}

int qm_cmd_mutate(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = option,
        .args_doc = "[FILE]",
        .doc =
            "Plants bugs, one at a time, in the kernel templates of every family, and judges each "
            "as `qualm check --kernel` judges yours, in six regimes of gradients and steps, "
            "and by the cases that it judges by default: the listed ones and the "
            "first " QM_CHECK_DRAWS_TEXT " drawn "
            "with --seed; beside it the acceptance rules of other projects.  Re-writings that are "
            "as right as the template must pass.  Exit code 1 when a bug survives everywhere, when "
            "one passes "
            "in a regime where its results differ and nobody has said why they may, or when "
            "anything right is called wrong."
            "\vRegimes: usual (gradients 0.01 wide, step 10), start (1e-6 wide, step 1), late (1 "
            "wide, step 1000, decay 0.1), decades (over 30 decades, step 3, decay 0.1), planted "
            "(decision edges, step 1, no decay), turned (an objective to maximize, step 2); 33,809 "
            "elements, or 179 x 191.\n\nExamples:\n"
            "  qualm mutate\n"
            "  qualm mutate --quick --json\n"
            "  qualm mutate --list\n"
            "  qualm mutate --only adamw4_ao.tie\n"
            "  qualm mutate --export adamw4_ao.tie-down bug.c; qualm check --kernel bug.c",
        .children = children,
    };
    struct options o = {.m = {.runs = 1000, .seed = QM_CHECK_SEED}};
    struct qm_registry r;
    int failed = 0, code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    qm_status st = qm_registry_open(&r);
    if (st == QM_OK)
        st = work(&o, &r, &failed);
    qm_registry_close(&r);
    if (st != QM_OK)
        return qm_cli_failed("mutate", st);
    return failed ? qm_exit_code(QM_CHECK_FAILED) : 0;
}
