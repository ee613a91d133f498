/* hdf5.c - The HDF5 reader: opens a file and lists its numeric datasets. */
#include "experiments/readers/hdf5.h"

#include <stdlib.h>
#include <string.h>

enum {
    CACHE = 1 << 20, /* bytes of chunks kept per dataset until one is read */
    WHY = 96         /* bytes of the reason why a dataset is left out */
};

struct walk {
    struct qm_file *f;
    qm_status st;
    char path[QM_H5_PATH_MAX];
    size_t length;
    struct {
        unsigned long fileno;
        haddr_t addr;
    } group[QM_H5_DEPTH_MAX]; /* the groups on the current path */
    struct qm_h5_walk_count count;
};

static int knows(const unsigned char *map, size_t size)
{
    static const unsigned char magic[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    for (size_t at = 0; at <= size && size - at >= sizeof magic; at = at ? 2 * at : 512)
        if (memcmp(map + at, magic, sizeof magic) == 0)
            return 1;
    return 0;
}

/* The words for types that are not read, by class. */
static const char *class_text(H5T_class_t class)
{
    switch (class) {
    case H5T_STRING: return "a text";
    case H5T_COMPOUND: return "a compound type";
    case H5T_OPAQUE: return "an opaque type";
    case H5T_REFERENCE: return "references";
    case H5T_ENUM: return "an enumeration";
    case H5T_VLEN: return "lists of different lengths";
    case H5T_ARRAY: return "a type of arrays";
    case H5T_BITFIELD: return "bit fields";
    default: return "an unknown type";
    }
}

/* Whether a type is h5py's truth value: an enumeration of one byte, FALSE 0 and TRUE 1. */
static int is_truth(hid_t type)
{
    static const char *const names[] = {"FALSE", "TRUE"};
    int good =
        H5Tget_class(type) == H5T_ENUM && H5Tget_size(type) == 1 && H5Tget_nmembers(type) == 2;
    for (unsigned k = 0; good && k < 2; k++) {
        unsigned char value = 2;
        char *name = H5Tget_member_name(type, k);
        good = name && strcmp(name, names[k]) == 0 && H5Tget_member_value(type, k, &value) >= 0 &&
               value == k;
        H5free_memory(name);
    }
    return good;
}

/* The element type of a stored type; otherwise 0, and what it is that is not read. */
static int dtype_of(hid_t type, enum qm_dtype *out, char why[WHY])
{
    static const enum qm_dtype ints[2][4] = {
        {QM_DTYPE_u8, QM_DTYPE_u16, QM_DTYPE_u32, QM_DTYPE_u64},
        {QM_DTYPE_i8, QM_DTYPE_i16, QM_DTYPE_i32, QM_DTYPE_i64}};
    size_t bytes = H5Tget_size(type);
    H5T_class_t class = H5Tget_class(type);
    int is_cut = class == H5T_INTEGER && H5Tget_order(type) == H5T_ORDER_BE &&
                 H5Tget_precision(type) < 8 * bytes;
    for (int k = 0; k < 4 && class == H5T_INTEGER && !is_cut; k++)
        if (bytes == (size_t)1 << k) {
            *out = ints[H5Tget_sign(type) == H5T_SGN_2][k];
            return 1;
        }
    if (qm_h5_guard_float(type, out))
        return 1;
    if (is_truth(type)) {
        *out = QM_DTYPE_bool;
        return 1;
    }
    if (is_cut)
        snprintf(why, WHY, "big-endian integers of %zu bits in %zu bytes", H5Tget_precision(type),
                 bytes);
    else if (class == H5T_INTEGER)
        snprintf(why, WHY, "integers of %zu bytes", bytes);
    else if (class == H5T_FLOAT)
        snprintf(why, WHY, "floats of %zu bytes that are none of IEEE and not bfloat16", bytes);
    else
        snprintf(why, WHY, "%s", class_text(class));
    return 0;
}

/* The shape of a dataspace; why: what it is that is not read, or "".  QM_BAD_FILE: the size exceeds
 * 2^63 bytes. */
static qm_status take_shape(struct walk *w, hid_t space, enum qm_dtype dtype, struct qm_shape *out,
                            char why[WHY])
{
    hsize_t dims[H5S_MAX_RANK] = {0};
    H5S_class_t kind = H5Sget_simple_extent_type(space);
    int rank = H5Sget_simple_extent_dims(space, dims, NULL);
    if (kind != H5S_SIMPLE && kind != H5S_SCALAR)
        snprintf(why, WHY, "no dataspace");
    else if (rank < 0 || rank > QM_MAX_RANK)
        snprintf(why, WHY, "%d dimensions, at most %d are read", rank, QM_MAX_RANK);
    if (*why)
        return QM_OK;
    struct qm_shape s = {rank, {0}};
    for (int k = 0; k < rank; k++)
        s.dim[k] = dims[k] <= INT64_MAX ? (int64_t)dims[k] : -1;
    int64_t bytes = qm_shape_numel(&s);
    if (bytes < 0 || __builtin_mul_overflow(bytes, (int64_t)qm_dtype_size(dtype), &bytes))
        return qm_file_bad(w->f, "dataset '%.200s' does not fit in 2^63 bytes", w->path);
    *out = s;
    return QM_OK;
}

/* Whether a dataset is no tensor by what it is, and need not be named: a text or a table of a
 * result file. */
static int is_no_tensor(hid_t file, hid_t set, hid_t type)
{
    H5T_class_t class = H5Tget_class(type);
    return (class == H5T_STRING && H5Aexists(file, "schema") > 0) ||
           (class == H5T_COMPOUND && H5Aexists(set, "column_units") > 0);
}

/* Adds the open dataset, or leaves it out and says why. */
static qm_status take_dataset(struct walk *w, hid_t set, hid_t type, hid_t space, hid_t plist)
{
    struct qm_hdf5 *own = w->f->own;
    char why[WHY] = "";
    enum qm_dtype dtype = QM_DTYPE_f32;
    struct qm_shape shape;
    if (is_no_tensor(own->file, set, type))
        return QM_OK;
    if (H5Pget_layout(plist) == H5D_VIRTUAL || H5Pget_external_count(plist) > 0)
        snprintf(why, WHY, "its data is in other files");
    else if (qm_h5_guard_has_holes(set))
        snprintf(why, WHY, "values that were never written, and that HDF5 is told never to fill");
    else if (dtype_of(type, &dtype, why))
        QM_TRY(take_shape(w, space, dtype, &shape, why));
    if (*why) {
        qm_left_out_add(&own->left_out, "%.200s (%s)", w->path + 1, why);
        return QM_OK;
    }
    QM_TRY(qm_h5_guard_dataset(w->f->path, w->path, set));
    return qm_file_add(w->f, w->path, dtype, &shape, (struct qm_array_location){0});
}

static qm_status add_dataset(struct walk *w, hid_t group, const char *name)
{
    char why[200];
    hid_t set = H5Dopen2(group, name, H5P_DEFAULT);
    if (set < 0)
        return qm_file_bad(w->f, "dataset '%.200s': %s", w->path, qm_h5_guard_reason(why));
    hid_t type = H5Dget_type(set), space = H5Dget_space(set), plist = H5Dget_create_plist(set);
    qm_status st = type < 0 || space < 0 || plist < 0
                       ? qm_file_bad(w->f, "dataset '%.200s': %s", w->path, qm_h5_guard_reason(why))
                       : take_dataset(w, set, type, space, plist);
    H5Pclose(plist);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(set);
    return st;
}

static herr_t visit(hid_t group, const char *name, const H5L_info_t *link, void *data);

static qm_status enter_group(struct walk *w, hid_t group, const char *name, const H5O_info_t *info)
{
    char why[200];
    for (int k = 0; k < w->count.depth; k++)
        if (w->group[k].fileno == info->fileno && w->group[k].addr == info->addr)
            return QM_OK; /* a link back to a group on the path */
    if (qm_h5_guard_group(info->rc, &w->count) != QM_OK)
        return qm_fail_in(QM_BAD_FILE, w->f->path);
    if (w->count.depth == QM_H5_DEPTH_MAX)
        return qm_file_bad(w->f, "group '%.200s' nests deeper than %d", w->path, QM_H5_DEPTH_MAX);
    w->group[w->count.depth].fileno = info->fileno;
    w->group[w->count.depth++].addr = info->addr;
    herr_t end =
        H5Literate_by_name(group, name, H5_INDEX_NAME, H5_ITER_INC, NULL, visit, w, H5P_DEFAULT);
    w->count.depth--;
    if (end < 0 && w->st == QM_OK)
        return qm_file_bad(w->f, "group '%.200s': %s", w->path, qm_h5_guard_reason(why));
    return w->st;
}

static qm_status visit_link(struct walk *w, hid_t group, const char *name, const H5L_info_t *link)
{
    char why[200];
    H5O_info_t info;
    QM_TRY(qm_h5_guard_link(w->f->path, w->path, link, &w->count));
    if (H5Oget_info_by_name2(group, name, &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0)
        return qm_file_bad(w->f, "link '%.200s' leads nowhere: %s", w->path,
                           qm_h5_guard_reason(why));
    switch (info.type) {
    case H5O_TYPE_GROUP: return enter_group(w, group, name, &info);
    case H5O_TYPE_DATASET: return add_dataset(w, group, name);
    default: return QM_OK; /* a named type */
    }
}

/* Callback of H5Literate; a positive result ends the walk. */
static herr_t visit(hid_t group, const char *name, const H5L_info_t *link, void *data)
{
    struct walk *w = data;
    size_t before = w->length;
    size_t n = (size_t)snprintf(w->path + before, sizeof w->path - before, "/%s", name);
    if (n >= sizeof w->path - before) {
        w->st =
            qm_file_bad(w->f, "a path is longer than %zu: %.200s...", sizeof w->path - 1, w->path);
    } else {
        w->length += n;
        w->st = visit_link(w, group, name, link);
    }
    w->length = before;
    w->path[before] = '\0';
    return w->st == QM_OK ? 0 : 1;
}

static qm_status open_hdf5(struct qm_file *f)
{
    char why[200];
    struct qm_hdf5 *own = malloc(sizeof *own);
    struct walk *w = calloc(1, sizeof *w);
    f->own = own;
    qm_status st = own && w ? QM_OK : qm_fail(QM_NO_MEMORY, "%s: opening", f->path);
    if (own)
        *own = (struct qm_hdf5){.file = -1, .dataset = -1, .entry = -1};
    if (st == QM_OK)
        st = qm_h5_guard_open(f->path, CACHE, &own->file);
    if (st == QM_OK) {
        w->f = f;
        H5O_info_t info;
        if (H5Oget_info2(own->file, &info, H5O_INFO_BASIC) < 0)
            st = qm_file_bad(f, "root group: %s", qm_h5_guard_reason(why));
        else
            st = enter_group(w, own->file, "/", &info);
    }
    free(w);
    return st;
}

static void close_hdf5(struct qm_file *f)
{
    struct qm_hdf5 *own = f->own;
    if (!own)
        return;
    if (own->dataset >= 0)
        H5Dclose(own->dataset);
    if (own->file >= 0)
        H5Fclose(own->file);
    free(own);
    f->own = NULL;
}

const struct qm_format qm_format_hdf5 = {
    .name = "hdf5",
    .knows = knows,
    .open = open_hdf5,
    .read = qm_hdf5_read,
    .bytes = qm_hdf5_bytes,
    .close = close_hdf5,
    .attr_number = qm_hdf5_attr_number,
    .attr_text = qm_hdf5_attr_text,
    .kind = QM_FORMAT_served,
};
