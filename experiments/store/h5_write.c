/* h5_write.c - Makes the groups, datasets, tables and attributes of a result file. */
#include "experiments/store/h5_write.h"

#include <hdf5_hl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PACK_FROM = 64 << 10,   /* bytes: larger datasets are compressed */
    CHUNK_GOAL = 256 << 10, /* bytes of a chunk, approximately */
    PLAIN_FROM = 16 << 20,  /* bytes: larger tables are not compressed, for reads of one column */
    DEFLATE = 4,            /* compression level */
    ATTRIBUTE_MOST = 60 << 10, /* bytes; HDF5's limit of 64 KB includes the description */
    LONG_TEXT = 32 << 10,      /* bytes: longer texts are datasets */
};

double qm_h5_write_nan(double x) { return isnan(x) ? (double)NAN : x; }

/* ---- names --------------------------------------------------------------------------------- */

static qm_status path_check(const char *path)
{
    size_t n = path ? strlen(path) : 0;
    if (n < 2 || path[0] != '/' || path[n - 1] == '/' || strstr(path, "//") || strstr(path, "/./"))
        return qm_fail(QM_BAD_ARG, "'%s': expected a path such as /curves/loss", path ? path : "");
    return QM_OK;
}

static qm_status group_make(hid_t file, const char *path)
{
    hid_t plist = H5Pcreate(H5P_GROUP_CREATE), group = -1;
    if (plist >= 0 && H5Pset_obj_track_times(plist, 0) >= 0)
        group = H5Gcreate2(file, path, H5P_DEFAULT, plist, H5P_DEFAULT);
    qm_status st = group < 0 ? qm_h5_fail(QM_BAD_ARG, "cannot make group %s", path) : QM_OK;
    qm_h5_close(group);
    qm_h5_close(plist);
    return st;
}

/* Makes the missing groups above path; with `whole` path itself too, if nothing is there. */
static qm_status groups_above(hid_t file, const char *path, int whole)
{
    char *text = strdup(path);
    if (!text)
        return qm_fail(QM_NO_MEMORY, "path %s", path);
    qm_status st = QM_OK;
    for (char *at = text + 1; st == QM_OK && *at;) {
        at += strcspn(at, "/");
        char end = *at;
        *at = 0;
        if ((end || whole) && H5Lexists(file, text, H5P_DEFAULT) <= 0)
            st = group_make(file, text);
        *at = end;
        at += end != 0;
    }
    free(text);
    return st;
}

/* ---- attributes ---------------------------------------------------------------------------- */

hid_t qm_h5_write_text_type(size_t width)
{
    hid_t t = H5Tcopy(H5T_C_S1);
    if (t >= 0 && (H5Tset_size(t, width) < 0 || H5Tset_cset(t, H5T_CSET_UTF8) < 0 ||
                   H5Tset_strpad(t, H5T_STR_NULLPAD) < 0)) {
        qm_h5_close(t);
        return -1;
    }
    return t;
}

static qm_status attribute(hid_t object, const char *name, hid_t file_type, hid_t memory_type,
                           hid_t space, const void *data)
{
    qm_status st = QM_OK;
    if (H5Aexists(object, name) > 0)
        H5Adelete(object, name);
    hid_t a = H5Acreate2(object, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (a < 0 || H5Awrite(a, memory_type, data) < 0)
        st = qm_h5_fail(QM_BAD_ARG, "cannot store attribute '%s'", name);
    qm_h5_close(a);
    return st;
}

static size_t text_width(const char *const *text, int64_t n)
{
    size_t width = 1;
    for (int64_t i = 0; i < n; i++) {
        size_t here = text[i] ? strlen(text[i]) : 0;
        width = here > width ? here : width;
    }
    return width;
}

/* Stores an array of n texts as an attribute; n < 0: one scalar text. */
static qm_status attribute_texts(hid_t object, const char *name, int n, const char *const *text)
{
    hsize_t dim = n < 0 ? 1 : (hsize_t)n;
    size_t width = text_width(text, (int64_t)dim);
    if (dim * width > ATTRIBUTE_MOST)
        return qm_fail(QM_BAD_ARG, "attribute '%s' needs %llu bytes; %d fit", name,
                       (unsigned long long)(dim * width), ATTRIBUTE_MOST);
    char *bytes = calloc(dim ? dim : 1, width);
    hid_t type = qm_h5_write_text_type(width);
    hid_t space = n < 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &dim, NULL);
    qm_status st = QM_OK;
    if (!bytes || type < 0 || space < 0) {
        st = qm_fail(QM_NO_MEMORY, "attribute '%s'", name);
    } else {
        for (size_t i = 0; i < dim; i++)
            memcpy(bytes + i * width, text[i] ? text[i] : "", text[i] ? strlen(text[i]) : 0);
        st = attribute(object, name, type, type, space, bytes);
    }
    qm_h5_close(space);
    qm_h5_close(type);
    free(bytes);
    return st;
}

static qm_status attribute_text(hid_t object, const char *name, const char *text)
{
    return attribute_texts(object, name, -1, &text);
}

static qm_status attribute_number(hid_t object, const char *name, enum qm_dtype dtype,
                                  const void *value)
{
    hid_t file_type = qm_h5_type(dtype), memory_type = qm_h5_native(dtype);
    hid_t space = H5Screate(H5S_SCALAR);
    qm_status st = file_type < 0 || memory_type < 0 || space < 0
                       ? qm_fail(QM_NO_MEMORY, "attribute '%s'", name)
                       : attribute(object, name, file_type, memory_type, space, value);
    qm_h5_close(space);
    qm_h5_close(memory_type);
    qm_h5_close(file_type);
    return st;
}

/* ---- datasets ------------------------------------------------------------------------------ */

/* Chunks, because HDF5 keeps checksums of chunks alone: whole trailing dims while they fit
 * CHUNK_GOAL, then part of one, then 1. */
static int set_chunks(hid_t plist, int rank, const hsize_t *dim, size_t element, int plain)
{
    hsize_t chunk[QM_MAX_RANK], left = CHUNK_GOAL / element;
    for (int i = rank - 1; i >= 0; i--) {
        hsize_t most = left > 0 ? left : 1;
        chunk[i] = dim[i] < most ? dim[i] : most;
        left /= chunk[i];
    }
    if (H5Pset_chunk(plist, rank, chunk) < 0 ||
        (!plain && (H5Pset_shuffle(plist) < 0 || H5Pset_deflate(plist, DEFLATE) < 0)))
        return -1;
    return H5Pset_fletcher32(plist) < 0 ? -1 : 0;
}

static hid_t creation(int rank, const hsize_t *dim, hid_t type)
{
    size_t element = H5Tget_size(type);
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t bytes = element;
    for (int i = 0; i < rank; i++)
        bytes *= dim[i];
    int bad = plist < 0 || H5Pset_obj_track_times(plist, 0) < 0;
    int plain = bytes < PACK_FROM || (bytes >= PLAIN_FROM && H5Tget_class(type) == H5T_COMPOUND);
    if (!bad && bytes > 0 && rank > 0 && H5Tis_variable_str(type) <= 0)
        bad = set_chunks(plist, rank, dim, element, plain) < 0;
    if (bad) {
        qm_h5_close(plist);
        return -1;
    }
    return plist;
}

qm_status qm_h5_write_dataset(hid_t file, const char *path, hid_t type, int rank,
                              const hsize_t *dim, const char *unit, const char *text, hid_t *out)
{
    QM_TRY(path_check(path));
    QM_TRY(groups_above(file, path, 0));
    if (H5Lexists(file, path, H5P_DEFAULT) > 0)
        return qm_fail(QM_BAD_ARG, "%s is stored already", path);
    hid_t space = rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, dim, NULL);
    hid_t plist = creation(rank, dim, type), set = -1;
    if (space >= 0 && plist >= 0)
        set = H5Dcreate2(file, path, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    qm_status st = set < 0 ? qm_h5_fail(QM_BAD_ARG, "cannot store %s", path) : QM_OK;
    if (st == QM_OK && unit)
        st = attribute_text(set, "unit", unit);
    if (st == QM_OK)
        st = attribute_text(set, "text", text ? text : "");
    if (st == QM_OK)
        *out = set;
    else
        qm_h5_close(set);
    qm_h5_close(plist);
    qm_h5_close(space);
    return st;
}

static qm_status scale_attach(hid_t file, const char *path, hid_t set, int i, hsize_t dim,
                              const char *scale)
{
    QM_TRY(path_check(scale));
    hid_t at = H5Dopen2(file, scale, H5P_DEFAULT), space = at < 0 ? -1 : H5Dget_space(at);
    qm_status st = QM_OK;
    hsize_t length = 0;
    if (space < 0 || H5Sget_simple_extent_ndims(space) != 1 ||
        H5Sget_simple_extent_dims(space, &length, NULL) < 0 || length != dim)
        st = qm_fail(QM_BAD_ARG, "%s: scale '%s' of dim %d is not a stored array of %llu", path,
                     scale, i, (unsigned long long)dim);
    else if ((H5DSis_scale(at) <= 0 && H5DSset_scale(at, strrchr(scale, '/') + 1) < 0) ||
             H5DSattach_scale(set, at, (unsigned)i) < 0)
        st = qm_h5_fail(QM_INTERNAL, "%s: cannot attach scale %s", path, scale);
    qm_h5_close(space);
    qm_h5_close(at);
    return st;
}

qm_status qm_h5_write_array(hid_t file, const char *path, enum qm_dtype dtype,
                            const struct qm_shape *shape, const void *data, const char *unit,
                            const char *text, const char *const *scales)
{
    if (qm_shape_numel(shape) < 0 || shape->rank > QM_MAX_RANK)
        return qm_fail(QM_BAD_ARG, "%s: impossible shape", path);
    hsize_t dim[QM_MAX_RANK];
    for (int i = 0; i < shape->rank; i++)
        dim[i] = (hsize_t)shape->dim[i];
    hid_t file_type = qm_h5_type(dtype), memory_type = qm_h5_native(dtype), set = -1;
    qm_status st = file_type < 0 || memory_type < 0 ? qm_fail(QM_NO_MEMORY, "%s", path) : QM_OK;
    if (st == QM_OK)
        st = qm_h5_write_dataset(file, path, file_type, shape->rank, dim, unit ? unit : "", text,
                                 &set);
    if (st == QM_OK && qm_shape_numel(shape) > 0 &&
        H5Dwrite(set, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        st = qm_h5_fail(QM_INTERNAL, "cannot store %s", path);
    for (int i = 0; st == QM_OK && scales && i < shape->rank; i++)
        if (scales[i] && *scales[i])
            st = scale_attach(file, path, set, i, dim[i], scales[i]);
    qm_h5_close(set);
    qm_h5_close(memory_type);
    qm_h5_close(file_type);
    return st;
}

/* ---- tables -------------------------------------------------------------------------------- */

struct layout {
    size_t row;    /* bytes of a row; no padding */
    size_t *width; /* bytes of each column */
};

static qm_status layout_of(const char *path, int64_t rows, int n, const struct qm_column *c,
                           struct layout *l)
{
    if (rows < 0 || n < 1)
        return qm_fail(QM_BAD_ARG, "%s: a table of %lld rows, %d columns", path, (long long)rows,
                       n);
    for (int i = 0; i < n; i++) {
        if (!c[i].name || !*c[i].name || !c[i].unit || !c[i].text || (rows > 0 && !c[i].data))
            return qm_fail(QM_BAD_ARG, "%s: column %d lacks its name, unit, text or data", path,
                           i + 1);
        for (int k = 0; k < i; k++)
            if (strcmp(c[i].name, c[k].name) == 0)
                return qm_fail(QM_BAD_ARG, "%s: two columns '%s'", path, c[i].name);
    }
    l->width = calloc((size_t)n, sizeof *l->width);
    if (!l->width)
        return qm_fail(QM_NO_MEMORY, "%s", path);
    l->row = 0;
    for (int i = 0; i < n; i++) {
        l->width[i] = c[i].type == QM_COLUMN_text ? text_width(c[i].data, rows) : 8;
        l->row += l->width[i];
    }
    return QM_OK;
}

static hid_t row_type(int n, const struct qm_column *c, const struct layout *l, int memory)
{
    hid_t row = H5Tcreate(H5T_COMPOUND, l->row);
    size_t at = 0;
    for (int i = 0; row >= 0 && i < n; at += l->width[i++]) {
        enum qm_dtype d = c[i].type == QM_COLUMN_i64 ? QM_DTYPE_i64 : QM_DTYPE_f64;
        hid_t t = c[i].type == QM_COLUMN_text ? qm_h5_write_text_type(l->width[i])
                  : memory                    ? qm_h5_native(d)
                                              : qm_h5_type(d);
        int bad = t < 0 || H5Tinsert(row, c[i].name, at, t) < 0;
        qm_h5_close(t);
        if (bad) {
            qm_h5_close(row);
            row = -1;
        }
    }
    return row;
}

static void row_fill(char *row, int n, const struct qm_column *c, const struct layout *l, int64_t r)
{
    for (int i = 0; i < n; row += l->width[i++]) {
        if (c[i].type == QM_COLUMN_text) {
            const char *text = ((const char *const *)c[i].data)[r];
            memcpy(row, text ? text : "", text ? strlen(text) : 0);
        } else if (c[i].type == QM_COLUMN_i64) {
            memcpy(row, (const int64_t *)c[i].data + r, 8);
        } else {
            double x = qm_h5_write_nan(((const double *)c[i].data)[r]);
            memcpy(row, &x, 8);
        }
    }
}

/* Writes about CHUNK_GOAL bytes of rows at a time, so that the buffer stays small. */
static qm_status rows_write(const char *path, hid_t set, hid_t memory, int64_t rows, int n,
                            const struct qm_column *c, const struct layout *l)
{
    int64_t most = CHUNK_GOAL / (int64_t)l->row > 0 ? CHUNK_GOAL / (int64_t)l->row : 1;
    most = rows < most ? rows : most;
    char *buffer = malloc((size_t)most * l->row);
    hid_t space = H5Dget_space(set);
    qm_status st = !buffer || space < 0 ? qm_fail(QM_NO_MEMORY, "%s", path) : QM_OK;
    for (int64_t from = 0; st == QM_OK && from < rows; from += most) {
        int64_t take = rows - from < most ? rows - from : most;
        memset(buffer, 0, (size_t)take * l->row);
        for (int64_t i = 0; i < take; i++)
            row_fill(buffer + (size_t)i * l->row, n, c, l, from + i);
        hsize_t at = (hsize_t)from, count = (hsize_t)take;
        hid_t part = H5Screate_simple(1, &count, NULL);
        if (part < 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, NULL, &count, NULL) < 0 ||
            H5Dwrite(set, memory, part, space, H5P_DEFAULT, buffer) < 0)
            st = qm_h5_fail(QM_INTERNAL, "cannot store rows of %s", path);
        qm_h5_close(part);
    }
    qm_h5_close(space);
    free(buffer);
    return st;
}

static qm_status columns_describe(hid_t set, int n, const struct qm_column *c)
{
    const char **word = calloc((size_t)n, sizeof *word);
    if (!word)
        return qm_fail(QM_NO_MEMORY, "units of %d columns", n);
    for (int i = 0; i < n; i++)
        word[i] = c[i].unit;
    qm_status st = attribute_texts(set, "column_units", n, word);
    for (int i = 0; i < n; i++)
        word[i] = c[i].text;
    if (st == QM_OK)
        st = attribute_texts(set, "column_text", n, word);
    free(word);
    return st;
}

qm_status qm_h5_write_table(hid_t file, const char *path, const char *text, int64_t rows, int n,
                            const struct qm_column *c)
{
    struct layout l = {0, NULL};
    QM_TRY(layout_of(path, rows, n, c, &l));
    hid_t file_type = row_type(n, c, &l, 0), memory = row_type(n, c, &l, 1), set = -1;
    hsize_t dim = (hsize_t)rows;
    qm_status st = file_type < 0 || memory < 0
                       ? qm_h5_fail(QM_BAD_ARG, "%s: cannot describe its rows", path)
                       : qm_h5_write_dataset(file, path, file_type, 1, &dim, NULL, text, &set);
    if (st == QM_OK)
        st = columns_describe(set, n, c);
    if (st == QM_OK && rows > 0)
        st = rows_write(path, set, memory, rows, n, c, &l);
    qm_h5_close(set);
    qm_h5_close(memory);
    qm_h5_close(file_type);
    free(l.width);
    return st;
}

/* ---- texts and numbers --------------------------------------------------------------------- */

static qm_status object_open(hid_t file, const char *path, hid_t *out)
{
    if (strcmp(path, "/") != 0) {
        QM_TRY(path_check(path));
        QM_TRY(groups_above(file, path, 1));
    }
    hid_t object = H5Oopen(file, path, H5P_DEFAULT);
    if (object < 0)
        return qm_h5_fail(QM_BAD_ARG, "cannot open %s", path);
    *out = object;
    return QM_OK;
}

static qm_status long_text(hid_t file, const char *folder, const char *name, const char *value)
{
    char path[512];
    const char *above = strcmp(folder, "/") == 0 ? "" : folder;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", above, name) >= sizeof path)
        return qm_fail(QM_BAD_ARG, "%s: the path is too long", folder);
    hid_t type = qm_h5_write_text_type(strlen(value)), set = -1;
    qm_status st = type < 0 ? qm_fail(QM_NO_MEMORY, "%s", path)
                            : qm_h5_write_dataset(file, path, type, 0, NULL, "", "text", &set);
    if (st == QM_OK && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) < 0)
        st = qm_h5_fail(QM_INTERNAL, "cannot store %s", path);
    qm_h5_close(set);
    qm_h5_close(type);
    return st;
}

qm_status qm_h5_write_text(hid_t file, const char *path, const char *name, const char *value)
{
    if (strlen(value) > LONG_TEXT)
        return long_text(file, path, name, value);
    hid_t object = -1;
    QM_TRY(object_open(file, path, &object));
    qm_status st = attribute_text(object, name, value);
    qm_h5_close(object);
    return st;
}

qm_status qm_h5_write_number(hid_t file, const char *path, const char *name, enum qm_dtype dtype,
                             const void *value)
{
    hid_t object = -1;
    QM_TRY(object_open(file, path, &object));
    qm_status st = attribute_number(object, name, dtype, value);
    qm_h5_close(object);
    return st;
}
