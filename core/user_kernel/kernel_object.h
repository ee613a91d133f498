/* kernel_object.h - A compiled kernel that is loaded into this process and called. */
#ifndef QM_USER_KERNEL_KERNEL_OBJECT_H
#define QM_USER_KERNEL_KERNEL_OBJECT_H

#include "core/base/status.h"

struct qm_kernel_args;
struct qm_kernel_object; /* opaque */

/* Loads a shared object of qm_kernel_file_build, or a cubin of qm_user_cuda_build (user_cuda.h),
 * which runs on the GPU.  QM_BAD_FILE: there is no such file, or it does not load; QM_BAD_ARG: it
 * lacks qm_kernel_step, or was built for another ABI. */
qm_status qm_kernel_object_open(const char *path, struct qm_kernel_object **out);
void qm_kernel_object_close(struct qm_kernel_object *k); /* accepts NULL */

/* The recipe that the kernel claims to be (QM_KERNEL), or NULL. */
const char *qm_kernel_object_as(const struct qm_kernel_object *k);

/* A symbol that the shared object exports, or NULL. */
void *qm_kernel_object_symbol(const struct qm_kernel_object *k, const char *name);

/* What a call left behind in the floating-point environment of its thread. */
enum qm_float_mode { QM_FLOAT_PLAIN, QM_FLOAT_ROUNDING, QM_FLOAT_DENORMALS };

/* Calls the kernel.  QM_SKIPPED: it refuses the input; QM_CHECK_FAILED: the emulator or the driver
 * found an error, with its text.  *mode: the environment afterwards, which is left as it is. */
qm_status qm_kernel_object_step(struct qm_kernel_object *k, const struct qm_kernel_args *a,
                                enum qm_float_mode *mode);

#endif
