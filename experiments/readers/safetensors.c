/* safetensors.c - The reader of .safetensors files: named tensors behind a JSON header.
 *
 * Format (huggingface/safetensors, README "Format" and safetensors/src/tensor.rs): the header's
 * length (8 bytes little-endian), the header (begins with '{', may end in spaces), the data.  The
 * header maps each name to {"dtype", "shape", "data_offsets": [begin, end]}, offsets relative to
 * the data, and "__metadata__" to strings.  The tensors tile the data without holes or overlap.
 * Strings with keys PATH@NAME are attributes of PATH, as experiments/record/ writes them. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "experiments/readers/format.h"

#define HEADER_MAX    ((uint64_t)100000000) /* as MAX_HEADER_SIZE of tensor.rs */
#define DEPTH_MAX     3                     /* header, tensor, shape */
#define ATTRIBUTE_MAX 1200                  /* bytes of an attribute's key */

/* The bytes of a tensor in the data, to check that the tensors tile it. */
struct extent {
    int64_t begin, end;
    const char *name;
};

static const char *const dtype_names[] = {
#define X(name, bytes, is_float, st) st,
    QM_DTYPE_LIST(X)
#undef X
};

static uint64_t header_length(const unsigned char *map)
{
    uint64_t n = 0;
    memcpy(&n, map, 8);
    return n;
}

/* The format has no magic number: a length below 2^48 and the brace that must follow
 * identify it. */
static int knows(const unsigned char *map, size_t size)
{
    return size > 8 && map[8] == '{' && header_length(map) >> 48 == 0;
}

/* Refuses deep nesting before the JSON library allocates memory for it. */
static qm_status check_depth(const struct qm_file *f, const char *text, size_t n)
{
    int depth = 0, quoted = 0;
    for (size_t i = 0; i < n; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted)
            depth += (text[i] == '{' || text[i] == '[') - (text[i] == '}' || text[i] == ']');
        if (depth > DEPTH_MAX)
            return qm_file_bad(f, "header, byte %zu: nests deeper than %d", 8 + i, DEPTH_MAX);
    }
    return QM_OK;
}

static qm_status parse_header(struct qm_file *f, json_t **out)
{
    uint64_t length = header_length(f->map);
    if (length > HEADER_MAX)
        return qm_file_bad(f, "header of %llu bytes, expected at most %llu",
                           (unsigned long long)length, (unsigned long long)HEADER_MAX);
    if (length > f->size - 8)
        return qm_file_bad(f, "header of %llu bytes at byte 8, but the file ends at %zu",
                           (unsigned long long)length, f->size);
    const char *text = (const char *)f->map + 8;
    QM_TRY(check_depth(f, text, (size_t)length));
    json_error_t error;
    json_t *root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return qm_file_bad(f, "header, byte %d: not JSON: %s", 8 + error.position, error.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return qm_file_bad(f, "header: expected a JSON object");
    }
    *out = root;
    return QM_OK;
}

static qm_status take_dtype(const struct qm_file *f, const char *name, const json_t *value,
                            enum qm_dtype *out)
{
    const char *text = json_string_value(value);
    for (int d = 0; text && d < QM_DTYPE_COUNT; d++)
        if (strcmp(text, dtype_names[d]) == 0) {
            *out = (enum qm_dtype)d;
            return QM_OK;
        }
    return qm_file_bad(f,
                       "'%.120s': dtype %.24s, expected F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 "
                       "U16 U8 or BOOL",
                       name, text ? text : "missing");
}

static qm_status take_shape(const struct qm_file *f, const char *name, const json_t *value,
                            struct qm_shape *out)
{
    struct qm_shape shape = {0, {0}};
    if (!json_is_array(value) || json_array_size(value) > QM_MAX_RANK)
        return qm_file_bad(f, "'%.120s': shape: expected a list of at most %d sizes", name,
                           QM_MAX_RANK);
    for (size_t k = 0; k < json_array_size(value); k++) {
        const json_t *d = json_array_get(value, k);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return qm_file_bad(f, "'%.120s': shape: size %zu is no integer of at least 0", name, k);
        shape.dim[shape.rank++] = json_integer_value(d);
    }
    *out = shape;
    return QM_OK;
}

static qm_status add_tensor(struct qm_file *f, const char *name, const json_t *value,
                            size_t data_start, struct extent *extent)
{
    enum qm_dtype dtype = QM_DTYPE_COUNT;
    struct qm_shape shape;
    char text[192];
    if (!json_is_object(value))
        return qm_file_bad(f, "'%.120s': expected an object", name);
    QM_TRY(take_dtype(f, name, json_object_get(value, "dtype"), &dtype));
    QM_TRY(take_shape(f, name, json_object_get(value, "shape"), &shape));
    const json_t *offsets = json_object_get(value, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return qm_file_bad(f, "'%.120s': data_offsets: expected two integers", name);
    *extent = (struct extent){json_integer_value(begin), json_integer_value(end), name};
    int64_t room = (int64_t)(f->size - data_start), bytes = qm_shape_numel(&shape);
    if (extent->begin < 0 || extent->begin > extent->end || extent->end > room)
        return qm_file_bad(f, "'%.120s': data_offsets [%lld, %lld] outside the %lld bytes of data",
                           name, (long long)extent->begin, (long long)extent->end, (long long)room);
    if (bytes < 0 || __builtin_mul_overflow(bytes, (int64_t)qm_dtype_size(dtype), &bytes) ||
        bytes != extent->end - extent->begin)
        return qm_file_bad(f, "'%.120s': %s of %s does not take the %lld bytes of its data_offsets",
                           name, qm_shape_print(&shape, text, sizeof text), dtype_names[dtype],
                           (long long)(extent->end - extent->begin));
    struct qm_array_location place = {data_start + (size_t)extent->begin, 0, 0};
    return qm_file_add(f, name, dtype, &shape, place);
}

static int by_begin(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static qm_status check_tiling(const struct qm_file *f, struct extent *e, size_t n, int64_t room)
{
    int64_t at = 0;
    if (n > 0)
        qsort(e, n, sizeof *e, by_begin);
    for (size_t k = 0; k < n; k++) {
        if (e[k].begin != at)
            return qm_file_bad(
                f, "'%.120s' begins at data byte %lld, %s %lld", e[k].name, (long long)e[k].begin,
                e[k].begin < at ? "overlapping the tensor that ends at" : "leaving a hole after",
                (long long)at);
        at = e[k].end;
    }
    if (at != room)
        return qm_file_bad(f, "tensors end at data byte %lld, but there are %lld bytes of data",
                           (long long)at, (long long)room);
    return QM_OK;
}

static qm_status open_safetensors(struct qm_file *f)
{
    json_t *root;
    QM_TRY(parse_header(f, &root));
    size_t data_start = 8 + (size_t)header_length(f->map), n = 0;
    struct extent *extents = calloc(json_object_size(root) + 1, sizeof *extents);
    qm_status st = extents ? QM_OK : qm_fail(QM_NO_MEMORY, "%s: header", f->path);
    const char *name;
    json_t *value;
    json_object_foreach (root, name, value) {
        if (st == QM_OK && strcmp(name, "__metadata__") != 0)
            st = add_tensor(f, name, value, data_start, &extents[n++]);
    }
    if (st == QM_OK)
        st = check_tiling(f, extents, n, (int64_t)(f->size - data_start));
    free(extents);
    f->own = json_incref(json_object_get(root, "__metadata__"));
    json_decref(root);
    if (st == QM_OK)
        madvise((void *)f->map, f->size, MADV_SEQUENTIAL);
    return st;
}

static void close_safetensors(struct qm_file *f) { json_decref(f->own); }

/* The text of an attribute: key NAME for "/", PATH@NAME for the rest; NULL: there is none. */
static const json_t *attribute(const struct qm_file *f, const char *path, const char *name)
{
    char key[ATTRIBUTE_MAX];
    int is_root = strcmp(path, "/") == 0;
    int n = snprintf(key, sizeof key, "%s%s%s", is_root ? "" : path, is_root ? "" : "@", name);
    const json_t *value = n < (int)sizeof key ? json_object_get(f->own, key) : NULL;
    return json_is_string(value) ? value : NULL;
}

static int attr_text(struct qm_file *f, const char *path, const char *name, char *out, size_t size)
{
    const json_t *value = attribute(f, path, name);
    if (!value)
        return -1;
    size_t length = json_string_length(value), kept = length < size ? length : size - 1;
    if (size > 0) {
        memcpy(out, json_string_value(value), kept);
        out[kept] = '\0';
    }
    return (int)length;
}

/* A text that is one finite number and nothing else. */
static int attr_number(struct qm_file *f, const char *path, const char *name, double *out, int max)
{
    const json_t *value = attribute(f, path, name);
    char *end = NULL;
    double x = value ? strtod(json_string_value(value), &end) : 0.0;
    if (!value || end == json_string_value(value) || *end || !isfinite(x))
        return -1;
    if (max > 0)
        out[0] = x;
    return max > 0;
}

const struct qm_format qm_format_safetensors = {
    .name = "safetensors",
    .knows = knows,
    .open = open_safetensors,
    .read = qm_mapped_read,
    .close = close_safetensors,
    .attr_number = attr_number,
    .attr_text = attr_text,
};
