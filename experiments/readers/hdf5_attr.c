/* hdf5_attr.c - The HDF5 reader: reads attributes of objects. */
#include <stdlib.h>
#include <string.h>

#include "experiments/readers/hdf5.h"

#define ATTR_MAX ((hssize_t)1 << 20) /* elements or bytes */

/* Opens an attribute and its type, and counts its values; -1 when there is none. */
static hid_t open_attr(struct qm_file *f, const char *path, const char *name, hid_t *type,
                       hssize_t *points)
{
    struct qm_hdf5 *own = f->own;
    if (H5Aexists_by_name(own->file, path, name, H5P_DEFAULT) <= 0)
        return -1;
    hid_t attr = H5Aopen_by_name(own->file, path, name, H5P_DEFAULT, H5P_DEFAULT);
    if (attr < 0)
        return -1;
    hid_t space = H5Aget_space(attr);
    *points = H5Sget_simple_extent_npoints(space);
    *type = H5Aget_type(attr);
    H5Sclose(space);
    return attr;
}

int qm_hdf5_attr_number(struct qm_file *f, const char *path, const char *name, double *out, int max)
{
    hid_t type;
    hssize_t points;
    hid_t attr = open_attr(f, path, name, &type, &points);
    if (attr < 0)
        return -1;
    enum qm_dtype dtype;
    int got = -1;
    if ((H5Tget_class(type) == H5T_INTEGER || qm_h5_guard_float(type, &dtype)) && points >= 0 &&
        points <= ATTR_MAX) {
        double *all = malloc((size_t)(points + 1) * sizeof *all);
        if (all && H5Aread(attr, H5T_NATIVE_DOUBLE, all) >= 0) {
            got = points < max ? (int)points : max;
            memcpy(out, all, (size_t)got * sizeof *all);
        }
        free(all);
    }
    H5Tclose(type);
    H5Aclose(attr);
    return got;
}

/* The string, which the caller frees with H5free_memory; NULL when it cannot be read. */
static char *read_text(hid_t attr, hid_t type)
{
    int variable = H5Tis_variable_str(type) > 0;
    size_t bytes = H5Tget_size(type) + 1;
    char *text = NULL;
    hid_t memory = H5Tcopy(H5T_C_S1);
    H5Tset_cset(memory, H5Tget_cset(type));
    if (variable) {
        H5Tset_size(memory, H5T_VARIABLE);
        if (H5Aread(attr, memory, &text) < 0)
            text = NULL;
        else if (!text) /* a null string */
            text = H5allocate_memory(1, 1);
    } else if (bytes <= (size_t)ATTR_MAX && H5Tset_size(memory, bytes) >= 0) {
        text = H5allocate_memory(bytes, 1);
        if (text && H5Aread(attr, memory, text) < 0) {
            H5free_memory(text);
            text = NULL;
        }
    }
    H5Tclose(memory);
    return text;
}

static int stored_text(struct qm_file *f, const char *path, const char *name, char *out,
                       size_t size)
{
    hid_t type;
    hssize_t points;
    hid_t attr = open_attr(f, path, name, &type, &points);
    if (attr < 0)
        return -1;
    int got = -1;
    char *text = H5Tget_class(type) == H5T_STRING && points == 1 ? read_text(attr, type) : NULL;
    if (text && size > 0) {
        size_t n = strnlen(text, size - 1);
        memcpy(out, text, n);
        out[n] = '\0';
        got = (int)n;
    }
    H5free_memory(text);
    H5Tclose(type);
    H5Aclose(attr);
    return got;
}

/* "left_out" of "/" is what this reader left out, after what the file's writer says that it did. */
int qm_hdf5_attr_text(struct qm_file *f, const char *path, const char *name, char *out, size_t size)
{
    const struct qm_hdf5 *own = f->own;
    int n = stored_text(f, path, name, out, size);
    if (own->left_out.n == 0 || strcmp(path, "/") != 0 || strcmp(name, "left_out") != 0)
        return n;
    size_t used = n > 0 && size > 2 ? (size_t)n : 0;
    if (used > 0)
        used += (size_t)snprintf(out + used, size - used, "; ");
    used = used < size ? used : size - 1;
    qm_left_out_text(&own->left_out, out + used, size - used);
    return (int)strlen(out);
}
