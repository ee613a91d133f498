/* golden.c - Reads golden-vector files with the HDF5 library, in a reader process. */
#include "experiments/conform/golden.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/conform/golden_dataset.h"
#include "experiments/foreign/file_sum.h"
#include "experiments/foreign/h5_guard.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/store/stored_digest.h"

enum {
    CACHE = 1 << 20,     /* bytes of the chunk cache */
    TEXT_MOST = 1 << 16, /* bytes of an attribute */
    NUMBERS_MOST = 4096, /* values of an attribute */
};

struct qm_golden {
    char *path;
    struct qm_reader_process *process; /* in the program */
    hid_t file;                        /* in the reader process */
    char *listed;                      /* the group whose members are in names, sorted */
    char **names;
    int n_names;
    char **asked; /* what was read since qm_golden_forget: an object's path, for an attribute with
                   * a line feed and its name after it */
    int n_asked;
};

static void list_forget(struct qm_golden *g)
{
    for (int i = 0; i < g->n_names; i++)
        free(g->names[i]);
    free(g->names);
    free(g->listed);
    g->names = NULL;
    g->listed = NULL;
    g->n_names = 0;
}

/* ---- in the reader process ----------------------------------------------------------------- */

static hid_t object_open(struct qm_golden *g, const char *path)
{
    return H5Oopen(g->file, path[0] ? path : "/", H5P_DEFAULT);
}

static enum qm_golden_kind direct_at(struct qm_golden *g, const char *path)
{
    hid_t o = object_open(g, path);
    if (o < 0) /* who reads it says why it cannot be opened */
        return path[0] && H5Lexists(g->file, path, H5P_DEFAULT) > 0 ? QM_GOLDEN_DATASET
                                                                    : QM_GOLDEN_NONE;
    H5I_type_t type = H5Iget_type(o);
    H5Oclose(o);
    return type == H5I_GROUP     ? QM_GOLDEN_GROUP
           : type == H5I_DATASET ? QM_GOLDEN_DATASET
                                 : QM_GOLDEN_NONE;
}

static herr_t list_add(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    struct qm_golden *g = context;
    (void)group, (void)info;
    qm_reader_progress();
    if (g->n_names >= QM_H5_LINK_MAX)
        return -1;
    if (g->n_names % 64 == 0) {
        char **more = realloc(g->names, ((size_t)g->n_names + 64) * sizeof *more);
        if (!more)
            return -1;
        g->names = more;
    }
    if (!(g->names[g->n_names] = strdup(name)))
        return -1;
    g->n_names++;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Members are listed in the file's own order and sorted here: asking HDF5 1.10 for sorted names
 * makes it free wild pointers on some damaged files. */
static void direct_members(struct qm_golden *g, const char *group, struct qm_blob *out)
{
    hid_t o = object_open(g, group);
    if (o >= 0 && (H5Iget_type(o) != H5I_GROUP ||
                   H5Literate(o, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, list_add, g) < 0))
        list_forget(g);
    if (o >= 0)
        H5Oclose(o);
    if (g->n_names > 0)
        qsort(g->names, (size_t)g->n_names, sizeof *g->names, by_name);
    qm_blob_put_number(out, g->n_names);
    for (int i = 0; i < g->n_names; i++)
        qm_blob_put_text(out, g->names[i]);
    list_forget(g);
}

/* ---- attributes ---- */

static hid_t attribute_open(struct qm_golden *g, const char *path, const char *name)
{
    hid_t o = object_open(g, path);
    if (o < 0)
        return -1;
    hid_t a = H5Aexists(o, name) > 0 ? H5Aopen(o, name, H5P_DEFAULT) : -1;
    H5Oclose(o);
    return a;
}

/* Elements of a numeric attribute, read as type into a fresh array; 0 when there are none. */
static int attribute_read(struct qm_golden *g, const char *path, const char *name, hid_t type,
                          void **out)
{
    hid_t a = attribute_open(g, path, name);
    if (a < 0)
        return 0;
    hid_t t = H5Aget_type(a), space = H5Aget_space(a);
    H5T_class_t class = t < 0 ? H5T_NO_CLASS : H5Tget_class(t);
    hssize_t n = space < 0 ? 0 : H5Sget_simple_extent_npoints(space);
    int numeric = class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_ENUM;
    int count = 0, is_list = space >= 0 && H5Sget_simple_extent_ndims(space) <= 1;
    if (numeric && is_list && n > 0 && n < 4096 && (*out = calloc((size_t)n, H5Tget_size(type)))) {
        if (H5Aread(a, type, *out) >= 0)
            count = (int)n;
        else
            free(*out);
    }
    H5Sclose(space);
    H5Tclose(t);
    H5Aclose(a);
    return count;
}

static int direct_numbers(struct qm_golden *g, const char *path, const char *name, double *out,
                          int max)
{
    void *all;
    int n = attribute_read(g, path, name, H5T_NATIVE_DOUBLE, &all);
    if (n > 0) {
        if (max > 0)
            memcpy(out, all, sizeof *out * (size_t)(n < max ? n : max));
        free(all);
    }
    return n;
}

static int direct_unsigned(struct qm_golden *g, const char *path, const char *name, uint64_t *out)
{
    void *all;
    int n = attribute_read(g, path, name, H5T_NATIVE_UINT64, &all);
    if (n > 0) {
        memcpy(out, all, sizeof *out);
        free(all);
    }
    return n == 1;
}

/* Whether the bytes behind the first NUL are NUL, too: otherwise they are a part of the text that
 * would not be seen. */
static int ends_once(const char *text, size_t n)
{
    for (size_t i = strnlen(text, n); i < n; i++)
        if (text[i])
            return 0;
    return 1;
}

/* HDF5 copies a fixed-length string into a buffer, as it stands where the padding is the same, and
 * returns a variable-length one as a pointer. */
static int text_read(hid_t a, hid_t t, char *out, size_t size)
{
    int ok = 0;
    hid_t m = H5Tcopy(H5T_C_S1);
    H5Tset_cset(m, H5Tget_cset(t));
    if (H5Tis_variable_str(t) > 0) {
        char *text = NULL;
        H5Tset_size(m, H5T_VARIABLE);
        ok = H5Aread(a, m, &text) >= 0 && text;
        if (ok)
            snprintf(out, size, "%s", text);
        H5free_memory(text);
    } else {
        size_t n = H5Tget_size(t);
        char *text = n < 65536 ? calloc(1, n + 1) : NULL;
        H5Tset_size(m, n);
        H5Tset_strpad(m, H5Tget_strpad(t));
        ok = text && H5Aread(a, m, text) >= 0 && ends_once(text, n);
        for (size_t i = n; ok && H5Tget_strpad(t) == H5T_STR_SPACEPAD && i-- > 0 && text[i] == ' ';)
            text[i] = '\0';
        if (ok)
            snprintf(out, size, "%s", text);
        free(text);
    }
    H5Tclose(m);
    return ok;
}

static int direct_text(struct qm_golden *g, const char *path, const char *name, char *out,
                       size_t size)
{
    out[0] = '\0';
    hid_t a = attribute_open(g, path, name);
    if (a < 0)
        return 0;
    hid_t t = H5Aget_type(a), space = H5Aget_space(a);
    int one = space >= 0 && H5Sget_simple_extent_npoints(space) == 1;
    int ok = t >= 0 && one && H5Tget_class(t) == H5T_STRING && text_read(a, t, out, size);
    H5Sclose(space);
    H5Tclose(t);
    H5Aclose(a);
    return ok;
}

static enum qm_golden_attribute direct_attribute(struct qm_golden *g, const char *path,
                                                 const char *name, int64_t *count)
{
    hid_t a = attribute_open(g, path, name);
    char text[8];
    *count = 0;
    if (a < 0)
        return QM_GOLDEN_ABSENT;
    hid_t t = H5Aget_type(a), space = H5Aget_space(a);
    H5T_class_t class = t < 0 ? H5T_NO_CLASS : H5Tget_class(t);
    *count = space < 0 ? 0 : (int64_t)H5Sget_simple_extent_npoints(space);
    int rank = space < 0 ? 0 : H5Sget_simple_extent_ndims(space);
    H5Sclose(space);
    H5Tclose(t);
    H5Aclose(a);
    /* h5py stores a truth value as an enumeration of 8 bits */
    int is_number = class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_ENUM;
    return is_number && rank > 1 ? QM_GOLDEN_OTHER
           : is_number           ? QM_GOLDEN_NUMBERS
           : class == H5T_STRING && *count == 1 && direct_text(g, path, name, text, sizeof text)
               ? QM_GOLDEN_TEXT
               : QM_GOLDEN_OTHER;
}

enum request { AT, MEMBERS, ATTRIBUTE, NUMBERS, UNSIGNED, TEXT, SHAPE, READ, NAME };

static void serve_numbers(struct qm_golden *g, const char *path, const char *name,
                          struct qm_blob *out)
{
    double x[NUMBERS_MOST];
    int n = direct_numbers(g, path, name, x, NUMBERS_MOST);
    qm_blob_put_number(out, n);
    qm_blob_put_bytes(out, x, (size_t)(n > 0 ? n : 0) * sizeof *x);
}

static void serve_text(struct qm_golden *g, const char *path, const char *name, struct qm_blob *out)
{
    char text[TEXT_MOST];
    qm_blob_put_number(out, direct_text(g, path, name, text, sizeof text));
    qm_blob_put_text(out, text);
}

static void serve_name(struct qm_golden *g, const char *path, int64_t i, struct qm_blob *out)
{
    char name[128] = "";
    hid_t o = object_open(g, path);
    if (o >= 0 && H5Aget_name_by_idx(o, ".", H5_INDEX_NAME, H5_ITER_NATIVE, (hsize_t)i, name,
                                     sizeof name, H5P_DEFAULT) < 0)
        name[0] = '\0';
    if (o >= 0)
        H5Oclose(o);
    qm_blob_put_text(out, name);
}

static qm_status serve_shape(struct qm_golden *g, const char *path, struct qm_blob *out)
{
    struct qm_shape shape;
    QM_TRY(qm_golden_dataset_shape(g->file, g->path, path, &shape));
    qm_blob_put_bytes(out, &shape, sizeof shape);
    return QM_OK;
}

static qm_status service_serve(void *object, int request, struct qm_blob *in, struct qm_blob *out)
{
    struct qm_golden *g = object;
    char *path = qm_blob_take_text(in), *name = qm_blob_take_text(in);
    int64_t want = qm_blob_take_number(in);
    uint64_t word = 0;
    qm_status st = path && name ? QM_OK : qm_fail(QM_NO_MEMORY, "a path");
    if (st == QM_OK)
        switch ((enum request)request) {
        case AT: qm_blob_put_number(out, direct_at(g, path)); break;
        case MEMBERS: direct_members(g, path, out); break;
        case ATTRIBUTE:
            qm_blob_put_number(out, direct_attribute(g, path, name, &want));
            qm_blob_put_number(out, want);
            break;
        case NUMBERS: serve_numbers(g, path, name, out); break;
        case UNSIGNED:
            qm_blob_put_number(out, direct_unsigned(g, path, name, &word));
            qm_blob_put_bytes(out, &word, sizeof word);
            break;
        case TEXT: serve_text(g, path, name, out); break;
        case NAME: serve_name(g, path, want, out); break;
        case SHAPE: st = serve_shape(g, path, out); break;
        case READ: st = qm_golden_dataset_read(g->file, g->path, path, want, out); break;
        }
    free(path);
    free(name);
    return st;
}

static void service_close(void *object)
{
    struct qm_golden *g = object;
    if (g && g->file >= 0)
        H5Fclose(g->file);
    if (g)
        free(g->path);
    free(g);
}

static qm_status service_open(const char *path, void *context, void **object, struct qm_blob *out)
{
    struct qm_golden *g = calloc(1, sizeof *g);
    const enum qm_file_sum *sum = context;
    if (!g || !(g->path = strdup(path))) {
        free(g);
        return qm_fail(QM_NO_MEMORY, "reading %s", path);
    }
    g->file = -1;
    qm_status st = qm_h5_guard_open(path, CACHE, &g->file);
    if (st == QM_OK)
        st = qm_stored_digest_put(g->file, path, *sum, 0, out);
    if (st == QM_OK)
        *object = g;
    else
        service_close(g);
    return st;
}

/* ---- in the program ------------------------------------------------------------------------ */

qm_status qm_golden_open(const char *path, struct qm_golden **out)
{
    static const struct qm_reader_service service = {service_open, service_serve, service_close};
    enum qm_file_sum sum;
    struct qm_blob first;
    struct qm_file_mark mark;
    struct qm_golden *g = calloc(1, sizeof *g);
    if (!g || !(g->path = strdup(path))) {
        free(g);
        return qm_fail(QM_NO_MEMORY, "reading %s", path);
    }
    g->file = -1;
    qm_status st = qm_file_sum_check_marked(path, &mark, &sum);
    if (st == QM_OK)
        st = qm_reader_start(&service, path, &sum, 0, &mark, &first, &g->process);
    if (st == QM_OK && !qm_stored_digest_take(path, &first))
        st = qm_reader_garbled(g->process);
    if (st == QM_OK)
        *out = g;
    else
        qm_golden_close(g);
    return st;
}

void qm_golden_close(struct qm_golden *g)
{
    if (!g)
        return;
    qm_reader_end(g->process);
    list_forget(g);
    qm_golden_forget(g);
    free(g->path);
    free(g);
}

void qm_golden_forget(struct qm_golden *g)
{
    for (int i = 0; i < g->n_asked; i++)
        free(g->asked[i]);
    free(g->asked);
    g->asked = NULL;
    g->n_asked = 0;
}

int qm_golden_was_read(const struct qm_golden *g, const char *path, const char *name)
{
    size_t n = strlen(path);
    for (int i = 0; i < g->n_asked; i++)
        if (strncmp(g->asked[i], path, n) == 0 &&
            (name ? g->asked[i][n] == '\n' && strcmp(g->asked[i] + n + 1, name) == 0
                  : g->asked[i][n] == '\0'))
            return 1;
    return 0;
}

/* Remembers that values of an object or of its attribute were asked for; without memory it is not
 * remembered, and is named as not read. */
static void remember(struct qm_golden *g, const char *path, const char *name)
{
    size_t size = strlen(path) + strlen(name) + 2;
    char *one = qm_golden_was_read(g, path, name[0] ? name : NULL) ? NULL : malloc(size);
    char **more = one ? realloc(g->asked, ((size_t)g->n_asked + 1) * sizeof *more) : NULL;
    if (more)
        g->asked = more;
    if (!more) {
        free(one);
        return;
    }
    snprintf(one, size, "%s%s%s", path, name[0] ? "\n" : "", name);
    g->asked[g->n_asked++] = one;
}

static qm_status ask(struct qm_golden *g, enum request request, const char *path, const char *name,
                     int64_t want, struct qm_blob *answer)
{
    if (request == NUMBERS || request == UNSIGNED || request == TEXT || request == READ)
        remember(g, path, name);
    struct qm_blob in = qm_reader_request(g->process);
    qm_blob_put_text(&in, path);
    qm_blob_put_text(&in, name);
    qm_blob_put_number(&in, want);
    return qm_reader_ask(g->process, request, &in, answer);
}

enum qm_golden_kind qm_golden_at(struct qm_golden *g, const char *path)
{
    struct qm_blob a;
    int64_t kind = ask(g, AT, path, "", 0, &a) == QM_OK ? qm_blob_take_number(&a) : 0;
    return kind == QM_GOLDEN_GROUP     ? QM_GOLDEN_GROUP
           : kind == QM_GOLDEN_DATASET ? QM_GOLDEN_DATASET
                                       : QM_GOLDEN_NONE;
}

int qm_golden_members(struct qm_golden *g, const char *group)
{
    struct qm_blob a;
    if (g->listed && strcmp(g->listed, group) == 0)
        return g->n_names;
    list_forget(g);
    int64_t n = ask(g, MEMBERS, group, "", 0, &a) == QM_OK ? qm_blob_take_number(&a) : 0;
    if (n < 0 || n > QM_H5_LINK_MAX || !(g->names = calloc((size_t)n + 1, sizeof *g->names)) ||
        !(g->listed = strdup(group)))
        n = 0;
    while (g->n_names < n && (g->names[g->n_names] = qm_blob_take_text(&a)))
        g->n_names++;
    return g->n_names;
}

int qm_golden_member(struct qm_golden *g, const char *group, int i, char *name, size_t size)
{
    if (i < 0 || i >= qm_golden_members(g, group) || strlen(g->names[i]) >= size)
        return 0;
    strcpy(name, g->names[i]);
    return 1;
}

enum qm_golden_attribute qm_golden_attribute(struct qm_golden *g, const char *path,
                                             const char *name, int64_t *count)
{
    struct qm_blob a;
    int64_t kind = ask(g, ATTRIBUTE, path, name, 0, &a) == QM_OK ? qm_blob_take_number(&a) : 0;
    *count = kind > QM_GOLDEN_ABSENT && kind <= QM_GOLDEN_OTHER ? qm_blob_take_number(&a) : 0;
    return kind > QM_GOLDEN_ABSENT && kind <= QM_GOLDEN_OTHER ? (enum qm_golden_attribute)kind
                                                              : QM_GOLDEN_ABSENT;
}

int qm_golden_numbers(struct qm_golden *g, const char *path, const char *name, double *out, int max)
{
    struct qm_blob a;
    int64_t n = ask(g, NUMBERS, path, name, 0, &a) == QM_OK ? qm_blob_take_number(&a) : 0;
    const void *x = n > 0 && n <= NUMBERS_MOST ? qm_blob_take(&a, (size_t)n * sizeof *out) : NULL;
    if (x && max > 0)
        memcpy(out, x, sizeof *out * (size_t)(n < max ? n : max));
    return x ? (int)n : 0;
}

int qm_golden_unsigned(struct qm_golden *g, const char *path, const char *name, uint64_t *out)
{
    struct qm_blob a;
    if (ask(g, UNSIGNED, path, name, 0, &a) != QM_OK || qm_blob_take_number(&a) != 1)
        return 0;
    *out = (uint64_t)qm_blob_take_number(&a);
    return 1;
}

int qm_golden_attribute_name(struct qm_golden *g, const char *path, int i, char *out, size_t size)
{
    struct qm_blob a;
    char *name = ask(g, NAME, path, "", i, &a) == QM_OK ? qm_blob_take_text(&a) : NULL;
    snprintf(out, size, "%s", name ? name : "");
    free(name);
    return out[0] != '\0';
}

int qm_golden_text(struct qm_golden *g, const char *path, const char *name, char *out, size_t size)
{
    struct qm_blob a;
    out[0] = '\0';
    if (ask(g, TEXT, path, name, 0, &a) != QM_OK || qm_blob_take_number(&a) != 1)
        return 0;
    char *text = qm_blob_take_text(&a);
    if (text)
        snprintf(out, size, "%s", text);
    free(text);
    return text != NULL;
}

qm_status qm_golden_shape(struct qm_golden *g, const char *path, struct qm_shape *out)
{
    struct qm_blob a;
    struct qm_shape shape;
    QM_TRY(ask(g, SHAPE, path, "", 0, &a));
    const void *found = qm_blob_take(&a, sizeof shape);
    if (!found)
        return qm_reader_garbled(g->process);
    memcpy(&shape, found, sizeof shape);
    int64_t n = shape.rank >= 0 && shape.rank <= QM_MAX_RANK ? qm_shape_numel(&shape) : -1;
    if (n < 0 || n > QM_GOLDEN_MOST_ELEMENTS)
        return qm_reader_garbled(g->process);
    *out = shape;
    return QM_OK;
}

/* The elements are as many as qm_golden_shape said before, which the reader process must repeat. */
qm_status qm_golden_read(struct qm_golden *g, const char *path, enum qm_dtype want, void *out)
{
    struct qm_blob a;
    struct qm_shape shape;
    QM_TRY(qm_golden_shape(g, path, &shape));
    QM_TRY(ask(g, READ, path, "", want, &a));
    int64_t n = qm_blob_take_number(&a);
    size_t bytes = (size_t)qm_shape_numel(&shape) * qm_dtype_size(want);
    const void *values = n == qm_shape_numel(&shape) ? qm_blob_take(&a, bytes) : NULL;
    if (!values)
        return qm_reader_garbled(g->process);
    if (bytes > 0)
        memcpy(out, values, bytes);
    return QM_OK;
}
