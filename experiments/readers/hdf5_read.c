/* hdf5_read.c - The HDF5 reader: reads ranges of datasets. */
#include <stdlib.h>
#include <string.h>

#include "experiments/foreign/h5_chunks.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/hdf5.h"

#define CACHE_MIN ((size_t)16 << 20) /* bytes of chunks kept for the open dataset */
#define CACHE_MAX ((size_t)128 << 20)
#define STAGE_MAX ((int64_t)1 << 20) /* elements converted at a time */

/* The memory type of a dtype, which the caller closes; the library converts byte order
 * and padding. */
static hid_t memory_type(enum qm_dtype dtype)
{
    hid_t type = -1;
    switch (dtype) {
    case QM_DTYPE_f64: return H5Tcopy(H5T_NATIVE_DOUBLE);
    case QM_DTYPE_f32: return H5Tcopy(H5T_NATIVE_FLOAT);
    case QM_DTYPE_i64: return H5Tcopy(H5T_NATIVE_INT64);
    case QM_DTYPE_i32: return H5Tcopy(H5T_NATIVE_INT32);
    case QM_DTYPE_i16: return H5Tcopy(H5T_NATIVE_INT16);
    case QM_DTYPE_i8: return H5Tcopy(H5T_NATIVE_INT8);
    case QM_DTYPE_u64: return H5Tcopy(H5T_NATIVE_UINT64);
    case QM_DTYPE_u32: return H5Tcopy(H5T_NATIVE_UINT32);
    case QM_DTYPE_u16: return H5Tcopy(H5T_NATIVE_UINT16);
    case QM_DTYPE_bool: return H5Tcopy(H5T_NATIVE_INT8); /* a byte that is not 0 stays so */
    case QM_DTYPE_u8: return H5Tcopy(H5T_NATIVE_UINT8);
    case QM_DTYPE_f16:
    case QM_DTYPE_bf16: {
        size_t mantissa = dtype == QM_DTYPE_f16 ? 10 : 7;
        type = H5Tcopy(H5T_IEEE_F32LE);
        H5Tset_fields(type, 15, mantissa, 15 - mantissa, 0, mantissa);
        H5Tset_size(type, 2);
        H5Tset_ebias(type, dtype == QM_DTYPE_f16 ? 15 : 127);
        return type;
    }
    case QM_DTYPE_COUNT: break;
    }
    return type;
}

/* Bytes of the chunk cache: room for all chunks that a row crosses, up to CACHE_MAX, because
 * ranges are read row by row and an evicted chunk is unpacked again; at least one chunk, whatever
 * its size. */
static size_t cache_bytes(hid_t set, const struct qm_shape *s)
{
    hsize_t dims[H5S_MAX_RANK];
    hid_t plist = H5Dget_create_plist(set), type = H5Dget_type(set);
    size_t chunk = H5Tget_size(type), row, best = CACHE_MIN;
    int rank = H5Pget_layout(plist) == H5D_CHUNKED ? H5Pget_chunk(plist, H5S_MAX_RANK, dims) : 0;
    H5Tclose(type);
    H5Pclose(plist);
    for (int k = 0; k < rank; k++)
        chunk *= (size_t)dims[k]; /* the library keeps chunks below 2^32 bytes */
    row = chunk;
    for (int k = 1; k < rank && k < s->rank && row <= CACHE_MAX; k++) {
        size_t one = dims[k] ? (size_t)dims[k] : 1;
        if (__builtin_mul_overflow(row, ((size_t)s->dim[k] + one - 1) / one, &row))
            row = SIZE_MAX;
    }
    if (row <= CACHE_MAX && row > best)
        best = row;
    return chunk > best ? chunk : best;
}

static qm_status open_dataset(struct qm_file *f, int i)
{
    char why[200];
    struct qm_hdf5 *own = f->own;
    if (own->entry == i)
        return QM_OK;
    if (own->dataset >= 0)
        H5Dclose(own->dataset);
    own->entry = own->dataset = -1;
    hid_t first = H5Dopen2(own->file, f->entry[i].name, H5P_DEFAULT);
    if (first < 0)
        return qm_file_bad(f, "dataset '%.200s': %s", f->entry[i].name, qm_h5_guard_reason(why));
    hid_t plist = H5Dget_create_plist(first);
    H5D_layout_t layout = H5Pget_layout(plist);
    H5Pclose(plist);
    if (layout != H5D_CHUNKED) {
        own->dataset = first;
        own->entry = i;
        return QM_OK;
    }
    qm_status st = qm_h5_chunks_check(f->path, f->entry[i].name, first);
    if (st != QM_OK) {
        H5Dclose(first);
        return st;
    }
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_chunk_cache(access, 10007, cache_bytes(first, &f->entry[i].shape), 1.0);
    H5Dclose(first);
    own->dataset = H5Dopen2(own->file, f->entry[i].name, access);
    H5Pclose(access);
    if (own->dataset < 0)
        return qm_file_bad(f, "dataset '%.200s': %s", f->entry[i].name, qm_h5_guard_reason(why));
    own->entry = i;
    return QM_OK;
}

/* Reads one box into out, which holds box->numel elements of type. */
static qm_status read_box(struct qm_file *f, int i, const struct qm_box *box, hid_t type, void *out)
{
    char why[200];
    struct qm_hdf5 *own = f->own;
    hsize_t start[QM_MAX_RANK], count[QM_MAX_RANK];
    int rank = f->entry[i].shape.rank;
    for (int k = 0; k < rank; k++) {
        start[k] = (hsize_t)box->start[k];
        count[k] = (hsize_t)box->count[k];
    }
    /* the memory space has the box's rank: with any other rank HDF5 copies element by element */
    hid_t space = H5Dget_space(own->dataset);
    hid_t memory = rank ? H5Screate_simple(rank, count, NULL) : H5Screate(H5S_SCALAR);
    qm_status st = QM_OK;
    if (space < 0 || memory < 0 || H5Sget_simple_extent_ndims(space) != rank ||
        (rank > 0 && H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0) ||
        H5Dread(own->dataset, type, memory, space, H5P_DEFAULT, out) < 0)
        st = qm_file_bad(f, "dataset '%.200s': cannot read: %s", f->entry[i].name,
                         qm_h5_guard_reason(why));
    H5Sclose(memory);
    H5Sclose(space);
    return st;
}

qm_status qm_hdf5_read(struct qm_file *f, int i, int64_t from, int64_t n, struct qm_sink sink)
{
    const struct qm_entry *e = &f->entry[i];
    QM_TRY(open_dataset(f, i));
    int direct = e->dtype == (sink.f ? QM_DTYPE_f32 : QM_DTYPE_f64);
    int64_t most = direct || n < STAGE_MAX ? n : STAGE_MAX;
    void *stage = direct ? NULL : malloc((size_t)most * qm_dtype_size(e->dtype));
    if (!direct && !stage)
        return qm_fail(QM_NO_MEMORY, "%s: %lld elements", f->path, (long long)most);
    hid_t type = memory_type(e->dtype);
    qm_status st = QM_OK;
    struct qm_box box;
    for (int64_t done = 0; st == QM_OK && done < n; done += box.numel) {
        qm_reader_progress();
        qm_box_next(&e->shape, from + done, n - done < most ? n - done : most, &box);
        if (direct)
            st = read_box(f, i, &box, type, sink.f ? (void *)(sink.f + done) : sink.d + done);
        else
            st = read_box(f, i, &box, type, stage);
        if (st == QM_OK && !direct)
            qm_sink_write(sink, done, stage, e->dtype, box.numel);
    }
    H5Tclose(type);
    free(stage);
    return st;
}

qm_status qm_hdf5_bytes(struct qm_file *f, int i, int64_t from, int64_t n, void *out)
{
    const struct qm_entry *e = &f->entry[i];
    QM_TRY(open_dataset(f, i));
    hid_t type = memory_type(e->dtype);
    qm_status st = QM_OK;
    struct qm_box box;
    for (int64_t done = 0; st == QM_OK && done < n; done += box.numel) {
        qm_reader_progress();
        qm_box_next(&e->shape, from + done, n - done, &box);
        char *to = (char *)out + (size_t)done * qm_dtype_size(e->dtype);
        st = read_box(f, i, &box, type, to);
        for (int64_t k = 0; e->dtype == QM_DTYPE_bool && st == QM_OK && k < box.numel; k++)
            to[k] = to[k] != 0;
    }
    H5Tclose(type);
    return st;
}
