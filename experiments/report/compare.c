/* compare.c - Compares two result files cell by cell. */
#include "experiments/report/compare.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/lockstep/lockstep.h"

static const double ALPHA = 0.05;

static const char *const names[] = {
#define X(name, text) text,
    QM_COMPARED_LIST(X)
#undef X
};
const char *qm_compared_name(enum qm_compared c) { return names[c]; }

int qm_compare_direction(const char *metric)
{
    int i = qm_value_find(metric);
    return i < 0 ? QM_BETTER_none : qm_value_better(i);
}

/* ---- files and pairs ------------------------------------------------------------------------- */

/* The cells of one file. */
struct cells {
    struct qm_result *file;
    int64_t n;
    char **id, **variant, **status;
    int64_t *order; /* rows by id, then row */
};

struct pair {
    int64_t a, b;
    const char *variant;
};

static int by_id(const void *x, const void *y, void *context)
{
    const struct cells *s = context;
    int64_t i = *(const int64_t *)x, j = *(const int64_t *)y;
    int order = strcmp(s->id[i], s->id[j]);
    return order ? order : (i > j) - (i < j);
}

static qm_status cells_open(const char *path, struct cells *s)
{
    QM_TRY(qm_result_open(path, &s->file));
    qm_status st = qm_result_texts(s->file, "/cells", "id", &s->n, &s->id);
    if (st == QM_NO_MATCH)
        return qm_fail(QM_BAD_FILE, "%s: its cells have no id; it is no run, or an old one", path);
    QM_TRY(st);
    QM_TRY(qm_result_texts(s->file, "/cells", "variant", &s->n, &s->variant));
    QM_TRY(qm_result_texts(s->file, "/cells", "status", &s->n, &s->status));
    s->order = calloc((size_t)s->n + 1, sizeof *s->order);
    if (!s->order)
        return qm_fail(QM_NO_MEMORY, "%lld cells", (long long)s->n);
    for (int64_t i = 0; i < s->n; i++)
        s->order[i] = i;
    qsort_r(s->order, (size_t)s->n, sizeof *s->order, by_id, s);
    return QM_OK;
}

static void cells_close(struct cells *s)
{
    qm_result_close(s->file);
    free(s->id);
    free(s->variant);
    free(s->status);
    free(s->order);
}

static int by_variant(const void *x, const void *y)
{
    const struct pair *p = x, *q = y;
    int order = strcmp(p->variant, q->variant);
    return order ? order : (p->a > q->a) - (p->a < q->a);
}

/* Merges both orders into pairs of equal id, sorted by variant; returns their number. */
static int64_t make_pairs(const struct cells *a, const struct cells *b, struct pair *pair)
{
    int64_t n = 0;
    for (int64_t i = 0, j = 0; i < a->n && j < b->n;) {
        int order = strcmp(a->id[a->order[i]], b->id[b->order[j]]);
        if (order == 0) {
            pair[n++] = (struct pair){a->order[i], b->order[j], a->variant[a->order[i]]};
        }
        i += order <= 0;
        j += order >= 0;
    }
    qsort(pair, (size_t)n, sizeof *pair, by_variant);
    return n;
}

static void count_lost(const struct cells *a, const struct cells *b, const struct pair *pair,
                       struct qm_comparison *c)
{
    for (int64_t i = 0; i < c->pairs; i++) {
        int ok_a = strcmp(a->status[pair[i].a], "ok") == 0;
        int ok_b = strcmp(b->status[pair[i].b], "ok") == 0;
        c->lost += ok_a && !ok_b;
        c->found += ok_b && !ok_a;
    }
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Sets mean, interval, p and verdict of r from the differences x[n]; broken and mended are set. */
static void judge(struct qm_compare_row *r, const double *x, int64_t n)
{
    double sum = 0.0, squares = 0.0;
    int64_t jumps = r->broken + r->mended;
    r->n = n;
    r->mean = r->lo = r->hi = r->p = r->q = nan("");
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
        r->equal += x[i] == 0.0;
        r->most = fmax(r->most, fabs(x[i]));
    }
    r->mean = n ? sum / (double)n : nan("");
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - r->mean) * (x[i] - r->mean);
    double error = n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : nan("");
    if (n > 1 && r->equal < n) {
        double half = gsl_cdf_tdist_Pinv(1.0 - ALPHA / 2.0, (double)(n - 1)) * error;
        r->lo = r->mean - half;
        r->hi = r->mean + half;
        double t = (double)r->direction * r->mean / error; /* error 0: infinite, p 0 or 1 */
        r->p = r->direction ? gsl_cdf_tdist_P(t, (double)(n - 1)) : nan("");
    }
    r->verdict = r->equal == n && !jumps ? QM_COMPARED_same
                 : !r->direction         ? QM_COMPARED_changed
                 : r->equal < n && n < 2 ? QM_COMPARED_few
                                         : QM_COMPARED_unclear;
}

static int by_p(const void *x, const void *y)
{
    double p = (*(struct qm_compare_row *const *)x)->p, q = (*(struct qm_compare_row *const *)y)->p;
    return (p > q) - (p < q);
}

/* Sets the adjusted p-values of all rows that have a p-value, and their verdicts. */
static qm_status discover(struct qm_comparison *c, double margin)
{
    struct qm_compare_row **with = calloc((size_t)c->n_rows + 1, sizeof(struct qm_compare_row *));
    int m = 0;
    if (!with)
        return qm_fail(QM_NO_MEMORY, "%d comparisons", c->n_rows);
    for (int i = 0; i < c->n_rows; i++)
        if (!isnan(c->row[i].p))
            with[m++] = &c->row[i];
    qsort(with, (size_t)m, sizeof *with, by_p);
    double least = 1.0;
    for (int i = m - 1; i >= 0; i--) {
        struct qm_compare_row *r = with[i];
        least = fmin(least, r->p * (double)m / (double)(i + 1));
        r->q = least;
        double gain = (double)r->direction * r->mean;
        int above = r->direction > 0 ? r->lo > 0.0 : r->hi < 0.0;
        if (r->q <= ALPHA)
            r->verdict = gain < -margin ? QM_COMPARED_worse : QM_COMPARED_within;
        else if (above)
            r->verdict = gain > margin ? QM_COMPARED_better : QM_COMPARED_within;
    }
    for (int i = 0; i < c->n_rows; i++) { /* no margin reaches to or from infinity */
        if (c->row[i].direction && c->row[i].broken)
            c->row[i].verdict = QM_COMPARED_worse;
        c->worse += c->row[i].verdict == QM_COMPARED_worse;
        c->row[i].differs = c->row[i].most > margin || c->row[i].broken + c->row[i].mended > 0;
        if (!c->row[i].differs && c->row[i].verdict != QM_COMPARED_same)
            c->row[i].verdict = QM_COMPARED_within;
        c->differ += c->row[i].differs;
    }
    free(with);
    return QM_OK;
}

/* ---- metrics --------------------------------------------------------------------------------- */

/* Pairs of which a number is not finite; they have no difference. */
struct jumps {
    int64_t broken, mended;
};

static void count_jump(struct jumps *j, double before, double after, int direction)
{
    int is_worse = isnan(after) || (!isnan(before) && (after > before ? -1 : 1) * direction > 0);
    if (isnan(before) && isnan(after))
        return;
    j->broken += is_worse;
    j->mended += !is_worse;
}

static qm_status row_add(struct qm_comparison *c, const char *variant, const char *metric,
                         int direction, const struct jumps *jumps, const double *x, int64_t n)
{
    struct qm_compare_row *more = realloc(c->row, ((size_t)c->n_rows + 1) * sizeof *more);
    if (!more)
        return qm_fail(QM_NO_MEMORY, "%d comparisons", c->n_rows + 1);
    c->row = more;
    struct qm_compare_row r = {
        .direction = direction, .broken = jumps->broken, .mended = jumps->mended};
    r.variant = strdup(variant);
    r.metric = strdup(metric);
    judge(&r, x, n);
    c->row[c->n_rows++] = r;
    return r.variant && r.metric ? QM_OK : qm_fail(QM_NO_MEMORY, "a comparison");
}

/* Compares one metric of all variants.  QM_NO_MATCH: one of the files lacks it. */
static qm_status metric_compare(const struct cells *a, const struct cells *b,
                                const struct pair *pair, const char *metric, int direction,
                                double *x, struct qm_comparison *c)
{
    double *va = NULL, *vb = NULL;
    int64_t na, nb;
    qm_status st = qm_result_f64(a->file, "/metrics", metric, &na, &va);
    if (st == QM_OK)
        st = qm_result_f64(b->file, "/metrics", metric, &nb, &vb);
    if (st == QM_OK && (na != a->n || nb != b->n))
        st = qm_fail(QM_BAD_FILE, "/metrics has %lld and %lld rows, /cells %lld and %lld",
                     (long long)na, (long long)nb, (long long)a->n, (long long)b->n);
    for (int64_t i = 0, end; st == QM_OK && i < c->pairs; i = end) {
        struct jumps jumps = {0, 0};
        int64_t n = 0;
        for (end = i; end < c->pairs && strcmp(pair[end].variant, pair[i].variant) == 0; end++) {
            double before = va[pair[end].a], after = vb[pair[end].b];
            if (before == after && !isnan(before))
                x[n++] = 0.0; /* also for equal infinities */
            else if (isfinite(before) && isfinite(after))
                x[n++] = after - before;
            else
                count_jump(&jumps, before, after, direction);
        }
        if (n + jumps.broken + jumps.mended > 0)
            st = row_add(c, pair[i].variant, metric, direction, &jumps, x, n);
    }
    free(va);
    free(vb);
    return st;
}

static qm_status all_metrics(const struct cells *a, const struct cells *b, const struct pair *pair,
                             double *x, struct qm_comparison *c)
{
    struct qm_result_columns columns = {0};
    QM_TRY(qm_result_columns(a->file, "/metrics", &columns));
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < columns.n; i++) {
        st = metric_compare(a, b, pair, columns.name[i], qm_compare_direction(columns.name[i]), x,
                            c);
        st = st == QM_NO_MATCH ? QM_OK : st; /* a metric of one version only */
    }
    qm_result_columns_free(&columns);
    return st;
}

/* ---- columns --------------------------------------------------------------------------------- */

static qm_status column_add(struct qm_comparison *c, const char *table, const char *name, char in,
                            int64_t differ)
{
    struct qm_compare_column *all = reallocarray(c->column, (size_t)c->n_columns + 1, sizeof *all);
    char *path = NULL;
    if (all)
        c->column = all;
    if (!all || asprintf(&path, "%s/%s", table + 1, name) < 0)
        return qm_fail(QM_NO_MEMORY, "%s/%s", table, name);
    c->column[c->n_columns++] = (struct qm_compare_column){path, in, differ};
    return QM_OK;
}

static int column_find(const struct qm_result_columns *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->name[i], name) == 0)
            return i;
    return -1;
}

/* Adds a column of texts or numbers of /cells where pairs differ. */
static qm_status column_compare(const struct cells *a, const struct cells *b,
                                const struct pair *pair, const char *name, int is_text,
                                struct qm_comparison *c)
{
    char **ta = NULL, **tb = NULL;
    double *va = NULL, *vb = NULL;
    int64_t na, nb, differ = 0;
    qm_status st = is_text ? qm_result_texts(a->file, "/cells", name, &na, &ta)
                           : qm_result_f64(a->file, "/cells", name, &na, &va);
    if (st == QM_OK)
        st = is_text ? qm_result_texts(b->file, "/cells", name, &nb, &tb)
                     : qm_result_f64(b->file, "/cells", name, &nb, &vb);
    for (int64_t i = 0; st == QM_OK && i < c->pairs; i++) {
        int64_t k = pair[i].a, l = pair[i].b;
        differ +=
            is_text ? strcmp(ta[k], tb[l]) != 0 : va[k] != vb[l] && !(isnan(va[k]) && isnan(vb[l]));
    }
    free(ta);
    free(tb);
    free(va);
    free(vb);
    return st == QM_OK && differ > 0 ? column_add(c, "/cells", name, 0, differ) : st;
}

/* Adds what one file alone has of a table's columns and, of /cells, where pairs differ. */
static qm_status all_columns(const struct cells *a, const struct cells *b, const struct pair *pair,
                             const char *table, struct qm_comparison *c)
{
    struct qm_result_columns of_a = {0}, of_b = {0};
    int is_cells = strcmp(table, "/cells") == 0;
    qm_status st = qm_result_columns(a->file, table, &of_a);
    if (st == QM_OK)
        st = qm_result_columns(b->file, table, &of_b);
    for (int i = 0; st == QM_OK && i < of_a.n; i++) {
        int k = column_find(&of_b, of_a.name[i]), is_text = of_a.type[i] == QM_COLUMN_text;
        if (k < 0)
            st = column_add(c, table, of_a.name[i], 'a', 0);
        else if (is_text != (of_b.type[k] == QM_COLUMN_text)) /* texts here, numbers there */
            st = column_add(c, table, of_a.name[i], 0, c->pairs);
        else if (is_cells && strcmp(of_a.name[i], "cell") != 0 && strcmp(of_a.unit[i], "s") != 0)
            st = column_compare(a, b, pair, of_a.name[i], is_text, c);
    }
    for (int i = 0; st == QM_OK && i < of_b.n; i++)
        if (column_find(&of_a, of_b.name[i]) < 0)
            st = column_add(c, table, of_b.name[i], 'b', 0);
    qm_result_columns_free(&of_a);
    qm_result_columns_free(&of_b);
    return st;
}

static qm_status some_metrics(const struct cells *a, const struct cells *b, const struct pair *pair,
                              char *const *metric, int n, double *x, struct qm_comparison *c)
{
    for (int i = 0; i < n; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s", metric[i]);
        size_t end = strlen(name);
        char sign = end ? name[end - 1] : 0;
        if (sign == '+' || sign == '-')
            name[end - 1] = 0;
        int direction = sign == '+' ? 1 : sign == '-' ? -1 : qm_compare_direction(name);
        QM_TRY(metric_compare(a, b, pair, name, direction, x, c));
    }
    return QM_OK;
}

static int by_row_variant(const void *x, const void *y)
{
    return strcmp(((const struct qm_compare_row *)x)->variant,
                  ((const struct qm_compare_row *)y)->variant);
}

qm_status qm_compare(const char *path_a, const char *path_b, char *const *metric, int n_metrics,
                     double margin, struct qm_comparison *out)
{
    struct cells a = {0}, b = {0};
    struct qm_comparison c = {0};
    struct pair *pair = NULL;
    double *x = NULL;
    qm_status st = cells_open(path_a, &a);
    if (st == QM_OK)
        st = cells_open(path_b, &b);
    if (st == QM_OK) {
        pair = calloc((size_t)a.n + 1, sizeof *pair);
        x = calloc((size_t)a.n + 1, sizeof *x);
        st = pair && x ? QM_OK : qm_fail(QM_NO_MEMORY, "%lld cells", (long long)a.n);
    }
    if (st == QM_OK) {
        c.cells_a = a.n;
        c.cells_b = b.n;
        c.pairs = make_pairs(&a, &b, pair);
        count_lost(&a, &b, pair, &c);
        if (c.pairs == 0)
            st = qm_fail(QM_NO_MATCH, "%s and %s have no cell in common", path_a, path_b);
    }
    if (st == QM_OK)
        st = metric ? some_metrics(&a, &b, pair, metric, n_metrics, x, &c)
                    : all_metrics(&a, &b, pair, x, &c);
    for (int i = 0; i < 2 && st == QM_OK; i++)
        st = all_columns(&a, &b, pair, i ? "/metrics" : "/cells", &c);
    if (st == QM_OK)
        st = discover(&c, margin);
    if (st == QM_OK && c.n_rows > 0)
        qsort(c.row, (size_t)c.n_rows, sizeof *c.row, by_row_variant);
    cells_close(&a);
    cells_close(&b);
    free(pair);
    free(x);
    if (st == QM_OK)
        *out = c;
    else
        qm_comparison_free(&c);
    return st;
}

void qm_comparison_free(struct qm_comparison *c)
{
    for (int i = 0; i < c->n_rows; i++) {
        free(c->row[i].variant);
        free(c->row[i].metric);
    }
    free(c->row);
    for (int i = 0; i < c->n_columns; i++)
        free(c->column[i].name);
    free(c->column);
    *c = (struct qm_comparison){0};
}
