/* golden_dataset.c - Reads a dataset of a golden file: its shape, and its numbers converted. */
#include "experiments/conform/golden_dataset.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "experiments/foreign/h5_chunks.h"

static qm_status space_shape(const char *file_path, const char *path, hid_t d, struct qm_shape *out)
{
    hsize_t dims[H5S_MAX_RANK];
    hid_t space = H5Dget_space(d);
    int rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    if (rank > 0)
        H5Sget_simple_extent_dims(space, dims, NULL);
    H5Sclose(space);
    if (rank < 0 || rank > QM_MAX_RANK)
        return qm_fail(QM_BAD_FILE, "%s: %s has %d dimensions, at most %d are read", file_path,
                       path, rank, QM_MAX_RANK);
    struct qm_shape s = {.rank = rank};
    for (int i = 0; i < rank; i++)
        s.dim[i] = dims[i] < (hsize_t)INT64_MAX ? (int64_t)dims[i] : -1;
    int64_t n = qm_shape_numel(&s);
    if (n < 0 || n > QM_GOLDEN_MOST_ELEMENTS)
        return qm_fail(QM_BAD_FILE, "%s: %s is larger than the 2^28 elements that are read",
                       file_path, path);
    *out = s;
    return QM_OK;
}

static qm_status dataset_open(hid_t file, const char *file_path, const char *path, hid_t *out)
{
    hid_t d = H5Dopen2(file, path, H5P_DEFAULT);
    char why[200];
    if (d < 0)
        qm_h5_guard_reason(why);
    if (d < 0 && H5Lexists(file, path, H5P_DEFAULT) > 0)
        return qm_fail(QM_BAD_FILE, "%s: %s cannot be opened: %s", file_path, path, why);
    if (d < 0)
        return qm_fail(QM_NO_MATCH, "%s: there is no dataset %s", file_path, path);
    qm_status st = qm_h5_guard_dataset(file_path, path, d);
    if (st == QM_OK)
        *out = d;
    else
        H5Dclose(d);
    return st;
}

qm_status qm_golden_dataset_shape(hid_t file, const char *file_path, const char *path,
                                  struct qm_shape *out)
{
    hid_t d = -1;
    QM_TRY(dataset_open(file, file_path, path, &d));
    qm_status st = space_shape(file_path, path, d, out);
    H5Dclose(d);
    return st;
}

static hid_t memory_type(enum qm_dtype want)
{
    switch (want) {
    case QM_DTYPE_f32: return H5T_NATIVE_FLOAT;
    case QM_DTYPE_f64: return H5T_NATIVE_DOUBLE;
    case QM_DTYPE_u64: return H5T_NATIVE_UINT64;
    default: return H5T_NATIVE_INT64;
    }
}

/* Widens n bfloat16 numbers, whose bits stand at the start of x, to f32 or f64 in place. */
static void widen_bf16(void *x, int64_t n, enum qm_dtype want)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        uint16_t bits;
        memcpy(&bits, (char *)x + 2 * i, sizeof bits);
        float wide = qm_bf16_to_float(bits);
        double twice = (double)wide;
        if (want == QM_DTYPE_f32)
            memcpy((char *)x + 4 * i, &wide, sizeof wide);
        else
            memcpy((char *)x + 8 * i, &twice, sizeof twice);
    }
}

/* Reads floats of more than 32 bits as float32, of which each must be one, or NaN. */
static qm_status read_wider(const char *file_path, const char *path, hid_t d, int64_t n, float *out)
{
    double *x = calloc((size_t)n + 1, sizeof *x);
    qm_status st = x ? QM_OK : qm_fail(QM_NO_MEMORY, "reading %s", path);
    if (x && H5Dread(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) < 0)
        st = qm_fail(QM_BAD_FILE, "%s: %s cannot be read (truncated or damaged?)", file_path, path);
    for (int64_t i = 0; st == QM_OK && i < n; i++) {
        out[i] = (float)x[i];
        if ((double)out[i] != x[i] && x[i] == x[i])
            st = qm_fail(QM_BAD_FILE, "%s: number %lld of %s is %.17g, which float32 does not have",
                         file_path, (long long)i, path, x[i]);
    }
    free(x);
    return st;
}

qm_status qm_golden_dataset_read(hid_t file, const char *file_path, const char *path,
                                 enum qm_dtype want, struct qm_blob *out)
{
    hid_t d = -1;
    struct qm_shape shape;
    QM_TRY(dataset_open(file, file_path, path, &d));
    qm_status st = space_shape(file_path, path, d, &shape);
    if (st == QM_OK)
        st = qm_h5_chunks_check(file_path, path, d);
    hid_t t = H5Dget_type(d);
    H5T_class_t class = t < 0 ? H5T_NO_CLASS : H5Tget_class(t);
    int floats = want == QM_DTYPE_f32 || want == QM_DTYPE_f64;
    enum qm_dtype stored;
    if (st == QM_OK && class != H5T_INTEGER && !(floats && class == H5T_FLOAT))
        st = qm_fail(QM_BAD_FILE, "%s: %s does not hold %s", file_path, path,
                     floats ? "numbers" : "integers");
    else if (st == QM_OK && class == H5T_FLOAT && !qm_h5_guard_float(t, &stored))
        st = qm_fail(QM_BAD_FILE, "%s: %s has floats that are none of IEEE", file_path, path);
    int64_t n = st == QM_OK ? qm_shape_numel(&shape) : 0;
    qm_blob_put_number(out, n);
    void *values = qm_blob_put(out, (size_t)n * qm_dtype_size(want));
    int is_bf16 =
        floats && class == H5T_INTEGER && H5Tget_size(t) == 2 && H5Tget_sign(t) == H5T_SGN_NONE;
    int is_wider = want == QM_DTYPE_f32 && class == H5T_FLOAT && H5Tget_size(t) > 4;
    if (st == QM_OK && n > 0 && values && is_wider)
        st = read_wider(file_path, path, d, n, values);
    else if (st == QM_OK && n > 0 && values &&
             H5Dread(d, is_bf16 ? H5T_NATIVE_UINT16 : memory_type(want), H5S_ALL, H5S_ALL,
                     H5P_DEFAULT, values) < 0)
        st = qm_fail(QM_BAD_FILE, "%s: %s cannot be read (truncated or damaged?)", file_path, path);
    if (st == QM_OK && values && is_bf16)
        widen_bf16(values, n, want);
    H5Tclose(t);
    H5Dclose(d);
    return st;
}
