/* tensor.c - Prints, parses and converts element types and shapes. */
#include "core/base/tensor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"

static const struct {
    const char *name;
    size_t bytes;
    int is_float;
} dtypes[] = {
#define X(name, bytes, is_float, st) {#name, bytes, is_float},
    QM_DTYPE_LIST(X)
#undef X
};

size_t qm_dtype_size(enum qm_dtype d) { return dtypes[d].bytes; }

int qm_dtype_is_float(enum qm_dtype d) { return dtypes[d].is_float; }

const char *qm_dtype_name(enum qm_dtype d) { return dtypes[d].name; }

int64_t qm_shape_numel(const struct qm_shape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        if (s->dim[i] < 0 || __builtin_mul_overflow(n, s->dim[i], &n))
            return -1;
    return n;
}

char *qm_shape_print(const struct qm_shape *s, char *text, size_t size)
{
    size_t used = 0;
    if (s->rank == 0)
        snprintf(text, size, "scalar");
    for (int i = 0; i < s->rank && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, i ? "x%lld" : "%lld", (long long)s->dim[i]);
    return text;
}

qm_status qm_shape_parse(const char *text, struct qm_shape *out)
{
    struct qm_shape s = {0, {0}};
    if (strcmp(text, "scalar") == 0) {
        *out = s;
        return QM_OK;
    }
    for (const char *at = text;;) {
        char *end;
        errno = 0;
        long long d = strtoll(at, &end, 10);
        if (errno)
            return qm_fail(QM_BAD_ARG, "shape '%.100s' has 2^60 elements or more", text);
        if (end == at || d < 0 || *at < '0' || *at > '9' || s.rank == QM_MAX_RANK ||
            (*end && *end != 'x'))
            return qm_fail(QM_BAD_ARG, "shape '%.100s': expected up to %d sizes such as 64x256",
                           text, QM_MAX_RANK);
        s.dim[s.rank++] = d;
        if (!*end)
            break;
        at = end + 1;
    }
    int64_t n = 1;
    for (int i = 0; i < s.rank; i++) /* a size of 0 does not excuse the others */
        if (__builtin_mul_overflow(n, s.dim[i] ? s.dim[i] : 1, &n) || n >= INT64_C(1) << 60)
            return qm_fail(QM_BAD_ARG, "shape '%.100s' has 2^60 elements or more", text);
    *out = s;
    return QM_OK;
}

/* The loop of one dtype; the expression `get` converts the element e of src to the output type. */
#define CONVERT(type, get)                                                       \
    for (int64_t i = 0; i < n; i++) {                                            \
        type e;                                                                  \
        memcpy(&e, (const char *)src + (size_t)(from + i) * sizeof e, sizeof e); \
        out[i] = get;                                                            \
    }                                                                            \
    break

void qm_to_float(const void *src, enum qm_dtype dtype, int64_t from, int64_t n, float *out)
{
    switch (dtype) {
    case QM_DTYPE_f32: memcpy(out, (const float *)src + from, (size_t)n * sizeof *out); break;
    case QM_DTYPE_f64: CONVERT(double, (float)e);
    case QM_DTYPE_f16: CONVERT(uint16_t, qm_f16_to_float(e));
    case QM_DTYPE_bf16: CONVERT(uint16_t, qm_bf16_to_float(e));
    case QM_DTYPE_i64: CONVERT(int64_t, (float)e);
    case QM_DTYPE_i32: CONVERT(int32_t, (float)e);
    case QM_DTYPE_i16: CONVERT(int16_t, (float)e);
    case QM_DTYPE_i8: CONVERT(int8_t, (float)e);
    case QM_DTYPE_u64: CONVERT(uint64_t, (float)e);
    case QM_DTYPE_u32: CONVERT(uint32_t, (float)e);
    case QM_DTYPE_u16: CONVERT(uint16_t, (float)e);
    case QM_DTYPE_u8: CONVERT(uint8_t, (float)e);
    case QM_DTYPE_bool: CONVERT(uint8_t, e ? 1.0f : 0.0f);
    case QM_DTYPE_COUNT: break;
    }
}

void qm_to_double(const void *src, enum qm_dtype dtype, int64_t from, int64_t n, double *out)
{
    switch (dtype) {
    case QM_DTYPE_f32: CONVERT(float, (double)e);
    case QM_DTYPE_f64: CONVERT(double, e);
    case QM_DTYPE_f16: CONVERT(uint16_t, (double)qm_f16_to_float(e));
    case QM_DTYPE_bf16: CONVERT(uint16_t, (double)qm_bf16_to_float(e));
    case QM_DTYPE_i64: CONVERT(int64_t, (double)e);
    case QM_DTYPE_i32: CONVERT(int32_t, (double)e);
    case QM_DTYPE_i16: CONVERT(int16_t, (double)e);
    case QM_DTYPE_i8: CONVERT(int8_t, (double)e);
    case QM_DTYPE_u64: CONVERT(uint64_t, (double)e);
    case QM_DTYPE_u32: CONVERT(uint32_t, (double)e);
    case QM_DTYPE_u16: CONVERT(uint16_t, (double)e);
    case QM_DTYPE_u8: CONVERT(uint8_t, (double)e);
    case QM_DTYPE_bool: CONVERT(uint8_t, e ? 1.0 : 0.0);
    case QM_DTYPE_COUNT: break;
    }
}
