/* device_cuda.h - what measuring on a GPU wants beside device.h. */
#ifndef QM_DEVICE_DEVICE_CUDA_H
#define QM_DEVICE_DEVICE_CUDA_H

#include "core/cuda/cuda_driver.h"
#include "core/device/device.h"

/* The driver, the stream that all work goes to, and the device; the context is made current. */
qm_status qm_cuda_context(const struct qm_cuda **cu, void **stream, int *device);

/* Of a module of qm_device_cuda: a kernel's handle, what it uses, and the seconds that compiling it or
 * reading it from the cache took. */
void *qm_cuda_function(const void *module, enum qm_step_kernel k);
struct qm_kernel_use qm_cuda_use(const void *module, enum qm_step_kernel k);
double qm_cuda_compile_seconds(const void *module, int *from_cache);

#endif
