/* backend_file.h - The backend "file", whose step is a user's kernel file (core/abi/kernel_abi.h).
 *
 * A plan owns the state as the kernel sees it: packed codes and scales (arena.h).  Each array lies
 * between pages without access; it ends at one, but for alignment to 64 bytes, in the first plan of
 * a tensor, and starts at one in the second.  Inputs that the kernel must not change are read-only
 * to it.  The state that the kernel leaves is not corrected in any way. */
#ifndef QM_USER_KERNEL_BACKEND_FILE_H
#define QM_USER_KERNEL_BACKEND_FILE_H

#include "core/compile/embedded_text.h"
#include "core/compile/kernel_build.h"
#include "core/recipe/backend.h"
#include "core/user_kernel/host.h"

struct qm_kernel_file; /* opaque */

/* Loads a kernel into this process, where it can do what it likes (kernel_object.h has
 * the failures). */
qm_status qm_kernel_file_open(const char *object, struct qm_kernel_file **out);

/* A kernel in a process of its own, which starts with the first step or by qm_host_up. */
qm_status qm_kernel_file_apart(const char *object, const struct qm_host_limits *limits,
                               struct qm_kernel_file **out);
void qm_kernel_file_close(struct qm_kernel_file *k); /* accepts NULL; after its plans */

/* The recipe that the kernel claims to be (QM_KERNEL), or NULL; of a kernel apart,
 * after qm_host_up. */
const char *qm_kernel_file_as(const struct qm_kernel_file *k);

struct qm_host *qm_kernel_file_host(const struct qm_kernel_file *k); /* NULL: in this process */

/* A symbol that the shared object exports, or NULL; of a kernel in this process. */
void *qm_kernel_file_symbol(const struct qm_kernel_file *k, const char *name);

/* Plans that this thread opens from now on run this kernel: the member `open` of struct qm_backend
 * has no parameter for it. */
void qm_kernel_file_use(struct qm_kernel_file *k);

/* 1: the arrays of a kernel apart stay accessible between steps, for measurements of time. */
void qm_kernel_file_keep_open(struct qm_kernel_file *k, int on);

/* step: QM_SKIPPED where the kernel refuses the input; QM_CHECK_FAILED where it wrote around an
 * array, to one that is const or after its return, where the emulator found an error, or where its
 * process ended (qm_host_end); of a kernel in this process, where it changed the floating-point
 * environment (which is restored).  open: QM_BAD_ARG without a kernel.  restart: QM_SKIPPED for a
 * kernel in this process. */
extern const struct qm_backend qm_backend_file;

/* The arguments that step t would hand to the kernel, which is not called, with addresses in this
 * process.  They belong to the plan and are valid until its next step. */
struct qm_kernel_args;
qm_status qm_plan_file_args(void *plan, const struct qm_tensor *param, const struct qm_tensor *g,
                            int64_t t, uint64_t seed, const struct qm_kernel_args **out);

/* Seconds of the kernel's own run in the plan's last step; of a kernel apart, with the way there
 * and back. */
double qm_plan_file_seconds(const void *plan);

#endif
