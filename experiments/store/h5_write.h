/* h5_write.h - new objects in an open result file, all in one manner: no times, 64 KB and more chunked
 * and compressed (shuffle, deflate, fletcher32), unit and text on every dataset.
 *
 * What store.h says of tables, arrays, texts and numbers holds here; only store.c calls these. */
#ifndef QM_STORE_H5_WRITE_H
#define QM_STORE_H5_WRITE_H

#include "experiments/store/h5.h"
#include "experiments/store/store.h"

/* Fixed-width, NUL padded UTF-8 (width H5T_VARIABLE: variable-length).  The caller closes it;
 * negative when out of memory. */
hid_t qm_h5_write_text_type(size_t width);

/* The sign and payload of a NaN depend on the compiler; ours have one. */
double qm_h5_write_nan(double x);

/* A new, empty dataset with its unit (NULL: none, a table has them by column) and description.
 * The caller writes and closes it.  QM_BAD_ARG: there is something at path, or path is no path. */
qm_status qm_h5_write_dataset(hid_t file, const char *path, hid_t type, int rank,
                              const hsize_t *dim, const char *unit, const char *text, hid_t *out);

qm_status qm_h5_write_array(hid_t file, const char *path, enum qm_dtype dtype,
                            const struct qm_shape *shape, const void *data, const char *unit,
                            const char *text, const char *const *scales);
qm_status qm_h5_write_table(hid_t file, const char *path, const char *text, int64_t rows,
                            int n_columns, const struct qm_column *columns);
qm_status qm_h5_write_text(hid_t file, const char *path, const char *name, const char *value);
qm_status qm_h5_write_number(hid_t file, const char *path, const char *name, enum qm_dtype dtype,
                             const void *value);

#endif
