/* recipe_error.c - Measures the next update of recorded states under whole recipes. */
#include "experiments/analyze/recipe_error.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/grow.h"
#include "core/base/memory.h"
#include "core/base/name.h"
#include "experiments/cli/cli.h"
#include "experiments/lockstep/coded_share.h"
#include "experiments/lockstep/lockstep.h"
#include "experiments/machine/shipped_files.h"
#include "experiments/suite/shared.h"

/* Bytes of a pair in lockstep per element, rounded up: about 15 arrays of double. */
enum { PAIR_BYTES = 200 };

/* ---- rows ---------------------------------------------------------------------------------- */

static void row_free(struct qm_recipe_error *r)
{
    free(r->file);
    free(r->tensor);
    free(r->skipped);
    free(r->value);
}

void qm_recipe_errors_free(struct qm_recipe_errors *e)
{
    for (int64_t i = 0; i < e->n; i++)
        row_free(&e->row[i]);
    free(e->row);
    e->row = NULL;
    e->n = e->room = 0;
}

/* Appends an empty row. */
static qm_status add_row(struct qm_recipe_errors *e, const struct qm_recorded *rec,
                         const char *skipped, struct qm_recipe_error **out)
{
    QM_TRY(qm_grow((void **)&e->row, &e->room, e->n + 1, sizeof *e->row));
    struct qm_recipe_error r = {.file = strdup(rec->file),
                                .tensor = strdup(rec->name),
                                .skipped = strdup(skipped),
                                .value = calloc((size_t)e->n_metrics + 1, sizeof *r.value)};
    if (!r.file || !r.tensor || !r.skipped || !r.value) {
        row_free(&r);
        return qm_fail(QM_NO_MEMORY, "row of '%s'", rec->name);
    }
    e->row[e->n] = r;
    *out = &e->row[e->n++];
    return QM_OK;
}

/* The record's model: that of the first row of the same file and run, or a new number. */
static int model_of(const struct qm_recipe_errors *e, const struct qm_recorded *rec)
{
    size_t run = strcspn(rec->name, "/");
    int next = 0;
    for (int64_t i = 0; i < e->n; i++) {
        if (strcmp(e->row[i].file, rec->file) == 0 &&
            strncmp(e->row[i].tensor, rec->name, run) == 0 && strcspn(e->row[i].tensor, "/") == run)
            return e->row[i].model;
        next = e->row[i].model >= next ? e->row[i].model + 1 : next;
    }
    return next;
}

/* The reason why a pair of this size would not fit into the memory that is free; "": it does. */
static const char *too_large(int64_t n, char *text, size_t size)
{
    double available = (double)qm_memory_available(), bytes = (double)n * PAIR_BYTES;
    text[0] = '\0';
    if (available > 0.0 && bytes > available)
        snprintf(text, size, "it takes %.1f GiB in lockstep, %.1f GiB are free", bytes / 0x1p30,
                 available / 0x1p30);
    return text;
}

/* Runs the cell and fills the row. */
static qm_status run(const struct qm_cell *c, struct qm_metrics *m, struct qm_recipe_errors *e,
                     int recipe, int model)
{
    struct qm_outcome out;
    struct qm_recipe_error *row = NULL;
    qm_status st = qm_lockstep_run(c, m, NULL, NULL, &out);
    if (st == QM_OK)
        st = add_row(e, c->recorded, out.reason ? out.reason : "", &row);
    if (st == QM_OK) {
        row->recipe = recipe;
        row->model = model;
        row->has_gradient = out.steps > 0;
        row->n = out.n;
        row->left_out = out.n - (int64_t)out.value[qm_value_find("count")];
        row->bits = out.bits;
        double coded = qm_coded_share(&out, QM_ALL_SLOTS);
        row->is_coded = isnan(coded) || coded >= 1.0;
        row->sqnr = out.value[qm_value_find("sqnr")];
        for (int k = 0; k < e->n_metrics; k++)
            row->value[k] = out.value[qm_value_find(e->metric[k]->name)];
    }
    qm_outcome_free(&out);
    return st;
}

/* Adds a row per recipe for one record. */
static qm_status measure(struct qm_replay *replay, struct qm_recorded *rec, uint64_t seed,
                         struct qm_metrics *m, struct qm_recipe_errors *e)
{
    char why[128];
    int model = model_of(e, rec), is_loaded = 0;
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < e->recipes->n; i++) {
        struct qm_cell c = {.recipe = &e->recipes->recipe[i],
                            .coupling = QM_COUPLING_update,
                            .kind = QM_SOURCE_states,
                            .recorded = rec,
                            .lr_scale = 1.0,
                            .rate = 1.0,
                            .instance = 1,
                            .seed = seed};
        st = qm_cell_check_source(&c);
        if (st == QM_OK && !c.reason && *too_large(rec->numel, why, sizeof why) &&
            !(c.reason = qm_shared_text(why)))
            st = qm_fail(QM_NO_MEMORY, "a reason");
        if (st == QM_OK && !c.reason && !is_loaded) {
            st = qm_replay_load(replay, rec);
            is_loaded = 1;
        }
        if (st == QM_OK)
            st = run(&c, m, e, i, model);
    }
    qm_replay_unload(rec);
    return st;
}

static int is_wanted(const struct qm_recorded *rec, const char *filter)
{
    return !rec->is_trace && qm_entry_matches(rec->name, filter);
}

/* Hands on what there is to say about the files. */
/* Which relative of Adam made the states of a file, whose own update is another; NULL: none. */
static const char *maker_of(struct qm_replay *replay, int file)
{
    for (int i = 0; i < qm_replay_count(replay); i++) {
        const struct qm_recorded *rec = qm_replay_at(replay, i);
        if (rec->made_by && rec->file_number == file)
            return rec->made_by;
    }
    return NULL;
}

static qm_status say_remarks(struct qm_replay *replay, const struct qm_recipe_error_options *o)
{
    char remark[QM_FILE_REMARK + 160];
    const char *path;
    for (int i = 0; qm_replay_remark(replay, i, &path, remark), path; i++) {
        const char *maker = maker_of(replay, i);
        size_t n = strlen(remark);
        if (maker)
            snprintf(remark + n, sizeof remark - n,
                     "%sthe run was made by %s: what is measured is the next update of each "
                     "recipe's own rule from its two averages, not that of %s",
                     n ? "; " : "", maker, maker);
        if (*remark && o->remark)
            QM_TRY(o->remark(path, remark, o->remark_context));
    }
    return QM_OK;
}

/* QM_BAD_FILE: a path that is no pattern and is not there. */
static qm_status check_there(const char *path)
{
    char shipped[PATH_MAX];
    return strpbrk(path, "*?[") || access(qm_shipped(path, shipped, sizeof shipped), F_OK) == 0
               ? QM_OK
               : qm_fail(QM_BAD_FILE, "%s: cannot open: %s", path, strerror(errno));
}

qm_status qm_recipe_errors_measure(char *const *paths, int n_paths,
                                   const struct qm_recipe_error_options *o,
                                   struct qm_recipe_errors *e)
{
    struct qm_replay *replay;
    int64_t total = 0, done = 0;
    for (int i = 0; i < n_paths; i++)
        QM_TRY(check_there(paths[i]));
    QM_TRY(qm_replay_open(paths, n_paths, &replay));
    struct qm_metrics *m = qm_metrics_open(QM_METRICS_full);
    qm_status st = m ? say_remarks(replay, o) : qm_fail(QM_NO_MEMORY, "metrics");
    for (int i = 0; i < qm_replay_count(replay); i++)
        if (is_wanted(qm_replay_at(replay, i), o->filter))
            total += qm_replay_at(replay, i)->numel;
    for (int i = 0; st == QM_OK && i < qm_replay_count(replay); i++) {
        struct qm_recorded *rec = qm_replay_at(replay, i);
        if (!is_wanted(rec, o->filter))
            continue;
        if (o->progress)
            o->progress(done, total, o->context);
        st = measure(replay, rec, o->seed, m, e);
        done += rec->numel;
    }
    if (st == QM_OK && e->n == 0 && qm_replay_count(replay) > 0)
        st = qm_fail(QM_NO_MATCH,
                     "%s: no recorded state matches '%s'; the first of %d is '%s' (with --recipe a "
                     "row is a parameter)",
                     paths[0], o->filter ? o->filter : "", qm_replay_count(replay),
                     qm_replay_at(replay, 0)->name);
    else if (st == QM_OK && e->n == 0)
        st = qm_fail(QM_NO_MATCH,
                     "%s: no recorded state (a parameter with momentum: exp_avg, state1 or "
                     "momentum_buffer), of which a next update is measured; without --recipe all "
                     "states are measured",
                     paths[0]);
    qm_metrics_close(m);
    qm_replay_close(replay);
    return st;
}

int64_t qm_recipe_errors_measured(const struct qm_recipe_errors *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n; i++)
        n += !*e->row[i].skipped;
    return n;
}

/* ---- summaries ----------------------------------------------------------------------------- */

static int is_measured(const struct qm_recipe_error *r) { return !*r->skipped && r->is_coded; }

/* The row of the first recipe for the tensor of row i; the rows of a tensor lie together. */
static const struct qm_recipe_error *first_of(const struct qm_recipe_errors *e, int64_t i)
{
    return &e->row[i - e->row[i].recipe];
}

qm_status qm_recipe_errors_summary(const struct qm_recipe_errors *e, int recipe,
                                   struct qm_recipe_summary *out)
{
    size_t room = (size_t)e->n + 1;
    double *x = malloc(room * sizeof *x), *d = malloc(room * sizeof *d), bits = 0.0, n = 0.0;
    int *of_x = malloc(room * sizeof *of_x), *of_d = malloc(room * sizeof *of_d);
    int64_t both = 0;
    *out = (struct qm_recipe_summary){.tensors = 0};
    qm_status st = x && d && of_x && of_d ? QM_OK : qm_fail(QM_NO_MEMORY, "summary");
    for (int64_t i = 0; st == QM_OK && i < e->n; i++) {
        const struct qm_recipe_error *r = &e->row[i], *first = first_of(e, i);
        if (r->recipe != recipe)
            continue;
        out->skipped += *r->skipped != '\0';
        out->not_quantized += !*r->skipped && !r->is_coded;
        if (!is_measured(r))
            continue;
        out->not_finite += !isfinite(r->sqnr);
        if (is_measured(first) && !isnan(r->sqnr) && !isnan(first->sqnr)) {
            out->better += r->sqnr > first->sqnr;
            out->compared++;
        }
        if (!isfinite(r->sqnr))
            continue;
        of_x[out->tensors] = r->model;
        x[out->tensors++] = r->sqnr;
        bits += r->bits * (double)r->n;
        n += (double)r->n;
        if (!is_measured(first) || !isfinite(first->sqnr))
            continue;
        of_d[both] = r->model;
        d[both++] = r->sqnr - first->sqnr;
    }
    out->bits = bits / n;
    if (st == QM_OK)
        st = qm_paired_levels(x, of_x, out->tensors, &out->sqnr);
    if (st == QM_OK)
        st = qm_paired_levels(d, of_d, both, &out->difference);
    if (st == QM_OK)
        out->models = out->tensors > 0 && out->sqnr.instances < 1 ? 1 : out->sqnr.instances;
    free(x);
    free(d);
    free(of_x);
    free(of_d);
    return st;
}
