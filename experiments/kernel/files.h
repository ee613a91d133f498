/* files.h - the shared objects of a kernel check. */
#ifndef QM_EXPERIMENTS_KERNEL_FILES_H
#define QM_EXPERIMENTS_KERNEL_FILES_H

#include "experiments/kernel/kernel.h"

struct qm_kernel_files {
    char folder[256], old_folder[280], object[4096], old_object[4096];
};

/* Compiles what is source.  QM_BAD_ARG: it does not compile, or is no such file; QM_SKIPPED: CUDA.
 * The caller closes it even on failure. */
qm_status qm_kernel_files_open(const struct qm_kernel_options *o, struct qm_kernel_files *f);
void qm_kernel_files_close(const struct qm_kernel_files *f);

#endif
