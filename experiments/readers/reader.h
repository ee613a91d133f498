/* reader.h - named tensors in files: .h5, .npy, .safetensors.
 *
 * A reader trusts nothing in the file: every size and offset is checked against the file's length
 * before use.  Errors are one line that names the file, the place and what was expected. */
#ifndef QM_READERS_READER_H
#define QM_READERS_READER_H

#include "core/base/tensor.h"

struct qm_file; /* opaque; owns mappings and handles */

struct qm_entry {
    const char *name; /* "/gpt/s000400/h.0.qkv.weight/exp_avg"; owned by the file */
    enum qm_dtype dtype;
    struct qm_shape shape;
    int64_t numel;
};

/* Opens by content (magic numbers), not by ending.  QM_BAD_FILE names what is wrong. */
qm_status qm_file_open(const char *path, struct qm_file **out);
void qm_file_close(struct qm_file *f); /* accepts NULL */

/* Entries in the file's own order (HDF5: depth first, names sorted; links followed by path). */
int qm_file_count(const struct qm_file *f);
const struct qm_entry *qm_file_entry(const struct qm_file *f, int i);
const char *qm_file_format(const struct qm_file *f); /* "hdf5", "npy", "safetensors" */

/* Elements [from, from + n) of entry i, row-major whatever the file's order, as floats (exact for
 * f32, f16, bf16; rounded for f64). */
qm_status qm_file_read(struct qm_file *f, int i, int64_t from, int64_t n, float *out);
qm_status qm_file_read_double(struct qm_file *f, int i, int64_t from, int64_t n, double *out);

/* A numeric or string attribute of an HDF5 object (path: "/run" or "/run/s000400/tensor"); -1 /
 * NULL text when the object or attribute is absent.  Strings are truncated to size - 1. */
int qm_file_attr_number(struct qm_file *f, const char *path, const char *name, double *out,
                        int max);
int qm_file_attr_text(struct qm_file *f, const char *path, const char *name, char *out,
                      size_t size);

#endif
