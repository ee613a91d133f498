/* archive.c - Writes and finds the part of a campaign that later ones are compared with. */
#include "experiments/report/archive.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/name.h"
#include "experiments/machine/shipped_files.h"

enum { DIGITS = 4 }; /* significant digits of losses in curves */

/* ---- tables -------------------------------------------------------------------------------- */

static qm_status column_read(struct qm_result *r, const char *table, struct qm_column *c)
{
    int64_t rows;
    char **text = NULL;
    int64_t *whole = NULL;
    double *number = NULL;
    qm_status st = c->type == QM_COLUMN_text  ? qm_result_texts(r, table, c->name, &rows, &text)
                   : c->type == QM_COLUMN_i64 ? qm_result_i64(r, table, c->name, &rows, &whole)
                                              : qm_result_f64(r, table, c->name, &rows, &number);
    c->data = text ? (void *)text : whole ? (void *)whole : (void *)number;
    return st;
}

/* only: names of columns, ended by NULL; or NULL for all columns. */
static int is_wanted(const char *name, const char *const *only)
{
    while (only && *only && strcmp(*only, name) != 0)
        only++;
    return !only || *only;
}

static qm_status copy_table(struct qm_result *r, struct qm_store *store, const char *table,
                            const char *const *only)
{
    struct qm_result_columns all;
    char *text = NULL;
    if (!qm_result_has(r, table))
        return QM_OK;
    QM_TRY(qm_result_columns(r, table, &all));
    struct qm_column *column = calloc((size_t)all.n + 1, sizeof *column);
    qm_status st =
        column ? qm_result_text(r, table, "text", &text) : qm_fail(QM_NO_MEMORY, "%s", table);
    int n = 0;
    for (int i = 0; st == QM_OK && i < all.n; i++)
        if (is_wanted(all.name[i], only)) {
            column[n] =
                (struct qm_column){all.name[i], all.type[i], all.unit[i], all.text[i], NULL};
            st = column_read(r, table, &column[n++]);
        }
    if (st == QM_OK)
        st = qm_store_table(store, table, text, all.rows, n, column);
    for (int i = 0; i < n; i++)
        free((void *)column[i].data);
    free(column);
    free(text);
    qm_result_columns_free(&all);
    return st;
}

static qm_status copy_tables(struct qm_result *r, struct qm_store *store)
{
    static const char *const cells[] = {"cell",     "variant", "recipe", "source",
                                        "coupling", "seed",    "steps",  "role",
                                        "lr_scale", "status",  "reason", NULL};
    static const char *const tables[] = {"runs",     "verdicts", "contrasts",   "targets", "ecdf",
                                         "profiles", "scores",   "sensitivity", "budget"};
    QM_TRY(copy_table(r, store, "/cells", cells));
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        char path[64];
        snprintf(path, sizeof path, "/protocol/%s", tables[i]);
        QM_TRY(copy_table(r, store, path, NULL));
    }
    return QM_OK;
}

/* ---- curves -------------------------------------------------------------------------------- */

static double rounded(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.*e", DIGITS - 1, x);
    return isfinite(x) ? strtod(text, NULL) : x;
}

struct kept {
    int64_t n, total, *cell, *length, *offset;
    double *step, *loss;
};

/* Sets keeps[cell] of the cells whose curves are kept: the plain ones; where the campaign has
 * several instances, those of its least seed, for there each instance is a curve. */
static qm_status choose_cells(struct qm_result *r, int64_t cells, char **role, char *keeps)
{
    int64_t rows, runs, *cell = NULL, *seed = NULL, *instance = NULL, least = INT64_MAX, last = 1;
    for (int64_t i = 0; i < cells; i++)
        keeps[i] = strcmp(role[i], "plain") == 0;
    if (qm_result_i64(r, "/protocol/runs", "instance", &runs, &instance) != QM_OK)
        return QM_OK; /* an older file: one instance */
    qm_status st = qm_result_i64(r, "/protocol/runs", "cell", &rows, &cell);
    if (st == QM_OK)
        st = qm_result_i64(r, "/protocol/runs", "seed", &rows, &seed);
    for (int64_t i = 0; st == QM_OK && i < rows; i++) {
        least = seed[i] < least ? seed[i] : least;
        last = instance[i] > last ? instance[i] : last;
    }
    for (int64_t i = 0; st == QM_OK && i < rows && last > 1; i++)
        if (seed[i] != least && cell[i] >= 0 && cell[i] < cells)
            keeps[cell[i]] = 0;
    free(cell);
    free(seed);
    free(instance);
    return st;
}

/* Copies the curves of cells that are kept to k, one after the other. */
static qm_status keep_curves(const char *keeps, const int64_t *owner,
                             const struct qm_result_curves *step,
                             const struct qm_result_curves *loss, struct kept *k)
{
    for (int64_t i = 0; i < step->n; i++)
        k->total += step->length[i];
    k->cell = calloc((size_t)step->n + 1, sizeof *k->cell);
    k->length = calloc((size_t)step->n + 1, sizeof *k->length);
    k->step = calloc((size_t)k->total + 1, sizeof *k->step);
    k->loss = calloc((size_t)k->total + 1, sizeof *k->loss);
    if (!k->cell || !k->length || !k->step || !k->loss)
        return qm_fail(QM_NO_MEMORY, "curves");
    k->total = 0;
    for (int64_t i = 0; i < step->n; i++) {
        if (!keeps[owner[i]] || loss->length[i] != step->length[i])
            continue;
        k->cell[k->n] = owner[i];
        k->length[k->n++] = step->length[i];
        for (int64_t j = 0; j < step->length[i]; j++, k->total++) {
            k->step[k->total] = step->value[step->offset[i] + j];
            k->loss[k->total] = rounded(loss->value[loss->offset[i] + j]);
        }
    }
    return QM_OK;
}

static qm_status store_curves(struct qm_store *store, const struct kept *k)
{
    struct qm_shape shape = {1, {k->n}};
    QM_TRY(qm_store_array(store, "/curves/cell", QM_DTYPE_i64, &shape, k->cell, "1",
                          "row of /cells that each curve belongs to", NULL));
    QM_TRY(qm_store_ragged(store, "/curves/step", k->n, k->length, k->step, "1",
                           "number of updates done"));
    return qm_store_ragged(store, "/curves/loss", k->n, k->length, k->loss, "1",
                           "loss of the variant above the floor, four digits");
}

static qm_status copy_curves(struct qm_result *r, struct qm_store *store)
{
    struct qm_result_curves step = {0}, loss = {0};
    struct qm_tensor owner = {0};
    struct kept k = {0};
    int64_t cells;
    char **role = NULL, *keeps = NULL;
    qm_status st = qm_result_texts(r, "/cells", "role", &cells, &role);
    if (st == QM_OK && !(keeps = malloc((size_t)cells + 1)))
        st = qm_fail(QM_NO_MEMORY, "/curves");
    if (st == QM_OK)
        st = choose_cells(r, cells, role, keeps);
    if (st == QM_OK)
        st = qm_result_ragged(r, "/curves/step", &step);
    if (st == QM_OK)
        st = qm_result_ragged(r, "/curves/loss", &loss);
    if (st == QM_OK)
        st = qm_result_array(r, "/curves/cell", &owner);
    if (st == QM_OK &&
        (owner.dtype != QM_DTYPE_i64 || qm_shape_numel(&owner.shape) != step.n || loss.n != step.n))
        st = qm_fail(QM_BAD_FILE, "/curves: its parts do not fit");
    for (int64_t i = 0; st == QM_OK && i < step.n; i++)
        if (((int64_t *)owner.data)[i] < 0 || ((int64_t *)owner.data)[i] >= cells)
            st = qm_fail(QM_BAD_FILE, "/curves/cell: entry %lld names no cell", (long long)i);
    if (st == QM_OK)
        st = keep_curves(keeps, owner.data, &step, &loss, &k);
    if (st == QM_OK)
        st = store_curves(store, &k);
    free(k.cell);
    free(k.length);
    free(k.step);
    free(k.loss);
    free(owner.data);
    free(keeps);
    free(role);
    qm_result_curves_free(&step);
    qm_result_curves_free(&loss);
    return st;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static qm_status copy_suite(struct qm_result *r, struct qm_store *store)
{
    static const char *const names[] = {"title", "question", "plan"};
    for (int i = 0; i < 3; i++) {
        char *text;
        QM_TRY(qm_result_text(r, "/suite", names[i], &text));
        qm_status st = qm_store_text(store, "/suite", names[i], text);
        free(text);
        QM_TRY(st);
    }
    return QM_OK;
}

qm_status qm_archive_write(struct qm_result *r, const char *path, const char *out)
{
    static char words[3][10] = {"report", "--archive"};
    char digest[65], *argv[] = {words[0], words[1], (char *)out, NULL};
    struct qm_store *store;
    if (!qm_result_has(r, "/protocol/runs") && qm_result_has(r, "/protocol/verdicts"))
        return qm_fail(QM_BAD_FILE, "%s: has /protocol/verdicts, and no /protocol/runs", path);
    if (!qm_result_has(r, "/protocol/runs"))
        return qm_fail(QM_NO_MATCH, "%s: no /protocol/runs: run a suite with protocol: paired",
                       path);
    QM_TRY(qm_store_digest(path, digest));
    QM_TRY(qm_store_open(out, "run", 3, argv, &store));
    qm_status st = copy_suite(r, store);
    if (st == QM_OK)
        st = qm_store_text(store, "/archive", "of", digest);
    if (st == QM_OK)
        st = copy_tables(r, store);
    if (st == QM_OK && qm_result_has(r, "/curves/loss"))
        st = copy_curves(r, store);
    if (st == QM_OK)
        return qm_store_commit(store);
    qm_store_abort(store);
    return st == QM_NO_MATCH || st == QM_BAD_ARG ? QM_BAD_FILE : st; /* parts that do not fit */
}

/* ---- finding ------------------------------------------------------------------------------- */

/* The shipped archives' names that are near a word, as qm_name_near writes them. */
static void archive_near(const char *word, char out[QM_NAME_NEAR])
{
    enum { MOST = 64, NAME = 128 };
    glob_t found = {0};
    char pattern[PATH_MAX], name[MOST][NAME];
    const char *names[MOST];
    int n = 0;
    glob(qm_shipped_pattern("results/*.h5", pattern, sizeof pattern), 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc && n < MOST; i++) {
        const char *slash = strrchr(found.gl_pathv[i], '/');
        snprintf(name[n], NAME, "%s", slash ? slash + 1 : found.gl_pathv[i]);
        name[n][strcspn(name[n], ".")] = '\0';
        names[n] = name[n];
        n++;
    }
    globfree(&found);
    qm_name_near(word, names, n, out);
}

qm_status qm_archive_find(const char *word, char *path, size_t size)
{
    snprintf(path, size, "%s", word);
    if (access(path, F_OK) == 0)
        return QM_OK;
    if (strchr(word, '/'))
        return qm_fail(QM_BAD_FILE, "%s: %s", word, strerror(errno));
    char name[PATH_MAX];
    snprintf(name, sizeof name, "results/%s.h5", word);
    qm_shipped(name, path, size);
    if (access(path, F_OK) == 0)
        return QM_OK;
    char near[QM_NAME_NEAR];
    archive_near(word, near);
    return qm_fail(QM_NO_MATCH,
                   "no archive '%s'%s%s%s expected a result file, or NAME for results/NAME.h5",
                   word, *near ? "; did you mean " : "", near, *near ? "?" : ":");
}

qm_status qm_archive_check(const char *path)
{
    struct qm_result *r = NULL;
    QM_TRY(qm_result_open(path, &r));
    qm_status st = qm_result_has(r, "/protocol/runs")
                       ? QM_OK
                       : qm_fail(QM_NO_MATCH,
                                 "%s: no /protocol/runs: of no suite with protocol: paired", path);
    qm_result_close(r);
    return st;
}
