/* cuda_load.h - Finds CUDA's shared libraries at run time, when they are first wanted.
 *
 * The program is built and starts without CUDA.  A library is sought in this order:
 *
 *   1. the path in its environment variable (QM_LIBCUDA, QM_NVRTC, QM_CURAND, QM_NVML); where the
 *      variable is set nothing else is tried, so that QM_LIBCUDA=none hides the driver
 *   2. its names, newest first, where the loader looks (LD_LIBRARY_PATH, ldconfig)
 *   3. $CUDA_HOME/lib64, $CUDA_PATH/lib64, /usr/local/cuda/lib64
 *   4. Python's wheels: site-packages/nvidia/.../lib under $VIRTUAL_ENV, $CONDA_PREFIX, the prefix
 *      of the python3 on PATH, ~/.local, $PYENV_ROOT (~/.pyenv), /usr/local and /usr
 *
 * The driver's libcuda.so.1 and libnvidia-ml.so.1 belong to the system: they are sought by 1 and 2
 * and in /usr/local/nvidia/lib64 and lib, where containers mount them, and never in the toolkit's
 * directory of stubs. */
#ifndef QM_CUDA_CUDA_LOAD_H
#define QM_CUDA_CUDA_LOAD_H

#include <stddef.h>

#include "core/base/status.h"

/* clang-format off */
#define QM_LIBRARY_LIST(X) /* name, environment variable, is the system's, names */                    \
    X(cuda,   "QM_LIBCUDA", 1, "libcuda.so.1")                                                         \
    X(nvml,   "QM_NVML",    1, "libnvidia-ml.so.1")                                                    \
    X(nvrtc,  "QM_NVRTC",   0, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so")  \
    X(curand, "QM_CURAND",  0, "libcurand.so.10", "libcurand.so")
/* clang-format on */

enum qm_library {
#define X(name, variable, system, ...) QM_LIBRARY_##name,
    QM_LIBRARY_LIST(X)
#undef X
};

/* Opens a library: a handle of dlopen, or NULL.  It stays loaded, because CUDA's libraries do not
 * give back what they took.  found[size]: its path, or why there is none ("no libcuda.so.1 where
 * the loader looks"). */
void *qm_library_open(enum qm_library which, char *found, size_t size);

/* As qm_library_open, but passes over the first `skip` different files that open: for a library of
 * which another version may do.  NULL: there are no more. */
enum { QM_LIBRARY_MOST = 8 };
void *qm_library_open_next(enum qm_library which, int skip, char *found, size_t size);

/* For tests: from now on symbol(name) replaces this library, which nobody may have opened yet.
 * Further calls add further files of it. */
void qm_library_stand_in(enum qm_library which, void *(*symbol)(const char *name));

/* Stores a function of an open library in *function, a pointer to a function of any type.
 * QM_SKIPPED: the library has no such function. */
qm_status qm_library_symbol(void *handle, const char *symbol, void *function);

#endif
