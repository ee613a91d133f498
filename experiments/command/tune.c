/* tune.c - qualm tune: finds the learning rates that a paired suite is judged at. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/run/rate_file.h"
#include "experiments/run/suite_load.h"
#include "experiments/store/atomic_file.h"
#include "experiments/suite/control_cells.h"
#include "experiments/suite/shared.h"

/* Seeds apart from those of suites: a rate must not be chosen by the runs that it is judged on. */
enum { FIRST_SEED = 901, SEEDS = 16 };

struct options {
    char **suite;
    int n, variants, seeds, threads, fresh;
    const char *size, *out;
};

static const struct argp_option options[] = {
    {"variants", 'V', NULL, 0,
     "tune each variant's rate too, for best against best; else the twin's alone", 0},
    {"seeds", 's', "N", 0, "runs at each rate, of seeds 901 on (16)", 0},
    {"size", 'z', "SIZE", 0, "small, normal or large: the values that suites give for it", 0},
    {"out", 'o', "FILE", 0, "where rates are kept (results/rates/NAME.json)", 0},
    {"threads", 't', "N", 0, "threads (default: one for each processor)", 0},
    {"fresh", 'F', NULL, 0, "search again what the file has already", 0},
    {0}};

static const char doc[] =
    "Find the learning rates at which a paired suite is judged.\v"
    "For every problem, instance, number of steps, warm-up and rule of the suite (--variants: and "
    "every variant) the rate with the lowest mean gap over the last eighth of the steps, by a "
    "search with ratio 10^(1/8) that goes on until both neighbours of the best are known to be no "
    "better.  The whole curve of loss over rate is kept, with margins: within its margin of the "
    "lowest loss a rate cannot be told apart from the lowest by these seeds (95 %).  A variant has "
    "of these the one nearest to its twin's rate, so that noise of tuning alone makes no "
    "difference; with one seed the lowest, for no error is known.  `qualm run` then judges "
    "variants "
    "at the twin's rate (same rate) and, where variants were tuned, each at its own (best against "
    "best).  "
    "What the file has is not searched again, so that an interrupted search goes on; the rates of "
    "other sizes stay in it.\n"
    "\n"
    "Examples:\n"
    "  qualm tune ablation_rank1\n"
    "  # mine.yaml is a suite of yours\n"
    "  qualm tune --variants mine.yaml && qualm run mine.yaml\n"
    "  qualm tune --size small --seeds 8 ablation_momentum -o rates.json\n"
    "\n"
    "Exit codes: 0 done, 1 some search ended at the end of its range (five decades), 2 a mistake "
    "in a suite, 3 I/O, 4 nothing to tune, 75 interrupted; the same command goes on.";

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'V': o->variants = 1; return 0;
    case 's': o->seeds = qm_cli_whole(state, "seeds", arg, 1, 1000); return 0;
    case 'z': o->size = arg; return 0;
    case 'o': o->out = arg; return 0;
    case 't': o->threads = qm_cli_whole(state, "threads", arg, 1, 4096); return 0;
    case 'F': o->fresh = 1; return 0;
    case ARGP_KEY_ARGS:
        o->suite = state->argv + state->next;
        o->n = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no SUITE given"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- units ----------------------------------------------------------------------------------- */

struct units {
    struct qm_rate_unit *unit;
    int n;
};

/* Adds the search of recipe r in the place of c, unless it is there or in the file. */
static void add_unit(struct units *u, const struct qm_cell *c, const struct qm_recipe *r,
                     int is_twin, const json_t *known)
{
    struct qm_rate_unit *to = &u->unit[u->n];
    qm_rate_key(c, r, to->key);
    if (json_object_get(known, to->key))
        return;
    for (int i = 0; i < u->n; i++)
        if (strcmp(u->unit[i].key, to->key) == 0)
            return;
    to->like = c;
    to->recipe = qm_shared_recipe(r); /* NULL is out of memory, which the search reports */
    to->is_twin = is_twin;
    u->n++;
}

/* The index k of the rate in the file, 0 without one. */
static int known_centre(const json_t *rates, const char *key)
{
    const json_t *entry = json_object_get(rates, key);
    double rate = entry ? json_number_value(json_object_get(entry, "rate")) : 1.0;
    int best = 0;
    for (int k = -QM_RATE_MOST; k <= QM_RATE_MOST; k++)
        best = qm_rate_at(k) <= rate * 1.01 ? k : best;
    return best;
}

/* Fills u with the searches of one source: of twins, or of variants around their twin's rate. */
static void collect(const struct qm_loaded_suite *job, int source, int is_twin, const json_t *rates,
                    struct units *u)
{
    int axis = qm_suite_axis(job->suite, "source");
    char key[QM_RATE_TEXT];
    u->n = 0;
    for (int64_t i = 0; i < job->n_cells; i++) {
        const struct qm_cell *c = &job->cells[i];
        struct qm_recipe full;
        if (c->role != QM_CELL_plain || c->reason || c->coupling != QM_COUPLING_closed ||
            c->start_ulp || qm_cell_value(job->suite, c, axis) != source ||
            !qm_recipe_full(c->recipe, &full))
            continue;
        int before = u->n;
        add_unit(u, c, is_twin ? &full : c->recipe, is_twin, rates);
        if (u->n > before)
            qm_rate_unit_start(&u->unit[before],
                               is_twin ? 0 : known_centre(rates, qm_rate_key(c, &full, key)),
                               is_twin ? 8 : 4);
    }
}

/* ---- one suite ------------------------------------------------------------------------------- */

static json_t *unit_json(const struct qm_rate_unit *u, const json_t *rates)
{
    json_t *o = json_copy(json_object_get(rates, u->key));
    json_object_set_new(o, "of", json_string(u->is_twin ? "twin" : "variant"));
    return o;
}

static void print_unit(const struct qm_rate_unit *u, int seeds)
{
    const struct qm_rate_point *point = u->point + QM_RATE_MOST;
    qm_print("%s: %.4g times the problem's rate, late gap 10^%.3f", u->key, qm_rate_at(u->chosen),
             point[u->chosen].loss);
    if (u->is_edge)
        qm_print("; AT THE END OF THE RANGE, not used");
    else if (u->chosen != u->best)
        qm_print("; 10^%.3f at %.4g, which %d seeds cannot tell apart from it", point[u->best].loss,
                 qm_rate_at(u->best), seeds);
    qm_print("\n");
    fflush(stdout);
}

/* Runs the searches in u, and keeps them in the file. */
static qm_status search(const struct options *o, const struct qm_loaded_suite *job, struct units *u,
                        const char *path, json_t *rates, json_t *into, int *edges)
{
    if (u->n == 0)
        return QM_OK;
    QM_TRY(qm_rates_search(job->suite, u->unit, u->n, FIRST_SEED, o->seeds, o->threads, &stopped));
    for (int i = 0; i < u->n; i++) {
        qm_rate_file_set(rates, &u->unit[i], FIRST_SEED, o->seeds);
        *edges += u->unit[i].is_edge;
        if (qm_cli.json)
            json_array_append_new(into, unit_json(&u->unit[i], rates));
        else
            print_unit(&u->unit[i], o->seeds);
    }
    return qm_rate_file_write(path, job->suite->stem, rates);
}

static qm_status tune_loaded(const struct options *o, const struct qm_loaded_suite *job,
                             json_t *into, int *edges)
{
    char path[1024];
    json_t *rates = NULL, *found = json_array();
    struct units u = {.unit = calloc((size_t)job->n_cells + 1, sizeof *u.unit)};
    const struct qm_axis *source = &job->suite->axis[qm_suite_axis(job->suite, "source")];
    snprintf(path, sizeof path, "results/rates/%.200s.json", job->suite->stem);
    if (o->out)
        snprintf(path, sizeof path, "%.1000s", o->out);
    qm_status st = u.unit ? qm_make_folders(path) : qm_fail(QM_NO_MEMORY, "rates");
    if (st == QM_OK)
        st = qm_rate_file_read(path, &rates);
    if (st == QM_OK && o->fresh)
        json_object_clear(rates);
    for (int i = 0; st == QM_OK && i < source->n; i++)
        for (int variants = 0; st == QM_OK && variants <= o->variants; variants++) {
            collect(job, i, !variants, rates, &u);
            st = search(o, job, &u, path, rates, found, edges);
        }
    if (st == QM_OK && json_object_size(rates) == 0)
        st = qm_fail(QM_NO_MATCH, "%s: no cell of coupling closed to tune", job->suite->path);
    if (st == QM_OK)
        qm_note("%s: %zu rates", path, json_object_size(rates));
    json_array_append_new(into, json_pack("{s:s, s:s, s:o}", "suite", job->suite->stem, "file",
                                          path, "found", found));
    json_decref(rates);
    free(u.unit);
    return st;
}

static qm_status tune(const struct options *o, const char *word, json_t *into, int *edges)
{
    char file[1024];
    struct qm_loaded_suite job = {0};
    const struct qm_loaded_suite_changes changes = {.size = o->size, .rates = "none"};
    QM_TRY(qm_loaded_suite_find(word, file, sizeof file));
    qm_status st = qm_loaded_suite_open(file, &changes, &job);
    if (st == QM_OK && !job.suite->paired)
        st = qm_fail(QM_BAD_ARG, "%s: tune needs a suite with protocol: paired", job.suite->path);
    if (st == QM_OK)
        st = tune_loaded(o, &job, into, edges);
    qm_loaded_suite_close(&job);
    return st;
}

int qm_cmd_tune(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {options, option, "SUITE...", doc, children, NULL, NULL};
    struct options o = {.seeds = SEEDS, .threads = omp_get_max_threads()};
    struct sigaction stop = {.sa_handler = on_signal}, was[2];
    int edges = 0, code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    stopped = 0;
    sigemptyset(&stop.sa_mask);
    sigaction(SIGINT, &stop, &was[0]);
    sigaction(SIGTERM, &stop, &was[1]);
    json_t *all = json_array();
    qm_status st = o.out && o.n > 1 ? qm_fail(QM_BAD_ARG, "--out takes one suite") : QM_OK;
    for (int i = 0; st == QM_OK && i < o.n; i++)
        st = tune(&o, o.suite[i], all, &edges);
    if (st == QM_OK && edges)
        st = qm_fail(QM_CHECK_FAILED, "%d searches ended at the end of their range", edges);
    if ((st == QM_OK || st == QM_CHECK_FAILED) && qm_cli.json)
        qm_json_print(json_incref(all));
    json_decref(all);
    sigaction(SIGINT, &was[0], NULL);
    sigaction(SIGTERM, &was[1], NULL);
    return st == QM_OK ? 0 : qm_cli_failed("tune", st);
}
