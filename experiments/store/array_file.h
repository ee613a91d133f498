/* array_file.h - Writes named arrays to one .npz or .safetensors file (readers/ reads them).
 *
 *   .npz          a zip archive of stored (not compressed) NAME.npy entries, .npy version 1.0, all
 *                 dated 1980-01-01, so that equal arrays give equal files
 *   .safetensors  the header is padded with spaces to 8 bytes; arrays are ordered by element size,
 *                 the widest first, so that all are aligned
 *
 * The element types are those of QM_DTYPE_LIST; bf16 is "|V2" in .npz. */
#ifndef QM_STORE_ARRAY_FILE_H
#define QM_STORE_ARRAY_FILE_H

#include <jansson.h>

#include "core/base/tensor.h"

struct qm_array {
    char *name; /* as "t0/in/param" */
    struct qm_tensor *tensor;
};

enum qm_container {
    QM_CONTAINER_safetensors,
    QM_CONTAINER_npz,
    QM_CONTAINER_h5,
    QM_CONTAINER_COUNT
};

/* The container that the ending of path names; QM_CONTAINER_COUNT: none. */
enum qm_container qm_container_of(const char *path);

/* Writes n arrays to path, whole or not at all (atomic_file.h), or to stdout where path is
 * "-".  The arrays stay the caller's.  texts: an object of strings, "__metadata__" in
 * .safetensors (NULL: none), which stays the caller's; .npz has none.  form is not h5 (see
 * store.h).  QM_BAD_FILE: the file cannot be written, or the container cannot hold an array: .npz a
 * name of more than 507 bytes or with control characters other than tab and those that end lines,
 * or an empty array whose other sizes are beyond NumPy's index. */
qm_status qm_arrays_write(const char *path, enum qm_container form, json_t *texts,
                          const struct qm_array *a, int n);

/* Bytes of a tensor's elements. */
size_t qm_tensor_bytes(const struct qm_tensor *t);

#endif
