/* cuda_load.h - finds CUDA's shared libraries when they are wanted, and only then.
 *
 * Nothing of CUDA is needed to build or start.  A library is sought in this order:
 *
 *   1. the path in its environment variable (QM_LIBCUDA, QM_NVRTC, QM_CURAND, QM_NVML); where that is
 *      set nothing else is tried, so that QM_LIBCUDA=none hides the driver
 *   2. its names, newest first, where the loader looks (LD_LIBRARY_PATH, ldconfig)
 *   3. $CUDA_HOME/lib64, $CUDA_PATH/lib64, /usr/local/cuda/lib64
 *   4. Python's wheels: site-packages/nvidia/.../lib under $VIRTUAL_ENV, $CONDA_PREFIX, ~/.local,
 *      /usr/local and /usr
 *
 * The driver's libcuda.so.1 and libnvidia-ml.so.1 belong to the system: 1 and 2 only, and never the
 * toolkit's stub directory. */
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

/* A handle of dlopen, or NULL; it stays loaded (CUDA's libraries do not give back what they took).
 * found[size]: its path, or why there is none ("no libcuda.so.1 where the loader looks"). */
void *qm_library_open(enum qm_library which, char *found, size_t size);

/* For tests: symbol(name) stands in for this library from now on; before anybody has opened it. */
void qm_library_stand_in(enum qm_library which, void *(*symbol)(const char *name));

/* A function of it into *function, which is any pointer to a function; QM_SKIPPED: it is not there. */
qm_status qm_library_symbol(void *handle, const char *symbol, void *function);

#endif
