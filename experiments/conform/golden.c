/* golden.c - Reads golden-vector files with the HDF5 library. */
#include "experiments/conform/golden.h"

#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_ELEMENTS ((int64_t)1 << 28)

struct qm_golden {
    char *path;
    hid_t file;
    char *listed; /* the group whose members are in names, sorted */
    char **names;
    int n_names;
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

qm_status qm_golden_open(const char *path, struct qm_golden **out)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* failures come back as statuses, not as traces */
    if (access(path, R_OK) != 0)
        return qm_fail(QM_BAD_FILE, "%s: cannot be opened for reading", path);
    if (H5Fis_hdf5(path) <= 0)
        return qm_fail(QM_BAD_FILE, "%s: not an HDF5 file", path);
    struct qm_golden *g = calloc(1, sizeof *g);
    if (!g || !(g->path = strdup(path))) {
        free(g);
        return qm_fail(QM_NO_MEMORY, "reading %s", path);
    }
    g->file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (g->file < 0) {
        qm_golden_close(g);
        return qm_fail(QM_BAD_FILE, "%s: HDF5 cannot open it (truncated or damaged?)", path);
    }
    *out = g;
    return QM_OK;
}

void qm_golden_close(struct qm_golden *g)
{
    if (!g)
        return;
    if (g->file >= 0)
        H5Fclose(g->file);
    list_forget(g);
    free(g->path);
    free(g);
}

static hid_t object_open(struct qm_golden *g, const char *path)
{
    return H5Oopen(g->file, path[0] ? path : "/", H5P_DEFAULT);
}

enum qm_golden_kind qm_golden_at(struct qm_golden *g, const char *path)
{
    hid_t o = object_open(g, path);
    if (o < 0)
        return QM_GOLDEN_NONE;
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
int qm_golden_members(struct qm_golden *g, const char *group)
{
    if (g->listed && strcmp(g->listed, group) == 0)
        return g->n_names;
    list_forget(g);
    hid_t o = object_open(g, group);
    if (o < 0)
        return 0;
    if (H5Iget_type(o) == H5I_GROUP &&
        H5Literate(o, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, list_add, g) >= 0)
        g->listed = strdup(group);
    H5Oclose(o);
    if (!g->listed)
        list_forget(g);
    else if (g->n_names > 0)
        qsort(g->names, (size_t)g->n_names, sizeof *g->names, by_name);
    return g->n_names;
}

int qm_golden_member(struct qm_golden *g, const char *group, int i, char *name, size_t size)
{
    if (i < 0 || i >= qm_golden_members(g, group) || strlen(g->names[i]) >= size)
        return 0;
    strcpy(name, g->names[i]);
    return 1;
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
    int numeric = class == H5T_INTEGER || class == H5T_FLOAT;
    int count = 0;
    if (numeric && n > 0 && n < 4096 && (*out = calloc((size_t)n, H5Tget_size(type)))) {
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

int qm_golden_numbers(struct qm_golden *g, const char *path, const char *name, double *out, int max)
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

int qm_golden_unsigned(struct qm_golden *g, const char *path, const char *name, uint64_t *out)
{
    void *all;
    int n = attribute_read(g, path, name, H5T_NATIVE_UINT64, &all);
    if (n > 0) {
        memcpy(out, all, sizeof *out);
        free(all);
    }
    return n > 0;
}

/* HDF5 copies a fixed-length string into a buffer and returns a variable-length one as a pointer.
 * */
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
        H5Tset_size(m, n + 1);
        ok = text && H5Aread(a, m, text) >= 0;
        if (ok)
            snprintf(out, size, "%s", text);
        free(text);
    }
    H5Tclose(m);
    return ok;
}

int qm_golden_text(struct qm_golden *g, const char *path, const char *name, char *out, size_t size)
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

/* ---- datasets ---- */

static qm_status space_shape(struct qm_golden *g, const char *path, hid_t d, struct qm_shape *out)
{
    hsize_t dims[H5S_MAX_RANK];
    hid_t space = H5Dget_space(d);
    int rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    if (rank > 0)
        H5Sget_simple_extent_dims(space, dims, NULL);
    H5Sclose(space);
    if (rank < 0 || rank > QM_MAX_RANK)
        return qm_fail(QM_BAD_FILE, "%s: %s has %d dimensions, at most %d are read", g->path, path,
                       rank, QM_MAX_RANK);
    struct qm_shape s = {.rank = rank};
    for (int i = 0; i < rank; i++)
        s.dim[i] = dims[i] < (hsize_t)INT64_MAX ? (int64_t)dims[i] : -1;
    int64_t n = qm_shape_numel(&s);
    if (n < 0 || n > MOST_ELEMENTS)
        return qm_fail(QM_BAD_FILE, "%s: %s is larger than the 2^28 elements that are read",
                       g->path, path);
    *out = s;
    return QM_OK;
}

static qm_status dataset_open(struct qm_golden *g, const char *path, hid_t *out)
{
    hid_t d = H5Dopen2(g->file, path, H5P_DEFAULT);
    if (d < 0)
        return qm_fail(QM_NO_MATCH, "%s: there is no dataset %s", g->path, path);
    *out = d;
    return QM_OK;
}

qm_status qm_golden_shape(struct qm_golden *g, const char *path, struct qm_shape *out)
{
    hid_t d = -1;
    QM_TRY(dataset_open(g, path, &d));
    qm_status st = space_shape(g, path, d, out);
    H5Dclose(d);
    return st;
}

static hid_t memory_type(enum qm_dtype want)
{
    switch (want) {
    case QM_DTYPE_f32: return H5T_NATIVE_FLOAT;
    case QM_DTYPE_f64: return H5T_NATIVE_DOUBLE;
    case QM_DTYPE_u64: return H5T_NATIVE_UINT64;
    default: return H5T_NATIVE_INT64;
    }
}

qm_status qm_golden_read(struct qm_golden *g, const char *path, enum qm_dtype want, void *out)
{
    hid_t d = -1;
    struct qm_shape shape;
    QM_TRY(dataset_open(g, path, &d));
    qm_status st = space_shape(g, path, d, &shape);
    hid_t t = H5Dget_type(d);
    H5T_class_t class = t < 0 ? H5T_NO_CLASS : H5Tget_class(t);
    int floats = want == QM_DTYPE_f32 || want == QM_DTYPE_f64;
    if (st == QM_OK && class != H5T_INTEGER && !(floats && class == H5T_FLOAT))
        st = qm_fail(QM_BAD_FILE, "%s: %s does not hold %s", g->path, path,
                     floats ? "numbers" : "integers");
    if (st == QM_OK && qm_shape_numel(&shape) > 0 &&
        H5Dread(d, memory_type(want), H5S_ALL, H5S_ALL, H5P_DEFAULT, out) < 0)
        st = qm_fail(QM_BAD_FILE, "%s: %s cannot be read (truncated or damaged?)", g->path, path);
    H5Tclose(t);
    H5Dclose(d);
    return st;
}
