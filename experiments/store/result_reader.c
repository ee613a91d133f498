/* result_reader.c - Reads result files: tables by column, arrays, curves, attributes. */
#include "experiments/store/result_reader.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/store/h5.h"

enum { CACHE = 4 << 20 }; /* bytes of the chunk cache */

struct qm_result {
    hid_t file;
    char *path, *kind;
};

/* ---- texts --------------------------------------------------------------------------------- */

/* n texts of width bytes as pointers and NUL-terminated copies, in one allocation. */
static char **texts_of(const char *bytes, size_t n, size_t width)
{
    char **out = malloc((n ? n : 1) * (sizeof *out + width + 1));
    if (!out)
        return NULL;
    char *at = (char *)(out + (n ? n : 1));
    for (size_t i = 0; i < n; i++, at += width + 1) {
        out[i] = at;
        memcpy(at, bytes + i * width, width);
        at[width] = 0;
    }
    return out;
}

static int is_fixed_text(hid_t type)
{
    return H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0;
}

/* Reads the *n texts of an attribute, which must have fixed width. */
static qm_status attribute_texts(hid_t object, const char *name, size_t *n, char ***out)
{
    if (H5Aexists(object, name) <= 0)
        return qm_fail(QM_NO_MATCH, "no attribute '%s'", name);
    hid_t a = H5Aopen(object, name, H5P_DEFAULT), type = a < 0 ? -1 : H5Aget_type(a);
    hid_t space = a < 0 ? -1 : H5Aget_space(a);
    char *bytes = NULL, **texts = NULL;
    qm_status st = QM_OK;
    if (type < 0 || space < 0 || !is_fixed_text(type)) {
        st = qm_fail(QM_BAD_ARG, "attribute '%s' is no text of fixed width", name);
    } else {
        hssize_t count = H5Sget_simple_extent_npoints(space);
        size_t width = H5Tget_size(type);
        bytes = calloc(count > 0 ? (size_t)count : 1, width);
        if (!bytes || H5Aread(a, type, bytes) < 0 ||
            !(texts = texts_of(bytes, (size_t)count, width)))
            st = qm_h5_fail(QM_BAD_FILE, "attribute '%s' cannot be read", name);
        if (st == QM_OK) {
            *n = (size_t)count;
            *out = texts;
        }
    }
    free(bytes);
    qm_h5_close(space);
    qm_h5_close(type);
    qm_h5_close(a);
    return st;
}

static qm_status attribute_text(hid_t object, const char *name, char **out)
{
    char **texts;
    size_t n;
    QM_TRY(attribute_texts(object, name, &n, &texts));
    char *copy = n == 1 ? strdup(texts[0]) : NULL;
    free(texts);
    if (!copy)
        return qm_fail(QM_BAD_ARG, "attribute '%s' is not one text", name);
    *out = copy;
    return QM_OK;
}

/* ---- files --------------------------------------------------------------------------------- */

static qm_status number_read(hid_t object, const char *name, double *out)
{
    if (H5Aexists(object, name) <= 0)
        return qm_fail(QM_NO_MATCH, "no attribute '%s'", name);
    hid_t a = H5Aopen(object, name, H5P_DEFAULT), type = a < 0 ? -1 : H5Aget_type(a);
    hid_t space = a < 0 ? -1 : H5Aget_space(a);
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    qm_status st = QM_OK;
    if ((class != H5T_INTEGER && class != H5T_FLOAT) || H5Sget_simple_extent_npoints(space) != 1)
        st = qm_fail(QM_BAD_ARG, "attribute '%s' is not one number", name);
    else if (H5Aread(a, H5T_NATIVE_DOUBLE, out) < 0)
        st = qm_h5_fail(QM_BAD_FILE, "attribute '%s' cannot be read", name);
    qm_h5_close(space);
    qm_h5_close(type);
    qm_h5_close(a);
    return st;
}

static qm_status schema_check(struct qm_result *r)
{
    char *schema = NULL;
    double version = 0;
    if (attribute_text(r->file, "schema", &schema) != QM_OK || strcmp(schema, QM_H5_SCHEMA) != 0 ||
        number_read(r->file, "schema_version", &version) != QM_OK ||
        attribute_text(r->file, "kind", &r->kind) != QM_OK) {
        free(schema);
        return qm_fail(QM_BAD_FILE, "%s: is no result file (attribute 'schema' is not '%s')",
                       r->path, QM_H5_SCHEMA);
    }
    free(schema);
    if (version != QM_H5_SCHEMA_VERSION)
        return qm_fail(QM_BAD_FILE, "%s: has schema version %g; this program reads version %d",
                       r->path, version, QM_H5_SCHEMA_VERSION);
    return QM_OK;
}

qm_status qm_result_open(const char *path, struct qm_result **out)
{
    struct qm_result *r = calloc(1, sizeof *r);
    if (!r)
        return qm_fail(QM_NO_MEMORY, "%s", path);
    r->file = -1;
    r->path = strdup(path);
    qm_status st = r->path ? qm_h5_open(path, CACHE, &r->file) : qm_fail(QM_NO_MEMORY, "%s", path);
    if (st == QM_OK)
        st = schema_check(r);
    if (st == QM_OK)
        *out = r;
    else
        qm_result_close(r);
    return st;
}

void qm_result_close(struct qm_result *r)
{
    if (!r)
        return;
    if (r->file >= 0)
        H5Fclose(r->file);
    free(r->kind);
    free(r->path);
    free(r);
}

const char *qm_result_kind(const struct qm_result *r) { return r->kind; }

/* Tests group by group, because H5Lexists fails when a group on the path is missing. */
int qm_result_has(struct qm_result *r, const char *path)
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

static qm_status set_open(struct qm_result *r, const char *path, struct set *out)
{
    qm_h5_quiet();
    if (!qm_result_has(r, path))
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
    *out = d;
    return QM_OK;
}

static qm_status table_open(struct qm_result *r, const char *path, struct set *out)
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

static qm_status column_find(struct qm_result *r, const struct set *d, const char *table,
                             const char *column, hid_t *member)
{
    int i = H5Tget_member_index(d->type, column);
    if (i < 0)
        return qm_fail(QM_NO_MATCH, "%s: no column '%s' in %s", r->path, column, table);
    *member = H5Tget_member_type(d->type, (unsigned)i);
    return *member < 0 ? qm_h5_fail(QM_BAD_FILE, "%s: column '%s'", r->path, column) : QM_OK;
}

/* Reads one member of every row, converted to type `as`, into memory that the caller frees. */
static qm_status column_read(struct qm_result *r, const struct set *d, const char *column, hid_t as,
                             void **out)
{
    hssize_t rows = H5Sget_simple_extent_npoints(d->space);
    size_t width = H5Tget_size(as);
    hid_t row = H5Tcreate(H5T_COMPOUND, width);
    void *data = calloc(rows > 0 ? (size_t)rows : 1, width);
    qm_status st = QM_OK;
    if (row < 0 || !data || H5Tinsert(row, column, 0, as) < 0)
        st = qm_h5_fail(QM_NO_MEMORY, "%s: column '%s'", r->path, column);
    else if (rows > 0 && H5Dread(d->id, row, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        st = qm_h5_fail(QM_BAD_FILE, "%s: column '%s' cannot be read", r->path, column);
    if (st == QM_OK)
        *out = data;
    else
        free(data);
    qm_h5_close(row);
    return st;
}

/* Reads a column of integers as int64_t, or with `floats` of integers or floats as double. */
static qm_status numbers(struct qm_result *r, const char *table, const char *column, int floats,
                         int64_t *rows, void **out)
{
    struct set d;
    QM_TRY(table_open(r, table, &d));
    hid_t member = -1;
    qm_status st = column_find(r, &d, table, column, &member);
    H5T_class_t class = member < 0 ? H5T_NO_CLASS : H5Tget_class(member);
    if (st == QM_OK && class != H5T_INTEGER && !(floats && class == H5T_FLOAT))
        st = qm_fail(QM_BAD_ARG, "%s: column '%s' of %s holds no %s", r->path, column, table,
                     floats ? "numbers" : "integers");
    if (st == QM_OK)
        st = column_read(r, &d, column, floats ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64, out);
    if (st == QM_OK)
        *rows = (int64_t)H5Sget_simple_extent_npoints(d.space);
    qm_h5_close(member);
    set_close(&d);
    return st;
}

qm_status qm_result_f64(struct qm_result *r, const char *table, const char *column, int64_t *rows,
                        double **out)
{
    void *data;
    QM_TRY(numbers(r, table, column, 1, rows, &data));
    *out = data;
    return QM_OK;
}

qm_status qm_result_i64(struct qm_result *r, const char *table, const char *column, int64_t *rows,
                        int64_t **out)
{
    void *data;
    QM_TRY(numbers(r, table, column, 0, rows, &data));
    *out = data;
    return QM_OK;
}

qm_status qm_result_texts(struct qm_result *r, const char *table, const char *column, int64_t *rows,
                          char ***out)
{
    struct set d;
    QM_TRY(table_open(r, table, &d));
    hid_t member = -1;
    void *data = NULL;
    qm_status st = column_find(r, &d, table, column, &member);
    if (st == QM_OK && !is_fixed_text(member))
        st = qm_fail(QM_BAD_ARG, "%s: column '%s' of %s holds no text", r->path, column, table);
    if (st == QM_OK)
        st = column_read(r, &d, column, member, &data);
    if (st == QM_OK) {
        size_t n = (size_t)H5Sget_simple_extent_npoints(d.space);
        char **texts = texts_of(data, n, H5Tget_size(member));
        if (!texts)
            st = qm_fail(QM_NO_MEMORY, "%s: column '%s'", r->path, column);
        if (texts) {
            *out = texts;
            *rows = (int64_t)n;
        }
    }
    free(data);
    qm_h5_close(member);
    set_close(&d);
    return st;
}

static qm_status column_names(const struct set *d, struct qm_result_columns *c)
{
    c->name = calloc((size_t)c->n, sizeof *c->name);
    c->type = calloc((size_t)c->n, sizeof *c->type);
    if (!c->name || !c->type)
        return qm_fail(QM_NO_MEMORY, "names of %d columns", c->n);
    for (int i = 0; i < c->n; i++) {
        char *name = H5Tget_member_name(d->type, (unsigned)i);
        c->name[i] = name ? strdup(name) : NULL;
        H5free_memory(name);
        H5T_class_t class = H5Tget_member_class(d->type, (unsigned)i);
        c->type[i] = class == H5T_INTEGER ? QM_COLUMN_i64
                     : class == H5T_FLOAT ? QM_COLUMN_f64
                                          : QM_COLUMN_text;
        if (!c->name[i])
            return qm_fail(QM_NO_MEMORY, "name of column %d", i + 1);
    }
    return QM_OK;
}

qm_status qm_result_columns(struct qm_result *r, const char *table, struct qm_result_columns *out)
{
    struct set d;
    QM_TRY(table_open(r, table, &d));
    struct qm_result_columns c = {.n = H5Tget_nmembers(d.type),
                                  .rows = (int64_t)H5Sget_simple_extent_npoints(d.space)};
    size_t units = 0, texts = 0;
    qm_status st = column_names(&d, &c);
    if (st == QM_OK)
        st = attribute_texts(d.id, "column_units", &units, &c.unit);
    if (st == QM_OK)
        st = attribute_texts(d.id, "column_text", &texts, &c.text);
    if (st == QM_OK && (units != (size_t)c.n || texts != (size_t)c.n))
        st = qm_fail(QM_BAD_FILE, "%s: %s lacks units or descriptions", r->path, table);
    if (st == QM_OK)
        *out = c;
    else
        qm_result_columns_free(&c);
    set_close(&d);
    return st;
}

void qm_result_columns_free(struct qm_result_columns *c)
{
    for (int i = 0; c->name && i < c->n; i++)
        free(c->name[i]);
    free(c->name);
    free(c->type);
    free(c->unit);
    free(c->text);
}

/* ---- arrays and curves --------------------------------------------------------------------- */

static qm_status array_read(struct qm_result *r, const char *path, const struct set *d,
                            struct qm_tensor *out)
{
    struct qm_tensor t = {NULL, QM_DTYPE_COUNT, {0, {0}}};
    for (int k = 0; k < QM_DTYPE_COUNT && t.dtype == QM_DTYPE_COUNT; k++) {
        hid_t known = qm_h5_type((enum qm_dtype)k);
        if (known >= 0 && H5Tequal(known, d->type) > 0)
            t.dtype = (enum qm_dtype)k;
        qm_h5_close(known);
    }
    hsize_t dim[H5S_MAX_RANK];
    t.shape.rank = H5Sget_simple_extent_dims(d->space, dim, NULL);
    if (t.dtype == QM_DTYPE_COUNT || t.shape.rank < 0 || t.shape.rank > QM_MAX_RANK)
        return qm_fail(QM_BAD_ARG, "%s: %s is not an array of numbers", r->path, path);
    for (int i = 0; i < t.shape.rank; i++)
        t.shape.dim[i] = (int64_t)dim[i];
    int64_t n = qm_shape_numel(&t.shape);
    hid_t native = qm_h5_native(t.dtype);
    qm_status st = QM_OK;
    t.data = n < 0 ? NULL : calloc(n > 0 ? (size_t)n : 1, qm_dtype_size(t.dtype));
    if (!t.data || native < 0)
        st = qm_fail(QM_NO_MEMORY, "%s: %s", r->path, path);
    else if (n > 0 && H5Dread(d->id, native, H5S_ALL, H5S_ALL, H5P_DEFAULT, t.data) < 0)
        st = qm_h5_fail(QM_BAD_FILE, "%s: %s cannot be read", r->path, path);
    if (st == QM_OK)
        *out = t;
    else
        free(t.data);
    qm_h5_close(native);
    return st;
}

qm_status qm_result_array(struct qm_result *r, const char *path, struct qm_tensor *out)
{
    struct set d;
    QM_TRY(set_open(r, path, &d));
    qm_status st = array_read(r, path, &d, out);
    set_close(&d);
    return st;
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
        return qm_fail(QM_BAD_ARG, "%s: %s is no part of ragged curves", r->path, path);
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

static qm_status object_open(struct qm_result *r, const char *path, hid_t *out)
{
    qm_h5_quiet();
    if (strcmp(path, "/") != 0 && !qm_result_has(r, path))
        return qm_fail(QM_NO_MATCH, "%s: no %s in it", r->path, path);
    hid_t object = H5Oopen(r->file, path, H5P_DEFAULT);
    if (object < 0)
        return qm_h5_fail(QM_BAD_FILE, "%s: %s cannot be opened", r->path, path);
    *out = object;
    return QM_OK;
}

static qm_status long_text(struct qm_result *r, const char *path, char **out)
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

qm_status qm_result_text(struct qm_result *r, const char *path, const char *name, char **out)
{
    hid_t object = -1;
    char longer[512];
    QM_TRY(object_open(r, path, &object));
    qm_status st = attribute_text(object, name, out);
    qm_h5_close(object);
    snprintf(longer, sizeof longer, "%s/%s", strcmp(path, "/") == 0 ? "" : path, name);
    if (st == QM_NO_MATCH && qm_result_has(r, longer))
        return long_text(r, longer, out);
    return st == QM_OK ? st : qm_fail_in(st, path);
}

qm_status qm_result_number(struct qm_result *r, const char *path, const char *name, double *out)
{
    hid_t object = -1;
    QM_TRY(object_open(r, path, &object));
    qm_status st = number_read(object, name, out);
    qm_h5_close(object);
    return st == QM_OK ? st : qm_fail_in(st, path);
}
