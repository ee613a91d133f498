/* store.c - the only writer of result files. */
#include "experiments/store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <hdf5_hl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/h5.h"
#include "experiments/provenance.h"

enum {
    GROW = 1 << 20,          /* bytes by which the image in memory grows */
    COMPACT_BELOW = 8 << 10, /* bytes: with the object header */
    CHUNK_FROM = 64 << 10,   /* bytes: chunked and compressed */
    CHUNK_GOAL = 256 << 10,  /* bytes of a chunk, about */
    DEFLATE = 4,
    LONG_TEXT = 32 << 10, /* bytes; HDF5's limit for all of one attribute is 64 KB */
};

struct qm_store {
    hid_t file;
    char *path, *part;
    int fd;           /* of part; locked */
    qm_status failed; /* the first failure, and its text */
    char why[600];
};

/* ---- failures stick ------------------------------------------------------------------------ */

/* Every public call starts with start and ends with done. */
static qm_status start(const struct qm_store *s)
{
    qm_h5_quiet();
    return s->failed == QM_OK ? QM_OK : qm_fail(s->failed, "%s", s->why);
}

static qm_status done(struct qm_store *s, qm_status st)
{
    if (st != QM_OK && s->failed == QM_OK) {
        s->failed = st;
        snprintf(s->why, sizeof s->why, "%s", qm_message());
    }
    return st;
}

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

/* Makes the groups above path, and with whole path itself as a group where nothing is there. */
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

static hid_t text_type(size_t width)
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

/* n < 0: one text; otherwise an array of n. */
static qm_status attribute_texts(hid_t object, const char *name, int n, const char *const *text)
{
    hsize_t dim = n < 0 ? 1 : (hsize_t)n;
    size_t width = text_width(text, (int64_t)dim);
    if (dim * width > LONG_TEXT)
        return qm_fail(QM_BAD_ARG, "attribute '%s' needs %llu bytes; %d fit", name,
                       (unsigned long long)(dim * width), LONG_TEXT);
    char *bytes = calloc(dim ? dim : 1, width);
    hid_t type = text_type(width);
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

/* Whole trailing dims as long as they fit the goal, then a part of one. */
static int set_chunks(hid_t plist, int rank, const hsize_t *dim, size_t element)
{
    hsize_t chunk[QM_MAX_RANK], left = CHUNK_GOAL / element;
    for (int i = rank - 1; i >= 0; i--) {
        hsize_t most = left > 0 ? left : 1;
        chunk[i] = dim[i] < most ? dim[i] : most;
        left /= chunk[i];
    }
    return H5Pset_chunk(plist, rank, chunk) < 0 || H5Pset_shuffle(plist) < 0 ||
                   H5Pset_deflate(plist, DEFLATE) < 0 || H5Pset_fletcher32(plist) < 0
               ? -1
               : 0;
}

static hid_t creation(int rank, const hsize_t *dim, size_t element)
{
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t bytes = element;
    for (int i = 0; i < rank; i++)
        bytes *= dim[i];
    int bad = plist < 0 || H5Pset_obj_track_times(plist, 0) < 0;
    if (!bad && bytes > 0 && bytes < COMPACT_BELOW)
        bad = H5Pset_layout(plist, H5D_COMPACT) < 0;
    else if (!bad && bytes >= CHUNK_FROM && rank > 0)
        bad = set_chunks(plist, rank, dim, element) < 0;
    if (bad) {
        qm_h5_close(plist);
        return -1;
    }
    return plist;
}

/* A new dataset with its unit (NULL: none, a table has them by column) and description. */
static qm_status dataset_make(struct qm_store *s, const char *path, hid_t type, int rank,
                              const hsize_t *dim, const char *unit, const char *text, hid_t *out)
{
    QM_TRY(path_check(path));
    QM_TRY(groups_above(s->file, path, 0));
    if (H5Lexists(s->file, path, H5P_DEFAULT) > 0)
        return qm_fail(QM_BAD_ARG, "%s is stored already", path);
    hid_t space = rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, dim, NULL);
    hid_t plist = creation(rank, dim, H5Tget_size(type)), set = -1;
    if (space >= 0 && plist >= 0)
        set = H5Dcreate2(s->file, path, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
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

static qm_status scale_attach(struct qm_store *s, const char *path, hid_t set, int i, hsize_t dim,
                              const char *scale)
{
    hid_t at = H5Dopen2(s->file, scale, H5P_DEFAULT), space = at < 0 ? -1 : H5Dget_space(at);
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

static qm_status array_store(struct qm_store *s, const char *path, enum qm_dtype dtype,
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
        st = dataset_make(s, path, file_type, shape->rank, dim, unit ? unit : "", text, &set);
    if (st == QM_OK && qm_shape_numel(shape) > 0 &&
        H5Dwrite(set, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        st = qm_h5_fail(QM_INTERNAL, "cannot store %s", path);
    for (int i = 0; st == QM_OK && scales && i < shape->rank; i++)
        if (scales[i] && *scales[i])
            st = scale_attach(s, path, set, i, dim[i], scales[i]);
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
        hid_t t = c[i].type == QM_COLUMN_text ? text_type(l->width[i])
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

/* The sign and payload of a NaN depend on the compiler; ours have one. */
static double plain_nan(double x) { return isnan(x) ? (double)NAN : x; }

static void row_fill(char *row, int n, const struct qm_column *c, const struct layout *l, int64_t r)
{
    for (int i = 0; i < n; row += l->width[i++]) {
        if (c[i].type == QM_COLUMN_text) {
            const char *text = ((const char *const *)c[i].data)[r];
            memcpy(row, text ? text : "", text ? strlen(text) : 0);
        } else if (c[i].type == QM_COLUMN_i64) {
            memcpy(row, (const int64_t *)c[i].data + r, 8);
        } else {
            double x = plain_nan(((const double *)c[i].data)[r]);
            memcpy(row, &x, 8);
        }
    }
}

/* A chunk of rows at a time, so that the copy stays small. */
static qm_status rows_write(const char *path, hid_t set, hid_t memory, int64_t rows, int n,
                            const struct qm_column *c, const struct layout *l)
{
    int64_t most = CHUNK_FROM / (int64_t)l->row;
    most = rows * (int64_t)l->row < CHUNK_FROM ? rows : CHUNK_GOAL / (int64_t)l->row;
    most = most > 0 ? most : 1;
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
        if (part < 0 ||
            H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, NULL, &count, NULL) < 0 ||
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

static qm_status table_store(struct qm_store *s, const char *path, const char *text, int64_t rows,
                             int n, const struct qm_column *c)
{
    struct layout l = {0, NULL};
    QM_TRY(layout_of(path, rows, n, c, &l));
    hid_t file_type = row_type(n, c, &l, 0), memory = row_type(n, c, &l, 1), set = -1;
    hsize_t dim = (hsize_t)rows;
    qm_status st = file_type < 0 || memory < 0
                       ? qm_h5_fail(QM_BAD_ARG, "%s: cannot describe its rows", path)
                       : dataset_make(s, path, file_type, 1, &dim, NULL, text, &set);
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

qm_status qm_store_table(struct qm_store *s, const char *path, const char *text, int64_t rows,
                         int n_columns, const struct qm_column *columns)
{
    QM_TRY(start(s));
    return done(s, table_store(s, path, text, rows, n_columns, columns));
}

qm_status qm_store_array(struct qm_store *s, const char *path, enum qm_dtype dtype,
                         const struct qm_shape *shape, const void *data, const char *unit,
                         const char *text, const char *const *scales)
{
    QM_TRY(start(s));
    return done(s, array_store(s, path, dtype, shape, data, unit, text, scales));
}

/* ---- ragged curves and times --------------------------------------------------------------- */

static qm_status line_store(struct qm_store *s, const char *folder, const char *name,
                            enum qm_dtype dtype, int64_t n, const void *data, const char *unit,
                            const char *text)
{
    char path[512];
    struct qm_shape shape = {1, {n}};
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
        return qm_fail(QM_BAD_ARG, "%s: the path is too long", folder);
    return array_store(s, path, dtype, &shape, data, unit, text, NULL);
}

static qm_status ragged_store(struct qm_store *s, const char *path, int64_t n,
                              const int64_t *length, const double *value, const char *unit,
                              const char *text)
{
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++)
        if (length[i] < 0 || __builtin_add_overflow(total, length[i], &total))
            return qm_fail(QM_BAD_ARG, "%s: curve %lld has %lld values", path, (long long)i,
                           (long long)length[i]);
    int64_t *offset = malloc((size_t)(n > 0 ? n : 1) * sizeof *offset);
    double *plain = malloc((size_t)(total > 0 ? total : 1) * sizeof *plain);
    qm_status st = !offset || !plain ? qm_fail(QM_NO_MEMORY, "%s", path) : QM_OK;
    if (st == QM_OK) {
        for (int64_t i = 0, at = 0; i < n; at += length[i++])
            offset[i] = at;
        for (int64_t i = 0; i < total; i++)
            plain[i] = plain_nan(value[i]);
        st = line_store(s, path, "value", QM_DTYPE_f64, total, plain, unit, text);
    }
    if (st == QM_OK)
        st = line_store(s, path, "offset", QM_DTYPE_i64, n, offset, "1",
                        "where each curve starts in value");
    if (st == QM_OK)
        st = line_store(s, path, "length", QM_DTYPE_i64, n, length, "1", "values of each curve");
    free(plain);
    free(offset);
    return st;
}

qm_status qm_store_ragged(struct qm_store *s, const char *path, int64_t n_curves,
                          const int64_t *length, const double *value, const char *unit,
                          const char *text)
{
    QM_TRY(start(s));
    return done(s, ragged_store(s, path, n_curves, length, value, unit, text));
}

qm_status qm_store_timing(struct qm_store *s, const char *name, int64_t n, const double *value,
                          const char *unit, const char *text)
{
    QM_TRY(start(s));
    return done(s, line_store(s, "/timing", name, QM_DTYPE_f64, n, value, unit, text));
}

/* ---- texts and numbers --------------------------------------------------------------------- */

static qm_status object_open(struct qm_store *s, const char *path, hid_t *out)
{
    if (strcmp(path, "/") != 0) {
        QM_TRY(path_check(path));
        QM_TRY(groups_above(s->file, path, 1));
    }
    hid_t object = H5Oopen(s->file, path, H5P_DEFAULT);
    if (object < 0)
        return qm_h5_fail(QM_BAD_ARG, "cannot open %s", path);
    *out = object;
    return QM_OK;
}

static qm_status long_text_store(struct qm_store *s, const char *folder, const char *name,
                                 const char *value)
{
    char path[512];
    const char *above = strcmp(folder, "/") == 0 ? "" : folder;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", above, name) >= sizeof path)
        return qm_fail(QM_BAD_ARG, "%s: the path is too long", folder);
    hid_t type = text_type(strlen(value)), set = -1;
    qm_status st = type < 0 ? qm_fail(QM_NO_MEMORY, "%s", path)
                            : dataset_make(s, path, type, 0, NULL, "", "text", &set);
    if (st == QM_OK && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) < 0)
        st = qm_h5_fail(QM_INTERNAL, "cannot store %s", path);
    qm_h5_close(set);
    qm_h5_close(type);
    return st;
}

static qm_status text_store(struct qm_store *s, const char *path, const char *name,
                            const char *value)
{
    if (strlen(value) > LONG_TEXT)
        return long_text_store(s, path, name, value);
    hid_t object;
    QM_TRY(object_open(s, path, &object));
    qm_status st = attribute_text(object, name, value);
    qm_h5_close(object);
    return st;
}

static qm_status number_store(struct qm_store *s, const char *path, const char *name,
                              enum qm_dtype dtype, const void *value)
{
    hid_t object;
    QM_TRY(object_open(s, path, &object));
    qm_status st = attribute_number(object, name, dtype, value);
    qm_h5_close(object);
    return st;
}

qm_status qm_store_text(struct qm_store *s, const char *path, const char *name, const char *value)
{
    QM_TRY(start(s));
    return done(s, text_store(s, path, name, value ? value : ""));
}

qm_status qm_store_number(struct qm_store *s, const char *path, const char *name, double value)
{
    QM_TRY(start(s));
    double plain = plain_nan(value);
    return done(s, number_store(s, path, name, QM_DTYPE_f64, &plain));
}

/* ---- provenance ---------------------------------------------------------------------------- */

/* Variable-length texts: a command line may name thousands of files. */
static qm_status argv_store(struct qm_store *s, int argc, char **argv)
{
    hid_t type = text_type(H5T_VARIABLE), set = -1;
    hsize_t dim = (hsize_t)argc;
    qm_status st = type < 0 ? qm_fail(QM_NO_MEMORY, "argv")
                            : dataset_make(s, "/provenance/argv", type, 1, &dim, "",
                                           "the command line, word by word", &set);
    if (st == QM_OK && argc > 0 &&
        H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, (const void *)argv) < 0)
        st = qm_h5_fail(QM_INTERNAL, "cannot store /provenance/argv");
    qm_h5_close(set);
    qm_h5_close(type);
    return st;
}

static qm_status provenance_store(struct qm_store *s, int argc, char **argv)
{
    struct qm_fact *facts = calloc(QM_FACTS_MAX, sizeof *facts);
    if (!facts)
        return qm_fail(QM_NO_MEMORY, "provenance");
    int n = qm_provenance(facts);
    char now[24];
    qm_status st = text_store(s, "/provenance", "started", qm_utc(now));
    for (int i = 0; st == QM_OK && i < n; i++)
        st = facts[i].is_number
                 ? number_store(s, "/provenance", facts[i].name, QM_DTYPE_i64, &facts[i].number)
                 : text_store(s, "/provenance", facts[i].name, facts[i].text);
    free(facts);
    return st == QM_OK ? argv_store(s, argc, argv) : st;
}

static qm_status root_store(struct qm_store *s, const char *kind)
{
    int64_t version = QM_H5_SCHEMA_VERSION;
    QM_TRY(text_store(s, "/", "schema", QM_H5_SCHEMA));
    QM_TRY(number_store(s, "/", "schema_version", QM_DTYPE_i64, &version));
    return text_store(s, "/", "kind", kind);
}

/* ---- the file ------------------------------------------------------------------------------ */

/* The temporary file, made now and locked: the number of a dead process may come again, and its
 * leftovers must neither block nor survive. */
static qm_status part_open(struct qm_store *s)
{
    struct stat info;
    if (!*s->path || (stat(s->path, &info) == 0 && !S_ISREG(info.st_mode)))
        return qm_fail(QM_BAD_FILE, "%s: cannot be written, it is no ordinary file", s->path);
    s->fd = open(s->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (s->fd < 0)
        return qm_fail(QM_BAD_FILE, "%s: cannot be written: %s", s->path, strerror(errno));
    if (flock(s->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(s->fd);
        s->fd = -1;
        return qm_fail(QM_BAD_FILE, "%s: is being written already", s->path);
    }
    if (ftruncate(s->fd, 0) != 0)
        return qm_fail(QM_BAD_FILE, "%s: cannot be written: %s", s->path, strerror(errno));
    return QM_OK;
}

/* An HDF5 file in memory: what the disk refuses shows in our own write, with a reason. */
static qm_status image_open(struct qm_store *s)
{
    qm_h5_quiet();
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), make = H5Pcreate(H5P_FILE_CREATE);
    if (access >= 0 && make >= 0 && H5Pset_fapl_core(access, GROW, 0) >= 0 &&
        H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_V18) >= 0 &&
        H5Pset_obj_track_times(make, 0) >= 0)
        s->file = H5Fcreate(s->part, H5F_ACC_TRUNC, make, access);
    qm_status st = s->file < 0 ? qm_h5_fail(QM_INTERNAL, "%s: cannot be begun", s->path) : QM_OK;
    qm_h5_close(make);
    qm_h5_close(access);
    return st;
}

qm_status qm_store_open(const char *path, const char *kind, int argc, char **argv,
                        struct qm_store **out)
{
    struct qm_store *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "%s", path);
    s->file = s->fd = -1;
    qm_status st = QM_OK;
    s->path = strdup(path);
    if (!s->path || asprintf(&s->part, "%s.%ld.part", path, (long)getpid()) < 0) {
        s->part = NULL;
        st = qm_fail(QM_NO_MEMORY, "%s", path);
    }
    if (st == QM_OK)
        st = part_open(s);
    if (st == QM_OK)
        st = image_open(s);
    if (st == QM_OK)
        st = root_store(s, kind);
    if (st == QM_OK)
        st = provenance_store(s, argc, argv);
    if (st == QM_OK)
        *out = s;
    else
        qm_store_abort(s);
    return st;
}

void qm_store_abort(struct qm_store *s)
{
    if (!s)
        return;
    if (s->file >= 0)
        H5Fclose(s->file);
    if (s->fd >= 0) {
        unlink(s->part);
        close(s->fd);
    }
    free(s->part);
    free(s->path);
    free(s);
}

static qm_status bytes_write(const struct qm_store *s, const char *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t wrote = write(s->fd, bytes + at, n - at);
        if (wrote < 0 && errno != EINTR)
            return qm_fail(QM_BAD_FILE, "%s: cannot be written: %s", s->path, strerror(errno));
        at += wrote > 0 ? (size_t)wrote : 0;
    }
    if (fsync(s->fd) != 0)
        return qm_fail(QM_BAD_FILE, "%s: cannot be written: %s", s->path, strerror(errno));
    return QM_OK;
}

static qm_status image_write(const struct qm_store *s)
{
    if (H5Fflush(s->file, H5F_SCOPE_GLOBAL) < 0)
        return qm_h5_fail(QM_INTERNAL, "%s: cannot be finished", s->path);
    ssize_t n = H5Fget_file_image(s->file, NULL, 0);
    if (n <= 0)
        return qm_h5_fail(QM_INTERNAL, "%s: cannot be finished", s->path);
    char *bytes = malloc((size_t)n);
    if (!bytes)
        return qm_fail(QM_NO_MEMORY, "%s: %lld bytes", s->path, (long long)n);
    qm_status st = H5Fget_file_image(s->file, bytes, (size_t)n) != n
                       ? qm_h5_fail(QM_INTERNAL, "%s: cannot be finished", s->path)
                       : bytes_write(s, bytes, (size_t)n);
    free(bytes);
    return st;
}

/* A renamed file survives a crash once its folder is on the disk; some file systems cannot. */
static qm_status folder_sync(const char *path)
{
    char *folder = strdup(path);
    if (!folder)
        return qm_fail(QM_NO_MEMORY, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    int bad = fd >= 0 && fsync(fd) != 0 && errno == EIO;
    if (fd >= 0)
        close(fd);
    return bad ? qm_fail(QM_BAD_FILE, "%s: its folder cannot be flushed", path) : QM_OK;
}

/* Puts the finished image in place. */
static qm_status publish(struct qm_store *s)
{
    char now[24];
    QM_TRY(text_store(s, "/provenance", "finished", qm_utc(now)));
    QM_TRY(image_write(s));
    if (rename(s->part, s->path) != 0)
        return qm_fail(QM_BAD_FILE, "%s: cannot be written: %s", s->path, strerror(errno));
    close(s->fd);
    s->fd = -1; /* nothing left to remove */
    return folder_sync(s->path);
}

qm_status qm_store_commit(struct qm_store *s)
{
    assert(s);
    qm_status st = start(s);
    if (st == QM_OK)
        st = publish(s);
    else
        qm_fail_in(st, "nothing written");
    qm_store_abort(s);
    return st;
}
