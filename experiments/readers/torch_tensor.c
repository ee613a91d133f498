/* torch_tensor.c - Tensors of a checkpoint: element types, strided views, codes with tables. */
#include <math.h>
#include <string.h>

#include "experiments/readers/torch.h"

/* ---- elements ------------------------------------------------------------------------------ */

/* clang-format off */
static const struct qm_torch_element elements[] = {
    /* dtype          storage                 size dtype           parts decode */
    {"float64",       "DoubleStorage",        8,  QM_DTYPE_f64,  1, QM_FLOAT8_none},
    {"float32",       "FloatStorage",         4,  QM_DTYPE_f32,  1, QM_FLOAT8_none},
    {"float16",       "HalfStorage",          2,  QM_DTYPE_f16,  1, QM_FLOAT8_none},
    {"bfloat16",      "BFloat16Storage",      2,  QM_DTYPE_bf16, 1, QM_FLOAT8_none},
    {"int64",         "LongStorage",          8,  QM_DTYPE_i64,  1, QM_FLOAT8_none},
    {"int32",         "IntStorage",           4,  QM_DTYPE_i32,  1, QM_FLOAT8_none},
    {"int16",         "ShortStorage",         2,  QM_DTYPE_i16,  1, QM_FLOAT8_none},
    {"int8",          "CharStorage",          1,  QM_DTYPE_i8,   1, QM_FLOAT8_none},
    {"uint8",         "ByteStorage",          1,  QM_DTYPE_u8,   1, QM_FLOAT8_none},
    {"uint16",        NULL,                   2,  QM_DTYPE_u16,  1, QM_FLOAT8_none},
    {"uint32",        NULL,                   4,  QM_DTYPE_u32,  1, QM_FLOAT8_none},
    {"uint64",        NULL,                   8,  QM_DTYPE_u64,  1, QM_FLOAT8_none},
    {"bool",          "BoolStorage",          1,  QM_DTYPE_bool, 1, QM_FLOAT8_none},
    {"complex32",     "ComplexHalfStorage",   4,  QM_DTYPE_f16,  2, QM_FLOAT8_none},
    {"complex64",     "ComplexFloatStorage",  8,  QM_DTYPE_f32,  2, QM_FLOAT8_none},
    {"complex128",    "ComplexDoubleStorage", 16, QM_DTYPE_f64,  2, QM_FLOAT8_none},
    {"float8_e4m3fn",   "Float8_e4m3fnStorage",   1, QM_DTYPE_f32, 1, QM_FLOAT8_e4m3fn},
    {"float8_e5m2",     "Float8_e5m2Storage",     1, QM_DTYPE_f32, 1, QM_FLOAT8_e5m2},
    {"float8_e4m3fnuz", "Float8_e4m3fnuzStorage", 1, QM_DTYPE_f32, 1, QM_FLOAT8_e4m3fnuz},
    {"float8_e5m2fnuz", "Float8_e5m2fnuzStorage", 1, QM_DTYPE_f32, 1, QM_FLOAT8_e5m2fnuz},
    {"float8_e8m0fnu",  "Float8_e8m0fnuStorage",  1, QM_DTYPE_f32, 1, QM_FLOAT8_e8m0fnu},
    {NULL,            "UntypedStorage",       1,  QM_DTYPE_u8,   1, QM_FLOAT8_none},
};
/* clang-format on */
enum { ELEMENTS = sizeof elements / sizeof *elements };

const struct qm_torch_element *qm_torch_dtype(const struct qm_pickle *global)
{
    const char *name = qm_pickle_is(global, QM_PICKLE_global) ? global->text : "";
    for (int i = 0; strncmp(name, "torch.", 6) == 0 && i < ELEMENTS; i++)
        if (elements[i].name && strcmp(name + 6, elements[i].name) == 0)
            return &elements[i];
    return NULL;
}

const struct qm_torch_element *qm_torch_storage_class(const struct qm_pickle *global)
{
    const char *name = qm_pickle_is(global, QM_PICKLE_global) ? global->text : "";
    const char *class = strrchr(name, '.');
    for (int i = 0; class && strncmp(name, "torch.", 6) == 0 && i < ELEMENTS; i++)
        if (elements[i].storage && strcmp(class + 1, elements[i].storage) == 0)
            return &elements[i];
    return NULL;
}

/* ---- views --------------------------------------------------------------------------------- */

int qm_torch_whole_list(const struct qm_pickle *v, int64_t *out, int most)
{
    if (qm_pickle_calls(v, "torch.Size"))
        v = qm_pickle_argument(v, 0);
    if (!v || (v->kind != QM_PICKLE_tuple && v->kind != QM_PICKLE_list))
        return -1;
    for (int64_t i = 0; i < v->n; i++) {
        if (v->item[i]->kind != QM_PICKLE_whole || v->item[i]->whole < 0)
            return -1;
        if (i < most)
            out[i] = v->item[i]->whole;
    }
    return v->n > INT32_MAX ? -1 : (int)v->n;
}

/* Marks a value that becomes an entry, or a part of one. */
static void take(const struct qm_file *f, const struct qm_pickle *v)
{
    if (v && ((const struct qm_torch *)f->own)->is_taking)
        ((struct qm_pickle *)v)->is_taken = 1;
}

#define NO_TYPE "elements of a type that is not known"

/* The first byte of storage that the id names, and the class of its elements; *why: one of torch
 * that is not read. */
static qm_status find_storage(struct qm_file *f, const struct qm_pickle *v, struct qm_torch_view *w,
                              int64_t *base, const char **why)
{
    struct qm_torch *t = f->own;
    const struct qm_pickle *id = qm_pickle_is(v, QM_PICKLE_persistent) ? v->item[0] : NULL;
    if (!id && qm_pickle_is(v, QM_PICKLE_call)) /* TypedStorage(wrap_storage=..., dtype=...) */
        return qm_file_bad(f, "a tensor whose storage is not a record of the file");
    const struct qm_pickle *key = qm_pickle_item(id, 2), *part = qm_pickle_item(id, 5);
    take(f, v);
    w->element = qm_torch_storage_class(qm_pickle_item(id, 1));
    int is_storage =
        qm_pickle_is_text(qm_pickle_item(id, 0), "storage") && qm_pickle_is(key, QM_PICKLE_text);
    if (is_storage && !w->element && qm_pickle_is(qm_pickle_item(id, 1), QM_PICKLE_global)) {
        *why = NO_TYPE;
        return QM_OK;
    }
    if (!is_storage || !w->element)
        return qm_file_bad(f, "a tensor without a storage");
    w->storage = qm_torch_storage_find(t, key->text);
    if (w->storage < 0)
        return qm_file_bad(f, "has no storage '%.100s'", key->text);
    const struct qm_pickle *numel = qm_pickle_item(id, 4);
    const struct qm_torch_storage *s = &t->storage[w->storage];
    if (s->zip >= 0 && qm_pickle_is(numel, QM_PICKLE_whole) &&
        numel->whole != s->bytes / w->element->size)
        return qm_file_bad(f, "storage '%.100s' has %lld bytes, expected %lld elements of %lld",
                           key->text, (long long)s->bytes, (long long)numel->whole,
                           (long long)w->element->size);
    *base = 0;
    const struct qm_pickle *from = qm_pickle_item(part, 1);
    if (from && (from->kind != QM_PICKLE_whole || from->whole < 0 ||
                 __builtin_mul_overflow(from->whole, w->element->size, base)))
        return qm_file_bad(f, "storage '%.100s' begins at a number that is none", key->text);
    return QM_OK;
}

/* Checks that every element lies in the storage; *why: few bytes stand for very many. */
static qm_status check_view(struct qm_file *f, const struct qm_torch_view *w, int64_t base,
                            const char **why)
{
    const struct qm_torch_storage *s = &((struct qm_torch *)f->own)->storage[w->storage];
    int64_t numel = qm_shape_numel(&w->shape), last = w->offset, span, bytes;
    if (numel < 0)
        return qm_file_bad(f, "a tensor of 2^63 elements or more");
    for (int k = 0; k < w->shape.rank; k++)
        if (__builtin_mul_overflow(w->shape.dim[k] > 0 ? w->shape.dim[k] - 1 : 0, w->stride[k],
                                   &span) ||
            __builtin_add_overflow(last, span, &last))
            return qm_file_bad(f, "a tensor with strides beyond 2^63");
    if (numel > 0 && (__builtin_add_overflow(last, 1, &last) ||
                      __builtin_mul_overflow(last, w->element->size, &bytes) ||
                      __builtin_add_overflow(bytes, base, &bytes) || bytes > s->bytes))
        return qm_file_bad(f, "a tensor reaches beyond storage '%.100s' of %lld bytes", s->key,
                           (long long)s->bytes);
    if (numel > 1 << 20 && numel / 1024 > s->bytes / w->element->size)
        *why = "it has more than 2^20 elements, 1024 times as many as its storage";
    return QM_OK;
}

/* Takes the signs that torch writes as a dictionary behind the other arguments of a tensor which is
 * a negative or conjugate view.  Source: torch/_utils.py, get_tensor_metadata. */
static void take_signs(const struct qm_pickle *v, struct qm_torch_view *w, const char **why)
{
    int is_v3 = qm_pickle_calls(v, "torch._utils._rebuild_tensor_v3");
    const struct qm_pickle *signs = qm_pickle_argument(v, is_v3 ? 7 : 6);
    if (!signs || signs->kind == QM_PICKLE_none)
        return;
    int known = signs->kind == QM_PICKLE_dict;
    for (int64_t i = 0; known && i < signs->n; i += 2) {
        const struct qm_pickle *on = signs->item[i + 1];
        int is_negative = qm_pickle_is_text(signs->item[i], "neg");
        known = on->kind == QM_PICKLE_bool &&
                (is_negative || qm_pickle_is_text(signs->item[i], "conj"));
        if (known)
            *(is_negative ? &w->is_negative : &w->is_conjugate) = on->whole != 0;
    }
    if (!known)
        *why = "marks of a view other than conj and neg";
    else if (w->is_negative && (w->element->decode || w->element->dtype == QM_DTYPE_bool))
        *why = "a negative view of elements that torch does not negate";
}

/* Arguments storage, offset, size, stride from number `first` of a call on. */
static qm_status take_view(struct qm_file *f, const struct qm_pickle *v, struct qm_torch_view *w,
                           const char **why)
{
    int64_t base = 0;
    const struct qm_pickle *offset = qm_pickle_argument(v, 1);
    int rank = qm_torch_whole_list(qm_pickle_argument(v, 2), w->shape.dim, QM_MAX_RANK);
    int strides = qm_torch_whole_list(qm_pickle_argument(v, 3), w->stride, QM_MAX_RANK);
    if (rank < 0 || strides != rank || !qm_pickle_is(offset, QM_PICKLE_whole) || offset->whole < 0)
        return qm_file_bad(f, "a tensor without offset, sizes and strides");
    QM_TRY(find_storage(f, qm_pickle_argument(v, 0), w, &base, why));
    if (!*why && qm_pickle_calls(v, "torch._utils._rebuild_tensor_v3") &&
        !(w->element = qm_torch_dtype(qm_pickle_argument(v, 6))))
        *why = NO_TYPE;
    if (*why)
        return QM_OK;
    if (rank > QM_MAX_RANK) {
        *why = "more than 8 dimensions";
        return QM_OK;
    }
    w->shape.rank = rank;
    w->offset = offset->whole;
    QM_TRY(check_view(f, w, base, why));
    if (base % w->element->size)
        return qm_file_bad(f, "a storage that begins within an element");
    w->offset += base / w->element->size;
    w->is_swapped = ((struct qm_torch *)f->own)->is_big_endian;
    take_signs(v, w, why);
    return QM_OK;
}

/* The shape of the entry: a complex number is a last axis of two. */
static const char *entry_shape(const struct qm_torch_view *w, struct qm_shape *out)
{
    *out = w->shape;
    if (w->element->parts == 1)
        return NULL;
    if (out->rank == QM_MAX_RANK)
        return "complex numbers in 8 dimensions";
    out->dim[out->rank++] = 2;
    return NULL;
}

/* ---- reading views --------------------------------------------------------------------------- */

enum { PIECE = 1 << 16 };

/* Elements at the end of the dimensions that lie without a gap. */
static int64_t run_length(const struct qm_torch_view *w, int *outer)
{
    int64_t run = 1;
    int k = w->shape.rank;
    for (; k > 0 && (w->stride[k - 1] == run || w->shape.dim[k - 1] == 1); k--)
        run *= w->shape.dim[k - 1];
    *outer = k;
    return run;
}

static void swap_bytes(unsigned char *x, int64_t n, int64_t size)
{
    for (int64_t i = 0; i < n; i++, x += size)
        for (int64_t a = 0, b = size - 1; a < b; a++, b--) {
            unsigned char c = x[a];
            x[a] = x[b];
            x[b] = c;
        }
}

/* Negates n numbers of `size` bytes: floats by their sign, whole numbers modulo 2^(8 size). */
static void negate(unsigned char *x, int64_t n, int64_t size, int64_t stride, int is_float)
{
    for (int64_t i = 0; i < n; i++, x += stride) {
        unsigned carry = 1;
        for (int64_t k = 0; !is_float && k < size; k++) {
            carry += (unsigned char)~x[k];
            x[k] = (unsigned char)carry;
            carry >>= 8;
        }
        if (is_float)
            x[size - 1] ^= 0x80;
    }
}

qm_status qm_torch_view_bytes(struct qm_file *f, const struct qm_torch_view *w, int64_t from,
                              int64_t n, unsigned char *out)
{
    int outer;
    int64_t size = w->element->size, run = run_length(w, &outer);
    for (int64_t done = 0; done < n;) {
        int64_t rest = (from + done) / run, inside = (from + done) % run, at = w->offset + inside;
        for (int k = outer - 1; k >= 0; k--) {
            at += rest % w->shape.dim[k] * w->stride[k];
            rest /= w->shape.dim[k];
        }
        int64_t part = run - inside < n - done ? run - inside : n - done;
        if (w->memory)
            memcpy(out + done * size, w->memory + at * size, (size_t)(part * size));
        else
            QM_TRY(qm_torch_storage_read(f, w->storage, at * size, part * size, out + done * size));
        done += part;
    }
    int64_t parts = w->element->parts, width = size / parts;
    int is_float = qm_dtype_is_float(w->element->dtype);
    if (w->is_swapped && width > 1)
        swap_bytes(out, n * parts, width);
    if (w->is_negative)
        negate(out, n * parts, width, width, is_float);
    if (w->is_conjugate && parts == 2)
        negate(out + width, n, width, size, is_float);
    return QM_OK;
}

static void sink_float(struct qm_sink sink, int64_t at, float x)
{
    if (sink.f)
        sink.f[at] = x;
    else
        sink.d[at] = (double)x;
}

/* Elements [from, from + n) of the entry of a view. */
static qm_status read_view(struct qm_file *f, const struct qm_torch_view *w, int64_t from,
                           int64_t n, struct qm_sink sink)
{
    unsigned char piece[PIECE];
    const struct qm_torch_element *e = w->element;
    int64_t part_size = e->size / e->parts, most = PIECE / e->size - 1;
    for (int64_t done = 0; done < n;) {
        int64_t first = (from + done) / e->parts, skip = (from + done) % e->parts;
        int64_t values = n - done < most ? n - done : most;
        int64_t count = (skip + values + e->parts - 1) / e->parts;
        QM_TRY(qm_torch_view_bytes(f, w, first, count, piece));
        if (e->decode)
            for (int64_t i = 0; i < values; i++)
                sink_float(sink, done + i, qm_float8_value[e->decode](piece[i]));
        else
            qm_sink_write(sink, done, piece + skip * part_size, e->dtype, values);
        done += values;
    }
    return QM_OK;
}

/* ---- codes --------------------------------------------------------------------------------- */

/* The block of an element; the last one of each part may be short. */
static int64_t block_at(const struct qm_torch_codes *c, int64_t at)
{
    int64_t per_part = (c->part + c->block - 1) / c->block;
    return at / c->part * per_part + at % c->part / c->block;
}

static qm_status read_coded(struct qm_file *f, const struct qm_torch_array *a, int64_t from,
                            int64_t n, struct qm_sink sink)
{
    unsigned char code[PIECE / 8];
    float value[PIECE / 8], scale[PIECE / 8];
    const int64_t most = PIECE / 8 - 2;
    for (int64_t done = 0; done < n;) {
        int64_t at = from + done, part = n - done < most ? n - done : most;
        int64_t first = at / a->codes->per_byte, last = (at + part - 1) / a->codes->per_byte;
        int64_t block = block_at(a->codes, at),
                blocks = block_at(a->codes, at + part - 1) - block + 1;
        QM_TRY(qm_torch_view_bytes(f, &a->view, first, last - first + 1, code));
        QM_TRY(read_view(f, &a->codes->scales, block, blocks, (struct qm_sink){scale, NULL}));
        for (int64_t i = 0; i < part; i++) {
            unsigned c = code[(at + i) / a->codes->per_byte - first];
            if (a->codes->per_byte == 2)
                c = (at + i) % 2 ? c & 15u : c >> 4;
            value[i] =
                (a->codes->has_table ? a->codes->table[c]
                                     : qm_float8_value[a->view.element->decode]((uint8_t)c)) *
                scale[block_at(a->codes, at + i) - block];
        }
        qm_sink_write(sink, done, value, QM_DTYPE_f32, part);
        done += part;
    }
    return QM_OK;
}

/* A table of at most 256 floats. */
static qm_status take_table(struct qm_file *f, const struct qm_pickle *v, struct qm_torch_array *a,
                            int64_t least)
{
    struct qm_torch_array map = {.kind = QM_TORCH_view};
    struct qm_shape shape;
    const char *why = NULL;
    int is;
    QM_TRY(qm_torch_tensor(f, v, &is, &map, &shape, &why));
    int64_t n = is == 1 && map.kind == QM_TORCH_view ? qm_shape_numel(&shape) : -1;
    if (n < least || n > 256)
        return qm_file_bad(f, "a table of %lld values, expected %lld to 256", (long long)n,
                           (long long)least);
    a->codes->has_table = 1;
    return read_view(f, &map.view, 0, n, (struct qm_sink){a->codes->table, NULL});
}

/* Codes and scales of a coded array: *is is 0 where either is none. */
static qm_status take_codes(struct qm_file *f, const struct qm_pickle *codes,
                            const struct qm_pickle *scales, struct qm_torch_array *a, int *is)
{
    struct qm_torch_array of_scales = {.kind = QM_TORCH_view};
    struct qm_shape shape;
    const char *why = NULL;
    int first, second;
    QM_TRY(qm_torch_tensor(f, codes, &first, a, &shape, &why));
    QM_TRY(qm_torch_tensor(f, scales, &second, &of_scales, &shape, &why));
    *is = first == 1 && second == 1 && a->kind == QM_TORCH_view &&
          of_scales.kind == QM_TORCH_view && a->view.element->size == 1 &&
          of_scales.view.element->parts == 1;
    a->kind = QM_TORCH_coded;
    a->codes = qm_pickle_take(((struct qm_torch *)f->own)->memory, sizeof *a->codes);
    if (!a->codes)
        return qm_fail(QM_NO_MEMORY, "%s: a table", f->path);
    *a->codes = (struct qm_torch_codes){.per_byte = 1};
    a->codes->scales = of_scales.view;
    return QM_OK;
}

/* torchao's OptimState8bit, OptimState4bit and OptimStateFp8: codes, scale, and qmap or float
 * codes.  Source: pytorch/ao, torchao/optim/subclass_{8bit,4bit,fp8}.py, dequantize. */
static qm_status take_torchao(struct qm_file *f, const struct qm_pickle *state, int bits, int *is,
                              struct qm_torch_array *a, struct qm_shape *shape)
{
    QM_TRY(take_codes(f, qm_pickle_find(state, "codes"), qm_pickle_find(state, "scale"), a, is));
    if (*is != 1)
        return qm_file_bad(f, "a quantized state of torchao without codes and scale");
    *shape = a->view.shape;
    a->codes->per_byte = bits == 4 ? 2 : 1;
    if (bits == 4) {
        shape->rank = qm_torch_whole_list(qm_pickle_find(state, "_shape"), shape->dim, QM_MAX_RANK);
        if (shape->rank < 0 || shape->rank > QM_MAX_RANK)
            return qm_file_bad(f, "a quantized state of torchao without its shape");
    }
    if (qm_pickle_find(state, "qmap"))
        QM_TRY(take_table(f, qm_pickle_find(state, "qmap"), a, 1 << bits));
    int64_t n = qm_shape_numel(shape), blocks = qm_shape_numel(&a->codes->scales.shape);
    if (n < 0 || n != qm_shape_numel(&a->view.shape) * a->codes->per_byte ||
        (n > 0 && (blocks < 1 || n % blocks)) || !(a->codes->has_table || a->view.element->decode))
        return qm_file_bad(f, "a quantized state of torchao: %lld elements in %lld blocks",
                           (long long)n, (long long)blocks);
    a->codes->block = n > 0 ? n / blocks : 1;
    a->codes->part = n > 0 ? n : 1;
    return QM_OK;
}

qm_status qm_torch_bitsandbytes(struct qm_file *f, const struct qm_pickle *dict, int number,
                                int *is, struct qm_torch_array *a, struct qm_shape *shape)
{
    static const int64_t sizes[] = {256, 2048, 4096, 1024, 512, 128, 64};
    char name[4][16];
    static const char *const stem[] = {"state", "qmap", "absmax", "max"};
    for (int i = 0; i < 4; i++)
        snprintf(name[i], sizeof name[i], "%s%d", stem[i], number);
    const struct qm_pickle *codes = qm_pickle_find(dict, name[0]),
                           *map = qm_pickle_find(dict, name[1]);
    const struct qm_pickle *scales = qm_pickle_find(dict, name[2]);
    *is = 0;
    if (!codes || !map)
        return QM_OK;
    QM_TRY(take_codes(f, codes, scales ? scales : qm_pickle_find(dict, name[3]), a, is));
    if (!*is)
        return QM_OK;
    QM_TRY(take_table(f, map, a, 256));
    *shape = a->view.shape;
    a->codes->per_byte = 1;
    int64_t n = qm_shape_numel(shape), blocks = qm_shape_numel(&a->codes->scales.shape);
    const struct qm_shape *of = &a->codes->scales.shape;
    /* AdEMAMix has its two fast averages one behind the other, each with blocks of its own. */
    int is_pair = of->rank == 2 && of->dim[0] == 2 && shape->rank > 0 && shape->dim[0] == 2;
    a->codes->part = n == 0 ? 1 : is_pair ? n / 2 : n;
    int64_t parts = is_pair ? 2 : 1;
    a->codes->block = blocks == parts && n > 0 ? a->codes->part : 0;
    for (size_t k = 0; !a->codes->block && k < sizeof sizes / sizeof *sizes; k++)
        if ((a->codes->part + sizes[k] - 1) / sizes[k] * parts == blocks)
            a->codes->block = sizes[k];
    return a->codes->block
               ? QM_OK
               : qm_file_bad(f, "'%s' has %lld codes and %lld scales: no size of blocks fits",
                             name[0], (long long)n, (long long)blocks);
}

/* ---- values -------------------------------------------------------------------------------- */

static int is_subclass(const struct qm_pickle *v, const char *name)
{
    const char *class = qm_pickle_is(v, QM_PICKLE_global) ? strrchr(v->text, '.') : NULL;
    return class && strncmp(v->text, "torchao.", 8) == 0 && strcmp(class + 1, name) == 0;
}

/* _rebuild_from_type_v2(function, class, arguments, state). */
static qm_status take_typed(struct qm_file *f, const struct qm_pickle *v, int *is,
                            struct qm_torch_array *a, struct qm_shape *shape, const char **why)
{
    const struct qm_pickle *class = qm_pickle_argument(v, 1), *state = qm_pickle_argument(v, 3);
    *is = 1;
    if (is_subclass(class, "OptimState4bit"))
        return take_torchao(f, state, 4, is, a, shape);
    if (is_subclass(class, "OptimState8bit") || is_subclass(class, "OptimStateFp8"))
        return take_torchao(f, state, 8, is, a, shape);
    struct qm_pickle *items[2] = {(struct qm_pickle *)qm_pickle_argument(v, 0),
                                  (struct qm_pickle *)qm_pickle_argument(v, 2)};
    const struct qm_pickle plain = {.kind = QM_PICKLE_call, .item = items, .n = 2};
    return items[0] && items[1] ? qm_torch_tensor(f, &plain, is, a, shape, why)
                                : qm_file_bad(f, "a tensor of a class without its arguments");
}

static qm_status take_tensor(struct qm_file *f, const struct qm_pickle *v, int *is,
                             struct qm_torch_array *a, struct qm_shape *shape, const char **why)
{
    static const char *const unread[] = {"torch._utils._rebuild_qtensor",
                                         "torch._utils._rebuild_sparse_tensor",
                                         "torch._utils._rebuild_sparse_csr_tensor",
                                         "torch._utils._rebuild_nested_tensor",
                                         "torch._utils._rebuild_meta_tensor_no_storage",
                                         "torch._utils._rebuild_wrapper_subclass"};
    static const char *const around[] = {
        "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state",
        "torch._utils._rebuild_device_tensor_from_cpu_tensor", "torch.nn.parameter.Parameter"};
    const struct qm_pickle *state = NULL;
    for (int depth = 0; depth < 4; depth++)
        for (size_t i = 0; i < sizeof around / sizeof *around; i++)
            if (qm_pickle_calls(v, around[i])) {
                take(f, v);
                state = state ? state : qm_pickle_state(v);
                v = qm_pickle_argument(v, 0);
            }
    take(f, v);
    *is = -1;
    *why = NULL;
    if (qm_pickle_calls(v, "torch._tensor._rebuild_from_type_v2"))
        return take_typed(f, v, is, a, shape, why);
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        if (qm_pickle_calls(v, unread[i])) {
            *is = 0;
            *why = "quantized, sparse, nested or empty of data in a way that is not read";
            return QM_OK;
        }
    int is_view = qm_pickle_calls(v, "torch._utils._rebuild_tensor_v2") ||
                  qm_pickle_calls(v, "torch._utils._rebuild_tensor_v3") ||
                  qm_pickle_calls(v, "torch._utils._rebuild_tensor");
    a->kind = QM_TORCH_view;
    a->view = (struct qm_torch_view){.storage = -1};
    if (is_view)
        QM_TRY(take_view(f, v, &a->view, why));
    else
        QM_TRY(qm_torch_numpy(f, v, is, &a->view, why));
    if (!is_view && *is < 0)
        return QM_OK;
    if (state || (is_view && qm_pickle_state(v)))
        *why = "set to another storage or shape after it was made";
    if (!*why)
        *why = entry_shape(&a->view, shape);
    *is = !*why;
    return QM_OK;
}

qm_status qm_torch_tensor(struct qm_file *f, const struct qm_pickle *v, int *is,
                          struct qm_torch_array *a, struct qm_shape *shape, const char **why)
{
    struct qm_torch *t = f->own;
    if (t->depth == 8) /* codes of codes of codes: a value may hold itself */
        return qm_file_bad(f, "a tensor within a tensor, 8 deep");
    t->depth++;
    qm_status st = take_tensor(f, v, is, a, shape, why);
    t->depth--;
    return st;
}

qm_status qm_torch_read(struct qm_file *f, int i, int64_t from, int64_t n, struct qm_sink sink)
{
    return qm_torch_array_read(f, &((struct qm_torch *)f->own)->array[i], from, n, sink);
}

qm_status qm_torch_array_read(struct qm_file *f, const struct qm_torch_array *a, int64_t from,
                              int64_t n, struct qm_sink sink)
{
    if (a->kind == QM_TORCH_coded)
        return read_coded(f, a, from, n, sink);
    if (a->kind == QM_TORCH_view)
        return read_view(f, &a->view, from, n, sink);
    qm_sink_write(sink, 0, &a->number, QM_DTYPE_f64, 1);
    return QM_OK;
}

qm_status qm_torch_bytes(struct qm_file *f, int i, int64_t from, int64_t n, void *out)
{
    const struct qm_torch_array *a = &((struct qm_torch *)f->own)->array[i];
    if (a->kind == QM_TORCH_view && a->view.element->parts == 1 && !a->view.element->decode)
        return qm_torch_view_bytes(f, &a->view, from, n, out);
    if (f->entry[i].dtype == QM_DTYPE_f32)
        return qm_torch_read(f, i, from, n, (struct qm_sink){out, NULL});
    if (f->entry[i].dtype == QM_DTYPE_f64)
        return qm_torch_read(f, i, from, n, (struct qm_sink){NULL, out});
    /* Complex halves: either part may be the first and the last that is asked for. */
    unsigned char pair[4], *to = out;
    for (int64_t k = from; k < from + n; k++, to += 2) {
        QM_TRY(qm_torch_view_bytes(f, &a->view, k / 2, 1, pair));
        memcpy(to, pair + k % 2 * 2, 2);
    }
    return QM_OK;
}
