/* user_cuda.h - a user's kernels (core/abi/kernel_cuda.h, device code alone) on the GPU, by NVRTC. */
#ifndef QM_USER_KERNEL_USER_CUDA_H
#define QM_USER_KERNEL_USER_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

struct qm_kernel_args;
struct qm_user_cuda; /* opaque */

/* Compiles a .cu file for the GPU that is here, else for sm_90, into object (size bytes; may be NULL: it is
 * only asked whether it compiles).  Headers are sought beside it; the words of $CUDAFLAGS are added
 * ("-I/usr/local/cuda/include --fmad=false").  QM_BAD_ARG: it does not compile; QM_SKIPPED: no NVRTC. */
qm_status qm_user_cuda_build(const char *source, const char *object);

/* Loads what that made.  QM_BAD_ARG: no qm_cuda_step, no launch line, another ABI; QM_SKIPPED: no GPU. */
qm_status qm_user_cuda_open(const char *object, struct qm_user_cuda **out);
void qm_user_cuda_close(struct qm_user_cuda *u); /* accepts NULL */

const char *qm_user_cuda_as(const struct qm_user_cuda *u); /* or NULL */

/* One step: buffers to the device, every kernel, what is not const back.  *refused: the kernel does not take
 * this input.  QM_CHECK_FAILED: it wrote just before or behind a buffer, or the driver stopped it. */
qm_status qm_user_cuda_step(struct qm_user_cuda *u, const struct qm_kernel_args *a, int *refused);

/* A nearest-code routine (core/abi/kernel_cuda.h) in such an object.  QM_BAD_ARG: no qm_cuda_nearest, no launch
 * line; QM_SKIPPED: no GPU. */
qm_status qm_user_cuda_nearest_open(const char *object, struct qm_user_cuda **out);

/* Codes of y[n].  QM_CHECK_FAILED as above. */
qm_status qm_user_cuda_nearest(struct qm_user_cuda *u, const float *y, int64_t n,
                               unsigned char *code);

#endif
