/* h5_attribute.c - Reads attributes after their class, number of values and size are known. */
#include "experiments/foreign/h5_attribute.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES_MOST = 64 << 20 }; /* of an attribute in memory */

/* An open attribute. */
struct attribute {
    hid_t id, type;
    H5T_class_t class;
    hssize_t n;   /* values */
    size_t width; /* bytes of one */
};

static void attribute_close(struct attribute *a)
{
    if (a->type >= 0)
        H5Tclose(a->type);
    if (a->id >= 0)
        H5Aclose(a->id);
}

static qm_status unreadable(const char *name)
{
    char why[200];
    qm_h5_guard_reason(why);
    return qm_fail(QM_BAD_FILE, "attribute '%.200s' cannot be read (HDF5: %s)", name, why);
}

static qm_status attribute_open(hid_t object, const char *name, struct attribute *out)
{
    if (H5Aexists(object, name) <= 0)
        return qm_fail(QM_NO_MATCH, "no attribute '%.200s'", name);
    struct attribute a = {H5Aopen(object, name, H5P_DEFAULT), -1, H5T_NO_CLASS, -1, 0};
    hid_t space = a.id < 0 ? -1 : H5Aget_space(a.id);
    size_t bytes = 0;
    a.type = a.id < 0 ? -1 : H5Aget_type(a.id);
    a.class = a.type < 0 ? H5T_NO_CLASS : H5Tget_class(a.type);
    a.width = a.type < 0 ? 0 : H5Tget_size(a.type);
    a.n = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    qm_status st = QM_OK;
    if (a.class == H5T_NO_CLASS || a.n < 0 || a.width == 0)
        st = unreadable(name);
    else if (__builtin_mul_overflow((size_t)a.n, a.width, &bytes) || bytes > BYTES_MOST)
        st = qm_fail(QM_BAD_FILE, "attribute '%.200s' has more than %d bytes", name, BYTES_MOST);
    if (space >= 0)
        H5Sclose(space);
    if (st == QM_OK)
        *out = a;
    else
        attribute_close(&a);
    return st;
}

static int is_number(const struct attribute *a)
{
    return a->n == 1 && (a->class == H5T_INTEGER || a->class == H5T_FLOAT);
}

static int is_text(const struct attribute *a) { return a->n == 1 && a->class == H5T_STRING; }

qm_status qm_h5_attribute_kind(hid_t object, const char *name, enum qm_h5_attribute *out)
{
    struct attribute a;
    QM_TRY(attribute_open(object, name, &a));
    qm_status st = QM_OK;
    if (is_number(&a) || is_text(&a))
        *out = is_text(&a) ? QM_H5_ATTRIBUTE_TEXT : QM_H5_ATTRIBUTE_NUMBER;
    else
        st = qm_fail(QM_BAD_FILE, "attribute '%.200s' is neither one text nor one number", name);
    attribute_close(&a);
    return st;
}

qm_status qm_h5_attribute_number(hid_t object, const char *name, double *out)
{
    struct attribute a;
    QM_TRY(attribute_open(object, name, &a));
    qm_status st = QM_OK;
    if (!is_number(&a))
        st = qm_fail(QM_BAD_FILE, "attribute '%.200s' is not one number", name);
    else if (H5Aread(a.id, H5T_NATIVE_DOUBLE, out) < 0)
        st = unreadable(name);
    attribute_close(&a);
    return st;
}

/* A copy of the one text of a; NULL: HDF5 cannot read it, or no memory. */
static char *text_read(const struct attribute *a)
{
    char *out = NULL, *stored = NULL;
    if (H5Tis_variable_str(a->type) > 0) {
        if (H5Aread(a->id, a->type, &stored) >= 0)
            out = strdup(stored ? stored : "");
        H5free_memory(stored);
        return out;
    }
    size_t n = a->width;
    out = calloc(1, n + 1);
    if (out && H5Aread(a->id, a->type, out) < 0) {
        free(out);
        return NULL;
    }
    while (out && n > 0 && H5Tget_strpad(a->type) == H5T_STR_SPACEPAD && out[n - 1] == ' ')
        out[--n] = '\0';
    return out;
}

qm_status qm_h5_attribute_text(hid_t object, const char *name, char **out)
{
    struct attribute a;
    QM_TRY(attribute_open(object, name, &a));
    qm_status st = QM_OK;
    char *text = NULL;
    if (!is_text(&a))
        st = qm_fail(QM_BAD_FILE, "attribute '%.200s' is not one text", name);
    else if (!(text = text_read(&a)))
        st = unreadable(name);
    else
        *out = text;
    attribute_close(&a);
    return st;
}

char **qm_h5_texts_of(const char *bytes, size_t n, size_t width)
{
    size_t each = 0, all = 0;
    char **out = NULL;
    if (!__builtin_add_overflow(sizeof *out + 1, width, &each) &&
        !__builtin_mul_overflow(n ? n : 1, each, &all))
        out = malloc(all);
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

qm_status qm_h5_attribute_texts(hid_t object, const char *name, size_t *n, char ***out)
{
    struct attribute a;
    QM_TRY(attribute_open(object, name, &a));
    char *bytes = NULL, **texts = NULL;
    qm_status st = QM_OK;
    if (a.class != H5T_STRING || H5Tis_variable_str(a.type) != 0)
        st = qm_fail(QM_BAD_FILE, "attribute '%.200s' is no text of fixed width", name);
    else if (!(bytes = calloc((size_t)a.n + 1, a.width)) || H5Aread(a.id, a.type, bytes) < 0)
        st = unreadable(name);
    else if (!(texts = qm_h5_texts_of(bytes, (size_t)a.n, a.width)))
        st = qm_fail(QM_NO_MEMORY, "attribute '%.200s'", name);
    if (st == QM_OK) {
        *n = (size_t)a.n;
        *out = texts;
    }
    free(bytes);
    attribute_close(&a);
    return st;
}
