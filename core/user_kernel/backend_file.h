/* backend_file.h - a backend whose step is a kernel file of the user's (core/abi/kernel_abi.h).
 *
 * Plans own the state as the kernel sees it: packed codes and scales, each buffer between pages that
 * are not mapped, its end at the second one but for alignment to 64 bytes.  What the kernel may not
 * change is copied into read-only pages for the call.  What it leaves is read as it is. */
#ifndef QM_USER_KERNEL_BACKEND_FILE_H
#define QM_USER_KERNEL_BACKEND_FILE_H

#include "core/recipe/backend.h"

struct qm_kernel_file;

/* Compiles a kernel's source into `folder`/kernel.so, which goes to `object` (size bytes), with the
 * compiler $CC (default cc), -std=c11 -O2 -ffp-contract=off and the words of $CFLAGS behind them.
 * kernel_abi.h and kernel_nearest.h are written beside it first.  The compiler's messages go to stderr.
 * QM_BAD_ARG where it finds an error, QM_BAD_FILE where source or folder cannot be used. */
qm_status qm_kernel_file_build(const char *source, const char *folder, char *object, size_t size);

/* Loads a shared object, or a cubin of qm_user_cuda_build (core/user_kernel/user_cuda.h) for the GPU.  QM_BAD_FILE: there is none, or it does not load; QM_BAD_ARG: it lacks
 * qm_kernel_step, or was built for another ABI. */
qm_status qm_kernel_file_open(const char *object, struct qm_kernel_file **out);
void qm_kernel_file_close(struct qm_kernel_file *k); /* accepts NULL; after its plans */

/* The recipe it says it is, or NULL. */
const char *qm_kernel_file_as(const struct qm_kernel_file *k);

/* What it exports under a name, or NULL. */
void *qm_kernel_file_symbol(const struct qm_kernel_file *k, const char *name);

/* The kernel of the plans that are opened from now on. */
void qm_kernel_file_use(struct qm_kernel_file *k);

/* step: QM_SKIPPED where the kernel refuses the input; QM_CHECK_FAILED where it wrote between a buffer
 * and the unmapped pages around it, or left the floating-point environment changed (it is put back).
 * open: QM_BAD_ARG without a kernel. */
extern const struct qm_backend qm_backend_file;

/* What such a step would hand to the kernel, without calling it; the plan's, until its next step. */
struct qm_kernel_args;
qm_status qm_plan_file_args(void *plan, const struct qm_tensor *param, const struct qm_tensor *g,
                            int64_t t, uint64_t seed, const struct qm_kernel_args **out);

/* Seconds that the kernel itself took in the plan's last step. */
double qm_plan_file_seconds(const void *plan);

/* The kernel that is within a step, or NULL.  Async-signal-safe. */
const struct qm_kernel_file *qm_kernel_file_running(void);

/* Says of an address that faulted within a step which buffer it belongs to, or leaves "" in text.
 * Async-signal-safe. */
void qm_kernel_file_where(const void *address, char *text, size_t size);

/* The text of core/abi/kernel_abi.h, core/abi/kernel_nearest.h and of the templates variants/native/NAME.c, for users who have the
 * executable only.  NULL: there is no such file; index beyond the last: NULL. */
const char *const *qm_kernel_file_text(const char *name); /* lines, ended by NULL */
const char *qm_kernel_file_name(int i);                   /* "kernel_abi.h", "adamw4_ao.c", ... */

#endif
