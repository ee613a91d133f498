/* cuda_driver.h - The functions of the CUDA driver, loaded at run time when they are first wanted.
 *
 * The prototypes stand here, so that no CUDA header is needed; the names are the exported,
 * versioned ones.  Only the primary context is used, because cuCtxCreate changes between
 * toolkits. */
#ifndef QM_CUDA_CUDA_DRIVER_H
#define QM_CUDA_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/cuda/cuda_apart.h"

typedef uint64_t qm_device_pointer;

/* clang-format off */
#define QM_CUDA_LIST(X) /* member, exported name, arguments */                                          \
    X(Init,                  "cuInit",                        (unsigned flags))                         \
    X(DriverGetVersion,      "cuDriverGetVersion",            (int *version))                           \
    X(DeviceGetCount,        "cuDeviceGetCount",              (int *count))                             \
    X(DeviceGet,             "cuDeviceGet",                   (int *device, int ordinal))               \
    X(DeviceGetName,         "cuDeviceGetName",               (char *name, int size, int device))       \
    X(DeviceGetAttribute,    "cuDeviceGetAttribute",          (int *value, int attribute, int device))  \
    X(DeviceGetPCIBusId,     "cuDeviceGetPCIBusId",           (char *id, int size, int device))         \
    X(DeviceTotalMem,        "cuDeviceTotalMem_v2",           (size_t *bytes, int device))              \
    X(DevicePrimaryCtxRetain,  "cuDevicePrimaryCtxRetain",    (void **context, int device))             \
    X(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (int device))                            \
    X(CtxSetCurrent,         "cuCtxSetCurrent",               (void *context))                          \
    X(CtxSynchronize,        "cuCtxSynchronize",              (void))                                   \
    X(MemAlloc,              "cuMemAlloc_v2",                 (qm_device_pointer *at, size_t bytes))    \
    X(MemFree,               "cuMemFree_v2",                  (qm_device_pointer at))                   \
    X(MemGetInfo,            "cuMemGetInfo_v2",               (size_t *free, size_t *total))            \
    X(MemcpyHtoDAsync,       "cuMemcpyHtoDAsync_v2",          (qm_device_pointer to, const void *from, size_t bytes, void *stream)) \
    X(MemcpyDtoHAsync,       "cuMemcpyDtoHAsync_v2",          (void *to, qm_device_pointer from, size_t bytes, void *stream)) \
    X(MemcpyDtoDAsync,       "cuMemcpyDtoDAsync_v2",          (qm_device_pointer to, qm_device_pointer from, size_t bytes, void *stream)) \
    X(MemsetD8Async,         "cuMemsetD8Async",               (qm_device_pointer at, unsigned char value, size_t bytes, void *stream)) \
    X(ModuleLoadData,        "cuModuleLoadData",              (void **module, const void *image))       \
    X(ModuleUnload,          "cuModuleUnload",                (void *module))                           \
    X(ModuleGetFunction,     "cuModuleGetFunction",           (void **function, void *module, const char *name)) \
    X(ModuleGetGlobal,       "cuModuleGetGlobal_v2",          (qm_device_pointer *at, size_t *bytes, void *module, const char *name)) \
    X(FuncGetAttribute,      "cuFuncGetAttribute",            (int *value, int attribute, void *function)) \
    X(LaunchKernel,          "cuLaunchKernel",                (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **args, void **extra)) \
    X(OccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor", (int *blocks, void *function, int threads, size_t shared)) \
    X(StreamCreate,          "cuStreamCreate",                (void **stream, unsigned flags))          \
    X(StreamSynchronize,     "cuStreamSynchronize",           (void *stream))                           \
    X(StreamDestroy,         "cuStreamDestroy_v2",            (void *stream))                           \
    X(EventCreate,           "cuEventCreate",                 (void **event, unsigned flags))           \
    X(EventRecord,           "cuEventRecord",                 (void *event, void *stream))              \
    X(EventSynchronize,      "cuEventSynchronize",            (void *event))                            \
    X(EventElapsedTime,      "cuEventElapsedTime",            (float *milliseconds, void *from, void *to)) \
    X(EventDestroy,          "cuEventDestroy_v2",             (void *event))                            \
    X(GetErrorName,          "cuGetErrorName",                (int error, const char **name))           \
    X(GetErrorString,        "cuGetErrorString",              (int error, const char **text))
/* clang-format on */

/* Functions that a driver may lack; their members are then NULL. */
/* clang-format off */
#define QM_CUDA_OPTIONAL_LIST(X)                                                                        \
    X(DeviceGetUuid,         "cuDeviceGetUuid_v2",            (unsigned char uuid[16], int device))     \
    X(StreamBeginCapture,    "cuStreamBeginCapture_v2",       (void *stream, int mode))                 \
    X(StreamEndCapture,      "cuStreamEndCapture",            (void *stream, void **graph))             \
    X(GraphInstantiateWithFlags, "cuGraphInstantiateWithFlags",   (void **executable, void *graph, unsigned long long flags)) \
    X(GraphLaunch,           "cuGraphLaunch",                 (void *executable, void *stream))         \
    X(GraphExecDestroy,      "cuGraphExecDestroy",            (void *executable))                       \
    X(GraphDestroy,          "cuGraphDestroy",                (void *graph))
/* clang-format on */

struct qm_cuda {
#define X(member, exported, arguments) int(*member) arguments;
    QM_CUDA_LIST(X)
    QM_CUDA_OPTIONAL_LIST(X)
#undef X
};

/* Messages name a call by its member: it is the exported name, without "_v2". */
#define X(member, exported, arguments)                               \
    _Static_assert(sizeof exported == sizeof "cu" #member ||         \
                       sizeof exported == sizeof "cu" #member "_v2", \
                   exported);
QM_CUDA_LIST(X)
QM_CUDA_OPTIONAL_LIST(X)
#undef X

/* Attributes of devices and functions, and a compute mode, as cuda.h numbers them. */
enum {
    QM_CU_EXCLUSIVE_PROCESS = 3,
    QM_CU_SM_COUNT = 16,
    QM_CU_COMPUTE_MODE = 20,
    QM_CU_L2_BYTES = 38,
    QM_CU_THREADS_PER_SM = 39,
    QM_CU_MAJOR = 75,
    QM_CU_MINOR = 76,
    QM_CU_FUNC_SHARED = 1,
    QM_CU_FUNC_LOCAL = 3,
    QM_CU_FUNC_REGISTERS = 4
};

/* The driver, initialized (cuInit) and with at least one device; loaded once, kept for good.  Both
 * failures say "GPU backend unavailable: REASON".
 *
 * QM_SKIPPED: there is no GPU to use: no libcuda.so.1, or one that lacks a function; cuInit says
 * that it is the toolkit's stub (34), that there is no device (100), or that driver and library do
 * not match (803); cuDeviceGetCount counts none.  QM_INTERNAL: the driver failed, that is, any
 * other error of any call, also of cuDriverGetVersion, or a number that none can be.  So it is for
 * everything that asks for the device. */
qm_status qm_cuda_driver(const struct qm_cuda **out);

/* The version of CUDA that the driver was made for, 12040 for 12.4; 0: there is no driver, or it
 * crashes or does not return.  Where this process has not opened the driver yet and is none of
 * cuda_apart.h, another process asks it; an answer of qm_cuda_gpu_asked is used again. */
int qm_cuda_driver_version(void);

/* The same; QM_INTERNAL: it crashed, did not return or does not tell, which the message says. */
qm_status qm_cuda_driver_asked(int *version);

/* What a process that leaves the device to another one may want to know of it. */
struct qm_cuda_gpu {
    int version;      /* as qm_cuda_driver_version */
    int arch;         /* ten times the compute capability: 90 */
    int is_exclusive; /* 1: one process at a time may use it (compute mode EXCLUSIVE_PROCESS) */
};

/* Describes the device of qm_cuda_device.  A process that has not opened the driver yet asks
 * another one, which has ended when the function returns, and remembers the answer.  Statuses are
 * those of qm_cuda_device; QM_INTERNAL: the other process crashed or did not return. */
qm_status qm_cuda_gpu_asked(struct qm_cuda_gpu *out);

/* The number in $QM_CUDA_DEVICE, 0 where that is not set, INT_MAX where it is larger than that.
 * The driver is not asked.  QM_BAD_ARG: it is empty or no whole number from 0 on. */
qm_status qm_cuda_device_number(int *number);

/* The device to use, of that number.  The driver is initialized.  Statuses are those of
 * qm_cuda_device_number and qm_cuda_driver; QM_SKIPPED also: there is no device of this number,
 * which the message says. */
qm_status qm_cuda_device(int *device);

/* Every number that the driver gives is asked for here: an attribute (QM_CU_...) of a device, its
 * memory in bytes (_memory: of the context), the version of CUDA that the driver is for (12040:
 * 12.4), bytes of local memory of a thread of a kernel, blocks of so many threads of it on a
 * multiprocessor that has room for most_threads, and milliseconds between two events.  QM_INTERNAL:
 * the call failed, or the driver says what no GPU has, as 0 multiprocessors; the message names
 * it. */
qm_status qm_cuda_attribute(const struct qm_cuda *cu, int attribute, int device, int *value);
qm_status qm_cuda_memory(const struct qm_cuda *cu, size_t *left, size_t *total);
qm_status qm_cuda_total_memory(const struct qm_cuda *cu, int device, size_t *bytes);
qm_status qm_cuda_version(const struct qm_cuda *cu, int *version);
qm_status qm_cuda_local_bytes(const struct qm_cuda *cu, void *function, int *bytes);
qm_status qm_cuda_blocks(const struct qm_cuda *cu, void *function, int threads, int most_threads,
                         int *blocks);
qm_status qm_cuda_milliseconds(const struct qm_cuda *cu, void *from, void *to, double *ms);

/* Writes one line: the driver's path, version and the device of qm_cuda_device, or why there is
 * none. */
void qm_cuda_driver_text(char *text, size_t size);

/* 1: the driver refused a module because it was compiled for another architecture or by a newer
 * compiler than it knows. */
int qm_cuda_is_refused(int error);

/* The status of a driver's error number: 0 is QM_OK, 2 (out of memory) QM_NO_MEMORY, all others
 * QM_INTERNAL, with "CALL: CUDA_ERROR_... (NUMBER): TEXT" as message. */
qm_status qm_cuda_error(int error, const char *call);

/* QM_CU_ERROR(cu, MemAlloc, (&at, bytes)) calls cuMemAlloc and is its error; the call is noted for
 * who watches this process.  QM_CU: where it fails, the caller returns its status. */
#define QM_CU_ERROR(cu, member, arguments) \
    (qm_cuda_call("cu" #member), qm_cuda_call_over((cu)->member arguments))
#define QM_CU(cu, member, arguments) \
    QM_TRY(qm_cuda_error(QM_CU_ERROR(cu, member, arguments), "cu" #member))

#endif
