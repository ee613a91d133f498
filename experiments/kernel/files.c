/* files.c - Compiles kernels into shared objects in temporary folders. */
#include "experiments/kernel/files.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/user_kernel/user_cuda.h"

static int ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

int qm_kernel_is_cuda(const char *file) { return ends_in(file, ".cu"); }

/* Writes the absolute path of a shared object, or of the object that a source compiles to. */
static qm_status object_of(const char *file, int on_gpu, const char *folder, char *object,
                           size_t size)
{
    if (on_gpu && qm_kernel_is_cuda(file)) {
        snprintf(object, size, "%s/kernel.cubin", folder);
        return qm_user_cuda_build(file, object);
    }
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
    const char *tmp = getenv("TMPDIR");
    memset(f, 0, sizeof *f);
    if (snprintf(f->folder, sizeof f->folder, "%s/qualm-XXXXXX", tmp && *tmp ? tmp : "/tmp") >=
        (int)sizeof f->folder)
        snprintf(f->folder, sizeof f->folder, "/tmp/qualm-XXXXXX");
    if (!mkdtemp(f->folder)) {
        *f->folder = '\0';
        return qm_fail(QM_BAD_FILE, "no temporary folder: %s", strerror(errno));
    }
    QM_TRY(object_of(o->file, o->on_gpu, f->folder, f->object, sizeof f->object));
    snprintf(f->lines, sizeof f->lines, "%s", qm_fmad_lines());
    if (!o->against)
        return QM_OK;
    strcpy(f->old_folder, f->folder);
    strcat(f->old_folder, "-old-XXXXXX");
    if (!mkdtemp(f->old_folder)) {
        *f->old_folder = '\0';
        return qm_fail(QM_BAD_FILE, "no temporary folder: %s", strerror(errno));
    }
    return object_of(o->against, o->on_gpu, f->old_folder, f->old_object, sizeof f->old_object);
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
    if (*folder)
        nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void qm_kernel_files_close(const struct qm_kernel_files *f)
{
    folder_remove(f->old_folder);
    folder_remove(f->folder);
}
