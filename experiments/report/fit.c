/* fit.c - Checks that the tables and curves of a result file fit one another. */
#include "experiments/report/fit.h"

#include <stdlib.h>
#include <string.h>

/* The columns that every version writes, also into archives: t text, n numbers, i integers; what
 * others write a table may lack, but it must have the type. */
static const struct known {
    const char *table, *columns;
    int is_per_cell; /* it has a row for each one of /cells */
} tables[] = {
    {"/cells",
     "t:variant t:recipe t:source t:coupling i:seed t:status t?slot t?quantizer t?tensor t?class "
     "n?n n?bits n?coded n?state0_coded n?state1_coded n?asked_coded t?role n?lr_scale i?step "
     "t?reason t?id",
     1},
    {"/axes", "", 1},
    {"/metrics", "", 1},
    {"/protocol/runs", "i:cell t:problem t:label n:lr_scale i:seed t:status", 0},
    {"/protocol/verdicts",
     "t:problem t:label n:lr_scale n:n n:mean n:lo95 n:hi95 n:lo90 n:hi90 n:delta t:verdict "
     "n:null_lo "
     "n:null_hi i?null_apart t?rates n?bits n?coded",
     0},
    {"/protocol/contrasts",
     "t:problem t:label n:lr_scale t:against n:n n:mean n:lo95 n:hi95 n:lo90 n:hi90 t:verdict "
     "n?delta "
     "n?q t?rates",
     0},
    {"/protocol/ecdf", "t:label n:tau n:share", 0},
    {"/protocol/profiles", "t:label t:kind n:tau n:share", 0},
    {"/protocol/scores", "t:label t:kind n:n n:score", 0},
    {"/protocol/sensitivity",
     "t:problem t:label n:lr_scale n:gap_q25 n:gap_median n:gap_q75 n:twin_q25 n:twin_median "
     "n:twin_q75",
     0},
    {"/protocol/budget", "t:problem t:label n?lr_scale t:part n:mean n:lo95 n:hi95", 0},
    {"/protocol/targets", "t:problem i:index n:target", 0},
};

struct fit {
    struct qm_result *r;
    const char *path;
    int64_t cells; /* rows of /cells; -1: there is none */
};

/* What a reader refuses in a file of the program's own is damage of the file. */
static qm_status damage(qm_status st)
{
    return st == QM_NO_MATCH || st == QM_BAD_ARG ? QM_BAD_FILE : st;
}

/* ---- tables -------------------------------------------------------------------------------- */

static int find(const struct qm_result_columns *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->name[i], name) == 0)
            return i;
    return -1;
}

static qm_status column_check(const struct fit *f, const char *table, char type, const char *name)
{
    int64_t rows;
    void *values = NULL;
    char **texts = NULL;
    qm_status st = type == 't'   ? qm_result_texts(f->r, table, name, &rows, &texts)
                   : type == 'i' ? qm_result_i64(f->r, table, name, &rows, (int64_t **)&values)
                                 : qm_result_f64(f->r, table, name, &rows, (double **)&values);
    free(texts);
    free(values);
    return damage(st);
}

/* Goes through the words "t:name" and "t?name". */
static qm_status columns_check(const struct fit *f, const struct known *k,
                               const struct qm_result_columns *c)
{
    char name[64];
    for (const char *at = k->columns; *at;) {
        size_t n = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)n - 2, at + 2);
        if (find(c, name) >= 0)
            QM_TRY(column_check(f, k->table, at[0], name));
        else if (at[1] == ':')
            return qm_fail(QM_BAD_FILE, "%s: no column '%s' in %s", f->path, name, k->table);
        at += n + strspn(at + n, " ");
    }
    /* of other tables by cell the columns have one type */
    char all = strcmp(k->table, "/axes") == 0 ? 't' : 'n';
    for (int i = 0; !*k->columns && i < c->n; i++)
        QM_TRY(column_check(f, k->table, all, c->name[i]));
    return QM_OK;
}

static qm_status table_check(struct fit *f, const struct known *k)
{
    struct qm_result_columns c = {0};
    if (!qm_result_has(f->r, k->table))
        return QM_OK;
    QM_TRY(damage(qm_result_columns(f->r, k->table, &c)));
    if (strcmp(k->table, "/cells") == 0)
        f->cells = c.rows;
    qm_status st = QM_OK;
    if (k->is_per_cell && f->cells < 0)
        st = qm_fail(QM_BAD_FILE, "%s: has %s, and no /cells that its rows belong to", f->path,
                     k->table);
    else if (k->is_per_cell && c.rows != f->cells)
        st = qm_fail(QM_BAD_FILE, "%s: %s has %lld rows, expected one for each of %lld cells",
                     f->path, k->table, (long long)c.rows, (long long)f->cells);
    if (st == QM_OK)
        st = columns_check(f, k, &c);
    qm_result_columns_free(&c);
    return st;
}

static qm_status named_check(const struct fit *f, const char *where, const int64_t *cell, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (cell[i] < 0 || cell[i] >= f->cells)
            return qm_fail(QM_BAD_FILE, "%s: row %lld of %s names cell %lld, expected 0 to %lld",
                           f->path, (long long)i, where, (long long)cell[i],
                           (long long)f->cells - 1);
    return QM_OK;
}

static qm_status runs_check(const struct fit *f)
{
    int64_t n, *cell;
    if (!qm_result_has(f->r, "/protocol/runs"))
        return QM_OK;
    QM_TRY(damage(qm_result_i64(f->r, "/protocol/runs", "cell", &n, &cell)));
    qm_status st = named_check(f, "/protocol/runs", cell, n);
    free(cell);
    return st;
}

/* ---- curves -------------------------------------------------------------------------------- */

/* The curves at `path`, of which there must be as many as owners. */
static qm_status ragged_check(const struct fit *f, const char *path, int64_t owners)
{
    struct qm_result_curves c;
    QM_TRY(damage(qm_result_ragged(f->r, path, &c)));
    int64_t n = c.n;
    qm_result_curves_free(&c);
    return n == owners ? QM_OK
                       : qm_fail(QM_BAD_FILE, "%s: %s holds %lld curves, expected %lld", f->path,
                                 path, (long long)n, (long long)owners);
}

/* Whether a dataset is one of three of a curve in the folder; path gets what they lie in. */
static int is_track(const char *set, const char *folder, char *path, size_t size)
{
    size_t n = strlen(folder);
    const char *slash = strrchr(set, '/');
    if (strncmp(set, folder, n) != 0 || set[n] != '/' || slash <= set + n)
        return 0;
    snprintf(path, size, "%.*s", (int)(slash - set), set);
    return 1;
}

static qm_status curves_check(const struct fit *f, const struct qm_listing *l, const char *folder)
{
    char owner[64], path[512], last[512] = "";
    struct qm_tensor cell;
    if (!qm_result_has(f->r, folder))
        return QM_OK;
    snprintf(owner, sizeof owner, "%s/cell", folder);
    QM_TRY(damage(qm_result_array(f->r, owner, &cell)));
    qm_status st = cell.dtype != QM_DTYPE_i64 || cell.shape.rank != 1
                       ? qm_fail(QM_BAD_FILE, "%s: %s is no list of cells", f->path, owner)
                       : named_check(f, owner, cell.data, cell.shape.dim[0]);
    int64_t owners = cell.shape.dim[0];
    free(cell.data);
    for (int i = 0; st == QM_OK && i < l->n; i++) {
        if (!is_track(l->set[i].path, folder, path, sizeof path) || strcmp(path, last) == 0)
            continue;
        st = ragged_check(f, path, owners);
        memcpy(last, path, sizeof last);
    }
    if (st == QM_OK && *last && strcmp(folder, "/curves") == 0)
        st = ragged_check(f, "/curves/step", owners);
    return st;
}

/* /decades and /unit_decades: arrays of numbers, one row per cell, but for `low`. */
static qm_status decades_check(const struct fit *f, const struct qm_listing *l)
{
    for (int i = 0; i < l->n; i++) {
        const char *path = l->set[i].path, *name = strrchr(path, '/');
        int is_low = strcmp(name, "/low") == 0;
        struct qm_tensor x;
        if (strncmp(path, "/decades/", 9) != 0 && strncmp(path, "/unit_decades/", 14) != 0)
            continue;
        QM_TRY(damage(qm_result_array(f->r, path, &x)));
        int64_t rows = x.shape.rank > 0 ? x.shape.dim[0] : 0;
        int fits = x.shape.rank == (is_low ? 1 : 2) && (is_low || rows == f->cells);
        free(x.data);
        if (!fits)
            return qm_fail(QM_BAD_FILE, "%s: %s has %lld rows or another rank, expected %s",
                           f->path, path, (long long)rows,
                           is_low ? "a list" : "a row for each cell");
    }
    return QM_OK;
}

qm_status qm_fit_check(struct qm_result *r, const char *path, const struct qm_listing *listing)
{
    struct fit f = {r, path, -1};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        QM_TRY(table_check(&f, &tables[i]));
    QM_TRY(runs_check(&f));
    QM_TRY(decades_check(&f, listing));
    QM_TRY(curves_check(&f, listing, "/curves"));
    return curves_check(&f, listing, "/stairs");
}
