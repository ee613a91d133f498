/* files.h - The shared objects of a kernel check: the new kernel's and the old one's. */
#ifndef QM_EXPERIMENTS_KERNEL_FILES_H
#define QM_EXPERIMENTS_KERNEL_FILES_H

#include "experiments/kernel/kernel.h"

struct qm_kernel_files {
    char folder[256], old_folder[280], object[4096], old_object[4096];
    char lines[4096]; /* qm_fmad_lines of the new kernel */
};

/* Compiles the sources.  QM_BAD_ARG: a source does not compile, or the file's ending is unknown;
 * QM_SKIPPED: a CUDA source cannot be compiled here.  The caller closes f even on failure. */
qm_status qm_kernel_files_open(const struct qm_kernel_options *o, struct qm_kernel_files *f);

/* Whether the device takes a process for each form that is judged, has[form], and for each of
 * --against.  QM_BAD_ARG: it takes one at a time (compute mode EXCLUSIVE_PROCESS). */
qm_status qm_kernel_files_fit(const struct qm_kernel_options *o, const int has[QM_FMADS]);

void qm_kernel_files_close(const struct qm_kernel_files *f);

#endif
