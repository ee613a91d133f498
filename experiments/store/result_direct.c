/* result_direct.c - What a reader process does with a result file: tables, arrays, attributes. */
#include "experiments/store/result_direct.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/foreign/h5_attribute.h"
#include "experiments/foreign/h5_chunks.h"
#include "experiments/foreign/h5_guard.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/store/h5.h"

enum { CACHE = 4 << 20 }; /* bytes of the chunk cache */

struct qm_direct {
    hid_t file;
    char *path, *kind;
};

/* ---- texts --------------------------------------------------------------------------------- */

static int is_fixed_text(hid_t type)
{
    return H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0;
}

/* ---- files --------------------------------------------------------------------------------- */

static qm_status schema_check(struct qm_direct *r)
{
    char *schema = NULL;
    double version = 0;
    if (qm_h5_attribute_text(r->file, "schema", &schema) != QM_OK ||
        strcmp(schema, QM_H5_SCHEMA) != 0 ||
        qm_h5_attribute_number(r->file, "schema_version", &version) != QM_OK ||
        qm_h5_attribute_text(r->file, "kind", &r->kind) != QM_OK) {
        free(schema);
        return qm_fail(QM_BAD_FILE,
                       "%s: is no result file of qualm: expected the attributes 'schema' ('%s'), "
                       "'schema_version' and 'kind'",
                       r->path, QM_H5_SCHEMA);
    }
    free(schema);
    if (version != QM_H5_SCHEMA_VERSION)
        return qm_fail(QM_BAD_FILE, "%s: has schema version %g; this program reads version %d",
                       r->path, version, QM_H5_SCHEMA_VERSION);
    return QM_OK;
}

qm_status qm_direct_open(const char *path, struct qm_direct **out)
{
    struct qm_direct *r = calloc(1, sizeof *r);
    if (!r)
        return qm_fail(QM_NO_MEMORY, "%s", path);
    r->file = -1;
    r->path = strdup(path);
    qm_status st =
        r->path ? qm_h5_guard_open(path, CACHE, &r->file) : qm_fail(QM_NO_MEMORY, "%s", path);
    if (st == QM_OK)
        st = schema_check(r);
    if (st == QM_OK)
        *out = r;
    else
        qm_direct_close(r);
    return st;
}

void qm_direct_close(struct qm_direct *r)
{
    if (!r)
        return;
    if (r->file >= 0)
        H5Fclose(r->file);
    free(r->kind);
    free(r->path);
    free(r);
}

const char *qm_direct_kind(const struct qm_direct *r) { return r->kind; }

hid_t qm_direct_file(const struct qm_direct *r) { return r->file; }

/* Tests group by group, because H5Lexists fails when a group on the path is missing. */
int qm_direct_has(struct qm_direct *r, const char *path)
{
    char *text = strdup(path);
    int there = text != NULL;
    for (char *at = text ? text + 1 : NULL; there && *at;) {
        at += strcspn(at, "/");
        char end = *at;
        *at = 0;
        there = H5Lexists(r->file, text, H5P_DEFAULT) > 0;
        *at = end;
        at += end != 0;
    }
    free(text);
    return there;
}

/* ---- datasets ------------------------------------------------------------------------------ */

/* An open dataset. */
struct set {
    hid_t id, type, space;
};

static void set_close(struct set *d)
{
    qm_h5_close(d->space);
    qm_h5_close(d->type);
    qm_h5_close(d->id);
}

static qm_status set_open(struct qm_direct *r, const char *path, struct set *out)
{
    qm_h5_quiet();
    if (!qm_direct_has(r, path))
        return qm_fail(QM_NO_MATCH, "%s: no %s in it", r->path, path);
    struct set d = {H5Dopen2(r->file, path, H5P_DEFAULT), -1, -1};
    if (d.id >= 0) {
        d.type = H5Dget_type(d.id);
        d.space = H5Dget_space(d.id);
    }
    if (d.type < 0 || d.space < 0) {
        set_close(&d);
        return qm_fail(QM_BAD_ARG, "%s: %s is not a dataset", r->path, path);
    }
    qm_status st = qm_h5_guard_dataset(r->path, path, d.id);
    if (st == QM_OK)
        st = qm_h5_chunks_check(r->path, path, d.id);
    if (st != QM_OK) {
        set_close(&d);
        return st;
    }
    *out = d;
    return QM_OK;
}

static qm_status table_open(struct qm_direct *r, const char *path, struct set *out)
{
    struct set d;
    QM_TRY(set_open(r, path, &d));
    if (H5Tget_class(d.type) != H5T_COMPOUND || H5Sget_simple_extent_ndims(d.space) != 1) {
        set_close(&d);
        return qm_fail(QM_BAD_ARG, "%s: %s is not a table", r->path, path);
    }
    *out = d;
    return QM_OK;
}

/* ---- tables -------------------------------------------------------------------------------- */

static qm_status column_find(struct qm_direct *r, const struct set *d, const char *table,
                             const char *column, hid_t *member)
{
    int i = H5Tget_member_index(d->type, column);
    if (i < 0)
        return qm_fail(QM_NO_MATCH, "%s: no column '%s' in %s", r->path, column, table);
    *member = H5Tget_member_type(d->type, (unsigned)i);
    return *member < 0 ? qm_h5_fail(QM_BAD_FILE, "%s: column '%s'", r->path, column) : QM_OK;
}

/* Puts one member of every row, converted to type `as`: rows, bytes of a value, the values. */
static qm_status column_put(struct qm_direct *r, const struct set *d, const char *column, hid_t as,
                            struct qm_blob *out)
{
    hssize_t rows = H5Sget_simple_extent_npoints(d->space);
    size_t width = H5Tget_size(as), bytes = 0;
    hid_t row = H5Tcreate(H5T_COMPOUND, width);
    qm_status st = QM_OK;
    qm_blob_put_number(out, rows);
    qm_blob_put_number(out, (int64_t)width);
    int fits = rows >= 0 && !__builtin_mul_overflow((size_t)rows, width, &bytes);
    void *data = fits ? qm_blob_put(out, bytes) : NULL;
    if (row < 0 || H5Tinsert(row, column, 0, as) < 0)
        st = qm_h5_fail(QM_BAD_FILE, "%s: column '%s'", r->path, column);
    else if (data && rows > 0 && H5Dread(d->id, row, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        st = qm_h5_fail(QM_BAD_FILE, "%s: column '%s' cannot be read", r->path, column);
    else if (!fits)
        out->bad = 1;
    qm_h5_close(row);
    return st;
}

static const char *const kinds[] = {"integers", "numbers", "text"};

/* The type in which a column is handed over, which the caller closes; negative: it has
 * another kind. */
static hid_t column_type(hid_t member, enum qm_direct_column want)
{
    H5T_class_t class = H5Tget_class(member);
    if (want == QM_DIRECT_texts)
        return is_fixed_text(member) ? H5Tcopy(member) : -1;
    enum qm_dtype dtype;
    if (class == H5T_INTEGER || (want == QM_DIRECT_numbers && qm_h5_guard_float(member, &dtype)))
        return H5Tcopy(want == QM_DIRECT_numbers ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64);
    return -1;
}

qm_status qm_direct_column(struct qm_direct *r, const char *table, const char *column,
                           enum qm_direct_column want, struct qm_blob *out)
{
    struct set d;
    QM_TRY(table_open(r, table, &d));
    hid_t member = -1;
    qm_status st = column_find(r, &d, table, column, &member);
    hid_t as = st == QM_OK ? column_type(member, want) : -1;
    if (st == QM_OK && as < 0)
        st = qm_fail(QM_BAD_ARG, "%s: column '%s' of %s holds no %s", r->path, column, table,
                     kinds[want]);
    if (st == QM_OK)
        st = column_put(r, &d, column, as, out);
    qm_h5_close(as);
    qm_h5_close(member);
    set_close(&d);
    return st;
}

static void columns_put(const struct set *d, int n, char **unit, char **text, struct qm_blob *out)
{
    qm_blob_put_number(out, n);
    qm_blob_put_number(out, (int64_t)H5Sget_simple_extent_npoints(d->space));
    for (int i = 0; i < n; i++) {
        char *name = H5Tget_member_name(d->type, (unsigned)i);
        H5T_class_t class = H5Tget_member_class(d->type, (unsigned)i);
        qm_blob_put_number(out, class == H5T_INTEGER ? QM_COLUMN_i64
                                : class == H5T_FLOAT ? QM_COLUMN_f64
                                                     : QM_COLUMN_text);
        qm_blob_put_text(out, name);
        qm_blob_put_text(out, unit[i]);
        qm_blob_put_text(out, text[i]);
        H5free_memory(name);
    }
}

qm_status qm_direct_columns(struct qm_direct *r, const char *table, struct qm_blob *out)
{
    struct set d;
    QM_TRY(table_open(r, table, &d));
    int n = H5Tget_nmembers(d.type);
    char **unit = NULL, **text = NULL;
    size_t units = 0, texts = 0;
    qm_status st = qm_h5_attribute_texts(d.id, "column_units", &units, &unit);
    if (st == QM_OK)
        st = qm_h5_attribute_texts(d.id, "column_text", &texts, &text);
    if (st == QM_NO_MATCH) /* the table is there, and every writer says what its columns are */
        st = QM_BAD_FILE;
    if (st == QM_OK && (n < 0 || units != (size_t)n || texts != (size_t)n))
        st = qm_fail(QM_BAD_FILE,
                     "%s: %s: attributes 'column_units' and 'column_text' do not "
                     "have a text for each of its %d columns",
                     r->path, table, n);
    if (st == QM_OK)
        columns_put(&d, n, unit, text, out);
    free(unit);
    free(text);
    set_close(&d);
    return st;
}

/* ---- arrays -------------------------------------------------------------------------------- */

static enum qm_dtype dtype_of(hid_t type)
{
    enum qm_dtype out = QM_DTYPE_COUNT;
    for (int k = 0; k < QM_DTYPE_COUNT && out == QM_DTYPE_COUNT; k++) {
        hid_t known = qm_h5_type((enum qm_dtype)k);
        if (known >= 0 && H5Tequal(known, type) > 0)
            out = (enum qm_dtype)k;
        qm_h5_close(known);
    }
    return out;
}

static qm_status array_put(struct qm_direct *r, const char *path, const struct set *d,
                           struct qm_blob *out)
{
    enum qm_dtype dtype = dtype_of(d->type);
    hsize_t dim[H5S_MAX_RANK];
    int rank = H5Sget_simple_extent_dims(d->space, dim, NULL);
    if (dtype == QM_DTYPE_COUNT || rank < 0 || rank > QM_MAX_RANK)
        return qm_fail(QM_BAD_ARG, "%s: %s is not an array of numbers", r->path, path);
    struct qm_shape shape = {rank, {0}};
    for (int i = 0; i < rank; i++)
        shape.dim[i] = dim[i] <= INT64_MAX ? (int64_t)dim[i] : -1;
    int64_t n = qm_shape_numel(&shape), bytes = 0;
    if (n < 0 || __builtin_mul_overflow(n, (int64_t)qm_dtype_size(dtype), &bytes))
        return qm_fail(QM_BAD_FILE, "%s: %s does not fit in 2^63 bytes", r->path, path);
    qm_blob_put_number(out, dtype);
    qm_blob_put_number(out, rank);
    qm_blob_put_bytes(out, shape.dim, (size_t)rank * sizeof *shape.dim);
    void *data = qm_blob_put(out, (size_t)bytes);
    hid_t native = qm_h5_native(dtype);
    qm_status st = QM_OK;
    if (native < 0)
        st = qm_fail(QM_NO_MEMORY, "%s: %s", r->path, path);
    else if (data && n > 0 && H5Dread(d->id, native, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        st = qm_h5_fail(QM_BAD_FILE, "%s: %s cannot be read", r->path, path);
    qm_h5_close(native);
    return st;
}

qm_status qm_direct_array(struct qm_direct *r, const char *path, struct qm_blob *out)
{
    struct set d;
    QM_TRY(set_open(r, path, &d));
    qm_status st = array_put(r, path, &d, out);
    set_close(&d);
    return st;
}

/* ---- attributes ---------------------------------------------------------------------------- */

static qm_status object_open(struct qm_direct *r, const char *path, hid_t *out)
{
    qm_h5_quiet();
    if (strcmp(path, "/") != 0 && !qm_direct_has(r, path))
        return qm_fail(QM_NO_MATCH, "%s: no %s in it", r->path, path);
    hid_t object = H5Oopen(r->file, path, H5P_DEFAULT);
    if (object < 0)
        return qm_h5_fail(QM_BAD_FILE, "%s: %s cannot be opened", r->path, path);
    *out = object;
    return QM_OK;
}

static qm_status long_text(struct qm_direct *r, const char *path, char **out)
{
    struct set d;
    QM_TRY(set_open(r, path, &d));
    qm_status st = QM_OK;
    char *text = NULL;
    if (!is_fixed_text(d.type) || H5Sget_simple_extent_npoints(d.space) != 1)
        st = qm_fail(QM_BAD_ARG, "%s: %s is not one text", r->path, path);
    else if (!(text = calloc(1, H5Tget_size(d.type) + 1)) ||
             H5Dread(d.id, d.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) < 0)
        st = qm_h5_fail(QM_BAD_FILE, "%s: %s cannot be read", r->path, path);
    if (st == QM_OK)
        *out = text;
    else
        free(text);
    set_close(&d);
    return st;
}

qm_status qm_direct_text(struct qm_direct *r, const char *path, const char *name, char **out)
{
    hid_t object = -1;
    char longer[512];
    QM_TRY(object_open(r, path, &object));
    qm_status st = qm_h5_attribute_text(object, name, out);
    qm_h5_close(object);
    snprintf(longer, sizeof longer, "%s/%s", strcmp(path, "/") == 0 ? "" : path, name);
    if (st == QM_NO_MATCH && qm_direct_has(r, longer))
        return long_text(r, longer, out);
    return st == QM_OK ? st : qm_fail_in(st, path);
}

qm_status qm_direct_number(struct qm_direct *r, const char *path, const char *name, double *out)
{
    hid_t object = -1;
    QM_TRY(object_open(r, path, &object));
    qm_status st = qm_h5_attribute_number(object, name, out);
    qm_h5_close(object);
    return st == QM_OK ? st : qm_fail_in(st, path);
}
