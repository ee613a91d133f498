/* step_kernels.h - the kernels of a form: options, entry points, compiling. */
#ifndef QM_DEVICE_STEP_KERNELS_H
#define QM_DEVICE_STEP_KERNELS_H

#include "core/compile/nvrtc.h"
#include "core/device/step_form.h"

/* exact: IEEE division and square roots, nothing contracted: the CPU's bits.  fast: contraction and
 * approximate division and roots (qm_step_reorder). */
/* clang-format off */
#define QM_MODE_LIST(X) X(exact, "the CPU's bits") X(fast, "contracted, approximate division and roots")
/* clang-format on */

enum qm_mode {
#define X(name, text) QM_MODE_##name,
    QM_MODE_LIST(X)
#undef X
};

/* Names in step.cu, numbered as step_emu.cu does; qm_fold_1, qm_scales, qm_fold_2 are there as the form
 * has folds, the last two where it asks for them. */
#define QM_STEP_KERNEL_LIST(X)                                                                    \
    X(step)                                                                                       \
    X(fold_1)                                                                                     \
    X(fold_2)                                                                                     \
    X(scales)                                                                                     \
    X(decode) X(step_by_value) X(codes) X(whole_load) X(whole_store) X(whole_sweep) X(whole_sums) \
        X(whole_sweeps)

enum qm_step_kernel {
#define X(name) QM_KERNEL_##name,
    QM_STEP_KERNEL_LIST(X)
#undef X
        QM_STEP_KERNELS
};

const char *qm_step_kernel_name(enum qm_step_kernel k); /* "qm_step" */
int qm_step_has_kernel(const struct qm_step_form *f, enum qm_step_kernel k);

/* By NVRTC for a compute capability times ten, by way of the cache.  Statuses as of qm_device_compile. */
qm_status qm_step_compile(const struct qm_step_form *f, enum qm_mode mode, int arch,
                          struct qm_device_binary *out);

/* The mode of plans of backends cuda and emu that are opened from now on; exact at first. */
void qm_backend_device_mode(enum qm_mode mode);

/* What a mode does beside the documented order, for the judge's bounds. */
struct qm_reorder qm_step_reorder(enum qm_mode mode);

#endif
