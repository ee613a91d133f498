/* npy.c - The reader of NumPy's .npy files, versions 1 to 3.
 *
 * NumPy Enhancement Proposal 1 and numpy.lib.format: 6 bytes of magic, major and minor version, the
 * header's length (2 bytes little-endian, 4 from version 2 on), then a Python dict literal with
 * exactly the keys descr, fortran_order and shape, spaces and a newline; then the elements. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "experiments/readers/format.h"

#define MAGIC "\x93NUMPY"

/* The header while it is parsed; text is NUL-terminated. */
struct scan {
    const struct qm_file *f;
    const char *text, *at;
};

struct header {
    char descr[16];
    int fortran;
    struct qm_shape shape;
};

/* Type codes without the byte order. */
static const struct {
    char code[4];
    enum qm_dtype dtype;
} types[] = {
    {"f8", QM_DTYPE_f64},  {"f4", QM_DTYPE_f32}, {"f2", QM_DTYPE_f16},  {"V2", QM_DTYPE_bf16},
    {"i8", QM_DTYPE_i64},  {"i4", QM_DTYPE_i32}, {"i2", QM_DTYPE_i16},  {"i1", QM_DTYPE_i8},
    {"u8", QM_DTYPE_u64},  {"u4", QM_DTYPE_u32}, {"u2", QM_DTYPE_u16},  {"u1", QM_DTYPE_u8},
    {"b1", QM_DTYPE_bool}, {"c8", QM_DTYPE_f32}, {"c16", QM_DTYPE_f64},
};

static int knows(const unsigned char *map, size_t size)
{
    return size >= 6 && memcmp(map, MAGIC, 6) == 0;
}

static qm_status expected(const struct scan *s, const char *what)
{
    return qm_file_bad(s->f, "header, character %d: expected %s before '%.24s'",
                       (int)(s->at - s->text) + 1, what, s->at);
}

static void skip_space(struct scan *s) { s->at += strspn(s->at, " \t\r\n"); }

static int take(struct scan *s, const char *word)
{
    skip_space(s);
    size_t n = strlen(word);
    if (strncmp(s->at, word, n) != 0)
        return 0;
    s->at += n;
    return 1;
}

static qm_status take_string(struct scan *s, char *out, size_t size)
{
    skip_space(s);
    char quote[3] = {*s->at, '\\', '\0'};
    if (*s->at != '\'' && *s->at != '"')
        return expected(s, "a quoted string");
    size_t n = strcspn(s->at + 1, quote);
    if (s->at[1 + n] != quote[0] || n >= size)
        return expected(s, "a short string without escapes");
    memcpy(out, s->at + 1, n);
    out[n] = '\0';
    s->at += n + 2;
    return QM_OK;
}

static qm_status take_dim(struct scan *s, int64_t *out)
{
    int64_t d = 0;
    if (*s->at < '0' || *s->at > '9')
        return expected(s, "a size of at least 0");
    for (; *s->at >= '0' && *s->at <= '9'; s->at++)
        if (__builtin_mul_overflow(d, 10, &d) || __builtin_add_overflow(d, *s->at - '0', &d))
            return expected(s, "a size below 2^63");
    if (*s->at == 'L') /* Python 2's suffix of long integers */
        s->at++;
    *out = d;
    return QM_OK;
}

/* The descr: a text, or of a table a list of its columns, which is "a table". */
static qm_status take_descr(struct scan *s, char *out, size_t size)
{
    if (!take(s, "["))
        return take_string(s, out, size);
    for (int depth = 1; depth > 0; s->at++) {
        size_t quoted = *s->at == '\'' || *s->at == '"'
                            ? strcspn(s->at + 1, *s->at == '"' ? "\"" : "'") + 1
                            : 0;
        if (s->at[quoted] == '\0')
            return expected(s, "']' after the columns of a table");
        s->at += quoted;
        depth += (quoted == 0 && *s->at == '[') - (quoted == 0 && *s->at == ']');
    }
    snprintf(out, size, "a table");
    return QM_OK;
}

/* Accepts (), (3,), (3, 4) and (3, 4,); not (3), which is no tuple. */
static qm_status take_shape(struct scan *s, struct qm_shape *out)
{
    struct qm_shape shape = {0, {0}};
    int comma = 1;
    if (!take(s, "("))
        return expected(s, "a tuple");
    while (!take(s, ")")) {
        if (!comma)
            return expected(s, "',' or ')'");
        if (shape.rank == QM_MAX_RANK)
            return expected(s, "at most 8 dimensions");
        QM_TRY(take_dim(s, &shape.dim[shape.rank]));
        shape.rank++;
        comma = take(s, ",");
    }
    if (shape.rank == 1 && !comma)
        return expected(s, "',' after a tuple's only size");
    *out = shape;
    return QM_OK;
}

static qm_status take_value(struct scan *s, const char *key, struct header *h, unsigned *seen)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    int k = 0;
    while (k < 3 && strcmp(key, keys[k]) != 0)
        k++;
    if (k == 3)
        return expected(s, "only the keys descr, fortran_order and shape");
    if (*seen & (1u << k))
        return expected(s, "each key once");
    *seen |= 1u << k;
    if (k == 0)
        return take_descr(s, h->descr, sizeof h->descr);
    if (k == 2)
        return take_shape(s, &h->shape);
    h->fortran = take(s, "True");
    return h->fortran || take(s, "False") ? QM_OK : expected(s, "True or False");
}

static qm_status take_header(struct scan *s, size_t length, struct header *h)
{
    unsigned seen = 0;
    int comma = 1;
    if (!take(s, "{"))
        return expected(s, "'{'");
    while (!take(s, "}")) {
        char key[16];
        if (!comma)
            return expected(s, "',' or '}'");
        QM_TRY(take_string(s, key, sizeof key));
        if (!take(s, ":"))
            return expected(s, "':'");
        QM_TRY(take_value(s, key, h, &seen));
        comma = take(s, ",");
    }
    skip_space(s);
    if (s->at != s->text + length)
        return expected(s, "nothing after the dict");
    if (seen != 7)
        return qm_file_bad(s->f, "header lacks one of the keys descr, fortran_order and shape");
    return QM_OK;
}

/* The element type of a descr; parts: 2 of complex numbers, whose real and imaginary part are a
 * last axis of 2.  0: it is not read. */
static int dtype_of(const char *descr, enum qm_dtype *out, int *swap, int *parts)
{
    size_t k = 0, n = sizeof types / sizeof *types;
    int order = descr[0];
    if (order && strchr("<>|=", order))
        while (k < n && strcmp(descr + 1, types[k].code) != 0)
            k++;
    else
        k = n;
    int single = k < n && (qm_dtype_size(types[k].dtype) == 1 || descr[1] == 'V');
    if (k == n || (order == '|' && !single) || (order == '>' && descr[1] == 'V'))
        return 0;
    *out = types[k].dtype;
    *swap = order == '>';
    *parts = descr[1] == 'c' ? 2 : 1;
    return 1;
}

/* The entry's name: the file's name without directory and ".npy". */
static void entry_name(const char *path, char name[NAME_MAX + 1])
{
    const char *slash = strrchr(path, '/');
    snprintf(name, NAME_MAX + 1, "%s", slash ? slash + 1 : path);
    size_t n = strlen(name);
    if (n > 4 && strcmp(name + n - 4, ".npy") == 0)
        name[n - 4] = '\0';
}

/* Adds the array whose elements are bytes [data, end) of the mapping. */
static qm_status add_array(struct qm_file *f, const struct header *h, const char *name, size_t data,
                           size_t end, struct qm_left_out *left)
{
    struct qm_array_location place = {.offset = data, .fortran = h->fortran};
    struct qm_shape of = h->shape;
    enum qm_dtype dtype = QM_DTYPE_f32;
    char shape[192];
    int parts = 1, is_read = dtype_of(h->descr, &dtype, &place.swap, &parts),
        is_whole = parts == 1 || of.rank < QM_MAX_RANK;
    if (left && !(is_read && is_whole)) {
        qm_left_out_add(left, "%.200s (%s %.24s)", name,
                        is_read ? "complex numbers in 8 dimensions, descr" : "descr", h->descr);
        return QM_OK;
    }
    if (!is_read)
        return qm_file_bad(f,
                           "descr '%s' is not read, expected '<' or '>' with f2 f4 f8 i1 i2 i4 i8 "
                           "u1 u2 u4 u8 b1 c8 c16, or '|V2' for bfloat16",
                           h->descr);
    if (!is_whole)
        return qm_file_bad(f, "complex numbers in 8 dimensions are not read");
    if (parts == 2)
        of.dim[of.rank++] = 2;
    qm_shape_print(&h->shape, shape, sizeof shape);
    int64_t bytes = qm_shape_numel(&of);
    if (bytes < 0 || __builtin_mul_overflow(bytes, (int64_t)qm_dtype_size(dtype), &bytes))
        return qm_file_bad(f, "shape %s of %s does not fit in 2^63 bytes", shape, h->descr);
    if ((size_t)bytes != end - data)
        return qm_file_bad(f, "%s of %s takes %lld bytes, but %zu follow the header", shape,
                           h->descr, (long long)bytes, end - data);
    place.fortran = h->fortran && parts == 2 ? 2 : h->fortran;
    place.is_complex = parts == 2;
    return qm_file_add(f, name, dtype, &of, place);
}

qm_status qm_npy_add(struct qm_file *f, const char *name, size_t at, size_t end,
                     struct qm_left_out *left)
{
    const unsigned char *m = f->map + at;
    size_t size = end - at;
    if (size < 8 || !knows(m, size) || m[6] < 1 || m[6] > 3 || m[7] != 0)
        return qm_file_bad(f, "expected .npy version 1.0, 2.0 or 3.0 after the magic");
    size_t start = m[6] == 1 ? 10 : 12;
    if (size < start)
        return qm_file_bad(f, "ends inside the header's length");
    size_t length = (size_t)m[8] | (size_t)m[9] << 8;
    if (m[6] > 1)
        length |= (size_t)m[10] << 16 | (size_t)m[11] << 24;
    if (length > size - start)
        return qm_file_bad(f, "header of %zu bytes at byte %zu, but the file ends at %zu", length,
                           start, size);
    char *text = malloc(length + 1);
    if (!text)
        return qm_fail(QM_NO_MEMORY, "%s: header of %zu bytes", f->path, length);
    memcpy(text, m + start, length);
    text[length] = '\0';
    struct header h = {"", 0, {0, {0}}};
    struct scan s = {f, text, text};
    qm_status st = take_header(&s, length, &h);
    free(text);
    if (st == QM_OK)
        st = add_array(f, &h, name, at + start + length, end, left);
    return st;
}

static qm_status open_npy(struct qm_file *f)
{
    char name[NAME_MAX + 1];
    entry_name(f->path, name);
    QM_TRY(qm_npy_add(f, name, 0, f->size, NULL));
    if (!f->place[0].fortran)
        madvise((void *)f->map, f->size, MADV_SEQUENTIAL);
    return QM_OK;
}

const struct qm_format qm_format_npy = {
    .name = "npy",
    .knows = knows,
    .open = open_npy,
    .read = qm_mapped_read,
};
