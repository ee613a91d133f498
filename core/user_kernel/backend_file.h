/* backend_file.h - The backend "file", whose step is a user's kernel file (core/abi/kernel_abi.h).
 *
 * A plan owns the state as the kernel sees it: packed codes and scales.  Each buffer lies between
 * unmapped pages and ends at the second of them, but for alignment to 64 bytes (guarded_memory.h).
 * Inputs that the kernel must not change are copied into read-only pages for the call.  The state
 * that the kernel leaves is not corrected in any way. */
#ifndef QM_USER_KERNEL_BACKEND_FILE_H
#define QM_USER_KERNEL_BACKEND_FILE_H

#include "core/compile/embedded_text.h"
#include "core/compile/kernel_build.h"
#include "core/recipe/backend.h"

struct qm_kernel_file; /* opaque */

/* Loads a shared object of qm_kernel_file_build, or a cubin of qm_user_cuda_build (user_cuda.h),
 * which runs on the GPU.  QM_BAD_FILE: there is no such file, or it does not load; QM_BAD_ARG: it
 * lacks qm_kernel_step, or was built for another ABI. */
qm_status qm_kernel_file_open(const char *object, struct qm_kernel_file **out);
void qm_kernel_file_close(struct qm_kernel_file *k); /* accepts NULL; after its plans */

/* The recipe that the kernel claims to be (QM_KERNEL), or NULL. */
const char *qm_kernel_file_as(const struct qm_kernel_file *k);

/* A symbol that the shared object exports, or NULL. */
void *qm_kernel_file_symbol(const struct qm_kernel_file *k, const char *name);

/* Plans that are opened from now on run this kernel: the member `open` of struct qm_backend has no
 * parameter for it. */
void qm_kernel_file_use(struct qm_kernel_file *k);

/* step: QM_SKIPPED where the kernel refuses the input; QM_CHECK_FAILED where it wrote between a
 * buffer and the unmapped pages around it, or changed the floating-point environment (which is
 * restored), or where the emulator found an error.  open: QM_BAD_ARG without a kernel. */
extern const struct qm_backend qm_backend_file;

/* The arguments that step t would hand to the kernel, which is not called.  They belong to the plan
 * and are valid until its next step. */
struct qm_kernel_args;
qm_status qm_plan_file_args(void *plan, const struct qm_tensor *param, const struct qm_tensor *g,
                            int64_t t, uint64_t seed, const struct qm_kernel_args **out);

/* Seconds of the kernel's own run in the plan's last step. */
double qm_plan_file_seconds(const void *plan);

/* The kernel whose step is running, or NULL.  Async-signal-safe. */
const struct qm_kernel_file *qm_kernel_file_running(void);

/* Writes which buffer an address belongs to that faulted within a step ("past the codes of exp_avg,
 * end plus 3"), or "".  Async-signal-safe. */
void qm_kernel_file_where(const void *address, char *text, size_t size);

#endif
