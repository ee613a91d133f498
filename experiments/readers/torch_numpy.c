/* torch_numpy.c - Arrays and scalars of NumPy in a checkpoint, whose bytes lie in its pickle. */
#include <stdio.h>
#include <string.h>

#include "experiments/readers/torch.h"

/* What a type of NumPy stands for: an element of torch's, or the reason why it is none. */
struct dtype {
    const struct qm_torch_element *element;
    int is_swapped;
    const char *why; /* NULL: `element` is set */
    int is_number;   /* 0: strings and the like */
};

/* numpy.dtype("f4", ...) with the state (3, "<", ...): kind, bytes and order of the elements. */
static struct dtype dtype_of(const struct qm_pickle *v)
{
    static const struct {
        const char *code, *name;
    } types[] = {{"f2", "float16"},   {"f4", "float32"},    {"f8", "float64"}, {"i1", "int8"},
                 {"i2", "int16"},     {"i4", "int32"},      {"i8", "int64"},   {"u1", "uint8"},
                 {"u2", "uint16"},    {"u4", "uint32"},     {"u8", "uint64"},  {"b1", "bool"},
                 {"c8", "complex64"}, {"c16", "complex128"}};
    static const struct {
        char kind;
        const char *why;
    } others[] = {{'O', "an array of Python's objects"},
                  {'V', "an array of records"},
                  {'S', "an array of strings"},
                  {'U', "an array of strings"},
                  {'M', "an array of dates"},
                  {'m', "an array of durations"}};
    const struct qm_pickle *code = qm_pickle_argument(v, 0);
    const struct qm_pickle *order = qm_pickle_item(qm_pickle_state(v), 1);
    struct dtype out = {NULL, qm_pickle_is_text(order, ">"), "an array of a type that is unknown",
                        1};
    if (!qm_pickle_calls(v, "numpy.dtype") || !qm_pickle_is(code, QM_PICKLE_text))
        return out;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (code->text[0] == others[i].kind) {
            out.why = others[i].why;
            out.is_number = 0;
        }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(code->text, types[i].code) == 0) {
            char name[32];
            int n = snprintf(name, sizeof name, "torch.%s", types[i].name);
            const struct qm_pickle global = {
                .kind = QM_PICKLE_global, .text = name, .length = (size_t)n};
            out.element = qm_torch_dtype(&global);
            out.why = NULL;
        }
    return out;
}

/* Sets the strides of an array whose bytes lie in the order of the dimensions `axes`: the last of
 * these is without a gap. */
static void set_strides(struct qm_torch_view *w, const int64_t *axes)
{
    int64_t inner = 1;
    for (int k = w->shape.rank - 1; k >= 0; k--) {
        w->stride[axes[k]] = inner;
        inner *= w->shape.dim[axes[k]];
    }
}

/* The order in which the dimensions of an array lie: 'C', 'F', or 'K' with the axes by which the
 * stored array was transposed; then the shape is the stored one, and becomes the array's. */
static int set_order(struct qm_torch_view *w, char order, const struct qm_pickle *transposed)
{
    int64_t axes[QM_MAX_RANK], by[QM_MAX_RANK], stored[QM_MAX_RANK];
    int rank = w->shape.rank, seen = 0;
    for (int k = 0; k < rank; k++)
        axes[k] = order == 'F' ? rank - 1 - k : k;
    if (order == 'K' && transposed && transposed->kind != QM_PICKLE_none) {
        if (qm_torch_whole_list(transposed, by, QM_MAX_RANK) != rank)
            return 0;
        memcpy(stored, w->shape.dim, sizeof stored);
        for (int k = 0; k < rank; k++) {
            if (by[k] >= rank || seen & 1 << by[k])
                return 0;
            seen |= 1 << by[k];
            w->shape.dim[k] = stored[by[k]];
            axes[by[k]] = k;
        }
    }
    set_strides(w, axes);
    return 1;
}

/* The parts of an array as its two ways of pickling have them. */
struct parts {
    const struct qm_pickle *dtype, *shape, *bytes, *axes;
    char order;
};

static int parts_of(const struct qm_pickle *v, struct parts *out)
{
    const struct qm_pickle *state = qm_pickle_state(v);
    *out = (struct parts){.order = 'C'};
    if (qm_pickle_calls(v, "numpy.core.multiarray._reconstruct") ||
        qm_pickle_calls(v, "numpy._core.multiarray._reconstruct")) {
        int at = qm_pickle_is(state, QM_PICKLE_tuple) && state->n == 5; /* a version stands first */
        const struct qm_pickle *fortran = qm_pickle_item(state, at + 2);
        out->shape = qm_pickle_item(state, at);
        out->dtype = qm_pickle_item(state, at + 1);
        out->bytes = qm_pickle_item(state, at + 3);
        out->order = fortran && fortran->kind == QM_PICKLE_bool && fortran->whole ? 'F' : 'C';
        return 1;
    }
    if (qm_pickle_calls(v, "numpy.core.numeric._frombuffer") ||
        qm_pickle_calls(v, "numpy._core.numeric._frombuffer")) {
        const struct qm_pickle *order = qm_pickle_argument(v, 3);
        out->bytes = qm_pickle_argument(v, 0);
        out->dtype = qm_pickle_argument(v, 1);
        out->shape = qm_pickle_argument(v, 2);
        out->axes = qm_pickle_argument(v, 4);
        out->order = qm_pickle_is(order, QM_PICKLE_text) ? order->text[0] : 'C';
        return 1;
    }
    return 0;
}

static qm_status take_bytes(struct qm_file *f, const struct qm_pickle *bytes,
                            struct qm_torch_view *w)
{
    int64_t numel = qm_shape_numel(&w->shape), size;
    if (!qm_pickle_is(bytes, QM_PICKLE_text) || numel < 0 ||
        __builtin_mul_overflow(numel, w->element->size, &size) || (uint64_t)size != bytes->length)
        return qm_file_bad(f, "an array of NumPy with %lld elements of %lld bytes, and %zu bytes",
                           (long long)numel, (long long)w->element->size,
                           qm_pickle_is(bytes, QM_PICKLE_text) ? bytes->length : (size_t)0);
    w->memory = (const unsigned char *)bytes->text;
    return QM_OK;
}

static qm_status take_array(struct qm_file *f, const struct parts *p, struct qm_torch_view *w,
                            const char **why)
{
    int rank = qm_torch_whole_list(p->shape, w->shape.dim, QM_MAX_RANK);
    if (rank < 0)
        return qm_file_bad(f, "an array of NumPy without a shape");
    if (rank > QM_MAX_RANK) {
        *why = "more than 8 dimensions";
        return QM_OK;
    }
    w->shape.rank = rank;
    QM_TRY(take_bytes(f, p->bytes, w));
    return set_order(w, p->order, p->axes) ? QM_OK
                                           : qm_file_bad(f, "an array of NumPy without an order");
}

qm_status qm_torch_numpy(struct qm_file *f, const struct qm_pickle *v, int *is,
                         struct qm_torch_view *out, const char **why)
{
    struct parts p = {NULL, NULL, NULL, NULL, 0};
    int is_scalar = qm_pickle_calls(v, "numpy.core.multiarray.scalar") ||
                    qm_pickle_calls(v, "numpy._core.multiarray.scalar");
    *is = -1;
    if (!is_scalar && !parts_of(v, &p))
        return QM_OK;
    struct dtype type = dtype_of(is_scalar ? qm_pickle_argument(v, 0) : p.dtype);
    if (is_scalar && !type.is_number)
        return QM_OK;
    *why = type.why;
    *is = !type.why;
    if (type.why)
        return QM_OK;
    *out = (struct qm_torch_view){
        .storage = -1, .element = type.element, .is_swapped = type.is_swapped};
    return is_scalar ? take_bytes(f, qm_pickle_argument(v, 1), out) : take_array(f, &p, out, why);
}
