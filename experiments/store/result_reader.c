/* result_reader.c - Reads result files through a reader process, and checks what it gives. */
#include "experiments/store/result_reader.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/foreign/file_sum.h"
#include "experiments/foreign/h5_attribute.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/store/result_direct.h"
#include "experiments/store/stored_digest.h"

struct qm_result {
    struct qm_reader_process *process;
    char *path, *kind;
};

enum request { HAS, COLUMNS, COLUMN, ARRAY, TEXT, NUMBER };

/* ---- in the reader process ----------------------------------------------------------------- */

/* How a file is opened; is_strict: its digest must be that of its contents. */
struct opening {
    enum qm_file_sum sum;
    int is_strict;
};

static qm_status service_open(const char *path, void *context, void **object, struct qm_blob *out)
{
    const struct opening *how = context;
    struct qm_direct *r;
    QM_TRY(qm_direct_open(path, &r));
    qm_status st = qm_stored_digest_put(qm_direct_file(r), path, how->sum, how->is_strict, out);
    if (st != QM_OK) {
        qm_direct_close(r);
        return st;
    }
    qm_blob_put_text(out, qm_direct_kind(r));
    *object = r;
    return QM_OK;
}

static qm_status serve_text(struct qm_direct *r, const char *path, const char *name,
                            struct qm_blob *out)
{
    char *text;
    QM_TRY(qm_direct_text(r, path, name, &text));
    qm_blob_put_text(out, text);
    free(text);
    return QM_OK;
}

static qm_status serve_number(struct qm_direct *r, const char *path, const char *name,
                              struct qm_blob *out)
{
    double x;
    QM_TRY(qm_direct_number(r, path, name, &x));
    qm_blob_put_bytes(out, &x, sizeof x);
    return QM_OK;
}

static qm_status service_serve(void *object, int request, struct qm_blob *in, struct qm_blob *out)
{
    struct qm_direct *r = object;
    char *path = qm_blob_take_text(in), *name = qm_blob_take_text(in);
    int64_t want = qm_blob_take_number(in);
    qm_status st = path && name ? QM_OK : qm_fail(QM_NO_MEMORY, "a path");
    if (st == QM_OK)
        switch ((enum request)request) {
        case HAS: qm_blob_put_number(out, qm_direct_has(r, path)); break;
        case COLUMNS: st = qm_direct_columns(r, path, out); break;
        case COLUMN: st = qm_direct_column(r, path, name, (enum qm_direct_column)want, out); break;
        case ARRAY: st = qm_direct_array(r, path, out); break;
        case TEXT: st = serve_text(r, path, name, out); break;
        case NUMBER: st = serve_number(r, path, name, out); break;
        }
    free(path);
    free(name);
    return st;
}

static void service_close(void *object) { qm_direct_close(object); }

static const struct qm_reader_service service = {service_open, service_serve, service_close};

/* ---- files --------------------------------------------------------------------------------- */

static qm_status open_file(const char *path, int is_strict, struct qm_result **out)
{
    struct opening how = {.is_strict = is_strict};
    struct qm_blob first;
    struct qm_file_mark mark;
    struct qm_result *r = calloc(1, sizeof *r);
    if (!r || !(r->path = strdup(path))) {
        free(r);
        return qm_fail(QM_NO_MEMORY, "%s", path);
    }
    qm_status st = qm_file_sum_check_marked(path, &mark, &how.sum);
    if (st == QM_OK)
        st = qm_reader_start(&service, path, &how, 0, &mark, &first, &r->process);
    if (st == QM_OK) {
        int is_taken = qm_stored_digest_take(path, &first);
        r->kind = qm_blob_take_text(&first);
        st = is_taken && r->kind ? QM_OK : qm_reader_garbled(r->process);
    }
    if (st == QM_OK)
        *out = r;
    else
        qm_result_close(r);
    return st;
}

qm_status qm_result_open(const char *path, struct qm_result **out)
{
    return open_file(path, 0, out);
}

qm_status qm_result_open_unchanged(const char *path, struct qm_result **out)
{
    return open_file(path, 1, out);
}

void qm_result_close(struct qm_result *r)
{
    if (!r)
        return;
    qm_reader_end(r->process);
    free(r->kind);
    free(r->path);
    free(r);
}

const char *qm_result_kind(const struct qm_result *r) { return r->kind; }

static qm_status ask(struct qm_result *r, enum request request, const char *path, const char *name,
                     int64_t want, struct qm_blob *answer)
{
    struct qm_blob in = qm_reader_request(r->process);
    qm_blob_put_text(&in, path);
    qm_blob_put_text(&in, name);
    qm_blob_put_number(&in, want);
    qm_status st = qm_reader_ask(r->process, request, &in, answer);
    return st == QM_BAD_ARG ? QM_BAD_FILE : st; /* paths are the program's: the file is wrong */
}

int qm_result_has(struct qm_result *r, const char *path)
{
    struct qm_blob a;
    return ask(r, HAS, path, "", 0, &a) == QM_OK && qm_blob_take_number(&a) == 1;
}

/* ---- tables -------------------------------------------------------------------------------- */

/* A column of `want` values, each of `size` bytes (0: any), as it lies in the answer; NULL: there
 * is a failure, *st. */
static const char *column(struct qm_result *r, const char *table, const char *name,
                          enum qm_direct_column want, int64_t *rows, size_t *size, qm_status *st)
{
    struct qm_blob a;
    size_t bytes = 0;
    if ((*st = ask(r, COLUMN, table, name, want, &a)) != QM_OK)
        return NULL;
    int64_t n = qm_blob_take_number(&a), width = qm_blob_take_number(&a);
    int good = n >= 0 && width > 0 && (*size == 0 || (size_t)width == *size) &&
               !__builtin_mul_overflow((size_t)n, (size_t)width, &bytes);
    const void *values = good ? qm_blob_take(&a, bytes) : NULL;
    if (!values)
        *st = qm_reader_garbled(r->process);
    *rows = n;
    *size = (size_t)width;
    return values;
}

static qm_status numbers(struct qm_result *r, const char *table, const char *name,
                         enum qm_direct_column want, int64_t *rows, void **out)
{
    qm_status st;
    int64_t n;
    size_t size = 8;
    const char *values = column(r, table, name, want, &n, &size, &st);
    if (!values)
        return st;
    void *copy = malloc(n > 0 ? (size_t)n * size : 1);
    if (!copy)
        return qm_fail(QM_NO_MEMORY, "%s: column '%s'", r->path, name);
    memcpy(copy, values, (size_t)n * size);
    *rows = n;
    *out = copy;
    return QM_OK;
}

qm_status qm_result_f64(struct qm_result *r, const char *table, const char *name, int64_t *rows,
                        double **out)
{
    void *data = NULL;
    QM_TRY(numbers(r, table, name, QM_DIRECT_numbers, rows, &data));
    *out = data;
    return QM_OK;
}

qm_status qm_result_i64(struct qm_result *r, const char *table, const char *name, int64_t *rows,
                        int64_t **out)
{
    void *data = NULL;
    QM_TRY(numbers(r, table, name, QM_DIRECT_integers, rows, &data));
    *out = data;
    return QM_OK;
}

qm_status qm_result_texts(struct qm_result *r, const char *table, const char *name, int64_t *rows,
                          char ***out)
{
    qm_status st;
    int64_t n;
    size_t width = 0;
    const char *values = column(r, table, name, QM_DIRECT_texts, &n, &width, &st);
    if (!values)
        return st;
    char **texts = qm_h5_texts_of(values, (size_t)n, width);
    if (!texts)
        return qm_fail(QM_NO_MEMORY, "%s: column '%s'", r->path, name);
    *rows = n;
    *out = texts;
    return QM_OK;
}

static void take_column(struct qm_blob *a, struct qm_result_columns *c, int i)
{
    int64_t type = qm_blob_take_number(a);
    if (type < 0 || type > QM_COLUMN_text)
        a->bad = 1;
    c->type[i] = a->bad ? QM_COLUMN_text : (enum qm_column_type)type;
    c->name[i] = qm_blob_take_text(a);
    c->unit[i] = qm_blob_take_text(a);
    c->text[i] = qm_blob_take_text(a);
}

qm_status qm_result_columns(struct qm_result *r, const char *table, struct qm_result_columns *out)
{
    struct qm_blob a;
    QM_TRY(ask(r, COLUMNS, table, "", 0, &a));
    int64_t n = qm_blob_take_number(&a), rows = qm_blob_take_number(&a);
    if (a.bad || n < 0 || n > (int64_t)a.used / 32 || rows < 0)
        return qm_reader_garbled(r->process);
    size_t room = (size_t)n + 1;
    struct qm_result_columns c = {.n = (int)n,
                                  .rows = rows,
                                  .type = calloc(room, sizeof *c.type),
                                  .name = calloc(room, sizeof *c.name),
                                  .unit = calloc(room, sizeof *c.unit),
                                  .text = calloc(room, sizeof *c.text)};
    if (!c.type || !c.name || !c.unit || !c.text) {
        qm_result_columns_free(&c);
        return qm_fail(QM_NO_MEMORY, "names of %d columns", c.n);
    }
    for (int i = 0; i < c.n; i++)
        take_column(&a, &c, i);
    if (a.bad) {
        qm_result_columns_free(&c);
        return qm_reader_garbled(r->process);
    }
    *out = c;
    return QM_OK;
}

void qm_result_columns_free(struct qm_result_columns *c)
{
    for (int i = 0; i < c->n; i++) {
        if (c->name)
            free(c->name[i]);
        if (c->unit)
            free(c->unit[i]);
        if (c->text)
            free(c->text[i]);
    }
    free(c->name);
    free(c->type);
    free(c->unit);
    free(c->text);
}

/* ---- arrays and curves --------------------------------------------------------------------- */

qm_status qm_result_array(struct qm_result *r, const char *path, struct qm_tensor *out)
{
    struct qm_blob a;
    QM_TRY(ask(r, ARRAY, path, "", 0, &a));
    int64_t dtype = qm_blob_take_number(&a), rank = qm_blob_take_number(&a), n = -1;
    struct qm_tensor t = {NULL, QM_DTYPE_COUNT, {0, {0}}};
    int good = dtype >= 0 && dtype < QM_DTYPE_COUNT && rank >= 0 && rank <= QM_MAX_RANK;
    const void *dims = good ? qm_blob_take(&a, (size_t)rank * sizeof *t.shape.dim) : NULL;
    if (dims) {
        t.dtype = (enum qm_dtype)dtype;
        t.shape.rank = (int)rank;
        memcpy(t.shape.dim, dims, (size_t)rank * sizeof *t.shape.dim);
        n = qm_shape_numel(&t.shape);
    }
    if (n < 0)
        return qm_reader_garbled(r->process);
    t.data = qm_blob_take_copy(&a, n, qm_dtype_size(t.dtype));
    if (!t.data)
        return qm_reader_garbled(r->process);
    *out = t;
    return QM_OK;
}

/* Reads the array folder/name, which must be 1-D and of this type. */
static qm_status line_read(struct qm_result *r, const char *folder, const char *name,
                           enum qm_dtype dtype, int64_t *n, void **out)
{
    char path[512];
    struct qm_tensor t;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    QM_TRY(qm_result_array(r, path, &t));
    if (t.dtype != dtype || t.shape.rank != 1) {
        free(t.data);
        return qm_fail(QM_BAD_FILE, "%s: %s is no part of ragged curves", r->path, path);
    }
    *n = t.shape.dim[0];
    *out = t.data;
    return QM_OK;
}

qm_status qm_result_ragged(struct qm_result *r, const char *path, struct qm_result_curves *out)
{
    void *value = NULL, *offset = NULL, *length = NULL;
    int64_t total = 0, n = 0, lengths = 0;
    qm_status st = line_read(r, path, "value", QM_DTYPE_f64, &total, &value);
    if (st == QM_OK)
        st = line_read(r, path, "offset", QM_DTYPE_i64, &n, &offset);
    if (st == QM_OK)
        st = line_read(r, path, "length", QM_DTYPE_i64, &lengths, &length);
    struct qm_result_curves c = {n, offset, length, value};
    int inside = n == lengths;
    for (int64_t i = 0; st == QM_OK && inside && i < n; i++)
        inside = c.offset[i] >= 0 && c.length[i] >= 0 && c.offset[i] <= total &&
                 c.length[i] <= total - c.offset[i];
    if (st == QM_OK && !inside)
        st = qm_fail(QM_BAD_FILE, "%s: %s has a curve outside its values", r->path, path);
    if (st == QM_OK)
        *out = c;
    else
        qm_result_curves_free(&c);
    return st;
}

void qm_result_curves_free(struct qm_result_curves *c)
{
    free(c->offset);
    free(c->length);
    free(c->value);
}

/* ---- attributes ---------------------------------------------------------------------------- */

qm_status qm_result_text(struct qm_result *r, const char *path, const char *name, char **out)
{
    struct qm_blob a;
    QM_TRY(ask(r, TEXT, path, name, 0, &a));
    char *text = qm_blob_take_text(&a);
    if (!text)
        return qm_reader_garbled(r->process);
    *out = text;
    return QM_OK;
}

qm_status qm_result_number(struct qm_result *r, const char *path, const char *name, double *out)
{
    struct qm_blob a;
    QM_TRY(ask(r, NUMBER, path, name, 0, &a));
    const void *x = qm_blob_take(&a, sizeof *out);
    if (!x)
        return qm_reader_garbled(r->process);
    memcpy(out, x, sizeof *out);
    return QM_OK;
}
