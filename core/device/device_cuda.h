/* device_cuda.h - Handles and resources of device "cuda", for measurements and for
 * users' kernels. */
#ifndef QM_DEVICE_DEVICE_CUDA_H
#define QM_DEVICE_DEVICE_CUDA_H

#include "core/cuda/cuda_driver.h"
#include "core/device/device.h"

/* The driver, the stream of all work and the device number; makes the context current. */
qm_status qm_cuda_context(const struct qm_cuda **cu, void **stream, int *device);

/* 1: $QM_CUDA_SYNC is set, and each launch waits for its end, so that an error has the name of the
 * kernel that made it and not of a later call. */
int qm_cuda_waits(void);

/* Compiles by compile(of, b) and loads *module.  Where the driver refuses a binary as too new, the
 * next NVRTC that is there compiles it again (qm_nvrtc_next); the message of a failure names the
 * versions of both sides.  The caller frees *b, which is zeroed beforehand, in any case. */
qm_status qm_cuda_load_binary(qm_status (*compile)(const void *of, struct qm_device_binary *b),
                              const void *of, struct qm_device_binary *b, void **module);

/* Errors of calls that clean up (cuMemFree, cuEventDestroy, ...), where there is nobody to tell:
 * they may report a fault of an earlier launch.  _clean_up remembers the first one and leaves
 * qm_message as it was; _cleaned_up returns it, and forgets it: what was measured before is not to
 * be trusted. */
void qm_cuda_clean_up(int error, const char *call);
qm_status qm_cuda_cleaned_up(void);

/* Unloads the modules that nobody has loaded or asked for since the last call; their handles are of
 * no use afterwards.  For use between measurements, when no plan is open.  Fails also as
 * qm_cuda_cleaned_up. */
qm_status qm_cuda_unload_idle(void);

/* Launches that this process has asked for by qm_device_cuda, recorded ones among them, and those
 * that the loaded modules have counted (QM_LAUNCHES); waits for them.  What both grow by between
 * two calls is equal where nothing was left out, no graph was used and no module unloaded.  _begun:
 * of one module of the driver. */
qm_status qm_cuda_launches(uint64_t *asked, uint64_t *begun);
qm_status qm_cuda_begun(void *driver_module, uint64_t *begun);

/* Of a module of qm_device_cuda: a kernel's handle; its resources; the seconds of compiling the
 * module or (*from_cache) of reading it from the cache. */
void *qm_cuda_function(const void *module, enum qm_step_kernel k);
struct qm_kernel_use qm_cuda_use(const void *module, enum qm_step_kernel k);
double qm_cuda_compile_seconds(const void *module, int *from_cache);

#endif
