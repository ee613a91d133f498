/* files.c - Compiles kernels into shared objects in temporary folders. */
#include "experiments/kernel/files.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/interrupt.h"
#include "core/cuda/cuda_driver.h"
#include "core/user_kernel/user_cuda.h"
#include "experiments/cli/cli.h"

static int ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

int qm_kernel_is_cuda(const char *file) { return ends_in(file, ".cu"); }

/* Says, once, which words of $CUDAFLAGS the emulator's compiler does not get. */
static void say_left_flags(void)
{
    static int is_said;
    struct qm_argv taken;
    char left[8192];
    qm_cuda_flags_emulated(&taken, left, sizeof left);
    if (*left && !is_said++)
        qm_note("left out of $CUDAFLAGS on backend emu, which has no such option or has CUDA's "
                "headers of its own: %s",
                left);
}

qm_status qm_kernel_cuda_build(const char *file, const char *object)
{
    qm_status st = qm_user_cuda_build(file, object);
    if (st == QM_OK && *qm_user_cuda_uncached())
        qm_note("%s is compiled anew each time, because which files it includes is not known: %s",
                file, qm_user_cuda_uncached());
    return st;
}

/* Writes the absolute path of a shared object, or of the object that a source compiles to. */
static qm_status object_of(const char *file, int on_gpu, const char *folder, char *object,
                           size_t size)
{
    if (on_gpu && qm_kernel_is_cuda(file)) {
        snprintf(object, size, "%s/kernel.cubin", folder);
        return qm_kernel_cuda_build(file, object);
    }
    if (qm_kernel_is_cuda(file))
        say_left_flags();
    if (ends_in(file, ".c") || qm_kernel_is_cuda(file))
        return qm_kernel_file_build(file, folder, object, size);
    if (!strstr(file, ".so"))
        return qm_fail(QM_BAD_ARG, "%s: expected a .c, .cu or .so file", file);
    char *path = realpath(file, NULL);
    if (!path)
        return qm_fail(QM_BAD_FILE, "%s: %s", file, strerror(errno));
    int fits = snprintf(object, size, "%s", path) < (int)size;
    free(path);
    return fits ? QM_OK : qm_fail(QM_BAD_ARG, "%s: the path is too long", file);
}

qm_status qm_kernel_files_open(const struct qm_kernel_options *o, struct qm_kernel_files *f)
{
    memset(f, 0, sizeof *f);
    if (!qm_interrupt_folder(f->folder, sizeof f->folder, "kernel")) {
        *f->folder = '\0';
        return qm_fail(QM_BAD_FILE, "no temporary folder: %s", strerror(errno));
    }
    QM_TRY(object_of(o->file, o->on_gpu, f->folder, f->object, sizeof f->object));
    snprintf(f->lines, sizeof f->lines, "%s", qm_fmad_lines());
    if (!o->against)
        return QM_OK;
    if (!qm_interrupt_folder(f->old_folder, sizeof f->old_folder, "old")) {
        *f->old_folder = '\0';
        return qm_fail(QM_BAD_FILE, "no temporary folder: %s", strerror(errno));
    }
    return object_of(o->against, o->on_gpu, f->old_folder, f->old_object, sizeof f->old_object);
}

qm_status qm_kernel_files_fit(const struct qm_kernel_options *o, const int has[QM_FMADS])
{
    int n = (has[QM_FMAD_true] + has[QM_FMAD_false]) * (o->against ? 2 : 1);
    struct qm_cuda_gpu gpu;
    if (!o->on_gpu || n == 1)
        return QM_OK;
    QM_TRY(qm_cuda_gpu_asked(&gpu));
    if (gpu.is_exclusive)
        return qm_fail(QM_BAD_ARG,
                       "the GPU's compute mode EXCLUSIVE_PROCESS lets one process use it, and this "
                       "check takes %d: say --fmad=true or --fmad=false, and leave --against out",
                       n);
    return QM_OK;
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *at)
{
    (void)s;
    (void)type;
    (void)at;
    return remove(path);
}

static void folder_remove(const char *folder)
{
    if (!*folder)
        return;
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    qm_interrupt_forget(folder);
}

void qm_kernel_files_close(const struct qm_kernel_files *f)
{
    folder_remove(f->old_folder);
    folder_remove(f->folder);
}
