/* plan.c - qualm plan: reports the cells of a suite, their estimated cost and the skipped ones. */
#include <errno.h>
#include <omp.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/campaign/campaign.h"
#include "experiments/campaign/queue.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/lockstep/lockstep.h"
#include "experiments/suite/cell_list.h"
#include "experiments/suite/shared.h"

struct options {
    char **suite, **data;
    int n, n_data, cells, shards;
    const char *size; /* NULL: normal */
};

enum { KEY_CELLS = 256, KEY_SHARDS };

static const struct argp_option options[] = {
    {"cells", KEY_CELLS, NULL, 0, "list the cells too", 0},
    {"data", 'd', "GLOB", 0,
     "recorded data, instead of the suite's, as `qualm run` takes it; may be repeated", 0},
    {"shards", KEY_SHARDS, "N", 0, "what each of N shards would get", 0},
    {"size", 'z', "SIZE", 0, "small, normal or large: the values that suites give for it", 0},
    {0}};

static const char doc[] =
    "What a suite stands for: cells, about what they cost, what is skipped and why.\v"
    "Seconds are of one core and good to a factor of ten at best: they decide the shares of "
    "shards and whether `qualm run` makes a campaign of it.\n"
    "\n"
    "Examples:\n"
    "  qualm plan convergence\n"
    "  qualm plan --size large ablation_momentum\n"
    "  # mine.yaml and checkpoint.pt are files of yours\n"
    "  qualm plan mine.yaml --shards 7\n"
    "  qualm plan mine.yaml --data checkpoint.pt\n"
    "  qualm plan --json --cells mine.yaml\n"
    "\n"
    "Exit codes: 0 done, 2 a mistake in a suite, 3 a file cannot be read, 4 nothing matched or "
    "every cell is skipped.";

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case KEY_CELLS: o->cells = 1; return 0;
    case 'd': return qm_cli_append(&o->data, &o->n_data, arg) == QM_OK ? 0 : ENOMEM;
    case 'z': o->size = arg; return 0;
    case KEY_SHARDS: o->shards = qm_cli_whole(state, "shards", arg, 1, 100000); return 0;
    case ARGP_KEY_ARGS:
        o->suite = state->argv + state->next;
        o->n = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no SUITE given"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Cells that share a text (a variant's name, or a reason): their number, skipped ones, cost. */
struct row {
    const char *text;
    int64_t cells, skipped;
    double seconds;
};

/* The rows by their texts. */
struct rows {
    void *tree; /* of tsearch */
    struct row *last;
};

static int by_text(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return strcmp(x->text, y->text);
}

/* The row of this text; NULL: no memory. */
static struct row *row_of(struct rows *rows, const char *text)
{
    const struct row probe = {.text = text};
    if (rows->last && strcmp(rows->last->text, text) == 0)
        return rows->last;
    struct row **found = tfind(&probe, &rows->tree, by_text);
    if (!found) {
        struct row *made = malloc(sizeof *made);
        if (made)
            *made = probe;
        found = made ? tsearch(made, &rows->tree, by_text) : NULL;
        if (!found)
            free(made);
    }
    return rows->last = found ? *found : NULL;
}

static void add_variant(const void *node, VISIT visit, void *list)
{
    const struct row *r = *(struct row *const *)node;
    if (visit == postorder || visit == leaf)
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:f}", "variant", r->text, "cells",
                                              (json_int_t)r->cells, "skipped",
                                              (json_int_t)r->skipped, "seconds", r->seconds));
}

static void add_reason(const void *node, VISIT visit, void *list)
{
    const struct row *r = *(struct row *const *)node;
    if (visit == postorder || visit == leaf)
        json_array_append_new(
            list, json_pack("{s:I, s:s}", "skipped", (json_int_t)r->cells, "because", r->text));
}

/* ---- cells that are refused as they run ---- */

/* The tensors of a problem with these arguments, or why it has none. */
struct tensors {
    const struct qm_problem *problem;
    const char *args, *why; /* shared texts */
    int n;
    struct qm_shape shape[QM_PROBLEM_TENSORS];
};

static int by_problem(const void *a, const void *b)
{
    const struct tensors *x = a, *y = b;
    return x->problem != y->problem ? (x->problem > y->problem) - (x->problem < y->problem)
                                    : strcmp(x->args, y->args);
}

/* The tensors of the cell's problem, opened once for all cells of these arguments in *known, a tree
 * of tsearch; NULL: no memory. */
static const struct tensors *tensors_of(const struct qm_cell *c, void **known)
{
    const struct tensors probe = {.problem = c->problem, .args = c->problem_args};
    struct tensors **found = tfind(&probe, known, by_problem), *made;
    if (found)
        return *found;
    if (!(made = malloc(sizeof *made)))
        return NULL;
    *made = probe;
    void *self = NULL;
    qm_status st = c->problem->open(made->args, qm_cell_seed(c), &self, &made->n, made->shape);
    if (st == QM_BAD_ARG)
        made->why = qm_shared_text(qm_message());
    if (st != QM_OK)
        made->n = 0;
    c->problem->close(self);
    if ((found = tsearch(made, known, by_problem)))
        return *found;
    free(made);
    return NULL;
}

/* *why: a shared text, or NULL where the cell runs. */
static qm_status find_reason(const struct qm_cell *c, void **known, const char **why)
{
    const struct qm_shape drawn = {.rank = 1, .dim = {c->n}},
                          *shape = c->recorded ? &c->recorded->shape : &drawn;
    const struct tensors *of = NULL;
    *why = c->reason;
    if (*why || c->kind == QM_SOURCE_empty)
        return QM_OK;
    if (c->problem && !(of = tensors_of(c, known)))
        return qm_fail(QM_NO_MEMORY, "tensors of a problem");
    if (of && of->why)
        *why = of->why;
    else if (qm_lockstep_fits(c, of ? of->n : 1, of ? of->shape : shape) != QM_OK)
        *why = qm_shared_text(qm_message());
    return QM_OK;
}

/* *variants and *skips: the cells by variant, and the skipped ones by reason, in byte order; both
 * are set in any case. */
static qm_status tables(const struct qm_loaded_suite *job, json_t **variants, json_t **skips,
                        int64_t *skipped)
{
    struct rows variant = {0}, reason = {0};
    void *known = NULL;
    qm_status st = QM_OK;
    for (int64_t i = 0; i < job->n_cells && st == QM_OK; i++) {
        const struct qm_cell *c = &job->cells[i];
        const char *text;
        st = find_reason(c, &known, &text);
        if (st != QM_OK)
            break;
        struct row *of = row_of(&variant, c->recipe->base ? c->recipe->base->name : "");
        struct row *why = text ? row_of(&reason, text) : NULL;
        if (!of || (text && !why)) {
            st = qm_fail(QM_NO_MEMORY, "%lld cells", (long long)job->n_cells);
            break;
        }
        of->cells++;
        of->skipped += text != NULL;
        of->seconds += qm_cell_cost(c);
        *skipped += text != NULL;
        if (why)
            why->cells++;
    }
    *variants = json_array();
    *skips = json_array();
    twalk_r(variant.tree, add_variant, *variants);
    twalk_r(reason.tree, add_reason, *skips);
    tdestroy(variant.tree, free);
    tdestroy(reason.tree, free);
    tdestroy(known, free);
    return st;
}

static qm_status shares(const struct qm_loaded_suite *job, int shards, json_t *into)
{
    for (int s = 0; s < shards; s++) {
        struct qm_queue q;
        double cost = 0.0;
        QM_TRY(qm_queue_open(job->cells, job->n_cells, s, shards, NULL, &q));
        for (int64_t i = 0; i < q.n; i++)
            cost += qm_cell_cost(&job->cells[q.cell[i]]);
        json_array_append_new(into, json_pack("{s:i, s:I, s:f}", "shard", s + 1, "cells",
                                              (json_int_t)q.n, "seconds", cost));
        qm_queue_close(&q);
    }
    return QM_OK;
}

static qm_status describe(const struct options *o, const struct qm_loaded_suite *job, json_t *list,
                          json_t **out)
{
    char digest[65] = "";
    json_t *variants = NULL, *skips = NULL;
    int64_t skipped = 0;
    double cost = 0.0;
    qm_status st = qm_campaign_digest(job, NULL, digest);
    if (st == QM_OK)
        st = tables(job, &variants, &skips, &skipped);
    for (int64_t i = 0; i < job->n_cells; i++)
        cost += qm_cell_cost(&job->cells[i]);
    if (st == QM_OK) {
        int cores = omp_get_max_threads();
        *out = json_pack("{s:s, s:I, s:I, s:f, s:f, s:s, s:o, s:o}", "suite", job->suite->stem,
                         "cells", (json_int_t)job->n_cells, "skipped", (json_int_t)skipped,
                         "core_seconds", cost, "seconds_here", cost / cores, "digest", digest,
                         "variants", variants, "skips", skips);
        if (o->shards) {
            json_t *all = json_array();
            st = shares(job, o->shards, all);
            json_object_set_new(*out, "shards", all);
        }
        if (qm_cli.json && json_array_size(list) > 0)
            json_object_set(*out, "list", json_object_get(json_array_get(list, 0), "cells"));
    }
    return st == QM_OK && skipped == job->n_cells
               ? qm_fail(QM_NO_MATCH, "%s: every cell is skipped", job->suite->path)
               : st;
}

static qm_status plan(const struct options *o, const char *word, json_t *all)
{
    char path[1024];
    struct qm_loaded_suite job = {0};
    json_t *list = json_array(), *v = NULL;
    QM_TRY(qm_loaded_suite_find(word, path, sizeof path));
    const struct qm_loaded_suite_changes changes = {
        .size = o->size, .data = o->data, .n_data = o->n_data};
    qm_status st = qm_loaded_suite_open(path, &changes, &job);
    if (st == QM_OK && o->cells)
        qm_cells_list(job.suite, job.cells, job.n_cells, list);
    if (st == QM_OK)
        st = describe(o, &job, list, &v);
    if (v && qm_cli.json)
        json_array_append_new(all, v);
    else if (v)
        qm_report(v);
    json_decref(list);
    qm_loaded_suite_close(&job);
    return st;
}

int qm_cmd_plan(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {options, option, "SUITE...", doc, children, NULL, NULL};
    struct options o = {0};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    qm_status st = QM_OK;
    if (code)
        return code;
    json_t *all = json_array();
    for (int i = 0; st == QM_OK && i < o.n; i++)
        st = plan(&o, o.suite[i], all);
    if (st == QM_OK && qm_cli.json)
        qm_json_print(json_incref(all));
    json_decref(all);
    free(o.data);
    return st == QM_OK ? 0 : qm_cli_failed("plan", st);
}
