/* step_kernels.c - Names, options and compilation of the kernels of a form. */
#include "core/device/step_kernels.h"

#include <stdlib.h>

#include "core/compile/embedded_text.h"

const char *qm_step_kernel_name(enum qm_step_kernel k)
{
    static const char *const names[] = {
#define X(name) "qm_" #name,
        QM_STEP_KERNEL_LIST(X)
#undef X
    };
    return names[k];
}

int qm_step_has_kernel(const struct qm_step_form *f, enum qm_step_kernel k)
{
    return k >= QM_KERNEL_whole_load                        ? f->tensor_rule
           : k == QM_KERNEL_codes                           ? f->codes
           : k == QM_KERNEL_step_by_value                   ? f->by_value
           : k == QM_KERNEL_fold_2                          ? f->folds > 1
           : k == QM_KERNEL_fold_1 || k == QM_KERNEL_scales ? f->folds > 0
                                                            : 1;
}

qm_status qm_step_compile(const struct qm_step_form *f, enum qm_mode mode, int arch,
                          struct qm_device_binary *out)
{
    static const char *const exact[] = {
        "--fmad=false",        "--prec-div=true",
        "--prec-sqrt=true",    "--ftz=false",
        "-DQM_TABLES_APART=1", "--device-as-default-execution-space",
        "--ptxas-options=-v",  NULL};
    static const char *const fast[] = {"--fmad=true",         "--prec-div=false",
                                       "--prec-sqrt=false",   "--ftz=false",
                                       "-DQM_TABLES_APART=1", "--device-as-default-execution-space",
                                       "--ptxas-options=-v",  NULL};
    char *text = qm_step_text(f);
    if (!text)
        return qm_fail(QM_NO_MEMORY, "the source of a kernel");
    struct qm_device_source s = {.name = "step.cu",
                                 .text = qm_device_text("core/device/step.cu"),
                                 .header_name = "step_recipe.h",
                                 .header_text = text,
                                 .options = mode == QM_MODE_fast ? fast : exact,
                                 .arch = arch};
    qm_status st = s.text ? qm_device_compile(&s, out) : qm_fail(QM_NO_MEMORY, "step.cu");
    free(text);
    return st;
}

/* --prec-div=false: quotients within 2 ULP; --prec-sqrt=false: roots within 1 ULP (CUDA C++
 * Programming Guide, mathematical functions). */
struct qm_reorder qm_step_reorder(enum qm_mode mode)
{
    struct qm_reorder r = {0};
    if (mode == QM_MODE_fast)
        r = (struct qm_reorder){.fma = 1, .div_ulp = 2.0, .rsqrt_ulp = 2.0};
    return r;
}
