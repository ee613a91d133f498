/* golden_dataset.h - Reads a dataset of a golden-vector file, in the reader process. */
#ifndef QM_CONFORM_GOLDEN_DATASET_H
#define QM_CONFORM_GOLDEN_DATASET_H

#include "core/base/tensor.h"
#include "experiments/foreign/blob.h"
#include "experiments/foreign/h5_guard.h"

#define QM_GOLDEN_MOST_ELEMENTS ((int64_t)1 << 28)

/* What qm_golden_shape and qm_golden_read of golden.h say, of the open file whose name in messages
 * is file_path.  read puts the count of elements and then the elements. */
qm_status qm_golden_dataset_shape(hid_t file, const char *file_path, const char *path,
                                  struct qm_shape *out);
qm_status qm_golden_dataset_read(hid_t file, const char *file_path, const char *path,
                                 enum qm_dtype want, struct qm_blob *out);

#endif
