/* cuda_load.c - Finds and opens CUDA's shared libraries. */
#include "core/cuda/cuda_load.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 5 };

static const struct {
    const char *variable;
    int is_system;
    const char *name[NAMES];
} libraries[] = {
#define X(name, variable, system, ...) {variable, system, {__VA_ARGS__}},
    QM_LIBRARY_LIST(X)
#undef X
};

static void *(*stands_in[sizeof libraries / sizeof *libraries])(const char *name);

void qm_library_stand_in(enum qm_library which, void *(*symbol)(const char *name))
{
    stands_in[which] = symbol;
}

static void *try(const char *folder, const char *name, char *found, size_t size)
{
    char path[PATH_MAX + 128];
    snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", name);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle)
        snprintf(found, size, "%s", path);
    return handle;
}

static void *try_names(enum qm_library which, const char *folder, char *found, size_t size)
{
    void *handle = NULL;
    for (int i = 0; !handle && libraries[which].name[i]; i++)
        handle = try(folder, libraries[which].name[i], found, size);
    return handle;
}

static void *try_toolkit(enum qm_library which, char *found, size_t size)
{
    static const char *const homes[] = {"CUDA_HOME", "CUDA_PATH"};
    char folder[PATH_MAX];
    void *handle = NULL;
    for (int i = 0; !handle && i < 2; i++) {
        const char *home = getenv(homes[i]);
        if (!home || !*home)
            continue;
        snprintf(folder, sizeof folder, "%s/lib64", home);
        handle = try_names(which, folder, found, size);
    }
    return handle ? handle : try_names(which, "/usr/local/cuda/lib64", found, size);
}

/* Python's wheels keep libraries at nvidia/PART/lib (nvidia/cu13/lib since CUDA 13). */
static void *try_wheels(enum qm_library which, char *found, size_t size)
{
    static const char *const under[] = {
        "/lib/python3*/site-packages", "/lib/python3*/dist-packages", "/lib/python3/dist-packages"};
    const char *home = getenv("HOME");
    char local[PATH_MAX] = "", pattern[PATH_MAX];
    if (home)
        snprintf(local, sizeof local, "%s/.local", home);
    const char *roots[] = {getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), local, "/usr/local",
                           "/usr"};
    void *handle = NULL;
    for (int r = 0; !handle && r < 5; r++)
        for (int u = 0; !handle && roots[r] && *roots[r] && u < 3; u++) {
            glob_t g;
            snprintf(pattern, sizeof pattern, "%s%s/nvidia/*/lib", roots[r], under[u]);
            if (glob(pattern, 0, NULL, &g) == 0)
                for (size_t i = 0; !handle && i < g.gl_pathc; i++)
                    handle = try_names(which, g.gl_pathv[i], found, size);
            globfree(&g);
        }
    return handle;
}

void *qm_library_open(enum qm_library which, char *found, size_t size)
{
    const char *variable = libraries[which].variable, *path = getenv(variable);
    if (stands_in[which]) {
        snprintf(found, size, "a stand-in");
        return &stands_in[which];
    }
    if (path && *path) {
        void *handle = try("", path, found, size);
        if (!handle)
            snprintf(found, size, "%s=%s does not load", variable, path);
        return handle;
    }
    void *handle = try_names(which, "", found, size);
    if (!handle && !libraries[which].is_system)
        handle = try_toolkit(which, found, size);
    if (!handle && !libraries[which].is_system)
        handle = try_wheels(which, found, size);
    if (!handle)
        snprintf(found, size, "no %s where the loader looks%s (%s=PATH names one)",
                 libraries[which].name[0],
                 libraries[which].is_system ? ""
                                            : ", in $CUDA_HOME/lib64, /usr/local/cuda/lib64 or "
                                              "Python's nvidia wheels",
                 variable);
    return handle;
}

qm_status qm_library_symbol(void *handle, const char *symbol, void *function)
{
    void *at = NULL;
    int is_library = 1;
    for (size_t i = 0; i < sizeof stands_in / sizeof *stands_in; i++)
        if (handle == (void *)&stands_in[i]) {
            at = stands_in[i](symbol);
            is_library = 0;
        }
    if (is_library)
        at = dlsym(handle, symbol);
    if (!at)
        return qm_fail(QM_SKIPPED, "the library has no %s", symbol);
    memcpy(function, &at, sizeof at);
    return QM_OK;
}
