/* cuda_load.c - Finds and opens CUDA's shared libraries. */
#include "core/cuda/cuda_load.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

static struct {
    void *(*symbol)(const char *name);
} stands_in[LIBRARIES][QM_LIBRARY_MOST];

void qm_library_stand_in(enum qm_library which, void *(*symbol)(const char *name))
{
    for (int k = 0; k < QM_LIBRARY_MOST; k++)
        if (!stands_in[which][k].symbol) {
            stands_in[which][k].symbol = symbol;
            return;
        }
}

/* A walk over the places of a library, which passes over the first `skip` that open. */
struct walk {
    enum qm_library which;
    int skip, n; /* n: handles of the libraries passed over, each once */
    void *seen[QM_LIBRARY_MOST];
    char *found;
    size_t size;
};

static void *try(struct walk *w, const char *folder, const char *name)
{
    char path[PATH_MAX + 128];
    snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", name);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (int k = 0; handle && k < w->n; k++)
        if (handle == w->seen[k])
            return NULL; /* one file by two names */
    if (handle && w->n < w->skip) {
        w->seen[w->n++] = handle;
        return NULL;
    }
    if (handle)
        snprintf(w->found, w->size, "%s", path);
    return handle;
}

static void *try_names(struct walk *w, const char *folder)
{
    void *handle = NULL;
    for (int i = 0; !handle && libraries[w->which].name[i]; i++)
        handle = try(w, folder, libraries[w->which].name[i]);
    return handle;
}

/* NVIDIA's containers mount the driver there, and the loader's cache may not know it. */
static void *try_driver(struct walk *w)
{
    void *handle = try_names(w, "/usr/local/nvidia/lib64");
    return handle ? handle : try_names(w, "/usr/local/nvidia/lib");
}

static void *try_toolkit(struct walk *w)
{
    static const char *const homes[] = {"CUDA_HOME", "CUDA_PATH"};
    char folder[PATH_MAX];
    void *handle = NULL;
    for (int i = 0; !handle && i < 2; i++) {
        const char *home = getenv(homes[i]);
        if (!home || !*home)
            continue;
        snprintf(folder, sizeof folder, "%s/lib64", home);
        handle = try_names(w, folder);
    }
    return handle ? handle : try_names(w, "/usr/local/cuda/lib64");
}

/* Tries the wheels below a prefix of Python: they keep libraries at nvidia/PART/lib
 * (nvidia/cu13/lib since CUDA 13). */
static void *try_prefix(struct walk *w, const char *prefix)
{
    static const char *const under[] = {
        "/lib/python3*/site-packages", "/lib/python3*/dist-packages", "/lib/python3/dist-packages"};
    char pattern[PATH_MAX + 96];
    void *handle = NULL;
    for (int u = 0; !handle && prefix && *prefix && u < 3; u++) {
        glob_t g;
        snprintf(pattern, sizeof pattern, "%s%s/nvidia/*/lib", prefix, under[u]);
        if (glob(pattern, 0, NULL, &g) == 0)
            for (size_t i = 0; !handle && i < g.gl_pathc; i++)
                handle = try_names(w, g.gl_pathv[i]);
        globfree(&g);
    }
    return handle;
}

/* Cuts "/bin/python3" off: the prefix of an environment.  0: the path has no two parts. */
static int to_prefix(char *path)
{
    for (int k = 0; k < 2; k++) {
        char *end = strrchr(path, '/');
        if (!end)
            return 0;
        *end = '\0';
    }
    return 1;
}

/* The environment of the first python3 on PATH, as its path says (a virtual environment) and as the
 * file behind it does. */
static void *try_path(struct walk *w)
{
    const char *path = getenv("PATH");
    char program[PATH_MAX], real[PATH_MAX];
    for (const char *from = path; from && *from;) {
        size_t n = strcspn(from, ":");
        snprintf(program, sizeof program, "%.*s/python3", (int)n, from);
        from += n + (from[n] == ':');
        if (n == 0 || access(program, X_OK) != 0)
            continue;
        void *handle = NULL;
        int is_real = realpath(program, real) != NULL;
        if (to_prefix(program))
            handle = try_prefix(w, program);
        return handle || !is_real || !to_prefix(real) ? handle : try_prefix(w, real);
    }
    return NULL;
}

static void *try_wheels(struct walk *w)
{
    const char *home = getenv("HOME"), *pyenv = getenv("PYENV_ROOT");
    char local[PATH_MAX] = "", versions[PATH_MAX] = "";
    if (home)
        snprintf(local, sizeof local, "%s/.local", home);
    if (pyenv && *pyenv)
        snprintf(versions, sizeof versions, "%s/versions/*", pyenv);
    else if (home)
        snprintf(versions, sizeof versions, "%s/.pyenv/versions/*", home);
    void *handle = try_prefix(w, getenv("VIRTUAL_ENV"));
    if (!handle)
        handle = try_prefix(w, getenv("CONDA_PREFIX"));
    if (!handle)
        handle = try_path(w);
    const char *rest[] = {local, versions, "/usr/local", "/usr"};
    for (size_t r = 0; !handle && r < sizeof rest / sizeof *rest; r++)
        handle = try_prefix(w, rest[r]);
    return handle;
}

void *qm_library_open_next(enum qm_library which, int skip, char *found, size_t size)
{
    const char *variable = libraries[which].variable, *path = getenv(variable);
    int is_system = libraries[which].is_system;
    struct walk w = {.which = which, .skip = skip, .found = found, .size = size};
    if (skip >= QM_LIBRARY_MOST) {
        snprintf(found, size, "no more than %d are tried", QM_LIBRARY_MOST);
        return NULL;
    }
    if (stands_in[which][0].symbol) {
        snprintf(found, size, "a stand-in");
        return stands_in[which][skip].symbol ? &stands_in[which][skip] : NULL;
    }
    if (path && *path) {
        void *handle = skip ? NULL : try(&w, "", path);
        if (!handle)
            snprintf(found, size, "%s=%s does not load", variable, path);
        return handle;
    }
    void *handle = try_names(&w, "");
    if (!handle)
        handle = is_system ? try_driver(&w) : try_toolkit(&w);
    if (!handle && !is_system)
        handle = try_wheels(&w);
    if (!handle)
        snprintf(found, size, "no %s where the loader looks%s (%s=PATH names one)",
                 libraries[which].name[0],
                 is_system ? " or in /usr/local/nvidia/lib64"
                           : ", in $CUDA_HOME/lib64, /usr/local/cuda/lib64 or Python's nvidia "
                             "wheels",
                 variable);
    return handle;
}

void *qm_library_open(enum qm_library which, char *found, size_t size)
{
    return qm_library_open_next(which, 0, found, size);
}

qm_status qm_library_symbol(void *handle, const char *symbol, void *function)
{
    void *at = NULL;
    int is_library = 1;
    for (int i = 0; i < LIBRARIES; i++)
        for (int k = 0; k < QM_LIBRARY_MOST; k++)
            if (handle == (void *)&stands_in[i][k]) {
                at = stands_in[i][k].symbol(symbol);
                is_library = 0;
            }
    if (is_library)
        at = dlsym(handle, symbol);
    if (!at)
        return qm_fail(QM_SKIPPED, "the library has no %s", symbol);
    memcpy(function, &at, sizeof at);
    return QM_OK;
}
