/* run_cells.c - Runs all cells of a suite and stores their outcomes. */
#include "experiments/run/run_cells.h"
#include "core/base/clock.h"

#include "experiments/cli/cli.h"
#include "experiments/lockstep/coded_share.h"
#include "experiments/protocol/protocol.h"
#include "experiments/run/codebook_tables.h"
#include "experiments/store/columns.h"
#include "experiments/suite/cell_id.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { OK, SKIPPED, DIVERGED, FAILED, STATUSES };
static const char *const statuses[] = {"ok", "skipped", "diverged", "failed"};

const char *qm_outcome_status(const struct qm_outcome *o)
{
    return statuses[o->failed ? FAILED : o->reason ? SKIPPED : o->diverged ? DIVERGED : OK];
}

const char *qm_outcome_status_of(const char *text)
{
    for (int i = 0; text && i < STATUSES; i++)
        if (strcmp(text, statuses[i]) == 0)
            return statuses[i];
    return NULL;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The failure with the lowest index.  The text is copied, because messages end with
 * their thread. */
struct failure {
    int64_t index;
    qm_status code;
    char text[512];
};

static void note_failure(struct failure *f, int64_t index, qm_status code)
{
    if (f->code != QM_OK && f->index <= index)
        return;
    f->index = index;
    f->code = code;
    snprintf(f->text, sizeof f->text, "%s", qm_message());
}

/* Data that the threads share. */
struct pool {
    struct qm_results *r;
    struct qm_progress *progress; /* or NULL */
    const volatile sig_atomic_t *stop;
    struct failure failure;
};

static void run_cell(struct pool *p, int64_t i, struct qm_metrics *m, struct qm_twin_cache *twins)
{
    struct qm_results *r = p->r;
    int give_up;
#pragma omp critical(qm_results)
    give_up = p->failure.code != QM_OK;
    if (give_up || (p->stop && *p->stop))
        return;
    double start = qm_seconds();
    qm_status st = m && twins ? qm_lockstep_run(&r->cell[i], m, twins, p->stop, &r->outcome[i])
                              : qm_fail(QM_NO_MEMORY, "metrics");
    r->seconds[i] = qm_seconds() - start;
#pragma omp critical(qm_results)
    {
        if (st != QM_OK)
            note_failure(&p->failure, i, st);
        if (p->progress)
            qm_progress_add(p->progress, 1, st != QM_OK);
    }
}

/* Runs cells in chunks, one thread each; cells that share a twin follow each other. */
static qm_status run_cells(struct pool *p, int threads)
{
    int64_t *order, n = p->r->n_cells;
    int64_t chunk = n / (8 * threads) < 1 ? 1 : n / (8 * threads) < 32 ? n / (8 * threads) : 32;
    QM_TRY(qm_twin_order(p->r->cell, n, &order));
    omp_set_num_threads(threads); /* with one thread, steps use one thread too */
#pragma omp parallel num_threads(threads)
    {
        struct qm_metrics *m = qm_metrics_open(QM_METRICS_full);
        struct qm_twin_cache *twins = NULL;
        qm_twin_cache_open(0, &twins);
#pragma omp for schedule(dynamic, chunk)
        for (int64_t i = 0; i < n; i++)
            run_cell(p, order[i], m, twins);
        qm_twin_cache_close(twins);
        qm_metrics_close(m);
    }
    free(order);
    return QM_OK;
}

qm_status qm_results_run(const struct qm_suite *suite, struct qm_cell *cells, int64_t n_cells,
                         int threads, int show, const volatile sig_atomic_t *stop,
                         struct qm_results *out)
{
    size_t n = (size_t)(n_cells > 0 ? n_cells : 1);
    struct qm_results r = {.suite = suite, .cell = cells, .n_cells = n_cells};
    struct qm_progress progress;
    struct pool pool = {.r = &r, .stop = stop, .progress = show ? &progress : NULL};
    r.outcome = calloc(n, sizeof *r.outcome);
    r.seconds = calloc(n, sizeof *r.seconds);
    if (!r.outcome || !r.seconds) {
        qm_results_free(&r);
        return qm_fail(QM_NO_MEMORY, "%lld cells", (long long)n_cells);
    }
    if (show)
        qm_progress_start(&progress, suite->stem, n_cells);
    qm_status st = run_cells(&pool, threads);
    if (show)
        qm_progress_end(&progress);
    if (stop && *stop)
        pool.failure = (struct failure){.code = QM_INTERRUPTED, .text = "interrupted"};
    if (st == QM_OK && pool.failure.code == QM_OK) {
        *out = r;
        return QM_OK;
    }
    qm_results_free(&r);
    return st != QM_OK ? st : qm_fail(pool.failure.code, "%s", pool.failure.text);
}

void qm_results_free(struct qm_results *r)
{
    for (int64_t i = 0; r->outcome && i < r->n_cells; i++)
        qm_outcome_free(&r->outcome[i]);
    free(r->outcome);
    free(r->seconds);
    memset(r, 0, sizeof *r);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int64_t step_number(const struct qm_cell *c)
{
    return c->recorded ? c->recorded->first_step : 1;
}

static const char *slot_name(const struct qm_cell *c)
{
    return c->coupling == QM_COUPLING_update ? "update"
           : c->recipe->rule                 ? c->recipe->rule->slot[c->slot]
                                             : "";
}

static const char *const roles[] = {[QM_CELL_plain] = "plain",
                                    [QM_CELL_float32] = "float32",
                                    [QM_CELL_ulp] = "ulp",
                                    [QM_CELL_own] = "own",
                                    [QM_CELL_without] = "without"};

/* Texts of one cell that the columns of /cells point at. */
struct cell_texts {
    char recipe[QM_RECIPE_TEXT], quantizer[QM_QUANTIZER_TEXT], id[QM_CELL_ID];
};

/* clang-format off */
/* The columns of /cells: name, type, unit, text, then the value for cell c = cell[i] with outcome o
 * and texts t. */
#define CELL_COLUMN_LIST(X)                                                                        \
    X(cell, i64, "1", "number of the cell: its place in the product of the axes", i)               \
    X(variant, text, "", "name of the variant", c->recipe->base ? c->recipe->base->name : "")        \
    X(recipe, text, "", "the variant with its overrides; parses back",                             \
      c->recipe->base ? qm_recipe_print(c->recipe, t->recipe) : "")                                \
    X(slot, text, "", "the state that is measured",  \
      slot_name(c))                                                                                 \
    X(quantizer, text, "", "its quantizer",                                                        \
      c->coupling == QM_COUPLING_update                                                             \
          ? ""                                                                                      \
          : qm_quantizer_print(&c->recipe->slot[c->slot], t->quantizer))                            \
    X(source, text, "", "where values or gradients come from", c->source_text)                     \
    X(tensor, text, "", "name of a recorded tensor", c->tensor)                                    \
    X(class, text, "", "class of the tensor by its name", c->class_name)                           \
    X(coupling, text, "", "how variant and reference are coupled", qm_coupling_name(c->coupling))  \
    X(seed, i64, "1", "seed of start, data and noise", (int64_t)c->seed)                           \
    X(step, i64, "1", "number of the first update, counted from 1", step_number(c))                \
    X(steps, i64, "1", "updates done", o->steps)                                                   \
    X(n, i64, "1", "elements", o->n)                                                               \
    X(bits, f64, "bit", "cost of the state per element, scales included",                          \
      o->reason ? nan("") : o->bits)                                                               \
    X(role, text, "", "plain, float32, ulp or without: why the cell is there", roles[c->role])     \
    X(lr_scale, f64, "1", "times the problem's learning rate", c->lr_scale)                        \
    X(warmup, i64, "1", "steps over which lr rises to its value", c->warmup)                       \
    X(decay_rank, i64, "1", "tensors of lower rank have no weight decay", c->decay_rank)           \
    X(rounding_seed, i64, "1", "which draws of stochastic rounding, for its seed",                 \
      (int64_t)c->rounding_seed)                                                                   \
    X(status, text, "", "ok, skipped, diverged or failed", qm_outcome_status(o))                   \
    X(reason, text, "", "why a cell was skipped or failed", o->reason ? o->reason : "")            \
    X(id, text, "", "the cell's name in any suite: 16 hex digits of a SHA-256", t->id)
/* clang-format on */

typedef int64_t cell_i64;
typedef double cell_f64;
typedef const char *cell_text;

/* Whether some cell makes updates, in which the shape of a tensor decides whether it gets codes. */
static int has_updates(const struct qm_results *r)
{
    for (int64_t i = 0; i < r->n_cells; i++)
        if (r->cell[i].coupling != QM_COUPLING_oneshot)
            return 1;
    return 0;
}

/* Shares of elements with codes: of all states, of the first and of the second one, as the curves
 * state0_sqnr and state1_sqnr have them, and of what the cell is asked about. */
enum { N_ASKED = 3, N_CODED };
static const char *const coded_columns[N_CODED][2] = {
    {"coded",
     "share of elements with codes, of those to which the recipe gives codes; NaN: to none"},
    {"state0_coded", "the same of the first state"},
    {"state1_coded", "the same of the second state"},
    {"asked_coded", "the same of the measured state, or of the states that the suite varies"}};

static qm_status store_cells(const struct qm_results *r, struct qm_store *store)
{
    struct qm_columns table = {.rows = r->n_cells};
    struct cell_texts *texts = calloc((size_t)r->n_cells + 1, sizeof *texts);
#define X(name, type, unit, text, value) \
    cell_##type *name = qm_columns_add(&table, #name, QM_COLUMN_##type, unit, text);
    CELL_COLUMN_LIST(X)
#undef X
    double *coded[N_CODED] = {NULL};
    for (int k = 0; k < N_CODED && has_updates(r); k++)
        coded[k] = qm_columns_number(&table, coded_columns[k][0], "1", coded_columns[k][1]);
    double *clip =
        qm_suite_axis(r->suite, "clip") < 0
            ? NULL
            : qm_columns_add(&table, "clip", QM_COLUMN_f64, "1", "largest norm of a gradient");
    const char **schedule = qm_suite_axis(r->suite, "schedule") < 0
                                ? NULL
                                : qm_columns_add(&table, "schedule", QM_COLUMN_text, "",
                                                 "how the learning rate falls after the warm-up");
    int64_t *instance = qm_suite_axis(r->suite, "instance") < 0
                            ? NULL
                            : qm_columns_add(&table, "instance", QM_COLUMN_i64, "1",
                                             "instance of the problem's data");
    double *rate = r->suite->n_rates == 0 ? NULL
                                          : qm_columns_add(&table, "rate", QM_COLUMN_f64, "1",
                                                           "tuned factor of the learning rate");
    table.failed |= !texts;
    for (int64_t i = 0; !table.failed && i < r->n_cells; i++) {
        const struct qm_cell *c = &r->cell[i];
        const struct qm_outcome *o = &r->outcome[i];
        struct cell_texts *t = &texts[i];
        qm_cell_id(r->suite, c, t->id);
        if (clip)
            clip[i] = c->clip;
        if (schedule)
            schedule[i] = qm_schedule_name(c->schedule);
        if (instance)
            instance[i] = c->instance;
        if (rate)
            rate[i] = c->rate;
        for (int k = 0; k < N_CODED && coded[k]; k++)
            coded[k][i] = o->reason      ? nan("")
                          : k == N_ASKED ? qm_asked_share(r, i)
                                         : qm_coded_share(o, k ? 1 << (k - 1) : QM_ALL_SLOTS);
#define X(name, type, unit, text, value) name[i] = value;
        CELL_COLUMN_LIST(X)
#undef X
    }
    qm_status st = qm_columns_store(&table, store, "/cells", "one row per cell of the suite");
    free(texts);
    return st;
}

static qm_status store_axes(const struct qm_results *r, struct qm_store *store)
{
    struct qm_columns t = {.rows = r->n_cells};
    for (int a = 0; a < r->suite->n_axes; a++) {
        const struct qm_axis *axis = &r->suite->axis[a];
        const char **text = qm_columns_add(&t, axis->key, QM_COLUMN_text, "", "label on this axis");
        for (int64_t i = 0; text && i < r->n_cells; i++)
            text[i] = qm_cell_choice(r->suite, &r->cell[i], a);
    }
    return qm_columns_store(&t, store, "/axes", "one row per cell: its place on every axis");
}

/* Whether some cell has value v. */
static int any_has(const struct qm_results *r, int v)
{
    for (int64_t i = 0; i < r->n_cells; i++)
        if (r->outcome[i].value && !isnan(r->outcome[i].value[v]))
            return 1;
    return 0;
}

static qm_status store_metrics(const struct qm_results *r, struct qm_store *store)
{
    struct qm_columns t = {.rows = r->n_cells};
    for (int v = 0; v < qm_value_count(); v++) {
        if (v >= qm_metric_count() + QM_EXTRA_late_gap && !any_has(r, v))
            continue;
        double *x =
            qm_columns_add(&t, qm_value_name(v), QM_COLUMN_f64, qm_value_unit(v), qm_value_text(v));
        for (int64_t i = 0; x && i < r->n_cells; i++)
            x[i] = r->outcome[i].value ? r->outcome[i].value[v] : nan("");
    }
    return qm_columns_store(&t, store, "/metrics",
                            "one row per cell; NaN where a metric does not apply");
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* Stores /decades (unit 0) or /unit_decades (unit 1). */
static qm_status store_decades(const struct qm_results *r, struct qm_store *store, int unit)
{
    static const char *const what[3][2] = {
        {"mean_rel", "mean of |error| / |x| of the non-zero x in the decade"},
        {"rms_rel", "root mean square of error / x in the decade"},
        {"zero_share", "share of the decade that decodes to 0"}};
    char path[40], low_path[40];
    const char *group = unit ? "/unit_decades/" : "/decades/", *scales[2] = {NULL, low_path};
    struct qm_shape one = {1, {QM_DECADES}}, all = {2, {r->n_cells, QM_DECADES}};
    double low[QM_DECADES];
    size_t n = (size_t)(r->n_cells > 0 ? r->n_cells : 1) * QM_DECADES;
    double *x = calloc(n, sizeof *x);
    int64_t *count = calloc(n, sizeof *count);
    qm_status st = x && count ? QM_OK : qm_fail(QM_NO_MEMORY, "decades");
    snprintf(low_path, sizeof low_path, "%slow", group);
    for (int d = 0; d < QM_DECADES; d++)
        low[d] = (double)(QM_DECADE_LOW + d);
    if (st == QM_OK)
        st = qm_store_array(store, low_path, QM_DTYPE_f64, &one, low, "log10",
                            unit ? "decade d holds 10^low <= |x| / scale < 10^(low + 1)"
                                 : "decade d holds 10^low <= |x| < 10^(low + 1)",
                            NULL);
    for (int part = -1; part < 3 && st == QM_OK; part++) {
        for (int64_t i = 0; i < r->n_cells; i++)
            for (int d = 0; d < QM_DECADES; d++) {
                const struct qm_outcome *o = &r->outcome[i];
                const struct qm_decade *q = unit ? &o->unit_decade[d] : &o->decade[d];
                count[i * QM_DECADES + d] = q->count;
                x[i * QM_DECADES + d] = part == 0   ? q->mean_rel
                                        : part == 1 ? q->rms_rel
                                                    : q->zero_share;
            }
        snprintf(path, sizeof path, "%s%s", group, part < 0 ? "count" : what[part][0]);
        st = part < 0
                 ? qm_store_array(store, path, QM_DTYPE_i64, &all, count, "1",
                                  "number of elements in the decade", scales)
                 : qm_store_array(store, path, QM_DTYPE_f64, &all, x, "1", what[part][1], scales);
    }
    free(x);
    free(count);
    return st;
}

static qm_status store_curves(const struct qm_results *r, struct qm_store *store)
{
    static const struct {
        const char *path, *unit, *text;
    } tracks[] = {
#define X(name, unit, text) {"/curves/" #name, unit, text},
        QM_TRACK_LIST(X)
#undef X
    };
    int64_t n_curves = 0, total = 0;
    for (int64_t i = 0; i < r->n_cells; i++) {
        n_curves += r->outcome[i].n_points > 0;
        total += r->outcome[i].n_points;
    }
    if (n_curves == 0)
        return QM_OK;
    int64_t *cell = calloc((size_t)n_curves, sizeof *cell);
    int64_t *length = calloc((size_t)n_curves, sizeof *length);
    double *value = calloc((size_t)total, sizeof *value);
    qm_status st = cell && length && value ? QM_OK : qm_fail(QM_NO_MEMORY, "curves");
    for (int64_t i = 0, k = 0; st == QM_OK && i < r->n_cells; i++)
        if (r->outcome[i].n_points > 0) {
            cell[k] = i;
            length[k++] = r->outcome[i].n_points;
        }
    struct qm_shape shape = {1, {n_curves}};
    if (st == QM_OK)
        st = qm_store_array(store, "/curves/cell", QM_DTYPE_i64, &shape, cell, "1",
                            "row of /cells that each curve belongs to", NULL);
    for (int t = 0; st == QM_OK && t < QM_TRACK_COUNT; t++) {
        for (int64_t k = 0, at = 0; k < n_curves; at += length[k++])
            memcpy(value + at, r->outcome[cell[k]].track[t], (size_t)length[k] * sizeof *value);
        st = qm_store_ragged(store, tracks[t].path, n_curves, length, value, tracks[t].unit,
                             tracks[t].text);
    }
    free(cell);
    free(length);
    free(value);
    return st;
}

/* Hitting times; results/README.md calls their group /stairs. */
static qm_status store_hits(const struct qm_results *r, struct qm_store *store)
{
    static const struct {
        const char *path, *text;
    } hits[] = {
#define X(name, twin, persistence, text) \
    {"/stairs/" #name, "(level, step) in turn: first hits of the gaps 10^(-level / 64), " text},
        QM_HITS_LIST(X)
#undef X
    };
    int64_t n = 0;
    int64_t *cell = calloc((size_t)r->n_cells + 1, sizeof *cell);
    int64_t *length = calloc((size_t)r->n_cells + 1, sizeof *length);
    qm_status st = cell && length ? QM_OK : qm_fail(QM_NO_MEMORY, "stairs");
    for (int64_t i = 0; st == QM_OK && i < r->n_cells; i++)
        if (r->outcome[i].hits[0])
            cell[n++] = i;
    struct qm_shape shape = {1, {n}};
    if (st == QM_OK && n > 0)
        st = qm_store_array(store, "/stairs/cell", QM_DTYPE_i64, &shape, cell, "1",
                            "row of /cells that each belongs to", NULL);
    for (int k = 0; st == QM_OK && n > 0 && k < QM_HITS_COUNT; k++) {
        int64_t total = 0, at = 0;
        for (int64_t i = 0; i < n; i++)
            total += length[i] = r->outcome[cell[i]].n_hits[k];
        double *value = calloc((size_t)total + 1, sizeof *value);
        for (int64_t i = 0; value && i < n; at += length[i++])
            memcpy(value + at, r->outcome[cell[i]].hits[k], (size_t)length[i] * sizeof *value);
        st = value ? qm_store_ragged(store, hits[k].path, n, length, value, "1", hits[k].text)
                   : qm_fail(QM_NO_MEMORY, "stairs");
        free(value);
    }
    free(cell);
    free(length);
    return st;
}

qm_status qm_results_store(const struct qm_results *r, struct qm_store *store)
{
    const struct qm_suite *s = r->suite;
    QM_TRY(qm_store_text(store, "/suite", "title", s->title ? s->title : ""));
    QM_TRY(qm_store_text(store, "/suite", "question", s->question ? s->question : ""));
    QM_TRY(qm_store_text(store, "/suite", "plan", s->plan));
    if (s->data_remarks)
        QM_TRY(qm_store_text(store, "/suite", "data_remarks", s->data_remarks));
    QM_TRY(store_cells(r, store));
    QM_TRY(store_axes(r, store));
    QM_TRY(store_metrics(r, store));
    QM_TRY(store_decades(r, store, 0));
    QM_TRY(store_decades(r, store, 1));
    QM_TRY(qm_codebooks_store(r, store));
    QM_TRY(store_curves(r, store));
    QM_TRY(store_hits(r, store));
    return qm_store_timing(store, "cell_seconds", r->n_cells, r->seconds, "s",
                           "wall time of each cell on its thread");
}
