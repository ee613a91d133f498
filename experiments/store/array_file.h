/* array_file.h - named arrays written to one file: .npz, .safetensors.  (Reading: readers/reader.h.)
 *
 *   .npz          a zip archive of stored (not compressed) NAME.npy entries, .npy version 1.0, all
 *                 dated 1980-01-01: equal arrays are equal files
 *   .safetensors  the header is padded with spaces to 8 bytes; arrays go by element size, widest
 *                 first, so that all are aligned
 *
 * Element types: those of QM_DTYPE_LIST; bf16 is "|V2" in .npz. */
#ifndef QM_STORE_ARRAY_FILE_H
#define QM_STORE_ARRAY_FILE_H

#include <jansson.h>

#include "core/base/tensor.h"

struct qm_array {
    char *name; /* "t0/in/param" */
    struct qm_tensor *tensor;
};

enum qm_container {
    QM_CONTAINER_safetensors,
    QM_CONTAINER_npz,
    QM_CONTAINER_h5,
    QM_CONTAINER_COUNT
};

/* By the ending; QM_CONTAINER_COUNT: none of them. */
enum qm_container qm_container_of(const char *path);

/* Writes path, whole or not at all (atomic_file.h), or stdout where path is "-".  texts: the strings of
 * "__metadata__" in .safetensors (NULL: none), not written to .npz.  Not for h5 (store.h). */
qm_status qm_arrays_write(const char *path, enum qm_container form, json_t *texts,
                          const struct qm_array *a, int n);

/* Bytes of a view. */
size_t qm_tensor_bytes(const struct qm_tensor *t);

#endif
