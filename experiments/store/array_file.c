/* array_file.c - Writes named arrays to .npz and .safetensors files. */
#include "experiments/store/array_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "experiments/store/atomic_file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are written as they lie");

size_t qm_tensor_bytes(const struct qm_tensor *t)
{
    return (size_t)qm_shape_numel(&t->shape) * qm_dtype_size(t->dtype);
}

enum qm_container qm_container_of(const char *path)
{
    static const char *const ending[QM_CONTAINER_COUNT] = {".safetensors", ".npz", ".h5"};
    size_t n = strlen(path);
    for (int i = 0; i < QM_CONTAINER_COUNT; i++) {
        size_t m = strlen(ending[i]);
        if (n > m && strcmp(path + n - m, ending[i]) == 0)
            return (enum qm_container)i;
    }
    return QM_CONTAINER_COUNT;
}

/* Destination of bytes: a file, or stdout. */
struct sink {
    struct qm_atomic_file file;
    int is_stdout;
};

static qm_status write_bytes(const struct sink *s, const void *bytes, size_t n)
{
    if (!s->is_stdout)
        return qm_atomic_file_write(&s->file, bytes, n);
    if (n > 0 && fwrite(bytes, 1, n, stdout) != n)
        return qm_fail(QM_BAD_FILE, "cannot write to stdout: %s", strerror(errno));
    return QM_OK;
}

/* ---- safetensors --------------------------------------------------------------------------- */

static json_t *entry(const struct qm_tensor *t, size_t at)
{
    static const char *const names[] = {
#define X(name, bytes, is_float, st) st,
        QM_DTYPE_LIST(X)
#undef X
    };
    json_t *shape = json_array();
    for (int i = 0; i < t->shape.rank; i++)
        json_array_append_new(shape, json_integer(t->shape.dim[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", names[t->dtype], "shape", shape,
                     "data_offsets", (json_int_t)at, (json_int_t)(at + qm_tensor_bytes(t)));
}

/* The header, padded with spaces to a multiple of 8 bytes; the caller frees it. */
static char *header(json_t *texts, const struct qm_array *a, int n)
{
    json_t *root = json_object();
    size_t at = 0;
    if (texts)
        json_object_set(root, "__metadata__", texts);
    for (size_t size = 8; size > 0; size /= 2)
        for (int i = 0; i < n; i++)
            if (qm_dtype_size(a[i].tensor->dtype) == size) {
                json_object_set_new(root, a[i].name, entry(a[i].tensor, at));
                at += qm_tensor_bytes(a[i].tensor);
            }
    char *text = json_dumps(root, JSON_COMPACT), *padded = NULL;
    json_decref(root);
    if (text && asprintf(&padded, "%-*s", (int)((strlen(text) + 7) / 8 * 8), text) < 0)
        padded = NULL;
    free(text);
    return padded;
}

static qm_status write_safetensors(const struct sink *s, json_t *texts, const struct qm_array *a,
                                   int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(a[i].name, "__metadata__") == 0)
            return qm_fail(QM_BAD_FILE,
                           "an array is called __metadata__, which a .safetensors file "
                           "has for its texts; a .npz file takes it");
    char *head = header(texts, a, n);
    if (!head)
        return qm_fail(QM_NO_MEMORY, "header of %d arrays", n);
    uint64_t length = strlen(head);
    qm_status st = write_bytes(s, &length, sizeof length);
    if (st == QM_OK)
        st = write_bytes(s, head, (size_t)length);
    free(head);
    for (size_t size = 8; size > 0; size /= 2)
        for (int i = 0; st == QM_OK && i < n; i++)
            if (qm_dtype_size(a[i].tensor->dtype) == size)
                st = write_bytes(s, a[i].tensor->data, qm_tensor_bytes(a[i].tensor));
    return st;
}

/* ---- npz ----------------------------------------------------------------------------------- */

/* NumPy refuses a shape whose sizes other than 0 have a product beyond its index type, though the
 * array be empty. */
static int numpy_holds(const struct qm_tensor *t)
{
    int64_t bytes = (int64_t)qm_dtype_size(t->dtype);
    for (int i = 0; i < t->shape.rank; i++)
        if (t->shape.dim[i] > 0 && __builtin_mul_overflow(bytes, t->shape.dim[i], &bytes))
            return 0;
    return 1;
}

/* An array as a .npy file in memory, which the caller frees. */
static qm_status npy(const struct qm_array *a, unsigned char **out, size_t *size)
{
    static const char *const descr[] = {
        [QM_DTYPE_f64] = "<f8",  [QM_DTYPE_f32] = "<f4", [QM_DTYPE_f16] = "<f2",
        [QM_DTYPE_bf16] = "|V2", [QM_DTYPE_i64] = "<i8", [QM_DTYPE_i32] = "<i4",
        [QM_DTYPE_i16] = "<i2",  [QM_DTYPE_i8] = "|i1",  [QM_DTYPE_u64] = "<u8",
        [QM_DTYPE_u32] = "<u4",  [QM_DTYPE_u16] = "<u2", [QM_DTYPE_u8] = "|u1",
        [QM_DTYPE_bool] = "|b1"};
    const struct qm_shape *s = &a->tensor->shape;
    char text[384], dims[224] = "";
    size_t used = 0, bytes = qm_tensor_bytes(a->tensor);
    for (int i = 0; i < s->rank; i++)
        used += (size_t)snprintf(dims + used, sizeof dims - used, "%s%lld%s", i ? ", " : "",
                                 (long long)s->dim[i], s->rank == 1 ? "," : "");
    int length =
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                 descr[a->tensor->dtype], dims);
    size_t head = (10 + (size_t)length + 1 + 63) / 64 * 64; /* data begins at a multiple of 64 */
    unsigned char *npy = malloc(head + bytes);
    if (!npy)
        return qm_fail(QM_NO_MEMORY, "%s", a->name);
    memcpy(npy, "\x93NUMPY\x01\x00", 8);
    npy[8] = (unsigned char)((head - 10) & 255);
    npy[9] = (unsigned char)((head - 10) >> 8);
    memset(npy + 10, ' ', head - 10);
    memcpy(npy + 10, text, (size_t)length);
    npy[head - 1] = '\n';
    if (bytes > 0)
        memcpy(npy + head, a->tensor->data, bytes);
    *out = npy;
    *size = head + bytes;
    return QM_OK;
}

static qm_status zip_one(zip_t *z, const struct qm_array *a)
{
    enum { FIRST_OF_1980 = 1 << 5 | 1, NAME_MOST = 507 };
    unsigned char *bytes = NULL;
    size_t size = 0;
    char name[NAME_MOST + 5];
    if ((size_t)snprintf(name, sizeof name, "%s.npy", a->name) >= sizeof name)
        return qm_fail(QM_BAD_FILE, "'%.40s...': a name of %zu bytes, a .npz file takes at most %d",
                       a->name, strlen(a->name), NAME_MOST);
    for (const char *c = a->name; *c; c++)
        if ((unsigned char)*c < 0x20 && !strchr("\t\n\r", *c))
            return qm_fail(QM_BAD_FILE,
                           "the name '%s' has the control character 0x%02x, which a .npz file "
                           "cannot hold; a .safetensors file takes it",
                           a->name, (unsigned)*c);
    if (!numpy_holds(a->tensor))
        return qm_fail(QM_BAD_FILE,
                       "'%s' is empty, and of a shape that NumPy does not load; a "
                       ".safetensors file takes it",
                       a->name);
    QM_TRY(npy(a, &bytes, &size));
    zip_source_t *source = zip_source_buffer(z, bytes, size, 1);
    if (!source) {
        free(bytes);
        return qm_fail(QM_NO_MEMORY, "%s", a->name);
    }
    zip_int64_t i = zip_file_add(z, name, source, ZIP_FL_ENC_UTF_8);
    if (i < 0)
        zip_source_free(source);
    if (i < 0 || zip_set_file_compression(z, (zip_uint64_t)i, ZIP_CM_STORE, 0) != 0 ||
        zip_file_set_dostime(z, (zip_uint64_t)i, 0, FIRST_OF_1980, 0) != 0)
        return qm_fail(QM_INTERNAL, "%s: %s", name, zip_strerror(z));
    return QM_OK;
}

/* Writes the archive that libzip has built in its buffer. */
static qm_status write_buffer(const struct sink *s, zip_source_t *buffer)
{
    unsigned char piece[1 << 16];
    zip_int64_t got = 0;
    if (zip_source_open(buffer) != 0)
        return qm_fail(QM_INTERNAL, "cannot read an archive in memory");
    qm_status st = QM_OK;
    while (st == QM_OK && (got = zip_source_read(buffer, piece, sizeof piece)) > 0)
        st = write_bytes(s, piece, (size_t)got);
    zip_source_close(buffer);
    return got < 0 ? qm_fail(QM_INTERNAL, "cannot read an archive in memory") : st;
}

static qm_status write_npz(const struct sink *s, const struct qm_array *a, int n)
{
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t *buffer = zip_source_buffer_create(NULL, 0, 0, &error);
    zip_t *z = buffer ? zip_open_from_source(buffer, ZIP_TRUNCATE, &error) : NULL;
    qm_status st = QM_OK;
    if (!z) {
        st = qm_fail(QM_NO_MEMORY, "archive: %s", zip_error_strerror(&error));
        zip_error_fini(&error);
        if (buffer)
            zip_source_free(buffer);
        return st;
    }
    zip_source_keep(buffer);
    for (int i = 0; st == QM_OK && i < n; i++)
        st = zip_one(z, &a[i]);
    if (st != QM_OK) {
        zip_discard(z);
    } else if (zip_close(z) != 0) {
        st = qm_fail(QM_INTERNAL, "archive: %s", zip_strerror(z));
        zip_discard(z);
    } else {
        st = write_buffer(s, buffer);
    }
    zip_source_free(buffer);
    zip_error_fini(&error);
    return st;
}

/* ---- both ---------------------------------------------------------------------------------- */

qm_status qm_arrays_write(const char *path, enum qm_container form, json_t *texts,
                          const struct qm_array *a, int n)
{
    struct sink s = {.is_stdout = strcmp(path, "-") == 0};
    if (!s.is_stdout)
        QM_TRY(qm_atomic_file_open(path, &s.file));
    qm_status st =
        form == QM_CONTAINER_npz ? write_npz(&s, a, n) : write_safetensors(&s, texts, a, n);
    if (s.is_stdout) {
        if (st == QM_OK && fflush(stdout) != 0)
            st = qm_fail(QM_BAD_FILE, "cannot write to stdout: %s", strerror(errno));
        return st;
    }
    if (st == QM_OK)
        st = qm_atomic_file_commit(&s.file);
    qm_atomic_file_abort(&s.file);
    return st;
}
