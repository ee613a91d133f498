/* step_kernels.h - The kernels of a form: their names, the modes they are compiled
 * in, compilation. */
#ifndef QM_DEVICE_STEP_KERNELS_H
#define QM_DEVICE_STEP_KERNELS_H

#include "core/compile/nvrtc.h"
#include "core/device/step_form.h"

/* Mode exact: IEEE division and square roots, nothing contracted, so the bits are the CPU's.  Mode
 * fast: contraction, approximate division and square roots (qm_step_reorder). */
/* clang-format off */
#define QM_MODE_LIST(X)         \
    X(exact, "the CPU's bits") \
    X(fast, "contracted, approximate division and roots")
/* clang-format on */

enum qm_mode {
#define X(name, text) QM_MODE_##name,
    QM_MODE_LIST(X)
#undef X
};

/* Kernels of step.cu and tensor_rule.cu, "qm_" before each name; step_emu.cu uses the same numbers.
 * fold_1, fold_2 and scales exist where the form has that many folds; step_by_value, codes and
 * whole_* where the form asks for them. */
#define QM_STEP_KERNEL_LIST(X) \
    X(step)                    \
    X(fold_1)                  \
    X(fold_2)                  \
    X(scales)                  \
    X(decode)                  \
    X(step_by_value)           \
    X(codes) X(whole_load) X(whole_store) X(whole_sweep) X(whole_sums) X(whole_sweeps)

enum qm_step_kernel {
#define X(name) QM_KERNEL_##name,
    QM_STEP_KERNEL_LIST(X)
#undef X
        QM_STEP_KERNELS
};

const char *qm_step_kernel_name(enum qm_step_kernel k); /* "qm_step" */
int qm_step_has_kernel(const struct qm_step_form *f, enum qm_step_kernel k);

/* Compiles the kernels of a form by NVRTC, or reads them from the cache; arch: ten times the
 * compute capability.  Statuses as qm_device_compile. */
qm_status qm_step_compile(const struct qm_step_form *f, enum qm_mode mode, int arch,
                          struct qm_device_binary *out);

/* Sets the mode of plans of backends cuda and emu that are opened from now on; exact at first. */
void qm_backend_device_mode(enum qm_mode mode);

/* What a mode changes in the documented order of operations; for error bounds. */
struct qm_reorder qm_step_reorder(enum qm_mode mode);

#endif
