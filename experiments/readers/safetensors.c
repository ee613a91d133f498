/* safetensors.c - The reader of .safetensors files: named tensors behind a JSON header.
 *
 * Format (huggingface/safetensors, README "Format" and safetensors/src/tensor.rs): the header's
 * length (8 bytes little-endian), the header (begins with '{', may end in spaces), the data.  The
 * header maps each name to {"dtype", "shape", "data_offsets": [begin, end]}, offsets relative to
 * the data, and "__metadata__" to strings.  The tensors tile the data without holes or overlap.
 * Strings with keys PATH@NAME are attributes of PATH, as experiments/record/ writes them.
 *
 * A file of qualm state (state/state_file.h) carries a digest of its contents: it is compared. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/sha256.h"
#include "experiments/foreign/json_parse.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/float8.h"
#include "experiments/readers/format.h"

#define HEADER_MAX ((uint64_t)100000000) /* as MAX_HEADER_SIZE of tensor.rs */
#define DEPTH_MAX  3                     /* header, tensor, shape */

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
    json_t *root;
    QM_TRY(qm_json_parse(text, (size_t)length, "header", 8, &root));
    if (!json_is_object(root)) {
        json_decref(root);
        return qm_file_bad(f, "header: expected a JSON object");
    }
    *out = root;
    return QM_OK;
}

/* How an element lies in the file, and as what an entry gives it. */
struct element {
    enum qm_dtype dtype;
    int code;  /* enum qm_float8 */
    int parts; /* 2: complex, whose real and imaginary part are a last axis of 2; 0: not read */
};

static const char *const float8_names[QM_FLOAT8_COUNT] = {"",
#define X(name, dtype) dtype,
                                                          QM_FLOAT8_LIST(X)
#undef X
};

static qm_status take_dtype(const struct qm_file *f, const char *name, const json_t *value,
                            struct element *out)
{
    const char *text = json_string_value(value);
    for (int d = 0; text && d < QM_DTYPE_COUNT; d++)
        if (strcmp(text, dtype_names[d]) == 0) {
            *out = (struct element){(enum qm_dtype)d, 0, 1};
            return QM_OK;
        }
    for (int k = 1; text && k < QM_FLOAT8_COUNT; k++)
        if (strcmp(text, float8_names[k]) == 0) {
            *out = (struct element){QM_DTYPE_f32, k, 1};
            return QM_OK;
        }
    *out = (struct element){QM_DTYPE_f32, 0, text && strcmp(text, "C64") == 0 ? 2 : 0};
    if (text)
        return QM_OK;
    return qm_file_bad(f, "'%.120s': dtype missing, expected a text such as F32", name);
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
            return qm_file_bad(
                f, "'%.120s': shape: size number %zu is not an integer of at least 0", name, k + 1);
        shape.dim[shape.rank++] = json_integer_value(d);
    }
    *out = shape;
    return QM_OK;
}

static qm_status add_tensor(struct qm_file *f, const char *name, const json_t *value,
                            size_t data_start, struct extent *extent, struct qm_left_out *left)
{
    struct element of;
    struct qm_shape shape;
    char text[192];
    if (!json_is_object(value))
        return qm_file_bad(f, "'%.120s': expected an object", name);
    QM_TRY(take_dtype(f, name, json_object_get(value, "dtype"), &of));
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
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    if (of.parts == 0 || (of.parts == 2 && shape.rank == QM_MAX_RANK)) {
        qm_left_out_add(left, "%.200s (%s %.24s)", name,
                        of.parts ? "complex numbers in 8 dimensions, dtype" : "dtype", dtype);
        return QM_OK;
    }
    int64_t size = of.code ? 1 : of.parts * (int64_t)qm_dtype_size(of.dtype);
    if (bytes < 0 || __builtin_mul_overflow(bytes, size, &bytes) ||
        bytes != extent->end - extent->begin)
        return qm_file_bad(f, "'%.120s': %s of %s does not take the %lld bytes of its data_offsets",
                           name, qm_shape_print(&shape, text, sizeof text), dtype,
                           (long long)(extent->end - extent->begin));
    if (of.parts == 2)
        shape.dim[shape.rank++] = 2;
    struct qm_array_location place = {data_start + (size_t)extent->begin, 0, 0, of.code,
                                      of.parts == 2};
    return qm_file_add(f, name, of.dtype, &shape, place);
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

/* ---- digest of a state --------------------------------------------------------------------- */

/* A state file while its contents are hashed. */
struct state_sum {
    struct qm_file *f;
    const json_t *header;
    size_t data_start;
    struct qm_sha256 sum;
};

/* Hashes the bytes of array TENSOR/ARRAY, where there is one; returns whether there is. */
static int hash_array(struct state_sum *s, const char *tensor, const char *array,
                      const char *ending)
{
    enum { PIECE = 1 << 22 };
    char *name = NULL;
    if (asprintf(&name, "%s/%s%s", tensor, array, ending) < 0)
        return 0;
    const json_t *offsets = json_object_get(json_object_get(s->header, name), "data_offsets");
    free(name);
    if (!offsets)
        return 0;
    size_t at = s->data_start + (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t end = s->data_start + (size_t)json_integer_value(json_array_get(offsets, 1));
    for (size_t n; at < end; at += n) {
        n = end - at < PIECE ? end - at : PIECE;
        qm_sha256_add(&s->sum, s->f->map + at, n);
        qm_mapped_touched(s->f, n);
        qm_reader_progress();
    }
    return 1;
}

/* A copy of an object with some of its members. */
static json_t *members(const json_t *of, const char *const *names)
{
    json_t *out = json_object();
    for (; *names; names++)
        if (json_object_get(of, *names))
            json_object_set(out, *names, json_object_get(of, *names));
    return out;
}

/* The description of a state without what other programs added to it, in the form that is hashed;
 * the caller frees it. */
static char *canonical(const json_t *tensors)
{
    static const char *const of_tensor[] = {"name", "recipe", "shape", "tensor",
                                            "step", "seed",   "param", NULL};
    static const char *const of_slot[] = {"name", "quantizer", "shape", NULL};
    json_t *all = json_array(), *t, *slot;
    size_t i, k;
    json_array_foreach (tensors, i, t) {
        json_t *to = members(t, of_tensor), *slots = json_array();
        json_array_foreach (json_object_get(t, "slots"), k, slot)
            json_array_append_new(slots, members(slot, of_slot));
        json_object_set_new(to, "slots", slots);
        json_array_append_new(all, to);
    }
    char *text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(all);
    return text;
}

/* Hashes a state as state/state_file.h says. */
static void hash_state(struct state_sum *s, const char *description, const json_t *tensors,
                       char out[65])
{
    size_t i, k;
    json_t *t, *slot;
    qm_sha256_start(&s->sum);
    qm_sha256_add(&s->sum, description, strlen(description));
    json_array_foreach (tensors, i, t) {
        const char *name = json_string_value(json_object_get(t, "name"));
        hash_array(s, name ? name : "", "param", "");
        hash_array(s, name ? name : "", "residual", "");
        json_array_foreach (json_object_get(t, "slots"), k, slot) {
            const char *of = json_string_value(json_object_get(slot, "name"));
            if (hash_array(s, name ? name : "", of ? of : "", ".codes"))
                hash_array(s, name ? name : "", of ? of : "", ".scales");
            else
                hash_array(s, name ? name : "", of ? of : "", "");
        }
    }
    qm_sha256_hex(&s->sum, out);
}

/* QM_BAD_FILE: a text that a state does not have, as one of its own with a flipped bit. */
static qm_status check_texts(struct qm_file *f, const json_t *texts)
{
    static const char *const names[] = {"format", "version", "tensors",
                                        "digest", "joined",  "left_out"};
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)texts, name, value) {
        size_t i = 0;
        while (i < 6 && strcmp(name, names[i]) != 0)
            i++;
        if (i == 6)
            return qm_file_bad(f,
                               "'%.40s' in __metadata__, expected format, version, tensors, "
                               "digest, joined and left_out alone",
                               name);
    }
    return QM_OK;
}

/* QM_BAD_FILE: the file is a state that carries a digest, and its contents have another. */
static qm_status check_digest(struct qm_file *f, const json_t *header, size_t data_start)
{
    const json_t *texts = json_object_get(header, "__metadata__");
    const char *format = json_string_value(json_object_get(texts, "format"));
    const char *want = json_string_value(json_object_get(texts, "digest"));
    const char *tensors = json_string_value(json_object_get(texts, "tensors"));
    if (!(format && strcmp(format, "qualm-state") == 0) && !(want && tensors))
        return QM_OK;
    QM_TRY(check_texts(f, texts));
    if (!want || !tensors)
        return QM_OK;
    char got[65];
    json_t *all = json_loads(tensors, JSON_REJECT_DUPLICATES, NULL);
    char *description = json_is_array(all) ? canonical(all) : NULL;
    struct state_sum s = {.f = f, .header = header, .data_start = data_start};
    if (description)
        hash_state(&s, description, all, got);
    int is_same = description && strcmp(got, want) == 0;
    free(description);
    json_decref(all);
    return is_same ? QM_OK : qm_file_bad(f, "the contents do not match their digest");
}

/* ---- opening ------------------------------------------------------------------------------- */

static qm_status open_safetensors(struct qm_file *f)
{
    json_t *root;
    QM_TRY(parse_header(f, &root));
    size_t data_start = 8 + (size_t)header_length(f->map), n = 0;
    struct extent *extents = calloc(json_object_size(root) + 1, sizeof *extents);
    qm_status st = extents ? QM_OK : qm_fail(QM_NO_MEMORY, "%s: header", f->path);
    const char *name;
    json_t *value;
    struct qm_left_out left = {.n = 0};
    json_object_foreach (root, name, value) {
        if (st == QM_OK && strcmp(name, "__metadata__") == 0 && !json_is_object(value))
            st = qm_file_bad(f, "__metadata__ is no object of texts");
        else if (st == QM_OK && strcmp(name, "__metadata__") != 0)
            st = add_tensor(f, name, value, data_start, &extents[n++], &left);
    }
    if (st == QM_OK)
        st = check_tiling(f, extents, n, (int64_t)(f->size - data_start));
    free(extents);
    if (st == QM_OK)
        st = check_digest(f, root, data_start);
    f->own = json_incref(json_object_get(root, "__metadata__"));
    json_decref(root);
    if (st == QM_OK)
        st = qm_texts_left_out(f, &left);
    if (st == QM_OK)
        madvise((void *)f->map, f->size, MADV_SEQUENTIAL);
    return st;
}

const struct qm_format qm_format_safetensors = {
    .name = "safetensors",
    .knows = knows,
    .open = open_safetensors,
    .read = qm_mapped_read,
    .close = qm_texts_close,
    .attr_number = qm_texts_number,
    .attr_text = qm_texts_text,
    .has_texts = 1,
};
