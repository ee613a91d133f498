/* kernel_object.c - Loads a compiled kernel, checks its interface, calls its step. */
#include "core/user_kernel/kernel_object.h"

#include <dlfcn.h>
#include <fenv.h>
#include <stdlib.h>
#include <string.h>

#include "core/abi/kernel_abi.h"
#include "core/base/dual.h"
#include "core/user_kernel/user_cuda.h"

struct qm_kernel_object {
    void *object;
    int (*step)(const struct qm_kernel_args *a);
    const char *as;
    struct qm_user_cuda *gpu;     /* kernels on the GPU, in place of `step`; else NULL */
    const char *(*finding)(void); /* of the emulator: the last step's finding, or ""; else NULL */
};

/* Opens a cubin of qm_user_cuda_build. */
static qm_status open_on_gpu(const char *path, struct qm_kernel_object **out)
{
    struct qm_kernel_object *k = calloc(1, sizeof *k);
    qm_status st = k ? qm_user_cuda_open(path, &k->gpu) : qm_fail(QM_NO_MEMORY, "%s", path);
    if (st == QM_OK) {
        k->as = qm_user_cuda_as(k->gpu);
        *out = k;
    } else {
        free(k);
    }
    return st;
}

qm_status qm_kernel_object_open(const char *path, struct qm_kernel_object **out)
{
    const char *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".cubin") == 0)
        return open_on_gpu(path, out);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return qm_fail(QM_BAD_FILE, "%s", dlerror());
    const int *abi = dlsym(handle, "qm_kernel_abi");
    void *step = dlsym(handle, "qm_kernel_step");
    struct qm_kernel_object *k = calloc(1, sizeof *k);
    qm_status st = QM_OK;
    if (!k)
        st = qm_fail(QM_NO_MEMORY, "kernel %s", path);
    else if (!step)
        st = qm_fail(QM_BAD_ARG, "the kernel does not export qm_kernel_step (see kernel_abi.h)");
    else if (!abi)
        st = qm_fail(QM_BAD_ARG, "the kernel does not export qm_kernel_abi; put "
                                 "QM_KERNEL(\"VARIANT\"); into it (see kernel_abi.h)");
    else if (*abi != QM_KERNEL_ABI)
        st = qm_fail(QM_BAD_ARG, "the kernel was built for version %d of kernel_abi.h, this is %d",
                     *abi, QM_KERNEL_ABI);
    if (st != QM_OK) {
        free(k);
        dlclose(handle);
        return st;
    }
    k->object = handle;
    memcpy(&k->step, &step, sizeof k->step);
    k->as = dlsym(handle, "qm_kernel_as");
    void *finding = dlsym(handle, "qm_emu_finding");
    memcpy(&k->finding, &finding, sizeof k->finding);
    *out = k;
    return QM_OK;
}

void qm_kernel_object_close(struct qm_kernel_object *k)
{
    if (!k)
        return;
    if (k->object)
        dlclose(k->object);
    qm_user_cuda_close(k->gpu);
    free(k);
}

const char *qm_kernel_object_as(const struct qm_kernel_object *k) { return k->as; }

void *qm_kernel_object_symbol(const struct qm_kernel_object *k, const char *name)
{
    return k->object ? dlsym(k->object, name) : NULL;
}

static enum qm_float_mode float_mode(void)
{
    volatile float tiny = 0x1p-140f, one = 1.0f, product = tiny * one;
    return fegetround() != FE_TONEAREST             ? QM_FLOAT_ROUNDING
           : qm_bits(product) != qm_bits(0x1p-140f) ? QM_FLOAT_DENORMALS
                                                    : QM_FLOAT_PLAIN;
}

qm_status qm_kernel_object_step(struct qm_kernel_object *k, const struct qm_kernel_args *a,
                                enum qm_float_mode *mode)
{
    int refused = 0;
    qm_status st = QM_OK;
    if (k->gpu)
        st = qm_user_cuda_step(k->gpu, a, &refused);
    else
        refused = k->step(a);
    *mode = float_mode();
    QM_TRY(st);
    if (k->finding && *k->finding())
        return qm_fail(QM_CHECK_FAILED, "%s", k->finding());
    if (refused)
        return qm_fail(QM_SKIPPED, "the kernel refuses this input: it returned %d", refused);
    return QM_OK;
}
