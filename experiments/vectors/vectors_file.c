/* vectors_file.c - Opens a golden file and finds, reads and bounds its arrays. */
#include "experiments/vectors/vectors_file.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/foreign/json_parse.h"

static qm_status read_root(struct qm_vectors_file *in)
{
    int i;
    const struct qm_entry *e = qm_vectors_file_find(in, "golden", &i);
    if (!e || e->dtype != QM_DTYPE_u8)
        return qm_fail(QM_BAD_FILE, "%s: there is no array 'golden' of bytes; not a golden file",
                       in->path);
    if (e->numel > QM_VECTORS_TEXT)
        return qm_fail(QM_BAD_FILE, "%s: 'golden' is %lld bytes, expected at most %d", in->path,
                       (long long)e->numel, QM_VECTORS_TEXT);
    float *wide = malloc(sizeof *wide * ((size_t)e->numel + 1));
    char *text = malloc((size_t)e->numel + 1);
    qm_status st = wide && text ? qm_file_read(in->f, i, 0, e->numel, wide)
                                : qm_fail(QM_NO_MEMORY, "%s", in->path);
    for (int64_t k = 0; st == QM_OK && k < e->numel; k++)
        text[k] = (char)(uint8_t)wide[k];
    if (st == QM_OK)
        st = qm_fail_in(qm_json_parse(text, (size_t)e->numel, "'golden'", 0, &in->root), in->path);
    free(text);
    free(wide);
    return st;
}

static qm_status check_version(const struct qm_vectors_file *in)
{
    const char *format = "";
    int version = 0;
    json_unpack(in->root, "{s:s, s:i}", "format", &format, "version", &version);
    if (strcmp(format, QM_VECTORS_FORMAT) != 0 || version != QM_VECTORS_VERSION)
        return qm_fail(QM_BAD_FILE, "%s: format '%.24s', version %d; expected '%s', version %d%s",
                       in->path, format, version, QM_VECTORS_FORMAT, QM_VECTORS_VERSION,
                       version == 1 ? ": generate it again" : "");
    return QM_OK;
}

qm_status qm_vectors_file_open(const char *path, struct qm_vectors_file *out)
{
    out->path = path;
    QM_TRY(qm_file_open(path, &out->f));
    out->index = json_object();
    for (int i = 0; i < qm_file_count(out->f); i++) {
        const char *name = qm_file_entry(out->f, i)->name;
        name += *name == '/';
        if (json_object_get(out->index, name))
            return qm_fail(QM_BAD_FILE, "%s: there are two arrays '%s'", path, name);
        if (json_object_set_new(out->index, name, json_integer(i)) != 0)
            return qm_fail(QM_BAD_FILE, "%s: the name of array %d is no UTF-8", path, i);
    }
    QM_TRY(read_root(out));
    return check_version(out);
}

void qm_vectors_file_close(struct qm_vectors_file *in)
{
    json_decref(in->root);
    json_decref(in->index);
    qm_file_close(in->f);
    *in = (struct qm_vectors_file){.path = in->path};
}

const struct qm_entry *qm_vectors_file_find(const struct qm_vectors_file *in, const char *name,
                                            int *i)
{
    const json_t *at = json_object_get(in->index, name);
    if (!at)
        return NULL;
    if (i)
        *i = (int)json_integer_value(at);
    return qm_file_entry(in->f, (int)json_integer_value(at));
}

uint64_t qm_vectors_file_seed(const struct qm_vectors_file *in)
{
    const char *text = json_string_value(json_object_get(in->root, "seed"));
    return text ? strtoull(text, NULL, 10) : 0;
}

/* The shape without its dims of 1. */
static struct qm_shape squeezed(const struct qm_shape *shape)
{
    struct qm_shape out = {.rank = 0};
    for (int i = 0; i < shape->rank; i++)
        if (shape->dim[i] != 1)
            out.dim[out.rank++] = shape->dim[i];
    return out;
}

static int fits(const struct qm_shape *got, const struct qm_shape *want)
{
    struct qm_shape a = squeezed(got), b = squeezed(want);
    if (qm_shape_numel(got) != qm_shape_numel(want))
        return 0;
    return a.rank <= 1 || (a.rank == b.rank && memcmp(a.dim, b.dim, sizeof a.dim) == 0);
}

qm_status qm_vectors_file_read(const struct qm_vectors_file *in, const char *name,
                               enum qm_dtype dtype, const struct qm_shape *shape, float *out)
{
    int i;
    char got[128], want[128];
    const struct qm_entry *e = qm_vectors_file_find(in, name, &i);
    if (!e)
        return qm_fail(QM_BAD_FILE, "%s: there is no array '%s'", in->path, name);
    if (e->dtype != dtype || !fits(&e->shape, shape))
        return qm_fail(QM_BAD_FILE, "%s: '%s' is %s of %s, expected %s of %s", in->path, name,
                       qm_shape_print(&e->shape, got, sizeof got), qm_dtype_name(e->dtype),
                       qm_shape_print(shape, want, sizeof want), qm_dtype_name(dtype));
    return qm_file_read(in->f, i, 0, e->numel, out);
}
