/* tensor.h - Element types, shapes and views of contiguous row-major tensors. */
#ifndef QM_BASE_TENSOR_H
#define QM_BASE_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

#define QM_MAX_RANK 8

/* clang-format off */
#define QM_DTYPE_LIST(X)  /* name, bytes, is a float type, safetensors' name */ \
    X(f64,  8, 1, "F64")  X(f32, 4, 1, "F32")  X(f16, 2, 1, "F16")  X(bf16, 2, 1, "BF16") \
    X(i64,  8, 0, "I64")  X(i32, 4, 0, "I32")  X(i16, 2, 0, "I16")  X(i8,   1, 0, "I8")   \
    X(u64,  8, 0, "U64")  X(u32, 4, 0, "U32")  X(u16, 2, 0, "U16")  X(u8,   1, 0, "U8")   \
    X(bool, 1, 0, "BOOL")
/* clang-format on */

enum qm_dtype {
#define X(name, bytes, is_float, st) QM_DTYPE_##name,
    QM_DTYPE_LIST(X)
#undef X
        QM_DTYPE_COUNT
};

size_t qm_dtype_size(enum qm_dtype d);
int qm_dtype_is_float(enum qm_dtype d);
const char *qm_dtype_name(enum qm_dtype d);

/* The dims of a row-major tensor.  Rank 0 is a scalar of one element; any dim may be 0. */
struct qm_shape {
    int rank;
    int64_t dim[QM_MAX_RANK];
};

/* Product of the dims; 1 for rank 0; -1 when it does not fit in 63 bits or a dim is negative. */
int64_t qm_shape_numel(const struct qm_shape *s);

/* Writes "64x256", or "scalar" for rank 0: at most size bytes, NUL included.  Returns text. */
char *qm_shape_print(const struct qm_shape *s, char *text, size_t size);

/* Reads "64x256", "300" or "scalar"; QM_BAD_ARG for anything else, for more than QM_MAX_RANK sizes
 * and for 2^60 elements or more, so that the bytes of a tensor fit in 63 bits; for that limit a
 * size of 0 counts as 1. */
qm_status qm_shape_parse(const char *text, struct qm_shape *out);

/* A view, which owns nothing: data points at qm_shape_numel(&shape) elements of dtype. */
struct qm_tensor {
    void *data;
    enum qm_dtype dtype;
    struct qm_shape shape;
};

/* Converts the n elements of src from index `from` on.  Numbers that the output type cannot
 * represent round to nearest even: f64 and integers of more than 24 bits to float, and integers of
 * more than 53 bits to double; all others are exact. */
void qm_to_float(const void *src, enum qm_dtype dtype, int64_t from, int64_t n, float *out);
void qm_to_double(const void *src, enum qm_dtype dtype, int64_t from, int64_t n, double *out);

#endif
