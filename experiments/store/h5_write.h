/* h5_write.h - Makes the objects of a result file; internal to experiments/store.
 *
 * Objects have no times; every dataset is chunked and has checksums (fletcher32), but empty and
 * scalar ones and texts of variable length; from 64 KB on it is compressed (shuffle, deflate),
 * tables of 4 MiB and more excepted.  Every dataset has a unit and a text.  store.h describes
 * tables, arrays, texts and numbers; only store.c calls these functions. */
#ifndef QM_STORE_H5_WRITE_H
#define QM_STORE_H5_WRITE_H

#include "experiments/store/h5.h"
#include "experiments/store/store.h"

/* A string type: NUL-padded UTF-8 of `width` bytes (H5T_VARIABLE: of variable length).  The caller
 * closes it; negative without memory. */
hid_t qm_h5_write_text_type(size_t width);

/* x, with one bit pattern for all NaNs: their sign and payload depend on the compiler. */
double qm_h5_write_nan(double x);

/* Makes a dataset without data, with its unit (NULL: none; tables have units per column) and
 * description.  The caller writes and closes it.  QM_BAD_ARG: path is taken, or no valid path. */
qm_status qm_h5_write_dataset(hid_t file, const char *path, hid_t type, int rank,
                              const hsize_t *dim, const char *unit, const char *text, hid_t *out);

/* Write an array of this shape, a table of columns with `rows` rows each, or an attribute `name` of
 * the object at `path`: a text, or one number.  data, columns and value are the caller's and are
 * read before the call returns; scales: the path of each dimension's labels, or NULL.
 * QM_BAD_ARG as above; QM_INTERNAL: HDF5 could not write. */
qm_status qm_h5_write_array(hid_t file, const char *path, enum qm_dtype dtype,
                            const struct qm_shape *shape, const void *data, const char *unit,
                            const char *text, const char *const *scales);
qm_status qm_h5_write_table(hid_t file, const char *path, const char *text, int64_t rows,
                            int n_columns, const struct qm_column *columns);
qm_status qm_h5_write_text(hid_t file, const char *path, const char *name, const char *value);
qm_status qm_h5_write_number(hid_t file, const char *path, const char *name, enum qm_dtype dtype,
                             const void *value);

#endif
