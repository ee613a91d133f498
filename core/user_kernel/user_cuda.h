/* user_cuda.h - A user's kernels on the GPU: device code alone (core/abi/kernel_cuda.h),
 * by NVRTC. */
#ifndef QM_USER_KERNEL_USER_CUDA_H
#define QM_USER_KERNEL_USER_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

struct qm_kernel_args;
struct qm_user_cuda; /* opaque */

/* From now on *launched is 1 while a kernel is waited for, else 0. */
void qm_user_cuda_tell(volatile int *launched);

/* Compiles a .cu file for this machine's GPU, or for sm_90 where there is none, into the file
 * `object` (NULL: only compiles).  Headers are sought in the source's folder; the words of
 * $CUDAFLAGS are added to the options ("-I/usr/local/cuda/include --fmad=false").  QM_BAD_ARG: the
 * source does not compile; QM_SKIPPED: there is no NVRTC. */
qm_status qm_user_cuda_build(const char *source, const char *object);

/* Why the last such build is not in the cache of kernels, as qm_includes_hash says; "": it is, or
 * there is no cache. */
const char *qm_user_cuda_uncached(void);

/* Loads such an object.  QM_BAD_ARG: it has no qm_cuda_step or no launch line, or is of another
 * ABI; QM_SKIPPED: there is no GPU. */
qm_status qm_user_cuda_open(const char *object, struct qm_user_cuda **out);
void qm_user_cuda_close(struct qm_user_cuda *u); /* accepts NULL */

/* The recipe that the kernel claims to be (QM_CUDA_KERNEL), or NULL. */
const char *qm_user_cuda_as(const struct qm_user_cuda *u);

/* One step: copies the buffers to the device, launches every kernel, copies back what is not const.
 * *refused: 1 where the kernel does not take this input.  QM_CHECK_FAILED: the kernel wrote just
 * before or past a buffer, its launch line cannot be, or waiting for it gave an error that a kernel
 * causes; QM_INTERNAL, QM_NO_MEMORY: the driver failed. */
qm_status qm_user_cuda_step(struct qm_user_cuda *u, const struct qm_kernel_args *a, int *refused);

/* Loads an object with a nearest-code routine (core/abi/kernel_cuda.h).  QM_BAD_ARG: it has no
 * qm_cuda_nearest or no launch line; QM_SKIPPED: there is no GPU. */
qm_status qm_user_cuda_nearest_open(const char *object, struct qm_user_cuda **out);

/* The codes of y[n], into code[n].  QM_CHECK_FAILED as qm_user_cuda_step. */
qm_status qm_user_cuda_nearest(struct qm_user_cuda *u, const float *y, int64_t n,
                               unsigned char *code);

#endif
