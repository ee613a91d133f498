/* report_agrees.c - Whether a report of a GPU agrees with itself: its plan, rows and figures.
 *
 * A digest is no signature: who changes a report can form it again, and who keeps all of this
 * consistent is not found. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/gpu/bench.h"
#include "experiments/gpu/gpu_tasks.h"
#include "experiments/machine/provenance.h"

/* One rule: a condition, and what is said where it does not hold.  A figure that is missing is NaN,
 * of which no comparison holds. */
#define RULE(holds, text)  \
    do {                   \
        if (!(holds))      \
            return (text); \
    } while (0)

/* A report's plan, and what follows from it. */
struct plan {
    struct qm_gpu_options o;
    char *words;
    int is_own; /* 1: of the commit of this program, which has the same tasks */
    double time_limit;
    json_t *device;
};

static double number(json_t *row, const char *name)
{
    json_t *x = json_object_get(row, name);
    return json_is_number(x) ? json_number_value(x) : (double)NAN;
}

static const char *text(json_t *row, const char *name)
{
    const char *x = json_string_value(json_object_get(row, name));
    return x ? x : "";
}

static int is_near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

/* ---- figures of a row that was measured ------------------------------------------------------ */

static const char *exact_says(json_t *row)
{
    json_t *equal = json_object_get(row, "equal");
    RULE(json_is_boolean(equal), "a row with status ok does not say whether bits are equal");
    RULE(!json_is_true(equal) || !*text(row, "difference"), "bits are equal, and there is a "
                                                            "difference");
    RULE(json_is_true(equal) || *text(row, "difference"), "bits differ, and no difference is said");
    return NULL;
}

/* Rounds and times of speed and tables. */
static const char *times_say(json_t *row, const struct plan *p)
{
    double rounds = number(row, "rounds"), most = p->o.rounds, seconds = number(row, "seconds"),
           least = number(row, "least_seconds"), took = number(row, "took"),
           graph = number(row, "graph_seconds"), cap = fmin(5.0, 0.1 * p->time_limit);
    RULE(least <= seconds, "least_seconds is above seconds");
    RULE(rounds >= fmin(most, QM_BENCH_LEAST) && rounds <= 4.0 * most, "rounds are not the plan's");
    RULE(rounds >= most || !p->is_own || took >= cap,
         "rounds are fewer than the plan's, and time was left");
    RULE(took >= rounds * fmax(least, 0.5 * seconds), "took is less than its rounds take");
    RULE(isnan(graph) || 100.0 * graph >= least,
         "graph_seconds is less than a hundredth of least_seconds");
    return NULL;
}

/* 1: a tensor of so many elements may stand for one of n: halved where it does not fit into the
 * memory, or where the rounds of a rule over whole tensors take too long. */
static int is_size(double elements, int64_t n, const char *recipe, double memory)
{
    enum { BYTES = 96, OTHERS = 64 }; /* per parameter; of the memory others may leave 1/OTHERS */
    struct qm_recipe r;
    int is_whole = qm_recipe_parse(recipe, &r) != QM_OK || r.rule->tensor != NULL;
    while (n >= 1 << 20 && (double)n > elements &&
           (is_whole || (double)n * BYTES * OTHERS > memory))
        n = n / 2 / QM_BENCH_COLUMNS * QM_BENCH_COLUMNS;
    return elements == (double)n;
}

static const char *speed_says(json_t *row, const struct plan *p)
{
    double elements = number(row, "elements"), bytes = number(row, "bytes_per_parameter"),
           seconds = number(row, "seconds"), copy = number(row, "copy_rate"), want = 0.0,
           graph = number(row, "graph_seconds"), all = bytes * elements;
    const char *recipe = text(row, "recipe");
    RULE(is_size(elements, p->o.n, recipe, number(p->device, "memory_bytes")),
         "elements are not the plan's");
    RULE(!p->is_own ||
             (qm_speed_bytes(recipe, (int64_t)elements, &want) == QM_OK && is_near(bytes, want)),
         "bytes_per_parameter is not the recipe's");
    RULE(is_near(number(row, "rate"), elements / seconds), "rate is not elements / seconds");
    RULE(is_near(number(row, "share_of_copy"), all / seconds / copy),
         "share_of_copy is not bytes_per_parameter * elements / seconds / copy_rate");
    RULE(qm_gpu_bench_plausible("a copy", 8.0 * elements / copy, 8.0 * elements, 0.0) == QM_OK,
         "copy_rate is none that can be");
    RULE(qm_gpu_bench_plausible("a step", seconds, all, copy) == QM_OK,
         "seconds are none that can be beside copy_rate");
    RULE(isnan(graph) || qm_gpu_bench_plausible("a step", graph, all, copy) == QM_OK,
         "graph_seconds are none that can be beside copy_rate");
    return times_say(row, p);
}

static const char *tables_say(json_t *row, const struct plan *p)
{
    double elements = number(row, "elements");
    RULE(number(row, "tensors") == QM_BENCH_TENSORS, "tensors are not 100");
    RULE(elements == (double)qm_speed_small(p->o.n), "elements are not the plan's");
    RULE(strcmp(text(row, "mode"), "exact") == 0, "mode is not exact");
    RULE(qm_gpu_bench_plausible("a step", number(row, "seconds"), 2.0 * QM_BENCH_TENSORS * elements,
                                0.0) == QM_OK,
         "seconds are none that can be");
    return times_say(row, p);
}

static const char *codes_say(json_t *row, const struct plan *p)
{
    double inputs = number(row, "inputs"), compared = number(row, "compared"),
           wrong = number(row, "wrong"), seconds = number(row, "device_seconds");
    const double most = qm_gpu_most_floats((int)number(p->device, "multiprocessors"));
    int is_whole = strcmp(text(row, "status"), "ok") == 0 && !p->o.quick;
    RULE(inputs == 0x1p32, "inputs are not all floats");
    RULE(compared <= inputs && (!is_whole || compared == inputs), "not all floats were compared");
    RULE(wrong >= 0.0 && wrong <= compared, "more codes are wrong than were compared");
    RULE((wrong > 0.0) == (*text(row, "first_wrong") != '\0'), "wrong and first_wrong contradict");
    RULE(number(row, "runs") >= 1.0 && number(row, "runs") <= inputs, "runs are none that can be");
    RULE(seconds <= number(row, "took"), "device_seconds are more than the row took");
    RULE(inputs <= most * seconds, "device_seconds are none that can be");
    return NULL;
}

static const char *check_says(json_t *row)
{
    json_t *passed = json_object_get(row, "passed");
    double cases = number(row, "cases"), judged = number(row, "judged");
    RULE(json_is_boolean(passed), "a row with status ok does not say whether it passed");
    RULE(cases >= 0.0 && judged >= 0.0, "cases or judged numbers are missing");
    double off = number(row, "off_by_one"), wrong = number(row, "wrong"),
           right = number(row, "equal") + number(row, "within_bound") + number(row, "boundary");
    RULE(!json_is_true(passed) || (cases > 0.0 && judged > 0.0 && wrong == 0.0 && off == 0.0),
         "it passed, and numbers are wrong or none was judged");
    RULE(right + off + wrong <= judged, "its verdicts are more than the numbers judged");
    RULE(!json_is_true(passed) || number(row, "worst_ratio") <= 1.0,
         "it passed, and an error is above its bound");
    return NULL;
}

static const char *peers_say(json_t *row, const struct plan *p)
{
    double tensors = number(row, "tensors"), elements = number(row, "elements"),
           theirs = number(row, "peer_seconds"), ours = number(row, "seconds");
    const char *recipe = text(row, "recipe");
    struct qm_recipe r;
    RULE(!p->is_own || qm_recipe_parse(recipe, &r) == QM_OK, "the recipe is none");
    RULE(is_near(number(row, "ratio"), ours / theirs), "ratio is not seconds / peer_seconds");
    RULE((tensors == 1.0 && is_size(elements, p->o.n, recipe, number(p->device, "memory_bytes"))) ||
             (tensors == QM_BENCH_TENSORS && elements == (double)qm_speed_small(p->o.n)),
         "tensors or elements are not the plan's");
    RULE(qm_gpu_bench_plausible("a step", fmin(theirs, ours), 2.0 * tensors * elements, 0.0) ==
             QM_OK,
         "seconds are none that can be");
    return NULL;
}

/* ---- a row ----------------------------------------------------------------------------------- */

static int has_figures(enum qm_gpu_part part, json_t *row)
{
    for (const struct qm_gpu_column *c = qm_gpu_columns(part); c->name; c++)
        if (!c->is_key && c->type != 't' && strcmp(c->name, "took") != 0 &&
            json_object_get(row, c->name))
            return 1;
    return 0;
}

static int is_of_recipes(const struct qm_gpu_options *o, json_t *row, const char *column)
{
    int is_named = o->n_recipes == 0;
    for (int i = 0; i < o->n_recipes; i++)
        is_named |= strcmp(o->recipes[i], text(row, column)) == 0;
    return is_named;
}

static const char *row_says(enum qm_gpu_part part, json_t *row, const struct plan *p)
{
    const char *status = text(row, "status"), *column = qm_gpu_columns(part)->name;
    json_t *took = json_object_get(row, "took");
    int is_ok = strcmp(status, "ok") == 0 ||
                (part == QM_GPU_codes &&
                 strncmp(status, QM_GPU_PART_OF_CODES, strlen(QM_GPU_PART_OF_CODES)) == 0);
    RULE(json_object_size(p->device) > 0, "there are rows and no device");
    RULE(!p->o.has_only || p->o.only[part], "the part is not in the plan");
    RULE(part == QM_GPU_codes || part == QM_GPU_peers || is_of_recipes(&p->o, row, column),
         "the recipe is not in the plan");
    RULE(!took || number(row, "took") >= 0.0, "took is negative");
    RULE(is_ok || strncmp(status, "ok", 2) != 0, "its status is none");
    int has = part == QM_GPU_peers /* a time of the peer alone has its size */
                  ? json_object_get(row, "ratio") || json_object_get(row, "seconds")
                  : has_figures(part, row);
    RULE(is_ok || !has, "it was not measured, and has figures");
    if (!is_ok)
        return NULL;
    RULE(took, "it was measured, and has no took");
    RULE(!qm_gpu_row_flaw(part, row), "it was measured, and a figure is a number that none can be");
    switch (part) {
    case QM_GPU_exact: return exact_says(row);
    case QM_GPU_speed: return speed_says(row, p);
    case QM_GPU_codes: return codes_say(row, p);
    case QM_GPU_check: return check_says(row);
    case QM_GPU_tables: return tables_say(row, p);
    default: return peers_say(row, p);
    }
}

/* 1: an earlier row is of the same thing; of peers those that have a ratio are compared. */
static int is_repeated(enum qm_gpu_part part, json_t *seen, json_t *row)
{
    static const char *const peer[] = {"peer", "recipe", "mode", "tensors", "elements"};
    json_t *key = json_array();
    if (part == QM_GPU_peers && !json_object_get(row, "ratio")) {
        json_decref(key);
        return 0;
    }
    for (size_t i = 0; part == QM_GPU_peers && i < sizeof peer / sizeof *peer; i++)
        json_array_append(key, json_object_get(row, peer[i]));
    for (const struct qm_gpu_column *c = qm_gpu_columns(part); part != QM_GPU_peers && c->name; c++)
        if (c->is_key)
            json_array_append(key, json_object_get(row, c->name));
    char *name = json_dumps(key, JSON_COMPACT);
    int is = name && json_object_get(seen, name);
    if (name)
        json_object_set_new(seen, name, json_true());
    free(name);
    json_decref(key);
    return is;
}

static qm_status rows_agree(const struct qm_gpu_report *r, const struct plan *p)
{
    for (int i = 0; i < QM_GPU_PARTS; i++) {
        enum qm_gpu_part part = (enum qm_gpu_part)i;
        json_t *seen = json_object(), *row;
        const char *says = NULL;
        size_t k;
        json_array_foreach (r->rows[i], k, row) {
            says = is_repeated(part, seen, row) ? "it is there more than once"
                                                : row_says(part, row, p);
            if (says)
                break;
        }
        json_decref(seen);
        if (says)
            return qm_fail(QM_BAD_FILE, "contradicts itself: row %zu of part %s, of '%.60s': %s", k,
                           qm_gpu_part_name(part), text(row, qm_gpu_columns(part)->name), says);
    }
    return QM_OK;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Tasks by what the rows say of them. */
struct tasks_seen {
    double all, without_rows, open, missing;
};

static const char *state_says(const char *state, const struct tasks_seen *t)
{
    static const char *const ends[] = {QM_GPU_ENDED_stop, QM_GPU_ENDED_time};
    char want[160];
    if (strcmp(state, QM_GPU_STATE_complete) == 0)
        return t->missing == 0.0 ? NULL : "its state is complete, and tasks are missing";
    if (strcmp(state, QM_GPU_STATE_begun) == 0 || strcmp(state, QM_GPU_STATE_running) == 0)
        return NULL;
    for (int i = 0; i < 2; i++) {
        snprintf(want, sizeof want, QM_GPU_STATE_ended, ends[i], (int)t->missing, (int)t->all);
        if (strcmp(state, want) == 0)
            return NULL;
    }
    return "its state is none, or counts other tasks than tasks and missing do";
}

/* Counts the tasks of this program for the plan, and those of peers, which the report alone has. */
static void count_tasks(const struct qm_gpu_tasks *tasks, const struct qm_gpu_report *r,
                        struct tasks_seen *t, double *peers)
{
    json_t *row, *names = json_object(), *broken = json_object();
    size_t k;
    for (int i = 0; i < tasks->n; i++) {
        t->without_rows += json_array_size(tasks->at[i].rows) == 0;
        t->open += qm_gpu_task_is_open(&tasks->at[i]);
    }
    json_array_foreach (r->rows[QM_GPU_peers], k, row) {
        json_object_set_new(names, text(row, "peer"), json_true());
        if (qm_gpu_row_verdict(QM_GPU_peers, row) == QM_GPU_broken)
            json_object_set_new(broken, text(row, "peer"), json_true());
    }
    *peers = (double)json_object_size(names);
    double unseen = t->all - tasks->n - *peers;
    t->without_rows += unseen;
    t->open += unseen + (double)json_object_size(broken);
    json_decref(names);
    json_decref(broken);
}

static const char *tasks_say(const struct qm_gpu_tasks *tasks, const struct qm_gpu_report *r,
                             struct tasks_seen *t)
{
    double peers;
    count_tasks(tasks, r, t, &peers);
    RULE(t->all >= tasks->n + peers, "its tasks are fewer than those of its plan");
    RULE(t->all == tasks->n + peers || *text(r->plan, "peers"),
         "its tasks are more than those of its plan");
    RULE(t->missing >= t->without_rows, "missing is less than the tasks without rows");
    RULE(t->missing <= t->open, "missing is more than the tasks that are not measured");
    return NULL;
}

/* What only a report of this program's own commit must have: its tasks. */
static qm_status agrees_with_program(const struct qm_gpu_report *r, const struct plan *p,
                                     struct tasks_seen *t)
{
    struct qm_gpu_options of = p->o;
    struct qm_gpu_tasks tasks;
    struct qm_recipe recipe;
    for (int i = 0; i < of.n_recipes; i++)
        if (qm_recipe_parse(of.recipes[i], &recipe) != QM_OK)
            return qm_fail(QM_BAD_FILE, "contradicts itself: its plan has recipe '%.60s'",
                           of.recipes[i]);
    const char *says =
        strcmp(text(r->plan, "version"), qm_version()) != 0
            ? "its version is not that of its commit"
        : strcmp(text(r->plan, "not_covered"), qm_gpu_not_covered(p->o.n)) != 0 && p->o.n
            ? "not_covered is not that of its elements"
            : NULL;
    if (says)
        return qm_fail(QM_BAD_FILE, "contradicts itself: %s", says);
    if (!json_object_get(r->plan, "tasks"))
        return QM_OK;
    of.peers = NULL; /* no program of a report is run */
    QM_TRY(qm_gpu_tasks_make(&of, NULL, &tasks));
    struct qm_gpu_report own = *r;
    qm_status st = qm_gpu_tasks_take_own(&tasks, &own);
    says = st == QM_OK ? tasks_say(&tasks, r, t) : NULL;
    qm_gpu_tasks_free(&tasks);
    return says ? qm_fail(QM_BAD_FILE, "contradicts itself: %s", says) : st;
}

static qm_status plan_agrees(const struct qm_gpu_report *r, const struct plan *p)
{
    json_t *tasks = json_object_get(r->plan, "tasks"),
           *missing = json_object_get(r->plan, "missing");
    struct tasks_seen t = {.all = number(r->plan, "tasks"), .missing = number(r->plan, "missing")};
    size_t rows = 0;
    for (int i = 0; i < QM_GPU_PARTS; i++)
        rows += json_array_size(r->rows[i]);
    if (!tasks != !missing || (!tasks && rows))
        return qm_fail(QM_BAD_FILE,
                       "contradicts itself: its plan has rows, and no tasks or missing");
    if (p->is_own)
        QM_TRY(agrees_with_program(r, p, &t));
    if (!tasks)
        return QM_OK;
    const char *says =
        !json_is_integer(tasks) || !json_is_integer(missing) || t.missing < 0.0 || t.missing > t.all
            ? "missing is no number from 0 to tasks"
            : state_says(text(r->plan, "state"), &t);
    return says ? qm_fail(QM_BAD_FILE, "contradicts itself: %s", says) : QM_OK;
}

qm_status qm_gpu_report_agrees(const struct qm_gpu_report *r)
{
    struct plan p = {.device = r->device, .time_limit = number(r->plan, "time_limit")};
    qm_status st = qm_gpu_plan_read(r->plan, &p.o, &p.words);
    p.is_own = st == QM_OK && strcmp(text(r->plan, "commit"), qm_commit()) == 0;
    if (st == QM_OK)
        st = rows_agree(r, &p);
    if (st == QM_OK)
        st = plan_agrees(r, &p);
    free(p.o.recipes);
    free(p.words);
    return st;
}
